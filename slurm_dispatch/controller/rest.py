"""Whether a job is at rest: its pass found nothing to do, and nothing will be until something that ticks see changes.

The law of this module: *where it is not certain, the job is not at rest*: it is visited by every tick. Runs with the
owner's rights, at the end of a job's pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurm_dispatch.controller.ends import ALIVE
from slurm_dispatch.controller.index import CLOCK, SILENT, WORK
from slurm_dispatch.controller.settle import KEEP_START_S
from slurm_dispatch.records.actions import Nothing
from slurm_dispatch.records.fold_holds import BY_THE_SITE
from slurm_dispatch.records.law import Phase
from slurm_dispatch.records.observation import ObjectAlive
from slurm_dispatch.records.places import places

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slurm_dispatch.controller.view import View
    from slurm_dispatch.records.actions import Action
    from slurm_dispatch.records.observation import Observation
    from slurm_dispatch.records.state import State

_KEPT = frozenset({"start", "refuse"})
"""Notes that stay while the job is open, and say nothing more once they were read."""


def needs(state: State, seen: Observation, actions: Sequence[Action], view: View) -> str:
    """What must stay so for the job to have nothing to do, beside its record, its lines of the queue and its notes.

    :param actions: all that was decided in the end.
    :returns: :data:`~slurm_dispatch.controller.index.WORK` where it is not at rest.
    """
    asked = places(state, view.cluster, view.at)
    if not all(isinstance(action, Nothing) for action in actions) or not all(view.of(it).told for it in asked):
        return WORK
    if state.elder is not None or any(note.kind not in _KEPT for note in view.notes_of(state.spec.job)):
        return WORK
    if any(_has_stray(state, view, place) for place in asked):
        return WORK
    if state.phase is Phase.CLOSED:
        return "" if state.finished else WORK
    if state.phase is Phase.WAITING:
        due = state.due
        return "" if due is not None and due.not_before is not None and state.request is None else WORK
    if state.phase is Phase.HELD:
        return _held(state, seen)
    if state.phase in {Phase.QUEUED, Phase.RUNNING}:
        return _in_slurm(state, seen)
    return WORK


def _has_stray(state: State, view: View, place: str) -> bool:
    """A living object of the job is there that is not the current one: a stray, or one that may become one."""
    current = state.object
    own = None if current is None or view.place(state.spec, current) != place else current.slurm_job_id
    return any(
        job.uid == state.spec.uid and job.state in ALIVE and job.slurm_job_id != own
        for job in view.of(place).of_key(state.spec.job)
    )


def due(state: State, view: View, wanted: float | None) -> float | None:
    """When there is something to do even if nothing changes (Unix seconds).

    :param wanted: what the decision says.
    """
    if state.closed is None or not view.notes_of(state.spec.job):
        return wanted
    return state.closed.at + KEEP_START_S + 1.0


def _held(state: State, seen: Observation) -> str:
    """A hold that a person ends, or its length."""
    holding, clock = state.holding, seen.clock_ran
    if holding is None or holding.why in BY_THE_SITE or holding.ceased or clock is None:
        return WORK
    return WORK if state.request is not None else CLOCK + clock.id


def _in_slurm(state: State, seen: Observation) -> str:
    """The object is in the queue, and all that the queue shows of it is in the record."""
    current, it = state.current, seen.object
    if current is None or not isinstance(it, ObjectAlive) or it.previous is not None or state.request is not None:
        return WORK
    if it.pending != (state.phase is Phase.QUEUED):
        return WORK
    started = [execution for execution in current.executions if execution.started]
    if it.restart is None:
        return "" if it.pending and not started and not current.refusals else WORK
    over = {end.restart for end in current.ends}
    if any(each.epoch.restart < it.restart and each.epoch.restart not in over for each in started):
        return WORK
    if it.pending:
        return ""
    if not any(each.epoch.restart == it.restart for each in started):
        return WORK
    return SILENT if state.spec.suspect_s is not None and not state.spec.shared else ""


__all__ = ["due", "needs"]
