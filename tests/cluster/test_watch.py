"""dispatch-watch inside jobs of the real cluster: ranks, signals, torn saves, and a run that does not resume."""

from __future__ import annotations

import re
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from slurm_dispatch.model.publication import parse_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from docker.rig import Cluster, Job

TRAINER = Path(__file__).parents[1] / "watch" / "trainer.py"
ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "OUT_OF_MEMORY", "NODE_FAIL", "PREEMPTED")
DEADLINE_S = 120.0
WATCH_SRUN = "dispatch-watch --interval 1 --done done -- srun TRAIN "


class Work:
    """A job key with a root, in a folder of ada's that every host sees."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.key = "w" + secrets.token_hex(5)
        home = cluster.sh("login", "cd && pwd", user="ada").strip()
        self.folder = f"{home}/{self.key}"
        self.root = f"{self.folder}/root"
        self.gates = f"{self.folder}/gates"
        cluster.write(f"{self.folder}/trainer.py", TRAINER.read_text(encoding="utf-8"), user="ada")
        cluster.sh("login", f"mkdir -p {self.root} {self.gates}", user="ada")

    def submit(self, number: int, command: str, *options: str) -> int:
        """Submit execution ``number`` of the job; its last line is ``exec`` and the command."""
        line = command.replace("TRAIN", f"python3 {self.folder}/trainer.py {self.gates} {{dir}}")
        return self.submit_script(number, f"exec {line}\n", *options)

    def submit_script(self, number: int, lines: str, *options: str) -> int:
        """Submit execution ``number`` of the job, with these lines as its script."""
        script = f"#!/bin/sh\n{lines}"
        word = f"dispatch:{self.key}:0:{number}"
        common = [f"--comment={word}", "--no-requeue", f"--output={self.folder}/out-{number}"]
        return self.cluster.submit(
            "ada", script, [*common, *options], env={"SLURM_DISPATCH_CHECKPOINT": self.root}, cwd=self.folder
        )

    def output(self, number: int) -> str:
        return self.cluster.sh("login", f"cat {self.folder}/out-{number} 2>/dev/null || :")

    def until_said(self, number: int, text: str) -> None:
        self.cluster.wait_until(
            lambda: text in self.output(number) or None, DEADLINE_S, f"{text!r} in the output of execution {number}"
        )

    def until_passed(self, gate: str) -> None:
        self.cluster.wait_until(
            lambda: self.cluster.sh("login", f"test -e {self.gates}/{gate} && echo yes || :") or None,
            DEADLINE_S,
            f"the gate {gate}",
        )

    def open(self, gate: str) -> None:
        self.cluster.sh("login", f"touch {self.gates}/{gate}", user="ada")

    def end(self, job: int) -> Job:
        return self.cluster.wait_job(job, ENDED, DEADLINE_S)

    def published(self) -> list[tuple[int, int]]:
        """(submission, step), latest first."""
        names = self.cluster.sh("login", f"ls {self.root}/pub 2>/dev/null || :").split()
        found = sorted((parse_name(name) for name in names), reverse=True)
        return [(one.epoch // 10**6 % 10**6, one.step) for one in found]


@pytest.fixture
def work(cluster: Cluster) -> Work:
    """A job of ada's that nothing was submitted for."""
    return Work(cluster)


def test_a_trainer_killed_half_way_through_a_save(work: Work) -> None:
    """C054: the helper lives on; the torn save is never published, and the next execution resumes from the last."""
    command = (
        "dispatch-watch --steps --interval 1 --settle 2 --done done -- sh -c "
        "'srun \"$@\"; touch GATES/died; while [ ! -e GATES/over ]; do sleep 0.2; done' sh "
    ).replace("GATES", work.gates)
    job = work.submit(1, command + "TRAIN save 10 wait one torn 20")
    work.until_said(1, "published step 10")
    work.open("one")
    work.until_passed("died")
    # Longer than --settle: what is torn does not change any more, and has no marker.
    work.until_said(1, "has no done")
    work.open("over")
    work.end(job)
    assert work.published() == [(1, 10)]
    again = work.submit(2, "dispatch-watch --interval 1 --done done -- srun TRAIN save 30 exit 0")
    assert work.end(again).exit_status == 0, work.output(2)
    assert "resumes from" in work.output(2)
    assert "checkpoint-10" in work.output(2)
    assert work.published() == [(2, 30), (1, 10)]


