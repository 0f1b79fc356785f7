"""The current object of a job: alive, ended with an outcome, or unknown.

The law of this module: *only Slurm's word, or the helper's, ends an execution.* An object that is not listed has
not ended; an object whose id was given to another job is not listed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TYPE_CHECKING

from slurm_dispatch.model.outcome import Outcome
from slurm_dispatch.records.observation import ObjectAlive, ObjectEnded, Unknown
from slurm_dispatch.slurm import port
from slurm_dispatch.slurm.classify import HelperEnd, classify

if TYPE_CHECKING:
    from slurm_dispatch.controller.view import Details, View
    from slurm_dispatch.records.state import Execution, SlurmObject, State, Submission
    from slurm_dispatch.records.spec import Spec
    from slurm_dispatch.state.notes import Note
    from collections.abc import Sequence

SKEW_S = 300.0
"""How far the clocks of the submitting host and of slurmctld may differ."""
LOST_AFTER_S = 600.0
"""An end note that no source explains for this long is ``lost``; accounting is written within seconds."""
WAITING = frozenset({
    "PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD",
    "POWER_UP_NODE", "EXPEDITING",
})
ALIVE = WAITING | {"RUNNING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING", "STAGE_OUT"}
"""States of an object that has not ended. COMPLETING is none of them: it hides what the object is."""
OVER = frozenset({
    "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "BOOT_FAIL", "PREEMPTED", "OUT_OF_MEMORY",
    "DEADLINE", "LAUNCH_FAILED", "RECONFIG_FAIL", "REVOKED",
})
"""Base states of an object that ended."""


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen of the current object.

    :param soon: it is ending, and the answer is a matter of moments: worth asking again before the next tick.
    :param running: it runs, by the queue: (restart count, start time, nodes).
    """

    object: ObjectAlive | ObjectEnded | Unknown
    soon: bool = False
    running: tuple[int, int, str] | None = None


def look(state: State, view: View, details: Details) -> Look:
    """Observe the current object of ``state``; one that is none gives unknown."""
    submission, current = state.current, state.object
    if submission is None or current is None:
        return Look(Unknown("no object"))
    if isinstance(view.queue, port.Unknown):
        return Look(Unknown(view.queue.why))
    if view.cluster and current.cluster != view.cluster:
        return Look(Unknown(f"the object is on cluster {current.cluster}, and this tick asks {view.cluster}"))
    if submission.at > view.at:
        return Look(Unknown("submitted after the queue was asked"))
    queued = view.of_id(current.slurm_job_id)
    if queued is None or not is_ours(queued, state.spec, submission, details):
        return _gone(state.spec, submission, current, view, details)
    if queued.state in ALIVE:
        return _living(state.spec, submission, current, queued, details)
    return _ending(state.spec, submission, current, view, details)


def is_ours(queued: port.QueueJob, spec: Spec, submission: Submission, details: Details) -> bool:
    """The object of this id is still the one that the submission made, and not a later job of the same id.

    The word says so. Where its owner edited it away, the time of submission does; an id that began again at 1
    after a crash of slurmctld can belong to another job of the same owner within a minute, so another job's
    word always counts against it.
    """
    if queued.uid != spec.uid:
        return False
    if queued.word is not None:
        return queued.word == spec.word(submission.number)
    if in_time(queued.submit_time, submission):
        return True
    # A requeue gives an object a new time of submission, and only a requeue raises the count.
    answer = details.detail(queued.slurm_job_id)
    return isinstance(answer, port.Present) and bool(answer.value.restart)


def _living(
    spec: Spec, submission: Submission, current: SlurmObject, queued: port.QueueJob, details: Details
) -> Look:
    """Alive by the queue. The restart count is asked for only where the record shows that it can have risen."""
    pending = queued.state in WAITING
    started = [execution for execution in submission.executions if execution.started]
    for execution in started:
        if not pending and execution.start_time is not None and execution.start_time == queued.start_time:
            return Look(_alive(spec, submission, current, details, execution.epoch.restart, pending=False))
    if pending and not started and not submission.refusals:
        return Look(ObjectAlive(None, pending=True))
    answer = details.detail(current.slurm_job_id)
    if not isinstance(answer, port.Present) or answer.value.restart is None:
        return Look(ObjectAlive(None, pending))
    restart = answer.value.restart
    running = None
    if queued.state == "RUNNING" and queued.start_time is not None and queued.start_time == answer.value.start_time:
        running = (restart, queued.start_time, queued.nodes)
    return Look(_alive(spec, submission, current, details, restart, pending=pending), running=running)


