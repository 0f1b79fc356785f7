"""P5, P6, P7: two ticks and a wrapper over one job, in every order of their steps, with one of them killed anywhere.

The record is in memory and Slurm is a list, so that thousands of runs take seconds; the code between is the
product's own: the wrapper's ``submit_once``, and the ticks' :class:`~slurm_dispatch.controller.job.Job`.
"""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from slurm_dispatch.controller.job import Job, Means
from slurm_dispatch.controller.view import Details, View
from slurm_dispatch.errors import BadDataError
from slurm_dispatch.model.identity import Word, find_word
from slurm_dispatch.records.facts import Fact, parse_fact, render
from slurm_dispatch.records.fold import fold
from slurm_dispatch.records.policy import Policy
from slurm_dispatch.records.state import Phase
from slurm_dispatch.slurm.port import (
    Absent,
    Accepted,
    Ambiguous,
    CancelAnswer,
    Dependent,
    JobDetail,
    Present,
    Queue,
    QueueJob,
    SbatchCall,
    SubmitAnswer,
    Unknown,
)
from slurm_dispatch.submit.run import Intent, submit_once, wait_s
from tests.controller.schedule import Stage, explore
from tests.records.life import UID, make_spec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

START = 1_700_000_000.0
SUBMIT_S = 5.0
MESSAGE_S = 10.0
WAIT_S = wait_s(SUBMIT_S, MESSAGE_S)
CONFIG = {"ClusterName": "c", "MessageTimeout": "10 sec", "AccountingStorageType": "accounting_storage/slurmdbd"}


@dataclass
class Thing:
    """An object in Slurm."""

    number: int
    word: Word
    submitted: float
    state: str = "PENDING"


@dataclass
class World:
    """Slurm, the clock and the record of one job; everything that others can see is a step."""

    stage: Stage | None = None
    now: float = START
    things: list[Thing] = field(default_factory=list)
    cancelled: list[int] = field(default_factory=list)
    facts: list[Fact] = field(default_factory=list)
    arrived: list[int] = field(default_factory=list)
    folder: str = "/state/jobs/abc"

    def __post_init__(self) -> None:
        CLOCK[:] = [self]

    def step(self, what: str) -> None:
        if self.stage is not None:
            self.stage.step(what)

    # The record.

    def stamp(self) -> int:
        return len(self.facts)

    def read(self) -> list[Fact]:
        self.step("read")
        return list(self.facts)

    def append(
        self, expected_seq: int, kind: str, by: str, body: Mapping[str, Any], *, at: float | None = None
    ) -> bool:
        self.step(f"append {kind}")
        if expected_seq <= len(self.facts):
            return False
        assert expected_seq == len(self.facts) + 1, "a gap"
        fact = Fact(expected_seq, self.now if at is None else at, kind, by, body)
        self.facts.append(parse_fact(expected_seq, render(fact)))
        fold(self.facts)  # the law allows it
        return True

    def script(self, sha256: str = "") -> bytes:
        return b"#!/bin/sh\n"

    def script_path(self, sha256: str = "") -> str:
        return f"{self.folder}/script"

    def environment(self) -> bytes:
        return b""

    # Slurm.

    def submit(self, call: SbatchCall, accepted: Callable[[Accepted], None] | None = None) -> SubmitAnswer:
        until = self.now + call.deadline_s
        self.step("sbatch begins")
        word = find_word(next(text for text in call.argv if text.startswith("--comment=")).partition("=")[2])
        assert word is not None
        if self.now > until + 2 * MESSAGE_S:  # what it had sent can be under way for so long
            return Ambiguous("killed at its deadline")
        burnt = [fact.body["submission"] for fact in self.facts if fact.kind == "burnt"]
        assert word.submission not in burnt, "P6: a number was burnt while its sbatch could still arrive"
        assert word.submission not in self.arrived, "P6: a number was used twice"
        assert not any(fact.kind == "closed" for fact in self.facts), "a closed job was submitted"
        self.arrived.append(word.submission)
        thing = Thing(101 + len(self.things), word, self.now)
        self.things.append(thing)
        self.step("sbatch has arrived")
        if self.now > until:
            return Ambiguous("killed at its deadline")
        answer = Accepted(thing.number, None)
        if accepted is not None:
            accepted(answer)
        return answer

    def queue(self) -> Queue | Unknown:
        self.step("queue")
        return Queue(
            tuple(
                QueueJob(it.number, UID, it.state, "None", int(it.submitted), None, "", it.word) for it in self.things
            )
        )

    def dependents(self, uid: int) -> tuple[Dependent, ...] | Unknown:
        return ()  # nothing depends on it, and a look that finds nothing changes no order

    def detail(self, slurm_job_ids: Sequence[int]) -> dict[int, Present[JobDetail] | Absent | Unknown]:
        self.step("detail")
        found: dict[int, Present[JobDetail] | Absent | Unknown] = dict.fromkeys(slurm_job_ids, Absent())
        found.update({it.number: Present(self.told(it)) for it in self.things if it.number in slurm_job_ids})
        return found

    def accounting(
        self, slurm_job_ids: Sequence[int], *, since: int | None = None
    ) -> dict[int, Present[tuple[JobDetail, ...]] | Absent | Unknown]:
        self.step("accounting")
        return dict.fromkeys(slurm_job_ids, Absent())

    def accounting_by_word(
        self, word: Word, uid: int, *, since: int
    ) -> Present[tuple[JobDetail, ...]] | Absent | Unknown:
        self.step("accounting")
        rows = tuple(self.told(it) for it in self.things if it.word == word)
        return Present(rows) if rows else Absent()

    def cancel(self, slurm_job_id: int, cluster: str | None) -> CancelAnswer:
        self.step("cancel")
        self.cancelled.append(slurm_job_id)
        for it in self.things:
            if it.number == slurm_job_id:
                it.state = "CANCELLED"
        return CancelAnswer(done=True)

    def config(self) -> Mapping[str, str] | Unknown:
        return CONFIG

    @staticmethod
    def told(it: Thing) -> JobDetail:
        start = None if it.state == "PENDING" else int(it.submitted)
        return JobDetail(
            it.number, UID, frozenset({it.state}), "None", 0, 0, 0, int(it.submitted), start, start, "c1",
            str(it.word), "json", it.word,
        )  # fmt: skip

    # The actors.

    def means(self, name: str) -> Means:
        rules = Policy()
        return Means(self, rules, name, SUBMIT_S, MESSAGE_S, {"PATH": "/bin"})

    def tick(self, host: str) -> None:
        """One pass."""
        self.step("a tick")
        at = self.now
        view = View(at, host, "c", self.queue(), True, {}, True, CONFIG)
        Job(self, view, Details(self, accounting=True), self.means(f"tick@{host}")).work()  # type: ignore[arg-type]

    def wrapper(self) -> None:
        """``dispatch sbatch`` after the record is made."""
        spec = fold(self.facts).spec
        word = spec.word(1)
        call = SbatchCall((f"--comment={word}", "/s"), {}, SUBMIT_S)
        submit_once(
            self, self, Intent(word), call, seq=1, by="user:ada@login", cluster="c",  # type: ignore[arg-type]
            settle_after_s=WAIT_S,
        )  # fmt: skip

    def clock(self) -> None:
        """Time goes on while others stand still: not quite long enough for an intent to be settled."""
        self.step("time")
        self.now += 0.8 * WAIT_S


