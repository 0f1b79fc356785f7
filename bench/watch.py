"""The helper in the job: what its import costs, and its processor time while nothing is saved."""

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
from bench.watched import Helper

if TYPE_CHECKING:
    from collections.abc import Iterator

RUNS = 20
IDLE_S = 60.0
CPU_SHARE = 0.005
"""The goal: below 0.5 % of a core while idle."""
START_S = 5.0
"""After this a helper has started, on any machine on which the figure means something."""


def rows() -> Iterator[Row]:
    """All figures of this part."""
    yield importing()
    yield importing_api()
    folder = tempfile.mkdtemp(prefix="bench-watch-")
    try:
        yield idle(os.path.join(folder, "idle"))
    finally:
        shutil.rmtree(folder)


def _took(modules: str) -> float:
    code = f"import time; t = time.process_time(); import {modules}; print(time.process_time() - t)"
    return float(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True).stdout)


def importing() -> Row:
    """Processor time of the import in a fresh Python, against that of ``dataclasses``, which the model needs."""
    pairs = [(_took("slurm_dispatch.watch, slurm_dispatch.watch.main"), _took("dataclasses")) for _ in range(RUNS)]
    ours, bare = (statistics.median(column) for column in zip(*pairs, strict=True))
    return Row("import slurm_dispatch.watch.main, processor time", ours, "import dataclasses", bare, goal=4)


def importing_api() -> Row:
    """What a training pays that publishes itself, against what the helper has imported once it publishes."""
    helper = "slurm_dispatch.watch.main, slurm_dispatch.watch.prepare, slurm_dispatch.watch.session"
    pairs = [(_took("slurm_dispatch.api"), _took(helper)) for _ in range(RUNS)]
    ours, theirs = (statistics.median(column) for column in zip(*pairs, strict=True))
    return Row("import slurm_dispatch.api, processor time", ours, "imports of a publishing helper", theirs, goal=1.1)


def idle(root: str) -> Row:
    """CPU of supervisor and scanning process in a minute beside a command that sleeps, with the usual options."""
    os.mkdir(root)
    with Helper(root, ["--", "sleep", "3600"]) as helper:
        pids = helper.pids()
        time.sleep(START_S)
        before = sum(map(_on_cpu, pids))
        time.sleep(IDLE_S)
        used_s = sum(map(_on_cpu, pids)) - before
    return Row(f"CPU of an idle helper in {IDLE_S:g} s", used_s, "0.5 % of a core", CPU_SHARE * IDLE_S, goal=1.0)


def _on_cpu(pid: int) -> float:
    """Seconds on a processor of all threads, by the scheduler's own account (nanoseconds), not by ticks."""
    total = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/schedstat", encoding="ascii") as file:
            total += int(file.read().split()[0])
    return total / 1e9