def in_time(submit_time: int | None, submission: Submission) -> bool:
    """An object that was submitted at this time can be the submission's."""
    return submit_time is None or submission.at - SKEW_S <= submit_time <= submission.deadline + SKEW_S


def _alive(
    spec: Spec, submission: Submission, current: SlurmObject, details: Details, restart: int, *, pending: bool
) -> ObjectAlive:
    """The object has not ended for good; an execution before the present one has, where the count has risen."""
    over = {end.restart for end in submission.ends}
    before = [execution for execution in submission.executions
              if execution.started and execution.epoch.restart < restart and execution.epoch.restart not in over]
    if not before:
        return ObjectAlive(restart, pending)
    execution = before[0]
    row = _row_of(_rows(spec, submission, current, details), execution)
    if row is None:
        if details.has_accounting is not False:
            return ObjectAlive(restart, pending)  # asked again by the next tick
        outcome, evidence = Outcome.LOST, _evidence(None, "restart count")
    else:
        verdict = classify(row, _helper(execution), started=True)
        outcome, evidence = verdict.outcome or Outcome.LOST, _evidence(row, row.source)
    previous = ObjectEnded(outcome, evidence, execution.epoch.restart, execution.start_time, final=False)
    return ObjectAlive(restart, pending, previous)


def _ending(
    spec: Spec, submission: Submission, current: SlurmObject, view: View, details: Details
) -> Look:
    answer = details.detail(current.slurm_job_id)
    if isinstance(answer, port.Unknown):
        return Look(Unknown(answer.why), soon=True)
    if isinstance(answer, port.Absent):
        return _gone(spec, submission, current, view, details)
    detail = answer.value
    if detail.states & ALIVE:
        restart = detail.restart if detail.restart is not None else 0
        pending = bool(detail.states & WAITING)
        return Look(_alive(spec, submission, current, details, restart, pending=pending))
    row: port.JobDetail | None = None
    if not detail.states & OVER or "CANCELLED" in detail.states:
        # Text shows COMPLETING alone, and only accounting knows who cancelled it.
        rows = _rows(spec, submission, current, details)
        row = _row_of(rows, _execution(submission, detail)) or (rows[-1] if rows else None)
        if row is not None and not row.states & OVER:
            row = None
        if row is None and details.has_accounting is not False and view.at - (detail.end_time or view.at) < LOST_AFTER_S:
            return Look(Unknown("accounting does not tell yet how it ended"), soon=True)
    return _verdict(submission, detail, row)


def _gone(spec: Spec, submission: Submission, current: SlurmObject, view: View, details: Details) -> Look:
    """slurmctld no longer has it: accounting decides, or an old end note that nothing explains."""
    rows = _rows(spec, submission, current, details)
    if rows is None and details.has_accounting is not False:
        return Look(Unknown("not in the queue, and accounting does not answer"))
    if rows and rows[-1].states & OVER:
        return _verdict(submission, rows[-1], rows[-1])
    ended = [note for note in view.notes_of(spec.job) if _is_end(note, spec, submission, current)]
    if ended and view.at - min(note.at for note in ended) >= LOST_AFTER_S:
        evidence = _evidence(None, "end note")
        return Look(ObjectEnded(Outcome.LOST, evidence, None, ended[-1].body.get("start_time")))
    why = "not in the queue" if not rows else f"not in the queue, and {'/'.join(sorted(rows[-1].states))} in accounting"
    return Look(Unknown(why), soon=bool(ended))


