"""The variables of an execution are right, and equal on every rank, node and step of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cluster.site import WAIT_S, Managed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from docker.rig import Cluster

ROOT = "/scratch/ada/a root"
FROM_HELPER = {"DISPATCH_DIR": "/x/exec/a b", "DISPATCH_RESUME": "/x/r", "DISPATCH_RESUME_STEP": "40"}
STEPS = """
{show}
srun {show}
srun --export=NONE {show}
srun --export=A=1 {show}
export SLURM_DISPATCH_ATTEMPT="$DISPATCH_ATTEMPT" SLURM_DISPATCH_DIR="/x/exec/a b"
export SLURM_DISPATCH_RESUME=/x/r SLURM_DISPATCH_RESUME_STEP=40
srun --export=NONE {show}
"""


@pytest.fixture
def job(cluster: Cluster) -> Iterator[Managed]:
    """A job whose notes no tick takes away."""
    cluster.service_off()
    yield Managed(cluster)
    cluster.run("ctl", ["scancel", "-u", "ada"], check=False)
    cluster.wait_until(cluster.nodes_idle, WAIT_S, "all nodes to be idle")
    cluster.service_on()


@pytest.mark.parametrize("export", ["ALL", "NONE", "A=1"])
def test_every_rank_node_and_step_has_them(job: Managed, export: str) -> None:
    """C046."""
    job.submit(STEPS, ["-N2", "-n4", f"--export={export}"], env={"SLURM_DISPATCH_CHECKPOINT": ROOT})
    ended = job.ends()
    expected = {
        "DISPATCH_JOB": job.word.job,
        "DISPATCH_EPOCH": "1000000",
        "DISPATCH_ATTEMPT": job.attempt(0, ended.start_time),
        "DISPATCH_CHECKPOINT": ROOT,
    }
    shown = job.shown()
    ranks = [f"{step}.{rank}" for step in range(4) for rank in range(4)]
    assert sorted(shown) == sorted(["batch.0", *ranks])
    for task, variables in shown.items():
        own = {name: value for name, value in variables.items() if name.startswith("DISPATCH_")}
        assert own == (expected | FROM_HELPER if task.startswith("3.") else expected), task
    (start,) = job.notes("start")
    assert (start["attempt"], start["epoch"], start["start_time"]) == (
        expected["DISPATCH_ATTEMPT"],
        expected["DISPATCH_EPOCH"],
        job.told(ended.start_time),
    )


def test_components_have_one_attempt_and_a_note_each(job: Managed) -> None:
    """On a node each: this Slurm refuses two of one job on the same."""
    other = [":", "-w", "c2", "-n1", "--comment", str(job.word)]
    job.submit("srun --het-group=0,1 {show}\n", ["-w", "c1", "-n1", *other])
    job.ends()
    notes = job.cluster.wait_until(lambda: len(job.notes("node")) == 2 and job.notes("node"), WAIT_S, "both Epilogs")
    attempt = job.attempt(0, None)
    assert {variables["DISPATCH_ATTEMPT"] for variables in job.shown().values()} == {attempt}
    assert sorted(job.shown()) == ["0.0", "0.1"]
    assert sorted((note["slurm_job_id"], note["attempt"]) for note in notes) == [
        (job.id, attempt), (job.id + 1, attempt)
    ]
    # Epilog's note comes before its last act, and the end of the one component says nothing of the other's.
    job.cluster.wait_until(job.cluster.nodes_idle, WAIT_S, "all nodes to be idle")
    for node in ("c1", "c2"):
        assert job.cluster.run(node, ["ls", "-A", "/run/slurm-dispatch"]).stdout == ""


def test_salloc_with_srun_has_them(job: Managed) -> None:
    argv = ["salloc", "-N2", "-n2", "--comment", str(job.word), "srun", job.show, job.folder]
    job.cluster.run("login", argv, user="ada", cwd=job.folder, timeout_s=WAIT_S)
    (start,) = job.notes("start")
    shown = job.shown()
    assert sorted(shown) == ["0.0", "0.1"]
    for variables in shown.values():
        assert (variables["DISPATCH_ATTEMPT"], variables["DISPATCH_EPOCH"]) == (start["attempt"], "1000000")


def test_a_job_that_a_job_submits_has_its_own_or_none(job: Managed) -> None:
    """What is inherited belongs to the job that submitted."""
    other = Managed(job.cluster)
    plain = Managed(job.cluster)
    script = "export SLURM_DISPATCH_ATTEMPT=$DISPATCH_ATTEMPT SLURM_DISPATCH_DIR=/x/exec/a\n"
    script += f"sbatch --wait -o /dev/null --wrap '{plain.show} {plain.folder}'\n"
    script += f"sbatch --wait -o /dev/null --comment '{other.word}' --wrap '{other.show} {other.folder}'\n{{show}}\n"
    job.submit(script, env={"SLURM_DISPATCH_CHECKPOINT": ROOT})
    job.ends()
    assert plain.shown() == {"batch.0": {}}
    mine = job.shown()["batch.0"]
    others = other.shown()["batch.0"]
    assert others["DISPATCH_JOB"] == other.word.job
    assert others["DISPATCH_ATTEMPT"] != mine["DISPATCH_ATTEMPT"]
    assert "DISPATCH_DIR" not in others


def run_until_told(job: Managed, options: list[str]) -> int:
    """Start a job of one process that shows its variables and then waits; its start time."""
    job.submit("{show}\nexec sleep 3600\n", options)
    return job.cluster.wait_job(job.id, {"RUNNING"}).start_time


def one_shown(job: Managed) -> dict[str, str]:
    def found() -> dict[str, str] | None:
        shown = job.shown().get("batch.0", {})
        return shown if "DISPATCH_JOB" in shown and "SLURM_DISPATCH_EXECUTION" in shown else None

    return job.cluster.wait_until(found, WAIT_S, "the job to show its variables")


def resumed(cluster: Cluster, node: str) -> bool:
    """Resume a node; Slurm refuses it for one that has come back by itself."""
    if not cluster.node_usable(node):
        cluster.run("ctl", ["scontrol", "update", f"node={node}", "state=resume"], check=False)
    return cluster.node_usable(node)


@pytest.mark.parametrize("path", ["completed", "cancelled", "preempted", "node set down"])
def test_the_epilog_names_the_execution_that_ran(job: Managed, path: str) -> None:
    cluster = job.cluster
    if path == "completed":
        job.submit("{show}\n", ["--no-requeue"])
        start = job.ends().start_time
    else:
        start = run_until_told(job, ["--no-requeue", "-w", "c3", *(["--exclusive"] if path == "preempted" else [])])
        one_shown(job)
        if path == "cancelled":
            cluster.run("ctl", ["scancel", str(job.id)])
        elif path == "preempted":
            cluster.submit("ben", "#!/bin/sh\n", ["-p", "high", "-w", "c3", "--exclusive", "-o", "/dev/null"])
        else:
            cluster.run("ctl", ["scontrol", "update", "node=c3", "state=down", "reason=test"])
    expected = job.attempt(0, start)
    (note,) = cluster.wait_until(lambda: job.notes("node"), WAIT_S, "the Epilog's note")
    if path == "node set down":
        cluster.wait_until(lambda: resumed(cluster, "c3"), WAIT_S, "c3 to take jobs again", every_s=1.0)
    assert (note["attempt"], note["epoch"], note["start_time"]) == (expected, "1000000", job.told(start))
    # By its start time; where hooks have none, Epilog knows the execution by its job id alone, and says so.
    assert (note["verified"], note["clean"], note["left"]) == (cluster.tells_starts, True, [])
    assert one_shown(job)["DISPATCH_ATTEMPT"] == expected


def test_a_requeued_job_has_new_ones_and_each_end_is_told_apart(job: Managed) -> None:
    cluster = job.cluster
    first = run_until_told(job, ["--requeue", "-w", "c3"])
    before = one_shown(job)
    cluster.run("ctl", ["scontrol", "requeue", str(job.id)])
    job.ends(["PENDING"])

    second = cluster.wait_until(job.runs_again, WAIT_S, "the requeued job to run", every_s=1.0).start_time

    def again() -> dict[str, str] | None:
        shown = one_shown(job)
        return shown if shown["DISPATCH_ATTEMPT"] != before["DISPATCH_ATTEMPT"] else None

    after = cluster.wait_until(again, WAIT_S, "the second execution to show its variables")
    cluster.run("ctl", ["scancel", str(job.id)])
    nodes = cluster.wait_until(lambda: len(job.notes("node")) == 2 and job.notes("node"), WAIT_S, "both Epilogs")
    assert (before["DISPATCH_EPOCH"], after["DISPATCH_EPOCH"]) == ("1000000", "1000001")
    expected = {job.attempt(0, first): "1000000", job.attempt(1, second): "1000001"}
    assert {note["attempt"]: note["epoch"] for note in nodes} == expected
    assert {before["DISPATCH_ATTEMPT"], after["DISPATCH_ATTEMPT"]} == set(expected)
    assert {note["verified"] for note in nodes} == {cluster.tells_starts}
    # EpilogSlurmctld saw the next execution's count at the end of the first: that is why it names by start time.
    ends = [(note["start_time"], note["restart_seen"]) for note in job.notes("end")]
    assert ends[0] == (job.told(first), 1)
