"""A deadline that holds: whatever a library waits for, the caller goes on when the time is up.

A timeout of a client covers one request, and not always the look-up of a name or of credentials before it, nor an
answer that comes one byte at a time. So each call is made in another thread, which is left behind when it is late (a
daemon: it does not hold up the end of the process either). One that has made its call waits for the next: to start a
thread for each costs a tenth of the way to a near store and back.
"""

from __future__ import annotations

import os
import queue
import random
import threading
import time
from typing import TYPE_CHECKING, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_T = TypeVar("_T")

FIRST_WAIT_S = 0.1
LAST_WAIT_S = 5.0


class Late(Exception):
    """The time is up. What was called may still happen."""


class _Caller:
    """A thread that makes one call after the other."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        threading.Thread(target=self._run, daemon=True, name="s3").start()

    def make(self, call: Callable[[], None]) -> None:
        """Make this call, which raises nothing, and then be idle again."""
        self._calls.put(call)

    def _run(self) -> None:
        while True:
            self._calls.get()()


_idle: list[_Caller] = []
os.register_at_fork(after_in_child=_idle.clear)  # a fork takes no threads along


def _idle_one() -> _Caller:
    try:
        return _idle.pop()
    except IndexError:
        return _Caller()


class Deadline:
    """So many seconds from now on.

    :param seconds: more than 0.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._ends_at = time.monotonic() + seconds

    def left_s(self) -> float:
        """Seconds that are left, never below 0."""
        return max(0.0, self._ends_at - time.monotonic())

    def call(self, act: Callable[[], _T]) -> _T:
        """What ``act`` returns or raises.

        :raises Late: it had not come back when the time was up.
        """
        done: queue.SimpleQueue[tuple[_T | None, BaseException | None]] = queue.SimpleQueue()
        caller = _idle_one()

        def run() -> None:
            result, raised = None, None
            try:
                result = act()
            except BaseException as error:  # noqa: BLE001 - raised again by who waits
                raised = error
            # Before who waits goes on, so that its next call finds this thread; also if nobody waits any more.
            _idle.append(caller)
            done.put((result, raised))

        caller.make(run)
        try:
            result, raised = done.get(timeout=self.left_s())
        except queue.Empty:
            raise Late from None
        if raised is not None:
            raise raised
        return cast("_T", result)

    def tries(self) -> Iterator[int]:
        """Number tries from 0, and wait before each but the first, longer and longer, until the time is up.

        The waits are drawn, so that many who were refused together do not come again together.
        """
        wait_s = FIRST_WAIT_S
        number = 0
        while True:
            yield number
            number += 1
            drawn_s = wait_s * random.uniform(0.5, 1.0)
            if self.left_s() <= drawn_s:
                return
            time.sleep(drawn_s)
            wait_s = min(wait_s * 2, LAST_WAIT_S)
