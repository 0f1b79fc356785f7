"""Checking many publication names at once: the same answer as ``parse_name`` of each, some fifty times faster.

The law of this module: *what passes here is what* :func:`parse_name` *takes.* The fast way recognises most names
that are good; every name that it does not recognise is given to :func:`parse_name`, which decides.

How: names of one length are joined into one text, in which each character position is a column, and a column is
one slice with a stride: no name is looked at by itself. The base32 texts are padded to whole groups and decoded
as one number, since Python reads a power of two as base in linear time; the padding decodes to NUL bytes, which
end each path.
"""

from __future__ import annotations

import re
from itertools import groupby
from typing import TYPE_CHECKING

from slurm_dispatch.model.publication import NAME_MAX, PREFIX_LENGTH, parse_name

if TYPE_CHECKING:
    from collections.abc import Sequence

_ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
_DIGITS_OF_INT = bytes.maketrans(_ALPHABET, b"0123456789abcdefghijklmnopqrstuv")
# By the length of a base32 text mod 8: the last characters whose spare bits are zero. Other lengths do not occur.
_LAST = {0: _ALPHABET, 2: b"AEIMQUY4", 4: b"AQ", 5: b"ACEGIKMOQSUWY246", 7: b"AIQY"}
CHUNK = 1024
"""Names checked together: so few that their text stays in the processor's cache."""
_IS_ZERO = bytes(character == ord("0") for character in range(256))
_DASHES = (20, 41)
_EPOCH = range(20)
_SUBMISSION = range(8, 14)
_STEP = range(21, 41)
# A path component that is empty, "." or "..", where NUL stands before and after each path.
_NOT_PLAIN = re.compile(rb"/\.{0,2}[/\0]|\0\.{1,2}[/\0]|\0/")


def check_names(names: Sequence[str]) -> None:
    """Refuse the names unless every one is the name of a publication.

    :raises BadDataError: naming one that does not parse.
    """
    for length, group in groupby(sorted(names, key=len), key=len):
        same = list(group)
        for start in range(0, len(same), CHUNK):
            part = same[start : start + CHUNK]
            if not _recognised(part, length):
                for name in part:
                    parse_name(name)


def greatest_name(names: Sequence[str]) -> str | None:
    """The name of the latest publication, all having been checked; ``None`` if there are none."""
    check_names(names)
    return max(names, default=None)


def _recognised(names: list[str], length: int) -> bool:
    """True only if every one of the names, all of this length, is good."""
    width = length - PREFIX_LENGTH
    if length > NAME_MAX or width < 2 or width % 8 not in _LAST:
        return False
    try:
        text = "".join(names).encode("ascii")
    except UnicodeEncodeError:
        return False
    if text[length - 1 :: length].translate(None, _LAST[width % 8]):
        return False
    return _numbered(text, length) and _plain(text, length)


def _numbered(text: bytes, length: int) -> bool:
    """True if every epoch and step is good.

    G from 9,000,000 and a step from 9*10^18 on can be good too; these few are left to :func:`parse_name`.
    """
    count = len(text) // length
    columns = [text[at::length] for at in range(PREFIX_LENGTH)]
    if any(columns[at] != b"-" * count for at in _DASHES):
        return False
    if not all(columns[at].isdigit() for at in (*_EPOCH, *_STEP)):
        return False
    for number in (_EPOCH, _STEP):
        if columns[number[0]] != b"0" * count or b"9" in columns[number[1]]:
            return False
    unnumbered = _all_zero(columns, _SUBMISSION)
    # A submission of 0 is only in the epoch 0 of unmanaged runs.
    return not unnumbered or unnumbered == _all_zero(columns, _EPOCH)


def _all_zero(columns: list[bytes], number: range) -> int:
    """Which names have only zeros there: one byte a name, as one number."""
    found = -1
    for at in number:
        found &= int.from_bytes(columns[at].translate(_IS_ZERO), "big")
    return found


def _plain(text: bytes, length: int) -> bool:
    """True if every path is in the alphabet and plain. The last characters are canonical already."""
    count, width = len(text) // length, length - PREFIX_LENGTH
    padding = 8 - width % 8  # a whole group of padding where the text fills its groups: something must end the path
    padded = width + padding
    groups = bytearray(b"A") * (padded * count)
    for at in range(width):
        groups[at::padded] = text[PREFIX_LENGTH + at :: length]
    if groups.translate(None, _ALPHABET):
        return False
    number = int(groups.translate(_DIGITS_OF_INT), 32)
    decoded = b"\0" + number.to_bytes(len(groups) * 5 // 8, "big")
    if decoded.count(0) != 1 + count * (padded * 5 // 8 - width * 5 // 8):
        return False  # a NUL inside a path
    # Five searches for two bytes are faster than the pattern, and most roots have none of them.
    if not any(pair in decoded for pair in (b"//", b"\0/", b"/\0", b"/.", b"\0.")):
        return True
    return _NOT_PLAIN.search(decoded) is None
