"""A row of the table, and how its figures are measured."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Row:
    """One figure and its floor: what the bare machine takes for the same work.

    :ivar what: what was measured.
    :ivar ours_s: seconds, median.
    :ivar floor: what the floor is, in words.
    :ivar floor_s: seconds, median; ``None`` where there is none.
    :ivar goal: the greatest ratio of ours to the floor; ``None`` for a figure without a goal.
    :ivar goal_s: the most seconds, where the goal is not a ratio.
    :ivar beyond_s: seconds taken off both before the ratio (start-up).
    :ivar unit: of what is measured, where it is not time.
    """

    what: str
    ours_s: float
    floor: str = ""
    floor_s: float | None = None
    goal: float | None = None
    goal_s: float | None = None
    beyond_s: float = 0.0
    unit: str = ""

    @property
    def ratio(self) -> float | None:
        """Ours against the floor."""
        if not self.floor_s:
            return None
        return (self.ours_s - self.beyond_s) / (self.floor_s - self.beyond_s)

    @property
    def ok(self) -> bool | None:
        """Whether the goal is met; ``None`` where there is no goal."""
        if self.goal_s is not None:
            return self.ours_s <= self.goal_s
        if self.goal is None or self.ratio is None:
            return None
        return self.ratio <= self.goal


def medians(
    runs: int, *acts: Callable[[], object], clock: Callable[[], float] = time.perf_counter
) -> list[float]:
    """The median seconds of each act, run in turns, so that what else the machine does falls on all alike.

    :param clock: ``time.process_time`` for acts that wait for nothing: then a busy machine changes little.
    """
    taken: list[list[float]] = [[] for _ in acts]
    for turn in range(runs):
        # Turn and turn about: who comes first in a round does not come first in the next.
        for index in sorted(range(len(acts)), reverse=turn % 2 == 1):
            start = clock()
            acts[index]()
            taken[index].append(clock() - start)
    return [statistics.median(each) for each in taken]
