"""Jobs of a user on the real cluster, and what their records say."""

from __future__ import annotations

import json
import re
import secrets
from typing import TYPE_CHECKING, Any

from docker.rig import PATIENCE_S, STATE

if TYPE_CHECKING:
    from docker.rig import Cluster

LONG_S = 2 * PATIENCE_S
FOREVER = "#!/bin/sh\nexec sleep 100000\n"
UNTIL_TOLD = "#!/bin/sh\nuntil test -e fail; do sleep 0.2; done\nrm fail\nexit 3\n"
"""Fails when somebody puts a file ``fail`` beside it."""


class Jobs:
    """Jobs of ada, and what their records say."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._count = 0
        self._run = secrets.token_hex(4)  # a cluster that was kept has the folders of the run before
        self.folder = ""

    def submit(self, script: str, *options: str, rules: tuple[str, ...] = ()) -> str:
        """Submit with ``dispatch sbatch``; the job's key."""
        self._count += 1
        folder = self.folder = f"/scratch/ada/tick-{self._run}-{self._count}"
        path = f"{folder}/job.sh"
        self.cluster.write(path, script, user="ada", mode="755")
        own = [word for rule in rules for word in ("--on", rule)]
        argv = [
            "dispatch",
            "sbatch",
            "--checkpoint",
            f"{folder}/root",
            *own,
            "--output",
            f"{folder}/out",
            *options,
            path,
        ]
        said = self.cluster.run("login", argv, user="ada", cwd=folder).stderr
        found = re.search(r"\bjob ([a-z0-9]{12})\b", said)
        assert found, said
        return found[1]

    def facts(self, key: str) -> list[dict[str, Any]]:
        """The facts, in order."""
        text = self.cluster.sh("ctl", f"cd {STATE}/jobs/{key}/facts && cat $(ls | sort)")
        return [json.loads(line) for line in text.splitlines()]

    def kinds(self, key: str) -> list[str]:
        """Their kinds."""
        return [fact["kind"] for fact in self.facts(key)]

    def last(self, key: str, kind: str) -> dict[str, Any] | None:
        """The last fact of a kind."""
        found = [fact for fact in self.facts(key) if fact["kind"] == kind]
        return found[-1] if found else None

    def wait(self, key: str, kind: str, count: int = 1, patience_s: float = LONG_S) -> dict[str, Any]:
        """Wait until there are ``count`` facts of this kind; the last of them."""

        def there() -> dict[str, Any] | None:
            return self.last(key, kind) if self.kinds(key).count(kind) >= count else None

        return self.cluster.wait_until(there, patience_s, f"{count} facts {kind} of job {key}")

    def running(self, key: str, submission: int = 1) -> int:
        """Wait until this submission runs, and its start is recorded; the Slurm job id."""
        fact = self.wait(key, "submitted", submission)
        self.cluster.wait_job(fact["slurm_job_id"], ["RUNNING"])
        self.wait(key, "started", submission)
        return int(fact["slurm_job_id"])

    def objects(self, key: str) -> list[int]:
        """Every Slurm job that ever carried the job's key, by accounting and queue."""
        rows = self.cluster.sh(
            "ctl", "sacct -a -X -n -P -S now-1day -o jobid,comment%200; squeue -h -a -t all -o '%i|%k'"
        )
        return sorted({int(row.split("|")[0]) for row in rows.splitlines() if f"dispatch:{key}:" in row})

    def settled(self, key: str, submissions: int) -> None:
        """Two more full ticks change nothing: so many submissions, each with an object of its own."""
        for _ in range(2):
            self.cluster.run("ctl", ["dispatch", "tick"], timeout_s=LONG_S)
        kinds = self.kinds(key)
        assert (kinds.count("intent"), kinds.count("submitted")) == (submissions, submissions), kinds
        assert len(self.objects(key)) == submissions