def _verdict(submission: Submission, detail: port.JobDetail, row: port.JobDetail | None) -> Look:
    execution = _execution(submission, detail)
    told = detail if detail.states & OVER or row is None else row
    if row is not None and row.by_uid is not None:
        told = replace(told, by_uid=row.by_uid)
    verdict = classify(told, _helper(execution), started=_started(submission, execution, detail))
    outcome = verdict.outcome
    if outcome is None:
        return Look(Unknown(verdict.why), soon=True)
    if outcome is Outcome.CANCELLED and _was_refused(submission):
        outcome = Outcome.LAUNCH_FAILED
    restart = detail.restart if execution is None else execution.epoch.restart
    return Look(ObjectEnded(outcome, _evidence(told, told.source), restart, detail.start_time, final=True))


def _was_refused(submission: Submission) -> bool:
    """The last that is known of the object is that PrologSlurmctld did not let it start.

    Slurm shows it as cancelled, by root or, after the tick took it out of the queue, by its owner.
    """
    if not submission.refusals:
        return False
    refused = max(refusal.restart for refusal in submission.refusals)
    return all(execution.epoch.restart <= refused for execution in submission.executions if execution.started)


def _rows(
    spec: Spec, submission: Submission, current: SlurmObject, details: Details
) -> list[port.JobDetail] | None:
    """The rows of this object, oldest first: of its owner, and not of an older or later job of the same id."""
    answer = details.rows(current.slurm_job_id)
    if isinstance(answer, port.Unknown):
        return None
    if isinstance(answer, port.Absent):
        return []
    word = spec.word(submission.number)
    rows = [row for row in answer.value
            if row.uid == spec.uid and (row.word is None or row.word == word)
            and (row.submit_time is None or row.submit_time >= submission.at - SKEW_S)]
    # The first row of an object is in time; later rows are its requeues, unless the count began again.
    mine: list[port.JobDetail] = []
    for row in sorted(rows, key=lambda row: (row.submit_time or 0, row.start_time or 0)):
        if mine or in_time(row.submit_time, submission) or row.word == word:
            if mine and row.restart == 0 and row.word is None and not in_time(row.submit_time, submission):
                break
            mine.append(row)
    return mine


def _row_of(rows: Sequence[port.JobDetail] | None, execution: Execution | None) -> port.JobDetail | None:
    if not rows or execution is None:
        return None
    for row in rows:
        if execution.start_time is not None and row.start_time == int(execution.start_time):
            return row
    for row in rows:
        if row.restart is not None and row.restart == execution.epoch.restart:
            return row
    return None


def _execution(submission: Submission, detail: port.JobDetail) -> Execution | None:
    """The execution that ``detail`` is about: of its start time, else of its restart count, else the latest."""
    for execution in reversed(submission.executions):
        if execution.start_time is not None and execution.start_time == detail.start_time:
            return execution
    for execution in reversed(submission.executions):
        if detail.restart is not None and execution.epoch.restart == detail.restart:
            return execution
    if detail.restart is None and submission.executions:
        return submission.executions[-1]
    return None


def _started(submission: Submission, execution: Execution | None, detail: port.JobDetail) -> bool:
    """The batch script began: a start note that was not followed by a refusal."""
    if execution is None or not execution.started:
        return False
    return all(refusal.restart != execution.epoch.restart or
               (refusal.start_time is not None and refusal.start_time != detail.start_time)
               for refusal in submission.refusals)


def _helper(execution: Execution | None) -> HelperEnd | None:
    if execution is None or execution.ended is None:
        return None
    ended = execution.ended
    return HelperEnd(ended.status, ended.signal, ended.outcome)


def _is_end(note: Note, spec: Spec, submission: Submission, current: SlurmObject) -> bool:
    return (note.kind == "end" and note.word == spec.word(submission.number)
            and note.slurm_job_id == current.slurm_job_id and note.body.get("uid") == spec.uid)


def _evidence(detail: port.JobDetail | None, source: str) -> dict[str, Any]:
    if detail is None:
        return {"state": None, "flags": [], "reason": "", "exit_code": None, "signal": None, "by_uid": None,
                "source": source}
    base = sorted(detail.states & OVER) or sorted(detail.states)
    return {"state": base[0], "flags": sorted(detail.states), "reason": detail.reason, "exit_code": detail.exit_status,
            "signal": detail.exit_signal, "by_uid": detail.by_uid, "source": source}


__all__ = ["ALIVE", "LOST_AFTER_S", "OVER", "SKEW_S", "WAITING", "Look", "in_time", "is_ours", "look"]
