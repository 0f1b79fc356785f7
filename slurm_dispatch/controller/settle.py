"""What the notes say about a job, as facts to come, and what every source says about an unsettled intent (P6).

The law of this module: *a note or an object counts for a job only if its word and its owner are the job's, and
a source that was not asked whole has said nothing.*
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from slurm_dispatch.controller.ends import ALIVE, Look
from slurm_dispatch.model.epoch import Epoch
from slurm_dispatch.model.identity import Word, attempt_of
from slurm_dispatch.records.facts import node_key
from slurm_dispatch.records.observation import Absent, Found, Lookups, Off, Seen, Unknown
from slurm_dispatch.records.places import landing, places
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
    state: State, notes: Sequence[Note], look: Look, cluster: str, *, hashed: bool = True
) -> tuple[tuple[str, Mapping[str, Any]], ...]:
    """The facts that the notes say, and the start that the queue shows where no hook noted it.

    :param cluster: of the tick, for an object of which the record does not name one; the attempt is a hash of it.
    :param hashed: so it is of the start time; not on Slurm 22.05, whose hooks have none.
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
                            current.cluster or cluster, current.slurm_job_id, word,
                            restart, start_time if hashed else None
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
    """Every object that carries a word of this job, in the queues of all the clusters where it can have one."""
    found: list[Seen] = []
    for place in places(state, view.cluster, view.at):
        here = view.of(place)
        if isinstance(here.queue, port.Unknown):
            return Unknown(here.queue.why)
        found += [
            Seen(
                job.word.generation,
                job.word.submission,
                _name(state, view, place, job),
                job.slurm_job_id,
                job.uid,
                job.state in ALIVE,
            )
            for job in here.of_key(state.spec.job)
            if job.word is not None and not job.in_array
        ]
    return tuple(found)


def _name(state: State, view: View, place: str, job: port.QueueJob) -> str:
    """The name of this cluster as the record has it for this object: one that was not known when the record was
    written, or is not now, is not another."""
    for submission in state.submissions:
        it = submission.object
        if it is None or job.word is None or submission.number != job.word.submission:
            continue
        if it.slurm_job_id == job.slurm_job_id and view.place(state.spec, it) == place:
            return it.cluster
    return view.of(place).cluster or state.spec.cluster


def lookups(state: State, submission: Submission, view: View, details: Details) -> Lookups:
    """What notes, queue and accounting say about the intent of ``submission``."""
    word = state.spec.word(submission.number)
    queues: list[Found | Absent | Unknown] = []
    accounts: list[Found | Absent | Unknown | Off] = []
    for place in landing(state.spec, view.cluster):
        here = view.of(place)
        cluster = here.cluster or state.spec.cluster
        queues.append(_in_queue(here, word, state.spec.uid, cluster))
        accounts.append(
            _in_accounting(details.at(place, view), submission, word, state.spec.uid, cluster, now=view.at)
        )
    return Lookups(submission.number, _in_notes(state, submission, view), _all(queues), _all(accounts))


A = TypeVar("A", Found | Absent | Unknown, Found | Absent | Unknown | Off)


def _all(answers: Sequence[A]) -> A:
    """One answer for all clusters: what was found anywhere; else unknown, unless every one of them has told."""
    for kind in (Found, Unknown, Absent):
        for answer in answers:
            if isinstance(answer, kind):
                return answer
    return answers[0]


def _in_notes(state: State, submission: Submission, view: View) -> Found | Absent | Unknown:
    word = state.spec.word(submission.number)
    for note in view.notes_of(word.job):
        ours = note.word == word and note.body.get("uid") == state.spec.uid and note.body.get("array") is None
        if ours and note.slurm_job_id > 0:
            return Found(note.cluster, note.slurm_job_id)
    if view.notes is None:
        return Unknown("the notes are the site's, and a tick reads them")
    return Absent() if view.has_all_notes_of(word.job) else Unknown("there are notes that could not be read")


def _in_queue(view: View, word: Word, uid: int, cluster: str) -> Found | Absent | Unknown:
    if isinstance(view.queue, port.Unknown):
        return Unknown(view.queue.why)
    ids = [
        job.slurm_job_id
        for job in view.of_key(word.job)
        if job.word == word and job.uid == uid and not job.in_array
    ]
    return Found(cluster, min(ids)) if ids else Absent()


def _in_accounting(
    details: Details, submission: Submission, word: Word, uid: int, cluster: str, *, now: float
) -> Found | Absent | Unknown | Off:
    if details.has_accounting is False:
        return Off()
    answer = details.rows_of_word(word, uid, min(submission.at, now) - 3600)
    if isinstance(answer, port.Unknown):
        return Unknown(answer.why)
    rows = () if isinstance(answer, port.Absent) else answer.value
    ids = [row.slurm_job_id for row in rows if not _is_array(details, row.slurm_job_id)]
    return Found(cluster, min(ids)) if ids else Absent()


def _is_array(details: Details, slurm_job_id: int) -> bool:
    """slurmctld says so; a row of accounting does not tell a task from a job."""
    answer = details.detail(slurm_job_id)
    return isinstance(answer, port.Present) and answer.value.array


def done_with(state: State, facts: Iterable[Fact], notes: Sequence[Note], now: float) -> list[str]:
    """The names of the notes that the record has now, of start notes of a job that is long closed, and of those of
    another's object: anybody can write this job's word into a comment of his own, and fill the folder with it."""
    nodes = {node_key(fact.body) for fact in facts if fact.kind == "node"}
    closed = state.closed
    old = closed is not None and now - closed.at > KEEP_START_S
    submissions = {submission.number: submission for submission in state.submissions}
    names: list[str] = []
    for note in notes:
        submission = submissions.get(note.word.submission)
        if _is_foreign(state, submission, note):
            done = True
        elif note.kind in {"start", "refuse"}:
            done = old
        elif submission is None or note.word != state.spec.word(submission.number) or not _there(submission, note):
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


def _is_foreign(state: State, submission: Submission | None, note: Note) -> bool:
    """The note is of an object that can never be the job's."""
    if note.kind == "refuse":
        return False
    uid = note.body.get("uid")
    if uid is not None:
        return bool(uid != state.spec.uid)
    it = None if submission is None else submission.object
    return it is not None and it.slurm_job_id != note.slurm_job_id


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
        and _there(submission, note)
        for submission in state.submissions
        if submission.number == note.word.submission
    )


def _there(submission: Submission, note: Note) -> bool:
    """The note is not of another cluster than the submission's object: ids are equal by coincidence there."""
    it = submission.object
    return it is None or not it.cluster or not note.cluster or it.cluster == note.cluster


def _body(note: Note) -> tuple[str, Mapping[str, Any]]:
    kind = "started" if note.kind == "start" else note.kind
    body = {name: note.body[name] for name in _FIELDS[kind]}
    if kind == "node":
        body.update(how=note.body.get("how", "scan"), seen=note.at)
    else:
        body.update(submission=note.word.submission, slurm_job_id=note.slurm_job_id)
    return kind, body


__all__ = ["KEEP_START_S", "done_with", "handed", "incoming", "lookups", "seen"]
