"""The fold: what facts make, what the law refuses, and how long it takes."""

from __future__ import annotations

import time
from typing import Any

import pytest

from slurm_dispatch.errors import BadDataError
from slurm_dispatch.model.outcome import Outcome
from slurm_dispatch.records.facts import Fact
from slurm_dispatch.records.fold import fold
from slurm_dispatch.records.state import ANY_TIME, LAW, NEXT, PHASE_TEXTS, Event, Phase, Settled, SlurmObject
from tests.records.life import Life, make_spec, start_body


def test_a_job_from_its_making_to_its_end() -> None:
    life = Life()
    phases = [life.state.phase]
    for step in (
        lambda: life.intent(1),
        lambda: life.submitted(1),
        lambda: life.started(1),
        lambda: life.end(1, "preempted"),
        lambda: life.resubmit(2),
        lambda: life.intent(2, 6),
        lambda: life.submitted(2),
        lambda: life.started(2),
        lambda: life.end(2, "completed"),
        lambda: life.add("closed", why="completed", reason=""),
    ):
        step()
        phases.append(life.state.phase)
    assert [phase.value for phase in phases] == [
        "new",
        "submitting",
        "queued",
        "running",
        "ended",
        "waiting",
        "submitting",
        "queued",
        "running",
        "ended",
        "closed",
    ]
    state = life.state
    assert [submission.number for submission in state.submissions] == [1, 2]
    assert state.used == {Outcome.PREEMPTED: 1}
    assert state.object is None
    assert state.seq == len(life.facts)


def test_the_current_object_is_that_of_the_last_submission() -> None:
    life = Life().round(1).intent(2, 6)
    assert life.state.object is None
    life.submitted(2)
    assert life.state.object == SlurmObject("alpha", 102)


def test_a_restart_by_slurm_is_no_end_of_the_submission() -> None:
    life = Life().run(1).end(1, "preempted", final=False)
    assert life.state.phase is Phase.QUEUED
    assert life.state.current is not None
    assert life.state.current.end is None
    life.started(1, restart=1)
    assert life.state.phase is Phase.RUNNING
    assert life.state.current is not None
    assert life.state.current.execution is not None
    assert life.state.current.execution.epoch.restart == 1


def test_a_start_that_is_told_after_its_end_moves_nothing() -> None:
    life = Life().intent(1).submitted(1).end(1, "preempted", final=False, restart=0).started(1, restart=0)
    assert life.state.phase is Phase.QUEUED


def test_a_start_that_is_told_before_the_answer_of_sbatch_counts_once_the_object_is_known() -> None:
    life = Life().intent(1).started(1)
    assert life.state.phase is Phase.SUBMITTING
    assert life.submitted(1).state.phase is Phase.RUNNING
    other = Life().intent(1).started(1, slurm_job_id=999).submitted(1)
    assert other.state.phase is Phase.QUEUED


def test_a_second_start_of_one_restart_count_is_another_execution() -> None:
    """After a crash of slurmctld the same restart count can start twice; the attempts differ."""
    life = Life().run(1)
    body = start_body(life.spec, 1)
    life.add("started", **{**body, "attempt": "b" * 20, "start_time": 6000})
    assert life.state.current is not None
    assert [execution.attempt for execution in life.state.current.executions] == [body["attempt"], "b" * 20]


def test_progress_of_the_current_execution_gives_budgets_back() -> None:
    life = Life().round(1, "failed").run(2)
    assert life.state.used == {Outcome.FAILED: 1}
    assert life.progress(2, 10, resumed_from=10).state.used == {Outcome.FAILED: 1}
    assert life.progress(2, 11, resumed_from=10).state.used == {}
    assert life.state.step == 11


def test_progress_that_repeats_an_earlier_step_gives_nothing_back() -> None:
    life = Life().run(1).progress(1, 50).progress(1, 20).end(1, "failed").resubmit(2, "failed")
    life.intent(2, len(life.facts)).submitted(2).started(2)
    assert life.progress(2, 40, resumed_from=50).state.used == {Outcome.FAILED: 1}
    assert life.progress(2, 51, resumed_from=50).state.used == {}


def test_the_steps_of_a_ghost_count_for_nothing() -> None:
    """A replaced run that still writes must not feed its replacement's budget, nor be what is shown."""
    life = Life().run(1).progress(1, 10).end(1, "failed").resubmit(2, "failed")
    life.intent(2, len(life.facts)).submitted(2).started(2)
    life.progress(1, 10_000)
    assert life.state.used == {Outcome.FAILED: 1}
    life.progress(2, 11, resumed_from=10)
    life.progress(1, 20_000)
    assert life.state.step == 11


