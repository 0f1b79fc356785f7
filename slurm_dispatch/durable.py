"""Files that are there whole or not at all, on any POSIX filesystem, without a lock.

The law of this module: *a name appears only when what it names is complete and on disk, exactly one of
many who try gets it, and when the call returns a power loss cannot take it away.*
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
import time

from slurm_dispatch.errors import CorruptError, DeniedError, StoreError, TransientError, store_error

TEMPORARY_PREFIX = ".tmp-"
"""Names that begin so are unfinished; every reader passes over them."""

SWEEP_AGE_S = 3600.0
"""A temporary name of this age was left by a process that died: none of ours takes a minute."""

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# Filesystems that cannot sync a folder answer so (FUSE, some SMB); everything else is a failure.
_NO_FOLDER_SYNC = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EBADF})


def open_folder(path: str | bytes, *, follow: bool = True) -> int:
    """A descriptor of a directory, for use as ``dir_fd``. With ``follow=False`` a link is refused."""
    try:
        return os.open(path, _DIRECTORY | (0 if follow else os.O_NOFOLLOW))
    except OSError as error:
        raise store_error(error, "opening folder", path) from error


def sync_folder(path: str | bytes | int) -> bool:
    """Fsync a directory.

    :returns: false where the filesystem cannot sync a folder at all (then nothing more can be done).
    :raises AmbiguousError: for ``EIO``: what was made may be gone after a power loss.
    """
    try:
        if isinstance(path, int):
            os.fsync(path)
            return True
        descriptor = os.open(path, _DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno in _NO_FOLDER_SYNC:
            return False
        raise store_error(error, "syncing folder", path) from error
    return True


def sync_name(path: str) -> None:
    """Make the name of what is at ``path`` durable: fsync the folder that it lies in.

    :raises AmbiguousError: for ``EIO``: it may be gone after a power loss.
    """
    try:
        sync_folder(os.path.dirname(path) or ".")
    except DeniedError:
        pass  # a folder in which one may write and not read cannot be opened for this


def write_all(descriptor: int, content: bytes) -> None:
    """Write every byte (``os.write`` may write fewer)."""
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]


def create_whole(folder: str | bytes, name: str, content: bytes, *, mode: int = 0o600) -> bool:
    """Make ``folder/name`` with exactly ``content``, durable, or leave what is there.

    Temporary file, write, fsync, link to the name, fsync of the folder. The link is exclusive and
    decides; its answer can be lost (NFS), so after an error other than success the link count of our
    own temporary file tells whether it happened.

    :param name: one path component.
    :returns: true if this call made it, false if the name was there already (it is durable then, too).
    :raises StoreError: if it is not known to be there; never leaves a half-written name.
    """
    if isinstance(folder, bytes):
        folder = os.fsdecode(folder)
    temporary = os.path.join(folder, f"{TEMPORARY_PREFIX}{secrets.token_hex(8)}")
    target = os.path.join(folder, name)
    try:
        descriptor = os.open(
            temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, mode
        )
    except OSError as error:
        raise store_error(error, "creating", target) from error
    try:
        try:
            os.fchmod(descriptor, mode)  # the umask of the caller must not decide who can read it
            write_all(descriptor, content)
            os.fsync(descriptor)
            made = _link(temporary, target, descriptor)
        except OSError as error:
            raise store_error(error, "creating", target) from error
        finally:
            os.close(descriptor)
    finally:
        try:
            os.unlink(temporary)
        except OSError:
            pass  # swept later; the name that counts is not this one
    sync_folder(folder)
    return made


def replace_whole(folder: str, name: str, content: bytes, *, mode: int = 0o600, sync: bool = False) -> None:
    """Put exactly ``content`` in place of ``folder/name``, whole.

    :param sync: it is there after a power loss; without it, for what is made anew if it is lost.
    :raises OSError: it could not be; what was there is there still, or, after a failed sync, what is new.
    """
    temporary = os.path.join(folder, f"{TEMPORARY_PREFIX}{secrets.token_hex(8)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, mode)
    try:
        try:
            os.fchmod(descriptor, mode)
            write_all(descriptor, content)
            if sync:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.rename(temporary, os.path.join(folder, name))
        if sync:
            sync_folder(folder)
    except OSError:
        try:
            os.unlink(temporary)
        except OSError:
            pass  # swept later; the error that counts is the first
        raise


def _link(temporary: str, target: str, descriptor: int) -> bool:
    try:
        os.link(temporary, target, follow_symlinks=False)
    except FileExistsError:
        return os.fstat(descriptor).st_nlink > 1
    except OSError:
        if os.fstat(descriptor).st_nlink > 1:
            return True
        raise
    return True


def read_regular(path: str | bytes, limit: int, *, dir_fd: int | None = None) -> bytes:
    """The content of a regular file, never through a link at its end, never more than ``limit`` bytes.

    :raises AbsentError: it is not there.
    :raises CorruptError: it is not a regular file, or is longer than ``limit``.
    """
    try:
        # O_NONBLOCK: a FIFO that somebody put there must not stop the reader.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(path, flags, dir_fd=dir_fd)
    except OSError as error:
        raise store_error(error, "reading", path) from error
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise CorruptError(f"reading {path!r}: not a regular file")
        if found.st_size > limit:
            raise CorruptError(f"reading {path!r}: {found.st_size} bytes, more than the limit of {limit}")
        parts: list[bytes] = []
        left = limit + 1
        while left > 0:
            part = os.read(descriptor, min(left, 1 << 20))
            if not part:
                break
            parts.append(part)
            left -= len(part)
        if left <= 0:
            raise CorruptError(f"reading {path!r}: more than the limit of {limit} bytes")
        return b"".join(parts)
    except OSError as error:
        raise store_error(error, "reading", path) from error
    finally:
        os.close(descriptor)


def sweep(folder: str, *, now: float | None = None, age_s: float = SWEEP_AGE_S) -> int:
    """Remove temporary files older than ``age_s`` that killed processes left in ``folder``.

    :returns: how many went. Errors are passed over: a sweep is never needed for correctness.
    """
    moment = time.time() if now is None else now
    gone = 0
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if not entry.name.startswith(TEMPORARY_PREFIX):
                    continue
                try:
                    found = entry.stat(follow_symlinks=False)
                    if stat.S_ISREG(found.st_mode) and moment - found.st_mtime > age_s:
                        os.unlink(entry.path)
                        gone += 1
                except OSError:
                    continue
    except OSError:
        return gone
    return gone


def make_folder(path: str, *, mode: int = 0o755) -> bool:
    """Make one directory, durable.

    :returns: true if this call made it. A directory that is there is success (it is durable then, too); anything else
        there is not.
    """
    made = True
    try:
        os.mkdir(path, mode)
    except FileExistsError as error:
        if not os.path.isdir(path):
            raise CorruptError(f"making folder {path}: something else is there") from error
        made = False
    except OSError as error:
        raise store_error(error, "making folder", path) from error
    sync_name(path)
    return made


def fill_streams() -> None:
    """Open ``/dev/null`` for each of the descriptors 0 to 2 that is closed.

    A file that is opened later must never get the number of standard error, or a message goes into it.
    """
    while True:
        descriptor = os.open(os.devnull, os.O_RDWR)
        if descriptor > 2:
            os.close(descriptor)
            return
        os.set_inheritable(descriptor, True)


__all__ = [
    "SWEEP_AGE_S",
    "TEMPORARY_PREFIX",
    "StoreError",
    "TransientError",
    "create_whole",
    "fill_streams",
    "make_folder",
    "open_folder",
    "read_regular",
    "replace_whole",
    "sweep",
    "sync_folder",
    "sync_name",
    "write_all",
]
