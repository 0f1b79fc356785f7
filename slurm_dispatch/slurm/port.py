"""What slurm-dispatch asks of Slurm, and the only shapes that an answer can have.

The law of this module: *an answer is present, absent or unknown, and only Slurm's own word that something is
not there is absence.* A command that failed, hung, or printed what does not parse is :class:`Unknown` with
the reason, and unknown never starts, releases, closes or deletes anything.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from slurm_dispatch.model.identity import Word

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Present(Generic[T]):
    """Slurm has it, and this is what it says of it."""

    value: T


@dataclass(frozen=True, slots=True)
class Absent:
    """Slurm answered, and says that it has no such thing."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """No answer that can be relied on. ``why`` is one line."""

    why: str


@dataclass(frozen=True, slots=True)
class Accepted:
    """sbatch said that Slurm has the job.

    :param cluster: set only where sbatch named one.
    :param status: sbatch's own exit status (with ``--wait`` it is the job's).
    """

    slurm_job_id: int
    cluster: str | None
    status: int = 0


@dataclass(frozen=True, slots=True)
class Rejected:
    """sbatch said no, for certain: nothing of this call is or will be in Slurm.

    :param status: sbatch's own exit status (127 where it could not be started at all).
    :param message: what it said, one line.
    """

    status: int
    message: str


@dataclass(frozen=True, slots=True)
class Ambiguous:
    """Nobody can tell from sbatch's answer whether Slurm has the job.

    :param status: sbatch's exit status, or ``None`` where it was killed at its deadline.
    """

    why: str
    status: int | None = None


SubmitAnswer = Accepted | Rejected | Ambiguous


@dataclass(frozen=True, slots=True)
class SbatchCall:
    """One call of sbatch, in the process's own user and groups.

    :param argv: everything after the program's name.
    :param environment: the whole environment of sbatch itself.
    :param job_environment: the job's environment as NUL-separated ``NAME=value``, handed over by
        ``--export-file`` so that nothing of it is loaded in sbatch; ``None``: sbatch's own goes to the job.
    :param script: what sbatch reads from standard input (empty where the script is a file); never ours.
    :param script_at: the script is handed over as a file without a name instead, whose path is put into ``argv``
        there (a script from standard input cannot have arguments).
    :param workdir: where sbatch runs; ``None``: where we are.
    :param limits: soft resource limits that sbatch runs with, as (name of :mod:`resource`, value).
    :param parsable: ``--parsable`` was asked for, so a line that is a number is the answer.
    :param waits: ``--wait`` was asked for: the deadline holds until the job's id is known, and no longer.
    :param relay: copy what sbatch prints on to our own stdout and stderr, as it comes, byte for byte.
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    deadline_s: float
    job_environment: bytes | None = None
    script: bytes = b""
    script_at: int | None = None
    workdir: str | None = None
    umask: int | None = None
    limits: tuple[tuple[str, int], ...] = ()
    parsable: bool = False
    waits: bool = False
    relay: bool = False


@dataclass(frozen=True, slots=True)
class QueueJob:
    """One line of the bulk call. Times are Unix seconds, ``None`` where Slurm says ``N/A``.

    :param state: the one word of the text output; ``COMPLETING`` hides what it was.
    :param start_time: changes with every execution; the restart count is not in this call, see
        :meth:`SlurmPort.detail`.
    :param word: the identity word of the comment, if there is one; :attr:`uid` must be checked by who uses it.
    """

    slurm_job_id: int
    uid: int
    state: str
    reason: str
    submit_time: int | None
    start_time: int | None
    nodes: str
    word: Word | None
    array: str | None = None

    @property
    def in_array(self) -> bool:
        """It is an array, or a task of one. Nothing is done to it: its raw id can mean the whole array (C037)."""
        return self.array is not None and "_" in self.array


