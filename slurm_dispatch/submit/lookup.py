"""Settle an intent whose answer was lost, from evidence (P6).

The law of this module: *what carries the word and belongs to the owner is the object; only when every source
answers, and none has it, after the writer's sbatch can no longer be alive, is there none.*
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from slurm_dispatch.slurm.port import Present, Queue, Unknown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from slurm_dispatch.model.identity import Word
    from slurm_dispatch.slurm.port import Absent, JobDetail, SlurmPort

TRIES = 3
"""How often the wrapper looks before it leaves the intent to the tick."""
BETWEEN_S = 2.0


@dataclass(frozen=True, slots=True)
class NoteSeen:
    """A start note's identity: whose word, which object, and the uid that the hook was told."""

    word: Word
    slurm_job_id: int
    cluster: str | None
    uid: int


@dataclass(frozen=True, slots=True)
class Found:
    """The object of the intent.

    :param how: ``note``, ``queue`` or ``accounting``.
    :param others: more objects with the same word: strays, to be cancelled. The lowest id is the object, so
        that everybody who looks finds the same one.
    """

    slurm_job_id: int
    cluster: str | None
    how: str
    others: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Burnt:
    """Every source answers and none has it: the number is never used again."""

    evidence: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Not settled yet. ``why`` is one line."""

    why: str


def settle(
    word: Word,
    uid: int,
    *,
    watched_s: float,
    settle_after_s: float,
    notes: Sequence[NoteSeen] | Unknown,
    queue: Queue | Unknown,
    accounting: Present[tuple[JobDetail, ...]] | Absent | Unknown,
) -> Found | Burnt | Wait:
    """Notes, then the queue in all states, then accounting; the owner is checked in each.

    :param watched_s: for how long the caller has watched this intent himself; finding needs no time, burning
        needs ``settle_after_s``, and every source must have been asked after it was over.
    """
    if not isinstance(notes, Unknown):
        seen = sorted({note.slurm_job_id: note for note in notes if note.word == word and note.uid == uid}.items())
        if seen:
            return Found(seen[0][0], seen[0][1].cluster, "note", tuple(job for job, _ in seen[1:]))
    if isinstance(queue, Queue):
        jobs = sorted(job.slurm_job_id for job in queue.of_word(word, uid))
        if jobs:
            return Found(jobs[0], None, "queue", tuple(jobs[1:]))
    if isinstance(accounting, Present):
        rows = sorted({row.slurm_job_id for row in accounting.value if row.word == word and row.uid == uid})
        if rows:
            return Found(rows[0], None, "accounting", tuple(rows[1:]))
    if watched_s < settle_after_s:
        return Wait(f"watched for {watched_s:.0f} s of {settle_after_s:.0f} s")
    if word.shared:
        return Wait("a shared job is never settled as burnt: a person decides")
    for name, source in (("notes", notes), ("the queue", queue), ("accounting", accounting)):
        if isinstance(source, Unknown):
            return Wait(f"{name}: {source.why}")
    return Burnt("the notes, the queue in all states and accounting answer, and none has it")


def look_now(
    ports: Mapping[str, SlurmPort],
    word: Word,
    uid: int,
    *,
    since: float,
    tries: int = TRIES,
    between_s: float = BETWEEN_S,
) -> Found | Wait:
    """What a user can find out at once: the queue, then accounting. Never says burnt.

    A job that sbatch handed over a moment ago can be missing in one answer, so it is asked for more than once.

    :param ports: who asks each cluster on which it can be, by its name; empty for the one of this host.
    """
    answer: Found | Wait = Wait("not asked")
    for turn in range(tries):
        if turn:
            time.sleep(between_s)
        for cluster, port in ports.items():
            found = _look_once(port, word, uid, since=since)
            if isinstance(found, Found):
                return replace(found, cluster=cluster or None)
            answer = found
    return answer


def _look_once(port: SlurmPort, word: Word, uid: int, *, since: float) -> Found | Wait:
    queue = port.queue()
    accounting: Present[tuple[JobDetail, ...]] | Absent | Unknown = Unknown("not asked")
    if not (isinstance(queue, Queue) and queue.of_word(word, uid)):
        accounting = port.accounting_by_word(word, uid, since=int(since) - 60)
    answer = settle(
        word,
        uid,
        watched_s=0,
        settle_after_s=1,
        notes=Unknown("not for users"),
        queue=queue,
        accounting=accounting,
    )
    if isinstance(answer, Found):
        return answer
    return Wait(queue.why) if isinstance(queue, Unknown) else Wait("no source has it yet")