CLOCK: list[World] = []
"""The world whose time it is."""


def first_submission() -> World:
    """A record that the wrapper has just made."""
    world = World()
    spec = make_spec(job="abc", cluster="c")
    assert world.append(1, "spec", "user:ada@login", spec.body())
    return world


def after_an_end() -> World:
    """A job whose first object was preempted."""
    world = first_submission()
    world.wrapper()
    world.things[0].state = "PREEMPTED"
    world.now += 60
    return world


def check(world: World) -> None:
    """A sane tick comes by until nothing moves: one object at most lives, it is the current one, nothing is lost."""
    world.stage = None
    burnt = [fact for fact in world.facts if fact.kind == "burnt"]
    assert world.cancelled == [], "an object was cancelled that no one asked to end"
    for _ in range(16):
        before = len(world.facts)
        world.now += 7200
        world.tick("last")
        if len(world.facts) == before and fold(world.facts).phase not in {Phase.WAITING, Phase.NEW}:
            break
    state = fold(world.facts)
    decided = [fact.body["on"] for fact in world.facts if fact.kind == "decision"]
    assert len(decided) == len(set(decided)), "P7: two decisions about one end"
    living = [it for it in world.things if it.state == "PENDING"]
    assert len(living) <= 1
    assert world.cancelled == []
    if state.phase is Phase.QUEUED:
        assert state.object is not None
        assert [it.number for it in living] == [state.object.slurm_job_id]
    else:
        # Nobody called sbatch, or its writer was killed between intent and sbatch.
        assert (state.phase, living) == (Phase.CLOSED, [])
        assert state.closed is not None
        assert state.closed.why == "never_submitted"
        assert burnt or any(fact.kind == "burnt" for fact in world.facts) or len(world.facts) == 2


@pytest.mark.parametrize(
    ("scene", "hosts", "interruptions", "kills"),
    [
        (first_submission, "aa", 2, False),
        (first_submission, "ab", 1, True),
        (after_an_end, "ab", 2, False),
        (after_an_end, "aa", 1, True),
    ],
)
def test_every_order_of_two_ticks_and_a_wrapper(
    scene: Callable[[], World], hosts: str, interruptions: int, kills: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    World()
    monkeypatch.setattr(time, "time", lambda: CLOCK[0].now)
    names = ["one", "two", "soon", "late", *(["wrapper"] if scene is first_submission else [])]
    runs = 0

    for order in itertools.permutations(names):
        if order.index("one") > order.index("two") or order.index("soon") > order.index("late"):
            continue  # they are alike

        def make(choices: Mapping[int, str], order: tuple[str, ...] = order) -> Stage:
            here = scene()
            works = {
                "one": lambda: here.tick(hosts[0]),
                "two": lambda: [here.tick(hosts[1]), here.tick(hosts[1])],
                "soon": here.clock,
                "late": here.clock,
                "wrapper": here.wrapper,
            }
            here.stage = Stage({name: works[name] for name in order}, choices)  # type: ignore[misc]
            return here.stage

        for stage, choices in explore(make, interruptions, kills=kills, alike={"late": "soon"}):
            runs += 1
            world = CLOCK[0]
            try:
                check(world)
            except (AssertionError, BadDataError) as error:
                facts = [(fact.kind, fact.by) for fact in world.facts]
                raise AssertionError(f"order {order}, choices {choices}: {stage.steps}: {facts}") from error
    print(f"{runs} runs")
