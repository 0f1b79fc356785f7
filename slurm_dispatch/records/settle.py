"""Settling an intent that nobody answers for: P6 of the design, as one pure function.

Notes, then the queue, then accounting. What has the object ends the search; what does not answer stops it;
only if all answer and none has it is the number burnt.
"""

from __future__ import annotations

from dataclasses import dataclass

from slurm_dispatch.records.observation import Found, Lookups, Off, Unknown


@dataclass(frozen=True, slots=True)
class Adopt:
    """The object is there: ``how`` says which source has it."""

    cluster: str
    slurm_job_id: int
    how: str


@dataclass(frozen=True, slots=True)
class Burn:
    """Every source answers, and none has it."""

    evidence: str


@dataclass(frozen=True, slots=True)
class Wait:
    """A source gave no answer."""

    why: str


def settle(lookups: Lookups, *, asked: bool = False) -> Adopt | Burn | Wait:
    """What the sources, asked after the waiting time was over, make of an intent.

    :param asked: a person asked for the end of the job, so that nothing is submitted after it. Then accounting
        that does not answer holds nothing up: some sites' never answers by the comment.
    """
    sources = (("note", lookups.notes), ("queue", lookups.queue), ("accounting", lookups.accounting))
    for how, answer in sources:
        if isinstance(answer, Found):
            return Adopt(answer.cluster, answer.slurm_job_id, how)
        if isinstance(answer, Unknown):
            if asked and how == "accounting":
                return Burn(f"no note, nothing in the queue, and a person asked for the end; not told: {answer.why}")
            return Wait(f"the {'notes do' if how == 'note' else how + ' does'} not answer ({answer.why})")
    if isinstance(lookups.accounting, Off):
        return Burn("no note and nothing in the queue; weaker, because this site has no accounting to ask")
    return Burn("no note, nothing in the queue, nothing in accounting")
