"""A kill at every call of a piece of work that runs in a fork of this process: twenty times as fast as a program.

``strace`` is attached to the fork before the work begins, so nothing of a start-up is counted, and ``SIGKILL`` comes
when a call begins: the call itself does not happen. A point is (call, n) as in :mod:`tests.kill`: the process that is
first to make its n-th call of that name dies, and each kill is checked against the trace of the run that counted.
"""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
import sys
import time
import traceback
from contextlib import suppress
from typing import TYPE_CHECKING

from tests.kill import ALWAYS, DEADLINE_S, LINE, OPENS, WRITES, Ended, Point, calls, changes, names

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_PR_SET_PTRACER = 0x59616D61
_ANYBODY = ctypes.c_ulong(-1)
_RANDOM = re.compile(r"\.tmp-[0-9a-f]{16}|\.(put|new)\.[0-9]+|[0-9]{4,}")
_PROCESSES = frozenset({"exit_group", "clone", "clone3", "fork", "vfork", "kill"})


def run(work: Callable[[], None], trace: Path, *options: str) -> Ended:
    """``work`` in a fork that ``strace`` watches, with every process that it makes, until all of them have ended."""
    pid = os.fork()
    if pid == 0:
        _child(work)
    _stopped(pid)
    argv = ["strace", "-f", "-y", "-s", "300", "-o", str(trace), *options, "-p", str(pid)]
    tracer = subprocess.Popen(argv, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
    assert tracer.stderr is not None
    said = tracer.stderr.readline()  # comes once it is attached
    if b"attached" not in said:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise AssertionError(f"strace cannot be attached: {said!r}")
    os.kill(pid, signal.SIGCONT)
    status = _ended(pid, trace)
    try:
        _, rest = tracer.communicate(timeout=DEADLINE_S)
    except subprocess.TimeoutExpired:
        tracer.kill()
        tracer.communicate()
        raise AssertionError(f"a process of the work did not end within {DEADLINE_S} s: {trace}") from None
    lines = trace.read_text("utf-8", "backslashreplace").splitlines()
    return Ended(os.waitstatus_to_exitcode(status), b"", said + rest, lines)


def _child(work: Callable[[], None]) -> None:
    status = 1
    try:
        os.setpgid(0, 0)
        # Where only an ancestor may look into a process, the tracer, which is none, may too.
        ctypes.CDLL(None).prctl(_PR_SET_PTRACER, _ANYBODY, 0, 0, 0)
        os.kill(os.getpid(), signal.SIGSTOP)
        work()
        status = 0
    except BaseException:
        traceback.print_exc(file=sys.__stderr__)
    finally:
        os._exit(status)


def _stopped(pid: int) -> None:
    found, status = os.waitpid(pid, os.WUNTRACED)
    assert (found, os.WIFSTOPPED(status)) == (pid, True), status


def _ended(pid: int, trace: Path) -> int:
    deadline = time.monotonic() + DEADLINE_S
    while True:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found == pid:
            return status
        if time.monotonic() > deadline:
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise AssertionError(f"the work did not end within {DEADLINE_S} s: {trace}")
        time.sleep(0.001)


def points(work: Callable[[], None], trace: Path, place: Path) -> list[Point]:
    """Where to kill: the calls that change something below ``place``, and those that make or end a process."""
    ended = run(work, trace, "-e", f"trace={names(ALWAYS, WRITES, OPENS)}")
    if ended.status != 0:
        raise AssertionError(f"it ended with {ended.status} without any kill: {ended.stderr!r}")
    found: dict[Point, None] = {}
    for point, rest in calls(ended):
        if changes(point.call, rest) and (str(place) in point.text or point.call in _PROCESSES):
            found.setdefault(point)
    return list(found)


def kill(work: Callable[[], None], point: Point, trace: Path, *, exact: bool = True) -> None:
    """Run ``work`` until ``point`` kills it, or a child of it; fails if that never happens.

    :param exact: the call that killed must look like the one that was counted; not where several processes may be
        the first.
    """
    ended = run(work, trace, "-e", f"trace={point.call}", "-e", f"inject={point.call}:signal=KILL:when={point.when}")
    if not any("killed by SIGKILL" in line for line in ended.trace):
        raise AssertionError(f"{point} was never reached; it ended with {ended.status}: {ended.stderr!r}")
    if not exact:
        return
    same = [line for line in ended.trace if (match := LINE.match(line)) and match["call"] == point.call]
    if ended.status != -signal.SIGKILL or _shape(same[-1]) != _shape(point.text):
        raise AssertionError(f"another call was killed than {point}: {same[-1]}")


def _shape(line: str) -> str:
    """The paths that a traced call names, without what differs from run to run."""
    match = LINE.match(line)
    assert match is not None
    rest = match["rest"].rpartition(" = ")[0] if match["call"] not in WRITES else match["rest"].partition(",")[0]
    paths = re.findall(r'"(/[^"]*)"|<(/[^>]*)>', rest)
    below = [re.sub(r".*/(state|slurm)(?=/|$)", r"\1", one or other) for one, other in paths]
    return " ".join([match["call"], *(_RANDOM.sub("#", path) for path in below)])


__all__ = ["kill", "points", "run"]
