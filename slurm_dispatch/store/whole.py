"""Whether a save is whole: proved by a marker or its own structure, or assumed because it does not change.

The two are not worth the same (section 4 of the design): a saver that was killed leaves a torn save that never
changes again, so what is only settled counts while the command runs or after it ended by itself with 0.
"""

from __future__ import annotations

import errno
import fnmatch
import json
import os
import re
import stat
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from slurm_dispatch.errors import BadDataError, show, store_error
from slurm_dispatch.store.folders import is_listed
from slurm_dispatch.store.structure import structure

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

ENTRIES_MAX = 500_000
"""Files and folders in one save. The largest sharded saves that we know of have some ten thousand."""

JSON_MARKER_MAX = 64 << 20
"""Bytes; a marker that is longer is not read. The state of a trainer after a million steps has some twenty MiB."""

_VANISHED = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ESTALE})
_TEMPORARY = (
    re.compile(rb"\.tmp-(?P<final>.+)", re.DOTALL),
    re.compile(rb"tmp[-_.](?P<final>.+)", re.DOTALL),
    re.compile(rb"(?P<final>.+?)\.orbax-checkpoint-tmp(-[0-9]+)?", re.DOTALL),
    re.compile(rb"(?P<final>.+?)[-_.](tmp|partial|incomplete)([-_.][A-Za-z0-9]+)?", re.DOTALL),
)


