"""``python -m bench [part ...]``: each part is a module here with ``rows()``; without parts, all of them."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from typing import TYPE_CHECKING

import bench

if TYPE_CHECKING:
    from bench.row import Row

NOT_PARTS = {"__main__", "eight", "row", "watched", "made_site"}


def parts() -> list[str]:
    """The names of the parts, in alphabetical order."""
    return sorted(module.name for module in pkgutil.iter_modules(bench.__path__) if module.name not in NOT_PARTS)


def seconds(value: float | None) -> str:
    """A time with three digits and a unit."""
    if value is None:
        return ""
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if value * factor >= 1:
            return f"{value * factor:.3g} {unit}"
    return f"{value * 1e9:.3g} ns"


def amount(value: float | None, unit: str) -> str:
    """A figure with its unit; without one it is a time."""
    if not unit or value is None:
        return seconds(value)
    return f"{value:.3g} {unit}"


def cells(row: Row) -> tuple[str, ...]:
    """The cells of a row as text."""
    goal = f"{row.goal:g}x" if row.goal is not None else amount(row.goal_s, row.unit)
    ratio = "" if row.ratio is None else f"{row.ratio:.2f}x"
    verdict = {True: "yes", False: "NO", None: ""}[row.ok]
    return (row.what, amount(row.ours_s, row.unit), amount(row.floor_s, row.unit), ratio, goal, verdict, row.floor)


def main(arguments: list[str]) -> int:
    """Print the table; 1 if a goal is missed, 64 for an unknown part."""
    unknown = [name for name in arguments if name not in parts()]
    if unknown:
        print(f"bench: no part {unknown[0]!r}; there are {', '.join(parts())}", file=sys.stderr)
        return 64
    table: list[tuple[str, ...]] = [("what", "ours", "floor", "ratio", "goal", "ok", "the floor is")]
    missed = 0
    try:
        for name in arguments or parts():
            print(f"bench: {name} ...", file=sys.stderr)
            for row in importlib.import_module(f"bench.{name}").rows():
                table.append(cells(row))
                print(f"bench:   {'  '.join(table[-1])}".rstrip(), file=sys.stderr, flush=True)
                missed += row.ok is False
    finally:
        # What was measured before a part broke is not lost.
        widths = [max(len(line[column]) for line in table) for column in range(len(table[0]))]
        for line in table:
            print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
