"""The decision about a suspected execution and its replacement. Pure.

The law: *the suspected object is cancelled only once its replacement runs; if its nodes answer before, the
replacement is cancelled instead, and the suspected object is current again once the replacement is over and no
replacement has ever started.*
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from slurm_dispatch.model.outcome import Outcome
from slurm_dispatch.records.actions import Action, AppendFact, Cancel, Nothing
from slurm_dispatch.records.law import Phase
from slurm_dispatch.records.observation import ObjectAlive, ObjectEnded, Unknown

if TYPE_CHECKING:
    from slurm_dispatch.records.observation import Observation
    from slurm_dispatch.records.policy import Policy
    from slurm_dispatch.records.state import State, Submission

NODE_LOSS = frozenset({Outcome.NODE_FAIL, Outcome.BOOT_FAIL, Outcome.LOST})
"""Ends of a suspected object that say that the suspicion was right."""


def suspicion(
    state: State, seen: ObjectAlive, observation: Observation, policy: Policy, now: float
) -> list[Action]:
    """The current object runs: whether one of its nodes has been silent for too long."""
    runs: list[Action] = [Nothing("it runs")]
    wait_s, current = state.spec.suspect_s, state.current
    if wait_s is None or state.spec.shared or state.elder is not None or current is None:
        return runs
    execution = current.execution
    if execution is None or execution.slurm_job_id != seen.slurm_job_id:
        return runs
    if state.hold is not None or state.phase is not Phase.RUNNING or isinstance(observation.silent, Unknown):
        return runs
    if not observation.silent or (seen.restart is not None and seen.restart != execution.epoch.restart):
        return runs
    late = [node for node in observation.silent if now - node.since >= wait_s]
    if not late:
        since = min(node.since for node in observation.silent)
        return [Nothing("it runs, and a node of it is silent", since + wait_s)]
    if policy.breaker is not None or policy.maintenance_until is not None or not policy.limits.overlaps:
        return [Nothing("it runs, a node of it is silent, and the site leaves that to Slurm")]
    body = {
        "submission": current.number,
        "slurm_job_id": seen.slurm_job_id,
        "restart": execution.epoch.restart,
        "nodes": sorted(node.name for node in late),
        "since": min(node.since for node in late),
    }
    return [AppendFact("suspected", body)]


def elder(state: State, observation: Observation) -> list[Action]:
    """What is done about the object of ``state.elder``; nothing where there is none."""
    it, seen = state.elder, observation.elder
    if it is None or it.object is None:
        return []
    if not isinstance(seen, Unknown) and (seen.submission, seen.slurm_job_id) != (it.number, it.object.slurm_job_id):
        return []
    if state.phase is Phase.CLOSED or it.suspected is None:
        return _record_end(it, seen)
    if state.request is not None:
        return []  # the job closes, and what is left of it are strays
    if _runs(state, it):
        over = _record_end(it, seen)
        alive = isinstance(seen, ObjectAlive) and not over
        return [Cancel(it.object, it.number, "its replacement runs", stray=True)] if alive else over
    if isinstance(seen, ObjectEnded) and seen.final and seen.outcome in NODE_LOSS:
        return _record_end(it, seen)
    if isinstance(seen, ObjectAlive) and seen.restart is not None and seen.restart > it.suspected.restart:
        # Slurm gave the node up itself and would start it again beside its replacement.
        return [Cancel(it.object, it.number, "it was replaced", stray=True)]
    if _is_outranked(state, it):
        return _record_end(it, seen)
    answers = (isinstance(seen, ObjectAlive) and not seen.pending and observation.elder_answers is True) or (
        isinstance(seen, ObjectEnded) and seen.final  # it came to an end of its own: the nodes were there
    )
    if answers or _is_marked(state):
        return _back(state, it, observation, answers=answers)
    return []


def _back(state: State, it: Submission, observation: Observation, *, answers: bool) -> list[Action]:
    """The nodes answered before the replacement ran."""
    current = state.current
    if state.phase is Phase.QUEUED and current is not None and current.object is not None:
        body = {
            "submission": current.number,
            "slurm_job_id": current.object.slurm_job_id,
            "cluster": current.object.cluster,
        }
        seen = observation.object
        if not isinstance(seen, ObjectAlive) or seen.slurm_job_id != current.object.slurm_job_id:
            return []
        # The mark comes first: it tells this cancel from a person's, which would be final.
        mark: list[Action] = [] if _is_marked(state) else [AppendFact("stray", body)]
        return [*mark, Cancel(current.object, current.number, "the suspected nodes answered")]
    if state.phase in {Phase.ENDED, Phase.WAITING, Phase.HELD}:
        if answers:
            return [AppendFact("cleared", {"submission": it.number, "reason": "the suspected nodes answered"})]
        if state.phase is Phase.ENDED and observation.elder_answers is None:
            return [Nothing("whether the suspected nodes still answer is unknown")]
    return []


def _runs(state: State, it: Submission) -> bool:
    """The replacement has started."""
    current = state.current
    return current is not None and current.number != it.number and current.execution is not None


def _is_outranked(state: State, it: Submission) -> bool:
    """A replacement has started, whatever has become of it: what it saved outranks all that the elder saves.

    One that starts in the second in which it is cancelled ends as well. Then the next one is the replacement.
    """
    return any(each.number > it.number and each.execution is not None for each in state.submissions)


def _is_marked(state: State) -> bool:
    """The replacement is being cancelled because the nodes answered."""
    current = state.current
    if current is None or current.object is None:
        return False
    return (current.number, current.object.slurm_job_id) in state.strays


def _record_end(it: Submission, seen: ObjectAlive | ObjectEnded | Unknown) -> list[Action]:
    if not isinstance(seen, ObjectEnded) or not seen.final:
        return []
    body: dict[str, Any] = {
        "submission": it.number,
        "slurm_job_id": seen.slurm_job_id,
        "restart": seen.restart,
        "start_time": seen.start_time,
        "outcome": seen.outcome.value,
        "evidence": dict(seen.evidence),
        "final": True,
    }
    return [AppendFact("end", body)]


__all__ = ["NODE_LOSS", "elder", "suspicion"]
