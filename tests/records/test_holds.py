"""Holds: what lifts them, whom they are told, how long they last; cessation; requeue."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from slurm_dispatch.errors import BadDataError
from slurm_dispatch.model.outcome import Action as Does
from slurm_dispatch.model.outcome import Outcome
from slurm_dispatch.records.actions import (
    Action,
    AppendFact,
    AskCessation,
    Cancel,
    Nothing,
    Requeue,
    Submit,
    Tell,
    UpdateObject,
)
from slurm_dispatch.records.decide import decide
from slurm_dispatch.records.decide_holds import counted_s
from slurm_dispatch.records.elders import not_ceased
from slurm_dispatch.records.fold import fold
from slurm_dispatch.records.observation import (
    CessationAnswer,
    ObjectAlive,
    ObjectEnded,
    Observation,
    SiteClock,
    Unknown,
)
from slurm_dispatch.records.policy import Limits, Policy
from slurm_dispatch.records.state import Phase, SlurmObject
from tests.records.life import CLUSTER, Life, make_spec, start_body

POLICY = Policy()
ASKS = Policy(cessation=True)
BLIND = Observation(host="ctl")
OBJECT = SlurmObject(CLUSTER, 101)


def at(ran_s: float, **more: Any) -> Observation:
    return replace(BLIND, clock_ran=SiteClock("k", ran_s), **more)


def ask(life: Life, observation: Observation = BLIND, policy: Policy = POLICY) -> list[Action]:
    return decide(life.state, observation, policy, life.at)


def take(life: Life, actions: list[Action]) -> Life:
    """Perform what is a fact."""
    for action in actions:
        if isinstance(action, AppendFact):
            life.add(action.kind, **action.body)
        elif isinstance(action, Tell):
            life.add("told", on=action.on, what=action.what, status=0)
    return life


def kinds(actions: list[Action]) -> list[str]:
    return [action.kind if isinstance(action, AppendFact) else type(action).__name__ for action in actions]


def held(why: str = "rule", hold_for_s: float | None = 4 * 3600.0, **spec: Any) -> Life:
    return Life(make_spec(**spec)).run(1).end(1, "preempted").holds(2, why=why, hold_for_s=hold_for_s)


def shared(rounds: int = 1) -> Life:
    """A job with a shared checkpoint that is held after so many executions."""
    life = Life(make_spec(shared=True, max_submissions=999))
    for number in range(1, rounds + 1):
        due = life.state.due
        life.intent(number, None if due is None else due.seq).submitted(number).started(number)
        life.end(number, "preempted").holds(number + 1, why="shared", hold_for_s=86400.0)
        if number < rounds:
            life.release()
    return life


def attempt(life: Life, number: int = 1) -> str:
    text = start_body(life.spec, number)["attempt"]
    assert isinstance(text, str)
    return text


def says(answer: str, now: float = 1.0) -> CessationAnswer:
    return CessationAnswer(answer, "slurm-nodes", "", now)


# The clock


def test_a_hold_counts_only_the_time_in_which_ticks_ran() -> None:
    """C174: a weekend in which no tick runs does not end a hold."""
    life = held()
    assert kinds(ask(life, at(100.0))) == ["held"]
    take(life, ask(life, at(100.0)))
    assert counted_s(life.state, SiteClock("k", 100.0 + 3600)) == 3600
    take(life, ask(life, at(101.0)))
    life.at += 10 * 86400
    assert isinstance(ask(life, at(102.0))[0], Nothing)


def test_a_clock_that_began_anew_loses_what_it_had_not_told_and_never_ends_a_hold_early() -> None:
    life = held()
    take(life, ask(life, at(1000.0)))
    life.add("held", on=6, clock="k", ran_s=2000.0, counted_s=500.0)
    other = replace(BLIND, clock_ran=SiteClock("other", 9e9))
    (action,) = ask(life, other)
    assert isinstance(action, AppendFact)
    assert action.body == {"on": 6, "clock": "other", "ran_s": 9e9, "counted_s": 500.0}
    (action,) = ask(life, at(1.0))
    assert isinstance(action, AppendFact), "a reading that went back is another clock"
    assert action.body["counted_s"] == 500.0


def test_without_the_sites_clock_no_hold_ends() -> None:
    life = held(hold_for_s=1.0)
    life.at += 1e6
    assert kinds(ask(life)) == ["Nothing"]


def test_the_owner_is_told_at_the_start_at_half_and_an_hour_before_the_end() -> None:
    life = held(hold_for_s=4 * 3600.0)
    take(life, ask(life, at(0.0)))
    assert ask(life, at(0.0)) == [Tell(6, "start")]
    take(life, ask(life, at(0.0)))
    assert life.state.told == {(6, "start")}
    for ran_s, what in ((7199.0, None), (7200.0, "half"), (10_799.0, None), (10_800.0, "last_hour")):
        actions = ask(life, at(ran_s))
        assert actions == [Tell(6, what)] if what else kinds(actions) == ["Nothing"], ran_s
        take(life, actions)
    assert ask(life, at(14_400.0)) == [Tell(6, "expired")]
    take(life, ask(life, at(14_400.0)))
    (action,) = ask(life, at(14_400.0))
    assert isinstance(action, AppendFact)
    assert (action.kind, action.body["why"]) == ("closed", "hold_expired")


def test_what_was_not_told_in_time_is_left_out() -> None:
    life = held(hold_for_s=4 * 3600.0)
    take(life, ask(life, at(0.0)))
    assert ask(life, at(11_000.0)) == [Tell(6, "last_hour")]


def test_a_short_hold_has_no_last_hour_of_its_own() -> None:
    life = held(hold_for_s=3600.0)
    take(take(life, ask(life, at(0.0))), ask(life, at(0.0)))
    assert ask(life, at(1800.0)) == [Tell(6, "half")]


def test_the_next_look_is_when_there_is_something_to_tell() -> None:
    life = held(hold_for_s=4 * 3600.0)
    take(take(life, ask(life, at(0.0))), ask(life, at(0.0)))
    (action,) = ask(life, at(200.0))
    assert isinstance(action, Nothing)
    assert action.until == life.at + 7000


def test_a_hold_without_a_length_lasts_as_long_as_the_site_lets_it() -> None:
    life = held(hold_for_s=None)
    take(life, ask(life, at(0.0)))
    site = Policy(limits=Limits(longest_hold_s=600.0))
    assert ask(life, at(600.0), site) == [Tell(6, "expired")]
    assert ask(life, at(600.0)) == [Tell(6, "start")]


# Persons


def all_ceased(why: str, restart: int = 0) -> Life:
    """Every execution that is known has ceased, and yet something else holds the job."""
    life = Life(make_spec(shared=True)).run(1)
    return life.answered(attempt(life), "ceased").end(1, "failed", restart=restart).holds(2, "failed", why)


def test_a_release_submits_what_was_decided() -> None:
    life = Life().run(1).end(1, "preempted")
    life.holds(2, why="budget", changes=["--exclude=c1", "--begin=now+60"], not_before=9e9)
    assert ask(life.release()) == [Submit(2, ("--exclude=c1",), 6)], "a person's release is at once"


@pytest.mark.parametrize("phase", ["running", "waiting", "held"])
def test_a_persons_hold_comes_at_any_time_and_goes_by_a_release(phase: str) -> None:
    life = {"running": Life().run(1), "waiting": Life().round(1), "held": held()}[phase]
    life.add("hold", reason="look at it", for_s=None)
    hold = life.state.hold
    assert hold is not None
    if phase == "running":
        assert life.state.phase is Phase.RUNNING
        life.add("release", on=hold.seq, how="person", reason="")
        assert life.state.phase is Phase.RUNNING
    else:
        assert life.state.phase is Phase.HELD
        assert life.state.holding is not None
        assert life.state.holding.why == "person"
        assert isinstance(ask(life.release())[0], Submit)
    assert life.state.hold is None


def test_a_persons_hold_is_not_lifted_by_anything_else() -> None:
    life = shared().add("hold", reason="look at it", for_s=None)
    life.answered(attempt(life), "ceased")
    assert not any(kind in {"release", "AskCessation"} for kind in kinds(ask(life, at(0.0), ASKS)))
    life = held("breaker").add("hold", reason="look at it", for_s=None)
    assert "release" not in kinds(ask(life))
    assert ask(life.release())[0] == Submit(2, (), 6)


def test_a_hold_that_came_before_the_shared_one_is_a_persons_to_lift() -> None:
    life = Life(make_spec(shared=True)).run(1).add("hold", reason="look at it", for_s=None)
    life.answered(attempt(life), "ceased").end(1, "preempted").holds(2, why="shared")
    assert life.state.holding is not None
    assert not life.state.holding.ceased
    assert "release" not in kinds(ask(life, policy=ASKS))


def test_a_cancel_ends_a_hold() -> None:
    (action,) = ask(held().add("request", what="cancel", reason="no more need"))
    assert isinstance(action, AppendFact)
    assert action.body == {"why": "cancelled", "reason": "no more need"}


@pytest.mark.parametrize(
    ("life", "fact", "says_"),
    [
        (held(), {"on": 5, "how": "person"}, "what holds the job is fact 6"),
        (held(), {"on": 6, "how": "breaker"}, "not the site's to lift"),
        (held(), {"on": 6, "how": "ceased"}, "not every older execution"),
        (shared(), {"on": 6, "how": "ceased"}, "not every older execution"),
        (all_ceased("budget"), {"on": 7, "how": "ceased"}, "not every older execution"),
        (all_ceased("shared", restart=3), {"on": 7, "how": "ceased"}, "not every older execution"),
        (held("breaker", shared=True), {"on": 6, "how": "breaker"}, "not the site's to lift"),
        (Life().round(1), {"on": 6, "how": "person"}, "holds nothing"),
        (Life().run(1).add("hold", reason="", for_s=None), {"on": 5, "how": "ceased"}, "holds nothing"),
    ],
)
def test_a_release_that_is_not_due_is_bad_data(life: Life, fact: dict[str, Any], says_: str) -> None:
    life.add("release", reason="", **fact)
    with pytest.raises(BadDataError, match=says_):
        fold(life.facts)


# The site


def test_what_the_site_held_goes_on_by_itself_once_it_may() -> None:
    """The breaker is open, then closed."""
    for why in ("breaker", "limit"):
        life = held(why)
        assert "release" not in kinds(ask(life, policy=Policy(breaker="storm")))
        assert "release" not in kinds(ask(life, policy=Policy(limits=Limits(resubmissions_left=0))))
        assert "release" not in kinds(ask(life, policy=Policy(limits=Limits(allowed=frozenset({Does.STOP})))))
        (action,) = ask(life)
        assert isinstance(action, AppendFact)
        assert (action.kind, action.body["how"], action.body["on"]) == ("release", "breaker", 6)
        assert isinstance(ask(take(life, [action]))[0], Submit)


def test_what_the_site_held_of_a_shared_job_goes_on_by_a_person_only() -> None:
    """P8: that the site lets it go on says nothing of the older execution."""
    assert "release" not in kinds(ask(held("limit", shared=True)))


def test_a_person_who_holds_the_job_is_asked_also_where_the_site_held_it() -> None:
    life = Life().run(1).add("hold", reason="look at it", for_s=None).end(1, "preempted").holds(2, why="limit")
    assert "release" not in kinds(ask(life))


def test_what_has_ceased_goes_on_only_once_the_site_lets_it() -> None:
    life = shared()
    life.answered(attempt(life), "ceased")
    assert "release" not in kinds(ask(life, policy=Policy(cessation=True, breaker="storm")))
    assert kinds(ask(life, policy=ASKS)) == ["release"]


def test_what_the_site_held_counted_already() -> None:
    life = held("breaker")
    assert life.state.used == {Outcome.PREEMPTED: 1}
    assert take(life, ask(life)).state.used == {Outcome.PREEMPTED: 1}
    assert held("budget").state.used == {}


# Cessation


def test_cessation_lifts_a_shared_hold_once_every_older_execution_has_ceased() -> None:
    """P8, with two older executions: one answer is not enough."""
    life = shared(rounds=2)
    first, second = attempt(life, 1), attempt(life, 2)
    asks = ask(life, BLIND, ASKS)[0]
    assert isinstance(asks, AskCessation)
    assert [it.attempt for it in asks.executions] == [first, second]
    assert (asks.executions[0].slurm_job_id, asks.executions[0].nodes, asks.last) == (101, "c[1-2]", False)
    take(life, ask(life, replace(BLIND, cessation={first: says("ceased")}), ASKS))
    assert "release" not in kinds(ask(life, BLIND, ASKS))
    asks = ask(life, BLIND, ASKS)[0]
    assert isinstance(asks, AskCessation)
    assert [it.attempt for it in asks.executions] == [second]
    take(life, ask(life, replace(BLIND, cessation={second: says("ceased")}), ASKS))
    (action,) = ask(life, BLIND, ASKS)
    assert isinstance(action, AppendFact)
    assert (action.kind, action.body["how"]) == ("release", "ceased")
    assert isinstance(ask(take(life, [action]))[0], Submit)


@pytest.mark.parametrize("answer", ["running", "unknown"])
def test_no_other_answer_lifts_it_and_equal_ones_are_one_fact(answer: str) -> None:
    """C165, P5: a job that is completing for days is neither called ceased nor waited for without an end."""
    life = shared()
    seen = replace(BLIND, cessation={attempt(life): says(answer)})
    assert kinds(ask(life, seen, ASKS)) == ["cessation"]
    take(life, ask(life, seen, ASKS))
    assert "cessation" not in kinds(ask(life, seen, ASKS))
    assert "release" not in kinds(ask(life, seen, ASKS))
    other = replace(BLIND, cessation={attempt(life): says("unknown" if answer == "running" else "running")})
    assert kinds(ask(life, other, ASKS)) == ["cessation"]


def test_how_often_it_was_the_same_is_in_the_next_fact() -> None:
    life = shared()
    answer = CessationAnswer("running", "ssh", "2 processes", 90.0, count=7, first=30.0)
    (action,) = ask(life, replace(BLIND, cessation={attempt(life): answer}), ASKS)
    assert isinstance(action, AppendFact)
    assert (action.body["count"], action.body["first"], action.body["last"]) == (7, 30.0, 90.0)


def test_ceased_is_for_good() -> None:
    life = shared()
    life.answered(attempt(life), "ceased").answered(attempt(life), "running").started(1)
    assert not_ceased(life.state) == ()
    assert life.release("ceased").state.phase is Phase.WAITING


def test_a_shared_job_that_sbatch_refuses_is_not_tried_again_at_once() -> None:
    """No execution can have come of it, so that nothing but time holds it."""
    life = shared()
    life.answered(attempt(life), "ceased").release("ceased")
    life.intent(2, 6).add("rejected", submission=2, status=1, message="limit")
    take(life, ask(life, policy=ASKS))
    assert life.state.holding is not None
    assert life.state.holding.why == "shared"
    take(life, ask(life, policy=ASKS))
    assert life.state.due is not None
    assert life.state.due.not_before is not None
    assert kinds(ask(life, policy=ASKS)) == ["Nothing"]


def test_an_answer_about_an_execution_that_is_not_there_is_bad_data() -> None:
    with pytest.raises(BadDataError, match="there is no execution zz"):
        fold(shared().answered("zz", "ceased").facts)


def test_a_site_without_cessation_leaves_the_job_to_a_person() -> None:
    assert "AskCessation" not in kinds(ask(shared(), at(0.0)))


def test_only_a_hold_for_the_shared_checkpoint_asks() -> None:
    life = Life(make_spec(shared=True)).run(1).end(1, "failed").holds(2, "failed", "budget")
    assert "AskCessation" not in kinds(ask(life, at(0.0), ASKS))


def test_an_execution_that_nobody_told_of_leaves_the_job_to_a_person() -> None:
    """P5: that there is no start note does not say that nothing started."""
    life = Life(make_spec(shared=True)).intent(1).submitted(1).end(1, "preempted").holds(2, why="shared")
    assert life.state.unseen
    assert not any(kind in {"release", "AskCessation"} for kind in kinds(ask(life, at(0.0), ASKS)))
    # The note comes late: now it can be asked about.
    life.started(1)
    assert not life.state.unseen
    assert kinds(ask(life, BLIND, ASKS))[0] == "AskCessation"
    life = shared()
    life.facts.pop()
    life.facts.pop()
    life.end(1, "preempted", restart=3).holds(2, why="shared")
    assert life.state.unseen, "the fourth start of the object is not among those that were noted"


def test_a_start_that_was_refused_is_no_execution() -> None:
    life = Life(make_spec(shared=True)).intent(1).submitted(1)
    life.add("refused", submission=1, slurm_job_id=101, restart=0, start_time=None, why="shared")
    life.end(1, "launch_failed").holds(2, "launch_failed", "shared")
    (action,) = ask(life, BLIND, ASKS)
    assert isinstance(action, AppendFact)
    assert (action.kind, action.body["how"]) == ("release", "ceased")


def test_a_start_of_another_object_with_the_same_number_says_nothing_about_the_jobs_own() -> None:
    life = Life(make_spec(shared=True)).intent(1).started(1, slurm_job_id=999).submitted(1).end(1, "preempted")
    assert life.holds(2, why="shared").state.unseen


def test_cessation_is_asked_once_more_before_the_hold_runs_out() -> None:
    life = shared()
    take(life, ask(life, at(0.0), ASKS))
    actions = ask(life, at(86_400.0), ASKS)
    assert actions[0] == AskCessation(not_ceased(life.state), last=True)
    assert len(actions) == 1
    over = at(86_400.0, cessation={attempt(life): says("ceased")})
    take(life, ask(life, over, ASKS))
    assert kinds(ask(life, over, ASKS)) == ["release"]
    life = shared()
    take(life, ask(life, at(0.0), ASKS))
    silent = at(86_400.0, cessation={attempt(life): says("unknown", life.at)})
    for expected in (["cessation"], ["Tell"], ["closed"]):
        actions = ask(life, silent, ASKS)
        assert kinds(actions) == expected
        take(life, actions)
    assert life.state.closed is not None
    assert life.state.closed.why == "hold_expired"


def test_a_hold_that_ran_out_is_opened_again_and_still_waits_for_the_older_executions() -> None:
    life = shared().add("closed", why="hold_expired", reason="")
    life.add("reopened", reason="", submission=2)
    assert life.state.phase is Phase.HELD
    assert kinds(ask(life, BLIND, ASKS))[0] == "AskCessation"
    assert ask(life.release()) == [Submit(2, (), 8)]


# Requeue


def requeuing(changes: tuple[str, ...] = ()) -> Life:
    life = Life(make_spec(rules=("preempted:requeue",))).run(1).end(1, "preempted")
    return life.decided("requeue", changes=list(changes))


def sees(it: Any) -> Observation:
    return replace(BLIND, object=it)


GONE = ObjectEnded(1, 101, Outcome.PREEMPTED, {}, restart=0)
BACK = ObjectAlive(1, 101, restart=1, pending=True)


def test_a_requeue_is_asked_for_and_recorded_once_slurm_has_it_again() -> None:
    life = requeuing()
    assert ask(life, sees(GONE)) == [Requeue(OBJECT, 1)]
    assert kinds(ask(life, sees(Unknown("away")))) == ["Nothing"]
    update, back = ask(life, sees(BACK), replace(POLICY, spare=2))
    assert update == UpdateObject(OBJECT, 1, {"StartTime": "now", "ExcNodeList": "c1,c2"})
    assert back == AppendFact("requeued", {"submission": 1, "slurm_job_id": 101, "restart": 1})
    take(life, [back])
    assert life.state.phase is Phase.QUEUED
    assert life.state.requeued
    # What was seen before is not a second end.
    assert kinds(ask(life, sees(GONE))) == ["Nothing"]
    assert kinds(ask(life, sees(replace(GONE, restart=None)))) == ["Nothing"]
    life.started(1, restart=1)
    assert life.state.phase is Phase.RUNNING
    assert kinds(ask(life, sees(replace(GONE, restart=1)))) == ["end"]


def test_a_requeued_run_keeps_off_nodes_that_still_hold_the_old_one() -> None:
    life = Life().run(1)
    body = start_body(life.spec, 1)
    node = {"attempt": body["attempt"], "epoch": body["epoch"], "boot": None, "left": [], "start_time": None}
    life.add("node", **node, node="c1", clean=True, verified=True)
    life.add("node", **node, node="c2", clean=None, verified=True)
    life.end(1, "preempted").decided("requeue", changes=["--begin=now+30", "--exclude=c9", "--time=0-02:00:00"])
    others = {"StartTime": "now+30", "TimeLimit": "0-02:00:00"}
    for spare, excluded in ((2, {"ExcNodeList": "c9,c2"}), (1, {"ExcNodeList": "c9"}), (0, {}), (None, {})):
        update, _ = ask(life, sees(BACK), replace(POLICY, spare=spare))
        assert isinstance(update, UpdateObject)
        assert update.fields == {**others, **excluded}, spare  # without a node left Slurm would never start it


def test_a_requeued_object_that_runs_already_is_not_changed() -> None:
    assert kinds(ask(requeuing(), sees(ObjectAlive(1, 101, restart=1)))) == ["requeued"]


def test_a_cancel_while_it_is_requeued() -> None:
    life = requeuing().add("request", what="cancel", reason="")
    assert kinds(ask(life, sees(GONE))) == ["closed"]
    take(life, ask(life, sees(BACK)))
    assert ask(life, sees(BACK)) == [Cancel(OBJECT, 1, "a person asked for it")]


def test_a_start_that_was_noted_before_the_requeue_was_seen() -> None:
    life = requeuing().started(1, restart=1).add("requeued", submission=1, slurm_job_id=101, restart=1)
    assert life.state.phase is Phase.RUNNING


def test_no_hold_runs_out_in_a_maintenance_nor_soon_after_it() -> None:
    """Nobody looks, and no node answers about cessation; it is asked all the same, and a person may release it."""
    life = shared()
    now = take(life, ask(life, at(0.0), ASKS)).at + 5_000.0
    away = replace(ASKS, holds_until=now + 100.0)
    take(life, decide(life.state, at(86_400.0), away, now))  # told
    asks, nothing = decide(life.state, at(86_400.0), away, now)
    assert isinstance(asks, AskCessation)
    assert isinstance(nothing, Nothing)
    assert (nothing.until, "maintenance" in nothing.why) == (now + ASKS.cessation_interval_s, True)
    assert kinds(decide(life.state, at(86_400.0), away, now + 100.0)) == ["AskCessation"]
