"""Dependencies on jobs of the caller's own: what ``dispatch sbatch`` and ``dispatch plan`` say of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from slurm_dispatch.records.fold import fold
from slurm_dispatch.state.as_user import in_child
from slurm_dispatch.submit.depends import unmet
from tests.records.life import Life
from tests.submit.scene import DEADLINE_S, Scene

if TYPE_CHECKING:
    from slurm_dispatch.state.jobs import Record


def submitted(scene: Scene, name: str) -> Record:
    """A job of that name; its record."""
    scene.root = scene.path / "scratch" / name
    assert scene.sbatch("--no-plan", "-J", name, "train.sh").status == 0
    return next(record for record in scene.records() if record.read()[0].body["name"] == name)


def add(scene: Scene, record: Record, kind: str, **body: Any) -> None:
    """Add a fact, as a tick does."""

    def work() -> bytes:
        assert record.append(len(record.read()) + 1, kind, "tick@ctl", body)
        return b""

    in_child(scene.uid, scene.gid, (), work, DEADLINE_S)


def closed(scene: Scene, record: Record, why: str) -> None:
    """The job ends and is closed for that reason."""
    number = record.read()[-1].body["slurm_job_id"]
    outcome = "completed" if why == "completed" else "failed"
    add(
        scene, record, "end", submission=1, slurm_job_id=number, restart=None, start_time=None, outcome=outcome,
        evidence={}, final=True,
    )  # fmt: skip
    add(scene, record, "closed", why=why, reason="")


def said(scene: Scene, dependency: str, *more: str) -> list[str]:
    """The notes of a submission with this dependency, which passes through to sbatch as it is."""
    scene.root = scene.path / "scratch" / "last"
    before = len(scene.calls("sbatch"))
    result = scene.sbatch("--no-plan", "-d", dependency, *more, "train.sh")
    assert result.status == 0, result
    calls = scene.calls("sbatch")
    assert len(calls) == before + 1
    argv = calls[-1].argv
    assert argv[argv.index("-d") + 1] == dependency
    return [line.removeprefix("note: ") for line in result.ours if line.startswith("note: ")]


@pytest.mark.parametrize(
    ("why", "condition", "warns"),
    [
        ("failed", "afterok", True),
        ("cancelled", "afterok", True),
        ("hold_expired", "aftercorr", True),
        ("failed", "afterany", False),
        ("failed", "afternotok", False),
        ("completed", "afterok", False),
        ("completed", "afternotok", True),
    ],
)
def test_a_dependency_on_a_job_that_is_closed(scene: Scene, why: str, condition: str, *, warns: bool) -> None:
    """C084: it passes through, and what is known of the job is said: Slurm may have forgotten it."""
    record = submitted(scene, "first")
    closed(scene, record, why)
    notes = said(scene, f"{condition}:101")
    assert len(notes) == warns
    if warns:
        assert notes[0].startswith(f"{condition}:101 can never be met: Slurm job 101 was of job {record.key}")
        assert f"closed ({why})" in notes[0]


def test_an_id_that_a_job_has_left_behind(scene: Scene) -> None:
    """C084, C083: the job goes on under another one."""
    record = submitted(scene, "first")
    add(scene, record, "end", submission=1, slurm_job_id=101, restart=None, start_time=None, outcome="timeout",
        evidence={}, final=True)  # fmt: skip
    decision = {
        "on": 4, "outcome": "timeout", "action": "resubmit", "rule": "timeout:resubmit", "budget_used": 0,
        "budget": None, "reason": "", "submission": 2, "not_before": None, "close": None,
    }  # fmt: skip
    add(scene, record, "decision", **decision)
    (note,) = said(scene, "afterok:101:7")
    assert f"Slurm job 101 is over, and job {record.key} (first) is to be submitted again" in note
    add(scene, record, "intent", submission=2, word=f"dispatch:{record.key}:0:2", host="h", deadline=1.0, wait_s=1.0,
        changes=[], decision=5)  # fmt: skip
    add(scene, record, "submitted", submission=2, cluster="alpha", slurm_job_id=150, how="answer")
    (note,) = said(scene, "afterok:101")
    assert "goes on as Slurm job 150: depend on that one" in note
    assert said(scene, "afterok:150") == []
    add(scene, record, "end", submission=2, slurm_job_id=150, restart=None, start_time=None, outcome="completed",
        evidence={}, final=True)  # fmt: skip
    add(scene, record, "closed", why="completed", reason="")
    (note,) = said(scene, "afterok:101")  # Slurm goes by the end of that one
    assert "afterok:101 can never be met: job" in note
    assert note.endswith("went on as Slurm job 150, and is closed (completed)")
    assert said(scene, "afterok:150,afterany:101") == []


def test_what_begins_at_the_first_end(scene: Scene) -> None:
    """C083: afterany and afternotok are met before anybody can submit the job again."""
    submitted(scene, "first")
    for condition in ("afterany", "afternotok"):
        (note,) = said(scene, f"{condition}:101")
        assert "is met by the first end of Slurm job 101" in note
        assert note.endswith("afterok waits for the job")
    assert said(scene, "afterok:101,after:101,singleton") == []
    assert said(scene, "afterok:7?afterany:8") == []  # nothing is known of these


def test_the_plan_says_it_too_and_a_directive_counts(scene: Scene) -> None:
    """C084: before anything starts."""
    record = submitted(scene, "first")
    closed(scene, record, "failed")
    name = scene.write("b.sh", "#!/bin/sh\n#SBATCH -d afterok:101\nexec dispatch-watch -- true\n")
    result = scene.run("plan", "--checkpoint", str(scene.root), name)
    text = " ".join(result.stdout.decode().split())
    assert f"note: afterok:101 can never be met: Slurm job 101 was of job {record.key} (first)" in text


def test_when_a_dependency_counts_as_met() -> None:
    """C084: an object that started, got nodes, or ended by itself had its turn; one cancelled in the queue not."""
    assert unmet(Life().intent(1).submitted(1).state)
    assert unmet(Life().intent(1).submitted(1).end(1, "cancelled").state)
    assert not unmet(Life().run(1).state)
    assert not unmet(Life().intent(1).submitted(1).end(1, "launch_failed").state)
    life = Life().intent(1).submitted(1)
    refused = {"submission": 1, "slurm_job_id": 101, "restart": 0, "start_time": 5.0, "why": "refuse"}
    assert not unmet(fold(life.add("refused", **refused).facts))
