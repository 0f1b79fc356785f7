"""The engine as a whole, without Slurm: a record, two hosts that tick, and a world that lies and loses.

What must hold after each step is in ``holds``, what must hold whenever something is done in ``world.py``.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from slurm_dispatch.model.outcome import Outcome
from slurm_dispatch.records import people
from slurm_dispatch.records.replay import replay
from slurm_dispatch.records.state import Phase, Settled
from tests.records.life import make_spec, start_body
from tests.records.world import SOURCES, SUSPECT_S, Thing, World

OUTCOMES = [outcome.value for outcome in Outcome if outcome is not Outcome.SUSPECT]
REPLIES = ["answer", "lost", "late", "rejected", "dies before", "dies after"]
SPECS = {
    "plain": {},
    "rules": {"rules": ("preempted,node_fail:requeue", "failed:resubmit,budget=1", "timeout:hold,for=1h")},
    "shared": {"shared": True, "shared_hold_for_s": 7200.0},
    "suspects": {"suspect_s": SUSPECT_S},
}
NOT_SEEN = frozenset(SOURCES)


class Engine(RuleBasedStateMachine):
    """Everything that can happen, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.most = 0

    @initialize(kind=st.sampled_from(list(SPECS)), reply=st.just("answer") | st.sampled_from(REPLIES))
    def begin(self, kind: str, reply: str) -> None:
        """The record of one of several kinds of jobs, and the wrapper's own call."""
        self.world.spec = make_spec(**SPECS[kind])
        self.world.append(1, "spec", self.world.spec.body())
        self.world.reply = reply
        self.world.submit(2, 1, None)

    @rule(reply=st.just("answer") | st.sampled_from(REPLIES))
    def sbatch(self, reply: str) -> None:
        """The way in which the next calls end."""
        self.world.reply = reply

    @rule(
        host=st.sampled_from(["ctl1", "ctl2"]),
        hidden=st.just(frozenset()) | st.frozensets(st.sampled_from(SOURCES)),
        dies_after=st.just(10_000) | st.sampled_from([0, 1, 2, 3, 4]),
    )
    def tick(self, host: str, hidden: frozenset[str], dies_after: int) -> None:
        """One tick, that may see nothing and may die."""
        before = self.world.state
        self.world.tick(host, hidden, dies_after)
        if hidden >= NOT_SEEN and before.phase in {Phase.SUBMITTING, Phase.QUEUED, Phase.RUNNING, Phase.REQUEUING}:
            assert {fact.kind for fact in self.world.facts[before.seq :]} <= {"watched", "closed", "burnt"}
            if before.request is None:
                assert {fact.kind for fact in self.world.facts[before.seq :]} <= {"watched"}

    @rule(seconds=st.sampled_from([1.0, 31.0, 100.0, 200.0, 2000.0]))
    def time_passes(self, seconds: float) -> None:
        """For everybody; ticks run all the time."""
        self.world.now += seconds
        self.world.ran_s += seconds

    @rule(outcome=st.sampled_from(OUTCOMES), lingers=st.booleans(), data=st.data())
    @precondition(lambda self: any(thing.outcome is None for thing in self.world.visible()))
    def ends(self, outcome: str, lingers: bool, data: st.DataObject) -> None:
        """An object ends for good, and its processes perhaps not."""
        thing = data.draw(st.sampled_from([it for it in self.world.visible() if it.outcome is None]))
        self.world.end(thing, outcome, lingers=lingers)

    @rule()
    @precondition(lambda self: any(thing.outcome is None for thing in self.world.visible()))
    def starts(self) -> None:
        """Every waiting object starts."""
        for thing in self.world.visible():
            self.world.start(thing)

    @rule(
        outcomes=st.lists(st.sampled_from(["preempted", "node_fail", "failed", "timeout"]), min_size=1, max_size=3),
        dies_after=st.just(10_000) | st.sampled_from([0, 1, 2, 3, 4]),
    )
    @precondition(lambda self: self.world.state.object is not None)
    def whole_rounds(self, outcomes: list[str], dies_after: int) -> None:
        """The current object runs and ends, and what follows is decided and done: what happens most."""
        for outcome in outcomes:
            if self.world.state.object is None:
                return
            thing = self._current()
            self.world.start(thing)
            if thing.outcome is None:
                self.world.end(thing, outcome)
            self.world.tick("ctl1", dies_after=dies_after)
            self.world.tick("ctl2")

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

    @rule()
    def processes_die(self) -> None:
        """Those that were left behind."""
        for thing in self.world.things:
            if thing.outcome is not None:
                thing.processes.clear()

    @rule()
    @precondition(lambda self: self.world.state.object is not None)
    def a_node_goes_silent(self) -> None:
        """The one on which the current object runs."""
        thing = self._current()
        if thing.silent is None and thing.state == "RUNNING":
            thing.silent = self.world.now

    @rule()
    @precondition(lambda self: any(thing.silent is not None for thing in self.world.things))
    def the_nodes_answer(self) -> None:
        """All of them."""
        for thing in self.world.things:
            thing.silent = None

    @rule(answers=st.sampled_from(["never", "before", "after"]))
    @precondition(lambda self: self.world.state.object is not None and self.world.spec.suspect_s is not None)
    def a_suspicion(self, answers: str) -> None:
        """A node is silent for long enough, and ticks see it; it may answer before or after the replacement runs."""
        thing = self._current()
        self.world.start(thing)
        self.world.tick("ctl2")
        thing.silent = self.world.now - 60
        self.world.tick("ctl2")
        if answers == "before":
            self.the_nodes_answer()
            self.world.tick("ctl1")
        elif answers == "after":
            self.starts()
            self.world.tick("ctl1", dies_after=1)
            self.the_nodes_answer()

    @rule(dies_after=st.just(10_000) | st.sampled_from([0, 1, 2]))
    @precondition(lambda self: self.world.state.holding is not None)
    def a_release(self, dies_after: int) -> None:
        """A person's, or that of the processes which die."""
        if self.world.state.spec.shared and dies_after % 2:
            self.processes_die()
        else:
            self.a_person("release")
        self.world.tick("ctl1", dies_after=dies_after)

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
    @precondition(lambda self: len(self.world.facts) > 15 and self.world.state.closed is None)
    def a_person_cancels(self) -> None:
        """dispatch cancel."""
        if self.world.state.request is None:
            self.world.append(len(self.world.facts) + 1, "request", {"what": "cancel", "reason": ""})

    @rule(wish=st.sampled_from(["hold", "release", "reopen", "adopt", "update"]))
    @precondition(lambda self: len(self.world.facts) > 4)
    def a_person(self, wish: str) -> None:
        """Somebody at the command line, who is refused where it cannot be."""
        state = self.world.state
        make: dict[str, Any] = {
            "hold": lambda: people.hold(state, "x"),
            "release": lambda: people.release(state, "x", self.world.now),
            "reopen": lambda: people.reopen(state, "x"),
            "adopt": lambda: people.adopt(state, "old", "new", "x"),
            "update": lambda: people.update(state, "x", argv=["--time=5"]),
        }
        try:
            facts = make[wish]()
        except people.UsageError:
            return
        self.world.person(facts)

    @rule(keep=st.booleans())
    @precondition(lambda self: self.world.state.closed is None and len(self.world.facts) > 20)
    def somebody_supersedes_it(self, keep: bool) -> None:
        """With or without the run that goes on."""
        current = self.world.state.object
        kept = current.slurm_job_id if keep and current is not None else None
        self.world.person(people.supersede(self.world.state, "other", "", kept))

    @rule(is_open=st.booleans())
    def the_breaker(self, is_open: bool) -> None:
        """Of the site."""
        self.world.breaker = "storm" if is_open else None

    @invariant()
    def holds(self) -> None:
        """One current object, numbers that only rise, closed for good."""
        if not self.world.facts:
            return
        state = self.world.state
        numbers = [submission.number for submission in state.submissions]
        assert numbers == sorted(set(numbers))
        assert len(self.world.calls) == len(set(self.world.calls))
        assert set(self.world.calls) <= set(numbers)
        assert state.numbers_used >= max(numbers, default=0)
        assert sum(submission.settled is Settled.OPEN for submission in state.submissions) <= 1
        assert all(it.settled is not Settled.OPEN for it in state.submissions[:-1])
        kinds = [fact.kind for fact in self.world.facts]
        if state.closed is not None:
            after = set(kinds[state.closed.seq :])
            assert after <= {"stray", "progress", "started", "watched", "adopted", "end", "submitted", "burnt"}
            assert state.phase is Phase.CLOSED
            if after & {"end", "submitted", "burnt"}:
                assert state.closed.why == "superseded" or "suspected" in kinds
        assert len(numbers) >= self.most
        self.most = len(numbers)

    def _current(self) -> Thing:
        current = self.world.state.object
        assert current is not None
        return self.world.thing(current.slurm_job_id)

    def teardown(self) -> None:
        """With everything visible and time, the world comes to rest with one object at most, and none if closed;
        and every decision comes out again from the facts."""
        if not self.world.facts:
            return
        self.world.reply = "answer"
        self.world.breaker = None
        for thing in self.world.things:
            thing.silent = None
        for _ in range(12):
            self.world.now += 3000
            self.world.tick("ctl1")
        state = self.world.state
        kept = None if state.closed is None else state.closed.keep
        alive = [it for it in self.world.things if it.outcome is None and it.slurm_job_id != kept]
        resting = {Phase.QUEUED, Phase.RUNNING, Phase.HELD, Phase.CLOSED, Phase.NEW}
        assert state.phase in resting, state.phase
        assert len(alive) <= (1 if state.object is not None else 0), (state.phase, alive)
        if alive:
            assert state.object is not None
            assert alive[0].slurm_job_id == state.object.slurm_job_id
        assert all(it.same for it in replay(self.world.facts))


