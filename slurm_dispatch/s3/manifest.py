"""What a save in S3 was when it was published, and how it was known to be whole.

``exec/<attempt>/.dispatch/save-<name>``, as on a POSIX root (``store.manifest``); the digest is over the keys, sizes
and entity tags of its objects, so that a saver that writes over a published save is seen.
"""

from __future__ import annotations

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from slurm_dispatch.errors import AbsentError, BadDataError, CorruptError, StoreError, show
from slurm_dispatch.s3.view import S3SaveView, sizes_of
from slurm_dispatch.store.manifest import PREFIX, SIZE_MAX, Manifest, SaveState, parse, render
from slurm_dispatch.store.sound import Condition, Found, judge

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slurm_dispatch.model.publication import Publication
    from slurm_dispatch.s3.bucket import Meta
    from slurm_dispatch.s3.root import S3Root
    from slurm_dispatch.store.whole import Proof

LOOKERS = 16
"""Saves that are looked at together; each look waits for the store most of its time."""


def manifest_of(root: S3Root, path: bytes, objects: Sequence[Meta], proof: Proof) -> Manifest:
    """The manifest of the save at ``path`` (relative to the root), which has these objects."""
    save = root.place.key(os.fsdecode(path))
    digest = hashlib.sha256()
    for one in sorted(objects, key=lambda meta: meta.key):
        name = one.key[len(save) :].encode("utf-8")
        digest.update(b"%d %d\0%s\0%s\0" % (one.size, len(name), name, one.tag.encode("utf-8")))
    return Manifest(proof, len(objects), sum(one.size for one in objects), digest.hexdigest())


def write_manifest(root: S3Root, path: bytes, manifest: Manifest) -> None:
    """Leave it for the save at ``path`` (relative to the root)."""
    root.bucket.replace(_key(root, path), render(path, manifest), root.bucket.deadline())


def read_manifest(root: S3Root, path: bytes) -> Manifest | None:
    """What was left for the save at ``path``, or ``None`` if nothing was.

    :raises CorruptError: it is there and does not parse.
    """
    key = _key(root, path)
    content = root.bucket.read(key, root.bucket.deadline(), length=SIZE_MAX)
    return None if content is None else parse(content, path, root.place.address(key))


def forget_manifest(root: S3Root, path: bytes) -> None:
    """Remove what was left for the save at ``path``, which is about to go; nothing of another save of its name."""
    if path.count(b"/") < 2:
        return
    try:
        if read_manifest(root, path) is None:
            return
    except CorruptError:
        return  # nobody knows whose it is
    root.bucket.remove(_key(root, path), root.bucket.deadline())


def record(root: S3Root, path: bytes, proof: Proof) -> None:
    """Leave what the save at ``path`` is now, unless that was done before."""
    if read_manifest(root, path) is None:
        objects = root.save_objects(path, root.bucket.deadline())
        write_manifest(root, path, manifest_of(root, path, objects, proof))


def state_of(root: S3Root, publication: Publication) -> SaveState:
    """The save as it is now, against its manifest.

    :raises StoreError: it could not be looked.
    """
    objects = root.save_objects(publication.path, root.bucket.deadline())
    if not any(one.size for one in objects):
        return SaveState.GONE
    manifest = read_manifest(root, publication.path)
    if manifest is None:
        return SaveState.UNRECORDED
    if manifest_of(root, publication.path, objects, manifest.proof) != manifest:
        return SaveState.CHANGED
    return SaveState(manifest.proof.value)


def check_whole(root: S3Root, path: bytes) -> None:
    """See that nothing is lost of a published save. What is only other than it was is said, as it is of a folder.

    Whatever is left of a save has its name: a lifecycle rule, or a rotation of its saver that was stopped, takes one
    object after the other.

    :raises AbsentError: it is not what it was, and not the latest any more.
    :raises BadDataError: it has fewer objects than it had, and is the latest: somebody else has removed them.
    """
    manifest = read_manifest(root, path)
    objects = root.save_objects(path, root.bucket.deadline())
    check_as_recorded(root, path, manifest, objects)


def check_as_recorded(root: S3Root, path: bytes, manifest: Manifest | None, objects: Sequence[Meta]) -> None:
    """:func:`check_whole` of what was listed. Without a manifest there is nothing to hold it to."""
    if manifest is None:
        return
    now = manifest_of(root, path, objects, manifest.proof)
    if now == manifest:
        return
    publications = root.listing()
    if publications and publications[0].path != path and any(one.path == path for one in publications):
        raise AbsentError(f"save {show(path)} of {show(root.path)} is outranked, and not what it was")
    if now.files < manifest.files:
        raise BadDataError(
            f"save {show(path)} of {show(root.path)} had {manifest.files} objects with {manifest.size} bytes when it "
            f"was published, and has {now.files} with {now.size}",
            hint="find out what removed them: a lifecycle rule of the bucket, or the saver's own rotation",
        )
    root.say(f"save {show(path)} is not what it was when it was published; resuming from it")


def inspect(root: S3Root, publication: Publication) -> Found:
    """Look at a publication's save: keys, sizes and tags of its objects, and what its saver's layout reads of them.

    :returns: ``UNKNOWN`` where it could not be looked; never raises for what is wrong with one save.
    """
    try:
        objects = root.save_objects(publication.path, root.bucket.deadline())
        manifest = read_manifest(root, publication.path)
    except CorruptError as error:
        return Found(Condition.CHANGED, str(error))
    except (StoreError, BadDataError) as error:
        return Found(Condition.UNKNOWN, str(error))
    files, size = len(objects), sum(one.size for one in objects)
    if not size:
        return _absent(root, publication, manifest)
    key = root.place.key(os.fsdecode(publication.path))
    try:
        torn = judge(S3SaveView(root.bucket, key, sizes_of(objects, key)))
    except OSError as error:
        return Found(Condition.UNKNOWN, f"reading in save {show(publication.path)}: {error.strerror}", files, size)
    if torn is not None:
        return Found(Condition.TORN, torn, files, size)
    if manifest is None:
        return Found(Condition.UNRECORDED, "it was published without a manifest", files, size)
    if manifest_of(root, publication.path, objects, manifest.proof) != manifest:
        return Found(Condition.CHANGED, "names, sizes or tags are not what they were", files, size)
    return Found(Condition.WHOLE, f"{manifest.proof} when it was published, and unchanged", files, size)


def _absent(root: S3Root, publication: Publication, manifest: Manifest | None) -> Found:
    if manifest is not None and b"/kept/" not in publication.path:
        return Found(Condition.REMOVED, "by its saver, whose own it was")
    if manifest is not None:
        return Found(Condition.GONE, f"it had {manifest.files} objects with {manifest.size} bytes")
    try:
        known = publication.attempt is not None and root.notes(publication.attempt).names()
    except StoreError as error:
        return Found(Condition.UNKNOWN, str(error))
    if not known:
        return Found(Condition.GONE, "and so is what was known of its execution")
    return Found(Condition.REMOVED, "by dispatch, or it was never recorded")


def states_of(root: S3Root, publications: Sequence[Publication]) -> list[SaveState | StoreError]:
    """:func:`state_of` of each, many at once; an error in the place of what could not be looked at."""

    def one(publication: Publication) -> SaveState | StoreError:
        try:
            return state_of(root, publication)
        except StoreError as error:
            return error

    with ThreadPoolExecutor(LOOKERS) as lookers:
        return list(lookers.map(one, publications))


def _key(root: S3Root, path: bytes) -> str:
    parts = path.decode("utf-8").split("/")
    return root.place.key("exec", parts[1], ".dispatch", PREFIX + parts[-1])