def test_a_helper_beside_real_steps(work: Work) -> None:
    """``--beside`` next to srun: ended by ``--finish`` at first, and by itself once no step is left."""
    begin = 'eval "$(dispatch env --prepare)"\ndispatch-watch --interval 1 --done done --beside &\nhelper=$!\n'
    train = f'srun python3 {work.folder}/trainer.py {work.gates} "$DISPATCH_DIR" '
    first = work.submit_script(1, f"{begin}{train}save 10 exit 0\ndispatch-watch --finish --status $?\n")
    assert work.end(first).exit_status == 0, work.output(1)
    assert work.published() == [(1, 10)]
    # Nothing tells when the helper has seen the step: it asks Slurm each 20 s, and this is time for two questions.
    lines = f"{begin}echo from $DISPATCH_RESUME_STEP\n{train}save 30 wait seen exit 0\nwait $helper\n"
    second = work.submit_script(2, lines)
    work.until_said(2, "published step 30")
    squeue = f"squeue --noheader --steps --jobs={second} --format=%i"
    work.cluster.wait_until(lambda: f"{second}.0" in work.cluster.sh("login", squeue) or None, DEADLINE_S, "the step")
    work.cluster.sh("login", "sleep 45")
    work.open("seen")
    assert work.end(second).exit_status == 0, work.output(2)
    assert "from 10\n" in work.output(2)
    assert "no other step of the job is left" in work.output(2)
    assert work.published() == [(2, 30), (1, 10)]


def test_a_run_that_does_not_resume(work: Work) -> None:
    """C097: nothing of it is published, the good lineage stays the latest, and the job ends with 80."""
    first = work.submit(1, "dispatch-watch --interval 1 --done done -- srun TRAIN save 100 exit 0")
    assert work.end(first).exit_status == 0, work.output(1)
    second = work.submit(2, "dispatch-watch --interval 1 --done done --grace 2 -- srun TRAIN save 5 wait never")
    assert work.end(second).exit_status == 80, work.output(2)
    assert "did not resume" in work.output(2)
    assert work.published() == [(1, 100)]


def test_every_rank_of_two_nodes_gets_the_same(work: Work) -> None:
    """The helper before srun: folder and save reach the ranks through TaskProlog, also with --export=NONE."""
    first = work.submit(1, "dispatch-watch --interval 1 --done done -- srun -n1 -N1 TRAIN save 10 exit 0")
    assert work.end(first).exit_status == 0, work.output(1)
    names = "$DISPATCH_EPOCH $DISPATCH_ATTEMPT $DISPATCH_DIR $DISPATCH_RESUME $DISPATCH_RESUME_STEP"
    show = f"/bin/sh -c 'echo rank:$SLURM_PROCID: {names}'"
    second = work.submit(2, f"dispatch-watch --interval 1 --done done -- srun --export=NONE {show}", "-N2", "-n4")
    assert work.end(second).exit_status == 0, work.output(2)
    lines = re.findall(r"rank:(\d): (.*)", work.output(2))
    assert sorted(rank for rank, _ in lines) == ["0", "1", "2", "3"]
    assert len({text for _, text in lines}) == 1
    words = lines[0][1].split()
    assert words[0] == "2000000"
    assert words[2] == f"{work.root}/exec/{words[1]}"
    assert words[3].startswith(f"{words[2]}/resume/")
    assert words[4] == "10"


