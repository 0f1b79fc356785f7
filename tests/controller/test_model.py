"""The model: record, decide, the controllers' pass and a simulated Slurm, in any order.

``make nightly`` takes at least a million steps, drawn by ``SEED``; ``make test`` takes the same few thousand each
time. The simulated Slurm is the one that ``test_conformance.py`` holds against the real one.
"""

from __future__ import annotations

import os
import random
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from slurm_dispatch.controller import engine
from slurm_dispatch.records import people
from slurm_dispatch.records import state as states
from slurm_dispatch.records.replay import replay
from tests.controller.fake_slurm import OVER
from tests.controller.site_port import MUTATIONS, Cut
from tests.controller.site_world import (
    RESTARTS_MAX,
    SOURCES,
    STRANGER,
    SUSPECT_S,
    WAIT_S,
    SiteWorld,
)

if TYPE_CHECKING:
    from collections.abc import Callable

EXAMPLES = 250
STEPS_EACH = 40
NIGHTLY_STEPS = int(os.environ.get("MODEL_STEPS", "0"))
"""0: the few examples of every run. ``make nightly`` sets it."""
REPLIES = ("answer", "lost", "late", "reject")
ENDS: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "preempted": (("PREEMPTED",), {}),
    "node_fail": (("NODE_FAIL",), {}),
    "failed": (("FAILED",), {"exit_status": 3}),
    "timeout": (("TIMEOUT",), {}),
    "out_of_memory": (("OUT_OF_MEMORY",), {}),
    "deadline": (("DEADLINE",), {}),
    "boot_fail": (("BOOT_FAIL",), {}),
    "completed": (("COMPLETED",), {}),
    "by its owner": (("CANCELLED",), {"by_uid": 1234}),
    "by root": (("CANCELLED",), {"by_uid": 0}),
    "completing": (("PREEMPTED", "COMPLETING"), {}),
}
OFTEN = ("preempted", "node_fail", "failed", "timeout", "completing")
ENDS_OF_WAITING = ("by its owner", "by root", "deadline", "boot_fail")
"""What can become of an object that never ran."""
SPECS: dict[str, dict[str, Any]] = {
    "plain": {"argv": ("--requeue",)},
    "once": {"argv": ("--no-requeue",)},
    "rules": {"argv": ("--requeue",), "rules": ("preempted,node_fail,boot_fail:requeue", "failed:hold,for=1h")},
    "shared": {"argv": ("--no-requeue",), "shared": True, "shared_hold_for_s": 7200.0},
    "suspects": {"argv": ("--requeue",), "suspect_s": SUSPECT_S},
}
ACTS = ("other tick", "starts", "ends", "time", "cancel", "hold", "requeue")
CUTS = st.lists(
    st.builds(Cut, st.integers(1, 40), st.sampled_from(("die", "die", "other tick", *ACTS))), max_size=3
)
HOWS = st.lists(st.sampled_from([*OFTEN, *OFTEN, *OFTEN, *ENDS]), min_size=1, max_size=4)
HIDDEN = st.just(frozenset()) | st.frozensets(st.sampled_from(SOURCES)) | st.just(frozenset(SOURCES))
RESTING = {states.Phase.QUEUED, states.Phase.RUNNING, states.Phase.HELD, states.Phase.CLOSED, states.Phase.NEW}
LIVE = ("PENDING", "RUNNING")


class Asked:
    """The cache of counted answers beside the record, in memory."""

    kept: ClassVar[dict[str, Any]] = {}