@dataclass(frozen=True, slots=True)
class Queue:
    """Every job that slurmctld has in memory, in all states, at one moment."""

    jobs: tuple[QueueJob, ...]

    def of_word(self, word: Word, uid: int) -> tuple[QueueJob, ...]:
        """The objects of ``uid`` whose comment has ``word``, in the order of their ids; none of an array."""
        return tuple(job for job in self.jobs if job.word == word and job.uid == uid and not job.in_array)

    def of_id(self, slurm_job_id: int) -> QueueJob | None:
        """The object of this id, or ``None`` if the queue has none."""
        for job in self.jobs:
            if job.slurm_job_id == slurm_job_id:
                return job
        return None


@dataclass(frozen=True, slots=True)
class Dependent:
    """A job that has dependencies which are not met, or that Slurm cancelled because they cannot be any more.

    :param state: ``PENDING`` or ``CANCELLED``.
    :param array: it is an array or a task of one, whose id can mean the whole array.
    :param text: the dependencies as squeue prints them: :mod:`slurm_dispatch.slurm.dependency`.
    """

    slurm_job_id: int
    uid: int
    state: str
    reason: str
    array: bool
    text: str


@dataclass(frozen=True, slots=True)
class JobDetail:
    """One object, as ``scontrol show job`` or an accounting row tells it.

    :param states: the base state and its flags (``PREEMPTED``, ``COMPLETING``, ...), never empty.
    :param by_uid: who cancelled it, where accounting says so.
    :param source: ``json``, ``text`` or ``accounting``; in ``text`` COMPLETING hides the base state.
    :param derived_signal: the signal of the worst end of a step; text does not tell it.
    :param time_limit_s: seconds; ``None`` where there is no limit or it is not told.
    :param memory_mb: for each node, 1 or more; ``None`` where there is no limit or it is not told.
    """

    slurm_job_id: int
    uid: int
    states: frozenset[str]
    reason: str
    exit_status: int | None
    exit_signal: int | None
    restart: int | None
    submit_time: int | None
    start_time: int | None
    end_time: int | None
    nodes: str
    comment: str
    source: str
    word: Word | None = None
    by_uid: int | None = None
    requeue: bool | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    """Limits as Slurm has them now (``TimeLimit``, ``MinMemory...``), raw text, empty where not told."""
    derived_signal: int | None = None
    time_limit_s: int | None = None
    memory_mb: int | None = None
    array: bool = False
    """It is an array or a task of one, where that is told (not in accounting)."""

    @property
    def completing(self) -> bool:
        """Slurm still has processes or hooks of it to wait for."""
        return "COMPLETING" in self.states


@dataclass(frozen=True, slots=True)
class CancelAnswer:
    """``done``: scancel says that the object is cancelled, or over already. ``why`` says why not, one line."""

    done: bool
    why: str = ""


@dataclass(frozen=True, slots=True)
class ChangeAnswer:
    """What Slurm said to a requeue or an update of one object.

    :param done: it did it. False and not ``refused``: nobody can tell whether it did.
    :param refused: it said no, for certain, and will say so again.
    :param why: why not, one line.
    """

    done: bool
    refused: bool = False
    why: str = ""


@dataclass(frozen=True, slots=True)
class Node:
    """One compute node, as slurmctld sees it.

    :param state: the base state in Slurm's word (``IDLE``, ``ALLOCATED``, ``DOWN``, ...).
    :param flags: the words that stand beside it (``DRAIN``, ``NOT_RESPONDING``, ...).
    :param boot_time: Unix seconds when its kernel started, as the node said when it registered last; ``None``
        where it never did.
    :param duplicate_at: Unix seconds when slurmctld drained it since it sent the node a job that ran there already;
        ``None``: its reason is another one.
    :param prolog_failed_at: Unix seconds when slurmctld drained it since a Prolog failed there; ``None``: so.
    """

    name: str
    state: str
    flags: frozenset[str] = frozenset()
    partitions: tuple[str, ...] = ()
    boot_time: int | None = None
    duplicate_at: int | None = None
    prolog_failed_at: int | None = None

    @property
    def silent(self) -> bool:
        """It should answer slurmctld and does not. A node that is off, or on its way, should not."""
        return "NOT_RESPONDING" in self.flags and self.state != "FUTURE" and not self.flags & AWAY

    @property
    def drained(self) -> bool:
        """It takes no new jobs until a person says so."""
        return bool(self.flags & {"DRAIN", "FAIL"})

    @property
    def in_trouble(self) -> bool:
        """It is silent, down or drained: of the nodes of an execution that failed, it is to be blamed first."""
        return self.silent or self.drained or self.state == "DOWN"


