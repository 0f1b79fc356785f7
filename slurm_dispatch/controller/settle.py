"""What the notes say about a job, as facts to come, and what every source says about an unsettled intent (P6).

The law of this module: *a note or an object counts for a job only if its word and its owner are the job's, and
a source that was not asked whole has said nothing.*
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from slurm_dispatch.controller.ends import ALIVE, Look
from slurm_dispatch.model.epoch import Epoch
from slurm_dispatch.model.identity import Word, attempt_of
from slurm_dispatch.records.facts import node_key
from slurm_dispatch.records.observation import Absent, Found, Lookups, Off, Seen, Unknown
from slurm_dispatch.slurm import port

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from slurm_dispatch.controller.view import Details, View
    from slurm_dispatch.records.facts import Fact
    from slurm_dispatch.records.state import Execution, State, Submission
    from slurm_dispatch.state.notes import Note

KEEP_START_S = 7 * 86400.0
"""A start note is what PrologSlurmctld tells a second start by: it stays while the job is open, and so long after."""
_FIELDS = {
    "started": ("restart", "epoch", "attempt", "start_time", "nodes"),
    "refused": ("restart", "start_time", "why"),
    "node": ("attempt", "epoch", "node", "boot", "clean", "left", "start_time", "verified"),
}


def incoming(
    state: State, notes: Sequence[Note], look: Look, cluster: str
) -> tuple[tuple[str, Mapping[str, Any]], ...]:
    """The facts that the notes say, and the start that the queue shows where no hook noted it.

    :param cluster: of the queue; the attempt is a hash of it.
    """
    found: list[tuple[str, Mapping[str, Any]]] = []
    found += [_body(note) for note in notes if note.kind in {"start", "refused", "node"} and _counts(state, note)]
    for note in notes:
        if note.kind == "handed" and _counts(state, note):
            found += handed(state, note)
    submission, current = state.current, state.object
    if look.running is not None and submission is not None and current is not None:
        restart, start_time, nodes = look.running
        noted = any(
            kind == "started" and body["slurm_job_id"] == current.slurm_job_id and body["restart"] == restart
            for kind, body in found
        )
        known = any(execution.started and execution.epoch.restart == restart for execution in submission.executions)
        if not noted and not known:
            word = state.spec.word(submission.number)
            found.append(
                (
                    "started",
                    {
                        "submission": submission.number,
                        "slurm_job_id": current.slurm_job_id,
                        "restart": restart,
                        "epoch": str(Epoch(word.generation, word.submission, restart)),
                        "attempt": attempt_of(
                            cluster or current.cluster, current.slurm_job_id, word, restart, start_time
                        ),
                        "start_time": start_time,
                        "nodes": nodes,
                    },
                )
            )
    return tuple(found)


def handed(state: State, note: Note) -> list[tuple[str, Mapping[str, Any]]]:
    """The facts ``progress`` and ``ended`` that a helper handed on through its node, where the record has neither.

    Only for an execution that the record knows by this attempt and epoch; the helper's own facts come first.
    """
    execution = _execution_of(state, note)
    if execution is None or state.closed is not None:
        return []
    found: list[tuple[str, Mapping[str, Any]]] = []
    common = {"attempt": note.body["attempt"], "epoch": note.body["epoch"]}
    if _is_ahead(execution, note):
        more = {"step": note.body["progress"], "resumed_from": note.body["resumed_from"]}
        found.append(("progress", {**common, **more}))
    if note.body["ended"] and execution.ended is None:
        more = {name: note.body[name] for name in ("status", "signal", "outcome")}
        found.append(("ended", {**common, **more, "step": note.body["last"]}))
    return found


def _execution_of(state: State, note: Note) -> Execution | None:
    return next(
        (
            execution
            for submission in state.submissions
            for execution in submission.executions
            if execution.started
            and (execution.attempt, str(execution.epoch)) == (note.body["attempt"], note.body["epoch"])
        ),
        None,
    )


def _is_ahead(execution: Execution, note: Note) -> bool:
    step = note.body["progress"]
    return step is not None and (execution.step is None or step > execution.step)


def seen(state: State, view: View) -> tuple[Seen, ...] | Unknown:
    """Every object of the queue that carries a word of this job."""
    if isinstance(view.queue, port.Unknown):
        return Unknown(view.queue.why)
    return tuple(
        Seen(
            job.word.generation,
            job.word.submission,
            view.cluster or state.spec.cluster,
            job.slurm_job_id,
            job.uid,
            job.state in ALIVE,
        )
        for job in view.of_key(state.spec.job)
        if job.word is not None
    )


def lookups(state: State, submission: Submission, view: View, details: Details) -> Lookups:
    """What notes, queue and accounting say about the intent of ``submission``."""
    word, uid = state.spec.word(submission.number), state.spec.uid
    cluster = view.cluster or state.spec.cluster
    if view.cluster and state.spec.cluster and view.cluster != state.spec.cluster:
        why = f"the job is on cluster {state.spec.cluster}, and this tick asks {view.cluster}"
        return Lookups(submission.number, Unknown(why), Unknown(why), Unknown(why))
    return Lookups(
        submission.number,
        _in_notes(state, submission, view),
        _in_queue(
            view,
            [
                job.slurm_job_id
                for job in view.of_key(word.job)
                if job.word == word and job.uid == uid
            ],
            cluster,
        ),
        _in_accounting(details, submission, word, uid, cluster, now=view.at),
    )


def _in_notes(state: State, submission: Submission, view: View) -> Found | Absent | Unknown:
    word = state.spec.word(submission.number)
    for note in view.notes_of(word.job):
        if note.word == word and note.slurm_job_id > 0 and note.body.get("uid") == state.spec.uid:
            return Found(note.cluster, note.slurm_job_id)
    if view.notes is None:
        return Unknown("the notes are the site's, and a tick reads them")
    return Absent() if view.has_all_notes_of(word.job) else Unknown("there are notes that could not be read")


def _in_queue(view: View, ids: Sequence[int], cluster: str) -> Found | Absent | Unknown:
    if isinstance(view.queue, port.Unknown):
        return Unknown(view.queue.why)
    return Found(cluster, min(ids)) if ids else Absent()


def _in_accounting(
    details: Details, submission: Submission, word: Word, uid: int, cluster: str, *, now: float
) -> Found | Absent | Unknown | Off:
    if details.has_accounting is False:
        return Off()
    answer = details.rows_of_word(word, uid, min(submission.at, now) - 3600)
    if isinstance(answer, port.Unknown):
        return Unknown(answer.why)
    ids = [] if isinstance(answer, port.Absent) else [row.slurm_job_id for row in answer.value]
    return Found(cluster, min(ids)) if ids else Absent()


def done_with(state: State, facts: Iterable[Fact], notes: Sequence[Note], now: float) -> list[str]:
    """The names of the notes that the record has now, and of start notes of a job that is long closed."""
    nodes = {node_key(fact.body) for fact in facts if fact.kind == "node"}
    closed = state.closed
    old = closed is not None and now - closed.at > KEEP_START_S
    submissions = {submission.number: submission for submission in state.submissions}
    names: list[str] = []
    for note in notes:
        submission = submissions.get(note.word.submission)
        if note.kind in {"start", "refuse"}:
            done = old
        elif submission is None or note.word != state.spec.word(submission.number):
            done = closed is not None
        elif note.kind == "handed":
            execution = _execution_of(state, note)
            done = closed is not None or (execution is not None and not handed(state, note))
        elif note.kind == "node":
            done = node_key(note.body) in nodes
        elif note.kind == "refused":
            done = closed is not None or any(
                refusal.restart == note.body.get("restart") and refusal.start_time == note.body.get("start_time")
                for refusal in submission.refusals
            )
        else:
            done = closed is not None or submission.end is not None or _has_end(submission, note)
        if done:
            names.append(note.name)
    return names


def _has_end(submission: Submission, note: Note) -> bool:
    """The execution of this end note has its ``end`` fact (Slurm restarts the object itself)."""
    start_time = note.body.get("start_time")
    if start_time is None:
        return False
    over = {end.restart for end in submission.ends}
    return any(
        execution.start_time == start_time and execution.epoch.restart in over for execution in submission.executions
    )


def _counts(state: State, note: Note) -> bool:
    uid = note.body.get("uid")
    # An intent that is not settled has no object yet: its notes wait until it has.
    return any(
        note.word == state.spec.word(submission.number)
        and (uid is None or uid == state.spec.uid)
        and submission.object is not None
        and submission.object.slurm_job_id == note.slurm_job_id
        for submission in state.submissions
        if submission.number == note.word.submission
    )


def _body(note: Note) -> tuple[str, Mapping[str, Any]]:
    kind = "started" if note.kind == "start" else note.kind
    body = {name: note.body[name] for name in _FIELDS[kind]}
    if kind == "node":
        body.update(how=note.body.get("how", "scan"), seen=note.at)
    else:
        body.update(submission=note.word.submission, slurm_job_id=note.slurm_job_id)
    return kind, body


__all__ = ["KEEP_START_S", "done_with", "handed", "incoming", "lookups", "seen"]