def test_one_of_four_ranks_publishes(work: Work) -> None:
    """C108: a helper on each rank behind srun; one choice, one publication."""
    # Rank 3 saves; rank 0, whose helper publishes, ends only after that.
    work.cluster.write(
        f"{work.folder}/rank.sh",
        f"""
        echo "rank:$SLURM_PROCID: $DISPATCH_DIR"
        if [ "$SLURM_PROCID" = 3 ]; then
            python3 {work.folder}/trainer.py {work.gates} "$DISPATCH_DIR" save 10 touch saved exit 0
        fi
        until [ -e {work.gates}/saved ]; do sleep 0.2; done
        """,
        user="ada",
    )
    command = f"srun dispatch-watch --interval 1 --done done -- sh {work.folder}/rank.sh"
    job = work.submit(1, command, "-N2", "-n4")
    assert work.end(job).exit_status == 0, work.output(1)
    assert work.published() == [(1, 10)]
    told = re.findall(r"rank:\d: (.*)", work.output(1))
    assert len(told) == 4
    assert len(set(told)) == 1
    assert work.output(1).count("published step 10") == 1


@pytest.fixture
def patient(cluster: Cluster) -> Iterator[None]:
    """Nodes that give what they have told to end all the time that it needs, where Slurm's KillWait is 10 s here."""
    for node in cluster.nodes:
        cluster.run(node, ["sed", "-i", "s/^KillWait=.*/KillWait=300/", "/etc/slurm/slurm.conf"])
        restart_slurmd(cluster, node)
    yield
    cluster.wait_until(cluster.nodes_idle, DEADLINE_S, "all nodes to be idle")
    for node in cluster.nodes:
        cluster.run(node, ["sh", "/src/docker/install", "settings"])
        restart_slurmd(cluster, node)
    cluster.wait_until(cluster.nodes_idle, DEADLINE_S, "all nodes to be idle")


def restart_slurmd(cluster: Cluster, node: str) -> None:
    cluster.fault("kill-slurmd", node)
    cluster.fault("heal", node)


@pytest.mark.usefixtures("patient")
def test_scancel_leaves_the_tasks_time_for_a_save(work: Work) -> None:
    """The tasks hear SIGTERM from Slurm, srun none from the helper; what they save then is published."""
    command = WATCH_SRUN + "trap TERM save 10 touch ready wait got-TERM save 20 wait published exit 0"
    job = work.submit(1, command)
    work.until_said(1, "published step 10")
    work.cluster.run("login", ["scancel", str(job)], user="ada")
    work.until_passed("got-TERM")
    # Slurm has ended it, and its task runs on: in the text of 22.05 the flag hides the state.
    work.cluster.wait_job(job, ("CANCELLED", "COMPLETING"), DEADLINE_S)
    work.cluster.wait_until(
        lambda: work.published() == [(1, 20), (1, 10)] or None, DEADLINE_S, "the save made after SIGTERM in pub/"
    )
    work.open("published")


def test_a_signal_for_the_batch_script_alone_reaches_the_tasks(work: Work) -> None:
    """C051: scancel --batch sends TERM to the helper only; it tells the steps, and the job ends by itself."""
    command = WATCH_SRUN + "trap TERM save 10 touch ready wait got-TERM save 20 exit 0"
    job = work.submit(1, command)
    work.until_said(1, "published step 10")
    work.cluster.run("login", ["scancel", "--batch", "--signal=TERM", str(job)], user="ada")
    assert work.end(job).exit_status == 0, work.output(1)
    assert work.published() == [(1, 20), (1, 10)]


def test_the_user_s_signal_reaches_the_tasks_through_srun(work: Work) -> None:
    """C051: USR1 for the batch script goes through the helper and srun to the tasks, and ends nothing."""
    command = WATCH_SRUN + "trap USR1 save 10 touch ready wait got-USR1 save 20 exit 3"
    job = work.submit(1, command)
    work.until_said(1, "published step 10")
    work.cluster.run("login", ["scancel", "--batch", "--signal=USR1", str(job)], user="ada")
    assert work.end(job).exit_status == 3, work.output(1)
    assert work.published() == [(1, 20), (1, 10)]
