"""A replacement on the real cluster: from the end of the object to the next one RUNNING on an idle node.

Beside it a plain sbatch that is submitted at that moment, and Slurm's own requeue, on the same cluster.
"""

from __future__ import annotations

import secrets
import statistics
import time
from typing import TYPE_CHECKING

from bench.row import Row
from docker.rig import Cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

RUNS = 17
"""Slurm's scheduler works in rounds of about a second: fewer runs show which round they fell into."""
REQUEUES = 2
"""Each takes over two minutes."""
RAN_S = 5.0
"""So long it has run when it is cancelled: the end of a start that root cancels at once may be a refused one, whose
note is waited for."""
MORE_S = 1.0
"""Goal: at most that much more than the plain sbatch."""
WAIT_S = 300.0
SLEEPER = "#!/bin/sh\n#SBATCH --ntasks=1 --partition=low --output=/dev/null --time=10\nexec sleep 600\n"


def rows() -> Iterator[Row]:
    """All figures of this part; starts the cluster if it is not up, and leaves it up."""
    cluster = Cluster()
    cluster.up()
    cluster.reset()
    plain, ours = [], []
    for _ in range(RUNS):  # turn and turn about
        plain.append(submission(cluster))
        ours.append(replacement(cluster))
    floor_s = statistics.median(plain)
    yield Row(
        f"end of the object to its replacement RUNNING (median of {RUNS})", statistics.median(ours),
        "a plain sbatch to RUNNING", floor_s, goal_s=floor_s + MORE_S,
    )
    requeues = [requeue(cluster) for _ in range(REQUEUES)]
    yield Row(
        f"the same by Slurm's own requeue (median of {REQUEUES})", statistics.median(requeues),
        "a plain sbatch to RUNNING", floor_s,
    )
    cluster.reset()


def wait_started(cluster: Cluster, what: str, found: Callable[[], bool]) -> float:
    """When ``found`` was true for the first time (Unix seconds; looked at every 20 ms)."""

    def seen() -> float | None:
        return time.time() if found() else None

    return cluster.wait_until(seen, WAIT_S, what, every_s=0.02)


def running(cluster: Cluster, name: str, least: int = 0) -> bool:
    """Whether a job of that name with an id above ``least`` is RUNNING."""
    found = cluster.run("ctl", ["squeue", "-h", "-n", name, "-t", "RUNNING", "-o", "%i"]).stdout.split()
    return any(int(job) > least for job in found)


def idle(cluster: Cluster) -> None:
    cluster.wait_until(cluster.nodes_idle, WAIT_S, "all nodes to be idle")


def submission(cluster: Cluster) -> float:
    """A plain sbatch, from its call to RUNNING on an idle cluster."""
    idle(cluster)
    name = f"plain-{secrets.token_hex(4)}"
    begun = time.time()
    job = cluster.submit("ada", SLEEPER, ["--job-name", name])
    taken = wait_started(cluster, f"{name} to run", lambda: running(cluster, name)) - begun
    cluster.run("ctl", ["scancel", str(job)])
    return taken


def replacement(cluster: Cluster) -> float:
    """A job of ours is cancelled by an operator: from the call of scancel to its replacement RUNNING."""
    idle(cluster)
    name = f"ours-{secrets.token_hex(4)}"
    root = f"/scratch/ada/{name}"
    cluster.run("login", ["mkdir", root], user="ada")
    argv = ["dispatch", "sbatch", "--checkpoint", root, "--on", "cancelled:resubmit,budget=1", "--job-name", name]
    said = cluster.run("login", argv, user="ada", input=SLEEPER).stdout
    first = int(said.split()[-1])
    wait_started(cluster, f"{name} to run", lambda: running(cluster, name))
    time.sleep(RAN_S)
    begun = time.time()
    cluster.run("ctl", ["scancel", str(first)])
    taken = wait_started(cluster, f"the replacement of {name} to run", lambda: running(cluster, name, first)) - begun
    cluster.run("login", ["dispatch", "cancel", str(first)], user="ada")
    return taken


def requeue(cluster: Cluster) -> float:
    """``scontrol requeue`` of a plain job, from its call to RUNNING again."""
    idle(cluster)
    name = f"again-{secrets.token_hex(4)}"
    job = cluster.submit("ada", SLEEPER, ["--requeue", "--job-name", name])
    wait_started(cluster, f"{name} to run", lambda: running(cluster, name))
    begun = time.time()
    cluster.run("ctl", ["scontrol", "requeue", str(job)])
    wait_started(cluster, f"{name} to be gone", lambda: not running(cluster, name))
    taken = wait_started(cluster, f"{name} to run again", lambda: running(cluster, name)) - begun
    cluster.run("ctl", ["scancel", str(job)])
    return taken
