"""The gate on the real cluster: what must not start never does, and what only looks like it is not refused.

A shared job has one execution, whoever asks Slurm for another. slurmctld is killed within 5 s of a start, many times:
it may have forgotten the start, and starts the same restart count again, which the gate must refuse; or it may have
forgotten the job, and gives its id to the next one, which the gate must not refuse.

Slurm 22.05 tells its hooks no start time: there a start is known by its restart count alone, and of a second one of
the same count the gate refuses only that of a shared job (ARCHITECTURE.md, Known limits).
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

from tests.cluster.jobs import Jobs
from tests.cluster.site import WAIT_S, Managed, lost_is_gone, nodes_take_jobs

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator

    from docker.rig import Cluster, Job

pytestmark = pytest.mark.cluster
CRASHES_S = float(os.environ.get("DISPATCH_CRASHES_S", "10"))
"""For the rounds of each kind of crash; the first round of each is always done."""
WINDOW_S = 5.0
"""What slurmctld knows is in its state files so long after it came to know it, at the latest."""
SPOOL = "/var/spool/slurmctld"
RUNS = 'echo "${SLURM_RESTART_COUNT:-0} ${SLURM_JOB_START_TIME:-0}" >>"$FOLDER/runs"\nexec sleep 3600\n'


@pytest.fixture
def quiet(cluster: Cluster) -> Iterator[Cluster]:
    """No tick takes notes away; no job of ada's is left behind."""
    cluster.service_off()
    yield cluster
    cluster.sh("ctl", f"chmod 755 {SPOOL}")
    for user in ("ada", "root"):  # root's are those of save_state
        cluster.run("ctl", ["scancel", "-u", user], check=False)
    cluster.wait_until(cluster.nodes_idle, WAIT_S, "all nodes to be idle")
    cluster.service_on()


def begin(cluster: Cluster, *options: str, shared: bool = False) -> Managed:
    """Submit a job whose script writes down each of its runs, and sleeps."""
    job = Managed(cluster, shared=shared)
    job.submit(RUNS.replace("$FOLDER", job.folder), ["--requeue", *options])
    return job


def runs(job: Managed) -> list[tuple[int, int]]:
    """(restart count, start time or 0) of each run of its script."""
    text = job.cluster.run("login", ["cat", f"{job.folder}/runs"], check=False).stdout
    return [(int(line.split()[0]), int(line.split()[1])) for line in text.splitlines()]


def starts(job: Managed) -> list[tuple[int, int]]:
    """(restart count, start time or 0) of each start that the gate let through."""
    return [(note["restart"], note["start_time"] or 0) for note in job.notes("start")]


def first_of(job: Managed, start_time: int) -> tuple[int, int]:
    """What :func:`runs` and :func:`starts` have of its first run."""
    return 0, job.told(start_time) or 0


def running(job: Managed, count: int = 1) -> Job:
    """Wait until it runs, and its script has begun for the ``count``-th time."""

    def there() -> Job | None:
        found = job.cluster.job(job.id)
        return found if found is not None and found.states == ("RUNNING",) and len(runs(job)) >= count else None

    return job.cluster.wait_until(there, WAIT_S, f"job {job.id} to run")


def nudged(job: Managed, predicate: Callable[[], object], what: str) -> None:
    """Wait while Slurm's own delay of two minutes after a requeue is lifted whenever it stands."""

    def ask() -> bool:
        job.runs_again()
        return bool(predicate())

    job.cluster.wait_until(ask, WAIT_S, what, every_s=1.0)


def test_a_requeued_shared_job_never_gets_a_second_execution(quiet: Cluster) -> None:
    job = begin(quiet, shared=True)
    first = running(job)
    quiet.run("ctl", ["scontrol", "requeue", str(job.id)])
    # Slurm raises the count with each refusal, and tries again.
    nudged(job, lambda: len(job.notes("refused")) >= 2, "two refusals")
    quiet.run("ctl", ["scancel", str(job.id)])
    assert [(note["why"], note["restart"]) for note in job.notes("refused")][:2] == [("shared", 1), ("shared", 2)]
    assert starts(job) == [first_of(job, first.start_time)]
    assert runs(job) == [first_of(job, first.start_time)]
    nodes_take_jobs(quiet)


