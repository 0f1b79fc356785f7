"""The faults do what they say, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.docker.writer import Writer

if TYPE_CHECKING:
    from docker.rig import Cluster

DEADLINE_S = 240.0
"""A fault shows after SlurmdTimeout (20 s) and some pings, on a slow machine much later."""


@pytest.fixture(autouse=True)
def clean(cluster: Cluster) -> None:
    """Each fault begins with a clean cluster."""
    cluster.reset()


def identity(cluster: Cluster, node: str) -> str:
    return cluster.sh(node, "hostname; hostname -I")


def booted(cluster: Cluster, node: str) -> str:
    """When the node's first process began."""
    return cluster.sh(node, "cut -d' ' -f22 /proc/1/stat")


def reachable(cluster: Cluster, node: str, patience_s: int) -> bool:
    """Whether slurmd's port takes a connection from the controller's host."""
    words = ["timeout", str(patience_s), "bash", "-c", f"</dev/tcp/{node}/6818"]
    return cluster.run("ctl", words, check=False).status == 0


def wait_usable(cluster: Cluster, node: str) -> None:
    cluster.wait_until(lambda: cluster.node_usable(node), DEADLINE_S, f"{node} to be usable")


def test_a_node_that_is_cut_off_loses_its_job_whose_processes_live_on_and_comes_back(cluster: Cluster) -> None:
    writer = Writer(cluster, ["-w", "c1", "--requeue"])
    before = identity(cluster, "c1")
    cluster.fault("cut", "c1")
    assert not reachable(cluster, "c1", 2)

    cluster.wait_until(lambda: cluster.node_states()["c1"].startswith("down"), DEADLINE_S, "c1 to be down")
    job = cluster.job(writer.id)
    assert job is not None
    assert job.restarts == 1
    writer.wait_lines(3)

    cluster.fault("heal", "c1")
    wait_usable(cluster, "c1")
    assert identity(cluster, "c1") == before
    assert cluster.submit("ada", "#!/bin/sh\n", ["-w", "c1", "-o", "/dev/null"]) > writer.id


def test_cut_and_heal_may_be_said_twice(cluster: Cluster) -> None:
    for fault in ("cut", "cut"):
        cluster.fault(fault, "c2")
    assert not reachable(cluster, "c2", 2)
    for fault in ("heal", "heal"):
        cluster.fault(fault, "c2")
    assert reachable(cluster, "c2", 50)


def test_a_killed_node_loses_its_processes_and_comes_back_as_itself(cluster: Cluster) -> None:
    writer = Writer(cluster, ["-w", "c2", "--no-requeue"])
    before, boot = identity(cluster, "c2"), booted(cluster, "c2")
    cluster.fault("kill-node", "c2")
    writer.wait_silence()
    cluster.wait_job(writer.id, {"NODE_FAIL"}, DEADLINE_S)

    cluster.fault("heal", "c2")
    wait_usable(cluster, "c2")
    assert identity(cluster, "c2") == before
    assert booted(cluster, "c2") != boot
    job = cluster.submit("ben", "#!/bin/sh\nexit 0\n", ["-w", "c2", "-o", "/dev/null"])
    cluster.wait_job(job, {"COMPLETED"}, DEADLINE_S)


def test_a_rebooted_node_has_an_empty_run_folder_and_takes_jobs(cluster: Cluster) -> None:
    boot = booted(cluster, "c3")
    cluster.sh("c3", "mkdir -p /run/slurm-dispatch && touch /run/slurm-dispatch/old")
    cluster.fault("reboot", "c3")
    assert booted(cluster, "c3") != boot
    assert cluster.run("c3", ["test", "-e", "/run/slurm-dispatch/old"], check=False).status == 1
    wait_usable(cluster, "c3")
    job = cluster.submit("ada", "#!/bin/sh\nexit 0\n", ["-w", "c3", "-o", "/dev/null"])
    cluster.wait_job(job, {"COMPLETED"}, DEADLINE_S)


