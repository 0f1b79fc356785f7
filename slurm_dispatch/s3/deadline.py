"""A deadline that holds: whatever a library waits for, the caller goes on when the time is up.

A timeout of a client covers one request, and not always the look-up of a name or of credentials before it, nor an
answer that comes one byte at a time. So each call is made in a thread of its own, which is left behind when it is
late (a daemon: it does not hold up the end of the process either).
"""

from __future__ import annotations

import random
import threading
import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_T = TypeVar("_T")

FIRST_WAIT_S = 0.1
LAST_WAIT_S = 5.0


class Late(Exception):
    """The time is up. What was called may still happen."""


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
        done = threading.Event()
        result: list[_T] = []
        raised: list[BaseException] = []

        def run() -> None:
            try:
                result.append(act())
            except BaseException as error:  # noqa: BLE001 - raised again by the caller
                raised.append(error)
            finally:
                done.set()

        threading.Thread(target=run, daemon=True, name="s3").start()
        if not done.wait(self.left_s()):
            raise Late
        if raised:
            raise raised[0]
        return result[0]

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
