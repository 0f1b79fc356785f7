"""Files whose own structure says whether they are whole: zip (``torch.save``, ``.npz``, ``.keras``), safetensors,
``.npy``.

A zip file is written with its directory last, so a file that begins as zip and has no directory at its end was cut.
A safetensors file says in its header how long it is, and so does a ``.npy`` file.
"""

from __future__ import annotations

import json
import math
import re
import struct
from typing import TYPE_CHECKING

from slurm_dispatch.savers.layout import Verdict, torn, unsure, whole

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurm_dispatch.savers.view import SaveView

HEADER_MAX = 100_000_000
"""The limit of the safetensors format for its header; a longer one is not read."""
NPY_HEADER_MAX = 1 << 20
"""Bytes; the header of an array of a plain type has some hundred."""
ZIP_TAIL = 22 + 65535
"""The end record of a zip file, with the longest comment."""
_PLAIN_TYPE = re.compile(r"[<>|=]?[biufcmMSUV?]([0-9]{0,9})(\[[^\]]*\])?\Z")
"""A numpy type string whose size stands in it. Structured types and objects (pickles) say no size."""


def structure(name: str, size: int, read: Callable[[int, int], bytes]) -> bool | None:
    """Whether a file is whole: true, false, or ``None`` for a format that does not say.

    :param name: the file's name; only ``.safetensors`` has no magic of its own.
    :param size: bytes.
    :param read: bytes at (offset, length); fewer only at the end.
    :raises OSError: of the reader.
    """
    head = read(0, 8)
    if name.endswith(".safetensors"):
        return _safetensors(head, size, read)
    if head[:4] == b"PK\x03\x04":
        return _zip(size, read)
    if head[:6] == b"\x93NUMPY":
        return _npy(head, size, read)
    return None


def check_files(view: SaveView) -> Verdict | None:
    """The first file of the save whose structure says that it is not whole, as a verdict; ``None`` if there is none.

    A file with nothing in it is not looked into: savers make some.
    """
    for path in sorted(view.sizes):
        if view.sizes[path] and not is_whole(view, path):
            return torn(f"{path or view.name} is cut: its own structure says more bytes")
    return None


def is_whole(view: SaveView, path: str) -> bool:
    """False only if the file's own structure says that it is not whole."""
    return structure_of(view, path) is not False


def structure_of(view: SaveView, path: str) -> bool | None:
    """:func:`structure` of one file of a save."""
    name = path.rpartition("/")[2] or view.name
    return structure(name, view.sizes[path], lambda offset, length: view.read(path, offset, length))


def check_single(view: SaveView) -> Verdict:
    """A save that is one file."""
    if not view.sizes.get("", 0):
        return torn(f"{view.name} is empty")
    found = structure_of(view, "")
    if found is None:
        return unsure(f"{view.name} has no structure that says whether it is whole")
    if found:
        return whole(f"{view.name} is whole by its own structure")
    return torn(f"{view.name} is cut: its own structure says more bytes")


def _zip(size: int, read: Callable[[int, int], bytes]) -> bool:
    start = max(0, size - ZIP_TAIL)
    tail = read(start, size - start)
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


def _safetensors(head: bytes, size: int, read: Callable[[int, int], bytes]) -> bool | None:
    if len(head) < 8:
        return False
    length = int.from_bytes(head, "little")
    if 8 + length > size:
        return False
    if length > HEADER_MAX:
        return None
    try:
        header = json.loads(read(8, length))
        ends = [tensor["data_offsets"][1] for name, tensor in header.items() if name != "__metadata__"]
        return bool(8 + length + max(ends, default=0) == size)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
        return False  # space was set aside and the header is not written yet


def _npy(head: bytes, size: int, read: Callable[[int, int], bytes]) -> bool | None:
    """By the format description of numpy (``numpy/lib/format.py``): magic, version, header length, header, data."""
    wide = len(head) > 6 and head[6] > 1
    start = 12 if wide else 10
    length_bytes = read(8, start - 8)
    if len(head) < 8 or len(length_bytes) < start - 8:
        return False
    length = int.from_bytes(length_bytes, "little")
    if length > NPY_HEADER_MAX:
        return None
    if start + length > size:
        return False
    import ast

    try:
        header = ast.literal_eval(read(start, length).decode("utf-8" if head[6] > 2 else "latin-1").strip())
        kind, shape = header["descr"], header["shape"]
        one = _bytes_of(kind)
        return None if one is None else bool(start + length + one * math.prod(shape) == size)
    except (ValueError, TypeError, KeyError, SyntaxError, RecursionError, MemoryError):
        return False


def _bytes_of(kind: object) -> int | None:
    match = _PLAIN_TYPE.match(kind) if isinstance(kind, str) else None
    if match is None or not isinstance(kind, str):
        return None
    one = int(match[1]) if match[1] else 1
    return 4 * one if "U" in kind[:2] else one
