"""Where an execution's saves are looked at: the folders of a filesystem, or what lists names and sizes as they do.

The scan and the judgement of saves ask a :class:`Tree` and nothing else, so one path serves a folder of this host, a
root on a shared filesystem and saves that a saver has written to S3 itself (:mod:`slurm_dispatch.watch.objects`).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Protocol

from slurm_dispatch.store.view import FilesView
from slurm_dispatch.store.whole import look

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

    from slurm_dispatch.savers.view import SaveView
    from slurm_dispatch.store.whole import Look

FILES_MAX = 100_000
"""Files of two saves that are compared, inode for inode."""


class Named(Protocol):
    """A name in a folder; ``os.DirEntry`` is one."""

    @property
    def name(self) -> str:
        """The name."""

    @property
    def path(self) -> str:
        """The folder's path, and the name."""

    def is_symlink(self) -> bool:
        """Whether it is a link."""

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """Whether it is a folder."""


class Tree(Protocol):
    """Saves by their absolute paths, or what stands for those."""

    @property
    def shows_growth(self) -> bool:
        """Whether a file is seen from its beginning on: then what is written last tells of all, and what is still
        being written is seen to change. An object in S3 is seen once all of it is there, whenever it was begun."""

    def begin(self) -> None:
        """A scan begins: what is asked from now on is as it is now, or later.

        :raises StoreError: it could not be listed.
        """

    def entries(self, folder: str) -> AbstractContextManager[Iterator[Named]]:
        """The names in a folder.

        :raises OSError: it could not be listed.
        """

    def look(self, path: str, markers: Sequence[str] = (), *, read: bool = True) -> Look | None:
        """As :func:`slurm_dispatch.store.whole.look`."""

    def view(self, path: str, seen: Look) -> SaveView:
        """A save that was looked at, for the check of its layout."""

    def same(self, one: str, other: str) -> bool:
        """Whether two saves are the very same files."""

    def stamp(self, path: str) -> object:
        """What changes when a name is made in a folder; always equal to itself where only a listing tells.

        :raises OSError: it could not be asked.
        """


class Disk:
    """A filesystem."""

    shows_growth = True

    def begin(self) -> None:
        """Each question is asked anew."""

    def entries(self, folder: str) -> AbstractContextManager[Iterator[Named]]:
        """See :meth:`Tree.entries`."""
        return os.scandir(folder)

    def look(self, path: str, markers: Sequence[str] = (), *, read: bool = True) -> Look | None:
        """See :meth:`Tree.look`."""
        return look(path, markers, read=read)

    def view(self, path: str, seen: Look) -> SaveView:
        """See :meth:`Tree.view`."""
        return FilesView(path, seen)

    def same(self, one: str, other: str) -> bool:
        """Inode for inode, as hard links of a "last" save are."""
        return (marks := _inodes(one)) is not None and marks == _inodes(other)

    def stamp(self, path: str) -> object:
        """See :meth:`Tree.stamp`."""
        try:
            found = os.stat(path)
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size


DISK = Disk()


def _inodes(path: str) -> dict[str, tuple[int, int]] | None:
    """Device and inode of each file of a save by its path in it; ``None`` if it cannot be told."""
    marks: dict[str, tuple[int, int]] = {}
    try:
        top = os.lstat(path)
        if not os.path.isdir(path):
            return {"": (top.st_dev, top.st_ino)}
        for folder, _, files in os.walk(path):
            for name in files:
                whole = os.path.join(folder, name)
                found = os.lstat(whole)
                marks[os.path.relpath(whole, path)] = (found.st_dev, found.st_ino)
                if len(marks) > FILES_MAX:
                    return None
    except OSError:
        return None
    return marks


__all__ = ["DISK", "Disk", "Named", "Tree"]
