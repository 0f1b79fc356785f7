"""A kill at every call: run a program under strace once to count, then once for each call, killed there.

``SIGKILL`` comes when the call begins, so the call itself does not happen: "killed before call n" for every n, and
before the exit, which is "killed after the last call". After each kill a check looks at what is left, and the program
is run again and must finish.

::

    def scene(folder):                      # a fresh scene in an empty folder
        return Run([sys.executable, "-m", "thing", str(folder)], env=..., cwd=...)

    kill_at_every_call(tmp_path, scene, check=after_a_kill, finished=after_the_second_run)

A point is (call, n): the process that is first to make its n-th call of that name dies. strace counts each process
from its own start, so a call of a child is a point only if no process before it comes to the same number; a part that
works in a child is best given to the harness as a program of its own. The program must make its calls in the same
order each time (the byte code must be warm: this module runs the program once before it counts).
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

DEADLINE_S = 120.0
"""For one run of the program; far more than any needs, on any machine."""

ALWAYS = frozenset(
    """link linkat rename renameat renameat2 unlink unlinkat rmdir mkdir mkdirat symlink symlinkat mknod mknodat
    truncate ftruncate fallocate fsync fdatasync syncfs sync chmod fchmod fchmodat chown fchown lchown fchownat
    utime utimes utimensat futimesat setxattr lsetxattr fsetxattr removexattr connect bind sendto sendmsg
    clone clone3 fork vfork execve kill tgkill pidfd_send_signal exit_group""".split()  # noqa: SIM905 - sixty words read better so
)
"""Calls that change something outside the process, whatever their arguments."""
WRITES = frozenset(["write", "pwrite64", "writev", "pwritev", "pwritev2", "copy_file_range", "sendfile", "splice"])
"""They change something unless they write to a thing of the process itself."""
OPENS = frozenset(["open", "openat", "openat2", "creat"])
"""They change something if they make or truncate."""
MARKERS = frozenset("stat lstat newfstatat statx access faccessat faccessat2 readlink readlinkat chdir".split())  # noqa: SIM905
"""Calls that may be the first to name the scene."""
LINE = re.compile(r"(?P<pid>\d+)\s+(?P<call>[a-z0-9_]+)\((?P<rest>.*)")
"""A call in strace's output."""
_OWN_THINGS = ("eventfd", "anon_inode", "/dev/null", "inotify")


@dataclass(frozen=True)
class Run:
    """What to run.

    :ivar env: the whole environment; ``None`` for this process's own.
    :ivar statuses: exit statuses that count as having finished.
    """

    argv: Sequence[str]
    cwd: str | Path | None = None
    env: Mapping[str, str] | None = None
    stdin: bytes = b""
    statuses: frozenset[int] = frozenset({0})


@dataclass(frozen=True)
class Point:
    """One place to kill: at the ``when``-th ``call`` of a process. ``text`` is the traced line."""

    call: str
    when: int
    text: str = field(compare=False)

    def __str__(self) -> str:
        return f"{self.call}:when={self.when}  {self.text[:160]}"


@dataclass(frozen=True)
class Ended:
    """How a run ended. ``status`` is negative for a signal, as in :mod:`subprocess`."""

    status: int
    stdout: bytes
    stderr: bytes
    trace: list[str]