def test_words_of_the_helper_about_an_epoch_that_is_not_ours_cost_nothing() -> None:
    life = Life().run(1)
    for epoch in ("99000000", "5000001000000"):
        life.add("progress", attempt="x", epoch=epoch, step=5, resumed_from=None)
        life.add("ended", attempt="x", epoch=epoch, status=1, signal=None, outcome=None, step=None)
    assert life.state.step is None
    assert life.state.current is not None
    assert life.state.current.words is None


def test_what_the_helper_said_last_is_what_counts_for_its_execution() -> None:
    life = Life().run(1)
    body = start_body(life.spec, 1)
    life.add(
        "ended", attempt=body["attempt"], epoch=body["epoch"], status=85, signal=None, outcome="unfinished", step=3
    )
    assert life.state.current is not None
    words = life.state.current.words
    assert words is not None
    assert (words.status, words.outcome, words.step) == (85, Outcome.UNFINISHED, 3)


def test_launch_failures_in_a_row_are_counted_and_cost_no_budget() -> None:
    life = Life()
    for number in (1, 2, 3):
        life.intent(number, len(life.facts) if number > 1 else None).submitted(number)
        life.end(number, "launch_failed").resubmit(number + 1, "launch_failed")
    assert life.state.launch_failures == 3
    assert life.state.used == {}
    life.intent(4, len(life.facts)).submitted(4).started(4).end(4, "preempted").resubmit(5)
    assert life.state.launch_failures == 0


def test_a_watch_begins_anew_where_the_clock_was_set_back() -> None:
    life = Life().intent(1)
    life.add("watched", submission=1, host="ctl", first_seen=500.0)
    life.add("watched", submission=1, host="ctl", first_seen=400.0)
    assert life.state.current is not None
    assert life.state.current.watched == {"ctl": 400.0}


BODIES: dict[Event, tuple[str, dict[str, Any]]] = {
    Event.SUSPECTED: (
        "suspected",
        {"submission": 1, "slurm_job_id": 101, "restart": 0, "nodes": ["c1"], "since": 1.0},
    ),
    Event.CLEARED: ("cleared", {"submission": 1, "reason": ""}),
    Event.REQUEUED: ("requeued", {"submission": 1, "slurm_job_id": 101, "restart": 1}),
    Event.REQUEUE_FAILED: ("requeue_failed", {"submission": 1, "slurm_job_id": 101, "why": "no such job"}),
    Event.HOLD: ("hold", {"reason": "look at it", "for_s": None}),
    Event.SUPERSEDED: ("closed", {"why": "superseded", "reason": "", "by_job": "new"}),
    Event.SUBMITTED: ("submitted", {"submission": 1, "cluster": "alpha", "slurm_job_id": 101, "how": "answer"}),
    Event.REJECTED: ("rejected", {"submission": 1, "status": 1, "message": ""}),
    Event.BURNT: ("burnt", {"submission": 1, "evidence": ""}),
    Event.CLOSED: ("closed", {"why": "", "reason": ""}),
}
AT = {
    Phase.NEW: Life,
    Phase.SUBMITTING: lambda spec: Life(spec).intent(1),
    Phase.QUEUED: lambda spec: Life(spec).intent(1).submitted(1),
    Phase.RUNNING: lambda spec: Life(spec).run(1),
    Phase.ENDED: lambda spec: Life(spec).run(1).end(1, "failed"),
    Phase.WAITING: lambda spec: Life(spec).run(1).end(1, "failed").holds(2, "failed").release(),
    Phase.HELD: lambda spec: Life(spec).run(1).end(1, "failed").holds(2, "failed"),
    Phase.REQUEUING: lambda spec: Life(spec).run(1).end(1, "failed").decided("requeue", "failed"),
    Phase.STOPPING: lambda spec: Life(spec).run(1).end(1, "failed").decided("stop", "failed"),
    Phase.CLOSED: lambda spec: Life(spec).run(1).end(1, "failed").add("closed", why="", reason=""),
}
SUSPECTED = {
    Phase.ENDED: lambda: Life().run(1).suspected(1),
    Phase.WAITING: lambda: Life().run(1).suspected(1).resubmit(2, "suspect"),
    Phase.HELD: lambda: Life().run(1).suspected(1).holds(2, "suspect"),
}
ANSWERS = {Event.SUBMITTED, Event.REJECTED, Event.BURNT}


