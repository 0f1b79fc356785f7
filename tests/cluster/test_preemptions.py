"""60 preemptions in a row of one job: what its checkpoint root holds stays within the bound that the plan printed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pytest

from demo.mainjob import MainJob
from docker.rig import HOSTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from docker.rig import Cluster

pytestmark = pytest.mark.cluster
ROUNDS = 60
LINGER_S = "3"
"""How long an execution writes on after SIGTERM: with all of KillWait (10 s) 60 rounds take a quarter of an hour."""
FILES_OF_A_SAVE = 5
"""Its folder, and the four files that the training writes."""
SKELETON = re.compile(r"exec(/[a-z0-9]+(/kept|/resume)?)?\Z")
"""The folders that an execution has whether it holds saves or not."""
OWN = re.compile(r"exec/[a-z0-9]+/\.dispatch(/.*)?\Z")
OWN_OF_AN_EXECUTION = 6
"""The helper's folder with choice, run-1 and run-1.end, and what may be in the making."""
SAVE = re.compile(r"(exec/[a-z0-9]+/(?:kept/|resume/)?(?:checkpoint-[0-9]+|\.tmp-[0-9a-f]+))(/.*)?\Z")


@pytest.fixture
def quick(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster without the 3 s that Slurm lets pass before a batch job starts; nothing else differs."""
    for host in HOSTS:
        cluster.run(host, ["sed", "-i", "s/^SchedulerParameters=/&batch_sched_delay=0,/", "/etc/slurm/slurm.conf"])
    cluster.run("ctl", ["scontrol", "reconfigure"])
    yield cluster
    for host in HOSTS:
        cluster.run(host, ["sh", "/src/docker/install", "settings"])
    cluster.run("ctl", ["scontrol", "reconfigure"])


@dataclass(frozen=True, slots=True)
class Held:
    """What the saves in a root take: how many there are, their bytes on disk, their files and folders.

    :param largest: bytes of the largest of them.
    :param own: the helper's own small files beside them.
    """

    saves: int
    size: int
    inodes: int
    largest: int
    own: int


def held(job: MainJob) -> Held:
    """Look into the root. A file with several names is one file; one that goes while it is looked at is none."""
    show = f"cd {job.root} && find exec -printf '%D:%i %b %p\\n' 2>/dev/null; :"
    inodes: dict[str, int] = {}
    saves: dict[str, dict[str, int]] = {}
    own = 0
    for line in job.cluster.sh("login", show).splitlines():
        inode, blocks, path = line.split(" ", 2)
        match = SAVE.match(path)
        if OWN.match(path):
            own += 1
        elif match is None:
            assert SKELETON.match(path), f"nobody knows what {path} is for"
        else:
            inodes[inode] = int(blocks) * 512
            saves.setdefault(match[1], {})[inode] = int(blocks) * 512
    sizes = [sum(files.values()) for files in saves.values()]
    return Held(len(saves), sum(inodes.values()), len(inodes), max(sizes, default=0), own)


def bound_of_plan(job: MainJob) -> int:
    """How many saves ``dispatch plan`` says that there are at most."""
    said = job.cluster.run("login", ["dispatch", "plan", f"{job.folder}/train.sh"], user=job.user).stdout
    found = re.search(r"space: at most ([0-9]+) saves stay in the root at a time", said)
    assert found, said
    return int(found[1])


def published_after(job: MainJob, epoch: int) -> dict[int, int]:
    """How many publications each execution above ``epoch`` has."""
    counts: dict[int, int] = {}
    for name in job.cluster.sh("login", f"ls {job.root}/pub 2>/dev/null; :").split():
        found = int(name.split("-")[0])
        if found > epoch:
            counts[found] = counts.get(found, 0) + 1
    return counts


def preempt(job: MainJob, rounds: int) -> None:
    """Let ``high`` take the job's node. srun is scheduled at once; it is left to itself, since it has to wait."""
    running = ["squeue", "-h", "-u", job.user, "-n", job.name, "-t", "RUNNING", "-o", "%N"]

    def where() -> str:
        return job.cluster.run("ctl", running).stdout.strip()

    node = job.wait(f"round {rounds}: the job to run", where)
    line = f"srun -p high -w {node} --exclusive -n1 -t1 -J preemptor true </dev/null >/dev/null 2>&1 &"
    job.cluster.sh("login", line, user="ben")


def old_ones_gone(job: MainJob) -> bool:
    """Whether one object at most is left of the job and of who preempts it: no replaced execution still writes."""
    left = ["squeue", "-h", "-n", f"{job.name},preemptor", "-t", "all", "-o", "%i %T"]
    states = [line.split()[1] for line in job.cluster.run("ctl", left).stdout.splitlines()]
    return sum(state in {"RUNNING", "COMPLETING", "CONFIGURING", "PENDING"} for state in states) <= 1


def test_sixty_preemptions_stay_within_the_bound_of_the_plan(quick: Cluster) -> None:
    """Each execution publishes, is preempted, and writes on for a while before it ends."""
    job = MainJob(quick, "often").submit(
        ["--ntasks=1"], ["--linger", LINGER_S], rule=f"preempted:resubmit,budget={ROUNDS}",
        step_time_s=0.05, save_steps=4,
    )
    try:
        most = bound_of_plan(job)
        epoch = 0
        for rounds in range(ROUNDS + 1):
            epoch = next_execution(job, epoch, rounds)
            found = held(job)
            assert 0 < found.saves <= most, f"round {rounds}: {found}, and at most {most} saves were said"
            assert found.size <= most * found.largest, f"round {rounds}: {found}"
            assert found.inodes <= most * FILES_OF_A_SAVE, f"round {rounds}: {found}"
            few = (rounds + 1) * OWN_OF_AN_EXECUTION + 2 * most
            assert found.own <= few, f"round {rounds}: {found}, and the helper's own files should be {few} at most"
            if rounds < ROUNDS:
                job.wait(f"round {rounds}: the execution before to be gone", partial(old_ones_gone, job))
                preempt(job, rounds)
        closed = job.finish()
    finally:
        job.stop()
    assert closed["why"] == "completed", job.picture()
    outcomes = [fact["outcome"] for fact in job.facts_of("decision")]
    assert outcomes == ["preempted"] * ROUNDS + ["completed"], job.picture()
    assert job.broken() == [], job.picture()


def next_execution(job: MainJob, epoch: int, rounds: int) -> int:
    """Wait until an execution above ``epoch`` has published three times; its epoch."""

    def found() -> int | None:
        return next((later for later, count in sorted(published_after(job, epoch).items()) if count >= 3), None)

    return job.wait(f"round {rounds}: an execution above epoch {epoch} to publish three times", found)
