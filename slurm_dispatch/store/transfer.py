"""Making a second save out of one: links for what is large, copies for what is small, whole or not at all.

What is made has the name ``.tmp-<random>`` until every file, copy and folder of it is on disk and the source has
been listed again and is the same; then it is renamed. A kill at any point leaves a ``.tmp-`` name at most.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import stat
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from slurm_dispatch.durable import TEMPORARY_PREFIX
from slurm_dispatch.errors import BadDataError, show, store_error
from slurm_dispatch.store.folders import sync
from slurm_dispatch.store.remove import remove_quietly
from slurm_dispatch.store.saves import check_link
from slurm_dispatch.store.whole import Look, look

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurm_dispatch.store.whole import Entry

COPY_BELOW = 1 << 20
"""Bytes. Smaller files are copied, since savers rewrite those in place."""
SYNC_THREADS = 16
"""Fsyncs at once: filesystems join them into few commits, so 1,000 small files cost little more than one."""
FICLONE = 0x40049409
"""``ioctl`` that shares a file's blocks with another (``linux/fs.h``); where it does not work, bytes are copied."""
_VANISHED = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ESTALE})
_CANNOT_LINK = frozenset({errno.EMLINK, errno.EPERM, errno.EXDEV, errno.ENOTSUP, errno.EACCES, errno.ENOSYS})
_NO_CLONE = frozenset(
    {errno.ENOTSUP, errno.ENOTTY, errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EPERM, errno.EBADF}
)
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MAKE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_PART = 1 << 24
_T = TypeVar("_T")


class _Changed(Exception):
    """The source is not what it was when it was listed."""


def transfer(
    source: bytes,
    folder: bytes,
    name: bytes,
    *,
    copy: bool | Callable[[bytes], bool],
    expected: Look | None = None,
    before: Callable[[Look], None] | None = None,
    durable: bool = True,
) -> Look | None:
    """Make ``folder/name`` of the save at ``source``.

    :param source: absolute.
    :param copy: copy files of every size; or those of which it is true, by their path in the save.
    :param expected: what was judged to be whole; a source that is no longer that has changed.
    :param before: called with the look at the source just before the rename.
    :param durable: all of it is on disk when it has its name; not needed of what outlives no power loss.
    :returns: the look at what was made; ``None`` if the source went or changed meanwhile.
    :raises BadDataError: it is empty, or has special files or links that leave it.
    :raises StoreError: the disk; then only a ``.tmp-`` name is left, if that.
    """
    seen = look(source, read=False)
    if seen is None or (expected is not None and seen.entries != expected.entries):
        return None
    _check(source, seen)
    temporary = os.path.join(folder, f"{TEMPORARY_PREFIX}{secrets.token_hex(8)}".encode())
    done = False
    try:
        _Transfer(source, temporary, copy).run(seen, durable=durable)
        again = look(source, read=False)
        if again is None or again.entries != seen.entries:
            return None
        if before is not None:
            before(seen)
        _rename(temporary, os.path.join(folder, name))
        done = True
        if durable:
            _sync_folder(folder)
    except _Changed:
        return None
    except OSError as error:
        raise store_error(error, "keeping save", source) from error
    finally:
        if not done:
            remove_quietly(temporary)
    return seen


def _rename(temporary: bytes, target: bytes) -> None:
    # Onto a folder with something in it, and a file onto a folder, it fails by itself; a file must not replace one.
    if os.path.lexists(target):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target)
    os.rename(temporary, target)


def _check(source: bytes, seen: Look) -> None:
    if seen.size == 0:
        raise BadDataError(f"save {show(source)} is empty", hint="no file in it has a byte")
    for entry in seen.entries:
        if entry.kind == "s" or (entry.kind == "l" and not entry.path):
            raise BadDataError(f"save {show(source)} has a special file, {show(entry.path or source)}")
        if entry.kind == "l":
            try:
                check_link(source, os.path.join(source, entry.path))
            except OSError as error:
                raise store_error(error, "reading link", entry.path) from error


