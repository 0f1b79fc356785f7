"""What persons do to a job, on the real cluster: hold, release, update, reopen, supersede, adopt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from slurm_dispatch.model.epoch import Epoch
from slurm_dispatch.model.publication import parse_name
from tests.cluster.jobs import LONG_S, Jobs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from docker.rig import Cluster

TRAIN = """#!/bin/sh
# Saves step N when somebody makes the file save-<epoch>-N, and ends with status S at end-<epoch>-S.
echo "${DISPATCH_RESUME_STEP:-none}" >".resumed" && mv .resumed "resumed-$DISPATCH_EPOCH"
while :; do
    for name in save-"$DISPATCH_EPOCH"-*; do
        test -e "$name" || continue
        save=$DISPATCH_DIR/checkpoint-${name##*-}
        mkdir "$save" && echo weights >"$save/weights" && echo >"$save/done" && rm "$name"
    done
    for name in end-"$DISPATCH_EPOCH"-*; do
        test -e "$name" && exit "${name##*-}"
    done
    sleep 0.2
done
"""
SCRIPT = "#!/bin/sh\nexec dispatch-watch --interval 1 --done done -- sh train\n"
ONE_TASK = ("--partition=low", "--ntasks=1", "--mem=50M")


class Run:
    """One training of ada's, which does what it is told."""

    def __init__(self, jobs: Jobs, *options: str, rules: tuple[str, ...] = ()) -> None:
        self.jobs, self.cluster = jobs, jobs.cluster
        self.key = jobs.submit(SCRIPT, *ONE_TASK, *options, rules=rules)
        self.folder = jobs.folder
        self.tell("train", TRAIN)

    def tell(self, name: str, content: str = "") -> None:
        """A file in the training's folder."""
        self.cluster.write(f"{self.folder}/{name}", content, user="ada")

    def started(self, key: str, submission: int) -> str:
        """Wait until this submission's training runs; its epoch."""

        def there() -> str | None:
            facts = [it for it in self.jobs.facts(key) if it["kind"] == "started" and it["submission"] == submission]
            return str(facts[-1]["epoch"]) if facts else None

        return self.cluster.wait_until(there, LONG_S, f"submission {submission} of job {key} to start")

    def resumed(self, epoch: str) -> str:
        """The step that this execution resumed from, or ``none``."""
        path = f"{self.folder}/resumed-{epoch}"

        def said() -> str | None:
            return self.cluster.run("login", ["cat", path], check=False).stdout.strip() or None

        return self.cluster.wait_until(said, LONG_S, f"{path} to be there")

    def saves(self, epoch: str, step: int) -> None:
        """Let it save, and wait until that is published."""
        self.tell(f"save-{epoch}-{step}")
        self.cluster.wait_until(
            lambda: (int(epoch), step) in self.published(), LONG_S, f"step {step} of epoch {epoch} to be published"
        )

    def published(self) -> list[tuple[int, int]]:
        """(epoch, step) of every publication, latest first."""
        return [(it.epoch, it.step) for it in sorted(map(parse_name, self.names()), reverse=True)]

    def names(self) -> list[str]:
        """The publications."""
        return self.cluster.run("login", ["ls", f"{self.folder}/root/pub"], check=False).stdout.split()

    def says(self, *words: str, status: int = 0) -> str:
        """What the command says to ada."""
        done = self.cluster.run(
            "login", ["dispatch", *words], user="ada", cwd=self.folder, timeout_s=LONG_S, check=False
        )
        assert done.status == status, (words, done.status, done.stdout, done.stderr)
        return done.stdout if status == 0 else done.stderr

    def decided(self, key: str, count: int) -> dict[str, Any]:
        """Wait until so many decisions are there; the last one."""
        return self.jobs.wait(key, "decision", count)


@pytest.fixture(scope="module")
def jobs(cluster: Cluster) -> Jobs:
    return Jobs(cluster)


@pytest.fixture(autouse=True)
def clean(cluster: Cluster) -> Iterator[None]:
    """Each test leaves no job behind."""
    yield
    cluster.run("ctl", ["scancel", "-u", "ada"], check=False)


def test_superseded_while_it_runs_and_its_later_save_adopted(jobs: Jobs) -> None:
    """The new job resumes from the old one's latest and outranks what the old one saves later, which is then given
    to it nevertheless."""
    run = Run(jobs, rules=("failed:hold",))
    old = run.started(run.key, 1)
    assert run.resumed(old) == "none"
    run.saves(old, 100)

    said = run.says("supersede", run.key, "--keep-running", "--reason", "a lower rate")
    assert "runs on, and its saves count no more" in said
    key = said.split()[1]
    new = run.started(key, 1)
    assert int(new) == int(Epoch(1, 1, 0))
    assert run.resumed(new) == "100"
    run.saves(new, 110)
    run.saves(old, 900)  # the ghost goes on, and is outranked
    assert run.published()[:2] == [(int(new), 110), (int(old), 900)]

    ghost = next(name for name in run.names() if parse_name(name).step == 900)
    assert "its next save would outrank what is adopted" in run.says("adopt", key, ghost, "--reason", "x", status=64)
    run.tell(f"end-{new}-3")
    assert run.decided(key, 1)["action"] == "hold"
    said = run.says("adopt", key, ghost, "--reason", "the higher rate was right")
    assert "step 900 is the latest now" in said
    assert run.published()[0] == (int(Epoch(1, 2, 0)), 900)
    assert "submission 3 is Slurm job" in run.says("release", key, "--reason", "go on")
    assert run.resumed(run.started(key, 3)) == "900"
    assert all("the same" in line for line in run.says("replay", key).splitlines())
    assert f"in place of job {run.key}" in run.says("show", key, "--facts")
    run.says("cancel", key)


def test_held_changed_released_closed_opened_and_superseded(jobs: Jobs) -> None:
    run = Run(jobs, "--time=30", rules=("failed:resubmit",))
    first = run.started(run.key, 1)
    run.saves(first, 10)
    assert "runs on, and nothing follows it" in run.says("hold", run.key, "--reason", "the loss looks wrong")
    assert "not yet: running" in run.says("holds")
    assert "submission 2 will have --time=33" in run.says("update", run.key, "-t", "33", "--reason", "slower")
    run.tell(f"end-{first}-3")
    assert run.decided(run.key, 1)["why"] == "person"
    run.jobs.settled(run.key, 1)
    assert "the loss looks wrong" in run.says("holds")
    assert "submission 2 is Slurm job" in run.says("release", run.key, "--reason", "it was the plot")
    second = run.started(run.key, 2)
    assert run.resumed(second) == "10"
    number = run.jobs.running(run.key, 2)
    shown = run.cluster.run("ctl", ["squeue", "-h", "-o", "%l", "-j", str(number)]).stdout.strip()
    assert shown == "33:00"

    run.says("cancel", run.key, "--reason", "enough")
    run.jobs.wait(run.key, "closed")
    assert "submission 3 is Slurm job" in run.says("reopen", run.key, "--reason", "not enough")
    third = run.started(run.key, 3)
    assert run.resumed(third) == "10"
    number = run.jobs.running(run.key, 3)

    run.tell("lower.sh", SCRIPT)
    said = run.says("supersede", run.key, "--", "--no-plan", *ONE_TASK, "--time=20", "lower.sh")
    assert f"the old one's Slurm job {number} is cancelled" in said
    key = said.split()[1]
    assert run.resumed(run.started(key, 1)) == "10"
    run.cluster.wait_job(number, ["CANCELLED"], LONG_S)
    run.jobs.settled(run.key, 3)
    assert f"job {key} goes on in place" in run.says("supersede", run.key, status=64)
    run.says("cancel", key)
