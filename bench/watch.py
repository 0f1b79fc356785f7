"""The helper in the job: what its import costs, its idle CPU, and the way from a proved save to its publication."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING

from bench.row import Row, medians

if TYPE_CHECKING:
    from collections.abc import Iterator

RUNS = 20
IDLE_S = 60.0
CPU_SHARE = 0.005
"""The goal: below 0.5 % of a core while idle."""
SAVES = 5
INTERVAL_S = 1.0
DEADLINE_S = 60.0
"""For the helper to end."""


def rows() -> Iterator[Row]:
    """All figures of this part."""
    yield importing()
    folder = tempfile.mkdtemp(prefix="bench-watch-")
    try:
        yield idle(os.path.join(folder, "idle"))
        yield delay(os.path.join(folder, "delay"))
    finally:
        shutil.rmtree(folder)


def importing() -> Row:
    """A start of Python with the helper's command line loaded, against a bare start: at most 45 ms more."""

    def run(code: str) -> None:
        subprocess.run([sys.executable, "-c", code], check=True)

    ours, bare = medians(
        RUNS, lambda: run("import slurm_dispatch.watch, slurm_dispatch.watch.main"), lambda: run("pass")
    )
    return Row(
        "import slurm_dispatch.watch, beyond a start of Python", ours - bare, "a start of Python", bare, goal_s=0.045
    )


def _environment(root: str) -> dict[str, str]:
    os.mkdir(root)
    base = {name: value for name, value in os.environ.items() if not name.startswith(("DISPATCH_", "SLURM_"))}
    identity = {"DISPATCH_JOB": "bench", "DISPATCH_EPOCH": "1000000", "DISPATCH_ATTEMPT": "bench"}
    return base | identity | {"DISPATCH_CHECKPOINT": root}


def idle(root: str) -> Row:
    """CPU of supervisor and scanning process in a minute beside a command that sleeps, with the usual options."""

    def used(seconds: float) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        shutil.rmtree(root, ignore_errors=True)
        command = [sys.executable, "-m", "slurm_dispatch.watch.main", "--", "sleep", str(seconds)]
        subprocess.run(command, env=_environment(root), check=True, stderr=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    start = used(1.0)
    whole = used(1.0 + IDLE_S)
    return Row(
        f"CPU of an idle helper in {IDLE_S:g} s",
        max(0.0, whole - start),
        "0.5 % of a core",
        CPU_SHARE * IDLE_S,
        goal=1.0,
    )


def delay(root: str) -> Row:
    """From the marker of a save of 4 MiB to its publication: half an interval is the mean wait."""
    environment = _environment(root)
    directory = os.path.join(root, "exec", "bench")
    words = ["--interval", str(INTERVAL_S), "--done", "done", "--", "sleep", "3600"]
    process = subprocess.Popen(
        [sys.executable, "-m", "slurm_dispatch.watch.main", *words],
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    taken = []
    try:
        if process.stderr is None:
            raise AssertionError
        process.stderr.readline()  # "a first start": the folder is there
        for step in range(1, SAVES + 1):
            save = os.path.join(directory, f"checkpoint-{step}")
            os.mkdir(save)
            with open(os.path.join(save, "weights"), "wb") as file:
                file.write(b"x" * (4 << 20))
            begin = time.perf_counter()
            with open(os.path.join(save, "done"), "w", encoding="ascii"):
                pass
            line = process.stderr.readline()
            if f"published step {step}:" not in line:
                raise AssertionError(line)
            taken.append(time.perf_counter() - begin)
            time.sleep(0.37 * INTERVAL_S)  # so that saves do not begin in step with the scans
    finally:
        process.terminate()
        process.wait(DEADLINE_S)
        if process.stderr is not None:
            process.stderr.close()
    mean = sum(taken) / len(taken)
    return Row(
        f"a proved save to its publication, scans each {INTERVAL_S:g} s (mean of {SAVES})",
        mean,
        "one interval",
        INTERVAL_S,
    )
