"""Replay and why: a decision comes out again from the facts before it, and says what it stands on."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from slurm_dispatch.errors import UsageError
from slurm_dispatch.records.actions import AppendFact
from slurm_dispatch.records.decide import decide
from slurm_dispatch.records.facts import parse_fact, render
from slurm_dispatch.records.fold import fold
from slurm_dispatch.records.observation import Absent, Lookups, Observation
from slurm_dispatch.records.people import (
    REASON_MAX,
    RELEASE_EXPIRED_S,
    Facts,
    adopt,
    hold,
    release,
    reopen,
    reopens_held,
    supersede,
    update,
)
from slurm_dispatch.records.policy import Limits, Policy
from slurm_dispatch.records.replay import replay
from slurm_dispatch.records.state import Phase
from slurm_dispatch.records.why import explain
from slurm_dispatch.rules.rule import parse_rules
from tests.records.life import Life, make_spec, start_body
from tests.records.test_holds import shared

SITE = Policy(
    rules=parse_rules(["preempted:resubmit,backoff=30s..30m"]), excluded=("c9",), jitter=0.25, no_progress=40
)
BLIND = Observation(host="ctl")


def by_itself(life: Life, policy: Policy = SITE) -> Life:
    """Take the decision that is due."""
    (action,) = decide(life.state, BLIND, policy, life.at + 7)
    assert isinstance(action, AppendFact)
    return life.add(action.kind, **action.body)


def a_life() -> Life:
    """Many ends, under a policy that changes."""
    life = Life(make_spec(rules=("failed:requeue,budget=1",)))
    due: int | None = None
    for number, (outcome, policy) in enumerate(
        [
            ("preempted", SITE),
            ("node_fail", replace(SITE, excluded=("c7", "c8"))),
            ("preempted", replace(SITE, maintenance_until=5000.0)),
            ("launch_failed", SITE),
            ("preempted", replace(SITE, breaker="storm")),
            ("timeout", replace(SITE, limits=Limits(resubmissions_left=0))),
            ("out_of_memory", SITE),
        ],
        start=1,
    ):
        life.intent(number, due).submitted(number).started(number).end(number, outcome)
        by_itself(life, policy)
        due = len(life.facts)
        if life.state.phase is Phase.HELD:
            life.release()
    return life


def test_the_same_decisions_come_out_again() -> None:
    life = a_life()
    found = replay(life.facts)
    assert len(found) == 7
    assert [it.same for it in found] == [True] * 7, [it.differs for it in found]
    assert {it.recorded["why"] for it in found} == {"rule", "breaker", "limit"}


@pytest.mark.parametrize(
    ("field", "value"), [("action", "stop"), ("changes", []), ("budget_used", 3), ("rule", "failed:stop")]
)
def test_a_decision_that_was_not_made_by_the_rules_is_seen(field: str, value: Any) -> None:
    life = Life().run(1).end(1, "preempted")
    fact = by_itself(life).facts.pop()
    content = json.loads(render(fact))
    content[field] = value
    if field == "action":
        content["submission"] = None
    life.facts.append(parse_fact(fact.seq, json.dumps(content).encode()))
    (found,) = replay(life.facts)
    assert found.same is False
    assert field in found.differs


def test_what_a_policy_was_matters_and_what_it_is_now_does_not() -> None:
    life = by_itself(Life().run(1).end(1, "preempted"), replace(SITE, max_submissions=1))
    (found,) = replay(life.facts)
    assert (found.same, found.now["why"]) == (True, "max_submissions")


def test_a_decision_of_a_version_without_inputs_cannot_be_told() -> None:
    (found,) = replay(Life().round(1).facts)
    assert found.same is None
    assert "did not record" in found.trouble
    life = by_itself(Life().run(1).end(1, "preempted"))
    life.facts[-1].body["inputs"].pop("now")
    (found,) = replay(life.facts)
    assert found.same is None
    assert "do not say what it stands on" in found.trouble


def test_an_input_that_an_older_version_did_not_have_changes_nothing() -> None:
    life = by_itself(Life().run(1).end(1, "node_fail"))
    life.facts[-1].body["inputs"].pop("spare")
    (found,) = replay(life.facts)
    assert (found.same, found.differs) == (True, ())


def test_an_intent_that_was_left_to_a_person_comes_out_again() -> None:
    life = Life(make_spec(shared=True)).intent(1).add("watched", submission=1, host="ctl", first_seen=0)
    seen = replace(BLIND, lookups=Lookups(1, Absent(), Absent(), Absent()))
    (action,) = decide(life.state, seen, SITE, life.at)
    assert isinstance(action, AppendFact)
    life.add(action.kind, **action.body)
    assert [it.same for it in replay(life.facts)] == [True]


# Why


def test_why_says_the_decision_its_rule_and_the_facts_it_stands_on() -> None:
    life = Life(make_spec(max_node_hours=100.0)).run(1).progress(1, 40)
    body = start_body(life.spec, 1)
    life.add("ended", attempt=body["attempt"], epoch=body["epoch"], status=1, signal=None, outcome=None, step=40)
    by_itself(life.end(1, "failed"))
    why = explain(life.state, life.facts, SITE)
    assert why.decision == len(life.facts)
    assert why.rule is not None
    assert why.rule.startswith("failed,stalled:resubmit")
    assert [seq for seq, _ in why.stands_on] == [2, 3, 4, 5, 6, 7]
    assert ("failed", 1, 2) in why.budget
    assert ("submissions", "1", "100") in why.caps
    assert ("executions in a row without progress", "0", "40") in why.caps
    hours = next(used for name, used, _ in why.caps if name == "node-hours")
    assert hours == f"{life.state.node_hours:.2f}", "a small cap is not used up at 0.0"
    assert dict(why.inputs)["excluded"] == "c9"


def test_why_says_what_a_job_without_a_decision_waits_for() -> None:
    for life, word in ((Life(), "sbatch"), (Life().intent(1), "answer"), (Life().run(1), "runs")):
        why = explain(life.state, life.facts)
        assert why.decision is None
        assert word in why.what
    life = Life(make_spec(supersedes="old", generation=1))
    assert "once job old is closed" in explain(life.state, life.facts).what


@pytest.mark.parametrize(
    ("life", "word"),
    [
        (Life().run(1).end(1, "preempted").holds(2, why="breaker"), "breaker closes"),
        (shared(), "has ceased"),
        (Life(make_spec(shared=True)).intent(1).submitted(1).end(1, "lost").holds(2, why="shared"), "nobody can"),
        (Life().run(1).end(1, "failed").holds(2, "failed"), "dispatch release"),
        (Life().run(1).end(1, "failed").add("closed", why="failed", reason=""), "dispatch reopen"),
        (Life().run(1).add("hold", reason="", for_s=None), "a person holds what comes next"),
        (Life().round(1), "dispatch hold"),
    ],
)
def test_why_says_what_would_change_it(life: Life, word: str) -> None:
    assert any(word in line for line in explain(life.state, life.facts).would_change)


def test_why_says_that_a_replacement_waits_behind_its_own_old_object() -> None:
    life = Life(make_spec(suspect_s=30.0)).run(1).suspected(1).resubmit(2, "suspect").intent(2, 6).submitted(2)
    lines = explain(life.state, life.facts, pending_reason="QOSMaxJobsPerUserLimit").would_change
    assert any("waits behind its limits (QOSMaxJobsPerUserLimit)" in line for line in lines)
    lines = explain(life.state, life.facts, pending_reason="Priority").would_change
    assert not any("behind its limits" in line for line in lines)
    assert any("that c1 answers" in line for line in lines)
    nodes = "that Slurm finds nodes for the replacement (Priority)"
    assert f"{nodes}; its own old object (Slurm job 101) still has c[1-2]" in lines
    life = Life().run(1).end(1, "preempted").resubmit(2).intent(2, 6).submitted(2)
    assert "that Slurm starts it, which lets it wait (Priority)" in explain(
        life.state, life.facts, pending_reason="Priority"
    ).would_change


# Persons


def put(life: Life, facts: Facts) -> Life:
    for kind, body in facts:
        life.add(kind, **body)
    fold(life.facts)
    return life


def test_every_wish_makes_facts_that_the_law_allows() -> None:
    life = put(Life().round(1), hold(Life().round(1).state, "look at it", 60.0))
    assert life.state.phase is Phase.HELD
    assert put(life, release(life.state, "seen", life.at)).state.phase is Phase.WAITING
    put(life, update(life.state, "more time", argv=["--time=2:00:00"], settings={"max_submissions": 7}))
    assert (life.state.spec.argv, life.state.spec.max_submissions) == (("--time=2:00:00",), 7)
    put(life, adopt(life.state, "old", "new", "it is better"))
    assert life.state.numbers_used == 2
    put(life, supersede(life.state, "new", "another data set"))
    assert life.state.closed is not None
    assert life.state.closed.by_job == "new"


def test_a_wish_for_later_is_taken_back() -> None:
    life = Life().run(1)
    put(life, hold(life.state, "look at it"))
    assert put(life, release(life.state, "no", life.at)).state.hold is None


@pytest.mark.parametrize("is_shared", [False, True])
def test_a_release_after_the_hold_ran_out_opens_it_again_for_14_days(is_shared: bool) -> None:
    why = "shared" if is_shared else "rule"
    life = Life(make_spec(shared=is_shared)).run(1).end(1, "preempted").holds(2, why=why)
    life.add("closed", why="hold_expired", reason="")
    assert reopens_held(life.state) is is_shared
    state = life.state
    assert put(life, release(state, "seen", life.at + RELEASE_EXPIRED_S)).state.phase is Phase.WAITING
    with pytest.raises(UsageError, match="more than 14 days ago"):
        release(state, "seen", life.at + RELEASE_EXPIRED_S + 1)


def test_a_closed_job_is_opened_to_be_superseded() -> None:
    life = Life().run(1).end(1, "completed").add("closed", why="completed", reason="")
    put(life, supersede(life.state, "new", ""))
    assert [fact.kind for fact in life.facts[-2:]] == ["reopened", "closed"]


CLOSED = Life().run(1).end(1, "failed").add("closed", why="failed", reason="")
GONE_ON = Life().run(1).superseded("new")


@pytest.mark.parametrize(
    ("wish", "says"),
    [
        (lambda: hold(CLOSED.state, "x"), r"is closed \(failed\) and cannot be held"),
        (lambda: hold(Life().state, " "), "there is no reason"),
        (lambda: hold(Life().state, "x" * (REASON_MAX + 1)), "longer than 1000"),
        (lambda: release(Life().run(1).state, "x", 1.0), "is not held: it is running"),
        (lambda: release(CLOSED.state, "x", 1.0), r"is closed \(failed\)"),
        (lambda: reopen(Life().run(1).state, "x"), "is not closed: it is running"),
        (lambda: reopen(GONE_ON.state, "x"), "job new goes on in place of"),
        (
            lambda: reopen(Life(make_spec(supersedes="o")).add("closed", why="x", reason="").state, "x"),
            "never took over from job o",
        ),
        (lambda: update(CLOSED.state, "x", argv=[]), "cannot be changed"),
        (lambda: update(Life().state, "x"), "nothing of job k3v9d0q2xw7a is changed"),
        (lambda: update(Life().state, "x", rules=["failed:wait"]), "'wait' is not an action"),
        (lambda: update(Life().state, "x", settings={"uid": 0}), "'uid' is not a setting"),
        (lambda: adopt(Life().state, "a", "b", "x"), "was not submitted yet"),
        (lambda: adopt(Life().run(1).state, "a", "b", "x"), "is running: its next save would outrank"),
        (
            lambda: adopt(Life(make_spec(shared=True)).intent(1).submitted(1).state, "a", "b", "x"),
            "has a shared checkpoint",
        ),
        (lambda: supersede(GONE_ON.state, "third", "x"), "job new goes on in place of"),
        (lambda: supersede(Life().run(1).state, "new", "x", keep=7), "Slurm job 7 is not what runs"),
    ],
)
def test_a_wish_that_cannot_be_is_refused_with_one_line(wish: Any, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        wish()
