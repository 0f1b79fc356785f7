"""Files whose own structure says whether they are whole: zip (``torch.save``, ``.npz``, ``.keras``) and safetensors.

A zip file is written with its directory last, so a file that begins as zip and has no directory at its end was cut.
A safetensors file says in its header how long it is.
"""

from __future__ import annotations

import json
import os
import stat
import struct

HEADER_MAX = 100_000_000
"""The limit of the safetensors format for its header; a longer one is not read."""
_ZIP_TAIL = 22 + 65535
"""The end record of a zip file, with the longest comment."""


def structure(path: bytes) -> bool | None:
    """Whether the file is whole: true, false, or ``None`` for a format that does not say.

    :raises OSError: it cannot be read.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            return None
        head = os.pread(descriptor, 8, 0)
        if path.endswith(b".safetensors"):
            return _safetensors(descriptor, head, found.st_size)
        if head[:4] == b"PK\x03\x04":
            return _zip(descriptor, found.st_size)
        return None
    finally:
        os.close(descriptor)


def _zip(descriptor: int, size: int) -> bool:
    start = max(0, size - _ZIP_TAIL)
    tail = _read(descriptor, size - start, start)
    at = tail.rfind(b"PK\x05\x06")
    while at >= 0:
        record = tail[at : at + 22]
        if len(record) == 22:
            directory_size, directory_at, comment = struct.unpack("<IIH", record[12:22])
            ends = at + 22 + comment == len(tail)
            wide = 0xFFFFFFFF in {directory_size, directory_at}  # zip64: the numbers are in a record before it
            if ends and (wide or directory_size + directory_at <= start + at):
                return True
        at = tail.rfind(b"PK\x05\x06", 0, at)
    return False


def _safetensors(descriptor: int, head: bytes, size: int) -> bool | None:
    if len(head) < 8:
        return False
    length = int.from_bytes(head, "little")
    if 8 + length > size:
        return False
    if length > HEADER_MAX:
        return None
    try:
        header = json.loads(_read(descriptor, length, 8))
        ends = [tensor["data_offsets"][1] for name, tensor in header.items() if name != "__metadata__"]
        return bool(8 + length + max(ends, default=0) == size)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
        return False  # space was set aside and the header is not written yet


def _read(descriptor: int, length: int, offset: int) -> bytes:
    parts = []
    while length > 0:
        part = os.pread(descriptor, length, offset)
        if not part:
            break
        parts.append(part)
        length -= len(part)
        offset += len(part)
    return b"".join(parts)
