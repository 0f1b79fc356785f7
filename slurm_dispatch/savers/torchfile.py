"""What a file of ``torch.save`` says of itself: the dictionary at its top, read as data.

The file is a zip whose entries are stored, not deflated; ``<name>/data.pkl`` has the pickle of the object, in which a
tensor is only the name of another entry (torch 2.13 ``torch/serialization.py``, ``_save``). So the numbers and texts
of a save (its step, how many ranks there were) are read without its tensors.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from slurm_dispatch.savers.inert import NotInertError, read_pickle
from slurm_dispatch.savers.layout import Verdict, torn, unsure
from slurm_dispatch.savers.structure import ZIP_TAIL, structure_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from slurm_dispatch.savers.view import SaveView

PICKLE_MAX = 64 << 20
"""Bytes of a pickle that is read. That of a model of 100,000 tensors has some twenty MiB."""
DIRECTORY_MAX = 64 << 20
"""Bytes of a zip's directory that is read: a million tensors."""
_WIDE = 0xFFFFFFFF
_LEAST = 30
"""Bytes; a zip with an entry has more, and so has torch's old format."""


def read_saved(view: SaveView, path: str) -> Any:
    """What was given to ``torch.save``, as :mod:`slurm_dispatch.savers.inert` gives it.

    :returns: ``None`` if the file is not there, is cut, is not such a zip, or is greater than is read.
    :raises OSError: of the view's reader.
    """
    size = view.sizes.get(path, 0)
    try:
        for name, method, stored, at in _directory(view, path, size):
            if name.endswith(b"/data.pkl") and method == 0 and stored <= PICKLE_MAX:
                header = view.read(path, at, 30)
                skip = sum(struct.unpack("<HH", header[26:30]))
                return read_pickle(view.read(path, at + 30 + skip, stored))
    except (struct.error, NotInertError):
        return None
    return None


def check_saved(view: SaveView, paths: Iterable[str]) -> Verdict | None:
    """The first of these files of ``torch.save`` that is not a whole zip, as a verdict; ``None`` if there is none.

    A file that does not begin as a zip is in torch's old format, which does not say how long it is, unless it is
    shorter than any.
    """
    old = None
    for path in paths:
        found = structure_of(view, path) if view.sizes[path] else False
        if found is False or (found is None and view.sizes[path] < _LEAST):
            return torn(f"{path} is {'cut' if view.sizes[path] else 'empty'}")
        if found is None and old is None:
            old = unsure(f"{path} is in torch's old format, which does not say how long it is")
    return old


def _directory(view: SaveView, path: str, size: int) -> Iterator[tuple[bytes, int, int, int]]:
    """The entries of a zip: name, method, stored bytes, where its header stands."""
    start = max(0, size - ZIP_TAIL)
    tail = view.read(path, start, size - start) if size else b""
    end = tail.rfind(b"PK\x05\x06")
    if end < 0:
        return
    length, begin = struct.unpack("<II", tail[end + 12 : end + 20])
    locator = tail[max(0, end - 20) : end]
    if locator[:4] == b"PK\x06\x07":
        (at,) = struct.unpack("<Q", locator[8:16])
        length, begin = struct.unpack("<QQ", view.read(path, at, 56)[40:56])
    if length > DIRECTORY_MAX or begin + length > size:
        return
    directory = view.read(path, begin, length)
    at = 0
    while directory[at : at + 4] == b"PK\x01\x02":
        method = struct.unpack("<H", directory[at + 10 : at + 12])[0]
        stored, full = struct.unpack("<II", directory[at + 20 : at + 28])
        name_length, extra_length, note_length = struct.unpack("<HHH", directory[at + 28 : at + 34])
        where = struct.unpack("<I", directory[at + 42 : at + 46])[0]
        name = directory[at + 46 : at + 46 + name_length]
        extra = directory[at + 46 + name_length :][:extra_length] if _WIDE in {stored, full, where} else b""
        stored, where = _wide(extra, stored, full, where)
        yield name, method, stored, where
        at += 46 + name_length + extra_length + note_length


def _wide(extra: bytes, stored: int, full: int, where: int) -> tuple[int, int]:
    """Size and place with what the zip64 field says of those that do not fit into 32 bits."""
    at = 0
    while at + 4 <= len(extra):
        kind, length = struct.unpack("<HH", extra[at : at + 4])
        if kind == 1:
            numbers = list(struct.unpack(f"<{length // 8}Q", extra[at + 4 : at + 4 + length // 8 * 8]))
            if full == _WIDE and numbers:
                numbers.pop(0)
            if stored == _WIDE and numbers:
                stored = numbers.pop(0)
            if where == _WIDE and numbers:
                where = numbers.pop(0)
        at += 4 + length
    return stored, where


def whole_number(thing: object) -> int | None:
    """A number that counts something, ``None`` for anything else (also for true and false)."""
    return thing if isinstance(thing, int) and not isinstance(thing, bool) and thing >= 0 else None
