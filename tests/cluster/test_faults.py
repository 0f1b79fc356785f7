"""The main job is hit by a fault, replaced while its old processes write, and goes on from the right save.

Each test is one story: the first execution publishes; the fault comes; the replacement runs beside the old
execution, which the test waits for and so asserts; then the training is told to end, and every promise is
checked over all that was logged and published: where each execution resumed from, that the last save is made
of the steps that it must be made of, with the losses of a run without faults, and that what the old execution
saved and published late is no part of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from demo import promises
from demo.mainjob import MainJob

if TYPE_CHECKING:
    from collections.abc import Iterator

    from demo.witness import Execution
    from docker.rig import Cluster

pytestmark = pytest.mark.cluster
NODE_FAIL_S = 240.0
"""Slurm needs SlurmdTimeout (20 s) and some 15 s more to give up a node; the machine may be slow."""
REQUEUE_S = 420.0
"""Slurm waits for KillWait (10 s) and 121 s before a requeued job may start."""


@pytest.fixture
def job(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[MainJob]:
    """A job whose processes end with the test, also those that left it."""
    job = MainJob(cluster, request.node.name.removeprefix("test_").replace("_", "-")[:20])
    yield job
    job.stop()


def begin(job: MainJob, *options: str) -> Execution:
    """Submit it; its first execution, with two publications.

    Its writers leave the job: Slurm ends what it knows of the old execution 10 s after the fault at the latest,
    and whether the replacement trains by then would depend on how fast the machine is.
    """
    job.submit(["--ntasks=2", *options], ["--detach"])
    first = job.wait_execution(1)
    job.wait_published(first, 2)
    return first


def go_on(job: MainJob, old: Execution, *, outcome: str, node: str | None = None) -> Execution:
    """The replacement: it trains and publishes beside the old one, which writes, and publishes late."""
    new = job.wait_execution(2, NODE_FAIL_S)
    job.wait_overlap(old, new)
    job.publish_late(old, new)
    assert new.host != node, f"the replacement was started on {node}, which is gone"
    decisions = job.facts_of("decision")
    assert [(fact["outcome"], fact["action"]) for fact in decisions] == [(outcome, "resubmit")], job.picture()
    return new


def settle(job: MainJob, old: Execution, new: Execution, *, beside: bool = True) -> None:
    """End the training, and check everything."""
    job.wait_published(new, 3)
    closed = job.finish()
    known = job.account()
    first, second = known.execution(old.epoch), known.execution(new.epoch)
    assert first is not None
    assert second is not None
    assert job.broken() == [], job.picture()
    assert closed["why"] == "completed", job.picture()
    assert len(known.executions) == 2, job.picture()
    assert second.resumed is not None
    assert second.resumed[0] == first.epoch
    if beside:
        assert promises.overlap(first, second) > 0
        assert promises.late_publications(known, first, second) > 0


def test_preempted_by_high(cluster: Cluster, job: MainJob) -> None:
    old = begin(job)
    wants = ["--partition=high", "--exclusive", f"--nodelist={old.host}", "--time=5", "--output=/dev/null"]
    other = cluster.submit("ben", "#!/bin/sh\nexec sleep 600\n", wants)
    new = go_on(job, old, outcome="preempted", node=old.host)
    cluster.run("login", ["scancel", str(other)], user="ben")
    settle(job, old, new)


def test_cancelled_by_an_operator(cluster: Cluster, job: MainJob) -> None:
    old = begin(job)
    cluster.run("ctl", ["scancel", str(job.first_id)])
    settle(job, old, go_on(job, old, outcome="cancelled"))


def test_killed_with_its_node(cluster: Cluster, job: MainJob) -> None:
    """The node has lost its power: no overlap is possible, and nobody can tell that from a cut-off node."""
    old = begin(job)
    cluster.fault("kill-node", old.host)
    try:
        new = job.wait_execution(2, NODE_FAIL_S)
        assert new.host != old.host
        job.wait_published(new, 2)
    finally:
        cluster.fault("heal", old.host)
    decisions = [(fact["outcome"], fact["action"]) for fact in job.facts_of("decision")]
    assert decisions == [("node_fail", "resubmit")], job.picture()
    settle(job, old, new, beside=False)


def test_cut_off_the_network_and_healed(cluster: Cluster, job: MainJob) -> None:
    """C172: the old processes live on behind the cut, and write on after the network is back, on the same boot."""
    job.submit(["--ntasks=2"])
    old = job.wait_execution(1)
    job.wait_published(old, 2)
    cluster.fault("cut", old.host)
    try:
        new = go_on(job, old, outcome="node_fail", node=old.host)
        # Slurm kills the old ones 10 s after it hears of the node again: so the node says when it was healed.
        healed = float(cluster.sh(old.host, "sh /src/docker/node heal && date +%s.%N"))
    finally:
        cluster.fault("heal", old.host)
    job.wait("the old execution to write after the heal", lambda: last_line_at(job, old) > healed)
    settle(job, old, new)


def last_line_at(job: MainJob, execution: Execution) -> float:
    """When any rank of an execution wrote for the last time. (Its rank 0 may have died: its saves are thinned.)"""
    found = job.account().execution(execution.epoch)
    return max(line["at"] for lines in found.ranks.values() for line in lines) if found else 0.0


def test_its_healthy_node_set_down_by_an_admin(cluster: Cluster, job: MainJob) -> None:
    """A healthy node answers and so returns to service: the replacement may even run beside the old one there."""
    old = begin(job)
    cluster.run("ctl", ["scontrol", "update", f"node={old.host}", "state=down", "reason=test"])
    try:
        new = go_on(job, old, outcome="node_fail")
    finally:  # refused where it has returned by itself
        cluster.run("ctl", ["scontrol", "update", f"node={old.host}", "state=resume"], check=False)
    settle(job, old, new)


def test_requeued_by_slurm_with_a_writer_that_left_the_job(cluster: Cluster, job: MainJob) -> None:
    """C163: Slurm waits for the job's own processes and two minutes; only one that left the job overlaps then."""
    old = begin(job, "--requeue")
    cluster.run("ctl", ["scontrol", "requeue", str(job.first_id)])
    new = job.wait_execution(2, REQUEUE_S)
    assert new.epoch == old.epoch + 1, job.picture()
    assert new.attempt != old.attempt
    job.wait_overlap(old, new)
    job.publish_late(old, new)
    settle(job, old, new)
    assert [fact["submission"] for fact in job.facts_of("submitted")] == [1], job.picture()
