"""A job that writes the time five times a second, ignores SIGTERM, and shows so whether its processes live."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from docker.rig import Cluster

SCRIPT = """#!/bin/sh
trap "" TERM
exec >>"$1"
while :; do
    date "+%s ${SLURM_RESTART_COUNT-0}"
    sleep 0.2
done
"""
DEADLINE_S = 120.0


class Writer:
    """The job, submitted with plain sbatch and running when the constructor returns."""

    def __init__(self, cluster: Cluster, options: Sequence[str] = (), *, user: str = "ada") -> None:
        self.cluster = cluster
        self.path = f"/scratch/{user}/writer-{secrets.token_hex(4)}"
        options = ["-o", "/dev/null", *options]
        script = SCRIPT.replace('"$1"', self.path)
        self.id = cluster.submit(user, script, options)
        self.node = cluster.wait_job(self.id, {"RUNNING"}).nodes[0]
        self.wait_lines(1)

    def lines(self) -> int:
        """How many lines there are by now."""
        done = self.cluster.run("login", ["wc", "-l", self.path], check=False)
        return int(done.stdout.split()[0]) if done.status == 0 else 0

    def last_at(self, restart: int) -> int:
        """When the execution of this restart count wrote for the last time, in Unix seconds."""
        lines = self.cluster.read(self.path).split("\n")[:-1]
        return max(int(at) for at, count in (line.split() for line in lines) if int(count) == restart)

    def wait_lines(self, more: int) -> None:
        """Wait until it has written ``more`` lines than now."""
        first = self.lines()
        self.cluster.wait_until(lambda: self.lines() >= first + more, DEADLINE_S, f"{more} more lines of {self.path}")

    def wait_silence(self) -> None:
        """Wait until it writes no more: two equal counts, a second apart."""
        seen = [-1]

        def silent() -> bool:
            seen.append(self.lines())
            return seen[-1] == seen[-2]

        self.cluster.wait_until(silent, DEADLINE_S, f"{self.path} to grow no more", every_s=1.0)
