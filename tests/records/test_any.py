"""Any facts in any order: a state or bad data. Whatever is decided in any state that there can be, the law takes.

Walks by chance, each with a seed of its own: facts are drawn that often fit the state, and kept if the law lets them.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from slurm_dispatch.errors import BadDataError
from slurm_dispatch.model.identity import attempt_of
from slurm_dispatch.model.outcome import Action as Does
from slurm_dispatch.model.outcome import Outcome
from slurm_dispatch.records.actions import AppendFact, Submit
from slurm_dispatch.records.decide import decide
from slurm_dispatch.records.elders import elder_closed
from slurm_dispatch.records.facts import Fact, parse_fact, render
from slurm_dispatch.records.fold import fold
from slurm_dispatch.records.law import NEXT, Event, Phase
from slurm_dispatch.records.observation import (
    Absent,
    CessationAnswer,
    ElderClosed,
    Found,
    Lookups,
    ObjectAlive,
    ObjectEnded,
    Observation,
    Seen,
    SilentNode,
    SiteClock,
    Unknown,
)
from slurm_dispatch.records.policy import Limits, Policy
from slurm_dispatch.records.replay import replay
from slurm_dispatch.records.why import explain
from tests.records.life import CLUSTER, KEY, UID, make_spec

if TYPE_CHECKING:
    from slurm_dispatch.records.state import State

WALKS = 100
STEPS = 60
SPECS = [
    make_spec(),
    make_spec(suspect_s=30.0, max_submissions=3),
    make_spec(suspect_s=30.0),
    make_spec(shared=True),
    make_spec(supersedes="old", generation=1, elders_shared=True),
    make_spec(rules=("preempted:requeue,budget=2", "failed:resubmit,time=2x..1d", "timeout:hold,for=1h")),
]
OUTCOMES = [outcome.value for outcome in Outcome]
WHYS = ["rule", "shared", "breaker", "person", "budget"]
KIND_OF = {
    Event.END: "end",
    Event.RESTARTS: "end",
    Event.RESUBMIT: "decision",
    Event.REQUEUE: "decision",
    Event.HELD: "decision",
    Event.STOP: "decision",
    Event.TOOK_OVER_HELD: "took_over",
    Event.REOPENED_HELD: "reopened",
    Event.SUPERSEDED: "closed",
}


class Walk:
    """A record that grows by chance.

    :ivar facts: what the law has taken so far.
    """

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.spec = self.rng.choice(SPECS)
        self.facts = [_fact(1, "spec", self.spec.body())]
        self.state = fold(self.facts)

    def step(self) -> None:
        """Draw a fact; whatever the law does not take is bad data, and any other error is a fault."""
        fits = self.rng.random() < 0.9
        kinds = sorted({KIND_OF.get(event, event.value) for phase, event in NEXT if phase is self.state.phase})
        likely = [kind for kind in kinds if kind in BODIES and kind != "closed"]
        kind = self.rng.choice(likely if likely and self.rng.random() < 0.75 else sorted(BODIES))
        if self.state.phase is Phase.SUBMITTING and self.rng.random() < 0.5:
            kind = "watched"
        if kind in {"closed", "request", "reopened"} and self.rng.random() < 0.5:
            return
        fact = _fact(len(self.facts) + 1, kind, BODIES[kind](self, fits))
        try:
            state = fold([*self.facts, fact])
        except BadDataError:
            return
        self.facts.append(fact)
        self.state = state

    # What the bodies are drawn from.

    def number(self, fits: bool) -> int:
        current = self.state.current
        return current.number if fits and current is not None else self.rng.randint(1, 4)

    def free(self, fits: bool) -> int:
        due = self.state.due
        return (due.submission if due is not None else self.state.next_number) if fits else self.rng.randint(1, 4)

    def on(self, fits: bool) -> int:
        waits = self.state.over or self.state.holding or self.state.hold or self.state.current
        return waits.seq if fits and waits is not None else self.rng.randint(1, 20)

    def restart(self) -> int:
        return self.rng.choice([0, 0, 1, 2])

    def either(self, *values: Any) -> Any:
        return self.rng.choice(values)

    def execution(self, number: int) -> dict[str, Any]:
        restart, job = self.restart(), self.either(100 + number, 100 + number, 109)
        return {
            "submission": number,
            "slurm_job_id": job,
            "restart": restart,
            "epoch": str(self.spec.generation * 10**12 + number * 10**6 + restart),
            "attempt": attempt_of(CLUSTER, job, self.spec.word(number), restart, 5000),
            "start_time": 5000,
            "nodes": self.either("c[1-2]", "c1", "c[9"),
        }

    def it(self, fits: bool) -> dict[str, Any]:
        number = self.number(fits)
        return {"submission": number, "slurm_job_id": 100 + number}


def _intent(walk: Walk, fits: bool) -> dict[str, Any]:
    number, due = walk.free(fits), walk.state.due
    decision = due.seq if fits and due is not None else None
    values = {"host": "h", "deadline": 2000.0, "wait_s": 170.0, "changes": [], "decision": decision}
    return {"submission": number, "word": str(walk.spec.word(number)), **values}


def _decision(walk: Walk, fits: bool) -> dict[str, Any]:
    action = walk.rng.choice(list(Does))
    number = walk.free(fits) if action in {Does.RESUBMIT, Does.HOLD} else None
    return {
        "on": walk.on(fits),
        "outcome": walk.rng.choice(OUTCOMES),
        "action": action.value,
        "rule": "",
        "budget_used": 0,
        "budget": None,
        "reason": "",
        "submission": number,
        "not_before": None,
        "close": None,
        "why": walk.rng.choice(WHYS),
    }


def _end(walk: Walk, fits: bool) -> dict[str, Any]:
    more = {"outcome": walk.rng.choice(OUTCOMES), "evidence": {}, "final": walk.either(True, True, False)}
    return {**walk.it(fits), "restart": walk.either(None, walk.restart()), "start_time": None, **more}


def _took_over(walk: Walk, _: bool) -> dict[str, Any]:
    execution = {"attempt": "x1", "slurm_job_id": 7, "cluster": "", "nodes": "c9", "start_time": None}
    more = {"submission": 1, "complete": walk.either(True, False)}
    return {"elder": "old", "elder_seq": 9, "executions": walk.either([], [execution]), **more}


def _cessation(walk: Walk, _: bool) -> dict[str, Any]:
    attempts = [it.attempt for submission in walk.state.submissions for it in submission.executions]
    attempt, answer = walk.rng.choice([*attempts, "x1"]), walk.either("ceased", "running", "unknown")
    return {"attempt": attempt, "answer": answer, "source": "", "detail": "", "count": 1, "first": 1, "last": 1}


def _closed(walk: Walk, _: bool) -> dict[str, Any]:
    why = walk.either("failed", "hold_expired", "superseded")
    return {"why": why, "reason": "", "by_job": "new" if why == "superseded" else None}


BODIES: dict[str, Any] = {
    "intent": _intent,
    "submitted": lambda walk, fits: {**walk.it(fits), "cluster": CLUSTER, "how": "answer"},
    "rejected": lambda walk, fits: {"submission": walk.number(fits), "status": 1, "message": ""},
    "burnt": lambda walk, fits: {"submission": walk.number(fits), "evidence": ""},
    "watched": lambda walk, fits: {"submission": walk.number(fits), "host": "ctl", "first_seen": 0.0},
    "started": lambda walk, fits: walk.execution(walk.number(fits)),
    "refused": lambda walk, fits: {**walk.it(fits), "restart": walk.restart(), "start_time": None, "why": "shared"},
    "end": _end,
    "decision": _decision,
    "hold": lambda walk, _: {"reason": "", "for_s": walk.either(None, 60.0)},
    "release": lambda walk, fits: {
        "on": walk.on(fits),
        "how": walk.either("person", "ceased", "breaker"),
        "reason": "",
    },
    "held": lambda walk, fits: {"on": walk.on(fits), "clock": "k", "ran_s": 5.0, "counted_s": 0.0},
    "told": lambda walk, fits: {"on": walk.on(fits), "what": "start", "status": None},
    "cessation": _cessation,
    "requeued": lambda walk, fits: {**walk.it(fits), "restart": walk.restart()},
    "requeue_failed": lambda walk, fits: {**walk.it(fits), "why": ""},
    "suspected": lambda walk, fits: {**walk.it(fits), "restart": 0, "nodes": ["c1"], "since": 1.0},
    "cleared": lambda walk, fits: {
        "submission": walk.state.elder.number if fits and walk.state.elder else walk.number(fits),
        "reason": "",
    },
    "adopted": lambda walk, fits: {"submission": walk.free(fits), "publication": "", "name": "", "reason": ""},
    "took_over": _took_over,
    "reopened": lambda walk, fits: {"reason": "", "submission": walk.free(fits)},
    "request": lambda *_: {"what": "cancel", "reason": ""},
    "closed": _closed,
}


def _fact(seq: int, kind: str, body: Any) -> Fact:
    return parse_fact(seq, render(Fact(seq, 1000.0 + seq, kind, "tick@x", body)))


def _seen(walk: Walk, number: int) -> Any:
    """An object, as anybody may see it."""
    rng, job = walk.rng, 100 + number
    ended = ObjectEnded(
        number, job, rng.choice(list(Outcome)), {"by_uid": rng.choice([None, 0, UID])},
        restart=walk.either(None, walk.restart()), final=walk.either(True, True, False),
    )  # fmt: skip
    previous = walk.either(None, replace(ended, final=False))
    alive = ObjectAlive(number, job, walk.either(None, walk.restart()), walk.either(True, False), previous)
    runs = ObjectAlive(number, job)
    return walk.either(Unknown(), alive, ended, runs, runs)


def observe(walk: Walk) -> Observation:
    """Anything that can be seen, also what no longer fits."""
    rng, state = walk.rng, walk.state
    answers = [Found(CLUSTER, 101), Absent(), Absent(), Unknown()]
    attempts = [it.attempt for submission in state.submissions for it in submission.executions]
    executions = {it: CessationAnswer(walk.either("ceased", "running"), "s", "", 9.0) for it in [*attempts, "x1"]}
    generation = state.spec.generation
    seen = tuple(Seen(generation, rng.randint(1, 4), CLUSTER, rng.randint(101, 105), UID, alive=True) for _ in "ab")
    elder = walk.number(True) if state.elder is None else state.elder.number
    old = walk.either(Unknown(), None, ElderClosed(9, KEY), ElderClosed(9, "other"), ElderClosed(9, None))
    return Observation(
        "ctl",
        object=_seen(walk, walk.number(rng.random() < 0.9)),
        lookups=walk.either(None, Lookups(walk.number(True), *(rng.choice(answers) for _ in "abc"))),
        seen=walk.either(Unknown(), seen),
        clock_ran=walk.either(None, SiteClock(walk.either("k", "l"), walk.either(0.0, 9.0, 1e7))),
        cessation=walk.either({}, executions),
        silent=walk.either(Unknown(), (), *[(SilentNode("c1", 0.0),)] * 4),
        elder=_seen(walk, elder),
        elder_answers=walk.either(None, True, False),
        elder_closed=old,
    )


def policy_of(walk: Walk) -> Policy:
    """Any site."""
    return Policy(
        breaker=walk.either(None, None, None, "storm"),
        maintenance_until=walk.either(None, None, None, 9e9),
        cessation=walk.either(True, False),
        jitter=walk.either(0.0, 0.7),
        excluded=walk.either((), ("c8",)),
        no_progress=walk.either(None, 1),
        limits=Limits(resubmissions_left=walk.either(None, 0), overlaps=walk.either(True, True, True, False)),
    )


def check(walk: Walk) -> set[str]:
    """Decide, and let the law see what was decided. Returns the kinds of facts."""
    facts, state = walk.facts, walk.state
    observation, policy = observe(walk), policy_of(walk)
    now = 1000.0 + len(facts) + walk.either(0.0, 100.0, 1e5)
    actions = decide(state, observation, policy, now)
    assert actions
    assert decide(state, observation, policy, now) == actions, "it is pure"
    grown = list(facts)
    for action in actions:
        if isinstance(action, AppendFact):
            grown.append(_fact(len(grown) + 1, action.kind, action.body))
            fold(grown)
        if isinstance(action, Submit):
            body = {**_intent(walk, True), "submission": action.submission, "decision": action.decision}
            fold([*grown, _fact(len(grown) + 1, "intent", body)])
    if len(grown) > len(facts):
        assert all(it.same is True for it in replay(grown) if it.seq > len(facts))
    explain(fold(grown), grown, policy)
    elder_closed(state, shared=True)
    return {action.kind for action in actions if isinstance(action, AppendFact)}


@pytest.mark.parametrize("seed", range(WALKS))
def test_the_law_takes_whatever_is_decided(seed: int) -> None:
    """A fact that the fold refused would cost the job its record, and with it everything."""
    walk = Walk(seed)
    for _ in range(STEPS):
        walk.step()
        check(walk)
        if len(walk.facts) > 40:
            return


def test_the_walks_come_everywhere() -> None:
    """Otherwise the test above would say little."""
    phases: set[Phase] = set()
    kinds: set[str] = set()
    suspected: list[State] = []
    for seed in range(WALKS):
        walk = Walk(seed)
        for _ in range(STEPS):
            walk.step()
            phases.add(walk.state.phase)
            kinds |= check(walk)
            if walk.state.elder is not None:
                suspected.append(walk.state)
    assert phases == set(Phase)
    assert suspected
    assert kinds >= {
        "closed", "cessation", "cleared", "decision", "end", "held", "release", "requeued", "submitted", "suspected",
        "took_over", "stray", "burnt", "watched",
    }  # fmt: skip
