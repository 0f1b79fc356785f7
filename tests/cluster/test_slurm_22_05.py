"""Slurm 22.05, whose hooks have no start time: a small real cluster of Debian 12, for these tests alone."""

from __future__ import annotations

import json
import os
import re
import secrets
from typing import TYPE_CHECKING, Any

import pytest

from docker.rig import PATIENCE_S, STATE, Cluster
from tests.cluster.ghosts import Ghost
from tests.cluster.site import WAIT_S, Managed, nodes_take_jobs

if TYPE_CHECKING:
    from collections.abc import Iterator

RUN = "/run/slurm-dispatch"
EVIL = ("a\nb", "$(touch /tmp/evil) `touch /tmp/evil`", "%n%s\\'\"", "x" * 900, "dispatch:evil:0:1:s")
HELPED = """#!/bin/sh
#DISPATCH --on cancelled:resubmit,budget=3
dispatch-watch --done whole --interval 1 -- sh -c '
echo "$DISPATCH_EPOCH $DISPATCH_ATTEMPT ${DISPATCH_RESUME-none}" >>runs
mkdir "$1/checkpoint-$DISPATCH_EPOCH" && echo whole >"$1/checkpoint-$DISPATCH_EPOCH/whole"
exec sleep 3600' sh {dir}
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A cluster of its own, beside the worker's."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0")
    cluster = Cluster(f"{Cluster().name}-{worker}-2205", release="bookworm", small=True)
    keep = bool(os.environ.get("DISPATCH_KEEP"))
    if not keep:
        cluster.down()
    cluster.up()
    cluster.reset()
    yield cluster
    if not keep:
        cluster.down()


@pytest.fixture
def job(cluster: Cluster) -> Iterator[Managed]:
    """A job whose notes no tick takes away."""
    cluster.service_off()
    yield Managed(cluster)
    idle(cluster)
    cluster.service_on()


def idle(cluster: Cluster) -> None:
    """Cancel all jobs and wait until the nodes are done with them."""
    cluster.run("ctl", ["scancel", "-u", "ada"], check=False)
    cluster.wait_until(cluster.nodes_idle, WAIT_S, "all nodes to be idle")


def test_it_is_slurm_22_05_and_its_hooks_have_no_start_time(job: Managed) -> None:
    assert "22.05" in job.cluster.run("ctl", ["slurmctld", "-V"]).stdout
    job.submit("{show}\n")
    job.ends()
    (start,) = job.notes("start")
    assert start["start_time"] is None
    assert job.shown()["batch.0"]["SLURM_DISPATCH_EXECUTION"].startswith(f"{job.id}.0:")


@pytest.mark.parametrize("export", ["ALL", "NONE"])
def test_every_rank_and_step_has_the_variables(job: Managed, export: str) -> None:
    root = "/scratch/ada/a root"
    steps = "{show}\nsrun {show}\nsrun --export=NONE {show}\n"
    job.submit(steps, ["-N2", "-n4", f"--export={export}"], env={"SLURM_DISPATCH_CHECKPOINT": root})
    job.ends()
    expected = {
        "DISPATCH_JOB": job.word.job,
        "DISPATCH_EPOCH": "1000000",
        "DISPATCH_ATTEMPT": job.attempt(0, None),
        "DISPATCH_CHECKPOINT": root,
    }
    shown = job.shown()
    assert sorted(shown) == sorted(["batch.0", *(f"{step}.{rank}" for step in range(2) for rank in range(4))])
    for task, variables in shown.items():
        assert {name: value for name, value in variables.items() if name.startswith("DISPATCH_")} == expected, task
    nodes = job.cluster.wait_until(lambda: len(job.notes("node")) == 2 and job.notes("node"), WAIT_S, "both Epilogs")
    for note in nodes:
        assert (note["attempt"], note["epoch"], note["start_time"]) == (expected["DISPATCH_ATTEMPT"], "1000000", None)
        # The execution was found by its job id alone, and the note says so.
        assert (note["verified"], note["clean"]) == (False, True)
    for node in job.cluster.nodes:
        assert job.cluster.run(node, ["ls", "-A", RUN]).stdout == ""


def test_a_requeued_job_has_new_ones(job: Managed) -> None:
    runs = 'echo "$SLURM_PROCID $DISPATCH_EPOCH $DISPATCH_ATTEMPT" >>runs'
    job.submit(f"srun sh -c '{runs}'\nexec sleep 3600\n", ["--requeue", "-N2", "-n2"])
    cluster = job.cluster

    def ran(executions: int) -> bool:
        seen = cluster.run("login", ["cat", f"{job.folder}/runs"], check=False).stdout.splitlines()
        return job.runs_again() is not None and len(seen) == 2 * executions

    cluster.wait_until(lambda: ran(1), WAIT_S, "the first execution")
    cluster.run("ctl", ["scontrol", "requeue", str(job.id)])
    # The first end is over before the second start, so each Epilog finds its own execution's file.
    first = cluster.wait_until(lambda: len(job.notes("node")) == 2 and job.notes("node"), WAIT_S, "both Epilogs")
    cluster.wait_until(lambda: ran(2), WAIT_S, "the second execution", every_s=1.0)
    idle(cluster)
    nodes = cluster.wait_until(lambda: len(job.notes("node")) == 4 and job.notes("node"), WAIT_S, "all Epilogs")
    epochs = {job.attempt(0, None): "1000000", job.attempt(1, None): "1000001"}
    assert len(epochs) == 2
    expected = sorted(f"{rank} {epoch} {attempt}" for attempt, epoch in epochs.items() for rank in (0, 1))
    assert sorted(cluster.read(f"{job.folder}/runs").splitlines()) == expected
    assert {note["attempt"] for note in first} == {job.attempt(0, None)}
    assert {note["attempt"]: note["epoch"] for note in nodes} == epochs
    assert {note["verified"] for note in nodes} == {False}
    nodes_take_jobs(cluster)


def test_a_shared_job_is_never_started_again_by_slurm(cluster: Cluster, job: Managed) -> None:
    shared = Managed(cluster, shared=True)
    shared.submit('echo "$DISPATCH_EPOCH" >>runs\nexec sleep 3600\n', ["--requeue", "-w", "c1"])
    runs = ["cat", f"{shared.folder}/runs"]
    cluster.wait_until(lambda: cluster.run("login", runs, check=False).stdout, WAIT_S, "the first execution")
    cluster.run("ctl", ["scontrol", "requeue", str(shared.id)])

    def refused() -> list[dict[str, Any]]:
        shared.runs_again()
        return shared.notes("refused")

    found = cluster.wait_until(refused, WAIT_S, "the restart to be refused", every_s=1.0)
    idle(cluster)
    assert {note["why"] for note in found} == {"shared"}
    assert cluster.read(f"{shared.folder}/runs") == "1000000\n"
    assert [note["restart"] for note in shared.notes("start")] == [0]
    nodes_take_jobs(cluster)


@pytest.mark.parametrize("evil", EVIL)
def test_hostile_comments_names_and_environments(job: Managed, evil: str) -> None:
    cluster = job.cluster
    hostile = {"LD_PRELOAD": "/nonexistent.so", "PYTHONHOME": "/nonexistent", "IFS": "=:", "DISPATCH_ATTEMPT": evil,
               "SLURM_DISPATCH_CHECKPOINT": evil, "SLURM_DISPATCH_EXECUTION": evil}
    options = [f"--comment={evil} {job.word}", f"--job-name={evil}", "-N2", "-n2"]
    job.submit("unset LD_PRELOAD PYTHONHOME\nsrun {show}\n", options, env=hostile)
    job.ends()
    assert {task["DISPATCH_ATTEMPT"] for task in job.shown().values()} == {job.attempt(0, None)}
    cluster.wait_until(lambda: len(job.notes("node")) == 2, WAIT_S, "both Epilogs")
    for host in cluster.hosts:
        assert cluster.run(host, ["test", "-e", "/tmp/evil"], check=False).status == 1
    nodes_take_jobs(cluster)


def facts(cluster: Cluster, key: str) -> list[dict[str, Any]]:
    """The record of a job."""
    text = cluster.sh("ctl", f"cd {STATE}/jobs/{key}/facts && cat $(ls | sort)")
    return [json.loads(line) for line in text.splitlines()]


def test_a_cancelled_job_is_submitted_again_and_resumes(cluster: Cluster) -> None:
    folder = f"/scratch/ada/{secrets.token_hex(6)}"
    cluster.write(f"{folder}/job.sh", HELPED, user="ada")
    argv = ["dispatch", "sbatch", "--checkpoint", f"{folder}/root", "-o", "out", "-w", "c1", "job.sh"]
    said = cluster.run("login", argv, user="ada", cwd=folder).stderr
    found = re.search(r"\bjob ([a-z0-9]{12})\b", said)
    assert found, said
    key = found[1]

    def published(count: int) -> list[str] | None:
        names = cluster.run("login", ["ls", f"{folder}/root/pub"], check=False).stdout.split()
        return names if len(names) == count else None

    cluster.wait_until(lambda: published(1), WAIT_S, "the first publication")
    first = [fact for fact in facts(cluster, key) if fact["kind"] == "submitted"]
    cluster.run("ctl", ["scancel", str(first[0]["slurm_job_id"])])
    cluster.wait_until(lambda: published(2), WAIT_S, "the replacement's publication")

    def started() -> dict[str, Any]:
        return {fact["attempt"]: fact["start_time"] for fact in facts(cluster, key) if fact["kind"] == "started"}

    cluster.wait_until(lambda: len(started()) == 2, WAIT_S, "both starts in the record, which a cancel may close")
    cluster.run("login", ["dispatch", "cancel", key], user="ada", timeout_s=PATIENCE_S)

    def closed() -> bool:  # a node's Epilog can tell of itself after it
        return any(fact["kind"] == "closed" for fact in facts(cluster, key))

    cluster.wait_until(closed, WAIT_S, "the record to be closed")
    runs = [line.split() for line in cluster.read(f"{folder}/runs").splitlines()]
    assert [run[0] for run in runs] == ["1000000", "2000000"]
    assert runs[0][2] == "none"
    assert runs[1][2] == f"{folder}/root/exec/{runs[1][1]}/resume/checkpoint-1000000"
    ends = [fact["outcome"] for fact in facts(cluster, key) if fact["kind"] == "end"]
    assert ends[0] == "cancelled"
    assert started() == {run[1]: None for run in runs}
    idle(cluster)


def test_an_epilog_that_cannot_be_sure_proves_nothing_and_a_search_of_the_node_does(cluster: Cluster) -> None:
    cluster.service_off()
    ghost = Ghost(cluster)
    ghost.begin(writer="bare", then="sleep 1")
    (node,) = ghost.ends().nodes
    (note,) = cluster.wait_until(lambda: ghost.notes("node"), WAIT_S, "its Epilog's note")
    assert (note["clean"], note["verified"]) == (False, False)
    assert ghost.answers() == {"slurm-nodes": "unknown", "ssh-nodes": "running", "fence-power": "unknown"}
    cluster.run(node, ["pkill", "-KILL", "-u", "ada"], check=False)
    ghost.wait_answer("ssh-nodes", "ceased")
    assert ghost.ask("slurm-nodes") == "unknown"
    idle(cluster)
    cluster.service_on()
