"""One submission of a job: intent, sbatch, and what came of it, each a fact (P6).

The law of this module: *the intent is durable before sbatch is called, sbatch is called once for it, and only
a certain answer becomes a fact.*
"""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from slurm_dispatch.errors import DispatchError, OutcomeUnknownError, one_line
from slurm_dispatch.records.fold import fold
from slurm_dispatch.records.state import Settled
from slurm_dispatch.slurm.port import Accepted, Rejected

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from slurm_dispatch.model.identity import Word
    from slurm_dispatch.records.state import State
    from slurm_dispatch.slurm.port import SbatchCall, SlurmPort, SubmitAnswer
    from slurm_dispatch.state.jobs import Record

MESSAGE_MAX = 2000
"""Characters of sbatch's message that the record keeps."""
MESSAGE_TIMEOUT_S = 100.0
"""Slurm's MessageTimeout where it cannot be asked: ten times its default, the most that sites are told to use."""

LATE_STATUS = 69
"""The status of a submission whose time was over before sbatch could be called."""


@dataclass(frozen=True, slots=True)
class Superseded:
    """Somebody else wrote the next fact first: nothing was submitted; read the record and decide again."""


@dataclass(frozen=True, slots=True)
class Overtaken:
    """sbatch has answered, and the record had the submission settled otherwise by then: read it and decide again.

    :param answer: what sbatch said; what it may have made is a stray, which a tick cancels.
    :param why: what the record says instead, one line.
    """

    answer: Accepted | Rejected
    why: str


@dataclass(frozen=True, slots=True)
class Intent:
    """What the fact ``intent`` says beside the times.

    :param changes: the argv that was added to the recorded one for this submission.
    :param decision: seq of the decision that it carries out; ``None`` for the first submission.
    """

    word: Word
    changes: tuple[str, ...] = ()
    decision: int | None = None


def wait_s(submit_timeout_s: float, message_timeout_s: float | None) -> float:
    """How long others watch an intent before they may settle it: the writer's deadline, and twice Slurm's
    MessageTimeout for what it had sent already."""
    return submit_timeout_s + 2 * (MESSAGE_TIMEOUT_S if message_timeout_s is None else message_timeout_s)


def submit_once(
    record: Record,
    port: SlurmPort,
    intent: Intent,
    call: SbatchCall,
    *,
    seq: int,
    by: str,
    cluster: str,
    settle_after_s: float,
    accepted: Callable[[Accepted], None] | None = None,
) -> SubmitAnswer | Superseded | Overtaken:
    """Write ``intent`` as fact ``seq`` + 1, call sbatch once, write ``submitted`` or ``rejected`` as the next.

    An ambiguous answer is left without a fact: the tick settles it. ``submitted`` is written as soon as sbatch
    has printed the id, which with ``--wait`` is long before it ends. Runs as the job's owner.

    :param seq: the last fact that the caller has read.
    :param cluster: the job's, for an answer that names none.
    :param accepted: called after ``submitted`` is written.
    :raises ServiceAwayError: the state folder failed before the intent was there: nothing was submitted.
    :raises OutcomeUnknownError: sbatch has submitted it, and the record could not be written: the tick settles it.
    """
    now = time.time()
    began = time.clock_gettime(time.CLOCK_BOOTTIME)
    body = {
        "submission": intent.word.submission,
        "word": str(intent.word),
        "host": socket.gethostname(),
        "deadline": now + call.deadline_s,
        "wait_s": settle_after_s,
        "changes": list(intent.changes),
        "decision": intent.decision,
    }
    if not record.append(seq + 1, "intent", by, body, at=now):
        return Superseded()

    trouble: list[tuple[int, DispatchError]] = []
    otherwise: list[str] = []

    def note_id(answer: Accepted) -> None:
        named = replace(answer, cluster=answer.cluster or cluster)
        try:
            why = write_answer(record, intent.word, submitted_body(intent.word, named, "answer"), by, seq=seq + 1)
        except DispatchError as error:
            trouble.append((answer.slurm_job_id, error))  # sbatch still has to end
            return
        if why is not None:
            otherwise.append(why)
        elif accepted is not None:
            accepted(named)

    answer = _in_time(port, call, note_id, began + call.deadline_s)
    if trouble:
        job, error = trouble[0]
        raise OutcomeUnknownError(
            f"Slurm job {job} is submitted, and the record could not say so: {error}",
            hint="a tick will find it by its word; do not submit it again",
        ) from error
    if isinstance(answer, Rejected):
        why = write_answer(record, intent.word, _rejected_body(intent.word, answer), by, seq=seq + 1)
        if why is not None:
            otherwise.append(why)
    if otherwise and isinstance(answer, Accepted | Rejected):
        return Overtaken(answer, otherwise[0])
    return answer


