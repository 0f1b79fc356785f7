"""Bytes and objects of a root in S3, by execution: from one listing, nothing of an object but its size.

No two objects share a byte here, so all that an execution has is its alone. Parts of uploads that were not finished
are kept by a store and are in no listing (Amazon S3 User Guide, "Aborting a multipart upload").
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurm_dispatch.store.outranked import by_attempt, epochs_of
from slurm_dispatch.store.space import PARTS, Space, Usage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from slurm_dispatch.s3.bucket import Meta
    from slurm_dispatch.s3.root import S3Root


def space(root: S3Root) -> Space:
    """Look at every object below the root.

    :returns: as for a folder; an inode is an object, and its bytes on disk are its content.
    :raises StoreError: the root could not be listed.
    :raises BadDataError: a publication's name does not parse.
    """
    report = Space()
    epochs = epochs_of(root, by_attempt(root.listing()))
    usages = {attempt: Usage(attempt, epochs[attempt]) for attempt in epochs}
    folder = root.place.key("exec")
    for meta in root.bucket.below(folder, root.bucket.deadline()):
        attempt, _, rest = meta.key[len(folder) + 1 :].partition("/")
        if attempt in usages:
            part, slash, _ = rest.partition("/")
            _add(usages[attempt], part if slash and part in PARTS else "rest", meta)
    report.rows += sorted(usages.values(), key=lambda one: (one.epoch or -1, one.name), reverse=True)
    for name in ("pub", "own"):
        usage = Usage(name)
        for meta in root.bucket.below(root.place.key(name), root.bucket.deadline()):
            _add(usage, "rest", meta)
        report.rows.append(usage)
    return report


def freed(root: S3Root, paths: Iterable[bytes]) -> tuple[int, int]:
    """(bytes, objects) that removing these saves would give back.

    :raises StoreError: one could not be listed.
    """
    found = [meta for path in paths for meta in root.save_objects(path, root.bucket.deadline())]
    return sum(meta.size for meta in found), len(found)


def _add(usage: Usage, part: str, meta: Meta) -> None:
    usage.parts[part] += meta.size
    usage.content += meta.size
    usage.alone += meta.size
    usage.inodes += 1


__all__ = ["freed", "space"]
