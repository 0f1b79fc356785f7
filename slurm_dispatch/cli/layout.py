"""Tables and times for people: plain text, colour only on a terminal."""

from __future__ import annotations

import time
import unicodedata
from typing import TYPE_CHECKING

import click

from slurm_dispatch.errors import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

CELL_MAX = 60
"""Columns of a cell: longer ones are cut, so that a name cannot push the others off the screen."""
LAST_MAX = 240
"""Columns of a line's last cell, which has nothing to push: often it is the reason that a person came to read."""
_STEPS = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as their widest cell, two spaces apart; every cell on one line."""
    limits = [CELL_MAX] * (len(head) - 1) + [LAST_MAX]
    cut = [[_cell(cell, limit) for cell, limit in zip(row, limits, strict=True)] for row in [head, *rows]]
    widths = [max(columns(row[column]) for row in cut) for column in range(len(head))]
    lines = ["  ".join(_padded(cell, width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cut]
    return "\n".join([click.style(lines[0], bold=True), *lines[1:]])


def columns(text: str) -> int:
    """How many columns of a terminal the text takes: East Asian characters take two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )


def _padded(text: str, width: int) -> str:
    return text + " " * (width - columns(text))


def size(count: int) -> str:
    """Bytes in the largest binary unit of which there is one: ``512 B``, ``3.4 GiB``."""
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if amount < 1024:
            return f"{count} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} PiB"


class Progress:
    """Lines about long work on stderr, one in a few seconds; none where it is done before.

    :param what: what is done, as a participle (``removed``).
    """

    def __init__(self, what: str, every_s: float = 5.0) -> None:
        self._what = what
        self._every_s = every_s
        self._next = time.monotonic() + every_s

    def __call__(self, done: int, of: int) -> None:
        """So many of so many are done."""
        now = time.monotonic()
        if now >= self._next and done < of:
            self._next = now + self._every_s
            click.echo(f"dispatch: {self._what} {done:,} of {of:,}", err=True)


def age(moment: float, now: float) -> str:
    """How long ago, in one unit: ``12s``, ``5m``, ``3h``, ``9d``; a time to come is ``in 5m``."""
    seconds = now - moment
    size = abs(seconds)
    text = next((f"{int(size // length)}{unit}" for length, unit in _STEPS if size >= length), "0s")
    return f"in {text}" if seconds <= -1 else f"{text} ago"


def clock(moment: float) -> str:
    """The local date and time, to the second."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(moment))


def both(moment: float | None, now: float) -> str:
    """Relative and absolute time, or a dash."""
    return "-" if moment is None else f"{age(moment, now)} ({clock(moment)})"


def dash(value: object) -> str:
    """``value`` as text; a dash for ``None`` and for nothing."""
    return "-" if value is None or value == "" else str(value)


def _cell(text: str, limit: int) -> str:
    text = one_line(text)
    if columns(text) <= limit:
        return text
    while columns(text) > limit - 3:
        text = text[:-1]
    return text + "..."
