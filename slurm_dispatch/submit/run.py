"""One submission of a job: intent, sbatch, and what came of it, each a fact (P6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slurm_dispatch.model.identity import Word
    from slurm_dispatch.slurm.port import SbatchCall, SlurmPort, SubmitAnswer
    from slurm_dispatch.state.jobs import Record


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


def submit_once(
    record: Record,
    port: SlurmPort,
    intent: Intent,
    call: SbatchCall,
    *,
    seq: int,
    by: str,
    settle_after_s: float,
) -> SubmitAnswer | Superseded:
    """Write ``intent`` as fact ``seq`` + 1, call sbatch once, write ``submitted`` or ``rejected``.

    An ambiguous answer is left without a fact: the tick settles it by :func:`slurm_dispatch.submit.lookup.settle`.
    Runs as the job's owner.

    :param seq: the last fact that the caller has read.
    """
    raise NotImplementedError