TestEngine = Engine.TestCase
# The same examples each time, so that a change and nothing else makes this fail.
TestEngine.settings = settings(max_examples=300, stateful_step_count=40, deadline=None, derandomize=True)


@pytest.mark.parametrize("kind", SPECS)
@pytest.mark.parametrize("outcome", OUTCOMES)
@pytest.mark.parametrize("reply", ["answer", "lost", "dies before", "rejected"])
def test_a_tick_that_dies_after_any_action_is_finished_by_the_next(outcome: str, reply: str, kind: str) -> None:
    """The interrupted-prefix property: the same end, however often it was cut short."""

    def play(dies_after: int | None) -> tuple[Any, ...]:
        world = World(make_spec(**SPECS[kind]))
        world.append(1, "spec", world.spec.body())
        world.submit(2, 1, None)
        world.start(world.things[0])
        if kind == "suspects":
            world.things[0].silent = world.now - 60
        else:
            world.end(world.things[0], outcome)
        world.reply = reply
        for round_ in range(20):
            if round_ == 6:
                world.reply = "answer"
                if kind == "suspects":
                    world.end(world.things[0], outcome)
            if dies_after is not None and round_ < 6:
                world.tick("ctl1", dies_after=dies_after)
            world.tick("ctl1")
            world.now += 300 if round_ < 6 else 900  # few enough refusals to stay below their limit
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
