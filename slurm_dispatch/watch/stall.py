"""``--stall``: how long the command has published nothing, while that could be seen.

The law of this module: *only silence that was looked at counts.* Time in which the job was suspended, the store
failed or a scan stood still says nothing about the training; and the command is ended only after a scan that began
when the time was over.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

STEP_S = 15.0
"""Between two looks at the clock, at most, and a quarter of the limit."""
GAP_S_MAX = 30.0
"""What the time between two looks counts at most, and half of the limit: a process that was stopped (``scontrol
suspend``) wakes hours later, and the training was stopped as long."""


class Silence:
    """Counts the silence of one command, from its start and from each publication on."""

    def __init__(self, limit_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        """
        :param limit_s: after so many seconds of silence it is a stall.
        :param clock: monotonic: a wall clock that is set must end no training.
        """
        self.limit_s = limit_s
        self._clock = clock
        self._last = clock()
        self._counted_s = 0.0
        self._reached_at: float | None = None

    def broken(self) -> None:
        """Something was published: count anew."""
        self._last = self._clock()
        self._counted_s = 0.0
        self._reached_at = None

    def due(self) -> float:
        """When to look again (monotonic)."""
        step_s = min(STEP_S, self.limit_s / 4)
        left_s = self.limit_s - self._counted_s
        return self._last + (min(step_s, left_s) if left_s > 0 else step_s)

    def over(self, *, seen: bool, looked_from: float | None) -> bool:
        """Count the time since the last look; whether it is a stall.

        :param seen: whether a publication would have been seen in that time.
        :param looked_from: when the last scan that went well began (monotonic), ``None`` before the first.
        """
        now = self._clock()
        if seen:
            self._counted_s += min(now - self._last, GAP_S_MAX, self.limit_s / 2)
        self._last = now
        if self._counted_s < self.limit_s:
            return False
        if self._reached_at is None:
            self._reached_at = now
        return looked_from is not None and looked_from >= self._reached_at
