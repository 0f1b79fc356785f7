"""The model sees what it is there for: each of these faults of the product fails at the assertion meant for it.

A fault that the model no longer finds is a hole in the model. The fold's own law would refuse many of them before
anything happens; where it says so, it is taken away first, so that it is the model that sees.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import Phase as Stage

from slurm_dispatch.controller import ends, engine, job, settle
from slurm_dispatch.model.outcome import Outcome
from slurm_dispatch.records import building, decide, fold, verdict
from slurm_dispatch.records import state as states
from slurm_dispatch.records.actions import AppendFact, Cancel
from slurm_dispatch.records.law import NEXT, Event, Phase
from slurm_dispatch.records.observation import Absent, ObjectEnded, SilentNode, Unknown
from slurm_dispatch.slurm.port import Queue
from tests.controller import site_passes, site_port, site_world
from tests.controller.test_model import NIGHTLY_STEPS, _time, run
from tests.controller.test_prefix import test_a_pass_that_dies_before_any_step_is_finished_by_the_next as prefix

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["_time"]

TURNS, EXAMPLES = 5, 400
Patch = pytest.MonkeyPatch
GOES = {
    Event.INTENT: Phase.SUBMITTING, Event.SUBMITTED: Phase.QUEUED, Event.STARTED: Phase.RUNNING,
    Event.END: Phase.ENDED, Event.RESUBMIT: Phase.WAITING, Event.REJECTED: Phase.ENDED, Event.BURNT: Phase.ENDED,
    Event.RELEASE: Phase.WAITING,
}  # fmt: skip
"""Where an event leads that no law allows."""


def no_law(patch: Patch) -> None:
    """The fold takes whatever comes."""

    def move(self: Any, event: Event) -> None:
        after = NEXT.get((self.phase, event)) or GOES.get(event, self.phase)
        self.phase = after
        if after is not Phase.HELD:
            self.holding = self.held = None
        if after not in {Phase.WAITING, Phase.HELD}:
            self.due = None

    real = fold.Folding._intent

    def intent(self: Any, fact: Any, body: Any) -> None:
        self.due = None if body["decision"] is None else states.Due(body["decision"], body["submission"])
        real(self, fact, body)

    patch.setattr(fold.Folding, "_intent", intent)
    patch.setattr(building.Building, "move", move)
    patch.setattr(building.Building, "next_number", lambda self, number: number)
    patch.setattr(building.Building, "is_current", building.Building.known)
    patch.setattr(fold.Folding, "_open", lambda self, number: self.known(number))
    patch.setattr(fold.Folding, "_check_decision", lambda self, body, action: None)


def lost_put_if_absent(patch: Patch) -> None:
    """The record takes a fact of whoever comes second: two decisions, two intents."""
    no_law(patch)

    def append(self: Any, expected: int, kind: str, by: str, body: Any, *, at: float | None = None) -> bool:
        self.owned.world.step(f"append {kind}")
        self.owned.check(kind, body)
        self.put(kind, by, body, at=at)
        return True

    patch.setattr(site_port.Record, "append", append)


def unknown_is_gone(patch: Patch) -> None:
    """An object that the queue does not tell of is taken for ended."""
    real = job.look

    def look(state: Any, view: Any, details: Any) -> Any:
        seen = real(state, view, details)
        if state.object is None or isinstance(view.queue, Queue):
            return seen
        evidence: dict[str, Any] = {"state": None, "by_uid": None}
        over = ObjectEnded(state.current.number, state.object.slurm_job_id, Outcome.LOST, evidence, 0, None)
        return replace(seen, object=over)

    patch.setattr(job, "look", look)


def deciding(patch: Patch, change: Callable[[Any, Any, list[Any]], list[Any]]) -> None:
    """``decide`` with its answer changed, by (state, observation, answer)."""
    real = decide.decide
    patch.setattr(job, "decide", lambda state, seen, *more: change(state, seen, real(state, seen, *more)))


def unknown_says_something(patch: Patch) -> None:
    """Where Slurm does not answer, the job is held."""

    def held(state: Any, seen: Any, found: list[Any]) -> list[Any]:
        blind = isinstance(seen.seen, Unknown) and state.object is not None and state.hold is None
        return [AppendFact("hold", {"reason": "x", "for_s": None})] if blind else found

    deciding(patch, held)


def numbers_begin_again(patch: Patch) -> None:
    """The next number is that of the last submission once more."""
    no_law(patch)
    real = states.State.next_number.fget  # type: ignore[attr-defined]
    patch.setattr(states.State, "next_number", property(lambda self: max(1, real(self) - 1)))


def numbers_fall(patch: Patch) -> None:
    """Each submission but the first has a lower number than the one before."""
    no_law(patch)
    patch.setattr(states.State, "next_number", property(lambda self: max(2, 40 - len(self.submissions))))


def generations_stay(patch: Patch) -> None:
    """A job that supersedes another is of the same generation."""
    real = site_world.spec_of_successor
    patch.setattr(site_world, "spec_of_successor", lambda *about: replace(real(*about), generation=0))


def no_refusals(patch: Patch) -> None:
    """PrologSlurmctld lets everything in: one count starts twice."""
    patch.setattr(site_world.SiteWorld, "_refusal", lambda *_: None)


def two_at_once(patch: Patch) -> None:
    """What runs is submitted a second time."""
    no_law(patch)

    def more(state: Any, seen: Any, found: list[Any]) -> list[Any]:
        return [decide.Submit(state.next_number, (), None)] if state.phase is Phase.RUNNING else found

    deciding(patch, more)


def no_hold_for_shared(patch: Patch) -> None:
    """A shared job comes back like any other."""
    real, law = verdict.applied, fold.Folding._check_decision
    patch.setattr(verdict, "applied", lambda rule, **more: real(rule, **{**more, "shared": False}))

    def check(self: Any, body: Any, action: Any) -> None:
        spec = self.spec
        self.spec = spec if body["action"] == "hold" else replace(spec, shared=False)
        law(self, body, action)
        self.spec = spec

    patch.setattr(fold.Folding, "_check_decision", check)


def no_hold_for_elders(patch: Patch) -> None:
    """What supersedes a shared job begins at once."""
    patch.setattr(fold.Folding, "_took_over", _took_over_at_once(fold.Folding._took_over))


def _took_over_at_once(real: Any) -> Any:
    def took_over(self: Any, fact: Any, body: Any) -> None:
        real(self, fact, {**body, "executions": [], "complete": True})
        if self.phase is Phase.HELD and not self.hold:
            self.phase, self.holding = Phase.WAITING, None

    return took_over


def always_ceased(patch: Patch) -> None:
    """Every question about an execution is answered with ceased."""
    answer = site_passes.CessationAnswer
    patch.setattr(site_passes.Passes, "_cessation", lambda self, attempt, at: answer("ceased", "x", "", at))


def burnt_at_once(patch: Patch) -> None:
    """A number is burnt although accounting or the queue has its object."""
    patch.setattr(settle, "_in_queue", lambda *_: Absent())
    patch.setattr(settle, "_in_accounting", lambda *_, **__: Absent())
    patch.setattr(settle, "_in_notes", lambda *_: Absent())


def impatient(patch: Patch) -> None:
    """An intent is settled without waiting for what is under way."""
    patch.setattr(job, "wait_s", lambda *_: 0.0)


def strays_stay(patch: Patch) -> None:
    """What is not the current object is left alone: two of them live."""

    def no_cancel(_state: Any, _seen: Any, found: list[Any]) -> list[Any]:
        return [it for it in found if not isinstance(it, Cancel)] or [decide.Nothing("x")]

    deciding(patch, no_cancel)


def current_is_cancelled(patch: Patch) -> None:
    """What waits in Slurm is cancelled, and nobody asked for it."""

    def cancel(state: Any, _seen: Any, found: list[Any]) -> list[Any]:
        it = state.object
        return [Cancel(it, state.current.number, "x")] if it and state.phase is Phase.QUEUED else found

    deciding(patch, cancel)


def ids_are_believed(patch: Patch) -> None:
    """Whatever has the id of the current object is taken for it."""
    patch.setattr(ends._Observer, "is_ours", lambda *_: True)


def everybody_is_suspected(patch: Patch) -> None:
    """The node of whatever runs is taken for silent."""
    silent = (SilentNode("n101", 0.0),)
    patch.setattr(site_passes.SiteView, "silent", lambda self, nodes: silent)


def stuck_requeue(patch: Patch) -> None:
    """A requeue counts as done as soon as the count is above the executions that started."""

    def again(state: Any, number: int, detail: Any) -> bool:
        known = [it.epoch.restart for it in state.current.executions if it.started]
        return "PENDING" in detail.states or (bool(known) and detail.restart > max(known))

    patch.setattr(engine.Engine, "_again", staticmethod(again))


def closed_opens(patch: Patch) -> None:
    """A job that is closed is submitted once more."""
    no_law(patch)

    def more(state: Any, _seen: Any, found: list[Any]) -> list[Any]:
        over = state.closed is not None and state.closed.why == "completed" and state.phase is Phase.CLOSED
        return [decide.Submit(state.next_number, (), None)] if over else found

    deciding(patch, more)


def restarts_end_for_good(patch: Patch) -> None:
    """A restart by Slurm is written down as an end for good."""

    def final(_state: Any, _seen: Any, found: list[Any]) -> list[Any]:
        ends_ = [isinstance(it, AppendFact) and it.kind == "end" for it in found]
        return [
            AppendFact("end", {**it.body, "final": True}) if is_end else it
            for it, is_end in zip(found, ends_, strict=True)
        ]

    deciding(patch, final)


def budgets_are_forgotten(patch: Patch) -> None:
    """Nothing counts against a budget."""
    patch.setattr(verdict, "used_of", lambda *_: 0)


def the_helper_is_not_heard(patch: Patch) -> None:
    """What the helper said of an end counts for nothing."""
    patch.setattr(ends, "_helper", lambda _: None)


def decisions_stand_on_more(patch: Patch) -> None:
    """A decision stands on something that no fact says."""

    def other(_state: Any, _seen: Any, found: list[Any]) -> list[Any]:
        return [
            AppendFact("decision", {**it.body, "reason": "so"})
            if isinstance(it, AppendFact) and it.kind == "decision"
            else it
            for it in found
        ]

    deciding(patch, other)


@dataclass(frozen=True)
class Mutant:
    """A fault, the kind of job that shows it, and what the model's own assertion says of it.

    :param slow: it takes more than a few seconds to come up, and is left to ``make nightly``.
    """

    fault: Callable[[Patch], None]
    kind: str
    says: str
    slow: bool = False


MUTANTS = (
    # Epochs only rise, and no two executions share one.
    Mutant(generations_stay, "plain", "two executions share epoch|does not rise"),
    Mutant(no_refusals, "plain", "two executions share epoch"),
    Mutant(numbers_fall, "plain", "numbers only rise"),
    # Never two current objects.
    Mutant(two_at_once, "plain", "is current, and another is made"),
    Mutant(lost_put_if_absent, "plain", "is current, and another is made|two decisions about one end", slow=True),
    Mutant(strays_stay, "plain", "left alive"),
    # No N used twice.
    Mutant(numbers_begin_again, "plain", "was used twice"),
    Mutant(burnt_at_once, "plain", "was burnt, and it is Slurm job"),
    Mutant(impatient, "plain", "was burnt after"),
    # Unknown changes nothing.
    Mutant(unknown_says_something, "plain", "nothing was known, and it said"),
    Mutant(unknown_is_gone, "plain", "is said to have ended, and never did"),
    # A shared job never has two executions without a release or a ceased answer for each.
    Mutant(no_hold_for_shared, "shared", "an execution of a shared job beside"),
    Mutant(no_hold_for_elders, "shared", "an execution of a shared job beside", slow=True),
    Mutant(always_ceased, "shared", "called ceased, and it lives"),
    # A finished job never runs again.
    Mutant(closed_opens, "plain", "a closed job was submitted"),
    # And the rest of what the model says.
    Mutant(current_is_cancelled, "plain", "nobody asked for it"),
    Mutant(ids_are_believed, "plain", "which is another's|never did", slow=True),
    Mutant(everybody_is_suspected, "suspects", "was suspected that answers"),
    Mutant(stuck_requeue, "rules", "not at rest: requeuing", slow=True),
    Mutant(restarts_end_for_good, "plain", "never did"),
    Mutant(budgets_are_forgotten, "budgets", "times back after"),
    Mutant(the_helper_is_not_heard, "budgets", "the helper said"),
    Mutant(decisions_stand_on_more, "plain", "does not come out again"),
)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda it: it.fault.__name__)
def test_the_model_sees(mutant: Mutant, monkeypatch: Patch) -> None:
    if mutant.slow and not NIGHTLY_STEPS:
        pytest.skip("make nightly")
    mutant.fault(monkeypatch)
    with pytest.raises(AssertionError, match=mutant.says):
        _turns(mutant.kind, TURNS * (5 if mutant.slow else 1))


def _turns(kind: str, turns: int) -> None:
    """It ends at the first example that shows a fault: which one that is moves with what draws them."""
    for turn in range(turns):
        run(kind, random.Random(f"{kind} {turn}").getrandbits(64), EXAMPLES, phases=(Stage.generate,))


def acts_before_its_intent(patch: Patch) -> None:
    """sbatch is called, and the intent is written after it."""
    real = job.submit_once

    def submit(record: Any, port: Any, intent: Any, call: Any, **more: Any) -> Any:
        answers: list[Any] = []

        def submitted(_call: Any, accepted: Any) -> Any:
            for _ in answers:
                accepted(answers[0])
            return answers[0]

        answers.append(port.submit(call))
        port_after = type("After", (), {"submit": staticmethod(submitted)})
        return real(record, port_after, intent, call, **more)

    patch.setattr(job, "submit_once", submit)


def test_a_pass_that_acts_before_it_writes_does_not_come_to_the_same_end(monkeypatch: Patch) -> None:
    """The interrupted-prefix property is seen to fail."""
    acts_before_its_intent(monkeypatch)
    with pytest.raises(AssertionError, match=r"died before step|was used twice"):
        prefix("plain", "preempted", "")
