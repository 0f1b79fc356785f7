"""Folders of a checkpoint root: opened without following links, made with the root's own modes, synced.

Who may read and write a root is decided by the root folder, not by the umask of whoever comes first: group bits
and setgid of the root are those of everything that is made in it, so that a team-mate's job can go on.
"""

from __future__ import annotations

import errno
import functools
import os
import stat
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurm_dispatch.errors import AbsentError, CorruptError, show, store_error

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW
_MAKE_WAITS_S = (0.0, 0.01, 0.05, 0.2, 0.5, 1.0)
"""Waits between tries to enter a folder that is said to exist and not to: clients cache both for a while."""


@dataclass(frozen=True, slots=True)
class Modes:
    """Permission bits for what is made in a root."""

    folder: int
    file: int


def tries(waits_s: Sequence[float]) -> Iterator[int]:
    """Number the tries from 0, and wait so long before each; a wait of 0 is none (sleeping for 0 s is not)."""
    for number, wait_s in enumerate(waits_s):
        if wait_s:
            time.sleep(wait_s)
        yield number


@functools.lru_cache(maxsize=16)
def modes_of(root_mode: int) -> Modes:
    """The modes that a root's own mode asks for: the same for owner and group, and never writable for others."""
    folder = (root_mode & 0o775) | 0o700
    return Modes(folder, folder & 0o664)


def enter(parent: int, name: bytes, shown: bytes) -> int:
    """A descriptor of the folder ``name`` in ``parent``.

    :param shown: the whole path, for messages.
    :raises AbsentError: it is not there.
    :raises CorruptError: something else is there, a link too.
    """
    try:
        return os.open(name, _FOLDER, dir_fd=parent)
    except OSError as error:
        if error.errno in {errno.ENOTDIR, errno.ELOOP}:
            raise CorruptError(f"opening folder {show(shown)}: something that is not a folder is there") from error
        raise store_error(error, "opening folder", shown) from error


def make(parent: int, name: bytes, shown: bytes, mode: int) -> int:
    """Like :func:`enter`, and make the folder if it is missing. The caller syncs ``parent``.

    Two processes that make it at once both get it. A mode that a killed maker left too narrow is put right.
    """
    try:
        descriptor = enter(parent, name, shown)
    except AbsentError:
        descriptor = _make(parent, name, shown, mode)
    _widen(descriptor, mode)
    return descriptor


def _make(parent: int, name: bytes, shown: bytes, mode: int) -> int:
    last: AbsentError | None = None
    for _ in tries(_MAKE_WAITS_S):
        _mkdir(parent, name, shown, mode)
        try:
            return enter(parent, name, shown)
        except AbsentError as error:
            # "It exists" and then "it does not": a cached absence. Reading the parent refreshes it.
            last = error
            _refresh(parent)
    assert last is not None
    raise last


def _mkdir(parent: int, name: bytes, shown: bytes, mode: int) -> None:
    try:
        os.mkdir(name, mode, dir_fd=parent)
    except FileExistsError:
        pass  # somebody else was first, which is as good
    except OSError as error:
        raise store_error(error, "making folder", shown) from error


def _widen(descriptor: int, mode: int) -> None:
    found = os.fstat(descriptor)
    if found.st_mode & mode != mode and found.st_uid == os.geteuid():
        try:
            os.fchmod(descriptor, stat.S_IMODE(found.st_mode) | mode)
        except OSError:
            pass  # a filesystem without modes: then nobody is kept out by them


def _refresh(parent: int) -> None:
    try:
        again = os.open(b".", _FOLDER, dir_fd=parent)
        try:
            os.listdir(again)
        finally:
            os.close(again)
    except OSError:
        pass  # the next try to enter says what is wrong


def list_fresh(path: bytes) -> list[bytes]:
    """The names in a folder, from an open of its own: what a cached absence hides, this shows.

    At the open of a folder the Linux client of NFS asks its server whether it has changed, whatever it has cached,
    unless it is mounted with nocto (``nfs_lookup_verify_inode`` in ``fs/nfs/dir.c``).

    :raises StoreError: it cannot be read; :class:`AbsentError` if it is not there.
    """
    try:
        return os.listdir(path)
    except OSError as error:
        raise store_error(error, "listing", path) from error


def is_listed(path: bytes) -> bool:
    """Whether what was just seen at ``path`` stands in its folder, which is opened anew.

    A look at the path itself may be answered from a client's cache for a minute: that there is none, and that there
    is what another host has removed or renamed, which can even be opened, since the client asks its server for what
    it knows by number and not by name (nfs(5), "Directory entry caching"). The open of the folder makes the client
    ask whether it has changed, as in :func:`list_fresh`, and a name that it remembers from before is looked up again.
    So it costs the same however many names are in the folder.

    :raises StoreError: it could not be looked.
    """
    folder, name = os.path.split(path)
    doing, at = "opening folder", folder
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            doing, at = "looking at", path
            os.lstat(name, dir_fd=descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        trouble = store_error(error, doing, at)
        if isinstance(trouble, AbsentError):
            return False
        raise trouble from error
    return True


def sync(descriptor: int, shown: bytes) -> bool:
    """Fsync an open folder.

    :returns: false where the filesystem cannot sync a folder at all.
    :raises AmbiguousError: for ``EIO``: what was made in it may be gone after a power loss.
    """
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno in {errno.EINVAL, errno.ENOTSUP}:
            return False
        raise store_error(error, "syncing folder", shown) from error
    return True


def sync_path(path: bytes) -> bool:
    """:func:`sync` of the folder at ``path``, which must be no link."""
    try:
        descriptor = os.open(path, _FOLDER)
    except OSError as error:
        raise store_error(error, "syncing folder", path) from error
    try:
        return sync(descriptor, path)
    finally:
        os.close(descriptor)
