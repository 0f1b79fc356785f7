"""Each way that a job can go, from what Slurm, the hooks and the helper say to what is recorded and done."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.controller.rig import Rig

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def test_a_job_that_is_queued_or_runs_is_left_alone(rig: Rig) -> None:
    key = rig.job()
    rig.tick()
    assert rig.kinds(key) == ["spec", "intent", "submitted"]
    rig.start(key)
    rig.settle()
    assert rig.kinds(key, 3) == ["started"]
    before = len(rig.slurm.calls())
    rig.tick()
    assert rig.kinds(key, 4) == []
    assert rig.slurm.calls()[before:] == ["queue"]


def test_many_jobs_without_a_change_cost_one_call(rig: Rig) -> None:
    keys = [rig.job() for _ in range(20)]
    for key in keys:
        rig.start(key)
    rig.tick()
    before = len(rig.slurm.calls())
    rig.tick()
    assert rig.slurm.calls()[before:] == ["queue"]
    for key in keys:
        rig.slurm.end(rig.object(key), "CANCELLED", by_uid=rig.uid)
        rig.end_note(key)
    before = len(rig.slurm.calls())
    rig.tick()
    calls = rig.slurm.calls()[before:]
    assert (calls.count("queue"), calls.count("accounting")) == (1, 1)
    assert {rig.state(key).phase.value for key in keys} == {"closed"}


@pytest.mark.parametrize(
    ("states", "outcome"),
    [
        (("PREEMPTED", "COMPLETING"), "preempted"),
        (("PREEMPTED",), "preempted"),
        (("NODE_FAIL",), "node_fail"),
        (("NODE_FAIL", "COMPLETING"), "node_fail"),
        (("BOOT_FAIL",), "boot_fail"),
        (("TIMEOUT", "COMPLETING"), "timeout"),
    ],
)
def test_an_end_that_a_rule_recovers_is_resubmitted_once(rig: Rig, states: tuple[str, ...], outcome: str) -> None:
    key = rig.job(f"{outcome}:resubmit,budget=3")
    rig.start(key)
    rig.slurm.end(rig.object(key), *states)
    rig.end_note(key)
    rig.settle()
    assert rig.kinds(key, 3) == ["started", "end", "decision", "intent", "submitted"]
    assert rig.last(key, "end").body["outcome"] == outcome
    assert len(rig.slurm.ids()) == 2
    assert rig.slurm.job(rig.object(key))["comment"] == f"mine dispatch:{key}:0:2"
    assert rig.state(key).phase.value == "queued"
    assert [name for name in rig.notes() if not name.startswith("start.")] == []


def test_completed_closes(rig: Rig) -> None:
    key = rig.job()
    rig.start(key)
    rig.slurm.end(rig.object(key), "COMPLETED")
    rig.end_note(key)
    rig.settle()
    assert rig.kinds(key, 3) == ["started", "end", "decision", "closed"]
    assert rig.last(key, "closed").body["why"] == "completed"
    assert len(rig.slurm.ids()) == 1


def test_failed_twice_uses_the_budget_and_holds(rig: Rig) -> None:
    """C053: a failure that Slurm does not requeue counts once, and without budget a person decides."""
    key = rig.job("failed:resubmit,budget=1")
    for _ in range(2):
        rig.start(key)
        rig.slurm.end(rig.object(key), "FAILED", exit_status=1)
        rig.end_note(key)
        rig.settle()
    assert rig.last(key, "decision").body["why"] == "budget"
    assert rig.state(key).phase.value == "held"
    assert len(rig.slurm.ids()) == 2


def test_out_of_memory_holds_unless_told_otherwise(rig: Rig) -> None:
    key = rig.job()
    rig.start(key)
    rig.slurm.end(rig.object(key), "OUT_OF_MEMORY", exit_signal=9)
    rig.settle()
    assert rig.last(key, "end").body["outcome"] == "out_of_memory"
    assert rig.last(key, "decision").body["action"] == "hold"


@pytest.mark.parametrize(
    ("helper", "states", "outcome"),
    [
        ({"status": 85}, ("COMPLETED",), "unfinished"),
        ({"status": 3}, ("COMPLETED",), "failed"),
        ({"outcome": "not_resumed"}, ("FAILED",), "not_resumed"),
        ({"outcome": "store_error"}, ("COMPLETED",), "store_error"),
        ({"outcome": "stalled"}, ("CANCELLED", "COMPLETING"), "stalled"),
    ],
)
def test_what_the_helper_handed_on_comes_first(
    rig: Rig, helper: dict[str, object], states: tuple[str, ...], outcome: str
) -> None:
    key = rig.job()
    rig.start(key)
    rig.tick()
    rig.helper(key, **helper)
    rig.slurm.end(rig.object(key), *states, by_uid=rig.uid)
    rig.settle()
    assert rig.last(key, "end").body["outcome"] == outcome


def test_its_owners_cancel_is_final_whatever_the_rule(rig: Rig) -> None:
    key = rig.job("cancelled:resubmit,budget=5")
    rig.start(key)
    rig.slurm.end(rig.object(key), "CANCELLED", "COMPLETING", by_uid=rig.uid)
    rig.end_note(key)
    rig.settle()
    assert rig.last(key, "end").body["evidence"]["by_uid"] == rig.uid
    assert rig.last(key, "closed").body["why"] == "cancelled"
    assert len(rig.slurm.ids()) == 1


def test_an_operators_cancel_is_an_end_that_a_rule_can_name(rig: Rig) -> None:
    key = rig.job("cancelled:resubmit,budget=5")
    rig.start(key)
    rig.slurm.end(rig.object(key), "CANCELLED", "COMPLETING", by_uid=rig.uid + 1)
    rig.end_note(key)
    rig.settle()
    assert rig.last(key, "end").body["outcome"] == "cancelled"
    assert len(rig.slurm.ids()) == 2


def test_where_nothing_tells_who_cancelled_it_the_rule_does_not_apply(rig: Rig) -> None:
    """C081, a site without accounting: it could have been its owner, and unknown starts nothing."""
    rig.slurm.knob(accounting="none")
    key = rig.job("cancelled:resubmit,budget=5")
    rig.start(key)
    rig.slurm.end(rig.object(key), "CANCELLED", "COMPLETING")
    rig.settle()
    assert rig.last(key, "closed").body["why"] == "cancelled"
    assert len(rig.slurm.ids()) == 1


def test_a_job_that_was_cancelled_in_the_queue_closes(rig: Rig) -> None:
    key = rig.job()
    rig.slurm.end(rig.object(key), "CANCELLED", by_uid=rig.uid)
    rig.settle()
    assert rig.last(key, "closed").body["why"] == "cancelled"


def test_not_listed_is_not_ended(rig: Rig) -> None:
    """C076: an empty queue and an empty accounting close nothing and start nothing."""
    key = rig.job()
    rig.start(key)
    rig.tick()
    facts = rig.kinds(key)
    number = rig.object(key)
    rig.slurm.set(number, in_memory=False, accounting_live=False)
    rig.later_s = 86400.0
    rig.tick()
    assert rig.kinds(key) == facts
    assert rig.slurm.ids() == [number]


def test_an_end_note_that_nothing_explains_is_lost_after_a_while(rig: Rig) -> None:
    key = rig.job()
    rig.start(key)
    rig.slurm.set(rig.object(key), in_memory=False, accounting_live=False)
    rig.end_note(key)
    assert rig.tick()[key].soon
    assert "end" not in rig.kinds(key)
    rig.later_s = 601.0
    rig.settle()
    assert rig.last(key, "end").body["outcome"] == "lost"
    assert rig.last(key, "decision").body["action"] == "hold"


def test_an_end_note_that_names_another_owner_ends_nothing(rig: Rig) -> None:
    """P5: it is of somebody else's object that had the word and the id."""
    key = rig.job()
    rig.start(key)
    rig.tick()
    rig.end_note(key, age_s=86400.0, uid=rig.uid + 1)
    rig.slurm.set(rig.object(key), in_memory=False, accounting_live=False)
    rig.tick()
    assert "end" not in rig.kinds(key)


