"""What :func:`~slurm_dispatch.records.decide.decide` can tell the controller to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurm_dispatch.records.state import SlurmObject


@dataclass(frozen=True, slots=True)
class AppendFact:
    """Append this as the next fact. If somebody else was first: read again and decide again."""

    kind: str
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Submit:
    """Write the intent for ``submission``, call sbatch as the owner, write what it said.

    :param changes: what the rule adds to sbatch's options.
    :param decision: seq of the decision that this carries out.
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
class Nothing:
    """Nothing to do now.

    :param why: in words, for ``show`` and the log.
    :param until: Unix seconds when it is worth looking again even if nothing changes, or ``None``.
    """

    why: str
    until: float | None = None


Action = AppendFact | Submit | LookUp | Cancel | Nothing
