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
    from demo.witness import Execution
    from docker.rig import Cluster

pytestmark = pytest.mark.cluster
NODE_FAIL_S = 240.0
"""Slurm needs SlurmdTimeout (20 s) and some 15 s more to give up a node; the machine may be slow."""


def begin(cluster: Cluster, name: str, *options: str) -> tuple[MainJob, Execution]:
    """The job's first execution, with two publications."""
    job = MainJob(cluster, name).submit(["--ntasks=2", *options])
    first = job.wait_execution(1)
    job.wait_published(first, 2)
    return job, first


def go_on(job: MainJob, old: Execution, *, outcome: str, node: str | None = None) -> Execution:
    """The replacement: it runs beside the old one, which saves meanwhile, and it publishes."""
    new = job.wait_execution(2, NODE_FAIL_S)
    job.wait_overlap(old, new)
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
    assert new.epoch // 10**6 == old.epoch // 10**6 + 1
    if beside:
        assert promises.overlap(first, second) > 0


def test_preempted_by_high(cluster: Cluster) -> None:
    job, old = begin(cluster, "preempted")
    wants = ["--partition=high", "--exclusive", f"--nodelist={old.host}", "--time=5", "--output=/dev/null"]
    other = cluster.submit("ben", "#!/bin/sh\nexec sleep 600\n", wants)
    new = go_on(job, old, outcome="preempted", node=old.host)
    cluster.run("login", ["scancel", str(other)], user="ben")
    settle(job, old, new)


def test_cancelled_by_an_operator(cluster: Cluster) -> None:
    job, old = begin(cluster, "cancelled")
    cluster.run("ctl", ["scancel", str(job.first_id)])
    settle(job, old, go_on(job, old, outcome="cancelled"))


def test_killed_with_its_node(cluster: Cluster) -> None:
    """The node has lost its power: no overlap is possible, and nobody can tell that from a cut-off node."""
    job, old = begin(cluster, "power")
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


def test_cut_off_the_network_and_healed(cluster: Cluster) -> None:
    """The old processes live on behind the cut, and go on writing after the network is back."""
    job, old = begin(cluster, "cut")
    cluster.fault("cut", old.host)
    try:
        new = go_on(job, old, outcome="node_fail", node=old.host)
        late = promises.late_publications(job.account(), old, new)
        job.wait("a late publication of the old execution",
                 lambda: promises.late_publications(job.account(), old, new) > late)
    finally:
        cluster.fault("heal", old.host)
    settle(job, old, new)


def test_its_healthy_node_set_down_by_an_admin(cluster: Cluster) -> None:
    job, old = begin(cluster, "admin")
    cluster.run("ctl", ["scontrol", "update", f"node={old.host}", "state=down", "reason=test"])
    try:
        new = go_on(job, old, outcome="node_fail", node=old.host)
    finally:
        cluster.run("ctl", ["scontrol", "update", f"node={old.host}", "state=resume"])
    settle(job, old, new)


def test_requeued_by_slurm_with_a_writer_that_left_the_job(cluster: Cluster) -> None:
    """Slurm waits for the job's own processes and two minutes; only one that left the job overlaps then."""
    job = MainJob(cluster, "requeued").submit(["--ntasks=1", "--requeue"], ["--detach"], step_time_s=0.25)
    old = job.wait_execution(1)
    job.wait_published(old, 2)
    cluster.run("ctl", ["scontrol", "requeue", str(job.first_id)])
    try:
        new = job.wait_execution(2, 420.0)
        assert new.epoch == old.epoch + 1, job.picture()
        assert new.attempt != old.attempt
        job.wait("the old writer to save beside the new one", lambda: saved_beside(job, old, new))
    finally:
        cluster.run(old.host, ["kill", "-9", str(old.start["pid"])], check=False)
    job.wait_published(new, 2)
    closed = job.finish()
    assert job.broken() == [], job.picture()
    assert closed["why"] == "completed", job.picture()
    assert [fact["submission"] for fact in job.facts_of("submitted")] == [1], job.picture()


def saved_beside(job: MainJob, old: Execution, new: Execution) -> bool:
    known = job.account()
    first, second = known.execution(old.epoch), known.execution(new.epoch)
    return first is not None and second is not None and promises.overlap(first, second) > 0
