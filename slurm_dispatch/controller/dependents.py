"""The owner's jobs that depend on an object which is replaced or requeued (C083).

Slurm ends the wait of a dependent with the object that it names: ``afterok`` can never be met any more once that has
failed, and stays so even where the same object is requeued and completes (seen on 24.11). So, before a job is
submitted again, one question tells whether anything of the owner's depends on it; if so, that is a fact, and once
the new object is there the dependents are changed to wait for it. What cannot be changed is in the record, and its
owner is told.

Runs with the owner's rights: jobs of others are not looked for, and could not be changed.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from slurm_dispatch.controller import elders
from slurm_dispatch.errors import DispatchError, one_line
from slurm_dispatch.records.facts import DEPENDENTS_MAX, LEFT_MAX
from slurm_dispatch.records.fold import fold
from slurm_dispatch.records.places import landing
from slurm_dispatch.records.verdict import NEVER
from slurm_dispatch.slurm.dependency import mentioned, moved
from slurm_dispatch.slurm.port import Unknown
from slurm_dispatch.state.as_user import OWNER_TIMEOUT_S
from slurm_dispatch.state.folder import StateFolder
from slurm_dispatch.submit.depends import repeat, waits

if TYPE_CHECKING:
    from slurm_dispatch.controller.view import Details, View
    from slurm_dispatch.records.actions import Repoint
    from slurm_dispatch.records.state import State
    from slurm_dispatch.slurm.port import Dependent
    from slurm_dispatch.state.jobs import Record


AT_ONCE = 200
"""Calls of scontrol for one job in one pass: each is one more in a child that has a deadline."""


class Dependents:
    """The dependents of one job in one pass."""

    def __init__(self, record: Record, view: View, details: Details) -> None:
        self._record = record
        self._view = view
        self._details = details
        self._tried: set[int] = set()

    def before(self, state: State) -> dict[str, Any] | None:
        """The body of a fact ``dependents``, to be appended before the job is submitted again or requeued; ``None``:
        nothing depends on it, or the record says already that something does."""
        place = self._latest_place(state)
        names = self._objects(state, place)
        if not names or state.dependents:
            return None
        answer = self._at(place).dependents(state.spec.uid)
        if isinstance(answer, Unknown):
            return {"jobs": None}
        found = [it.slurm_job_id for it in answer if _waits_for(it, names, state)]
        return {"jobs": sorted(found)[:DEPENDENTS_MAX]} if found else None

    def repeated(self, state: State) -> str:
        """What the next submission still depends on; other records are read only if it depends on something."""
        if not waits(state):
            return ""
        folder = StateFolder(os.path.dirname(os.path.dirname(self._record.folder)))
        return repeat(folder, state, deadline_s=OWNER_TIMEOUT_S)

    def repoint(self, state: State, action: Repoint) -> tuple[dict[str, Any] | None, str]:
        """Change the dependents to wait for the object of ``action``.

        :returns: (body of the fact ``repointed``, or ``None`` where it could not be done now; why not).
        """
        new = action.object.slurm_job_id
        if new in self._tried:
            return None, ""
        self._tried.add(new)
        place = self._view.place(state.spec, action.object)
        answer = self._at(place).port.dependents(state.spec.uid)
        if isinstance(answer, Unknown):
            return None, f"whether jobs depend on it is not known: {answer.why}"
        old = self._objects(state, place) - {new}
        done: list[int] = []
        left: list[dict[str, Any]] = []
        for it in answer:
            text = moved(it.text, old, new)
            if text is None or it.slurm_job_id == new or not _waits_for(it, old | {new}, state):
                continue
            why = self._change(it, place, text)
            if why == "" and len(done) == AT_ONCE - 1:
                return None, f"{AT_ONCE} jobs that depended on it were re-pointed, and the next pass does the others"
            if why is None:
                return None, f"cannot re-point Slurm job {it.slurm_job_id}: Slurm does not answer"
            if why:
                left.append({"slurm_job_id": it.slurm_job_id, "why": one_line(why)[:200]})
            else:
                done.append(it.slurm_job_id)
        away = self._elsewhere(state, place)
        if isinstance(away, Unknown):
            return None, f"whether jobs on another cluster depend on it is not known: {away.why}"
        left += away
        if len(left) > LEFT_MAX:
            left[LEFT_MAX - 1]["why"] += f"; and {len(left) - LEFT_MAX} more"
        return {"slurm_job_id": new, "moved": sorted(done)[:DEPENDENTS_MAX], "left": left[:LEFT_MAX]}, ""

    def _elsewhere(self, state: State, now: str) -> list[dict[str, Any]] | Unknown:
        """Those that depend on objects that the job had elsewhere than it is ``now``: none of them can be moved."""
        had = {self._view.place(state.spec, it.object) for it in state.submissions if it.object is not None}
        left: list[dict[str, Any]] = []
        for place in sorted(had - {now}) if state.dependents else ():
            answer = self._at(place).port.dependents(state.spec.uid)
            if isinstance(answer, Unknown):
                return answer
            names, why = self._objects(state, place), "the job went on on another cluster"
            left += [{"slurm_job_id": it.slurm_job_id, "why": why} for it in answer if _waits_for(it, names, state)]
        return left

    def _change(self, it: Dependent, place: str, text: str) -> str | None:
        """Why it cannot be changed, empty if it was; ``None``: nobody knows."""
        if it.state != "PENDING":
            return "it is cancelled, since what it waited for had ended"
        if it.array:
            number = it.slurm_job_id
            return f"it is an array, which its owner can change: scontrol update JobId={number} Dependency={text}"
        try:
            answer = self._details.port.update(it.slurm_job_id, place or None, {"Dependency": text})
        except ValueError as error:
            return str(error)
        if answer.done:
            return ""
        return answer.why if answer.refused else None

    def _latest_place(self, state: State) -> str:
        """Where its last object was; for a job without one, where it goes."""
        had = [it.object for it in state.submissions if it.object is not None]
        return self._view.place(state.spec, had[-1]) if had else landing(state.spec, self._view.cluster)[0]

    def _at(self, place: str) -> Details:
        """Slurm's details of that cluster: dependents are jobs of the same one."""
        return self._details.at(place, self._view)

    def _objects(self, state: State, place: str) -> frozenset[int]:
        """Every Slurm job that this job has had on that cluster, also as one that it superseded, and that is nobody
        else's now."""
        found = self._ids(state, place)
        key, seen = state.spec.supersedes, 0
        while key is not None and seen < elders.CHAIN_MAX:
            try:
                elder = fold(elders.record_of(self._record, key).read())
            except DispatchError:
                break
            if elder.spec.uid != state.spec.uid:
                break
            found |= self._ids(elder, place) - ({state.spec.keep} if state.spec.keep is not None else set())
            key, seen = elder.spec.supersedes, seen + 1
        return frozenset(number for number in found if not self._is_anothers(state, place, number))

    def _ids(self, state: State, place: str) -> set[int]:
        found = [it.object for it in state.submissions if it.object is not None]
        return {it.slurm_job_id for it in found if self._view.place(state.spec, it) == place}

    def _is_anothers(self, state: State, place: str, number: int) -> bool:
        queued = self._view.of(place).of_id(number)
        if queued is None:
            return False
        keys = {state.spec.job, state.spec.supersedes}
        return queued.uid != state.spec.uid or (queued.word is not None and queued.word.job not in keys)


def _waits_for(it: Dependent, names: frozenset[int], state: State) -> bool:
    """It depends on one of these, and was not left before."""
    if it.uid != state.spec.uid or it.slurm_job_id in state.stranded or not mentioned(it.text) & names:
        return False
    return it.state == "PENDING" or it.reason == NEVER


__all__ = ["Dependents"]