def run(what: Run, *options: str, deadline_s: float = DEADLINE_S, trace: Path | None = None) -> Ended:
    """Run to the end, under ``strace -f`` with ``options`` if there are any (or ``trace`` is given).

    Every process that it leaves in its session is killed at the deadline, and that is an error.
    """
    argv = list(what.argv)
    if options or trace is not None:
        target = str(trace) if trace is not None else os.devnull
        argv = ["strace", "-f", "-q", "-s", "300", "-o", target, *options, *argv]
    process = subprocess.Popen(
        argv,
        cwd=what.cwd,
        env=None if what.env is None else dict(what.env),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        stdout, stderr = process.communicate(what.stdin, timeout=deadline_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        stdout, stderr = process.communicate()
        raise AssertionError(f"{argv} did not end within {deadline_s} s; it said {stderr!r}") from None
    lines = [] if trace is None else trace.read_text("utf-8", "backslashreplace").splitlines()
    return Ended(process.returncode, stdout, stderr, lines)


def names(*groups: frozenset[str]) -> str:
    """These calls for strace's ``trace=``."""
    # `?` in front: a name that this machine's architecture has not is passed over.
    return ",".join(f"?{name}" for group in groups for name in sorted(group))


def changes(call: str, rest: str) -> bool:
    """Whether a call with these arguments changes something outside its process."""
    if call in OPENS:
        return call == "creat" or "O_CREAT" in rest or "O_TRUNC" in rest or "O_TMPFILE" in rest
    if call in WRITES:
        return not any(thing in rest.split(",", 1)[0] for thing in _OWN_THINGS)
    return call in ALWAYS


def points(what: Run, trace: Path, *, mark: str | None = None) -> list[Point]:
    """The places to kill, from one traced run that must finish.

    :param mark: calls before the first one whose line has this text are start-up; ``execve`` lines do not count
        (the program's own arguments name it too).
    """
    ended = run(what, "-y", "-e", f"trace={names(ALWAYS, WRITES, OPENS, MARKERS)}", trace=trace)
    if ended.status not in what.statuses:
        raise AssertionError(f"{what.argv} ended with {ended.status} without any kill: {ended.stderr!r}")
    found: dict[Point, None] = {}
    begun = mark is None
    for point, rest in calls(ended):
        begun = begun or (point.call != "execve" and mark is not None and mark in point.text)
        if begun and changes(point.call, rest) and not (point.call == "execve" and point.when == 1):
            found.setdefault(point)
    return list(found)


def calls(ended: Ended) -> Iterator[tuple[Point, str]]:
    """Every call of a trace, counted for each process, with its arguments."""
    counts: Counter[tuple[str, str]] = Counter()
    for line in ended.trace:
        match = LINE.match(line)
        if match is None or "resumed>" in line:
            continue
        counts[match["pid"], match["call"]] += 1
        yield Point(match["call"], counts[match["pid"], match["call"]], line), match["rest"]


def kill_at_every_call(
    folder: Path,
    scene: Callable[[Path], Run],
    *,
    check: Callable[[Path, Point], None],
    finished: Callable[[Path], None],
    again: Callable[[Path], Run] | None = None,
    mark: str | None = None,
    keep: Callable[[Point], bool] = lambda point: True,
    least: int = 3,
    workers: int = 2,
) -> list[Point]:
    """Kill the program at every call after its start-up that changes something outside it.

    :param folder: an empty folder for scenes, one a point.
    :param scene: lays out what the program needs below the folder given, and says what to run.
    :param check: looks at what a kill left behind; raises if it is not as it must be.
    :param finished: looks at the end state, after the run without a kill and after each second run.
    :param again: what the second run is, if it is not the same as the first.
    :param mark: see :func:`points`; the scene's own path unless given.
    :param keep: which points to visit.
    :param least: fewer points than this mean that the trace saw nothing.
    :returns: the points visited.
    """
    if shutil.which("strace") is None:
        raise AssertionError("strace is not installed: apt-get install strace")
    warm = _place(folder, "warm")
    first = scene(warm)
    ended = run(first)
    if ended.status not in first.statuses:
        raise AssertionError(f"{first.argv} ended with {ended.status} without any kill: {ended.stderr!r}")
    finished(warm)
    counted = _place(folder, "counted")
    all_points = points(scene(counted), folder / "counted.trace", mark=mark or str(counted))
    finished(counted)
    visited = [point for point in all_points if keep(point)]
    if len(visited) < least:
        raise AssertionError(f"only {len(visited)} calls to kill at: {[str(point) for point in all_points]}")

    def visit(numbered: tuple[int, Point]) -> str | None:
        number, point = numbered
        place = _place(folder, f"point{number:04d}")
        try:
            what = scene(place)
            _kill(what, point, folder / f"point{number:04d}.trace")
            check(place, point)
            second = what if again is None else again(place)
            ended = run(second)
            if ended.status not in second.statuses:
                raise AssertionError(f"the second run ended with {ended.status}: {ended.stderr!r}")
            finished(place)
        except Exception as error:
            return f"killed at {point}\n    {type(error).__name__}: {error}"
        shutil.rmtree(place, ignore_errors=True)
        return None

    with ThreadPoolExecutor(workers) as pool:
        failures = [failure for failure in pool.map(visit, enumerate(visited)) if failure is not None]
    if failures:
        raise AssertionError(f"{len(failures)} of {len(visited)} points failed:\n" + "\n".join(failures[:10]))
    return visited


def _place(folder: Path, name: str) -> Path:
    place = folder / name
    place.mkdir()
    return place


def _kill(what: Run, point: Point, trace: Path) -> None:
    """Run until the point kills. A point that another process of the same run reaches first is as good."""
    options = ("-e", f"trace={point.call}", "-e", f"inject={point.call}:signal=KILL:when={point.when}")
    ended = run(what, *options, trace=trace)
    if not any("killed by SIGKILL" in line for line in ended.trace):
        raise AssertionError(f"the point was never reached; it ended with {ended.status}: {ended.stderr!r}")
