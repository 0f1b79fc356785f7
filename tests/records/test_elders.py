"""More than one job or number: supersession, what a superseded job leaves, adoption."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from slurm_dispatch.errors import BadDataError
from slurm_dispatch.model.outcome import Outcome
from slurm_dispatch.records.actions import AppendFact, Cancel, CloseElder, LookUp, Nothing, Submit
from slurm_dispatch.records.decide_holds import ELDER_WAIT_S
from slurm_dispatch.records.elders import elder_closed
from slurm_dispatch.records.fold import fold
from slurm_dispatch.records.observation import (
    Absent,
    ElderClosed,
    Found,
    Lookups,
    ObjectAlive,
    ObjectEnded,
    Observation,
    Unknown,
)
from slurm_dispatch.records.policy import Policy
from slurm_dispatch.records.state import ADOPT_S, ElderExecution, Phase
from slurm_dispatch.records.verdict import verdict
from tests.records.life import CLUSTER, KEY, Life, make_spec
from tests.records.test_holds import attempt, kinds, shared, take
from tests.records.test_suspicion import BLIND, POLICY, ask, both, listed, suspected

# Supersession


def follower(**spec: Any) -> Life:
    return Life(make_spec(**{"supersedes": "old", "generation": 1, **spec}))


def elder(**more: Any) -> Observation:
    return replace(BLIND, elder_closed=ElderClosed(9, **{"by_job": KEY, **more}))


def test_what_is_begun_is_finished_by_any_tick() -> None:
    """The new record is there, and whoever made it died before he closed the old one."""
    life = follower(keep=77)
    assert kinds(ask(life)) == ["Nothing"]
    assert ask(life, replace(BLIND, elder_closed=None)) == [CloseElder("old", 77)]
    (action,) = ask(life, elder())
    assert isinstance(action, AppendFact)
    assert action.body == {"elder": "old", "elder_seq": 9, "executions": [], "submission": 1, "complete": True}
    take(life, [action])
    assert life.state.phase is Phase.WAITING
    assert ask(life) == [Submit(1, (), 2)]


def test_of_two_that_supersede_one_wins() -> None:
    (action,) = ask(follower(), elder(by_job="other"))
    assert isinstance(action, AppendFact)
    assert (action.kind, action.body["why"]) == ("closed", "never_submitted")
    assert "job other superseded job old first" in action.body["reason"]
    (action,) = ask(follower(), elder(by_job=None))
    assert isinstance(action, AppendFact)
    assert action.kind == "closed"
    assert "had ended by itself" in action.body["reason"]


def test_a_job_that_supersedes_is_not_submitted_before_it_took_over() -> None:
    with pytest.raises(BadDataError, match="has not taken over"):
        fold(follower().intent(1).facts)
    with pytest.raises(BadDataError, match="not the one that this job supersedes"):
        fold(Life(make_spec(supersedes="other")).took_over().facts)


def test_superseding_a_shared_job_waits_for_its_executions() -> None:
    """P8."""
    old = shared().superseded(KEY)
    assert old.state.finished
    seen = elder_closed(old.state, shared=False)
    assert seen is not None
    assert (seen.complete, [it.attempt for it in seen.executions]) == (True, [attempt(old)])
    life = follower(elders_shared=True)
    take(life, ask(life, replace(BLIND, elder_closed=seen)))
    assert life.state.phase is Phase.HELD
    asks = Policy(cessation=True)
    assert kinds(ask(life, policy=asks))[0] == "AskCessation"
    life.answered(attempt(old), "ceased")
    assert kinds(ask(life, policy=asks)) == ["release"]
    assert ask(take(life, ask(life, policy=asks))) == [Submit(1, (), 2)]
    # From then on it is a job of its own kind.
    life.intent(1, 2).submitted(1).started(1).end(1, "preempted")
    assert verdict(life.state, POLICY, life.at).action.value == "resubmit"


def test_superseding_a_job_whose_executions_have_all_ceased_still_waits_for_nobody() -> None:
    old = shared()
    old.answered(attempt(old), "ceased").superseded(KEY)
    seen = elder_closed(old.state, shared=True)
    assert seen is not None
    assert seen.executions == ()
    life = follower(elders_shared=True)
    take(life, ask(life, replace(BLIND, elder_closed=seen)))
    assert kinds(ask(life)) == ["release"]


def test_more_executions_than_a_fact_holds_are_left_to_a_person() -> None:
    many = tuple(ElderExecution(f"x{it}", 7, CLUSTER, "c[1-2]," * 300, None) for it in range(300))
    life = follower(elders_shared=True)
    take(life, ask(life, elder(shared=True, executions=many)))
    assert life.state.phase is Phase.HELD
    assert life.state.holding is not None
    assert not life.state.holding.ceased
    assert 0 < len(life.state.elders) < 300


def test_an_elder_whose_object_lives_or_is_not_known_is_waited_for_and_then_left_to_a_person() -> None:
    old = Life(make_spec(shared=True)).intent(1).superseded(KEY)
    seen = elder_closed(old.state, shared=False)
    assert seen is not None
    assert not seen.complete
    life = follower(elders_shared=True)
    assert kinds(ask(life, replace(BLIND, elder_closed=seen))) == ["Nothing"]
    take(life, ask(life, replace(BLIND, elder_closed=seen), later=ELDER_WAIT_S))
    assert life.state.phase is Phase.HELD
    assert not any(kind in {"release", "AskCessation"} for kind in kinds(ask(life, policy=Policy(cessation=True))))
    assert ask(life.release()) == [Submit(1, (), 2)]


def test_an_elder_that_is_not_known_whole_is_waited_for_whatever_else_it_was() -> None:
    life = follower().took_over(complete=False)
    assert life.state.phase is Phase.HELD
    life.add("closed", why="hold_expired", reason="").add("reopened", reason="", submission=1)
    assert life.state.holding is not None
    assert not life.state.holding.ceased


def test_a_job_that_still_waited_for_a_shared_elder_hands_that_on() -> None:
    """P8 over three jobs: the last one waits for what the first one left."""
    middle = follower(elders_shared=True).took_over("x1").superseded(KEY)
    seen = elder_closed(middle.state, shared=False)
    assert seen is not None
    assert (seen.shared, seen.complete, [it.attempt for it in seen.executions]) == (True, True, ["x1"])
    free = follower(elders_shared=True).took_over("x1").release().intent(1, 2).submitted(1).superseded(KEY)
    seen = elder_closed(free.state, shared=False)
    assert seen is not None
    assert (seen.shared, seen.executions) == (False, ()), "a person released it: it is a job of its own kind"


def test_a_hold_for_elders_that_ran_out_holds_again_once_it_is_opened() -> None:
    life = follower(elders_shared=True).took_over("x1").add("closed", why="hold_expired", reason="")
    assert life.add("reopened", reason="", submission=1).state.phase is Phase.HELD
    life.release().intent(1, 4).submitted(1).end(1, "failed").add("closed", why="failed", reason="")
    assert life.add("reopened", reason="", submission=2).state.phase is Phase.WAITING


def test_an_isolated_job_may_be_superseded_while_it_runs() -> None:
    old = Life().run(1).superseded(KEY)
    assert elder_closed(old.state, shared=False) == ElderClosed(4 + 1, KEY)
    assert elder_closed(Life().run(1).state, shared=False) is None
    beside = elder_closed(old.state, shared=True)
    assert beside is not None
    assert (beside.complete, len(beside.executions)) == (False, 1)


def test_strays_of_a_superseded_job_are_cancelled_but_for_the_one_that_is_kept() -> None:
    for keep in (None, 101):
        life = Life().run(1).superseded(keep=keep)
        actions = ask(life, replace(BLIND, seen=listed((1, 101), (1, 555))))
        cancelled = [it.object.slurm_job_id for it in actions if isinstance(it, Cancel)]
        assert cancelled == ([555] if keep else [101, 555])
        assert not life.state.finished
        over = ObjectEnded(1, 101, Outcome.CANCELLED, {}, restart=0)
        take(life, ask(life, both(over)))
        assert life.state.finished
        assert life.state.phase is Phase.CLOSED


def test_a_stray_that_was_given_the_current_objects_id_is_cancelled_and_nothing_else() -> None:
    """A slurmctld that forgot everything begins its ids again, and an earlier submission's sbatch arrives late."""
    life = Life().round(1).run(2)
    for number, cancelled in ((1, [102]), (2, [])):
        actions = ask(life, replace(BLIND, seen=listed((number, 102))))
        assert [it.object.slurm_job_id for it in actions if isinstance(it, Cancel)] == cancelled


