"""One act on the jobs that are named, or on those that filters take: first shown, then done."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from slurm_dispatch.cli.held import jobs_of
from slurm_dispatch.cli.layout import age, dash, table
from slurm_dispatch.errors import DispatchError, UsageError, one_line
from slurm_dispatch.records.describe import state_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from slurm_dispatch.cli.held import Filters
    from slurm_dispatch.cli.wishes import Bench
    from slurm_dispatch.records.state import State
    from slurm_dispatch.state.jobs import Record


def act(
    bench: Bench,
    jobs: Sequence[str],
    filters: Filters,
    verb: str,
    work: Callable[[Record], dict[str, Any]],
    *,
    yes: bool,
    takes: Callable[[State], bool],
    submits: bool = False,
) -> int:
    """Do ``work`` on each job, as its owner; one line for each.

    :param takes: of the jobs that the filters take, those that it concerns.
    :returns: 0, or the exit code of the last job that it could not be done to.
    :raises UsageError: neither jobs nor filters, or both.
    """
    if bool(jobs) == bool(filters):
        raise UsageError(
            "name the jobs, or choose them by filters, and not both",
            hint=f"dispatch {verb} JOB..., or --user, --account, --partition, --reason-like",
        )
    if not jobs:
        states, trouble = jobs_of(bench, filters)
        chosen = {key: state for key, state in states.items() if takes(state)}
        for line in trouble:
            click.echo(f"dispatch: {one_line(line)}", err=True)
        if not yes:
            click.echo(_listed(chosen, verb))
            return 0
        keys = sorted(chosen)
    else:
        keys = list(dict.fromkeys(bench.key(job) for job in jobs))
    status = 0
    for key in keys:
        try:
            click.echo(f"job {key} {one_line(str(bench.as_owner(key, work, submits=submits)['text']))}")
        except DispatchError as error:
            if len(keys) == 1:
                raise
            click.echo(f"dispatch: {error.line()}", err=True)
            status = error.exit_code
    return status


def _listed(states: dict[str, State], verb: str) -> str:
    now = time.time()
    rows = [
        [key, it.spec.name, it.spec.user, dash(it.spec.partition), state_text(it), age(it.changed, now)]
        for key, it in sorted(states.items())
    ]
    if not rows:
        return "no job is meant"
    head = ("JOB", "NAME", "USER", "PARTITION", "STATE", "CHANGED")
    count = "this job is" if len(rows) == 1 else f"these {len(rows)} jobs are"
    return f"{table(head, rows)}\n{count} meant; nothing was done: give --yes to {verb}"


__all__ = ["act"]