class Site(RuleBasedStateMachine):
    """Everything that can happen, in any order."""

    steps = 0

    def __init__(self) -> None:
        super().__init__()
        self.world = SiteWorld(**SPECS["plain"])
        self._lay()

    @initialize(kind=st.sampled_from(list(SPECS)), reply=st.just("answer") | st.sampled_from(REPLIES), cuts=CUTS)
    def begin(self, kind: str, reply: str, cuts: list[Cut]) -> None:
        """A job of one of several kinds, and the wrapper's own call."""
        self.world = SiteWorld(**SPECS[kind])
        self._lay()
        self.world.slurm.reply = reply
        self.world.wrapper(cuts)

    def _lay(self) -> None:
        Asked.kept = {}
        CLOCK[:] = [self.world]
        self.world.acts = {
            "other tick": lambda: self.world.tick("ctl2"),
            "starts": self._starts,
            "ends": self._ends_some,
            "time": lambda: self.world.passes(WAIT_S - 2),
            "cancel": lambda: self._wish("cancel"),
            "hold": lambda: self._wish("hold"),
            "requeue": self._restarts,
        }

    # The controllers.

    @rule(host=st.sampled_from(["ctl1", "ctl2"]), hidden=HIDDEN, cuts=CUTS)
    def tick(self, host: str, hidden: frozenset[str], cuts: list[Cut]) -> None:
        """One pass, that may see nothing, be overtaken, and die."""
        before, calls = self.world.state, len(self.world.slurm.calls())
        self.world.tick(host, hidden, cuts)
        blind = hidden >= frozenset(SOURCES) and not cuts
        if blind and before.phase in {states.Phase.SUBMITTING, states.Phase.QUEUED, states.Phase.RUNNING}:
            done = {fact.kind for fact in self.world.record.facts[before.seq :]}
            made = set(self.world.slurm.calls()[calls:]) & MUTATIONS
            if before.request is None:
                assert done <= {"watched"}, f"nothing was known, and it said {done}"
                assert not made, f"nothing was known, and it did {made}"

    @rule(reply=st.just("answer") | st.sampled_from(REPLIES))
    def sbatch(self, reply: str) -> None:
        """The way in which the next calls end."""
        self.world.slurm.reply = reply

    @rule(seconds=st.sampled_from([1.0, 20.0, WAIT_S, 200.0, 2000.0]))
    def time_passes(self, seconds: float) -> None:
        """For everybody."""
        self.world.passes(seconds)

    @rule(seconds=st.sampled_from([-3600.0, -100.0, 100.0, 3600.0]))
    def the_clock_steps(self, seconds: float) -> None:
        """Of every host."""
        self.world.stepped += seconds

    @rule(hows=HOWS, cuts=CUTS, lingers=st.booleans())
    def rounds(self, hows: list[str], cuts: list[Cut], lingers: bool) -> None:
        """The current object runs and ends, and what follows is done, a few times: what happens most."""
        if self.world.state.closed is not None:
            self._wish("reopen")
        for how in hows:
            for host in ("ctl2", "ctl1"):
                if self.world.state.object is None:
                    self.world.passes(WAIT_S + 1)
                    self.world.tick(host)
            self._starts()
            self.ends(how, lingers)
            self.world.tick("ctl1", cuts=cuts)

    @rule(hows=HOWS, cuts=CUTS, reply=st.sampled_from(REPLIES))
    def rounds_with_trouble(self, hows: list[str], cuts: list[Cut], reply: str) -> None:
        """The same while sbatch's answers get lost."""
        self.world.slurm.reply = reply
        self.rounds(hows, cuts, lingers=False)
        self.world.slurm.reply = "answer"

    # Slurm.

    @rule()
    def starts(self) -> None:
        """Every waiting object starts, as far as its hook lets it."""
        self._starts()

    @rule(how=st.sampled_from(list(ENDS)), lingers=st.booleans())
    def ends(self, how: str, lingers: bool) -> None:
        """The newest living object ends."""
        living = self.world.objects(*LIVE)
        if not living:
            return
        waits = "PENDING" in self.world.slurm.job(living[-1])["states"]
        words, more = ENDS[ENDS_OF_WAITING[len(self.world.ran) % 4] if waits and how not in ENDS_OF_WAITING else how]
        self.world.end(living[-1], *words, lingers=lingers, **more)

    @rule(number=st.integers(0, 3))
    def slurm_or_somebody_requeues(self, number: int) -> None:
        """What runs, or what has ended."""
        self._restarts(number)

    @rule()
    def one_count_starts_twice(self) -> None:
        """slurmctld forgets a start."""
        for number in self.world.objects("RUNNING"):
            self.world.start_again(number)
            return

    @rule(again=st.booleans(), stranger=st.booleans())
    def ended_jobs_are_purged(self, again: bool, stranger: bool) -> None:
        """MinJobAge is over; ids may begin again, and a stranger gets the first that is free."""
        self.world.slurm.lag(on=False)
        for number in self.world.objects():
            if OVER & set(self.world.slurm.job(number)["states"]):
                self.world.slurm.forget(number)
        if again:
            self.world.slurm.begin_ids_again()
        if stranger:
            self.world.slurm.start(self.world.slurm.plain(comment="theirs", uid=STRANGER))

    @rule(on=st.booleans())
    def accounting_lags(self, on: bool) -> None:
        """Or has everything again."""
        self.world.slurm.lag(on=on)

    @rule()
    def what_completes_is_done(self) -> None:
        """COMPLETING goes."""
        for number in self.world.objects("COMPLETING"):
            words = [word for word in self.world.slurm.job(number)["states"] if word != "COMPLETING"]
            self.world.slurm.set(number, states=words)

    @rule()
    def processes_die(self) -> None:
        """Those that were left behind."""
        running = set(self.world.objects("RUNNING"))
        self.world.living = {it.attempt for it in self.world.ran if it.slurm_job_id in running} & self.world.living

    @rule(answers=st.sampled_from(["never", "before", "after"]), cuts=CUTS)
    @precondition(lambda self: self.world.state.object is not None and self.world.spec.suspect_s is not None)
    def a_node_goes_silent(self, answers: str, cuts: list[Cut]) -> None:
        """For long enough, while ticks see it; it may answer before or after the replacement runs."""
        self._starts()
        self.world.tick("ctl2")
        current = self.world.state.object
        if current is None:
            return
        self.world.silent[f"n{current.slurm_job_id}"] = self.world.now - 2 * SUSPECT_S
        self.world.tick("ctl2", cuts=cuts)
        if answers == "after":
            self._starts()
            self.world.tick("ctl1", cuts=cuts)
        if answers != "never":
            self.world.silent.clear()
            self.world.tick("ctl1")

    @rule()
    def the_nodes_answer(self) -> None:
        """All of them."""
        self.world.silent.clear()

    # Persons.

    @rule(wish=st.sampled_from(["hold", "release", "release", "reopen", "adopt", "update", "cancel", "supersede"]))
    @precondition(lambda self: len(self.world.record.facts) > 6)
    def a_person(self, wish: str) -> None:
        """Somebody at the command line, who is refused where it cannot be."""
        if wish not in {"cancel", "supersede"} or len(self.world.record.facts) > 20:
            self._wish(wish)

    def _wish(self, wish: str) -> None:
        state = self.world.state
        make: dict[str, Callable[[], people.Facts]] = {
            "hold": lambda: people.hold(state, "x"),
            "release": lambda: people.release(state, "x", self.world.wall),
            "reopen": lambda: people.reopen(state, "x"),
            "adopt": lambda: people.adopt(state, "old", "new", "x"),
            "update": lambda: people.update(state, "x", argv=["--time=5", *self.world.spec.argv]),
            "supersede": lambda: people.supersede(state, "other", "", None) if state.closed is None else (),
            "cancel": lambda: (("request", {"what": "cancel", "reason": ""}),)
            if state.closed is None and state.request is None
            else (),
        }
        try:
            facts = make[wish]()
        except people.UsageError:
            return
        self.world.person(facts)

    def _starts(self) -> None:
        for number in self.world.objects("PENDING"):
            self.world.start(number)

    def _ends_some(self) -> None:
        self.ends("preempted", lingers=False)

    def _restarts(self, which: int = 0) -> None:
        found = [it for it in self.world.objects() if self.world.slurm.job(it)["restart"] < RESTARTS_MAX]
        found = [it for it in found if "PENDING" not in self.world.slurm.job(it)["states"]]
        if found:
            self.world.restart(found[which % len(found)])

    # What holds at every moment, and at the end.

    @invariant()
    def holds(self) -> None:
        """Closed is closed; each step counts."""
        type(self).steps += 1
        state = self.world.state
        assert set(self.world.called) <= {submission.number for submission in state.submissions}
        assert state.numbers_used >= max(self.world.called, default=0)

    def teardown(self) -> None:
        """With everything visible and time, one object at most lives: the current one; none if it is closed."""
        world = self.world
        world.slurm.reply, world.silent = "answer", {}
        world.slurm.lag(on=False)
        for _ in range(14):
            self.what_completes_is_done()
            world.passes(3000)
            world.tick("ctl1")
        state = world.state
        assert state.phase in RESTING, state.phase
        alive = world.objects(*LIVE)
        current = state.object
        assert alive in ([], [] if current is None else [current.slurm_job_id]), (state.phase, alive, current)
        assert all(it.same for it in replay(world.record.facts))


