"""What the controller saw of the world about one job, as :func:`~slurm_dispatch.records.decide.decide` takes it.

The law: *every answer is present, absent or unknown, and unknown is what stands here unless told otherwise.*
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurm_dispatch.model.outcome import Outcome


@dataclass(frozen=True, slots=True)
class Found:
    """A source has an object with the intent's word, and its owner is the job's."""

    cluster: str
    slurm_job_id: int


@dataclass(frozen=True, slots=True)
class Absent:
    """The source answers, completely, and has none."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """The source gave no answer, or one that does not say."""

    why: str = "not asked"


@dataclass(frozen=True, slots=True)
class Off:
    """The site does not have this source (accounting only)."""


@dataclass(frozen=True, slots=True)
class Lookups:
    """What the three sources say about an unsettled intent.

    Each asked *after* the waiting time was over, which is when :class:`~.actions.LookUp` comes: what a
    listing did not have before that may have come since.

    :param submission: whose intent.
    """

    submission: int
    notes: Found | Absent | Unknown = Unknown()
    queue: Found | Absent | Unknown = Unknown()
    accounting: Found | Absent | Unknown | Off = Unknown()


@dataclass(frozen=True, slots=True)
class ObjectEnded:
    """The execution (``final`` false) or the object for good (``final`` true) has ended.

    :param submission: which one, with ``slurm_job_id``: an observation outlives a decision that it led to,
        and must not be taken for one of the next object.
    :param restart: of the execution that ended, or ``None`` where nothing tells.
    :param evidence: ``state``, ``flags``, ``reason``, ``exit_code``, ``signal``, ``by_uid``, ``source``.
    """

    submission: int
    slurm_job_id: int
    outcome: Outcome
    evidence: Mapping[str, Any]
    restart: int | None = None
    start_time: float | None = None
    final: bool = True


@dataclass(frozen=True, slots=True)
class ObjectAlive:
    """Slurm has the current object, and it has not ended for good.

    :param submission: which one, with ``slurm_job_id``.
    :param restart: Slurm's restart count now, or ``None`` if it did not say.
    :param pending: it waits for nodes (again).
    :param previous: how the execution before the present one ended, if ``restart`` shows that one did.
    """

    submission: int
    slurm_job_id: int
    restart: int | None = None
    pending: bool = False
    previous: ObjectEnded | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """An object in the queue that carries a word of this job, whatever its number.

    :param uid: its owner in Slurm.
    :param alive: pending, running or suspended: not ended, and not completing either.
    """

    generation: int
    submission: int
    cluster: str
    slurm_job_id: int
    uid: int
    alive: bool


@dataclass(frozen=True, slots=True)
class Observation:
    """All that one tick knows of one job beyond its record. Every default means: nothing known.

    :param host: whose clock and patience count for watching an intent.
    :param incoming: bodies of facts that notes say and the record has not: (kind, body), kind one of
        ``started``, ``refused``, ``node``; those that the record has are passed over.
    :param object: the current object.
    :param lookups: about an unsettled intent; ``None``: not looked up.
    :param seen: all objects in the queue that carry the job's key, or ``Unknown``.
    :param clock: Unix seconds of ``host`` no earlier than when the record was read, from which an intent is
        watched: the moment before Slurm was asked can be older than the intent. ``None``: that moment.
    """

    host: str
    incoming: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    object: ObjectAlive | ObjectEnded | Unknown = Unknown()
    lookups: Lookups | None = None
    seen: tuple[Seen, ...] | Unknown = Unknown()
    clock: float | None = None


__all__ = [
    "Absent", "Found", "Lookups", "ObjectAlive", "ObjectEnded", "Observation", "Off", "Seen", "Unknown",
]
