"""Children side by side: deadlines, bounds, and what a hostile one can do."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

from slurm_dispatch.controller.children import Children, Ended
from slurm_dispatch.errors import BadDataError, ServiceAwayError

if TYPE_CHECKING:
    from collections.abc import Callable

LONG_S = 60.0


def gather(children: Children, count: int) -> dict[str, Ended]:
    found: dict[str, Ended] = {}
    deadline = time.monotonic() + 2 * LONG_S
    while len(found) < count:
        assert time.monotonic() < deadline, found
        for ended in children.wait(1.0):
            found[ended.name] = ended
    return found


def test_answers_come_back_by_name_and_in_any_order() -> None:
    children = Children(bound=2)
    for number in range(5):
        children.start(str(number), lambda number=number: bytes([number]) * 200_000, LONG_S)  # type: ignore[misc]
    found = gather(children, 5)
    assert {name: ended.answer for name, ended in found.items()} == {str(n): bytes([n]) * 200_000 for n in range(5)}
    assert children.idle()


def test_no_more_than_the_bound_run_at_once() -> None:
    children = Children(bound=2)
    for number in range(4):
        children.start(str(number), lambda: b"x", LONG_S)
    assert len(children._running) == 2
    assert children.busy("3")
    gather(children, 4)
    assert not children.busy("3")


def test_errors_are_one_line() -> None:
    def fail(error: BaseException) -> Callable[[], bytes]:
        def work() -> bytes:
            raise error

        return work

    children = Children()
    children.start("bad", fail(BadDataError("a\nb", hint="c")), LONG_S)
    children.start("away", fail(ServiceAwayError("gone")), LONG_S)
    children.start("bug", fail(KeyError("k")), LONG_S)
    children.start("dead", lambda: os.kill(os.getpid(), signal.SIGKILL) or b"", LONG_S)  # type: ignore[func-returns-value]
    found = gather(children, 4)
    assert found["bad"].why == "a\\nb; c"
    assert (found["away"].why, found["away"].hung) == ("gone", True)
    assert found["bug"].why.startswith("bug: KeyError")
    assert found["dead"].why == "it ended without an answer"
    assert not found["bad"].hung


def test_one_that_is_stopped_is_killed_at_its_deadline_and_the_others_go_on() -> None:
    children = Children(bound=2)
    children.start("stopped", lambda: os.kill(os.getpid(), signal.SIGSTOP) or b"", 1.0)  # type: ignore[func-returns-value]
    for number in range(3):
        children.start(str(number), lambda: b"x", LONG_S)
    found = gather(children, 4)
    assert found["stopped"].hung
    assert found["stopped"].answer is None
    assert all(found[str(number)].answer == b"x" for number in range(3))


def test_an_answer_over_the_bound_is_cut_off() -> None:
    children = Children(answer_max=1 << 20)
    children.start("huge", lambda: b"x" * (4 << 20), LONG_S)
    assert "more than" in gather(children, 1)["huge"].why


def test_stop_ends_what_runs() -> None:
    children = Children()
    children.start("a", lambda: time.sleep(600) or b"", 600.0)  # type: ignore[func-returns-value]
    pid = children._running["a"].pid
    children.stop()
    deadline = time.monotonic() + LONG_S
    while children.busy("a"):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert children.idle()
    assert not os.path.exists(f"/proc/{pid}")
