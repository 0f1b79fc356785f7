"""A person's wish to end a job: a fact first, then the same passes that a tick makes, until it is closed.

Runs with the owner's rights and without the notes, which are the site's: what only they can settle is left to
the next tick, which finds the wish in the record.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurm_dispatch.controller.wish import job_in, view_of
from slurm_dispatch.errors import BadDataError
from slurm_dispatch.records.fold import fold
from slurm_dispatch.records.state import Phase
from slurm_dispatch.submit.run import append_while

if TYPE_CHECKING:
    from slurm_dispatch.controller.job import Means
    from slurm_dispatch.state.jobs import Record

PAUSE_S = (0.3, 3.0)
"""How long to wait before Slurm is asked again: the first time, and the most; doubled each time."""


@dataclass(frozen=True, slots=True)
class Cancelled:
    """How far it came.

    :param closed: the ``why`` of the closing fact; ``None``: not closed yet, and ``trouble`` says why.
    :param already: the job was closed before.
    """

    closed: str | None
    reason: str = ""
    trouble: str = ""
    already: bool = False


def cancel(record: Record, reason: str, means: Means, *, host: str, cluster: str, wait_s: float) -> Cancelled:
    """Ask for the end of the job and carry it out as far as it goes within ``wait_s``.

    :raises NothingThereError: there is no such job.
    """
    if not ask(record, reason, means.by):
        closed = fold(record.read()).closed
        return Cancelled(closed.why if closed else None, closed.reason if closed else "", already=True)
    until = time.monotonic() + wait_s
    pause, longest = PAUSE_S
    config = means.port.config()
    while True:
        job = job_in(record, means, view_of(means, config, host=host, cluster=cluster))
        report = job.work()
        state = fold(record.read())
        if state.phase is Phase.CLOSED and state.closed is not None:
            return Cancelled(state.closed.why, state.closed.reason)
        if time.monotonic() >= until:
            return Cancelled(None, trouble=report.trouble or job.waits or "Slurm does not tell yet that it has ended")
        time.sleep(max(0.0, min(pause, until - time.monotonic())))
        pause = min(2 * pause, longest)


def ask(record: Record, reason: str, by: str) -> bool:
    """Write the wish, unless it is there.

    :returns: false if the job is closed.
    """
    body = {"what": "cancel", "reason": reason}
    state = append_while(
        record, "request", by, body, lambda it: it.phase is not Phase.CLOSED and it.request is None
    )
    return state is None or state.phase is not Phase.CLOSED


def pack(outcome: Cancelled) -> bytes:
    """``outcome`` as a child hands it to its parent."""
    return json.dumps([outcome.closed, outcome.reason, outcome.trouble, outcome.already]).encode("ascii")


def unpack(data: bytes) -> Cancelled:
    """The opposite of :func:`pack`."""
    try:
        closed, reason, trouble, already = json.loads(data)
    except (ValueError, TypeError, RecursionError) as error:
        raise BadDataError(f"the owner's child answered nonsense: {error}") from error
    return Cancelled(None if closed is None else str(closed), str(reason), str(trouble), bool(already))


__all__ = ["Cancelled", "ask", "cancel", "pack", "unpack"]
