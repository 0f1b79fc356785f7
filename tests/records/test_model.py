"""The engine as a whole, without Slurm: a record, two hosts that tick, and a world that lies and loses.

The world starts, ends and restarts objects, loses replies of sbatch, lets a slow sbatch arrive late, hides what
its sources know, and lets ticks die after any action. What must hold after each step is in ``holds``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from slurm_dispatch.model.outcome import Outcome
from slurm_dispatch.records.actions import AppendFact, Cancel, LookUp, Submit
from slurm_dispatch.records.decide import decide
from slurm_dispatch.records.facts import Fact, parse_fact, render
from slurm_dispatch.records.fold import fold
from slurm_dispatch.records.observation import (
    Absent,
    Found,
    Lookups,
    ObjectAlive,
    ObjectEnded,
    Observation,
    Seen,
    Unknown,
)
from slurm_dispatch.records.policy import Policy
from slurm_dispatch.records.state import Phase, Settled, State
from tests.records.life import CLUSTER, UID, make_spec, start_body

WAIT_S = 170.0
OUTCOMES = [outcome.value for outcome in Outcome if outcome is not Outcome.SUSPECT]
REPLIES = ["answer", "lost", "late", "rejected", "dies before", "dies after"]


@dataclass
class Thing:
    """An object of the world."""

    number: int
    slurm_job_id: int
    state: str = "PENDING"
    restart: int = 0
    outcome: str | None = None
    arrives: float = 0.0


@dataclass
class World:
    """What really is, and the record."""

    facts: list[Fact] = field(default_factory=list)
    things: list[Thing] = field(default_factory=list)
    calls: list[int] = field(default_factory=list)
    now: float = 1000.0
    spec: Any = field(default_factory=make_spec)
    reply: str = "answer"

    def append(self, seq: int, kind: str, body: Any) -> bool:
        """Put if absent."""
        if seq != len(self.facts) + 1:
            assert seq <= len(self.facts), "a gap"
            return False
        self.facts.append(parse_fact(seq, render(Fact(seq, self.now, kind, "tick@x", body))))
        return True

    @property
    def state(self) -> State:
        return fold(self.facts)

    def submit(self, seq: int, number: int, decision: int | None) -> None:
        """Intent, sbatch, and what came of it; dies where ``reply`` says."""
        body = {
            "submission": number,
            "word": str(self.spec.word(number)),
            "host": "x",
            "deadline": self.now + WAIT_S - 20,
            "wait_s": WAIT_S,
            "changes": [],
            "decision": decision,
        }
        if not self.append(seq, "intent", body) or self.reply == "dies before":
            return
        assert number not in self.calls, f"submission {number} was used twice"
        assert not any(fact.kind == "closed" for fact in self.facts), "a closed job ran again"
        self.calls.append(number)
        if self.reply == "rejected":
            self.append(len(self.facts) + 1, "rejected", {"submission": number, "status": 1, "message": "no"})
            return
        thing = Thing(number, 100 + len(self.things))
        if self.reply == "late":
            thing.arrives = self.now + WAIT_S - 20
        self.things.append(thing)
        if self.reply in {"lost", "late", "dies after"}:
            return
        answer = {"submission": number, "cluster": CLUSTER, "slurm_job_id": thing.slurm_job_id, "how": "answer"}
        self.append(len(self.facts) + 1, "submitted", answer)

    def visible(self) -> list[Thing]:
        return [thing for thing in self.things if thing.arrives <= self.now]

    def observe(self, state: State, host: str, hidden: frozenset[str], *, look_up: bool) -> Observation:
        """What ``host`` sees, where ``hidden`` sources do not answer."""
        seen: Any = Unknown("hidden")
        if "queue" not in hidden:
            seen = tuple(
                Seen(0, thing.number, CLUSTER, thing.slurm_job_id, UID, thing.outcome is None)
                for thing in self.visible()
            )
        lookups = None
        if look_up and state.current is not None:
            number = state.current.number
            match = next((thing for thing in self.visible() if thing.number == number), None)

            def answer(source: str, *, has: bool) -> Any:
                if source in hidden:
                    return Unknown("hidden")
                return Found(CLUSTER, match.slurm_job_id) if match is not None and has else Absent()

            started = match is not None and match.state != "PENDING"
            lookups = Lookups(
                number, answer("notes", has=started), answer("queue", has=True), answer("accounting", has=True)
            )
        return Observation(host, self._starts(hidden), self._object(state, hidden), lookups=lookups, seen=seen)

    def _starts(self, hidden: frozenset[str]) -> Any:
        if "notes" in hidden:
            return ()
        return tuple(
            ("started", start_body(self.spec, thing.number, restart, thing.slurm_job_id))
            for thing in self.things
            if thing.state != "PENDING"
            for restart in range(thing.restart + 1)
        )

    def _object(self, state: State, hidden: frozenset[str]) -> Any:
        if state.object is None or "object" in hidden:
            return Unknown("hidden")
        thing = next(thing for thing in self.things if thing.slurm_job_id == state.object.slurm_job_id)
        if thing.outcome is not None:
            return ObjectEnded(
                thing.number, thing.slurm_job_id, Outcome(thing.outcome), {"state": "X"}, restart=thing.restart
            )
        previous = None
        if thing.restart:
            previous = ObjectEnded(
                thing.number, thing.slurm_job_id, Outcome.NODE_FAIL, {}, restart=thing.restart - 1, final=False
            )
        return ObjectAlive(thing.number, thing.slurm_job_id, thing.restart, thing.state == "PENDING", previous)

    def tick(self, host: str, hidden: frozenset[str] = frozenset(), dies_after: int = 10_000) -> int:
        """One tick; dies after so many actions. Returns how many it did."""
        done = 0
        # Slurm is asked once, as a tick does: what was seen outlives what is decided from it.
        first = self.observe(self.state, host, hidden, look_up=False)
        for _ in range(200):
            state = self.state
            now = self.now
            actions = decide(state, first, Policy(), now)
            assert actions
            if any(isinstance(action, LookUp) for action in actions):
                actions = decide(state, self.observe(state, host, hidden, look_up=True), Policy(), now)
                assert not any(isinstance(action, LookUp) for action in actions)
            seq = state.seq
            for action in actions:
                if done >= dies_after:
                    return done
                done += 1
                if isinstance(action, AppendFact):
                    self._check(action, hidden)
                    seq += 1
                    assert self.append(seq, action.kind, action.body)
                elif isinstance(action, Submit):
                    self.submit(seq + 1, action.submission, action.decision)
                    seq += 1
                elif isinstance(action, Cancel):
                    self._cancel(action, state)
            if seq == state.seq:
                return done
        raise AssertionError("a tick does not come to its end")

    def _check(self, action: AppendFact, hidden: frozenset[str]) -> None:
        """Unknown changes nothing, and what is burnt really is nowhere."""
        if action.kind == "burnt":
            assert not hidden & {"notes", "queue", "accounting"}
            assert not [it for it in self.things if it.number == action.body["submission"]], "burnt, and it is there"
        if action.kind == "end":
            assert "object" not in hidden

    def _cancel(self, action: Cancel, state: State) -> None:
        assert action.stray or state.request is not None
        if action.stray:
            assert action.object != state.object
        for thing in self.things:
            if thing.slurm_job_id == action.object.slurm_job_id and thing.outcome is None:
                thing.outcome = "cancelled"


class Engine(RuleBasedStateMachine):
    """Everything that can happen, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.world.append(1, "spec", self.world.spec.body())
        self.most = 0

    @rule(reply=st.sampled_from(REPLIES))
    def sbatch(self, reply: str) -> None:
        """The wrapper's own call, or the way in which the next ones end."""
        self.world.reply = reply
        if self.world.state.phase is Phase.NEW:
            self.world.submit(2, 1, None)

    @rule(
        host=st.sampled_from(["ctl1", "ctl2"]),
        hidden=st.just(frozenset()) | st.frozensets(st.sampled_from(["notes", "queue", "accounting", "object"])),
        dies_after=st.just(10_000) | st.sampled_from([0, 1, 2, 3, 4]),
    )
    def tick(self, host: str, hidden: frozenset[str], dies_after: int) -> None:
        """One tick, that may see nothing and may die."""
        before = self.world.state
        self.world.tick(host, hidden, dies_after)
        if hidden >= {"notes", "queue", "accounting", "object"}:
            fresh = {fact.kind for fact in self.world.facts[before.seq :]}
            if before.phase in {Phase.SUBMITTING, Phase.QUEUED, Phase.RUNNING}:
                assert fresh <= {"watched"}

    @rule(seconds=st.sampled_from([1.0, 31.0, 100.0, 200.0, 2000.0]))
    def time_passes(self, seconds: float) -> None:
        """For everybody."""
        self.world.now += seconds

    @rule(outcome=st.sampled_from(OUTCOMES), data=st.data())
    @precondition(lambda self: any(thing.outcome is None for thing in self.world.visible()))
    def ends(self, outcome: str, data: st.DataObject) -> None:
        """An object ends for good."""
        thing = data.draw(st.sampled_from([it for it in self.world.visible() if it.outcome is None]))
        thing.outcome = outcome

    @rule()
    @precondition(lambda self: any(thing.outcome is None for thing in self.world.visible()))
    def starts(self) -> None:
        """Every waiting object starts."""
        for thing in self.world.visible():
            if thing.outcome is None:
                thing.state = "RUNNING"

    @rule(outcome=st.sampled_from(["preempted", "node_fail", "failed", "completed"]))
    @precondition(lambda self: self.world.state.object is not None)
    def a_whole_round(self, outcome: str) -> None:
        """The current object runs and ends, and is replaced: what happens most."""
        current = self.world.state.object
        assert current is not None
        for thing in self.world.things:
            if thing.slurm_job_id == current.slurm_job_id and thing.outcome is None:
                thing.state, thing.outcome = "RUNNING", outcome
        self.world.tick("ctl1")

    @rule()
    @precondition(lambda self: any(it.outcome is None and it.state == "RUNNING" for it in self.world.visible()))
    def slurm_restarts(self) -> None:
        """Slurm requeues what runs."""
        for thing in self.world.visible():
            if thing.outcome is None and thing.state == "RUNNING" and thing.restart < 3:
                thing.restart += 1
                thing.state = "PENDING"

    @rule()
    @precondition(lambda self: any(thing.outcome is not None for thing in self.world.visible()))
    def somebody_requeues(self) -> None:
        """An admin requeues what has ended."""
        for thing in self.world.visible():
            if thing.outcome is not None:
                thing.outcome, thing.state, thing.restart = None, "PENDING", thing.restart + 1
                return

    @rule(step=st.integers(0, 50))
    @precondition(lambda self: self.world.state.current is not None)
    def publishes(self, step: int) -> None:
        """The helper of any execution hands progress on."""
        current = self.world.state.current
        assert current is not None
        body = start_body(self.world.spec, current.number)
        fact = {"attempt": body["attempt"], "epoch": body["epoch"], "step": step, "resumed_from": None}
        self.world.append(len(self.world.facts) + 1, "progress", fact)

    @rule()
    @precondition(lambda self: self.world.state.closed is None and self.world.state.request is None)
    def a_person_cancels(self) -> None:
        """dispatch cancel."""
        self.world.append(len(self.world.facts) + 1, "request", {"what": "cancel", "reason": ""})

    @invariant()
    def holds(self) -> None:
        """One current object, numbers that only rise, closed for good."""
        state = self.world.state
        numbers = [submission.number for submission in state.submissions]
        assert numbers == sorted(set(numbers))
        assert len(self.world.calls) == len(set(self.world.calls))
        assert set(self.world.calls) <= set(numbers)
        assert sum(submission.settled is Settled.OPEN for submission in state.submissions) <= 1
        assert all(it.settled is not Settled.OPEN for it in state.submissions[:-1])
        kinds = [fact.kind for fact in self.world.facts]
        if "closed" in kinds:
            after = kinds[kinds.index("closed") + 1 :]
            assert set(after) <= {"stray", "progress", "started", "watched"}
            assert state.phase is Phase.CLOSED
        assert len(numbers) >= self.most
        self.most = len(numbers)

    def teardown(self) -> None:
        """With everything visible and time, the world comes to rest with one object at most, and none if closed."""
        self.world.reply = "answer"
        for _ in range(12):
            self.world.now += 3000
            self.world.tick("ctl1")
        state = self.world.state
        alive = [thing for thing in self.world.things if thing.outcome is None]
        assert len(alive) <= (0 if state.phase is Phase.CLOSED else 1), (state.phase, alive)
        assert state.phase in {Phase.QUEUED, Phase.RUNNING, Phase.CLOSED}
        if alive:
            assert state.object is not None
            assert alive[0].slurm_job_id == state.object.slurm_job_id


