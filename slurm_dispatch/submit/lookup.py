"""Settle an intent whose answer was lost, from evidence (P6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slurm_dispatch.model.identity import Word
    from slurm_dispatch.slurm.port import Absent, JobDetail, Present, Queue, Unknown


@dataclass(frozen=True, slots=True)
class NoteSeen:
    """A start note's identity: whose word, which object, and the uid that the hook was told."""

    word: Word
    slurm_job_id: int
    cluster: str | None
    uid: int


@dataclass(frozen=True, slots=True)
class Found:
    """The object of the intent. ``others`` are more objects with the same word (strays, to be cancelled)."""

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
        needs ``settle_after_s``.
    """
    raise NotImplementedError
