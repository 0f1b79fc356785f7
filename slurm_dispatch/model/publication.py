"""The publication: an empty file whose name says everything about a save.

``<epoch, 20 digits>-<step, 20 digits>-<path relative to the root, base32 without padding>``

The name splits one way only, has one case only, and is canonical: one value, one name, so that two
processes that publish the same save meet at the same file. Because the numbers have a fixed width, the
order of the names' bytes is the order of (epoch, step, name): latest is simply the greatest name.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass

from slurm_dispatch.errors import BadDataError, show
from slurm_dispatch.model.epoch import EPOCH_MAX, UNMANAGED, Epoch, check

STEP_MAX = 2**63 - 1
NAME_MAX = 255
"""The longest name that the usual filesystems take, in bytes."""
PREFIX_LENGTH = 42
"""Two numbers of 20 digits and two dashes."""
PATH_MAX = (NAME_MAX - PREFIX_LENGTH) * 5 // 8
"""133 bytes: the longest path that a name of 255 bytes can carry."""

_GROUPS = -(-PATH_MAX // 5)
"""Of 5 bytes, 8 letters of base32."""
_LOW_20 = int.from_bytes(bytes.fromhex("00000000000fffff") * _GROUPS, "big")
_LOW_10 = int.from_bytes(bytes.fromhex("000003ff") * 2 * _GROUPS, "big")
_LOW_5 = int.from_bytes(bytes.fromhex("001f") * 4 * _GROUPS, "big")
_HIGH_20, _HIGH_10, _HIGH_5 = _LOW_20 << 20, _LOW_10 << 10, _LOW_5 << 5
_LETTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567" * 8
_NAME = re.compile(r"([0-9]{20})-([0-9]{20})-([A-Z2-7]+)\Z")


@dataclass(frozen=True, slots=True, order=True)
class Publication:
    """One publication. Sorting publications puts the latest last.

    :param epoch: 0 for an unmanaged run, otherwise what :class:`Epoch` allows.
    :param step: 0 to 2^63-1.
    :param path: the save's path relative to the root, as bytes; see :func:`check_path`.
    """

    epoch: int
    step: int
    path: bytes

    def __post_init__(self) -> None:
        check("epoch", self.epoch, 0, EPOCH_MAX)
        if self.epoch != UNMANAGED and self.epoch // 10**6 % 10**6 == 0:
            Epoch.from_int(self.epoch)  # says that there is no submission 0; all other parts fit any number
        check("step", self.step, 0, STEP_MAX)
        check_path(self.path)

    @property
    def name(self) -> str:
        """The file's name in ``pub/``."""
        return f"{str(self.epoch).zfill(20)}-{str(self.step).zfill(20)}-{encode_path(self.path)}"

    @property
    def attempt(self) -> str | None:
        """The attempt whose folder the save is in, or ``None`` if it is not below ``exec/``."""
        parts = self.path.split(b"/", 2)
        if len(parts) == 3 and parts[0] == b"exec":
            return parts[1].decode("ascii", "replace")
        return None


def encode_path(path: bytes) -> str:
    """Base32 (RFC 4648) of ``path`` without padding. ``path`` has at most :data:`PATH_MAX` bytes.

    The same as :func:`base64.b32encode`, in half its time: all groups at once, as one long number.
    """
    padded = path + bytes(-len(path) % 5)
    wide = bytearray(len(padded) // 5 * 8)  # each group of 5 bytes in 8, the 40 bits at the low end
    for at in range(5):
        wide[at + 3 :: 8] = padded[at::5]
    number = int.from_bytes(wide, "big")
    # Part the 40 bits of each 64 into 20 and 20, each of these into 10 and 10, these into 5 and 5: a letter a byte.
    number = number & _LOW_20 | (number & _HIGH_20) << 12
    number = number & _LOW_10 | (number & _HIGH_10) << 6
    number = number & _LOW_5 | (number & _HIGH_5) << 3
    return number.to_bytes(len(wide), "big").translate(_LETTERS)[: -(-len(path) * 8 // 5)].decode("ascii")


def decode_path(text: str) -> bytes:
    """The bytes of :func:`encode_path`; anything that it would not have written is refused."""
    try:
        path = base64.b32decode(text + "=" * (-len(text) % 8))
    except ValueError as error:
        raise BadDataError(f"{text!r} is not base32") from error
    if encode_path(path) != text:  # spare bits that are not zero: a second name for the same path
        raise BadDataError(f"{text!r} is not the base32 that this path has")
    return path


def check_path(path: bytes) -> None:
    """Refuse a path that could leave the root or be written in two ways.

    :raises BadDataError: empty, absolute, longer than :data:`PATH_MAX` bytes, or with an empty component,
        ``.``, ``..`` or a NUL byte.
    """
    if not path:
        raise BadDataError("the save's path is empty")
    if len(path) > PATH_MAX:
        raise BadDataError(
            f"the save's path {show(path)} has {len(path)} bytes",
            hint=f"a publication's name carries at most {PATH_MAX}; use shorter folder names",
        )
    if 0 in path:
        raise BadDataError(f"the save's path {show(path)} has a NUL byte")
    parts = path.split(b"/")
    if b"" in parts or b"." in parts or b".." in parts:
        raise BadDataError(f"the save's path {show(path)} is not plain", hint="no '', '.', '..', no '/' first")


def parse_name(name: str) -> Publication:
    """The publication that a name in ``pub/`` says, or an error that names it.

    :raises BadDataError: the name does not parse; every name that parses is the canonical one.
    """
    match = _NAME.match(name) if len(name) <= NAME_MAX else None
    if match is None:
        raise BadDataError(f"{show(name)} is not the name of a publication")
    try:
        return Publication(int(match[1]), int(match[2]), decode_path(match[3]))
    except BadDataError as error:
        raise BadDataError(f"{show(name)} is not the name of a publication: {error}") from error