def _life(phase: Phase, event: Event) -> Life:
    """A job in ``phase`` to which ``event`` can come if the law lets it."""
    if event is Event.CLEARED and phase in SUSPECTED:
        return SUSPECTED[phase]()
    if phase is Phase.CLOSED and event in ANSWERS:
        return Life().intent(1).superseded()
    spec = make_spec()
    if (phase, event) in {(Phase.CLOSED, Event.REOPENED_HELD), (Phase.SUBMITTING, Event.HELD)}:
        spec = make_spec(shared=True)
    if phase is Phase.NEW and event in {Event.TOOK_OVER, Event.TOOK_OVER_HELD}:
        spec = make_spec(supersedes="old", generation=1)
    return AT[phase](spec)


def _do(life: Life, event: Event) -> Life:
    state = life.state
    current, least = state.current, state.next_number
    number = 1 if current is None else current.number
    if event is Event.INTENT:
        due = state.due
        return life.intent(least, None if due is None else due.seq)
    if event is Event.STARTED:
        return life.started(number)
    if event in {Event.END, Event.RESTARTS}:
        return life.end(number, "failed", final=event is Event.END)
    if event is Event.RESUBMIT:
        return life.resubmit(least, "failed")
    if event is Event.HELD:
        shared = state.spec.shared and current is not None
        return life.holds(least, "launch_failed", "shared", on=current.seq if shared and current else len(life.facts))
    if event in {Event.STOP, Event.REQUEUE}:
        return life.decided("stop" if event is Event.STOP else "requeue", "failed")
    if event is Event.RELEASE:
        on = len(life.facts) if state.holding is None else state.holding.seq
        return life.add("release", on=on, how="person", reason="")
    if event is Event.ADOPTED:
        return life.add("adopted", submission=least, publication="old", name="new", reason="")
    if event in {Event.TOOK_OVER, Event.TOOK_OVER_HELD}:
        return life.took_over(*(["x1"] if event is Event.TOOK_OVER_HELD else []))
    if event in {Event.REOPENED, Event.REOPENED_HELD}:
        return life.add("reopened", reason="", submission=least)
    kind, body = BODIES[event]
    return life.add(kind, **body)


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("event", Event)
def test_the_fold_follows_the_law_and_nothing_else(phase: Phase, event: Event) -> None:
    life = _life(phase, event)
    assert life.state.phase is phase
    _do(life, event)
    if (phase, event) in NEXT:
        assert life.state.phase is NEXT[phase, event]
    elif event is Event.STARTED and phase is not Phase.NEW:  # known, and moves nothing: the object is not there
        assert life.state.phase is phase
    elif event is Event.HOLD and phase is not Phase.CLOSED:  # a person's wish for later
        assert life.state.phase is phase
        assert life.state.hold is not None
    else:
        with pytest.raises(BadDataError, match=rf"fact {len(life.facts)} \("):
            fold(life.facts)


def test_the_law_is_complete_and_closed_is_the_end() -> None:
    assert len(NEXT) == len(LAW)
    assert {move.before for move in LAW} == set(Phase)
    assert {move.event for move in LAW} == set(Event)
    assert set(PHASE_TEXTS) == set(Phase)
    assert not {"submitted", "intent", "decision", "closed", "suspected", "cleared", "adopted"} & set(ANY_TIME)
    from_closed = {move.event for move in LAW if move.before is Phase.CLOSED and move.after is not Phase.CLOSED}
    assert from_closed == {Event.REOPENED, Event.REOPENED_HELD}, "a job that is closed runs again by a person only"


@pytest.mark.parametrize("phase", Phase)
def test_facts_without_a_move_may_come_at_any_time(phase: Phase) -> None:
    life = AT[phase](make_spec())
    life.add("request", what="cancel", reason="no more need")
    life.add("progress", attempt="x", epoch="1000000", step=1, resumed_from=None)
    life.add("ended", attempt="x", epoch="1000000", status=0, signal=None, outcome=None, step=1)
    life.add("stray", submission=1, slurm_job_id=5, cluster="alpha")
    if life.state.current is not None:
        life.add("watched", submission=1, host="h", first_seen=1)
        life.add("refused", submission=1, slurm_job_id=101, restart=1, start_time=None, why="refuse")
    state = life.state
    assert state.phase is phase
    assert state.request is not None
    assert state.strays == {(1, 5)}