def test_without_the_gate_the_second_execution_s_tasks_are_refused(quiet: Cluster) -> None:
    """A site may leave PrologSlurmctld out: Prolog marks the execution then, and TaskProlog ends its script."""
    hook = "/usr/libexec/slurm-dispatch/prolog-slurmctld"
    quiet.sh("ctl", f"mv {hook} {hook}.away")
    try:
        job = begin(quiet, shared=True)
        first = running(job)
        quiet.run("ctl", ["scontrol", "requeue", str(job.id)])
        nudged(job, lambda: "must not be started a second time" in output(job), "TaskProlog's refusal")
        quiet.run("ctl", ["scancel", str(job.id)])
        quiet.wait_until(quiet.nodes_idle, WAIT_S, "all nodes to be idle")
        assert runs(job) == [first_of(job, first.start_time)]
        nodes_take_jobs(quiet)
    finally:
        quiet.sh("ctl", f"mv {hook}.away {hook}")


def output(job: Managed) -> str:
    """What the job printed."""
    return job.cluster.run("login", ["cat", f"{job.folder}/out"], check=False).stdout


def test_the_refused_execution_was_never_launched_and_a_person_decides(cluster: Cluster) -> None:
    """The job of a user whose checkpoint is shared; somebody lets Slurm requeue it."""
    jobs = Jobs(cluster)
    key = jobs.submit("#!/bin/sh\necho run >>runs\nexec sleep 3600\n", "--shared-checkpoint")
    job = Managed(cluster, shared=True)
    job.id = jobs.running(key)
    try:
        cluster.run("ctl", ["scontrol", "update", f"job={job.id}", "Requeue=1"])
        cluster.run("ctl", ["scontrol", "requeue", str(job.id)])
        nudged(job, lambda: jobs.last(key, "decision"), "a decision")
        end, decision = jobs.last(key, "end"), jobs.last(key, "decision")
        assert end is not None
        assert decision is not None
        assert (end["outcome"], end["final"]) == ("launch_failed", True)
        assert (decision["action"], decision["why"]) == ("hold", "shared")
        made, ran = jobs.objects(key), cluster.read(f"{jobs.folder}/runs")
        facts = jobs.facts(key)  # after those: what is not released here was not released then
        assert {fact["why"] for fact in facts if fact["kind"] == "refused"} == {"shared"}
        # The node may say at once that nothing of the first execution is left: then it goes on, and not before.
        kinds = [fact["kind"] for fact in facts]
        assert {fact["how"] for fact in facts if fact["kind"] == "release"} <= {"ceased"}
        held = kinds[: kinds.index("release")] if "release" in kinds else kinds
        assert (held.count("started"), held.count("intent")) == (1, 1), kinds
        if "release" not in kinds:
            assert (made, ran) == ([job.id], "run\n")
    finally:
        cluster.run("login", ["dispatch", "cancel", key], user="ada", timeout_s=WAIT_S, check=False)
    nodes_take_jobs(cluster)


# slurmctld killed within WINDOW_S of a start.


def stop(cluster: Cluster) -> None:
    """Kill slurmctld and its script runner; nothing is saved."""
    kill = "pkill -9 -x 'slurmctld|slurmscriptd'; while pgrep -x 'slurmctld|slurmscriptd'; do sleep 0.1; done"
    cluster.sh("ctl", kill, timeout_s=WAIT_S)


def start(cluster: Cluster, *, after: int = 0) -> None:
    """Start it again, not before the second after ``after``: the start time tells two starts apart, in seconds."""
    wait = f"while [ $(date +%s) -le {after} ]; do sleep 0.1; done; "
    cluster.sh("ctl", wait + f"chmod 755 {SPOOL}; sh /src/docker/controller start", timeout_s=WAIT_S)


def forget_from_now_on(cluster: Cluster) -> None:
    """Nothing that slurmctld comes to know from now on is in its state files: the window, without its end."""
    marker = cluster.save_state()
    cluster.run("ctl", ["scancel", "--name", marker])
    # Scripts of jobs go into folders below it, which are made when they are needed.
    folders = f"for i in 0 1 2 3 4 5 6 7 8 9; do install -d -o slurm -g slurm {SPOOL}/hash.$i; done"
    cluster.sh("ctl", f"{folders}; chmod 555 {SPOOL}")


