"""Whether a published save is what it was and whole: what ``dispatch fsck`` and ``latest --verify`` ask of each.

The law: *a save that is not there is "removed" only where what proved it went too, as our own removing leaves it;
otherwise it is "gone".* Whether a save says itself that it is not whole is asked of the layout of its saver.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from slurm_dispatch.errors import BadDataError, CorruptError, StoreError, show, store_error
from slurm_dispatch.savers.auto import recognise
from slurm_dispatch.savers.layout import State
from slurm_dispatch.savers.plain import check as check_plain
from slurm_dispatch.store.manifest import manifest_of, read_manifest
from slurm_dispatch.store.view import FilesView
from slurm_dispatch.store.whole import Look, look

if TYPE_CHECKING:
    from slurm_dispatch.model.publication import Publication
    from slurm_dispatch.savers.view import SaveView
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
    """Look at a publication's save: every name, size and time, and what its saver's layout reads of it.

    :returns: ``UNKNOWN`` where it could not be looked; never raises for what is wrong with one save.
    """
    path = os.path.join(root.raw, publication.path)
    try:
        seen = look(path)
        if seen is None or (len(seen.entries) == 1 and seen.size == 0):
            return _absent(root, publication)
        try:
            manifest = read_manifest(root, publication.path)
        except CorruptError as error:
            return _of(Condition.CHANGED, str(error), seen)
        torn = _cut(seen) or _judged(path, seen)
    except (StoreError, BadDataError) as error:
        return Found(Condition.UNKNOWN, str(error))
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


def judge(view: SaveView) -> str | None:
    """Why the save says itself that it is not whole, by the layout of the saver that it is recognised as, or by the
    structure and the indexes of its files; ``None`` where nothing in it says so.

    :raises OSError: of the view's reader.
    """
    layout = recognise(view)
    verdict = check_plain(view) if layout is None else layout.check(view)
    if verdict.state is not State.TORN:
        return None
    return verdict.why if layout is None else f"{verdict.why} (a save of {layout.title})"


def _cut(seen: Look) -> str | None:
    if seen.torn is None:
        return None
    return f"{show(seen.torn) if seen.torn else 'the file'} is cut off"


def _judged(path: bytes, seen: Look) -> str | None:
    try:
        return judge(FilesView(path, seen))
    except OSError as error:
        raise store_error(error, "reading in save", path) from error


def _absent(root: CheckpointRoot, publication: Publication) -> Found:
    folder = b"exec/" + (publication.attempt or "").encode("ascii", "replace")
    try:
        manifest = read_manifest(root, publication.path)
    except CorruptError as error:
        return Found(Condition.GONE, str(error))
    if manifest is not None and b"/kept/" not in publication.path:
        return Found(Condition.REMOVED, "by its saver, whose own it was")
    if manifest is not None:
        return Found(Condition.GONE, f"it had {manifest.files} files with {manifest.size} bytes")
    if b".dispatch" not in root.entries(folder):
        return Found(Condition.GONE, "and so is what was known of its execution")
    return Found(Condition.REMOVED, "by dispatch, or it was never recorded")


def _of(condition: Condition, why: str, seen: Look) -> Found:
    return Found(condition, why, seen.files, seen.size)


__all__ = ["FAULTS", "Condition", "Found", "inspect", "judge"]
