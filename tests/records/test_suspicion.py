"""Suspicion: a silent node, the replacement, and what becomes of the two objects."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from slurm_dispatch.errors import BadDataError
from slurm_dispatch.model.outcome import Outcome
from slurm_dispatch.records.actions import Action, AppendFact, Cancel, Nothing, Submit
from slurm_dispatch.records.decide import decide
from slurm_dispatch.records.fold import fold
from slurm_dispatch.records.observation import (
    ObjectAlive,
    ObjectEnded,
    Observation,
    Seen,
    SilentNode,
    Unknown,
)
from slurm_dispatch.records.policy import Limits, Policy
from slurm_dispatch.records.state import Phase, SlurmObject
from slurm_dispatch.records.verdict import verdict
from tests.records.life import CLUSTER, UID, Life, make_spec
from tests.records.test_holds import kinds, take

POLICY = Policy()
BLIND = Observation(host="ctl")
RUNS = ObjectAlive(1, 101, restart=0)
WAITS = ObjectAlive(2, 102, restart=0, pending=True)


def ask(life: Life, observation: Observation = BLIND, policy: Policy = POLICY, later: float = 0) -> list[Action]:
    return decide(life.state, observation, policy, life.at + later)


def running(**spec: Any) -> Life:
    return Life(make_spec(**{"suspect_s": 30.0, **spec})).run(1)


def silent(life: Life, for_s: float, **more: Any) -> Observation:
    return replace(BLIND, object=RUNS, silent=(SilentNode("c2", life.at - for_s),), **more)


# Suspicion


def test_a_node_that_is_silent_for_long_enough_is_suspected() -> None:
    life = running()
    (action,) = ask(life, silent(life, 29.0))
    assert isinstance(action, Nothing)
    assert action.until == life.at + 1
    (action,) = ask(life, silent(life, 30.0))
    assert isinstance(action, AppendFact)
    assert action.kind == "suspected"
    assert (action.body["nodes"], action.body["since"], action.body["slurm_job_id"]) == (["c2"], life.at - 30, 101)
    take(life, [action])
    assert (life.state.phase, life.state.over and life.state.over.outcome) == (Phase.ENDED, Outcome.SUSPECT)
    (action,) = ask(life)
    assert isinstance(action, AppendFact)
    assert (action.body["action"], action.body["outcome"]) == ("resubmit", "suspect")
    assert action.body["changes"] == ["--exclude=c2"]
    assert ask(take(life, [action])) == [Submit(2, ("--exclude=c2",), 6)]


@pytest.mark.parametrize(
    ("spec", "policy", "more"),
    [
        ({"suspect_s": None}, POLICY, {}),
        ({"shared": True}, POLICY, {}),
        ({}, Policy(limits=Limits(overlaps=False)), {}),
        ({}, Policy(breaker="storm"), {}),
        ({}, Policy(maintenance_until=9e9), {}),
        ({}, POLICY, {"silent": Unknown("sinfo timed out")}),
        ({}, POLICY, {"silent": ()}),
        ({}, POLICY, {"object": replace(RUNS, restart=1)}),
        ({}, POLICY, {"object": replace(RUNS, pending=True)}),
        ({}, POLICY, {"object": Unknown("away")}),
    ],
    ids=["off", "shared", "overlaps", "breaker", "maintenance", "unknown", "answers", "restarted", "waits", "away"],
)
def test_when_nothing_is_suspected(spec: dict[str, Any], policy: Policy, more: dict[str, Any]) -> None:
    life = running(**spec)
    assert kinds(ask(life, replace(silent(life, 1000.0), **more), policy)) == ["Nothing"]


def test_a_person_who_holds_or_cancels_the_job_wants_no_replacement() -> None:
    life = running().add("hold", reason="", for_s=None)
    assert kinds(ask(life, silent(life, 1000.0))) == ["Nothing"]
    life = running().add("request", what="cancel", reason="")
    assert kinds(ask(life, silent(life, 1000.0))) == ["Cancel"]


NOT_ASKED = Unknown()


def suspected() -> Life:
    """The replacement is decided."""
    return running().suspected(1, ("c2",)).resubmit(2, "suspect")


def replaced() -> Life:
    """The replacement waits in Slurm."""
    return suspected().intent(2, 6).submitted(2)


def both(elder: Any = RUNS, answers: bool | None = False, new: Any = NOT_ASKED, **more: Any) -> Observation:
    return replace(BLIND, elder=elder, elder_answers=answers, object=new, **more)


def listed(*jobs: tuple[int, int]) -> tuple[Seen, ...]:
    return tuple(Seen(0, number, CLUSTER, job, UID, alive=True) for number, job in jobs)


def test_the_suspected_object_is_left_alone_until_its_replacement_runs() -> None:
    """The overlap is harmless, and the node may come back: nothing is cancelled before there is something better."""
    for life in (suspected(), replaced()):
        actions = ask(life, both(new=WAITS, seen=listed((1, 101), (2, 102))), later=5000)
        assert not any(isinstance(action, Cancel) for action in actions), life.state.phase
    life = replaced().started(2)
    assert life.state.phase is Phase.RUNNING
    runs = replace(WAITS, pending=False)
    assert ask(life, both(new=runs, seen=listed((1, 101), (2, 102))))[0] == Cancel(
        SlurmObject(CLUSTER, 101), 1, "its replacement runs", stray=True
    )
    over = ObjectEnded(1, 101, Outcome.CANCELLED, {}, restart=0)
    take(life, ask(life, both(over, new=runs)))
    assert life.state.elder is None
    assert life.state.phase is Phase.RUNNING
    assert kinds(ask(life, both(over, new=runs))) == ["Nothing"]


def test_what_is_unknown_of_the_suspected_object_changes_nothing() -> None:
    """P5."""
    for elder, answers in ((Unknown("away"), None), (Unknown("away"), True), (RUNS, None)):
        assert kinds(ask(replaced(), both(elder, answers, WAITS))) == ["Nothing"]


def held_suspect() -> Life:
    return running().suspected(1).holds(2, "suspect", "budget")


@pytest.mark.parametrize("make", [lambda: running().suspected(1), suspected, held_suspect])
def test_nodes_that_answer_before_the_replacement_is_made_clear_it(make: Any) -> None:
    life = make()
    (action,) = ask(life, both(answers=True))
    assert isinstance(action, AppendFact)
    assert (action.kind, action.body["submission"]) == ("cleared", 1)
    state = take(life, [action]).state
    assert (state.phase, state.elder, state.due, state.over, state.holding) == (Phase.RUNNING, None, None, None, None)
    assert state.current is not None
    assert state.current.number == 1
    over = ObjectEnded(1, 101, Outcome.COMPLETED, {}, restart=0)
    assert kinds(ask(life, replace(BLIND, object=over))) == ["end"]


def test_nodes_that_answer_before_the_replacement_runs_cancel_it_instead() -> None:
    life = replaced()
    mark, cancel = ask(life, both(answers=True, new=WAITS))
    assert mark == AppendFact("stray", {"submission": 2, "slurm_job_id": 102, "cluster": CLUSTER})
    assert cancel == Cancel(SlurmObject(CLUSTER, 102), 2, "the suspected nodes answered")
    take(life, [mark])
    # Once begun it is gone through with, also by a tick that does not know of the answer.
    assert cancel in ask(life, both(answers=None, new=WAITS))
    life.end(2, "cancelled", by_uid=UID)
    assert life.state.phase is Phase.ENDED
    assert kinds(ask(life, both(answers=None))) == ["Nothing"], "unknown clears nothing"
    take(life, ask(life, both(answers=True)))
    state = life.state
    assert (state.phase, state.current and state.current.number) == (Phase.RUNNING, 1)
    # The next number is above every one that was used.
    take(life.end(1, "preempted"), [AppendFact("decision", verdict(life.state, POLICY, life.at).body())])
    assert life.state.due is not None
    assert life.state.due.submission == 3


def test_our_own_cancel_of_a_replacement_is_not_taken_for_its_owners() -> None:
    """Otherwise a node that answers and goes silent again would close the job as cancelled."""
    life = replaced().add("stray", submission=2, slurm_job_id=102, cluster=CLUSTER).end(2, "cancelled", by_uid=UID)
    (action,) = ask(life, both(answers=False))
    assert isinstance(action, AppendFact)
    body = action.body
    assert (body["action"], body["outcome"], body["submission"], body["free"]) == ("resubmit", "suspect", 3, True)
    life = replaced().end(2, "cancelled", by_uid=UID)
    (action,) = ask(life, both(answers=False))
    assert isinstance(action, AppendFact)
    assert action.body["close"] == "cancelled", "a person's cancel of the replacement is final"


def test_a_suspicion_that_was_right_ends_with_the_old_object() -> None:
    lost = ObjectEnded(1, 101, Outcome.NODE_FAIL, {"state": "NODE_FAIL"}, restart=0)
    for life in (running().suspected(1), suspected(), replaced()):
        phase = life.state.phase
        assert kinds(ask(life, both(lost, new=WAITS))) == ["end"]
        take(life, ask(life, both(lost, new=WAITS)))
        assert (life.state.phase, life.state.elder) == (phase, None)
    assert kinds(ask(life, both(lost, new=WAITS))) == ["Nothing"]


def test_an_old_object_that_came_to_an_end_of_its_own_was_alive() -> None:
    """It completed while its replacement waited: the job is complete, and does not run again."""
    done = ObjectEnded(1, 101, Outcome.COMPLETED, {}, restart=0)
    life = replaced()
    take(life, ask(life, both(done, None, WAITS)))
    life.end(2, "cancelled", by_uid=UID)
    take(life, ask(life, both(done, None)))
    assert life.state.phase is Phase.RUNNING
    for expected in ("end", "decision", "closed"):
        actions = ask(life, replace(BLIND, object=done))
        assert kinds(actions) == [expected]
        take(life, actions)
    assert life.state.closed is not None
    assert life.state.closed.why == "completed"


def test_an_old_object_that_slurm_starts_again_is_cancelled() -> None:
    again = ObjectAlive(1, 101, restart=1, pending=True)
    assert ask(replaced(), both(again, False, WAITS))[0] == Cancel(
        SlurmObject(CLUSTER, 101), 1, "it was replaced", stray=True
    )


def test_a_replacement_that_ran_and_ended_is_followed_by_another() -> None:
    life = replaced().started(2).end(2, "node_fail")
    actions = ask(life, both(answers=True))
    assert kinds(actions) == ["Cancel", "decision"]
    with pytest.raises(BadDataError, match="has started"):
        fold(life.add("cleared", submission=1, reason="").facts)


def test_a_cancel_by_a_person_ends_both() -> None:
    life = suspected().add("request", what="cancel", reason="")
    take(life, ask(life, both(answers=True)))
    assert life.state.phase is Phase.CLOSED
    seen = replace(BLIND, seen=listed((1, 101)))
    assert [type(it) for it in ask(life, seen)] == [Nothing, AppendFact, Cancel]
    over = ObjectEnded(1, 101, Outcome.CANCELLED, {}, restart=0)
    assert not life.state.finished
    take(life, ask(life, both(over)))
    assert life.state.finished


def test_a_shared_job_is_never_suspected_and_nothing_is_suspected_twice() -> None:
    with pytest.raises(BadDataError, match="never replaced on suspicion"):
        fold(running(shared=True).suspected(1).facts)
    life = replaced().started(2)
    life.add("suspected", submission=2, slurm_job_id=102, restart=0, nodes=["c3"], since=1.0)
    with pytest.raises(BadDataError, match="submission 1 is suspected already"):
        fold(life.facts)
    with pytest.raises(BadDataError, match="is not that of submission 1"):
        fold(Life().run(1).add("suspected", submission=1, slurm_job_id=7, restart=0, nodes=[], since=1.0).facts)
    with pytest.raises(BadDataError, match="is not suspected"):
        fold(Life().round(1).add("cleared", submission=1, reason="").facts)


def test_a_replacement_that_started_as_it_was_cancelled_never_gives_the_job_back_to_the_old_object() -> None:
    """Both end by our own cancels. What follows is the third submission, and no owner's wish closes the job."""
    life = replaced().add("stray", submission=2, slurm_job_id=102, cluster=CLUSTER).started(2)
    life.end(2, "cancelled", by_uid=UID)
    cancel, decision = ask(life, both(answers=True))
    assert cancel == Cancel(SlurmObject(CLUSTER, 101), 1, "its replacement runs", stray=True)
    assert isinstance(decision, AppendFact)
    assert (decision.body["action"], decision.body["submission"], decision.body["free"]) == ("resubmit", 3, True)
    assert decision.body["changes"] == ["--exclude=c2"], "nothing is wrong with the nodes of the second"
    take(life, [decision])
    life.intent(3, life.state.seq).submitted(3)
    over = ObjectEnded(1, 101, Outcome.CANCELLED, {"by_uid": UID}, restart=0)
    waits = ObjectAlive(3, 103, restart=0, pending=True)
    actions = ask(life, both(over, True, waits))
    assert kinds(actions) == ["end"], "the third is not cancelled in favour of an object that is over"
    take(life, actions)
    assert (life.state.phase, life.state.elder) == (Phase.QUEUED, None)
    assert kinds(ask(life, both(over, True, waits))) == ["Nothing"]
    lives = replaced().started(2).end(2, "node_fail").resubmit(3, "node_fail")
    lives.intent(3, lives.state.seq).submitted(3)
    assert kinds(ask(lives, both(RUNS, True, waits))) == ["Nothing"], "and it is left alone until the third runs"


def test_an_old_object_is_not_current_again_once_any_replacement_ran() -> None:
    """What that one saved outranks all that the old object saves from then on."""
    life = replaced().started(2).end(2, "node_fail").resubmit(3, "node_fail")
    with pytest.raises(BadDataError, match="has started"):
        fold(life.add("cleared", submission=1, reason="").facts)