def test_an_intent_that_was_open_when_it_was_superseded_is_settled() -> None:
    """Its writer may still answer, and if not, what it made must be found and cancelled."""
    life = Life().intent(1).superseded().add("watched", submission=1, host="ctl", first_seen=0)
    assert not life.state.finished
    assert ask(life, later=5000) == [LookUp(1)]
    found = replace(BLIND, lookups=Lookups(1, Found(CLUSTER, 101)))
    assert kinds(ask(life, found, later=5000)) == ["submitted"]
    for accounting in (Absent(), Unknown("away")):  # nothing is submitted after it: that holds nothing up
        nowhere = replace(BLIND, lookups=Lookups(1, Absent(), Absent(), accounting))
        assert kinds(ask(life, nowhere, later=5000)) == ["burnt"]
    seen = replace(BLIND, seen=listed((1, 101)))
    assert any(isinstance(it, Cancel) for it in ask(life, seen, later=5000)), "it is found before it is settled"
    life.submitted(1)
    assert life.state.elder is not None
    assert life.state.phase is Phase.CLOSED
    seen = replace(BLIND, seen=listed((1, 101)))
    assert any(isinstance(it, Cancel) for it in ask(life, seen, later=5000))
    actions = ask(life, seen, later=5000)
    assert [it.object.slurm_job_id for it in actions if isinstance(it, Cancel)] == [101]
    for kind, body in (("burnt", {"evidence": ""}), ("rejected", {"status": 1, "message": ""})):
        other = Life().intent(1).superseded().add(kind, submission=1, **body)
        assert other.state.finished
        with pytest.raises(BadDataError, match="settled already"):
            fold(other.submitted(1).facts)