def test_slurmctld_away_for_hours_changes_nothing(rig: Rig) -> None:
    """C174: no action and no count while no command works; the first good round resumes. C077."""
    key = rig.job()
    rig.start(key)
    rig.tick()
    rig.slurm.end(rig.object(key), "NODE_FAIL")
    rig.end_note(key)
    rig.slurm.knob(queue="away", detail="away", accounting="away")
    facts, notes = rig.kinds(key), rig.notes()
    for hour in range(1, 6):
        rig.later_s = hour * 3600.0
        rig.tick()
    assert (rig.kinds(key), rig.notes(), len(rig.slurm.ids())) == (facts, notes, 1)
    rig.slurm.knob(queue="ok", detail="ok", accounting="ok")
    rig.settle()
    assert rig.kinds(key, len(facts)) == ["end", "decision", "intent", "submitted"]


def test_slurms_own_requeue_is_followed_and_the_rules_wait(rig: Rig) -> None:
    """C034: a job that Slurm restarts itself is not resubmitted; C064: each execution is recorded."""
    key = rig.job()
    rig.start(key)
    rig.tick()
    number = rig.object(key)
    rig.slurm.restart(number, "PREEMPTED")
    rig.end_note(key, number)
    rig.settle()
    assert rig.kinds(key, 4) == ["end"]
    assert (rig.last(key, "end").body["final"], rig.last(key, "end").body["outcome"]) == (False, "preempted")
    rig.start(key)
    rig.settle()
    assert rig.kinds(key, 5) == ["started"]
    assert rig.last(key, "started").body["restart"] == 1
    rig.slurm.end(number, "NODE_FAIL")
    rig.settle()
    assert rig.kinds(key, 6) == ["end", "decision", "intent", "submitted"]
    assert rig.last(key, "end").body["final"]
    assert len(rig.slurm.ids()) == 2


