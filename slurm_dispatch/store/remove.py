"""Removing a tree by descriptors, never through a link: whatever stands where, only what is below a name goes."""

from __future__ import annotations

import errno
import os

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW
DEPTH_MAX = 200
"""Folders in folders; each takes a descriptor while it is emptied."""
_TRIES = 5
"""A saver that still writes into a folder makes it not empty again; then it is left for the next time."""


def remove_tree(parent: int, name: bytes, *, depth: int = 0) -> None:
    """Remove ``name`` in the open folder ``parent`` and everything below it. What is not there is success.

    :raises OSError: something could not be removed; the rest is tried first.
    """
    if depth > DEPTH_MAX:
        raise OSError(errno.ENAMETOOLONG, "folders too deep", name)
    try:
        os.unlink(name, dir_fd=parent)
    except FileNotFoundError:
        return
    except OSError as error:
        # Linux answers EISDIR for a folder, POSIX allows EPERM; anything else is a failure.
        if error.errno not in {errno.EISDIR, errno.EPERM}:
            raise
    else:
        return
    try:
        descriptor = os.open(name, _FOLDER, dir_fd=parent)
    except FileNotFoundError:
        return
    try:
        for _ in range(_TRIES):
            failed = _empty(descriptor, depth)
            try:
                os.rmdir(name, dir_fd=parent)
            except FileNotFoundError:
                return
            except OSError as error:
                if error.errno not in {errno.ENOTEMPTY, errno.EEXIST} or failed is not None:
                    raise failed or error from None
                continue
            return
        raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), name)
    finally:
        os.close(descriptor)


def _empty(descriptor: int, depth: int) -> OSError | None:
    failed: OSError | None = None
    try:
        names = os.listdir(descriptor)
    except FileNotFoundError:
        return None  # another hand has just removed this very folder: Linux lists such a one no more
    for inner in names:
        try:
            remove_tree(descriptor, os.fsencode(inner), depth=depth + 1)
        except OSError as error:
            failed = failed or error
    return failed


def remove_quietly(path: bytes) -> bool:
    """Remove a path of our own that nobody needs; what cannot be removed now is swept later by its name."""
    folder, name = os.path.split(path)
    try:
        parent = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            remove_tree(parent, name)
        finally:
            os.close(parent)
    except OSError:
        return False
    return True