@pytest.mark.parametrize(
    ("break_it", "says"),
    [
        (lambda life: life.facts.pop(0), r"fact 2 \(intent\): a record begins with fact 1"),
        (lambda life: life.facts.pop(2), r"fact 4 \(started\): it follows fact 2: there is a gap"),
        (lambda life: life.facts.append(life.facts[-1]), "there is a gap"),
        (lambda life: life.add("spec", **make_spec().body()), "one specification"),
        (lambda life: life.end(2, "failed"), "there is no submission 2"),
        (lambda life: life.end(1, "failed").intent(2), "has no move|carries out"),
        (lambda life: life.end(1, "failed").resubmit(1), "submission 1 is used already"),
        (lambda life: life.end(1, "failed").resubmit(2).intent(3, 6), "does not carry out the decision"),
        (lambda life: life.end(1, "failed").resubmit(2).intent(1, 6), "submission 1 is used already"),
        (lambda life: life.end(1, "failed").resubmit(2).intent(2, None), "does not carry out the decision"),
        (lambda life: life.add("started", **{**start_body(life.spec, 1), "restart": 7}), "is not of submission 1"),
    ],
)
def test_a_record_that_breaks_the_law_is_bad_data_that_names_the_fact(break_it: Any, says: str) -> None:
    life = Life().run(1)
    break_it(life)
    with pytest.raises(BadDataError, match=says):
        fold(life.facts)


def test_no_facts_are_no_record() -> None:
    with pytest.raises(BadDataError, match="no facts"):
        fold([])


def test_a_number_of_a_shared_job_is_never_burnt() -> None:
    life = Life(make_spec(shared=True)).intent(1).add("burnt", submission=1, evidence="")
    with pytest.raises(BadDataError, match="never burnt"):
        fold(life.facts)


def test_a_word_of_another_submission_is_refused() -> None:
    life = Life()
    body = dict(Life().intent(1).facts[-1].body)
    life.add("intent", **{**body, "word": "dispatch:other:0:1"})
    with pytest.raises(BadDataError, match="its word is not that of submission 1"):
        fold(life.facts)


def test_settled_submissions_say_how() -> None:
    life = Life().intent(1).add("rejected", submission=1, status=1, message="no such partition")
    assert life.state.phase is Phase.ENDED
    assert life.state.current is not None
    assert life.state.current.settled is Settled.REJECTED
    assert life.state.current.message == "no such partition"


def _long_record(facts: int) -> list[Fact]:
    life = Life().run(1)
    body = life.progress(1, 1).facts.pop().body
    return life.facts + [
        Fact(seq, 1.0, "progress", "watch@c1", {**body, "step": seq}) for seq in range(len(life.facts) + 1, facts + 1)
    ]


def test_the_fold_is_linear() -> None:
    """100,000 facts take well under a second; in a fold that looks back at each step they would take hours."""
    facts = _long_record(100_000)
    begin = time.process_time()
    assert fold(facts).step == 100_000
    assert time.process_time() - begin < 60


def test_many_restarts_and_many_answers_are_linear_too() -> None:
    """An object that Slurm restarts 15,000 times, and a hold whose cessation is asked for weeks."""
    life = Life().run(1)
    started, end, facts = life.facts[-1].body, dict(life.end(1, "preempted", final=False).facts[-1].body), life.facts
    for restart in range(1, 15_001):
        epoch = str(1_000_000 + restart)
        attempt = f"a{restart}"
        body = {**started, "restart": restart, "epoch": epoch, "attempt": attempt}
        facts.append(Fact(len(facts) + 1, 1.0, "started", "x", body))
        facts.append(Fact(len(facts) + 1, 1.0, "end", "x", {**end, "restart": restart}))
    life.answered("a1", "running").told("start")
    answers = [life.facts.pop(-2), life.facts.pop(-1)]
    facts += [Fact(len(facts) + 1 + it, 1.0, (fact := answers[it % 2]).kind, "x", fact.body) for it in range(40_000)]
    begin = time.process_time()
    state = fold(facts)
    assert time.process_time() - begin < 60
    assert state.no_progress == 15_001


def test_many_submissions_fold_too() -> None:
    life = Life(make_spec(max_submissions=999_999))
    for number in range(1, 301):
        life.round(number)
    assert life.state.current is not None
    assert life.state.current.number == 300