def test_a_users_requeue_and_an_edited_comment_lose_nothing(rig: Rig) -> None:
    key = rig.job()
    rig.start(key)
    rig.tick()
    number = rig.object(key)
    rig.slurm.set(number, comment="something else")
    rig.tick()
    assert rig.kinds(key, 4) == []
    rig.slurm.restart(number)
    rig.slurm.set(number, submit_time=rig.slurm.job(number)["submit_time"] + 7200)
    rig.settle()
    assert rig.kinds(key, 4) == ["end"]
    assert not rig.last(key, "end").body["final"]
    rig.slurm.start(number)
    rig.slurm.end(number, "NODE_FAIL", "COMPLETING")
    rig.settle()
    assert len(rig.slurm.ids()) == 2


def test_a_look_from_before_the_submission_tells_nothing_of_it(rig: Rig) -> None:
    """C061: an id that is not in it, or was another's then; the next look tells."""
    view = rig.view()
    key = rig.job("failed:stop")
    number = rig.object(key)
    rig.start(key)
    rig.slurm.end(number, "FAILED", exit_status=1)
    rig.slurm.forget(number)
    rig.tick(view=view)
    assert rig.kinds(key) == ["spec", "intent", "submitted"]
    rig.settle()
    assert rig.state(key).phase.value == "closed"


def test_where_no_hook_notes_the_start_the_queue_does(rig: Rig) -> None:
    key = rig.job()
    start = rig.start(key, note=False)
    rig.settle()
    assert rig.kinds(key, 3) == ["started"]
    assert rig.last(key, "started").body["start_time"] == start
    rig.tick()
    assert rig.kinds(key, 4) == []


@pytest.mark.parametrize("word", [True, False])
def test_a_reused_id_is_not_ours(rig: Rig, *, word: bool) -> None:
    """C061, C063: ids that start again, with another job's word or with none, tell nothing about this job."""
    key, other = rig.job(), "other" * 2
    rig.start(key)
    rig.tick()
    number = rig.object(key)
    rig.slurm.end(number, "PREEMPTED")
    old = rig.slurm.job(number)
    rig.slurm.set(number, comment=f"dispatch:{other}:0:1" if word else "", states=["COMPLETED"],
                  submit_time=old["submit_time"] + 86400, start_time=None, rows=[old])  # fmt: skip
    rig.later_s = 86400.0
    rig.settle()
    assert rig.last(key, "end").body["outcome"] == "preempted"
    assert len(rig.slurm.ids()) == 2


