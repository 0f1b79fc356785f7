"""The structure of a file on a POSIX root: see :mod:`slurm_dispatch.savers.structure`."""

from __future__ import annotations

import os
import stat

from slurm_dispatch.savers.structure import structure as structure_of


def structure(path: bytes) -> bool | None:
    """Whether the file is whole: true, false, or ``None`` for a format that does not say, and for no regular file.

    :raises OSError: it cannot be read.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            return None
        return structure_of(
            os.fsdecode(os.path.basename(path)),
            found.st_size,
            lambda offset, length: read_at(descriptor, offset, length),
        )
    finally:
        os.close(descriptor)


def read_at(descriptor: int, offset: int, length: int) -> bytes:
    """Bytes from ``offset`` on; fewer than ``length`` only at the end of the file."""
    parts = []
    while length > 0:
        part = os.pread(descriptor, length, offset)
        if not part:
            break
        parts.append(part)
        length -= len(part)
        offset += len(part)
    return b"".join(parts)