AWAY = frozenset({
    "POWER_DOWN", "POWER_UP", "POWERED_DOWN", "POWERING_DOWN", "POWERING_UP", "REBOOT_ISSUED", "DYNAMIC_FUTURE",
    "EXTERNAL",
})  # fmt: skip
"""Flags of a node that is not expected to answer."""


@dataclass(frozen=True, slots=True)
class Nodes:
    """Every node of the cluster, at one moment."""

    nodes: tuple[Node, ...]


class SlurmPort(Protocol):
    """The verbs, asked of one cluster: the commands' own one, unless it was made by :meth:`at`.

    None raises for what Slurm says or fails to say: that is in the answer. Where a verb takes a cluster, ``None`` is
    the one that is asked. It must be ``None`` for the commands' own: by its name Slurm finds a cluster through
    slurmdbd only, which may be away, or not there at all.
    """

    def at(self, cluster: str) -> SlurmPort:
        """The same verbs asked of another cluster, by its name.

        :raises ValueError: it cannot be a cluster's name.
        """
        ...

    def submit(self, call: SbatchCall, accepted: Callable[[Accepted], None] | None = None) -> SubmitAnswer:
        """Call sbatch once. Ended at ``call.deadline_s`` by this process; never tried again here.

        :param accepted: called once, as soon as sbatch has printed the id: with ``--wait`` long before it ends.
        """
        ...

    def queue(self) -> Queue | Unknown:
        """All jobs of all users in all states, in one call."""
        ...

    def dependents(self, uid: int) -> tuple[Dependent, ...] | Unknown:
        """The jobs of this owner that wait for others, or were cancelled because they did, in one call."""
        ...

    def detail(self, slurm_job_ids: Sequence[int]) -> dict[int, Present[JobDetail] | Absent | Unknown]:
        """What slurmctld says of each object; one call an object."""
        ...

    def accounting(
        self, slurm_job_ids: Sequence[int], *, since: int | None = None
    ) -> dict[int, Present[tuple[JobDetail, ...]] | Absent | Unknown]:
        """The rows of accounting for each id, duplicates too, oldest first; one call for all."""
        ...

    def accounting_by_word(
        self, word: Word, uid: int, *, since: int
    ) -> Present[tuple[JobDetail, ...]] | Absent | Unknown:
        """The rows of ``uid`` since then whose comment has ``word``.

        Unknown where the site does not store comments in accounting: then nothing can be read from silence.
        """
        ...

    def cancel(self, slurm_job_id: int, cluster: str | None) -> CancelAnswer:
        """Cancel one object; one that has ended already is done."""
        ...

    def config(self) -> Mapping[str, str] | Unknown:
        """``scontrol show config`` as names and values."""
        ...

    def requeue(self, slurm_job_id: int, cluster: str | None) -> ChangeAnswer:
        """End the object's execution, if it has one, and let Slurm start the object again under its id.

        One that waits already is done. Whoever calls this looks at the restart count first: a second call that
        comes late ends the execution that the first one brought.
        """
        ...

    def update(self, slurm_job_id: int, cluster: str | None, fields: Mapping[str, str]) -> ChangeAnswer:
        """Change fields of the object, by Slurm's names (``StartTime``, ``ExcNodeList``).

        :raises ValueError: a name or value that could be more than one field.
        """
        ...

    def nodes(self) -> Nodes | Unknown:
        """All nodes of the cluster, in one call."""
        ...