def test_an_id_that_began_again_within_minutes_is_not_ours(rig: Rig) -> None:
    """C061, C063: slurmctld lost its state files; a plain job of the same owner has the id of one that waited."""
    key = rig.job()
    rig.tick()
    number = rig.object(key)
    old = rig.slurm.job(number)
    ended = {**old, "states": ["CANCELLED"], "start_time": None, "end_time": old["submit_time"] + 7, "by_uid": None}
    rig.slurm.set(number, comment="", submit_time=old["submit_time"] + 8, rows=[ended])
    rig.slurm.start(number)
    rig.settle()
    assert (rig.last(key, "end").body["outcome"], rig.last(key, "decision").body["action"]) == ("lost", "hold")
    assert "started" not in rig.kinds(key)
    rig.slurm.end(number, "COMPLETED")
    rig.settle()
    assert rig.state(key).closed is None


@pytest.mark.parametrize(("by_uid", "outcome"), [(None, "lost"), (0, "cancelled")])
def test_slurmctld_lost_its_state_files(rig: Rig, by_uid: int | None, outcome: str) -> None:
    """Accounting ends every job as cancelled by nobody, and slurmctld does not know it: that was no person's wish."""
    key = rig.job("lost:resubmit", "cancelled:hold")
    rig.start(key)
    rig.tick()
    number = rig.object(key)
    rig.slurm.end(number, "CANCELLED", by_uid=by_uid)
    rig.slurm.forget(number)
    rig.settle()
    assert rig.last(key, "end").body["outcome"] == outcome
    assert len(rig.slurm.ids()) == (2 if outcome == "lost" else 1)


def test_a_row_of_another_user_or_an_older_job_is_ignored(rig: Rig) -> None:
    """C063: a foreign record of years ago under the same id does not end a running job."""
    key = rig.job()
    rig.start(key)
    number = rig.object(key)
    live = rig.slurm.job(number)
    old = {**live, "states": ["COMPLETED"], "submit_time": 1_500_000_000, "start_time": 1_500_000_100}
    foreign = {**live, "states": ["FAILED"], "uid": rig.uid + 7}
    rig.slurm.set(number, rows=[old, foreign], in_memory=False)
    facts = rig.kinds(key)
    rig.tick()
    assert [kind for kind in rig.kinds(key)[len(facts) :] if kind != "started"] == []


def test_notes_of_anothers_object_with_this_jobs_word_do_not_stay(rig: Rig) -> None:
    key = rig.job()
    number = rig.object(key)
    start, uid = rig.start(key), rig.uid + 1
    foreign = rig.slurm.plain(comment=str(rig.word(key)), uid=uid)
    rig.start_note(key, foreign, rig.slurm.start(foreign), uid=uid)
    rig.end_note(key, foreign, uid=uid)
    rig.refused_note(key, foreign, "double_start", start)
    rig.node_note(key, foreign)
    rig.node_note(key, number)
    rig.tick()
    assert [name.split(".")[4] for name in rig.notes()] == [str(number)]
    assert sorted(rig.kinds(key, 3)) == ["node", "started"]


def test_strays_are_cancelled_also_of_a_closed_job(rig: Rig) -> None:
    key = rig.job()
    word = rig.word(key)
    stray = rig.slurm.plain(comment=str(word), uid=rig.uid)
    foreign = rig.slurm.plain(comment=str(word), uid=rig.uid + 1)
    rig.settle()
    assert rig.slurm.job(stray)["states"] == ["CANCELLED"]
    assert rig.slurm.job(foreign)["states"] == ["PENDING"]
    assert rig.slurm.job(rig.object(key))["states"] == ["PENDING"]
    assert rig.kinds(key, 3) == ["stray"]
    rig.slurm.end(rig.object(key), "COMPLETED")
    rig.settle()
    late = rig.slurm.plain(comment=str(word), uid=rig.uid)
    rig.tick()
    assert rig.slurm.job(late)["states"] == ["CANCELLED"]
    assert rig.kinds(key)[-2:] == ["closed", "stray"]


def test_a_start_note_stays_for_a_week_after_the_end(rig: Rig) -> None:
    key = rig.job()
    rig.start(key)
    rig.slurm.end(rig.object(key), "COMPLETED")
    rig.end_note(key)
    rig.settle()
    assert [name.split(".")[0] for name in rig.notes()] == ["start"]
    rig.later_s = 8 * 86400.0
    rig.tick()
    assert rig.notes() == []
