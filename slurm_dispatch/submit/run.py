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
from slurm_dispatch.slurm.port import Accepted, Rejected

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurm_dispatch.model.identity import Word
    from slurm_dispatch.slurm.port import SbatchCall, SlurmPort, SubmitAnswer
    from slurm_dispatch.state.jobs import Record

MESSAGE_MAX = 2000
"""Characters of sbatch's message that the record keeps."""
MESSAGE_TIMEOUT_S = 100.0
"""Slurm's MessageTimeout where it cannot be asked: ten times its default, the most that sites are told to use."""


@dataclass(frozen=True, slots=True)
class Superseded:
    """Somebody else wrote the next fact first: nothing was submitted; read the record and decide again."""


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
) -> SubmitAnswer | Superseded:
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

    def note_id(answer: Accepted) -> None:
        named = replace(answer, cluster=answer.cluster or cluster)
        try:
            # False: the tick has settled it from evidence already, to the same object.
            record.append(seq + 2, "submitted", by, submitted_body(intent.word, named, "answer"))
        except DispatchError as error:
            trouble.append((answer.slurm_job_id, error))  # sbatch still has to end
            return
        if accepted is not None:
            accepted(named)

    answer = port.submit(call, note_id)
    if trouble:
        job, error = trouble[0]
        raise OutcomeUnknownError(
            f"Slurm job {job} is submitted, and the record could not say so: {error}",
            hint="a tick will find it by its word; do not submit it again",
        ) from error
    if isinstance(answer, Rejected):
        message = one_line(answer.message)[:MESSAGE_MAX]
        status = max(-255, min(255, answer.status))
        record.append(
            seq + 2, "rejected", by, {"submission": intent.word.submission, "status": status, "message": message}
        )
    return answer


def submitted_body(word: Word, answer: Accepted, how: str) -> dict[str, object]:
    """The body of a fact ``submitted``."""
    return {
        "submission": word.submission,
        "cluster": answer.cluster or "",
        "slurm_job_id": answer.slurm_job_id,
        "how": how,
    }
