"""What a tick costs over very many open jobs of which nothing has changed, and how soon the loop wakes.

A whole ``dispatch tick``, as cron starts it, a minute after the last one. Time is that of all its processes on the
processor, squeue's own apart; memory is that of all of them at once, shared pages counted once.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING

from bench.made_site import MadeSite, make
from bench.row import Row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TICK = [sys.executable, "-c", "import sys; from slurm_dispatch.cli.main import run; sys.argv[0] = 'dispatch'; run()",
        "tick"]  # fmt: skip
RUNS = 5
MINUTE_S = 60.0
WAKES = 20
WAKE_S = 0.2
SETTLED_TICKS = 4
"""After so many ticks at most nothing is left to be remembered."""
SIZES = {10_000: (1.0, 500.0), 100_000: (10.0, 500.0)}
"""Jobs: the most seconds of the processor, the most MB of memory."""
CALLS_MAX = 2
FLOOR = """
import os, subprocess, sys
folder = os.open(sys.argv[1], os.O_RDONLY)
for key in os.listdir(folder):
    os.stat(key + "/facts", dir_fd=folder, follow_symlinks=False)
subprocess.run([sys.argv[2], "--format=<0123456789abcdef>%A"], stdout=subprocess.PIPE, check=True).stdout.splitlines()
"""


def rows() -> Iterator[Row]:
    """All figures of this part."""
    for count, (seconds, megabytes) in SIZES.items():
        folder = tempfile.mkdtemp(prefix="bench-tick-")
        try:
            site = make(folder, count)
            yield from quiet(site, seconds, megabytes)
            if count == min(SIZES):
                yield from wake(site)
        finally:
            shutil.rmtree(folder)


def quiet(site: MadeSite, seconds: float, megabytes: float) -> Iterator[Row]:
    """A tick with nothing changed."""
    jobs = f"{site.count:,} jobs"
    queue_s = statistics.median(_used([site.squeue, "--format=<0123456789abcdef>%A"], site)[0] for _ in range(RUNS))
    cold_s, cold_wall_s = _used(TICK, site)
    yield Row(f"tick, {jobs}, no index: processor", cold_s - queue_s)
    yield Row(f"tick, {jobs}, no index: wall", cold_wall_s)
    for _ in range(SETTLED_TICKS):
        before = _files(site)
        _age(site)
        _used(TICK, site)
        if _written(before, _files(site)) == 0:
            break
    argv = [sys.executable, "-c", FLOOR, os.path.join(site.state, "jobs"), site.squeue]
    floors = [_used(argv, site) for _ in range(RUNS)]
    before, calls = _files(site), _calls(site)
    taken = []
    for _ in range(RUNS):
        _age(site)
        taken.append(_used(TICK, site))
    written, called = _written(before, _files(site)), (_calls(site) - calls) / RUNS
    floor = "a stat of each record, squeue's text read"
    used_s = statistics.median(used for used, _ in taken) - queue_s
    floor_s = statistics.median(used for used, _ in floors) - queue_s
    yield Row(f"tick, {jobs}, nothing changed: processor", used_s, floor, floor_s, goal_s=seconds)
    wall_s, floor_wall_s = (statistics.median(wall for _, wall in times) for times in (taken, floors))
    yield Row(f"tick, {jobs}, nothing changed: wall", wall_s, floor, floor_wall_s)
    yield Row(f"tick, {jobs}, nothing changed: calls of Slurm", called, goal_s=CALLS_MAX, unit="calls")
    yield Row(f"tick, {jobs}, nothing changed: files written", written, goal_s=0, unit="files")
    yield Row(f"tick, {jobs}, nothing changed: memory", _memory(site), goal_s=megabytes, unit="MB")


def wake(site: MadeSite) -> Iterator[Row]:
    """From a note to the loop's call of squeue."""
    _age(site)
    process = subprocess.Popen([*TICK, "--loop"], env=_environment(site), stderr=subprocess.DEVNULL)
    taken = []
    try:
        _until(lambda: _last(site) > time.time() - MINUTE_S / 2)
        starts = sorted(name for name in os.listdir(os.path.join(site.state, "notes")) if name.startswith("start."))
        for number, start in enumerate(starts[:WAKES]):
            time.sleep(0.5 + 0.013 * number)  # no step of the loop's own
            calls = os.path.getsize(site.calls)
            begun = time.monotonic()
            _leave_note(site, start)
            _until(lambda calls=calls: os.path.getsize(site.calls) > calls)  # type: ignore[misc]
            taken.append(time.monotonic() - begun)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()
    what = f"loop, {site.count:,} jobs, note to squeue"
    yield Row(f"{what} (median of {WAKES})", statistics.median(taken), goal_s=WAKE_S)
    yield Row(f"{what} (longest of {WAKES})", max(taken))


