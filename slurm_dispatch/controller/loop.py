"""``dispatch tick --loop``: a full tick each interval, and one at once when a note comes.

The loop holds nothing that matters: it can be killed anywhere, and two of them can run beside each other
and beside cron.
"""

from __future__ import annotations

import os
import select
import signal
import time
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from slurm_dispatch.controller.kick import Kick

GAP_S = 0.05
"""The shortest pause between two passes: a thousand jobs that end together are a few passes, not a thousand."""
TIMELY_S = 1.0
"""A start is recorded within this: jobs that start together are one pass."""


class Pass(Protocol):
    """One pass over the jobs; see :func:`slurm_dispatch.controller.tick.tick`."""

    def __call__(self, full: bool, /) -> float | None:
        """:returns: in how many seconds it wants to be called again for a job that is not clear yet, or ``None``."""


class Loop:
    """Ticks until SIGTERM or SIGINT, or until it is outdated.

    :param tick: one pass.
    :param kick: says when a note has come.
    :param interval_s: the time between two full ticks.
    :param outdated: asked before each full tick but the first: another loop is to go on, with other settings.
    """

    def __init__(
        self, tick: Pass, kick: Kick, interval_s: float, outdated: Callable[[], bool] = lambda: False
    ) -> None:
        self._tick = tick
        self._kick = kick
        self._interval_s = interval_s
        self._outdated = outdated
        self._ended = False

    def run(self) -> None:
        """Tick until a signal says to end, or it is outdated (:attr:`ended` tells which); a pass that runs is
        finished first (its parts have deadlines).
        """
        reading, writing = os.pipe()
        os.set_blocking(writing, False)
        os.set_blocking(reading, False)
        before = {number: signal.signal(number, self._end) for number in (signal.SIGTERM, signal.SIGINT)}
        wakeup = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        try:
            self._turn(reading)
        finally:
            self._kick.stop()
            signal.set_wakeup_fd(wakeup)
            for number, handler in before.items():
                signal.signal(number, handler)
            os.close(reading)
            os.close(writing)

    @property
    def ended(self) -> bool:
        """True once a signal came: a pass starts nothing new then."""
        return self._ended

    def _end(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self._ended = True

    def _turn(self, signalled: int) -> None:
        first, due = True, time.monotonic()  # of the next full tick
        again: float | None = None  # of the next pass for jobs that are not clear yet
        while not self._ended:
            self._kick.ensure()
            kicked = self._kick.drain()
            now = time.monotonic()
            if kicked == "soon":
                again = now + TIMELY_S if again is None else min(again, now + TIMELY_S)
            full = now >= due
            if full and not first and self._outdated():
                return
            if full:
                first = False
                due = now + self._interval_s
            if full or kicked == "now" or (again is not None and now >= again):
                wanted = self._tick(full)
                again = None if wanted is None else time.monotonic() + wanted
                self._wait(signalled, GAP_S, kick=False)
                continue
            until = due if again is None else min(due, again)
            self._wait(signalled, until - now, kick=True)

    def _wait(self, signalled: int, seconds: float, *, kick: bool) -> None:
        descriptors = [signalled]
        if kick and self._kick.descriptor is not None:
            descriptors.append(self._kick.descriptor)
        elif kick:
            seconds = min(seconds, 1.0)  # so that a watcher that ended is started again
        if not self._ended:
            select.select(descriptors, [], [], max(0.0, seconds))


__all__ = ["GAP_S", "TIMELY_S", "Loop", "Pass"]