@pytest.mark.parametrize("fault", ["kill-slurmd", "stop-slurmd"])
def test_without_its_slurmd_a_job_lives_on(cluster: Cluster, fault: str) -> None:
    writer = Writer(cluster, ["-w", "c1"])
    cluster.fault(fault, "c1")
    state = cluster.run("c1", ["sh", "-c", "ps -o stat= -C slurmd"], check=False).stdout.strip()
    assert state.startswith("T") if fault == "stop-slurmd" else state == ""
    writer.wait_lines(3)
    cluster.fault("heal", "c1")
    assert cluster.sh("c1", "ps -o stat= -C slurmd").strip()[0] in "SRD"
    wait_usable(cluster, "c1")
    writer.wait_lines(3)


def test_a_paused_node_writes_nothing_until_it_is_let_on(cluster: Cluster) -> None:
    writer = Writer(cluster, ["-w", "c3"])
    cluster.fault("pause", "c3")
    writer.wait_silence()
    cluster.fault("unpause", "c3")
    writer.wait_lines(2)
    cluster.fault("pause", "c3")
    cluster.fault("heal", "c3")
    writer.wait_lines(2)


def test_the_queue_outlives_a_crash_of_the_controller(cluster: Cluster) -> None:
    writer = Writer(cluster)
    waiting = cluster.submit("ben", "#!/bin/sh\nexit 0\n", ["--hold", "-o", "/dev/null", "--comment", "kept"])
    before = cluster.sh("ctl", "pgrep -x slurmctld")
    cluster.crash_controller(saved=True)

    assert cluster.sh("ctl", "pgrep -x slurmctld") != before
    assert cluster.wait_job(writer.id, {"RUNNING"}).restarts == 0
    held = cluster.wait_job(waiting, {"PENDING"})
    assert held.comment == "kept"
    writer.wait_lines(1)
    cluster.run("ctl", ["scontrol", "release", str(waiting)])
    cluster.wait_job(waiting, {"COMPLETED"}, DEADLINE_S)


def test_a_crash_of_the_controller_just_after_a_submission_leaves_a_cluster_that_works(cluster: Cluster) -> None:
    cluster.submit("ada", "#!/bin/sh\nexit 0\n", ["--hold", "-o", "/dev/null"])
    cluster.crash_controller(saved=False)
    job = cluster.submit("ada", "#!/bin/sh\nexit 0\n", ["-o", "/dev/null"])
    cluster.wait_job(job, {"COMPLETED"}, DEADLINE_S)


@pytest.mark.parametrize(("options", "states"), [
    (["--requeue"], {"PENDING"}),
    (["--no-requeue"], {"PREEMPTED"}),
])
def test_a_preempted_run_writes_on_beside_what_replaces_it(
    cluster: Cluster, options: list[str], states: set[str]
) -> None:
    """KillWait is 10 s: for that long the old processes live, whatever Slurm says of the job.

    They say themselves when they wrote: whether somebody looks in these 10 s depends on the machine.
    """
    old = Writer(cluster, ["-w", "c2", "-p", "low", *options])
    whole_node = ["-w", "c2", "-p", "high", "--exclusive", "-o", "/dev/null"]
    high = cluster.submit("ben", "#!/bin/sh\nsleep 1000\n", whole_node)
    cluster.wait_job(old.id, states, DEADLINE_S)
    cluster.wait_job(high, {"RUNNING"}, DEADLINE_S)
    old.wait_silence()
    found = cluster.job(old.id)
    assert found is not None
    assert found.restarts == (1 if "PENDING" in states else 0)
    assert old.last_at(0) > preempted_at(cluster, old.id)


def preempted_at(cluster: Cluster, job: int) -> int:
    """When accounting says that the job's first execution ended, in Unix seconds."""
    asked = ["sacct", "-D", "-X", "-n", "-P", "-j", str(job), "-o", "end,state"]

    def end() -> int | None:
        rows = cluster.run("ctl", asked, env={"SLURM_TIME_FORMAT": "%s"}).stdout.split()
        ends = [row.split("|")[0] for row in rows if row.endswith("|PREEMPTED")]
        return int(ends[0]) if ends else None

    return cluster.wait_until(end, DEADLINE_S, f"the end of job {job} in accounting")
