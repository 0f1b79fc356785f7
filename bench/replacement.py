"""From the end of an object to the start of its replacement, on the real cluster with the service running.

The times are slurmctld's own: its log has milliseconds, and both ends of each figure are in it.
"""

from __future__ import annotations

import re
import statistics
import time
from datetime import datetime
from typing import TYPE_CHECKING

from bench.cluster import RAN_S
from bench.row import Row
from docker.rig import Cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

RUNS = 7
LOG = "/var/log/slurm/slurmctld.log"
SCRIPT = "#!/bin/sh\nexec sleep 100000\n"
SLACK_S = 1.0
"""A replacement may start this much later than a plain sbatch of the same moment."""


def rows() -> Iterator[Row]:
    """The figure and its floor: a plain sbatch to its start, both on idle nodes."""
    cluster = Cluster()
    cluster.up()
    cluster.reset()
    plain = [_plain(cluster) for _ in range(RUNS)]
    replaced = _replacements(cluster, RUNS)
    cluster.reset()
    floor = statistics.median(plain)
    what = "end of an object to its replacement's start"
    yield Row(what, statistics.median(replaced), "plain sbatch to start", floor, goal_s=floor + SLACK_S)


def _plain(cluster: Cluster) -> float:
    number = cluster.submit("ada", SCRIPT, cwd="/tmp")
    cluster.wait_job(number, ["RUNNING"])
    taken = _start(cluster, number) - _when(cluster, rf"_slurm_rpc_submit_batch_job: JobId={number}\b")
    cluster.run("ctl", ["scancel", str(number)])
    cluster.wait_until(cluster.nodes_idle, 120.0, "nodes to be idle")
    return taken


def _replacements(cluster: Cluster, runs: int) -> list[float]:
    """Cancel what runs, as an operator, again and again; the rule submits it again each time."""
    cluster.write("/scratch/ada/bench/job.sh", SCRIPT, user="ada", mode="755")
    argv = ["dispatch", "sbatch", "--checkpoint", "/scratch/ada/bench/root", "--on", "cancelled:resubmit"]
    # None of them saves anything; they would be held after five.
    argv += ["--no-progress-limit", "1000", "job.sh"]
    done = cluster.run("login", argv, user="ada", cwd="/scratch/ada/bench")
    number = int(done.stdout.split()[-1])
    taken: list[float] = []
    for _ in range(runs):
        cluster.wait_job(number, ["RUNNING"])
        time.sleep(RAN_S)
        cluster.run("ctl", ["scancel", str(number)])
        ended = _when(cluster, rf"REQUEST_KILL_JOB JobId={number} uid 0\b")
        number = cluster.wait_until(lambda old=number: _newer(cluster, old), 120.0, "the replacement")  # type: ignore[misc]
        cluster.wait_job(number, ["RUNNING"])
        taken.append(_start(cluster, number) - ended)
        cluster.wait_until(lambda: _one_left(cluster), 120.0, "the old one to be gone")
    cluster.run("login", ["dispatch", "cancel", str(number)], user="ada")
    return taken


def _newer(cluster: Cluster, old: int) -> int:
    ids = [int(text) for text in cluster.run("ctl", ["squeue", "-h", "-u", "ada", "-o", "%i"]).stdout.split()]
    return max((number for number in ids if number > old), default=0)


def _one_left(cluster: Cluster) -> bool:
    return len(cluster.run("ctl", ["squeue", "-h", "-u", "ada", "-o", "%i"]).stdout.split()) == 1


def _start(cluster: Cluster, number: int) -> float:
    return _when(cluster, rf"(Allocate|Started) JobId={number}\b")


def _when(cluster: Cluster, pattern: str) -> float:
    """The time of the first line of slurmctld's log that matches."""

    def found() -> float:
        for line in cluster.read(LOG, "ctl").splitlines():
            if re.search(pattern, line):
                return datetime.fromisoformat(line[1 : line.index("]")]).timestamp()
        return 0.0

    return cluster.wait_until(found, 60.0, f"{pattern} in {LOG}")
