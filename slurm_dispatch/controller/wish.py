"""What a person wants of a job: facts first, then as much of it as needs nothing of the site's own.

Runs with the owner's rights and without the notes, which are the site's. What has to be decided anew is left to the
next tick, which knows the site's breaker, limits and node memory; what is decided already is done at once.

The law of this module: *the facts are written whole or not at all as far as they were read, and whoever loses a
number reads again and asks again.*
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from slurm_dispatch.controller.job import Job
from slurm_dispatch.controller.view import Details, View
from slurm_dispatch.errors import ServiceAwayError
from slurm_dispatch.records.fold import fold
from slurm_dispatch.records.state import Phase, Settled
from slurm_dispatch.slurm.port import Unknown

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurm_dispatch.controller.job import Means, Report
    from slurm_dispatch.records.people import Facts
    from slurm_dispatch.records.state import State
    from slurm_dispatch.state.jobs import Record

TRIES_MAX = 100
"""How often somebody else may take the next number of the record before it is given up."""


def write(record: Record, by: str, wish: Callable[[State], Facts]) -> State:
    """Append the facts that ``wish`` makes of the record's state.

    :param wish: called again with the newer state where somebody else wrote first.
    :returns: the state with them.
    :raises DispatchError: what ``wish`` raises, or the record cannot be read or written.
    """
    for _ in range(TRIES_MAX):
        state = fold(record.read())
        if _appended(record, by, state.seq, wish(state)):
            return fold(record.read())
    raise ServiceAwayError(f"the record of job {os.path.basename(record.folder)} changes all the time")


def _appended(record: Record, by: str, seq: int, facts: Facts) -> bool:
    return all(
        record.append(seq + position, kind, by, body) for position, (kind, body) in enumerate(facts, start=1)
    )


def begin(record: Record, means: Means, *, host: str, cluster: str) -> Report:
    """Make the submission that is decided already, and take over from a superseded job; nothing else.

    :raises DispatchError: the record cannot be read or written.
    """
    return _job(record, means, host=host, cluster=cluster).begin()


def submitted(record: Record, means: Means, host: str, cluster: str | None) -> str:
    """:func:`begin`, and how far it came, as the end of a sentence for a person."""
    report = begin(record, means, host=host, cluster=cluster or "")
    state = fold(record.read())
    current = state.object
    if state.phase is Phase.QUEUED and current is not None:
        return f": submission {state.submissions[-1].number} is Slurm job {current.slurm_job_id}"
    if state.phase is Phase.ENDED and state.current is not None and state.current.settled is Settled.REJECTED:
        return f", and sbatch refused it: {state.current.message}; the next tick decides what follows"
    return f"; the next tick goes on ({report.trouble or 'nothing more can be done here'})"


def clear(record: Record, means: Means, *, host: str, cluster: str) -> Report:
    """Cancel what a closed job still has in Slurm."""
    return _job(record, means, host=host, cluster=cluster).work()


def _job(record: Record, means: Means, *, host: str, cluster: str) -> Job:
    at = time.time()
    config = means.port.config()
    known = None if isinstance(config, Unknown) else config
    accounting = None if known is None else "slurmdbd" in known.get("AccountingStorageType", "")
    name = cluster or (known or {}).get("ClusterName", "")
    view = View(at, host, name, means.port.queue(), accounting, None, complete=False, config=known)
    return Job(record, view, Details(means.port, accounting=accounting), means)


__all__ = ["begin", "clear", "submitted", "write"]
