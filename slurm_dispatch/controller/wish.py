"""What a person wants of a job: facts first, then as much of it as needs nothing of the site's own.

Runs with the owner's rights and without the notes, which are the site's. What has to be decided anew is left to the
next tick, which knows the site's breaker, limits and node memory; what is decided already is done at once.

The law of this module: *facts stand on the facts that were read, and whoever loses a number reads again and asks
again.*
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from slurm_dispatch.controller.job import Job
from slurm_dispatch.controller.view import Details, View
from slurm_dispatch.errors import ServiceAwayError
from slurm_dispatch.records.fold import fold
from slurm_dispatch.records.state import Phase, Settled
from slurm_dispatch.slurm.configuration import has_accounting
from slurm_dispatch.slurm.port import Queue, Unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from slurm_dispatch.controller.job import Means
    from slurm_dispatch.records.people import Facts
    from slurm_dispatch.records.state import State
    from slurm_dispatch.state.jobs import Record

TRIES_MAX = 100
"""How often somebody else may take the next number of the record before it is given up."""


def write(record: Record, by: str, wish: Callable[[State], Facts]) -> State:
    """Append the facts that ``wish`` makes of the record's state.

    :param wish: called again with the newer state where somebody else wrote first; it may want none.
    :returns: the state with them, and with what others have written since.
    :raises DispatchError: what ``wish`` raises, or the record cannot be read or written.
    """
    for _ in range(TRIES_MAX):
        state = fold(record.read())
        if _appended(record, by, state.seq, wish(state)):
            return fold(record.read())
    raise ServiceAwayError(f"the record of job {record.key} changes all the time")


def _appended(record: Record, by: str, seq: int, facts: Facts) -> bool:
    return all(
        record.append(seq + position, kind, by, body) for position, (kind, body) in enumerate(facts, start=1)
    )


def see(means: Means, *, host: str, cluster: str) -> View:
    """What Slurm says now, for :func:`submitted` and :func:`clear`: a fixed number of questions, for any number of
    jobs."""
    return view_of(means, means.port.config(), host=host, cluster=cluster)


def view_of(means: Means, config: Mapping[str, str] | Unknown, *, host: str, cluster: str) -> View:
    """The queue as Slurm tells it now, with a configuration that was asked before."""
    at = time.time()
    known = None if isinstance(config, Unknown) else config
    accounting = means.accounting
    if accounting is None and known is not None:
        accounting = has_accounting(known)
    name = cluster or (known or {}).get("ClusterName", "")
    view = View(at, host, name, means.port.queue(), accounting, None, complete=False, config=known)
    view.more = lambda place: _elsewhere(means, place)
    return view


def _elsewhere(means: Means, place: str) -> tuple[Queue | Unknown, Mapping[str, str] | None]:
    """Another cluster's queue and configuration."""
    try:
        there = means.port.at(place)
    except ValueError as error:
        return Unknown(str(error)), None
    queue = there.queue()
    config = there.config() if isinstance(queue, Queue) else Unknown("")
    return queue, None if isinstance(config, Unknown) else config


def submitted(record: Record, means: Means, view: View, *, adopted: bool = False) -> str:
    """Make the submission that is decided already, taking over from a superseded job first, and nothing else.

    :param adopted: the caller has published what the record says that it adopts: nothing waits for that any more.
    :returns: how far it came, as the end of a sentence for a person.
    :raises DispatchError: the record cannot be read or written.
    """
    means = replace(means, policy=replace(means.policy, adopted=adopted))
    report = job_in(record, means, view).begin()
    state = fold(record.read())
    current, it = state.current, state.object
    if it is not None and current is not None:
        return f": submission {current.number} is Slurm job {it.slurm_job_id}"
    if state.phase is Phase.ENDED and current is not None and current.settled is Settled.REJECTED:
        return f", and sbatch refused it: {current.message}; the next tick decides what follows"
    if state.phase is Phase.SUBMITTING and current is not None:
        return f"; whether Slurm has submission {current.number} is not known yet, and the next ticks find out"
    if state.phase is Phase.HELD and state.holding is not None:
        return f", and is held: {state.holding.reason}"
    if state.phase is Phase.NEW and state.spec.supersedes is not None:
        return f"; the next ticks go on once it is known what runs of job {state.spec.supersedes}"
    if state.closed is not None:
        return f", and is closed: {state.closed.why} ({state.closed.reason})"
    return "; the next tick goes on" + (f" ({report.trouble})" if report.trouble else "")


def cancel_replaced(record: Record, means: Means, view: View) -> None:
    """Cancel an object that waits in Slurm and that a later submission replaces; what this cannot do a tick does.

    Slurm's word is needed that the id is still that of this job.
    """
    state = fold(record.read())
    for submission in state.submissions:
        it = submission.object
        place = view.place(state.spec, it)
        queued = None if it is None or not submission.replaced else view.of(place).of_id(it.slurm_job_id)
        if it is None or queued is None or queued.state != "PENDING":
            continue
        ours = (queued.uid, queued.word) == (state.spec.uid, state.spec.word(submission.number))
        if ours and not queued.in_array:
            means.port.cancel(queued.slurm_job_id, place or None)


def clear(record: Record, means: Means, view: View) -> str:
    """Cancel what a closed job still has in Slurm; why it could not be done, or empty."""
    return job_in(record, means, view).work().trouble


def job_in(record: Record, means: Means, view: View) -> Job:
    """The job in a pass that a person makes: without notes, and of the site nothing but Slurm's own word."""
    return Job(record, view, Details(means.port, accounting=view.accounting), means)


__all__ = ["cancel_replaced", "clear", "job_in", "see", "submitted", "view_of", "write"]
