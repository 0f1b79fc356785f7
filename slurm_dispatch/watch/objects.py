"""The saves that a saver has written to S3 itself, as one listing of the execution's objects shows them.

Nothing is listed twice in a scan: names, sizes and entity tags of all objects come in one listing, and what a layout
reads of them in ranges. A save in which nothing changed since it was read is not read again.
"""

from __future__ import annotations

import errno
import fnmatch
import hashlib
import json
from bisect import bisect_left
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import TYPE_CHECKING

from slurm_dispatch.errors import BadDataError, show, store_error
from slurm_dispatch.s3.view import READ_BYTES_MAX, S3SaveView
from slurm_dispatch.savers.layout import State
from slurm_dispatch.savers.plain import check as check_plain
from slurm_dispatch.store.whole import ENTRIES_MAX, Entry, Look

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

    from slurm_dispatch.s3.bucket import Meta
    from slurm_dispatch.s3.root import S3Root
    from slurm_dispatch.savers.view import SaveView
    from slurm_dispatch.watch.tree import Named

OURS = ".dispatch/"


@dataclass(frozen=True, slots=True)
class _Name:
    """A name in what would be a folder."""

    name: str
    path: str
    folder: bool

    def is_symlink(self) -> bool:
        """There are none."""
        return False

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """Whether something is below it."""
        return self.folder


class Objects:
    """A :class:`slurm_dispatch.watch.tree.Tree` of one execution.

    :ivar directory: ``s3://bucket/prefix/exec/<attempt>``: paths are that, a slash, and the rest of a key.
    """

    shows_growth = False

    def __init__(self, root: S3Root, attempt: str) -> None:
        self.directory = root.execution(attempt)
        self._root = root
        self._folder = root.place.key("exec", attempt)
        self._objects: dict[str, Meta] = {}
        """By the rest of the key, in order."""
        self._rests: list[str] = []
        self._below: dict[str, dict[str, bool]] = {"": {}}
        """By folder: its names, and whether each has something below it."""
        self._looks: dict[tuple[str, tuple[str, ...]], Look] = {}

    def begin(self) -> None:
        """List the execution anew."""
        found = self._root.bucket.below(self._folder, self._root.bucket.deadline())
        rests = {meta.key[len(self._folder) + 1 :]: meta for meta in found}
        # A key with a slash at its end is what some programs leave for a folder.
        self._objects = {
            rest: meta for rest, meta in sorted(rests.items()) if not rest.startswith(OURS) and rest[-1:] != "/"
        }
        self._rests = list(self._objects)
        self._below = {"": {}}
        for rest in self._rests:
            parts = rest.split("/")
            for count in range(len(parts)):
                names = self._below.setdefault("/".join(parts[:count]), {})
                names[parts[count]] = names.get(parts[count], False) or count < len(parts) - 1

    def entries(self, folder: str) -> AbstractContextManager[Iterator[Named]]:
        """See :meth:`Tree.entries`. The execution itself is there though nothing is in it yet."""
        names = self._below.get(self._rest(folder))
        if names is None:
            raise FileNotFoundError(errno.ENOENT, "nothing is below it", folder)
        found: list[Named] = [_Name(name, f"{folder}/{name}", inner) for name, inner in sorted(names.items())]
        return nullcontext(iter(found))

    def look(self, path: str, markers: Sequence[str] = (), *, read: bool = True) -> Look | None:
        """See :meth:`Tree.look`; as the listing showed it, and read only if it is not what it was then."""
        rest = self._rest(path)
        entries = self._entries_of(rest)
        if not entries:
            return None
        if len(entries) > ENTRIES_MAX:
            raise BadDataError(f"save {show(path)} has more than {ENTRIES_MAX} objects")
        if not read and not markers:
            return Look(entries, False, None)
        known = self._looks.get((rest, tuple(markers)))
        # A marker that stands beside the save changes nothing in it when it comes.
        inside = not any("{name}" in marker for marker in markers)
        if known is not None and known.entries == entries and (inside or known.proved):
            return known
        try:
            seen = self._read(rest, entries, markers)
        except OSError as error:
            if error.errno == errno.ENOENT:
                return None
            raise store_error(error, "looking at save", path) from error
        there = {self._rest(path)} | self._objects.keys() | self._below.keys()
        self._looks = {which: one for which, one in self._looks.items() if which[0] in there}
        self._looks[(rest, tuple(markers))] = seen
        return seen

    def view(self, path: str, seen: Look) -> SaveView:
        """See :meth:`Tree.view`."""
        sizes = {entry.path.decode("utf-8"): entry.size for entry in seen.entries}
        return S3SaveView(self._root.bucket, f"{self._folder}/{self._rest(path)}", sizes)

    def same(self, one: str, other: str) -> bool:
        """Copies with the same content: no link tells here, and either may be published for the other."""
        return self._entries_of(self._rest(one)) == self._entries_of(self._rest(other))

    def stamp(self, path: str) -> object:
        """See :meth:`Tree.stamp`."""
        return None

    @staticmethod
    def entries_of(objects: Sequence[Meta], key: str) -> tuple[Entry, ...]:
        """What :meth:`look` would say of these objects of the save whose key is ``key``."""
        found = sorted(objects, key=lambda meta: meta.key)
        return tuple(_entry(meta.key[len(key) + 1 :], meta) for meta in found if meta.key[-1:] != "/")

    def _rest(self, path: str) -> str:
        return path[len(self.directory) + 1 :]

    def _entries_of(self, rest: str) -> tuple[Entry, ...]:
        if rest in self._objects:
            return (_entry("", self._objects[rest]),)
        inside = f"{rest}/"
        after = islice(self._rests, bisect_left(self._rests, inside), None)
        there = takewhile(lambda key: key.startswith(inside), after)
        return tuple(_entry(key[len(inside) :], self._objects[key]) for key in there)

    def _read(self, rest: str, entries: tuple[Entry, ...], markers: Sequence[str]) -> Look:
        view = self.view(f"{self.directory}/{rest}", Look(entries, False, None))
        marked = bool(markers) and all(self._marked(rest, view, marker) for marker in markers)
        if markers and not marked:
            return Look(entries, False, None)  # nothing more is read of what is not finished
        verdict = check_plain(view)
        if verdict.state is State.TORN:
            return Look(entries, False, b"")
        return Look(entries, marked or (view.single and verdict.state is State.WHOLE), None)

    def _marked(self, rest: str, view: SaveView, marker: str) -> bool:
        above, _, name = rest.rpartition("/")
        if "{name}" in marker:
            beside = marker.replace("{name}", name)
            return beside in self._below.get(above, {})
        found = [path for path in view.sizes if path and fnmatch.fnmatchcase(path, marker)]
        return any(_is_written(view, path) for path in found)


def _is_written(view: SaveView, path: str) -> bool:
    """False for a marker that is called JSON and is not."""
    if not path.endswith(".json") or view.sizes[path] > READ_BYTES_MAX:
        return True
    try:
        json.loads(view.read(path))
    except (ValueError, RecursionError):
        return False
    return True


def _entry(path: str, meta: Meta) -> Entry:
    # An object that was written again has another tag; it stands where a file's time does.
    mark = int.from_bytes(hashlib.sha256(meta.tag.encode("utf-8")).digest()[:7], "big")
    return Entry(path.encode("utf-8"), "f", meta.size, mark, 0)


__all__ = ["Objects"]
