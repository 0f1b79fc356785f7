"""What :func:`~slurm_dispatch.records.decide.decide` can tell the controller to do."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurm_dispatch.records.state import ElderExecution, SlurmObject


@dataclass(frozen=True, slots=True)
class AppendFact:
    """Append this as the next fact. If somebody else was first: read again and decide again."""

    kind: str
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Submit:
    """Write the intent for ``submission``, call sbatch as the owner, write what it said.

    :param changes: what the rule adds to sbatch's options.
    :param decision: seq of what this carries out: a decision, ``took_over``, ``reopened`` or ``adopted``.
    """

    submission: int
    changes: tuple[str, ...]
    decision: int


@dataclass(frozen=True, slots=True)
class LookUp:
    """The intent of ``submission`` may be settled now: ask notes, queue and accounting, and decide again."""

    submission: int


@dataclass(frozen=True, slots=True)
class Cancel:
    """Cancel this object, after checking that its owner and word are the job's. Already gone is success.

    :param stray: it is not the current object.
    """

    object: SlurmObject
    submission: int
    why: str
    stray: bool = False


@dataclass(frozen=True, slots=True)
class Requeue:
    """Ask Slurm to requeue this object, after checking that its owner and word are the job's.

    A certain refusal (no such job, not allowed) becomes the fact ``requeue_failed``, written by who performs
    this. Success needs no fact: the next observation shows the object alive, and ``requeued`` comes of that.
    Passed over if it was performed in the same tick already.
    """

    object: SlurmObject
    submission: int


@dataclass(frozen=True, slots=True)
class UpdateObject:
    """Change fields of a pending object (``scontrol update``), after the same checks.

    Where Slurm refuses, that is said, and the actions that come after it are performed nevertheless.

    :param fields: as scontrol names them: ``StartTime``, ``ExcNodeList``, ``TimeLimit``, ``MinMemoryNode``.
    """

    object: SlurmObject
    submission: int
    fields: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class AskCessation:
    """Ask the site's cessation signal about each of these, and decide again with ``Observation.cessation``.

    Unless it is the ``last`` time, one that was asked less than ``Policy.cessation_interval_s`` ago may be passed
    over. What gives no answer is answered ``unknown``.

    :param last: the hold runs out: every one gets an answer, so that deciding again does not ask again.
    """

    executions: tuple[ElderExecution, ...]
    last: bool = False


@dataclass(frozen=True, slots=True)
class Tell:
    """Tell the owner by the site's notify command, then append the fact ``told``.

    :param on: seq of what holds, or of the fact that is told of.
    :param what: of a hold ``start``, ``half``, ``last_hour`` or ``expired``; of another fact ``notice``.
    :param left_s: seconds that are left of the hold, by the site's clock; 0 for another fact.
    """

    on: int
    what: str
    left_s: float = field(default=0.0, compare=False)


@dataclass(frozen=True, slots=True)
class Repoint:
    """Let the owner's jobs that depend on an object that does not count any more depend on the current one, then
    append the fact ``repointed``.

    Where Slurm does not answer, that is said, and the actions that come after it are performed nevertheless.
    """

    object: SlurmObject
    submission: int


@dataclass(frozen=True, slots=True)
class CloseElder:
    """Append the fact ``closed`` (``superseded``, by this job) to the record of ``key`` if it is open, and decide
    again with ``Observation.elder_closed``.

    :param keep: the Slurm job of it that is left running.
    """

    key: str
    keep: int | None = None


@dataclass(frozen=True, slots=True)
class Nothing:
    """Nothing to do now.

    :param why: in words, for ``show`` and the log.
    :param until: Unix seconds when it is worth looking again even if nothing changes, or ``None``.
    """

    why: str
    until: float | None = None


Action = (
    AppendFact
    | Submit
    | LookUp
    | Cancel
    | Requeue
    | UpdateObject
    | Repoint
    | AskCessation
    | Tell
    | CloseElder
    | Nothing
)
