"""What the trials of either trainer share: many side by side, how each was lost, and the page with its table."""

from __future__ import annotations

import os
import random
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol, TypeVar

from tests.trials.trial import Schedule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

KINDS = (
    ("could not go on", "a run died of the other's rotation"),
    ("the work of a replacement", "the work of a replacement was gone"),
    ("began at step", "a run began before a save that was there"),
    ("saves were mixed", "saves of two runs were mixed"),
    ("", "the last save could not be read"),
)


class Named(Protocol):
    """A design, or a class of them: what it is called, in one word and in a line."""

    name: str
    words: str


Design = TypeVar("Design", bound=Named)


def run_all(
    designs: Sequence[Design],
    rounds: int,
    base: int,
    side_by_side: int,
    trial: Callable[[Design, Schedule], str | None],
) -> list[tuple[Design, Schedule, str | None]]:
    """``rounds`` trials of each design, in an order that the seed decides, several side by side.

    :param trial: one of them; how it was lost, or ``None``.
    """
    jobs = [(design, Schedule.of(base + number)) for number in range(rounds) for design in designs]
    random.Random(base).shuffle(jobs)
    done = 0

    def one(job: tuple[Design, Schedule]) -> tuple[Design, Schedule, str | None]:
        nonlocal done
        design, schedule = job
        end = trial(design, schedule)
        done += 1
        print(f"{done}/{len(jobs)} {design.name}, seed {schedule.seed}: {end or 'kept everything'}", file=sys.stderr)
        return design, schedule, end

    with ThreadPoolExecutor(side_by_side) as pool:
        return list(pool.map(one, jobs))


def kind_of(end: str) -> str:
    return next(words for part, words in KINDS if part in end)


def rows(designs: Iterable[Design], results: Sequence[tuple[Design, Schedule, str | None]]) -> list[str]:
    """The lines of the table."""
    lines = ["| design | trials | lost | how |", "|---|---|---|---|"]
    for design in designs:
        ends = [end for found, _, end in results if found is design]
        kinds = Counter(kind_of(end) for end in ends if end is not None)
        how = "; ".join(f"{words}: {count}" for words, count in kinds.most_common()) or "-"
        lines.append(f"| {design.words} | {len(ends)} | {sum(kinds.values())} | {how} |")
    return lines


def put(page: str, out: str) -> None:
    """Write the page, unless ``out`` is empty, and print it."""
    if out:
        os.makedirs(os.path.dirname(out) or ".", exist_ok=True)
        with open(out, "w", encoding="utf-8") as file:
            file.write(page)
    print(page)
