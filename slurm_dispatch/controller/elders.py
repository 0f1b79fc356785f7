"""Other records of the same owner that a job's pass looks into: those of the jobs that it supersedes.

Runs with the owner's rights, so that a record of somebody else's cannot be read or written, whatever a fact says.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from slurm_dispatch.errors import BadDataError, DispatchError
from slurm_dispatch.model.hostlist import expand
from slurm_dispatch.model.identity import check_key
from slurm_dispatch.records import elders as pure
from slurm_dispatch.records.cessation import AskedExecution, words_of
from slurm_dispatch.records.fold import fold
from slurm_dispatch.records.observation import ElderClosed, Unknown
from slurm_dispatch.state.jobs import Record
from slurm_dispatch.submit.run import append_while

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from slurm_dispatch.records.facts import Fact
    from slurm_dispatch.records.state import ElderExecution, State

CHAIN_MAX = 16
"""Elders of elders whose records are read for what nodes said: more have nothing that still runs."""


def record_of(record: Record, key: str) -> Record:
    """The record of job ``key`` beside ``record``.

    :raises BadDataError: ``key`` is none.
    """
    return Record(os.path.join(os.path.dirname(record.folder), check_key(key)))


def closed(record: Record, state: State) -> ElderClosed | Unknown | None:
    """How the job that this one supersedes was closed; ``None``: it is open."""
    if state.spec.supersedes is None:
        return Unknown("it supersedes none")
    try:
        return pure.elder_closed(_state_of(record, state, state.spec.supersedes), shared=state.spec.shared)
    except DispatchError as error:
        return Unknown(error.line())


def close(record: Record, state: State, *, keep: int | None, by: str) -> bool:
    """Close the superseded job in favour of this one, if it is open.

    :returns: false if somebody else's closing fact came first.
    :raises DispatchError: its record cannot be read or written.
    """
    key = state.spec.supersedes
    if key is None:
        raise BadDataError(f"job {state.spec.job} supersedes none")
    other = record_of(record, key)
    body = {"why": "superseded", "reason": f"job {state.spec.job} goes on", "by_job": state.spec.job, "keep": keep}
    return append_while(other, "closed", by, body, lambda elder: _ours(elder, state).closed is None) is None


def _state_of(record: Record, state: State, key: str) -> State:
    return _ours(fold(record_of(record, key).read()), state)


def _ours(elder: State, state: State) -> State:
    """The elder's state, if its owner is this job's."""
    if elder.spec.uid != state.spec.uid:
        raise BadDataError(f"job {elder.spec.job} is of uid {elder.spec.uid}")
    return elder


def questions(
    record: Record, state: State, facts: Sequence[Fact], asked: Iterable[ElderExecution]
) -> list[AskedExecution]:
    """What is asked about these executions of the job and of its elders, with all that nodes have said of each."""
    wanted = list(asked)
    told = list(facts)
    own = {execution.attempt for submission in state.submissions for execution in submission.executions}
    if any(it.attempt not in own for it in wanted):
        told += _elders_facts(record, state)
    ends = {
        execution.attempt: end.at
        for submission in state.submissions
        for end in submission.ends
        for execution in submission.executions
        if execution.epoch.restart == end.restart
    }
    found: list[AskedExecution] = []
    for it in wanted:
        try:
            found.append(
                AskedExecution(
                    it.cluster, it.slurm_job_id, it.attempt, expand(it.nodes), it.start_time, ends.get(it.attempt),
                    state.spec.uid, state.spec.user, words_of(told, it.attempt),
                )
            )  # fmt: skip
        except BadDataError:
            continue  # without a list of nodes nobody can say anything of it
    return found


def _elders_facts(record: Record, state: State) -> list[Fact]:
    """The facts of the elders, as far as they can be read: what is missing is not known."""
    found: list[Fact] = []
    key = state.spec.supersedes
    for _ in range(CHAIN_MAX):
        if key is None:
            break
        try:
            facts = record_of(record, key).read()
            key = fold(facts).spec.supersedes
        except DispatchError:
            break
        found += facts
    return found


__all__ = ["close", "closed", "questions", "record_of"]
