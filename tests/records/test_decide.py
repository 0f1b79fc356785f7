"""The decision: what follows from each state and each thing that can be seen, and above all what does not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from slurm_dispatch.errors import BadDataError
from slurm_dispatch.model.outcome import Outcome
from slurm_dispatch.records.actions import Action, AppendFact, Cancel, LookUp, Nothing, Submit
from slurm_dispatch.records.decide import NEVER_SUBMITTED_S, decide
from slurm_dispatch.records.observation import (
    Absent,
    Found,
    Lookups,
    ObjectAlive,
    ObjectEnded,
    Observation,
    Off,
    Unknown,
)
from slurm_dispatch.records.policy import Policy
from slurm_dispatch.records.settle import Adopt, Burn, Wait, settle
from slurm_dispatch.records.state import Phase, SlurmObject
from slurm_dispatch.rules.rule import parse_rules
from tests.records.life import CLUSTER, UID, Life, make_spec

POLICY = Policy()
BLIND = Observation(host="ctl")
ANSWERS = Observation(host="ctl", seen=())


def ask(life: Life, observation: Observation = BLIND, policy: Policy = POLICY, later: float = 0) -> list[Action]:
    return decide(life.state, observation, policy, life.at + later)


def ended(number: int, outcome: str, **more: Any) -> Observation:
    values = {"restart": 0, **more}
    return Observation("ctl", object=ObjectEnded(number, 100 + number, Outcome(outcome), {"state": "X"}, **values))


def alive(number: int, **more: Any) -> Observation:
    return Observation("ctl", object=ObjectAlive(number, 100 + number, **more))


def fact(actions: list[Action], kind: str) -> dict[str, Any]:
    assert len(actions) == 1, actions
    assert isinstance(actions[0], AppendFact), actions
    assert actions[0].kind == kind
    return dict(actions[0].body)


def nothing(actions: list[Action]) -> Nothing:
    assert len(actions) == 1, actions
    assert isinstance(actions[0], Nothing), actions
    return actions[0]


LIVES = {
    Phase.NEW: Life,
    Phase.SUBMITTING: lambda: Life().intent(1).add("watched", submission=1, host="ctl", first_seen=0),
    Phase.QUEUED: lambda: Life().intent(1).submitted(1),
    Phase.RUNNING: lambda: Life().run(1),
    Phase.CLOSED: lambda: Life().run(1).end(1, "failed").add("closed", why="", reason=""),
}


@pytest.mark.parametrize("phase", LIVES)
def test_unknown_changes_nothing(phase: Phase) -> None:
    """P5, C174: whatever was not seen is not there to act on, in every phase where the world must be asked."""
    life = LIVES[phase]()
    assert life.state.phase is phase
    actions = ask(life)
    assert all(isinstance(action, Nothing | LookUp) for action in actions)
    unknown = replace(BLIND, lookups=Lookups(1), seen=Unknown("squeue timed out"), object=Unknown("timed out"))
    nothing(ask(life, unknown))


# Intents without an answer


def test_an_intent_is_watched_before_anybody_else_touches_it() -> None:
    """C001, C003: a reply that is late, or an object that is not listed yet, is not one that is lost."""
    life = Life().intent(1, wait_s=170)
    assert fact(ask(life, ANSWERS), "watched") == {"submission": 1, "host": "ctl", "first_seen": life.at}
    since = life.at
    life.add("watched", submission=1, host="ctl", first_seen=since)
    waits = nothing(decide(life.state, replace(BLIND, lookups=found("queue")), POLICY, since + 169.9))
    assert waits.until == since + 170
    assert decide(life.state, BLIND, POLICY, since + 170) == [LookUp(1)]


def test_each_host_watches_for_itself() -> None:
    life = Life().intent(1).add("watched", submission=1, host="other", first_seen=0)
    assert fact(ask(life, ANSWERS, later=10_000), "watched")["host"] == "ctl"


def test_a_clock_that_was_set_back_makes_the_watch_begin_anew() -> None:
    life = Life().intent(1).add("watched", submission=1, host="ctl", first_seen=9e9)
    assert fact(ask(life, ANSWERS), "watched")["first_seen"] == life.at


def test_nobody_begins_to_watch_while_slurm_gives_no_answer() -> None:
    """C001, P5: what was sent to a slurmctld that hangs arrives once it goes on, however long that takes."""
    life = Life().intent(1, wait_s=170)
    away = Observation(host="ctl", seen=Unknown("timed out"))
    assert "timed out" in nothing(ask(life, away, later=10_000)).why
    assert fact(ask(life, ANSWERS, later=10_000), "watched")["first_seen"] == life.at + 10_000


def found(source: str) -> Lookups:
    """Found in one source, and absent in those before it."""
    order = ["notes", "queue", "accounting"]
    values: dict[str, Any] = dict.fromkeys(order[: order.index(source)], Absent())
    return Lookups(1, **values, **{source: Found(CLUSTER, 101)})


@pytest.mark.parametrize(("source", "how"), [("notes", "note"), ("queue", "queue"), ("accounting", "accounting")])
def test_what_a_source_has_is_adopted(source: str, how: str) -> None:
    life = LIVES[Phase.SUBMITTING]()
    body = fact(ask(life, replace(BLIND, lookups=found(source))), "submitted")
    assert body == {"submission": 1, "cluster": CLUSTER, "slurm_job_id": 101, "how": how}


@pytest.mark.parametrize("silent", ["notes", "queue", "accounting"])
def test_a_source_that_does_not_answer_stops_the_search(silent: str) -> None:
    answers: dict[str, Any] = {"notes": Absent(), "queue": Absent(), "accounting": Absent(), silent: Unknown("away")}
    life = LIVES[Phase.SUBMITTING]()
    assert "away" in nothing(ask(life, replace(BLIND, lookups=Lookups(1, **answers)))).why


def test_a_number_is_burnt_only_if_all_answer_and_none_has_it() -> None:
    """P6; C081: a site without accounting is one source short, and the fact says that it is weaker."""
    life = LIVES[Phase.SUBMITTING]()
    body = fact(ask(life, replace(BLIND, lookups=Lookups(1, Absent(), Absent(), Absent()))), "burnt")
    assert body == {"submission": 1, "evidence": "no note, nothing in the queue, nothing in accounting"}
    body = fact(ask(life, replace(BLIND, lookups=Lookups(1, Absent(), Absent(), Off()))), "burnt")
    assert "weaker" in body["evidence"]


def test_a_number_of_a_shared_job_is_left_to_a_person() -> None:
    """P6, P8: it is never burnt, and the hold can be lifted by a person only: there may be an execution of it."""
    life = Life(make_spec(shared=True)).intent(1).add("watched", submission=1, host="ctl", first_seen=0)
    body = fact(ask(life, replace(BLIND, lookups=Lookups(1, Absent(), Absent(), Absent()))), "decision")
    assert (body["action"], body["why"], body["on"], body["submission"]) == ("hold", "shared", 2, 2)
    state = life.add("decision", **body).state
    assert state.phase is Phase.HELD
    assert state.holding is not None
    assert not state.holding.ceased
    assert ask(life.release()) == [Submit(2, (), 4)]


def test_a_cancel_closes_a_shared_job_whose_submission_is_nowhere() -> None:
    life = Life(make_spec(shared=True)).intent(1).add("watched", submission=1, host="ctl", first_seen=0)
    life.add("request", what="cancel", reason="enough")
    seen = replace(BLIND, lookups=Lookups(1, Absent(), Absent(), Absent()))
    life.add("decision", **fact(ask(life, seen), "decision"))
    assert fact(ask(life, seen), "closed")["why"] == "cancelled"


def test_lookups_about_another_submission_count_for_nothing() -> None:
    life = LIVES[Phase.SUBMITTING]()
    assert ask(life, replace(BLIND, lookups=Lookups(2, Absent(), Absent(), Absent()))) == [LookUp(1)]


def test_the_search_takes_the_first_that_has_it() -> None:
    assert settle(Lookups(1, Found("a", 1), Unknown(), Unknown())) == Adopt("a", 1, "note")
    assert isinstance(settle(Lookups(1, Unknown(), Found("a", 1), Absent())), Wait)
    assert isinstance(settle(Lookups(1, Absent(), Absent(), Absent())), Burn)


def test_a_first_submission_that_never_reached_slurm_is_not_tried_behind_the_persons_back() -> None:
    life = Life().intent(1).add("burnt", submission=1, evidence="nowhere")
    assert fact(ask(life), "closed") == {"why": "never_submitted", "reason": "nowhere"}
    life = Life().intent(1).add("rejected", submission=1, status=1, message="bad partition")
    assert fact(ask(life), "closed") == {"why": "rejected", "reason": "bad partition"}


def test_a_later_submission_that_was_burnt_or_rejected_gets_the_next_number_after_a_while() -> None:
    for kind, body in (("burnt", {"evidence": ""}), ("rejected", {"status": 1, "message": "limit"})):
        life = Life().round(1).intent(2, 6).add(kind, submission=2, **body)
        decision = fact(ask(life), "decision")
        assert (decision["outcome"], decision["action"], decision["submission"]) == ("launch_failed", "resubmit", 3)
        assert decision["on"] == len(life.facts)
        assert decision["not_before"] == life.at + 30


def test_a_job_that_was_never_submitted_is_closed_in_the_end() -> None:
    assert nothing(ask(Life())).until == 1001 + NEVER_SUBMITTED_S
    assert fact(ask(Life(), later=NEVER_SUBMITTED_S), "closed")["why"] == "never_submitted"


# Ends


def test_an_end_is_a_fact_first_and_a_decision_after_it() -> None:
    life = Life().run(1)
    body = fact(ask(life, ended(1, "preempted")), "end")
    assert (body["outcome"], body["final"], body["slurm_job_id"]) == ("preempted", True, 101)
    life.add("end", **body)
    body = fact(ask(life), "decision")
    assert body["on"] == len(life.facts)
    assert (body["action"], body["submission"], body["not_before"]) == ("resubmit", 2, None)
    life.add("decision", **body)
    assert ask(life) == [Submit(2, (), len(life.facts))]


def test_what_was_seen_of_the_old_object_is_not_taken_for_the_new_one() -> None:
    life = Life().round(1).run(2)
    nothing(ask(life, ended(1, "preempted")))
    other = Observation("ctl", object=ObjectEnded(2, 999, Outcome.FAILED, {}))
    nothing(ask(life, other))


def test_a_job_that_says_nothing_for_weeks_is_no_job_that_ended() -> None:
    """C134: a late sign of life, or none, is no end: only Slurm's word and the helper's are."""
    life = Life().run(1).progress(1, 10)
    assert nothing(ask(life, alive(1, restart=0, pending=False), later=30 * 86400)).why == "it runs"


def test_a_restart_by_slurm_is_recorded_once_and_decides_nothing() -> None:
    """C034: while Slurm restarts an object itself, nothing else is submitted."""
    previous = ObjectEnded(1, 101, Outcome.NODE_FAIL, {}, restart=0, final=False)
    life = Life().run(1)
    body = fact(ask(life, alive(1, restart=1, pending=True, previous=previous)), "end")
    assert (body["final"], body["restart"]) == (False, 0)
    life.add("end", **body)
    nothing(ask(life, alive(1, restart=1, pending=True, previous=previous)))
    assert life.state.phase is Phase.QUEUED


def test_a_hold_in_slurm_is_recorded_only_of_what_waits_by_the_record() -> None:
    """Of what runs by the record, and waits again, the end is awaited: the fact would change nothing, and come again
    with each look, some at each tick."""
    held = alive(1, pending=True, held="JobHeldUser")
    assert fact(ask(Life().intent(1).submitted(1), held), "slurm_hold")["reason"] == "JobHeldUser"
    assert "not known yet" in nothing(ask(Life().run(1), held)).why


def test_a_restart_that_nothing_tells_from_the_last_one_is_not_recorded_again_and_again() -> None:
    previous = ObjectEnded(1, 101, Outcome.NODE_FAIL, {}, restart=None, final=False)
    nothing(ask(Life().run(1), alive(1, previous=previous)))


def test_completed_is_final() -> None:
    life = Life().run(1).end(1, "completed")
    body = fact(ask(life), "decision")
    assert (body["action"], body["close"]) == ("stop", "completed")
    life.add("decision", **body)
    assert fact(ask(life), "closed")["why"] == "completed"


@pytest.mark.parametrize("outcome", ["cancelled", "deadline"])
def test_what_no_rule_brings_back_closes_with_its_own_word(outcome: str) -> None:
    life = Life().run(1).end(1, outcome)
    assert fact(ask(life), "decision")["close"] == outcome


@pytest.mark.parametrize("outcome", ["out_of_memory", "not_resumed", "lost"])
def test_what_would_end_the_same_way_again_waits_for_a_person(outcome: str) -> None:
    body = fact(ask(Life().run(1).end(1, outcome)), "decision")
    assert (body["action"], body["why"], body["then"], body["submission"]) == ("hold", "rule", "resubmit", 2)
    assert body["hold_for_s"] == 14 * 86400


def test_a_cancel_by_an_operator_waits_for_a_person() -> None:
    body = fact(ask(Life().run(1).end(1, "cancelled", by_uid=0)), "decision")
    assert (body["action"], body["why"]) == ("hold", "rule")


def test_an_operators_cancel_counts_as_any_end_that_a_rule_names() -> None:
    life = Life(make_spec(rules=("cancelled:resubmit,budget=3",))).run(1).end(1, "cancelled", by_uid=0)
    body = fact(ask(life), "decision")
    assert (body["action"], body["budget"], body["rule"]) == ("resubmit", 3, "cancelled:resubmit,budget=3")


@pytest.mark.parametrize(("by_uid", "says"), [(UID, "its owner cancelled it"), (None, "nothing tells who")])
def test_a_cancel_by_the_owner_is_final_whatever_the_rule_says(by_uid: int | None, says: str) -> None:
    life = Life(make_spec(rules=("cancelled:resubmit",))).run(1).end(1, "cancelled", by_uid=by_uid)
    body = fact(ask(life), "decision")
    assert (body["action"], body["close"], body["submission"]) == ("stop", "cancelled", None)
    assert says in body["reason"]


def test_the_users_rules_come_before_the_sites() -> None:
    site = Policy(rules=parse_rules(["failed:stop", "timeout:stop"]))
    spec = make_spec(rules=("failed:resubmit",))
    assert fact(ask(Life(spec).run(1).end(1, "failed"), policy=site), "decision")["action"] == "resubmit"
    assert fact(ask(Life(spec).run(1).end(1, "timeout"), policy=site), "decision")["action"] == "stop"


def test_rules_in_the_record_that_do_not_parse_are_bad_data() -> None:
    with pytest.raises(BadDataError, match="'wait' is not an action"):
        ask(Life(make_spec(rules=("failed:wait",))).run(1).end(1, "failed"))


# Budgets and caps


def play(life: Life, outcomes: list[str], policy: Policy = POLICY) -> dict[str, Any]:
    """Each submission ends with the next outcome; the last decision."""
    body: dict[str, Any] = {}
    for number, outcome in enumerate(outcomes, start=1):
        life.intent(number, len(life.facts) if number > 1 else None).submitted(number)
        if outcome != "launch_failed":
            life.started(number)
        body = fact(ask(life.end(number, outcome), policy=policy), "decision")
        life.add("decision", **body)
    return body


def test_failed_comes_back_twice() -> None:
    assert play(Life(), ["failed", "failed"])["action"] == "resubmit"
    body = play(Life(), ["failed", "failed", "failed"])
    assert (body["action"], body["why"], body["budget_used"], body["budget"]) == ("hold", "budget", 2, 2)


def test_budgets_are_kept_by_cause() -> None:
    body = play(Life(), ["failed", "preempted", "failed", "preempted", "node_fail"])
    assert body["action"] == "resubmit"
    spec = make_spec(rules=("preempted,node_fail:resubmit,budget=1",))
    assert play(Life(spec), ["preempted", "node_fail"])["action"] == "resubmit"
    assert play(Life(spec), ["preempted", "node_fail", "preempted"])["why"] == "budget"


def test_progress_gives_the_budget_back() -> None:
    life = Life()
    play(life, ["failed", "failed"])
    life.intent(3, len(life.facts)).submitted(3).started(3).progress(3, 7).end(3, "failed")
    body = fact(ask(life), "decision")
    assert (body["action"], body["budget_used"]) == ("resubmit", 0)


def test_a_budget_of_nothing_never_resubmits() -> None:
    assert play(Life(make_spec(rules=("failed:resubmit,budget=0",))), ["failed"])["why"] == "budget"


def test_the_cap_on_submissions_counts_every_one() -> None:
    assert play(Life(make_spec(max_submissions=2)), ["preempted"])["action"] == "resubmit"
    assert play(Life(make_spec(max_submissions=2)), ["preempted", "preempted"])["why"] == "max_submissions"
    assert play(Life(), ["preempted"], Policy(max_submissions=1))["why"] == "max_submissions"


def test_a_launch_that_fails_costs_no_budget_and_is_held_after_five_in_a_row() -> None:
    """C042, C060: a site whose prolog always fails is not flooded, and the job waits with that reason."""
    body = play(Life(), ["launch_failed"] * 5)
    assert body["action"] == "resubmit"
    body = play(Life(), ["launch_failed"] * 6)
    assert (body["action"], body["why"]) == ("hold", "launch_failures")
    assert play(Life(), ["launch_failed"] * 5 + ["preempted"] + ["launch_failed"] * 5)["action"] == "resubmit"


def test_launches_that_fail_wait_longer_each_time() -> None:
    waits = []
    for count in range(1, 6):
        life = Life()
        body = play(life, ["launch_failed"] * count)
        assert body["not_before"] is None, "it waits in Slurm, where squeue shows it"
        waits += [it for it in body["changes"] if it.startswith("--begin=")]
    assert waits == ["--begin=now+30", "--begin=now+60", "--begin=now+120", "--begin=now+240", "--begin=now+480"]


def test_a_wait_is_kept() -> None:
    life = Life().run(1).end(1, "failed").resubmit(2, "failed", not_before=5000.0)
    assert nothing(decide(life.state, BLIND, POLICY, 4999.0)).until == 5000.0
    assert decide(life.state, BLIND, POLICY, 5000.0) == [Submit(2, (), len(life.facts))]


@pytest.mark.parametrize("rule", ["preempted:resubmit", "preempted:requeue"])
def test_a_shared_checkpoint_is_never_resubmitted_by_itself(rule: str) -> None:
    """P8: a requeue, too, becomes a submission after the release."""
    spec = make_spec(shared=True, shared_hold_for_s=7200, rules=(rule,))
    body = fact(ask(Life(spec).run(1).end(1, "preempted")), "decision")
    assert (body["action"], body["why"], body["then"], body["hold_for_s"]) == ("hold", "shared", "resubmit", 7200)


# A person's cancel


def wish(life: Life) -> Life:
    return life.add("request", what="cancel", reason="wrong data")


@pytest.mark.parametrize(
    "life", [Life(), Life().round(1), Life().run(1).end(1, "preempted")], ids=["new", "waiting", "ended"]
)
def test_a_cancel_closes_at_once_where_slurm_has_nothing(life: Life) -> None:
    assert fact(ask(wish(life)), "closed") == {"why": "cancelled", "reason": "wrong data"}


def test_a_cancel_cancels_the_object_and_closes_once_it_is_gone() -> None:
    life = wish(Life().run(1))
    assert ask(life, alive(1)) == [Cancel(SlurmObject(CLUSTER, 101), 1, "a person asked for it")]
    nothing(ask(life))
    life.add("end", **fact(ask(life, ended(1, "cancelled")), "end"))
    assert fact(ask(life), "closed")["why"] == "cancelled"


def test_a_cancel_of_an_unsettled_intent_waits_for_its_settling() -> None:
    life = wish(LIVES[Phase.SUBMITTING]())
    assert ask(life) == [LookUp(1)]


def test_a_job_that_completed_before_the_cancel_came_is_completed() -> None:
    body = fact(ask(wish(Life().run(1).end(1, "completed"))), "decision")
    assert body["close"] == "completed"