TestEngine = Engine.TestCase
# The same examples each time, so that a change and nothing else makes this fail.
TestEngine.settings = settings(max_examples=150, stateful_step_count=40, deadline=None, derandomize=True)


@pytest.mark.parametrize("outcome", OUTCOMES)
@pytest.mark.parametrize("reply", ["answer", "lost", "dies before", "rejected"])
def test_a_tick_that_dies_after_any_action_is_finished_by_the_next(outcome: str, reply: str) -> None:
    """The interrupted-prefix property: the same end, however often it was cut short."""

    def play(dies_after: int | None) -> tuple[Any, ...]:
        world = World()
        world.append(1, "spec", world.spec.body())
        world.submit(2, 1, None)
        world.things[0].state = "RUNNING"
        world.things[0].outcome = outcome
        world.reply = reply
        for round_ in range(40):
            if round_ == 6:
                world.reply = "answer"
            if dies_after is not None and round_ < 6:
                world.tick("ctl1", dies_after=dies_after)
            world.tick("ctl1")
            world.now += 300
        state = world.state
        return (
            state.phase,
            None if state.closed is None else state.closed.why,
            state.request,
            len(world.things),
            [submission.settled for submission in state.submissions],
        )

    whole = play(None)
    for dies_after in range(6):
        assert play(dies_after) == whole, f"died after {dies_after} actions"
