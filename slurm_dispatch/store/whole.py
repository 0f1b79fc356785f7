"""Whether a save is whole: proved by a marker or its own structure, or assumed because it does not change.

The two are not worth the same (section 4 of the design): a saver that was killed leaves a torn save that never
changes again, so what is only settled counts while the command runs or after it ended by itself with 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class Proof(str, Enum):
    """How it is known that a save is whole."""

    PROVED = "proved"
    ASSUMED = "assumed"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Entry:
    """One file, folder or link of a save, by its path relative to the save (empty for the save itself)."""

    path: bytes
    kind: str
    size: int
    mtime_ns: int
    inode: int


@dataclass(frozen=True, slots=True)
class Look:
    """A save as it was listed once. Two equal looks: nothing changed between them.

    :ivar entries: all entries, sorted by path.
    :ivar proved: a marker is there, or a single file's own structure says that it is whole; nothing torn.
    :ivar torn: the path in the save of a file whose own structure says that it is not whole, or ``None``.
    """

    entries: tuple[Entry, ...]
    proved: bool
    torn: bytes | None

    @property
    def size(self) -> int:
        """Bytes in all its files."""
        return sum(entry.size for entry in self.entries if entry.kind == "f")

    @property
    def files(self) -> int:
        """How many regular files."""
        return sum(entry.kind == "f" for entry in self.entries)


def look(path: str | bytes, markers: Sequence[str] = ()) -> Look | None:
    """List a save (a file or a folder).

    :param markers: glob patterns of names relative to the save; each must match something for it to be proved.
        For a single file ``NAME.done`` beside it is asked for as the marker ``{name}.done``.
    :returns: ``None`` if it is not there.
    :raises StoreError: it could not be looked.
    """
    raise NotImplementedError


class Settling:
    """Remembers looks from scan to scan, so that it can say for how long a save has not changed."""

    def __init__(self, settle_s: float) -> None:
        self.settle_s = settle_s

    def settled(self, path: str | bytes, seen: Look, now: float) -> bool:
        """True once ``path`` has looked the same for ``settle_s`` seconds of the (monotonic) clock ``now``.

        A torn or empty save is never settled.
        """
        raise NotImplementedError

    def forget(self, path: str | bytes) -> None:
        """The save was published or is gone."""
        raise NotImplementedError
