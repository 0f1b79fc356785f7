"""The helper in the job: what its import costs, its idle CPU, and the way from a proved save to its publication."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING

from bench.row import Row

if TYPE_CHECKING:
    from collections.abc import Iterator

RUNS = 20
IDLE_S = 60.0
CPU_SHARE = 0.005
"""The goal: below 0.5 % of a core while idle."""
START_S = 5.0
"""After this a helper has started, on any machine on which the figure means something."""
SAVES = 5
INTERVAL_S = 1.0
DEADLINE_S = 60.0
"""For the helper to end."""


def rows() -> Iterator[Row]:
    """All figures of this part."""
    yield importing()
    yield importing_api()
    folder = tempfile.mkdtemp(prefix="bench-watch-")
    try:
        yield idle(os.path.join(folder, "idle"))
        yield delay(os.path.join(folder, "delay"))
    finally:
        shutil.rmtree(folder)


def _took(modules: str) -> float:
    code = f"import time; t = time.process_time(); import {modules}; print(time.process_time() - t)"
    return float(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True).stdout)


def importing() -> Row:
    """Processor time of the import in a fresh Python, against that of ``dataclasses``, which the model needs."""
    pairs = [(_took("slurm_dispatch.watch, slurm_dispatch.watch.main"), _took("dataclasses")) for _ in range(RUNS)]
    ours, bare = (statistics.median(column) for column in zip(*pairs, strict=True))
    return Row("import slurm_dispatch.watch.main, processor time", ours, "import dataclasses", bare, goal_s=0.045)


def importing_api() -> Row:
    """What a training pays that publishes itself, against what the helper has imported once it publishes."""
    helper = "slurm_dispatch.watch.main, slurm_dispatch.watch.prepare, slurm_dispatch.watch.session"
    pairs = [(_took("slurm_dispatch.api"), _took(helper)) for _ in range(RUNS)]
    ours, theirs = (statistics.median(column) for column in zip(*pairs, strict=True))
    return Row("import slurm_dispatch.api, processor time", ours, "imports of a publishing helper", theirs, goal=1.1)


def _environment(root: str) -> dict[str, str]:
    os.mkdir(root)
    base = {name: value for name, value in os.environ.items() if not name.startswith(("DISPATCH_", "SLURM_"))}
    identity = {"DISPATCH_JOB": "bench", "DISPATCH_EPOCH": "1000000", "DISPATCH_ATTEMPT": "bench"}
    return base | identity | {"DISPATCH_CHECKPOINT": root}


def idle(root: str) -> Row:
    """CPU of supervisor and scanning process in a minute beside a command that sleeps, with the usual options."""
    command = [sys.executable, "-m", "slurm_dispatch.watch.main", "--", "sleep", "3600"]
    process = subprocess.Popen(command, env=_environment(root), stderr=subprocess.DEVNULL)
    try:
        time.sleep(START_S)
        with open(f"/proc/{process.pid}/task/{process.pid}/children", encoding="ascii") as file:
            pids = [str(process.pid), *file.read().split()]
        before = sum(map(_on_cpu, pids))
        time.sleep(IDLE_S)
        used = sum(map(_on_cpu, pids)) - before
    finally:
        process.terminate()
        process.wait(DEADLINE_S)
    return Row(f"CPU of an idle helper in {IDLE_S:g} s", used, "0.5 % of a core", CPU_SHARE * IDLE_S, goal=1.0)


def _on_cpu(pid: str) -> float:
    """Seconds on a processor, by the scheduler's own account (nanoseconds), not by ticks."""
    with open(f"/proc/{pid}/schedstat", encoding="ascii") as file:
        return int(file.read().split()[0]) / 1e9


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
