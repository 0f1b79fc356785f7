"""Children that work side by side, each with a deadline.

Each stays what the tick is and waits for a child of its own that has given its rights up for good
(:func:`slurm_dispatch.state.as_user.in_child`), so that many owners' work goes on at once.

The law of this module: *what a child waits for can stop that child and nothing else.* The parent
never waits for one child alone, kills at the deadline, never reads more than a bound, and
starts no second child of a name while the first is not reaped (one that hangs in the kernel cannot be killed,
and a pile of them would take the host).
"""

from __future__ import annotations

import gc
import os
import select
import signal
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NoReturn

from slurm_dispatch.durable import write_all
from slurm_dispatch.errors import DispatchError, ServiceAwayError, one_line, show

if TYPE_CHECKING:
    from collections.abc import Callable

ANSWER_MAX = 80 << 20
"""Bytes that a child may answer: the most notes that one tick reads, at 700 bytes each."""
KILL_WAIT_S = 5.0
"""A process that SIGKILL does not end in this time is stuck in the kernel (a dead file server)."""
SIDE_BY_SIDE = 16
"""How many children work at once: the work is waiting for Slurm and the filesystem, not computing."""
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class Ended:
    """A child that is over.

    :param answer: what it answered, or ``None``.
    :param why: why there is no answer, one line.
    :param hung: it, or what it waited for, was killed at its deadline or is away.
    """

    name: str
    answer: bytes | None
    why: str = ""
    hung: bool = False


@dataclass(slots=True)
class _Child:
    name: str
    pid: int
    pipe: int
    deadline: float
    parts: list[bytes] = field(default_factory=list)
    size: int = 0


class Children:
    """A pool of children by name.

    :param bound: at most so many at once; more are kept waiting in the order of :meth:`start`.
    :param answer_max: bytes that one may answer.
    """

    def __init__(self, bound: int = SIDE_BY_SIDE, answer_max: int = ANSWER_MAX) -> None:
        self._bound = bound
        self._answer_max = answer_max
        self._running: dict[str, _Child] = {}
        self._waiting: list[tuple[str, Callable[[], bytes], float]] = []
        self._dead: dict[str, int] = {}  # killed, not reaped yet

    def busy(self, name: str) -> bool:
        """A child of this name runs, waits for its turn, or cannot be reaped."""
        self._reap()
        return name in self._running or name in self._dead or any(name == waiting[0] for waiting in self._waiting)

    def idle(self) -> bool:
        """No child runs or waits for its turn."""
        return not self._running and not self._waiting

    def start(self, name: str, work: Callable[[], bytes], deadline_s: float) -> None:
        """Do ``work`` in a child; :meth:`wait` gives the answer.

        :param deadline_s: counts from when the child really starts.
        """
        self._waiting.append((name, work, deadline_s))
        self._fill()

    def wait(self, seconds: float) -> list[Ended]:
        """What has ended; returns at the first, or after ``seconds``, or at once when nothing runs."""
        until = time.monotonic() + seconds
        while True:
            ended = self._over()
            self._fill()
            if ended or not self._running:
                return ended
            now = time.monotonic()
            if now >= until:
                return []
            first = min(child.deadline for child in self._running.values())
            pipes = {child.pipe: child for child in self._running.values()}
            ready, _, _ = select.select(list(pipes), [], [], max(0.0, min(until, first) - now))
            ended = [end for pipe in ready if (end := self._read(pipes[pipe])) is not None]
            if ended:
                self._fill()
                return ended

    def stop(self) -> None:
        """Kill what runs and forget what waits: at the end of the program only."""
        self._waiting.clear()
        for child in list(self._running.values()):
            self._close(child)

    def _fill(self) -> None:
        self._reap()
        position = 0
        while len(self._running) < self._bound and position < len(self._waiting):
            name, work, deadline_s = self._waiting[position]
            if name in self._running or name in self._dead:
                position += 1
                continue
            del self._waiting[position]
            reading, writing = os.pipe()
            pid = os.fork()
            if pid == 0:
                os.close(reading)
                _child(writing, work)
            os.close(writing)
            os.set_blocking(reading, False)
            self._running[name] = _Child(name, pid, reading, time.monotonic() + deadline_s)

    def _over(self) -> list[Ended]:
        now = time.monotonic()
        late = [child for child in self._running.values() if child.deadline <= now]
        for child in late:
            self._close(child)
        return [Ended(child.name, None, "it hung and was killed at its deadline", hung=True) for child in late]

    def _read(self, child: _Child) -> Ended | None:
        try:
            part = os.read(child.pipe, 1 << 16)
        except BlockingIOError:
            return None
        if part:
            child.parts.append(part)
            child.size += len(part)
            if child.size <= self._answer_max:
                return None
            self._close(child)
            return Ended(child.name, None, f"it answered more than {self._answer_max} bytes")
        self._close(child)
        answer = b"".join(child.parts)
        if answer[:1] == b"+":
            return Ended(child.name, answer[1:])
        why = show(answer[1:]) if answer else "it ended without an answer"
        return Ended(child.name, None, why, hung=answer[:1] == b"!")

    def _close(self, child: _Child) -> None:
        os.close(child.pipe)
        del self._running[child.name]
        # Also after an answer: it has nothing more to do, and could have been stopped before its exit. The
        # child leads a group of its own, so that what it started goes with it.
        for target in (-child.pid, child.pid):
            try:
                os.kill(target, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                pass  # no group yet (the child has not come that far), or over
        self._dead[child.name] = child.pid
        # It is dead within a moment, and its name free for the next pass, unless the kernel holds it.
        until = time.monotonic() + KILL_WAIT_S
        while child.name in self._dead and time.monotonic() < until:
            self._reap()
            if child.name in self._dead:
                time.sleep(0.001)

    def _reap(self) -> None:
        for name, pid in list(self._dead.items()):
            try:
                gone = os.waitpid(pid, os.WNOHANG)[0] != 0
            except ChildProcessError:
                gone = True
            if gone:
                del self._dead[name]


def _child(pipe: int, work: Callable[[], bytes]) -> NoReturn:
    """The child: never returns."""
    # A collection would write into what the parent and all its children share, and so copy it for each.
    gc.freeze()
    status = 1
    try:
        os.setpgid(0, 0)
        signal.set_wakeup_fd(-1)
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        answer = b"+" + work()
        status = 0
    except ServiceAwayError as error:
        answer = b"!" + error.line().encode("utf-8", "backslashreplace")
    except DispatchError as error:
        answer = b"-" + error.line().encode("utf-8", "backslashreplace")
    except BaseException as error:  # noqa: BLE001 - the outermost frame of this process
        answer = b"-" + one_line(f"bug: {type(error).__name__}: {error}").encode("utf-8", "backslashreplace")
    try:
        write_all(pipe, answer)
    finally:
        os._exit(status)


__all__ = ["ANSWER_MAX", "SIDE_BY_SIDE", "Children", "Ended"]
