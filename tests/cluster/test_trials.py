"""The trials of ``tests/trials`` with slurm-dispatch on the real cluster: five jobs at once, each replaced twice.

In each the old writer has left its job, so that it lives on as long as the trial wants; it may be stalled while
it is replaced, and goes on beside its replacement, also while that is replaced in its turn. No trial may lose.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from demo import promises
from demo.mainjob import MainJob

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

    from demo.witness import Execution
    from docker.rig import Cluster

pytestmark = pytest.mark.cluster
TRIALS = 5


@pytest.fixture
def jobs(cluster: Cluster) -> Iterator[list[MainJob]]:
    """The trials' jobs, whose processes end with the test, also those that left them."""
    made = [MainJob(cluster, f"trial-{number}") for number in range(1, TRIALS + 1)]
    yield made
    for job in made:
        job.stop()


def send(cluster: Cluster, old: Execution, signal: str) -> None:
    """A signal to an execution's writer."""
    cluster.run(old.host, ["kill", f"-{signal}", str(old.start["pid"])])


def cancel(cluster: Cluster, executions: list[Execution]) -> None:
    """An operator cancels the objects of these executions, in one call."""
    cluster.run("ctl", ["scancel", *[execution.slurm_id for execution in executions]])


def trained(jobs: list[MainJob], number: int) -> list[Execution]:
    """The ``number``-th execution of every job, once it has published twice."""
    executions = [job.wait_execution(number) for job in jobs]
    for job, execution in zip(jobs, executions, strict=True):
        job.wait_published(execution, 2)
    return executions


def test_five_trials_on_the_cluster_lose_nothing(
    cluster: Cluster, jobs: list[MainJob], rng: random.Random
) -> None:
    for job in jobs:
        job.submit(["--ntasks=1"], ["--detach"], step_time_s=0.2)
    first = trained(jobs, 1)
    stalled = [old for old in first if rng.random() < 0.5] or first[:1]
    print(f"stalled while they are replaced: {[old.attempt for old in stalled]}")
    for old in stalled:
        send(cluster, old, "STOP")
    cancel(cluster, first)
    second = trained(jobs, 2)
    for old in stalled:
        send(cluster, old, "CONT")
    for job, old, new in zip(jobs, first, second, strict=True):
        job.wait_overlap(old, new)
    cancel(cluster, second)
    third = trained(jobs, 3)
    for job, old, new in zip(jobs, second, third, strict=True):
        job.wait_overlap(old, new)
        job.publish_late(old, new)
    lost = []
    for job in jobs:
        job.stop()
    for job, one, two, three in zip(jobs, first, second, third, strict=True):
        closed = job.finish()
        lost += [f"{job.name}: {sentence}" for sentence in job.broken()]
        if closed["why"] != "completed":
            lost.append(f"{job.name} was closed as {closed['why']}")
        known = job.account()
        runs = [known.execution(execution.epoch) for execution in (one, two, three)]
        assert len(known.executions) == len(runs), job.picture()
        assert runs[0] is not None
        assert runs[1] is not None
        assert runs[2] is not None
        assert promises.overlap(runs[0], runs[1]) > 0
        assert promises.overlap(runs[1], runs[2]) > 0
        assert three.resumed is not None
        assert three.resumed[0] == two.epoch, f"{job.name}: run 3 went on from {three.resumed}"
    assert lost == [], "\n".join(job.picture() for job in jobs)
