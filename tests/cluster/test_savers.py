"""The usual libraries in a job of a user: one line of the job script, no line of Python.

Each job is taken away in the middle; its replacement must go on from the save that was the latest then, loaded by the
library itself, which is asked whether it is what it says (``tests/savers/programs/train_with.py``).
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from demo.mainjob import MainJob

if TYPE_CHECKING:
    from docker.rig import Cluster

pytestmark = [pytest.mark.cluster, pytest.mark.savers, pytest.mark.sample]
PROGRAM = "/src/tests/savers/programs/train_with.py"
PYTHON = "/src/.venv-savers/on-node"
SCRIPT = """#!/bin/sh
#SBATCH --job-name={name} --partition=low --nodes={tasks} --ntasks={tasks} --output={folder}/out-%j
#DISPATCH --checkpoint {root}
#DISPATCH --on cancelled:resubmit,budget=1
export PYTHONPATH=/src MASTER_ADDR="$(hostname)" MASTER_PORT="$((20000 + SLURM_JOB_ID % 10000))"
exec dispatch-watch {watch} -- srun {python} {program} {kind} --dir {{dir}} {{resume:--resume}} \\
    --stop-file {folder}/stop --step-time {step_time}
"""
WAIT_S = 300.0


@dataclass(frozen=True)
class Kind:
    """One way to save.

    :param took: the layout that ``auto`` takes.
    :param watch: options of ``dispatch-watch``.
    """

    name: str
    took: str
    tasks: int = 1
    watch: str = "--layout auto"
    step_time_s: float = 0.2


KINDS = (
    Kind("plain", "plain"),
    # Nothing in such a save proves it: it is published once it does not change.
    Kind("accelerate", "accelerate", watch="--layout auto --settle 3", step_time_s=1.0),
    Kind("lightning", "lightning"),
    Kind("lightning-callback", "lightning"),
    Kind("dcp", "dcp", tasks=2),
    Kind("dcp-callback", "dcp", tasks=2),
    Kind("orbax", "orbax"),
)


class Trained:
    """A job of one kind, that is taken away once."""

    def __init__(self, cluster: Cluster, kind: Kind) -> None:
        self.cluster, self.kind = cluster, kind
        self.job = MainJob(cluster, kind.name)

    def dispatch(self, *words: str) -> str:
        return self.cluster.run("login", ["dispatch", *words], user=self.job.user).stdout

    def published(self, submission: int) -> list[dict[str, Any]]:
        """What a submission has published, the latest first."""
        rows = json.loads(self.dispatch("ls", "--root", self.job.root, "--json"))
        return [row for row in rows if int(row["epoch"]) // 10**6 == submission]

    def output(self, number: int) -> str:
        return self.cluster.read(f"{self.job.folder}/out-{number}")

    def replacement(self) -> int | None:
        ids = self.cluster.run("ctl", ["squeue", "-h", "-n", self.job.name, "-t", "RUNNING", "-o", "%i"]).stdout
        return next((int(one) for one in ids.split() if int(one) != self.job.first_id), None)

    def run(self) -> None:
        job, kind = self.job, self.kind
        job.submit_script(
            SCRIPT.format(
                name=job.name, tasks=kind.tasks, folder=job.folder, root=job.root, watch=kind.watch, python=PYTHON,
                program=PROGRAM, kind=kind.name, step_time=kind.step_time_s,
            )
        )
        job.wait("two saves", lambda: len(self.published(1)) >= 2 or None, WAIT_S)
        was_latest = self.published(1)[0]["step"]
        self.cluster.run("ctl", ["scancel", str(job.first_id)])
        number = job.wait("its replacement", self.replacement, WAIT_S)
        job.wait("two saves of the replacement", lambda: len(self.published(2)) >= 2 or None, WAIT_S)
        self.cluster.write(f"{job.folder}/stop", "", user=job.user)
        self.cluster.wait_job(number, ["COMPLETED"], WAIT_S)
        self._check(number, was_latest)

    def _check(self, number: int, was_latest: int) -> None:
        job, kind = self.job, self.kind
        one, two = self.published(1), self.published(2)
        said = self.output(number)
        (begun,) = [json.loads(line) for line in said.split("\n") if line.startswith('{"after"')]
        # The old run may publish once more while it ends.
        assert begun["after"] in [row["step"] for row in one if row["step"] >= was_latest], said
        assert min(row["step"] for row in two) == begun["after"] + 5, said
        for output in (self.output(job.first_id), said):
            assert f"--layout {kind.took} is taken" in output, output
        assert self.dispatch("result", job.key) == f"{job.root}/exec/{two[0]['attempt']}\n"
        last = self.dispatch("latest", "--verify", "--root", job.root)
        assert last == f"{job.root}/{two[0]['path']}\n"
        looked = json.loads(self.dispatch("fsck", job.root, "--json"))
        assert (looked["faults"], looked["troubles"]) == ([], []), looked


def test_a_job_of_each_library_goes_on_after_it_was_taken_away(cluster: Cluster) -> None:
    venv = Path(__file__).resolve().parent.parent.parent / ".venv-savers" / "on-node"
    assert venv.exists(), "run tools/make-venv-savers first"
    with ThreadPoolExecutor(len(KINDS)) as pool:
        runs = {kind.name: pool.submit(Trained(cluster, kind).run) for kind in KINDS}
    failed = {name: run.exception() for name, run in runs.items() if run.exception() is not None}
    assert not failed, "\n".join(f"{name}: {error}" for name, error in failed.items())
