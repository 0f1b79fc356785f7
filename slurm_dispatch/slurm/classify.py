"""The outcome of an execution that has ended, from what the helper and Slurm say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slurm_dispatch.model.outcome import Outcome
    from slurm_dispatch.slurm.port import JobDetail


@dataclass(frozen=True, slots=True)
class HelperEnd:
    """What the helper handed on (the fact ``ended``): the command's own status or signal, or a word."""

    status: int | None = None
    signal: int | None = None
    outcome: str | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """An outcome, or none yet.

    :param outcome: ``None``: it has not ended, or what Slurm says is not known; ``why`` says which.
    :param final: false where Slurm restarts the object itself.
    """

    outcome: Outcome | None
    why: str
    final: bool = True


def classify(detail: JobDetail, ended: HelperEnd | None, *, started: bool) -> Verdict:
    """Why an execution ended. The helper's word comes first, then Slurm's.

    :param started: the batch script began (a start note, or a start time that Slurm does not take back).
    """
    raise NotImplementedError
