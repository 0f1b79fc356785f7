"""The model sees what it is there for: each of these faults, put into the product, makes it fail.

Part of ``make nightly``; a fault that the model no longer finds is a hole in the model.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import Phase as Stage

from slurm_dispatch.controller import engine, job, settle
from slurm_dispatch.model.outcome import Outcome
from slurm_dispatch.records import decide, fold
from slurm_dispatch.records import state as states
from slurm_dispatch.records.actions import AppendFact, Cancel
from slurm_dispatch.records.observation import Absent, ObjectEnded, SilentNode
from slurm_dispatch.slurm.port import Queue
from tests.controller import site_port, site_world
from tests.controller.test_model import NIGHTLY_STEPS, _time, run

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["_time"]

EXAMPLES = 400
Patch = pytest.MonkeyPatch


def lost_put_if_absent(patch: Patch) -> None:
    """The record takes a fact of whoever comes second: two decisions, two intents."""

    def append(self: Any, expected: int, kind: str, by: str, body: Any, *, at: float | None = None) -> bool:
        self.world.step(f"append {kind}")
        self.world.check(kind, body)
        self.world.person(((kind, body),))
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


def numbers_begin_again(patch: Patch) -> None:
    """The next number is that of the last submission once more."""
    real = states.State.next_number.fget  # type: ignore[attr-defined]
    patch.setattr(states.State, "next_number", property(lambda self: max(1, real(self) - 1)))


def no_refusals(patch: Patch) -> None:
    """PrologSlurmctld lets everything in: one count starts twice, a shared job beside itself."""
    patch.setattr(site_world.SiteWorld, "_refusal", lambda *_: None)


def no_hold_for_shared(patch: Patch) -> None:
    """A shared job comes back like any other."""
    real = fold.fold

    def unshared(facts: Any) -> Any:
        state = real(facts)
        return replace(state, spec=replace(state.spec, shared=False)) if state.phase is states.Phase.ENDED else state

    patch.setattr(job, "fold", unshared)


def always_ceased(patch: Patch) -> None:
    """Every question about an execution is answered with ceased."""
    answer = site_world.CessationAnswer
    patch.setattr(site_world.SiteWorld, "_cessation", lambda self, attempt, at: answer("ceased", "x", "", at))


def burnt_at_once(patch: Patch) -> None:
    """A number is burnt although accounting or the queue has its object."""
    patch.setattr(settle, "_in_queue", lambda *_: Absent())
    patch.setattr(settle, "_in_accounting", lambda *_: Absent())
    patch.setattr(settle, "_in_notes", lambda *_: Absent())


def strays_stay(patch: Patch) -> None:
    """What is not the current object is left alone: two of them live."""
    real = decide.decide

    def no_cancel(*about: Any) -> Any:
        found = [it for it in real(*about) if not isinstance(it, Cancel)]
        return found or [decide.Nothing("x")]

    patch.setattr(job, "decide", no_cancel)


def everybody_is_suspected(patch: Patch) -> None:
    """The node of whatever runs is taken for silent."""
    silent = (SilentNode("n101", 0.0),)
    patch.setattr(site_world.SiteView, "silent", lambda self, nodes: silent)


def stuck_requeue(patch: Patch) -> None:
    """A requeue counts as done as soon as the count is above the executions that started."""

    def again(state: Any, number: int, detail: Any) -> bool:
        known = [it.epoch.restart for it in state.current.executions if it.started]
        return "PENDING" in detail.states or (bool(known) and detail.restart > max(known))

    patch.setattr(engine.Engine, "_again", staticmethod(again))


def closed_opens(patch: Patch) -> None:
    """A job that is closed is submitted once more."""
    real = decide.decide

    def more(state: Any, *about: Any) -> Any:
        if state.closed is not None and state.closed.why == "completed":
            return [decide.Submit(state.next_number, (), state.seq)]
        return real(state, *about)

    patch.setattr(job, "decide", more)


def restarts_end_for_good(patch: Patch) -> None:
    """A restart by Slurm is written down as an end for good."""
    real = decide.decide

    def final(*about: Any) -> Any:
        return [
            AppendFact("end", {**it.body, "final": True})
            if isinstance(it, AppendFact) and it.kind == "end"
            else it
            for it in real(*about)
        ]

    patch.setattr(job, "decide", final)


MUTANTS: tuple[Callable[[Patch], None], ...] = (
    lost_put_if_absent,
    unknown_is_gone,
    numbers_begin_again,
    no_refusals,
    no_hold_for_shared,
    always_ceased,
    burnt_at_once,
    strays_stay,
    everybody_is_suspected,
    stuck_requeue,
    closed_opens,
    restarts_end_for_good,
)


@pytest.mark.skipif(not NIGHTLY_STEPS, reason="make nightly")
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda it: it.__name__)
def test_the_model_sees(mutant: Callable[[Patch], None], monkeypatch: Patch) -> None:
    mutant(monkeypatch)
    with pytest.raises(BaseException) as caught:  # noqa: PT011 - an assertion, the law, or several of them
        run(None, EXAMPLES, phases=(Stage.generate,))
    print(f"{mutant.__name__}: {type(caught.value).__name__}: {str(caught.value).splitlines()[0]}")