class Proof(str, Enum):
    """How it is known that a save is whole."""

    PROVED = "proved"
    ASSUMED = "assumed"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing in a save.

    :ivar path: relative to the save; empty for the save itself.
    :ivar kind: ``f`` a regular file, ``d`` a folder, ``l`` a link, ``s`` something special.
    :ivar size: bytes; 0 for what is not a regular file.
    :ivar mtime_ns: of a regular file; 0 otherwise.
    """

    path: bytes
    kind: str
    size: int
    mtime_ns: int
    inode: int


@dataclass(frozen=True, slots=True)
class Look:
    """A save as it was listed once. Two looks with equal entries: nothing changed between them.

    :ivar entries: all entries, sorted by path.
    :ivar proved: a marker is there, or a single file's own structure says that it is whole; nothing torn.
    :ivar torn: the path in the save of a file whose own structure says that it is not whole, or ``None``.
    """

    entries: tuple[Entry, ...]
    proved: bool
    torn: bytes | None

    @property
    def size(self) -> int:
        """Bytes in all its files."""
        return sum(entry.size for entry in self.entries)

    @property
    def files(self) -> int:
        """How many regular files."""
        return sum(entry.kind == "f" for entry in self.entries)


def final_name(name: bytes) -> bytes | None:
    """What a temporary name will be called once it is whole (C086, C100).

    :returns: ``None`` for a name that is not temporary.
    """
    for pattern in _TEMPORARY:
        match = pattern.fullmatch(name)
        if match is not None:
            return match["final"]
    return None


def look(path: str | bytes, markers: Sequence[str] = (), *, read: bool = True) -> Look | None:
    """List a save (a file or a folder), never through a link.

    :param markers: shell patterns of paths in the save; ``{name}`` in one stands for the save's own name and
        makes it the name of a sibling (``{name}.done``). All must be there for the save to be proved, and one
        that is called ``.json`` must be JSON.
    :param read: look into the files that have a structure of their own (zip, so ``torch.save`` and ``.npz``;
        safetensors): beginning and end are read.
    :returns: ``None`` if it is not there, or something of it went while it was listed.
    :raises BadDataError: more than :data:`ENTRIES_MAX` entries.
    :raises StoreError: it could not be looked.
    """
    raw = os.fsencode(path)
    try:
        entries = tuple(sorted(_walk(raw), key=lambda entry: entry.path))
        torn, whole_file = _structures(raw, entries) if read else (None, False)
        marked = bool(markers) and all(_marked(raw, entries, marker, read) for marker in markers)
    except OSError as error:
        if error.errno in _VANISHED:
            return None
        raise store_error(error, "looking at save", raw) from error
    proved = torn is None and (marked or (whole_file and not markers))
    return Look(entries, proved, torn)


def _walk(raw: bytes) -> Iterator[Entry]:
    first = _entry(b"", os.lstat(raw))
    yield first
    folders = [b""] if first.kind == "d" else []
    count = 1
    while folders:
        folder = folders.pop()
        with os.scandir(os.path.join(raw, folder) if folder else raw) as entries:
            for found in entries:
                inner = os.path.join(folder, found.name) if folder else found.name
                entry = _entry(inner, found.stat(follow_symlinks=False))
                if entry.kind == "d":
                    folders.append(inner)
                count += 1
                if count > ENTRIES_MAX:
                    raise BadDataError(f"save {show(raw)} has more than {ENTRIES_MAX} files and folders")
                yield entry


def _entry(path: bytes, found: os.stat_result) -> Entry:
    mode = found.st_mode
    if stat.S_ISREG(mode):
        return Entry(path, "f", found.st_size, found.st_mtime_ns, found.st_ino)
    kind = "d" if stat.S_ISDIR(mode) else "l" if stat.S_ISLNK(mode) else "s"
    return Entry(path, kind, 0, 0, found.st_ino)


def _structures(raw: bytes, entries: tuple[Entry, ...]) -> tuple[bytes | None, bool]:
    """The first torn file, and whether the save is one file that is whole by its structure."""
    single = False
    for entry in entries:
        if entry.kind != "f" or entry.size == 0:
            continue
        whole = structure(os.path.join(raw, entry.path) if entry.path else raw)
        if whole is False:
            return entry.path, False
        single = whole is True and len(entries) == 1
    return None, single


def _marked(raw: bytes, entries: tuple[Entry, ...], marker: str, read: bool) -> bool:
    folder, name = os.path.split(raw)
    if "{name}" in marker:
        beside = os.fsencode(marker).replace(b"{name}", name)
        return is_listed(os.path.join(folder, beside))
    pattern = os.fsencode(marker)
    found = [entry for entry in entries if entry.path and fnmatch.fnmatchcase(entry.path, pattern)]
    # A marker with content (trainer_state.json) can itself be cut by a kill.
    return any(not read or entry.kind != "f" or _is_written(raw, entry) for entry in found)


def _is_written(raw: bytes, marker: Entry) -> bool:
    """False for a marker that is called JSON and is not: its writer was killed, or is not done yet."""
    if not marker.path.endswith(b".json") or marker.size > JSON_MARKER_MAX:
        return True
    with open(os.path.join(raw, marker.path), "rb") as file:
        text = file.read(JSON_MARKER_MAX)
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


class Settling:
    """Remembers looks from scan to scan, so that it can say for how long a save has not changed.

    :param settle_s: for how long; a save that is listed for the first time is never settled.
    """

    def __init__(self, settle_s: float) -> None:
        self.settle_s = settle_s
        self._seen: dict[bytes, tuple[tuple[Entry, ...], float, float]] = {}
        """By path: the entries, when they were last seen, and for how long they have been seen unchanged."""

    def settled(self, path: str | bytes, seen: Look, now: float) -> bool:
        """True once ``path`` has looked the same for ``settle_s`` seconds of the monotonic clock ``now``.

        A torn or empty save is never settled. Between two looks at most half of ``settle_s`` counts: a job that
        was suspended, and this process with it, looks unchanged for as long as the suspension was.
        """
        key = os.fsencode(path)
        before = self._seen.get(key)
        if before is None or before[0] != seen.entries:
            self._seen[key] = (seen.entries, now, 0.0)
            return False
        unchanged_s = before[2] + min(now - before[1], self.settle_s / 2)
        self._seen[key] = (seen.entries, now, unchanged_s)
        return seen.torn is None and seen.size > 0 and unchanged_s >= self.settle_s

    def retain(self, paths: Iterable[str]) -> None:
        """Forget every save but these: the others are gone, and a run of weeks makes many."""
        there = {os.fsencode(path) for path in paths}
        self._seen = {path: what for path, what in self._seen.items() if path in there}

    def forget(self, path: str | bytes) -> None:
        """The save was published."""
        self._seen.pop(os.fsencode(path), None)