def test_a_job_that_was_superseded_is_not_opened_again() -> None:
    with pytest.raises(BadDataError, match="job new goes on in its place"):
        fold(Life().run(1).superseded().add("reopened", reason="", submission=2).facts)
    for body in ({"why": "superseded"}, {"why": "failed", "by_job": "new"}):
        with pytest.raises(BadDataError, match="names the one that goes on"):
            fold(Life().run(1).end(1, "failed").add("closed", **{"reason": "", **body}).facts)


def test_what_must_never_start_any_more() -> None:
    """P8: an object of theirs may turn up late, and PrologSlurmctld is told to refuse it."""
    assert Life().round(1).run(2).state.never_start == ()
    assert Life().intent(1).add("burnt", submission=1, evidence="").state.never_start == (1,)
    left = Life(make_spec(shared=True)).intent(1).holds(2, "launch_failed", "shared", on=2)
    assert left.release().intent(2, 3).submitted(2).state.never_start == (1,)
    assert adopted(Life().round(1).intent(2, 6).submitted(2)).state.never_start == (2,)
    for life in (Life().intent(1), Life().intent(1).submitted(1)):
        assert life.superseded().state.never_start == (1,)
    assert Life().run(1).superseded(keep=101).state.never_start == ()
    assert Life().intent(1).submitted(1).superseded(keep=101).state.never_start == ()


# Adoption


def adopted(life: Life) -> Life:
    number = life.state.next_number
    return life.add("adopted", submission=number, publication="old", name="new", reason="")


def test_adopting_uses_a_number_up_and_the_next_submission_has_a_later_one() -> None:
    """So that what is adopted is older than whatever the job publishes next."""
    assert ask(adopted(Life().round(1)), later=ADOPT_S) == [Submit(3, (), 6)]
    life = adopted(Life().run(1).end(1, "failed").holds(2, "failed"))
    assert ask(life.release()) == [Submit(3, (), 6)]
    life = adopted(Life().run(1).end(1, "preempted"))
    (action,) = ask(life)
    assert isinstance(action, AppendFact)
    assert action.body["submission"] == 3
    life = adopted(Life().run(1).end(1, "failed").add("closed", why="x", reason=""))
    assert life.state.numbers_used == 2
    with pytest.raises(BadDataError, match="submission 1 is used already"):
        fold(Life().round(1).add("adopted", submission=1, publication="", name="", reason="").facts)
    with pytest.raises(BadDataError, match="submission 2 is used already"):
        fold(adopted(Life().round(1)).intent(2, 6).facts)


def test_nothing_is_adopted_while_a_suspected_execution_may_run() -> None:
    """It can become the current one again, and what it then publishes would be older than what was adopted."""
    with pytest.raises(BadDataError, match="submission 1 is suspected"):
        fold(adopted(suspected()).facts)


def test_adopting_replaces_an_object_that_waits() -> None:
    life = adopted(Life().round(1).intent(2, 6).submitted(2))
    waits, *_ = ask(life, replace(BLIND, seen=listed((2, 102))), later=ADOPT_S - 1)
    assert isinstance(waits, Nothing)
    assert "adopts" in waits.why
    assert ask(life, replace(BLIND, seen=listed((2, 102))), later=ADOPT_S) == [Submit(4, (), 9)]
    life.intent(4, 9).submitted(4)
    actions = ask(life, replace(BLIND, object=ObjectAlive(4, 104, pending=True), seen=listed((2, 102), (4, 104))))
    assert [it.object.slurm_job_id for it in actions if isinstance(it, Cancel)] == [102]
    with pytest.raises(BadDataError, match="shared checkpoint"):
        fold(adopted(Life(make_spec(shared=True)).intent(1).submitted(1)).facts)


def test_the_replaced_object_that_starts_after_all_is_a_stray() -> None:
    life = adopted(Life().round(1).intent(2, 6).submitted(2)).started(2)
    assert life.state.phase is Phase.WAITING
    ended = replace(BLIND, object=ObjectEnded(2, 102, Outcome.FAILED, {}))
    assert ask(life, ended, later=ADOPT_S) == [Submit(4, (), 9)]
