"""What the controller saw of the world about one job, as :func:`~slurm_dispatch.records.decide.decide` takes it.

The law: *every answer is present, absent or unknown, and unknown is what stands here unless told otherwise.*
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurm_dispatch.model.outcome import Outcome
    from slurm_dispatch.records.state import ElderExecution


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
    :param evidence: ``state``, ``flags``, ``reason``, ``exit_code``, ``signal``, ``by_uid``, ``source``; and if known
        ``limits`` (``time_s``, ``mem_mb``: those of the object at its end), ``nodes`` (names that are to be
        blamed for it), ``changed`` (sbatch options for limits that somebody changed on the object).
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
    :param held: it waits and Slurm does not start it before a person lets it: Slurm's own word for that.
    """

    submission: int
    slurm_job_id: int
    restart: int | None = None
    pending: bool = False
    previous: ObjectEnded | None = None
    held: str = ""


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
class SiteClock:
    """The site's clock: seconds in which ticks ran.

    :param id: another one means that it began anew.
    """

    id: str
    ran_s: float


@dataclass(frozen=True, slots=True)
class CessationAnswer:
    """What the site's cessation signal said of an execution, just now.

    :param answer: ``ceased``, ``running`` or ``unknown``.
    :param source: which signal, for a person.
    :param at: Unix seconds of the (last) answer.
    :param count: equal answers in a row that no fact says yet, this one too.
    :param first: Unix seconds of the first of them; ``None``: ``at``.
    :param before: where this is another answer than the last fact: those equal to that fact that no fact says yet.
    """

    answer: str
    source: str
    detail: str
    at: float
    count: int = 1
    first: float | None = None
    before: CessationAnswer | None = None


@dataclass(frozen=True, slots=True)
class SilentNode:
    """A node that does not respond, since the first tick that saw it so (Unix seconds)."""

    name: str
    since: float


@dataclass(frozen=True, slots=True)
class ElderClosed:
    """How the job that this one supersedes was closed.

    :param seq: of its closing fact.
    :param by_job: the key of the job that superseded it; ``None``: it was closed for another reason.
    :param shared: its checkpoint was shared, or that of a job before it whose executions it still waits for.
    :param executions: those of it (and of its own elders) that have no answer ``ceased``; only if shared.
    :param complete: no execution of it can begin that is not among ``executions``.
    """

    seq: int
    by_job: str | None
    shared: bool = False
    executions: tuple[ElderExecution, ...] = ()
    complete: bool = True


@dataclass(frozen=True, slots=True)
class Observation:
    """All that one tick knows of one job beyond its record. Every default means: nothing known.

    :param host: whose clock and patience count for watching an intent.
    :param incoming: bodies of facts that notes say and the record has not: (kind, body), kind one of
        ``started``, ``refused``, ``node``; those that the record has are passed over.
    :param object: the current object.
    :param lookups: about an unsettled intent; ``None``: not looked up.
    :param clock_ran: the site's clock; ``None``: it could not be read, and no hold's clock moves.
    :param cessation: attempt: a fresh answer of the cessation signal.
    :param silent: nodes of the current execution that do not respond, only those that the site's rules for
        suspicion let count; ``Unknown``: not asked.
    :param elder: what was seen of the object of ``state.elder``.
    :param elder_answers: true if every node that ``state.elder`` was suspected for responds, false if one does
        not, ``None`` if nothing tells. Not filtered by the site's rules for suspicion.
    :param elder_closed: for a new job that supersedes another: how that one was closed; ``None``: its record
        was read, and it is open.
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
    clock_ran: SiteClock | None = None
    cessation: Mapping[str, CessationAnswer] = field(default_factory=dict)
    silent: tuple[SilentNode, ...] | Unknown = Unknown()
    elder: ObjectAlive | ObjectEnded | Unknown = Unknown()
    elder_answers: bool | None = None
    elder_closed: ElderClosed | Unknown | None = Unknown()


__all__ = [
    "Absent", "CessationAnswer", "ElderClosed", "Found", "Lookups", "ObjectAlive", "ObjectEnded", "Observation",
    "Off", "Seen", "SilentNode", "SiteClock", "Unknown",
]