def _leave_note(site: MadeSite, start: str) -> None:
    """The end note of the execution whose start note is ``start``; squeue still says that it runs."""
    notes = os.path.join(site.state, "notes")
    with open(os.path.join(notes, start), encoding="ascii") as stream:
        body = json.load(stream)
    at = time.time_ns()
    name = f"end.{body['job']}.0.1.{body['slurm_job_id']}.{body['start_time']}.{at}"
    kept = ("v", "job", "generation", "submission", "shared", "cluster", "slurm_job_id", "start_time", "nodes", "uid")
    end = {**{field: body[field] for field in kept}, "at": at / 1e9, "restart_seen": 0, "exit_code": "0:0"}
    path = os.path.join(notes, ".tmp-bench")
    with open(path, "w", encoding="ascii") as stream:
        json.dump(end, stream)
    os.chown(path, os.stat(notes).st_uid, -1)
    os.rename(path, os.path.join(notes, name))


def _until(true: Callable[[], bool], deadline_s: float = 120.0) -> None:
    until = time.monotonic() + deadline_s
    while not true():
        if time.monotonic() > until:
            raise RuntimeError("the loop does not do what is waited for")
        time.sleep(0.001)


def _environment(site: MadeSite) -> dict[str, str]:
    own = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    return {"DISPATCH_CONFIG": site.config, "PATH": os.environ.get("PATH", os.defpath), "PYTHONPATH": own}


def _used(argv: list[str], site: MadeSite) -> tuple[float, float]:
    """Seconds of the processor that a command and all that it started used, and of the clock."""
    begun = time.monotonic()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(argv, env=_environment(site), stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return used, time.monotonic() - begun


def _memory(site: MadeSite) -> float:
    """The most MB that the tick's processes have at once, squeue's apart, shared pages counted once."""
    _age(site)
    process = subprocess.Popen(TICK, env=_environment(site))
    most = 0
    while process.poll() is None:
        most = max(most, sum(_proportional(pid) for pid in _family(process.pid)))
        time.sleep(0.005)
    return most / 1e6


def _family(pid: int) -> list[int]:
    found = [pid]
    for each in found:
        try:
            with open(f"/proc/{each}/task/{each}/children", encoding="ascii") as stream:
                found += map(int, stream.read().split())
        except OSError:
            continue
    return found


def _proportional(pid: int) -> int:
    """Bytes of a process, each page by how many have it; 0 for one that is over, or another program."""
    try:
        if "python" not in os.readlink(f"/proc/{pid}/exe"):
            return 0
        with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as stream:
            return sum(int(line.split()[1]) * 1024 for line in stream if line.startswith("Pss:"))
    except OSError:
        return 0


def _age(site: MadeSite) -> None:
    """The last tick was a minute ago."""
    path = os.path.join(site.state, "tick", "last")
    if os.path.exists(path):
        os.utime(path, (time.time() - MINUTE_S, time.time() - MINUTE_S))


def _last(site: MadeSite) -> float:
    return os.stat(os.path.join(site.state, "tick", "last")).st_mtime


def _calls(site: MadeSite) -> int:
    with open(site.calls, encoding="ascii") as stream:
        return sum(1 for _ in stream)


def _files(site: MadeSite) -> dict[str, tuple[int, int, int]]:
    """What tells that a file or a folder of the state folder was written."""
    found = {}
    for top, _, names in os.walk(site.state):
        for path in (top, *(os.path.join(top, name) for name in names)):
            status = os.lstat(path)
            found[path] = (status.st_ino, status.st_mtime_ns, status.st_size)
    return found


def _written(before: dict[str, tuple[int, int, int]], after: dict[str, tuple[int, int, int]]) -> int:
    """How many were written, made or removed, the time of the last tick apart."""
    names = before.keys() | after.keys()
    return sum(before.get(name) != after.get(name) for name in names if not name.endswith("/tick/last"))
