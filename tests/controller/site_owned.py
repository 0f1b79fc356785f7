"""One job of the model: its record, what really became of it, and what must hold whenever something is done to it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from slurm_dispatch.records.state import Phase, Settled, State
from tests.controller.site_port import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from slurm_dispatch.model.epoch import Epoch
    from slurm_dispatch.model.identity import Word
    from slurm_dispatch.records import people
    from slurm_dispatch.records.spec import Spec
    from tests.controller.site_world import SiteWorld

OWN_WORDS = frozenset({"stalled", "not_resumed", "store_error"})
"""What the helper says of an end, and nothing that Slurm says is against."""
SPENDS = frozenset({"shared", "breaker", "limit"})
"""Holds that stand in for a resubmission, and cost what it costs."""


@dataclass(frozen=True)
class Ran:
    """An execution that the gate let in."""

    word: Word
    slurm_job_id: int
    attempt: str
    epoch: Epoch
    start: int


class Owned:
    """A job.

    :ivar called: submissions for which sbatch was called, in order.
    :ivar covered: attempts that a person took upon himself when he released the job.
    :ivar watching: (submission, host): when that host began to watch the intent, by the time that never steps.
    :ivar spent: by cause: what was decided to bring the job back since the last durable progress or a person's word.
    :ivar published: by attempt: the greatest step that was handed on.
    """

    def __init__(self, world: SiteWorld, spec: Spec, elder: Owned | None = None) -> None:
        self.world = world
        self.spec = spec
        self.elder = elder
        self.key = spec.job
        self.record = Record(self, f"/state/jobs/{spec.job}")
        self.called: list[int] = []
        self.covered: set[str] = set()
        self.watching: dict[tuple[int, str], float] = {}
        self.spent: Counter[str] = Counter()
        self.published: dict[str, int] = {}
        assert self.record.append(1, "spec", "user:ada@login", spec.body())

    @property
    def state(self) -> State:
        return self.world.folded(self.record.facts)

    def chain(self) -> list[Owned]:
        """The job and those that it superseded, the newest first."""
        return [self, *(self.elder.chain() if self.elder is not None else ())]

    @property
    def ran(self) -> list[Ran]:
        """Its executions that the gate let in, in order."""
        return [it for it in self.world.ran if it.word.job == self.key]

    def beside(self) -> set[str]:
        """Attempts whose processes live, and beside which nothing of this job may start."""
        found = {it.attempt for it in self.ran} if self.spec.shared else set()
        for elder in self.chain()[1:]:
            if self.spec.shared or elder.spec.shared:
                found |= {it.attempt for it in elder.ran}
        return found & self.world.living

    # Who writes.

    def person(self, wish: Callable[[State], people.Facts]) -> None:
        """What somebody does at the command line."""
        with self.world.on("login"):
            for kind, body in wish(self.state):
                self.record.put(kind, "user:ada@login", body)

    def helper(self, kind: str, body: Mapping[str, Any]) -> None:
        """What the helper appends on its node."""
        with self.world.on("node"):
            self.record.put(kind, "watch@node", body)

    # What must hold whenever something is done.

    def sbatch(self, word: Word) -> None:
        """sbatch is called."""
        number, state = word.submission, self.state
        assert number not in self.called, f"submission {number} was used twice"
        assert number > max(self.called, default=0), "numbers only rise"
        closed = state.closed
        assert closed is None or closed.why == "superseded", "a closed job was submitted"
        self.called.append(number)
        for other in self.world.objects("PENDING", "RUNNING"):
            mine = self.world.made[other]
            if mine.job == self.key:
                assert not self._is_current(other, mine, state), f"Slurm job {other} is current, and another is made"

    def _is_current(self, number: int, word: Word, state: State) -> bool:
        """It lives, it never ended, and no fact took its place from it."""
        for it in state.submissions:
            if it.number == word.submission and it.object is not None and it.object.slurm_job_id == number:
                elder = state.elder is not None and state.elder.number == it.number
                gone = it.replaced or it.suspected is not None or elder or (number, word) in self.world.were_over
                gone = gone or (it.number, number) in state.strays
                return not gone
        return False  # nobody knows it: a stray of a number that was burnt or left

    def enters(self, it: Ran) -> None:
        """The gate lets an execution in."""
        older = [other.epoch for job in self.chain() for other in job.ran]
        assert it.epoch not in older, f"two executions share epoch {it.epoch}"
        current = self.state.object
        if current is not None and current.slurm_job_id == it.slurm_job_id and self.state.elder is None:
            assert all(epoch < it.epoch for epoch in older), "the epoch of the current object does not rise"
        beside = self.beside() - self.covered
        assert not beside, f"an execution of a shared job beside {sorted(beside)}, which nobody released"
        if self.beside():
            self.world.saw("an execution beside one that a person took upon himself")

    def check(self, kind: str, body: Mapping[str, Any]) -> None:
        """What a fact says of the world is so, before it is written."""
        if kind == "end":
            self._check_end(body)
        elif kind == "burnt":
            self._check_burnt(body["submission"])
        elif kind == "watched":
            self.watching[body["submission"], body["host"]] = self.world.now
        elif kind == "release" and body["how"] == "ceased":
            assert not self.beside(), f"called ceased, and {sorted(self.beside())} live"
        elif kind == "cessation" and body["answer"] == "ceased":
            assert body["attempt"] not in self.world.living, "called ceased, and it lives"
        elif kind == "suspected":
            assert set(body["nodes"]) <= set(self.world.silent), "a node was suspected that answers"
        elif kind == "decision":
            self._check_decision(body)

    def _check_end(self, body: Mapping[str, Any]) -> None:
        world, number, word = self.world, body["slurm_job_id"], self.spec.word(body["submission"])
        mine = [it for it in self.ran if (it.word, it.slurm_job_id) == (word, number)]
        if not body["final"]:
            ran = max((it.epoch.restart for it in mine), default=0)
            count = max(ran, world.slurm.job(number)["restart"])
            assert world.word(number) != word or count > body["restart"], "a restart that never was"
            return
        if (body["outcome"], body["evidence"].get("source")) == ("lost", "slurmctld"):
            # Slurm's own word that there is no such object, and a person's that nothing is to come after it.
            assert self.state.request is not None, f"nobody asked for the end of Slurm job {number}, which is lost"
            assert number not in world.objects() or world.word(number) != word, f"Slurm still has job {number}"
            world.saw("what a person wanted to end is not there any more")
            return
        assert (number, word) in world.were_over, f"Slurm job {number} is said to have ended, and never did"
        (submission,) = [it for it in self.state.submissions if it.number == word.submission]
        for execution in submission.executions:
            said = None if execution.ended is None else execution.ended.outcome
            if execution.epoch.restart == body["restart"] and said is not None and said.value in OWN_WORDS:
                assert body["outcome"] in {said.value, "lost"}, f"the helper said {said}, not {body['outcome']}"

    def _check_burnt(self, number: int) -> None:
        world, state = self.world, self.state
        if state.request is not None or state.closed is not None:
            return  # what turns up of it is a stray of a job that is over
        began = self.watching[number, world.acting]
        if world.stepped_at.get(world.acting, -1.0) >= began:
            world.saw("a number is burnt by a clock that stepped while it was watched")
            return
        assert world.now - began >= world.settle_s, f"submission {number} was burnt after {world.now - began:g} s"
        there = [it for it in world.slurm.ids() if world.word(it) == self.spec.word(number)]
        assert not there or set(there) <= world.edited, f"submission {number} was burnt, and it is Slurm job {there}"

    def _check_decision(self, body: Mapping[str, Any]) -> None:
        back = body["action"] in {"resubmit", "requeue"} or (body["action"] == "hold" and body["why"] in SPENDS)
        if not back or body["free"]:
            return
        self.spent[body["outcome"]] += 1
        spent, budget = self.spent[body["outcome"]], body["budget"]
        assert budget is None or spent <= budget, f"{spent} times back after {body['outcome']}: more than {budget}"

    def appended(self, kind: str, body: Mapping[str, Any]) -> None:
        """The law allows the record as it is now."""
        state = self.state
        self._says(kind, body)
        if kind == "release" and body["how"] == "person":
            self.covered |= {it.attempt for job in self.chain() for it in job.ran}
            self.spent.clear()
        elif kind == "reopened":
            self.spent.clear()
        numbers = [submission.number for submission in state.submissions]
        assert numbers == sorted(set(numbers)), f"numbers only rise, and these do not: {numbers}"
        open_ = [it.number for it in state.submissions if it.settled is Settled.OPEN]
        assert len(open_) <= 1, f"submissions {open_} are open at once"
        decided = [fact.body["on"] for fact in self.record.facts if fact.kind == "decision"]
        assert len(decided) == len(set(decided)), "two decisions about one end"

    def _says(self, kind: str, body: Mapping[str, Any]) -> None:
        """Count what came about."""
        saw = self.world.saw
        saw(f"fact {kind}")
        detail = {
            "end": "outcome", "closed": "why", "submitted": "how", "release": "how", "cessation": "answer",
            "refused": "why", "told": "what",
        }.get(kind)  # fmt: skip
        if detail is not None:
            saw(f"{kind}: {body[detail]}")
        if kind == "decision":
            saw(f"decision: {body['action']} by {body['why']}")
            if body["free"] and body["action"] in {"resubmit", "requeue"}:
                saw("a recovery costs no budget")
        if kind == "took_over" and self.state.phase is Phase.HELD:
            saw("a job that took over is held for its elder")

    def publishes(self, it: Ran, step: int, resumed_from: int | None) -> dict[str, Any] | None:
        """An execution handed a step on: what the helper says of it, and whether it is durable progress."""
        before = self.published.get(it.attempt)
        if before is not None and step <= before:
            return None
        newest = all(
            other.epoch <= it.epoch or other.attempt not in self.published for other in self.ran
        )
        current = self.state.current
        newer = step > max((mark for mark in (resumed_from, before) if mark is not None), default=-1)
        self.published[it.attempt] = step
        if newest and newer and current is not None and current.number == it.word.submission:
            self.spent.clear()
            self.world.saw("durable progress")
        elif not newest:
            self.world.saw("a ghost publishes")
        return {"attempt": it.attempt, "epoch": str(it.epoch), "step": step, "resumed_from": resumed_from}


__all__ = ["OWN_WORDS", "Owned", "Ran"]
