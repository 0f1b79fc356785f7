"""What the hooks left behind on the real cluster, and jobs with an identity word of their own."""

from __future__ import annotations

import json
import secrets
import time
from typing import TYPE_CHECKING, Any

from docker.rig import STATE
from slurm_dispatch.model.identity import Word, attempt_of, new_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from docker.rig import Cluster, Job

CLUSTER_NAME = "dispatch"
WAIT_S = 180.0
REVOKED_S = 3.0
"""More than the second of the old run's end, and the clocks' roundings."""
SHOW = """#!/bin/sh
step=${SLURM_STEP_ID:-batch}
test "$step" != -5 || step=batch  # what Slurm 26.05 calls the script itself
name=$step.${SLURM_PROCID:-0}
/usr/bin/env | /usr/bin/grep -E '^(SLURM_)?DISPATCH_' >"$1/.$name"
exec /usr/bin/mv -T "$1/.$name" "$1/$name"
"""
"""What it shows is there whole or not at all: a listing leaves out the name with the dot."""


class Managed:
    """A job of ada's with an identity word, submitted with plain ``sbatch``, and a folder for what it shows."""

    def __init__(self, cluster: Cluster, *, shared: bool = False) -> None:
        self._waits_since: float | None = None
        self.cluster = cluster
        self.word = Word(new_key(), 0, 1, shared)
        self.folder = f"/scratch/ada/{secrets.token_hex(6)}"
        self.show = f"{self.folder}/show"
        self.id = 0
        cluster.write(self.show, SHOW, user="ada", mode="755")

    def submit(self, script: str, options: Sequence[str] = (), **more: Any) -> int:
        """Submit; ``{show}`` in the script shows the variables of the task that runs it."""
        body = "#!/bin/sh\nexport PATH=/usr/bin:/bin\n" + script.replace("{show}", f"{self.show} {self.folder}")
        options = ["-o", f"{self.folder}/out", "--open-mode=append", "--comment", str(self.word), *options]
        self.id = self.cluster.submit("ada", body, options, cwd=self.folder, **more)
        return self.id

    def shown(self) -> dict[str, dict[str, str]]:
        """What each task that showed its variables had: step and rank to name to value."""
        names = self.cluster.run("login", ["ls", self.folder]).stdout.split()
        found = {}
        for name in names:
            if name not in {"show", "out"} and not name.startswith("slurm-"):
                lines = self.cluster.read(f"{self.folder}/{name}").splitlines()
                found[name] = dict(line.split("=", 1) for line in lines)
        return found

    def ends(self, states: Sequence[str] = ("COMPLETED",)) -> Job:
        """Wait until it has ended and its node is done with it."""
        self.cluster.wait_job(self.id, states, WAIT_S)
        return self.cluster.wait_until(self._done, WAIT_S, f"job {self.id} to be gone from its nodes")

    def runs_again(self) -> Job | None:
        """The job once it runs after a requeue; Slurm's own delay, which is two minutes, is lifted.

        Not at once: a node refuses what was allowed to start in the second in which the old run was ended
        ("Job credential revoked"), and Slurm then ends the job as failed.
        """
        found = self.cluster.job(self.id)
        if found is None or found.states != ("PENDING",):
            self._waits_since = None
        elif self._waits_since is None:
            self._waits_since = time.monotonic()
        elif time.monotonic() - self._waits_since >= REVOKED_S:
            self.cluster.run("ctl", ["scontrol", "update", f"job={self.id}", "StartTime=now"], check=False)
        return found if found is not None and found.states == ("RUNNING",) else None

    def _done(self) -> Job | None:
        job = self.cluster.job(self.id)
        return job if job is not None and "COMPLETING" not in job.states else None

    def notes(self, kind: str) -> list[dict[str, Any]]:
        """The notes of a kind that hooks left about this job, in the order of their names."""
        pattern = f"{kind}.{self.word.job}.0.1.*"
        found = self.cluster.sh("ctl", f"find {STATE}/notes -name '{pattern}' | sort | xargs -r cat")
        return [json.loads(line) for line in found.splitlines()]

    def told(self, start_time: int | None) -> int | None:
        """What the hooks know of an execution's start: nothing where Slurm is 22.05."""
        return start_time if self.cluster.tells_starts else None

    def attempt(self, restart: int, start_time: int | None) -> str:
        """The attempt that the execution must have which Slurm started then; ``None`` where its hooks have none."""
        return attempt_of(CLUSTER_NAME, self.id, self.word, restart, self.told(start_time))


def lost_is_gone(cluster: Cluster) -> None:
    """Wait until the nodes have ended what slurmctld knows nothing of.

    It has them end it by its id. A node that still runs it calls the next job of this id a duplicate, for which Slurm
    drains the node; and what is launched there under this id in the same second is ended too, since slurmd compares
    whole seconds ("Job credential revoked"). Neither is the gate's.
    """

    def gone() -> bool:
        stepd = ["pgrep", "-x", "sleep|slurmstepd"]
        return all(cluster.run(node, stepd, check=False).status == 1 for node in cluster.nodes)

    cluster.wait_until(gone, WAIT_S, "the end of what the lost job ran")
    time.sleep(2.0)  # the second in which it was ended is over


def nodes_take_jobs(cluster: Cluster) -> None:
    """No node may have been drained or lost."""
    states = cluster.node_states()
    assert set(states) == set(cluster.nodes)
    assert not [state for state in states.values() if state.startswith(("d", "f"))], states
