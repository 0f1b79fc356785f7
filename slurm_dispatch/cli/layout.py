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
_STEPS = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as their widest cell, two spaces apart; every cell on one line."""
    cut = [[_cell(cell) for cell in row] for row in [head, *rows]]
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


def _cell(text: str) -> str:
    text = one_line(text)
    if columns(text) <= CELL_MAX:
        return text
    while columns(text) > CELL_MAX - 3:
        text = text[:-1]
    return text + "..."