def _in_time(
    port: SlurmPort, call: SbatchCall, note_id: Callable[[Accepted], None], until: float
) -> SubmitAnswer:
    """Call sbatch with what is left of its time, or not at all.

    Between the intent and this moment the process may have been stopped for long (Ctrl-Z, a suspended host, a
    hanging disk). After its deadline others may burn the number, so that sbatch must not be called with it.

    :param until: of the clock that also counts while the host is suspended.
    """
    left_s = until - time.clock_gettime(time.CLOCK_BOOTTIME)
    if left_s <= 0:
        return Rejected(LATE_STATUS, f"sbatch was not called: its {call.deadline_s:g} s were over before it began")
    return port.submit(replace(call, deadline_s=left_s), note_id)


def write_answer(record: Record, word: Word, body: Mapping[str, object], by: str, *, seq: int) -> str | None:
    """Write what became of a submission under the next number that is free, unless the record has it already.

    That a number is taken says nothing of the submission: another tick's ``watched``, or what the helper or a
    person wrote, may have it. Only ``submitted``, ``rejected`` or ``burnt`` for this submission settles it.

    :param body: of a fact ``submitted`` (it then names a ``slurm_job_id``) or ``rejected``.
    :param seq: the last fact that the caller knows of.
    :returns: ``None`` if the record says this now, whoever wrote it; otherwise what it says instead, one line.
    """
    kind = "submitted" if "slurm_job_id" in body else "rejected"
    if record.append(seq + 1, kind, by, body):
        return None
    state = append_while(record, kind, by, body, lambda now: _is_open(now, word))
    return None if state is None else _instead(state, word, body)


def append_while(
    record: Record, kind: str, by: str, body: Mapping[str, object], wanted: Callable[[State], bool]
) -> State | None:
    """Append a fact as the next, for as long as ``wanted`` says of what the record has become meanwhile.

    :returns: ``None`` once it is written; otherwise the state that it is not wanted in.
    """
    # Each turn that fails is a fact of somebody else's, so that this ends.
    while True:
        state = fold(record.read())
        if not wanted(state):
            return state
        if record.append(state.seq + 1, kind, by, body):
            return None


def _is_open(state: State, word: Word) -> bool:
    current = state.current
    return current is not None and current.number == word.submission and current.settled is Settled.OPEN


def _instead(state: State, word: Word, body: Mapping[str, object]) -> str | None:
    """What a record in which the submission is settled says that ``body`` does not."""
    (submission,) = [found for found in state.submissions if found.number == word.submission]
    if submission.object is not None:
        if submission.object.slurm_job_id == body.get("slurm_job_id"):
            return None
        return f"submission {word.submission} is recorded as Slurm job {submission.object.slurm_job_id}"
    if submission.settled is Settled.REJECTED and "slurm_job_id" not in body:
        return None
    return f"submission {word.submission} is recorded as {submission.settled.value}: {submission.message}"


def submitted_body(word: Word, answer: Accepted, how: str) -> dict[str, object]:
    """The body of a fact ``submitted``."""
    return {
        "submission": word.submission,
        "cluster": answer.cluster or "",
        "slurm_job_id": answer.slurm_job_id,
        "how": how,
    }


def _rejected_body(word: Word, answer: Rejected) -> dict[str, object]:
    return {
        "submission": word.submission,
        "status": max(-255, min(255, answer.status)),
        "message": one_line(answer.message)[:MESSAGE_MAX],
    }
