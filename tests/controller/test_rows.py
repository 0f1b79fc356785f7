"""Which rows of accounting end the current object, where ids begin again within minutes and no row has a word."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from slurm_dispatch.controller.rows import Rows, rows_of
from slurm_dispatch.slurm.port import Present
from tests.controller.rig import Rig

if TYPE_CHECKING:
    from pathlib import Path

    from slurm_dispatch.records.state import State, Submission
    from slurm_dispatch.slurm.port import JobDetail


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def row_before(rig: Rig, number: int, seconds: int, **fields: Any) -> dict[str, Any]:
    """Of another job of the owner with the same id, which was over so long before this one was submitted."""
    job = rig.slurm.job(number)
    at = job["submit_time"] - seconds
    more = {"comment": "", "states": ["COMPLETED"], "submit_time": at, "start_time": at, "end_time": at + 5}
    return {**job, **more, **fields}


def test_a_row_without_a_word_does_not_end_what_lives_without_one(rig: Rig) -> None:
    """C061, C063: the owner edited the word out of a comment, and the id was another job's a minute before."""
    key = rig.job("failed:stop")
    rig.tick()
    number = rig.object(key)
    rig.slurm.set(number, comment="", rows=[row_before(rig, number, 60)])
    facts = rig.kinds(key)
    rig.settle()
    assert rig.kinds(key) == facts
    rig.slurm.forget(number)
    rig.settle()
    assert rig.kinds(key) == facts
    said = f"Slurm job {number} is not in the queue, and accounting has what can be another's of the same id"
    assert said in str(rig.reports[key].trouble)


def test_a_start_that_a_hook_noted_tells_the_rows_apart(rig: Rig) -> None:
    """C061, C063: the same, but the hook noted the start with the word: its row is the object's."""
    key = rig.job("failed:stop")
    number = rig.object(key)
    rig.start(key)
    rig.settle()
    rig.slurm.end(number, "FAILED", exit_status=1)
    rig.slurm.set(number, comment="", rows=[row_before(rig, number, 60)])
    rig.slurm.forget(number)
    rig.settle()
    assert (rig.last(key, "end").body["outcome"], rig.state(key).phase.value) == ("failed", "closed")


def test_who_cancelled_the_job_before_did_not_cancel_this_one(rig: Rig) -> None:
    """C061, C063: an owner who cancelled a plain job did not cancel his next one, which has its id."""
    key = rig.job("cancelled:hold")
    rig.tick()
    number = rig.object(key)
    before = row_before(rig, number, 60, states=["CANCELLED"], by_uid=rig.uid)
    rig.slurm.end(number, "CANCELLED", by_uid=0)
    rig.slurm.set(number, rows=[before], accounting_live=False)
    rig.tick()
    assert "end" not in rig.kinds(key)
    rig.slurm.set(number, accounting_live=True)
    rig.settle()
    assert rig.last(key, "end").body["evidence"]["by_uid"] == 0


def parts(rig: Rig, key: str) -> tuple[State, Submission, JobDetail]:
    """The state, its current submission, and the object as accounting has it without a word."""
    state, number = rig.state(key), rig.object(key)
    assert state.current is not None
    answer = rig.slurm.accounting([number])[number]
    assert isinstance(answer, Present)
    return state, state.current, replace(answer.value[0], word=None, restart=0)


def test_rows_of_one_object(rig: Rig) -> None:
    """A requeue has another time of submission and a count; without counts (22.05) each later row is a requeue."""
    state, submission, row = parts(rig, rig.job())
    assert row.submit_time is not None
    again = replace(row, submit_time=row.submit_time + 60, restart=1)
    assert rows_of([again, row], state, submission, None) == Rows((row, again))
    bare = [replace(it, restart=None) for it in (row, again)]
    assert rows_of(bare, state, submission, None) == Rows(tuple(bare))
    assert rows_of([replace(row, uid=row.uid + 1)], state, submission, None) == Rows()


def test_rows_that_can_be_of_another_object_are_doubtful(rig: Rig) -> None:
    """C061, C063: two first starts in time, or a submission of the job's own with the same id."""
    state, submission, row = parts(rig, rig.job())
    assert row.submit_time is not None
    other = replace(row, submit_time=row.submit_time + 60)
    assert rows_of([row, other], state, submission, None).doubtful
    late = replace(row, submit_time=row.submit_time + 86400)
    assert not rows_of([row, late], state, submission, None).doubtful
    sibling = replace(submission, number=submission.number + 1)
    assert rows_of([row], replace(state, submissions=(submission, sibling)), submission, None).doubtful
    word = state.spec.word(submission.number)
    assert rows_of([row, replace(other, word=word)], state, submission, None).doubtful is False


def test_what_was_never_requeued_has_one_time_of_submission(rig: Rig) -> None:
    """C061, C063: slurmctld's own record of the object says which rows are of another one."""
    state, submission, row = parts(rig, rig.job())
    assert row.submit_time is not None
    before = replace(row, submit_time=row.submit_time - 60)
    assert rows_of([before, row], state, submission, row) == Rows((row,))
    assert rows_of([before], state, submission, row) == Rows()


def test_a_row_that_only_looks_later_is_no_requeue(rig: Rig) -> None:
    """C061, C063: slurmctld's clock stepped back; the requeue of the object before has the later time."""
    state, submission, row = parts(rig, rig.job())
    assert row.submit_time is not None
    mine = replace(row, word=state.spec.word(submission.number), states=frozenset({"PENDING"}), end_time=None)
    later = replace(row, submit_time=row.submit_time + 60, restart=1)
    assert rows_of([later, mine], state, submission, None) == Rows((mine,))
    over = replace(mine, states=frozenset({"REQUEUED"}), end_time=row.submit_time + 1)
    assert rows_of([over, later], state, submission, None) == Rows((over, later))
    sibling = replace(submission, number=submission.number + 1)
    two = replace(state, submissions=(submission, sibling))
    assert rows_of([over, later], two, submission, None) == Rows((over,))
