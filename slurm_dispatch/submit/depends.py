"""Dependencies on jobs of ours: what a person is told of one, and what a later submission repeats of it.

Slurm knows a dependency by a Slurm job id, which a job of ours can leave behind. The records tell which job had the
id, and what became of it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurm_dispatch.errors import DispatchError, show
from slurm_dispatch.model.outcome import Outcome
from slurm_dispatch.records.fold import fold
from slurm_dispatch.slurm.dependency import conditions, is_met, mentioned, repeated
from slurm_dispatch.state.read import own_jobs, read_jobs

if TYPE_CHECKING:
    from collections.abc import Collection

    from slurm_dispatch.records.state import State
    from slurm_dispatch.state.folder import StateFolder


@dataclass(frozen=True, slots=True)
class Earlier:
    """The job of the caller's that had a Slurm job id.

    :param now: its current Slurm job id; ``None`` while it has none.
    :param last: the one that it had last.
    :param closed: why it was closed; ``None`` while it is open.
    """

    key: str
    name: str
    now: int | None
    last: int
    closed: str | None


def earlier(folder: StateFolder, ids: Collection[int], *, deadline_s: float) -> dict[int, Earlier]:
    """Which of the caller's jobs had these Slurm job ids; a record that cannot be read is passed over.

    Of two that had one id (Slurm gives ids out again) the one that was made later.
    """
    found: dict[int, tuple[float, Earlier]] = {}
    for key, facts in read_jobs(folder, own_jobs(folder, os.geteuid()), deadline_s=deadline_s).items():
        try:
            state = fold([] if isinstance(facts, DispatchError) else facts)
        except DispatchError:
            continue
        for submission in state.submissions:
            number = 0 if submission.object is None else submission.object.slurm_job_id
            if number in ids and found.get(number, (0.0,))[0] <= state.created:
                now = None if state.object is None else state.object.slurm_job_id
                closed = None if state.closed is None else state.closed.why
                last = [it.object.slurm_job_id for it in state.submissions if it.object is not None][-1]
                found[number] = (state.created, Earlier(key, state.spec.name, now, last, closed))
    return {number: it for number, (_, it) in found.items()}


def notes(text: str, found: dict[int, Earlier]) -> list[str]:
    """What a person should know of a dependency on jobs of his own before the job that has it is submitted."""
    lines = [
        _note(condition, number, found[number])
        for condition, ids in conditions(text)
        for number in sorted(ids & found.keys())
    ]
    return [line for line in lines if line]


def _note(condition: str, number: int, it: Earlier) -> str:
    what = f"{condition}:{number}"
    job = f"job {it.key} ({show(it.name)})"
    if it.closed is not None and number != it.last:
        if not is_met(condition, ""):
            return f"{what} can never be met: {job} went on as Slurm job {it.last}, and is closed ({it.closed})"
        return ""
    if it.closed is not None:
        if not is_met(condition, it.closed):
            return f"{what} can never be met: Slurm job {number} was of {job}, which is closed ({it.closed})"
        return ""
    if it.now is None:
        return f"{what}: Slurm job {number} is over, and {job} is to be submitted again under another id"
    if it.now != number:
        return f"{what}: Slurm job {number} is over, {job} goes on as Slurm job {it.now}: depend on that one"
    if condition in {"afterany", "afternotok"}:
        return (
            f"{what} is met by the first end of Slurm job {number}, even if {job} is then submitted again; "
            "afterok waits for the job"
        )
    return ""


def unmet(state: State) -> bool:
    """No submission of the job ever got as far as Slurm's having met its dependencies, as far as is known."""
    for submission in state.submissions:
        if submission.refusals or any(execution.started for execution in submission.executions):
            return False
        if any(end.outcome is not Outcome.CANCELLED for end in submission.ends):
            return False
    return True


def waits(state: State) -> str:
    """What the next submission of ``state`` depends on, as it was given; empty where that was met."""
    return state.spec.dependency if state.spec.dependency and unmet(state) else ""


def repeat(folder: StateFolder, state: State, *, deadline_s: float) -> str:
    """The same with the Slurm job ids of now, and without what was met meanwhile."""
    text = waits(state)
    found = earlier(folder, mentioned(text), deadline_s=deadline_s)
    objects = {number: it.now for number, it in found.items() if it.now is not None}
    return repeated(text, objects, {number: it.closed for number, it in found.items() if it.closed is not None})


__all__ = ["Earlier", "earlier", "notes", "repeat", "unmet", "waits"]