def forgotten_start(cluster: Cluster, rng: random.Random) -> None:
    """The start is forgotten: slurmctld starts the same restart count again."""
    shared = rng.random() < 0.5
    job = begin(cluster, "--hold", shared=shared)
    forget_from_now_on(cluster)
    cluster.run("ctl", ["scontrol", "release", str(job.id)])
    first = running(job).start_time
    time.sleep(rng.uniform(0, WINDOW_S / 2))
    stop(cluster)
    start(cluster, after=first)
    if not cluster.tells_starts:
        lost_is_gone(cluster)
    cluster.run("ctl", ["scontrol", "release", str(job.id)])
    if not (shared or cluster.tells_starts):
        second = running(job, 2)
        assert (second.restarts, job.notes("refused"), starts(job)) == (0, [], [(0, 0)])
        cluster.run("ctl", ["scancel", str(job.id)])
        cluster.wait_until(cluster.nodes_idle, WAIT_S, "all nodes to be idle")
        return
    (refused,) = cluster.wait_until(lambda: job.notes("refused"), WAIT_S, "the second start to be refused")
    assert (refused["why"], refused["restart"]) == ("double_start", 0)
    if cluster.tells_starts:
        assert refused["start_time"] > first
    assert starts(job) == [first_of(job, first)]
    if shared:
        nudged(job, lambda: len(job.notes("refused")) >= 2, "the next one to be refused too")
        assert job.notes("refused")[1]["why"] == "shared"
    cluster.run("ctl", ["scancel", str(job.id)])
    cluster.wait_until(cluster.nodes_idle, WAIT_S, "all nodes to be idle")
    assert runs(job) == [first_of(job, first)]


def forgotten_job(cluster: Cluster, rng: random.Random) -> None:
    """The job is forgotten: its id is the next one's, which is another job and is not refused."""
    forget_from_now_on(cluster)
    lost = begin(cluster, shared=rng.random() < 0.5)
    running(lost)
    time.sleep(rng.uniform(0, WINDOW_S / 2))
    stop(cluster)
    start(cluster)
    assert cluster.job(lost.id) is None
    lost_is_gone(cluster)
    job = begin(cluster, shared=rng.random() < 0.5)
    assert job.id == lost.id
    found = running(job)
    assert starts(job) == runs(job) == [first_of(job, found.start_time)]
    assert job.notes("refused") == lost.notes("refused") == []
    cluster.run("ctl", ["scancel", str(job.id)])
    cluster.wait_until(cluster.nodes_idle, WAIT_S, "all nodes to be idle")


def by_chance(cluster: Cluster, rng: random.Random) -> None:
    """Killed at any moment of the window: whatever slurmctld knows then, no epoch has two runs."""
    cluster.save_state()  # otherwise it forgets that the jobs of the round before were cancelled
    shared = rng.random() < 0.5 or not cluster.tells_starts  # of others' the gate of 22.05 knows nothing
    job = begin(cluster, shared=shared)
    first = running(job).start_time
    time.sleep(rng.uniform(0, WINDOW_S))
    stop(cluster)
    start(cluster, after=first)

    def over() -> bool:
        """It runs on, is refused, or is forgotten."""
        found = cluster.job(job.id)
        if found is None or job.notes("refused"):
            return True
        return found.states == ("RUNNING",) and cluster.node_states()[found.nodes[0]] in ("mixed", "allocated")

    cluster.wait_until(over, WAIT_S, f"job {job.id} to run on, to be refused, or to be forgotten")
    if cluster.job(job.id) is None:
        lost_is_gone(cluster)
    other = begin(cluster)
    running(other)
    cluster.run("ctl", ["scancel", str(job.id), str(other.id)], check=False)
    cluster.wait_until(cluster.nodes_idle, WAIT_S, "all nodes to be idle")
    for one in (job, other):
        seen = runs(one)
        if not cluster.tells_starts:
            assert len(seen) == 1, f"a shared job ran twice, or another one that nothing happened to: {seen}"
        assert len({restart for restart, _ in seen}) == len(set(seen)), f"one restart count ran twice: {seen}"
        known = dict(starts(one))
        assert set(seen) <= set(known.items())
        for refused in one.notes("refused"):
            assert refused["why"] in {"double_start", "shared"}
            assert refused["why"] == "shared" or known[refused["restart"]] != refused["start_time"]
    assert other.notes("refused") == []


@pytest.mark.parametrize("crash", [forgotten_start, forgotten_job, by_chance])
def test_slurmctld_killed_soon_after_a_start(
    quiet: Cluster, rng: random.Random, crash: Callable[[Cluster, random.Random], None]
) -> None:
    """DISPATCH_CRASHES_S gives each kind more time than a round takes."""
    ends_at = time.monotonic() + CRASHES_S
    while True:
        crash(quiet, rng)
        nodes_take_jobs(quiet)
        if time.monotonic() >= ends_at:
            break
