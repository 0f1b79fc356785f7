"""Older executions: those of a superseded job, and those that nobody has said have ceased. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurm_dispatch.records.observation import ElderClosed
from slurm_dispatch.records.state import ElderExecution

if TYPE_CHECKING:
    from slurm_dispatch.records.state import State


def not_ceased(state: State) -> tuple[ElderExecution, ...]:
    """Every execution of the job and of its elders that has started and has no answer ``ceased``, oldest first."""
    own = tuple(
        ElderExecution(
            execution.attempt,
            execution.slurm_job_id,
            state.spec.cluster if submission.object is None else submission.object.cluster,
            execution.nodes,
            execution.start_time,
        )
        for submission in state.submissions
        for execution in submission.executions
        if execution.started and execution.slurm_job_id is not None
    )
    return tuple(it for it in (*state.elders, *own) if not has_ceased(state, it.attempt))


def has_ceased(state: State, attempt: str) -> bool:
    """Whether ``ceased`` was answered for it."""
    answer = state.cessation.get(attempt)
    return answer is not None and answer.answer == "ceased"


def elder_closed(elder: State, *, shared: bool) -> ElderClosed | None:
    """What a job that supersedes ``elder`` sees of it; ``None`` while it is open.

    :param shared: the job that supersedes it has a shared checkpoint, so that nothing may run beside it.
    """
    if elder.closed is None:
        return None
    # An isolated job that itself still waited for a shared elder hands that on.
    waits = elder.spec.shared or (elder.current is None and (bool(elder.elders) or elder.spec.elders_shared))
    if not (waits or shared):
        return ElderClosed(elder.closed.seq, elder.closed.by_job)
    complete = elder.finished and not elder.unseen and (elder.took_over is None or elder.took_over.complete)
    return ElderClosed(elder.closed.seq, elder.closed.by_job, waits, not_ceased(elder), complete)


__all__ = ["elder_closed", "has_ceased", "not_ceased"]
