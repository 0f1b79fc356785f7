"""What each hook costs: in a job that is not ours against a bare shell, in ours against a bare Python."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from typing import TYPE_CHECKING

from bench.row import Row, medians

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PYTHON_HOOKS = ("prolog-slurmctld", "prolog", "epilog", "epilog-slurmctld")
RUNS = 60
SHELL = ["/bin/sh", "-c", ":"]
PYTHON = ["/usr/bin/python3", "-IS", "-c", "pass"]
# What Epilog cannot do without: whoever is left on the node shows in the environment and the cgroup of each process.
LOOK = """
import os
for pid in filter(str.isdigit, os.listdir("/proc")):
    for name in ("environ", "cgroup"):
        try:
            file = os.open("/proc/%s/%s" % (pid, name), os.O_RDONLY)
        except OSError:
            continue
        try:
            os.read(file, 16384)
        except OSError:
            pass
        os.close(file)
"""
LOOKING_PYTHON = ["/usr/bin/python3", "-IS", "-c", LOOK]
STARTED = {
    "SLURM_CLUSTER_NAME": "bench",
    "SLURM_JOB_ID": "7",
    "SLURM_JOB_UID": "1999999999",
    "SLURM_JOB_RESTART_COUNT": "0",
    "SLURM_JOB_START_TIME": "1700000000",
    "SLURM_JOB_NODELIST": "c[1-2]",
}
FLOORS = {"task-prolog": ("sh -c :", SHELL), "epilog": ("python3 -IS, /proc read once", LOOKING_PYTHON)}
"""Of a hook in our job, where a bare Python is not the floor."""
OURS = {**STARTED, "SLURM_JOB_COMMENT": "dispatch:bench:0:1"}
OTHERS = {**STARTED, "SLURM_JOB_COMMENT": "somebody else's"}


def rows() -> Iterator[Row]:
    """All figures of this part, on an installation as ``site/install-hooks`` makes it."""
    folder = tempfile.mkdtemp(prefix="bench-hooks-")
    try:
        subprocess.run([os.path.join(TOP, "site", "install-hooks"), folder], check=True)
        for hook in (*PYTHON_HOOKS, "task-prolog"):
            yield another_job(folder, hook)
        for hook in (*PYTHON_HOOKS, "task-prolog"):
            yield our_job(folder, hook)
    finally:
        shutil.rmtree(folder)


def _argv(folder: str, hook: str) -> list[str]:
    program = os.path.join(folder, "usr/libexec/slurm-dispatch", hook)
    run = os.path.join(folder, "run")
    return [program, run] if hook == "task-prolog" else [program, os.path.join(folder, "node.conf"), run]


def _call(argv: list[str], environment: dict[str, str]) -> Callable[[], object]:
    def call() -> None:
        # posix_spawn costs the same for a small and for a large caller; the output goes to nobody.
        null = os.open(os.devnull, os.O_RDWR)
        streams = [(os.POSIX_SPAWN_DUP2, null, stream) for stream in (0, 1, 2)]
        os.waitpid(os.posix_spawn(argv[0], argv, environment, file_actions=streams), 0)
        os.close(null)

    return call


def another_job(folder: str, hook: str) -> Row:
    """A hook in a job that is not ours."""
    ours, floor = medians(RUNS, _call(_argv(folder, hook), OTHERS), _call(SHELL, {}))
    return Row(f"{hook} in another's job", ours, "sh -c :", floor, goal=1.3)


def our_job(folder: str, hook: str) -> Row:
    """A hook in a job of ours, doing its whole work each time."""
    notes = os.path.join(folder, "notes")
    with open(os.path.join(folder, "node.conf"), "w", encoding="ascii") as file:
        file.write(f"notes={notes}\nslurm_user={os.geteuid()}\nspool={folder}/spool\n")
    act = _call(_argv(folder, hook), OURS)
    prolog = _call(_argv(folder, "prolog"), OURS)
    name, bare = FLOORS.get(hook, ("python3 -IS -c pass", PYTHON))
    taken: list[list[float]] = []
    for _ in range(RUNS // 2):
        # Each run begins from nothing: no notes, and the execution file where the hook needs one.
        shutil.rmtree(notes, ignore_errors=True)
        os.mkdir(notes, 0o700)
        if hook in ("epilog", "task-prolog"):
            prolog()
        taken.append(medians(1, act, _call(bare, {})))
    ours, floor = (sorted(column)[len(column) // 2] for column in zip(*taken, strict=True))
    return Row(f"{hook} in our job", ours, name, floor, goal=2.0)
