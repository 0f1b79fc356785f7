"""Whether a published save is what it was and whole: what ``dispatch fsck`` and ``latest --verify`` ask of each.

The law: *a save that is not there is "removed" only where what proved it went too, as our own removing leaves it;
otherwise it is "gone".* :func:`judge` is the one place that knows how a save's own structure is read.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from slurm_dispatch.errors import BadDataError, CorruptError, StoreError, show
from slurm_dispatch.store.manifest import manifest_of, read_manifest
from slurm_dispatch.store.whole import Look, look

if TYPE_CHECKING:
    from slurm_dispatch.model.publication import Publication
    from slurm_dispatch.store.root import CheckpointRoot


class Condition(str, Enum):
    """What is found of a published save."""

    WHOLE = "whole"
    TORN = "torn"
    CHANGED = "changed"
    GONE = "gone"
    REMOVED = "removed"
    UNRECORDED = "unrecorded"
    UNKNOWN = "unknown"

    def __str__(self) -> str:
        return self.value


FAULTS = frozenset({Condition.TORN, Condition.CHANGED, Condition.GONE})
"""What is wrong, whichever publication it is of; of the latest ``removed`` is too."""


@dataclass(frozen=True, slots=True)
class Found:
    """What was found of one save.

    :ivar why: one line without the save's name.
    :ivar files: regular files, ``size``: bytes in them; 0 where it is not there.
    """

    condition: Condition
    why: str
    files: int = 0
    size: int = 0


def inspect(root: CheckpointRoot, publication: Publication) -> Found:
    """Look at a publication's save: every name, size and time, and into the files that have a structure of their own.

    :returns: ``UNKNOWN`` where it could not be looked; never raises for what is wrong with one save.
    """
    try:
        seen = look(os.path.join(root.raw, publication.path))
        if seen is None or (len(seen.entries) == 1 and seen.size == 0):
            return _absent(root, publication)
        try:
            manifest = read_manifest(root, publication.path)
        except CorruptError as error:
            return _of(Condition.CHANGED, str(error), seen)
    except (StoreError, BadDataError) as error:
        return Found(Condition.UNKNOWN, str(error))
    torn = judge(seen)
    if torn is not None:
        return _of(Condition.TORN, torn, seen)
    if manifest is None:
        return _of(Condition.UNRECORDED, "it was published without a manifest", seen)
    now = manifest_of(seen, manifest.proof)
    if now != manifest:
        if (now.files, now.size) == (manifest.files, manifest.size):
            return _of(Condition.CHANGED, "names or times are not what they were", seen)
        was = f"it had {manifest.files} files with {manifest.size} bytes"
        return _of(Condition.CHANGED, f"{was}, and has {now.files} with {now.size}", seen)
    return _of(Condition.WHOLE, f"{manifest.proof} when it was published, and unchanged", seen)


def judge(seen: Look) -> str | None:
    """Why the save's own structure says that it is not whole; ``None`` where it says nothing against it."""
    if seen.torn is None:
        return None
    return f"{show(seen.torn) if seen.torn else 'the file'} is cut off"


def _absent(root: CheckpointRoot, publication: Publication) -> Found:
    folder = b"exec/" + (publication.attempt or "").encode("ascii", "replace")
    try:
        manifest = read_manifest(root, publication.path)
    except CorruptError as error:
        return Found(Condition.GONE, str(error))
    if manifest is not None:
        return Found(Condition.GONE, f"it had {manifest.files} files with {manifest.size} bytes")
    if b".dispatch" not in root.entries(folder):
        return Found(Condition.GONE, "and so is what was known of its execution")
    return Found(Condition.REMOVED, "by dispatch, or it was never recorded")


def _of(condition: Condition, why: str, seen: Look) -> Found:
    return Found(condition, why, seen.files, seen.size)


__all__ = ["FAULTS", "Condition", "Found", "inspect", "judge"]