SHOWN = (Phase.generate, Phase.shrink)
CLOCK: list[SiteWorld] = []
"""The world whose time it is."""


@pytest.fixture(autouse=True)
def _time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time, chance and the cache of answers are the world's own."""
    CLOCK[:] = [SiteWorld()]
    monkeypatch.setattr(time, "time", lambda: CLOCK[0].wall)
    monkeypatch.setattr(time, "clock_gettime", lambda clock: CLOCK[0].now)
    monkeypatch.setattr(engine, "random", SimpleNamespace(SystemRandom=lambda: random.Random(1)))
    monkeypatch.setattr(engine, "read_asked", lambda folder: Asked.kept)
    monkeypatch.setattr(engine, "write_asked", lambda folder, counts: setattr(Asked, "kept", dict(counts)))


def run(seed: int | None, examples: int, *, phases: tuple[Phase, ...] = SHOWN) -> None:
    """So many examples, drawn by this seed; the same ones each time without one."""
    Site._hypothesis_internal_use_seed = seed  # type: ignore[attr-defined]  # what hypothesis.seed sets
    chosen = settings(
        max_examples=examples, stateful_step_count=STEPS_EACH, deadline=None, database=None, phases=phases,
        derandomize=seed is None,
        suppress_health_check=list(HealthCheck), print_blob=True,
    )  # fmt: skip
    run_state_machine_as_test(Site, settings=chosen)


def test_in_any_order() -> None:
    """The same examples each time, so that a change and nothing else makes this fail."""
    run(None, EXAMPLES)


@pytest.mark.skipif(not NIGHTLY_STEPS, reason="make nightly")
@pytest.mark.parametrize("part", range(2))
def test_in_a_million_orders(part: int) -> None:
    """Others each time: ``SEED`` repeats them."""
    Site.steps, batch = 0, 0
    while Site.steps < NIGHTLY_STEPS // 2:
        seed = random.Random(f"{os.environ['SEED']} {part} {batch}").getrandbits(64)
        print(f"part {part}, batch {batch}: seed {seed}, {Site.steps} steps so far", flush=True)
        run(seed, 1000)
        batch += 1