class _Transfer:
    """One transfer under way."""

    def __init__(self, source: bytes, target: bytes, copy: bool | Callable[[bytes], bool]) -> None:
        self.source = source
        self.target = target
        self.copies = copy if callable(copy) else lambda _: copy
        self.clone = True
        self.copied: list[bytes] = []

    def run(self, seen: Look, *, durable: bool) -> None:
        """Make everything under the temporary name, and sync it if it is to be durable."""
        folders: list[bytes] = []
        for entry in seen.entries:  # sorted, so a folder comes before what is in it
            source = os.path.join(self.source, entry.path) if entry.path else self.source
            target = os.path.join(self.target, entry.path) if entry.path else self.target
            if entry.kind == "d":
                os.mkdir(target, 0o777)
                _same_mode(source, target)
                folders.append(target)
            elif entry.kind == "l":
                os.symlink(_vanishing(os.readlink, source), target)
            else:
                self._file(entry, source, target)
        if durable:
            self._sync_copies()
            for target in reversed(folders):
                _sync_folder(target)

    def _file(self, entry: Entry, source: bytes, target: bytes) -> None:
        if entry.size >= COPY_BELOW and not self.copies(entry.path):
            try:
                os.link(source, target, follow_symlinks=False)
            except OSError as error:
                if error.errno in _VANISHED:
                    raise _Changed from error
                if error.errno not in _CANNOT_LINK:
                    raise
            else:
                return
        self._copy(entry, source, target)

    def _copy(self, entry: Entry, source: bytes, target: bytes) -> None:
        reading = _vanishing(lambda path: os.open(path, _READ), source)
        try:
            found = os.fstat(reading)
            if not stat.S_ISREG(found.st_mode) or found.st_size != entry.size:
                raise _Changed
            writing = os.open(target, _MAKE, stat.S_IMODE(found.st_mode) & 0o777)
            try:
                if not self._cloned(reading, writing):
                    pour = _pour if entry.size >= COPY_BELOW else _pour_plainly
                    if pour(reading, writing) != entry.size:
                        raise _Changed
                # The same time as the source's, so that the manifest holds for both.
                os.utime(writing, ns=(found.st_atime_ns, entry.mtime_ns))
            finally:
                os.close(writing)
        finally:
            os.close(reading)
        self.copied.append(target)

    def _cloned(self, reading: int, writing: int) -> bool:
        if not self.clone:
            return False
        try:
            fcntl.ioctl(writing, FICLONE, reading)
        except OSError as error:
            if error.errno not in _NO_CLONE:
                raise
            self.clone = False
            return False
        return True

    def _sync_copies(self) -> None:
        if len(self.copied) < 2 * SYNC_THREADS:
            for path in self.copied:
                _sync_file(path)
            return
        with ThreadPoolExecutor(SYNC_THREADS) as pool:
            for _ in pool.map(_sync_file, self.copied):
                pass


def _vanishing(act: Callable[[bytes], _T], path: bytes) -> _T:
    try:
        return act(path)
    except OSError as error:
        if error.errno in {*_VANISHED, errno.ELOOP, errno.EINVAL}:
            raise _Changed from error
        raise


def _pour(reading: int, writing: int) -> int:
    """Copy to the end; returns how many bytes. The kernel copies where it can."""
    total = 0
    while True:
        try:
            count = os.copy_file_range(reading, writing, _PART)
        except OSError as error:
            if total or error.errno not in _NO_CLONE:
                raise
            return _pour_plainly(reading, writing)
        if count == 0:
            # Some filesystems answer 0 for files that only seem to have no bytes.
            return total + _pour_plainly(reading, writing)
        total += count


def _pour_plainly(reading: int, writing: int) -> int:
    total = 0
    while part := os.read(reading, _PART):
        view = memoryview(part)
        while view:
            view = view[os.write(writing, view) :]
        total += len(part)
    return total


def _same_mode(source: bytes, target: bytes) -> None:
    wanted = stat.S_IMODE(_vanishing(os.lstat, source).st_mode) | 0o700
    if stat.S_IMODE(os.lstat(target).st_mode) != wanted:
        os.chmod(target, wanted)


def _sync_file(path: bytes) -> None:
    descriptor = os.open(path, _READ)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_folder(path: bytes) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        sync(descriptor, path)
    finally:
        os.close(descriptor)
