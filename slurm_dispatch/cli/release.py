"""``dispatch release``: a person decides that a held job goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from slurm_dispatch.cli.held import Filters, filter_options

if TYPE_CHECKING:
    from slurm_dispatch.records import people
    from slurm_dispatch.records.state import State
    from slurm_dispatch.state.jobs import Record


@click.command("release")
@click.argument("jobs", metavar="[JOB]...", nargs=-1)
@click.option("--reason", required=True, help="Why, for the record.")
@filter_options
@click.option("--yes", is_flag=True, help="Do it to the jobs that the filters take, which are only listed otherwise.")
def command(*, jobs: tuple[str, ...], reason: str, filters: Filters, yes: bool) -> int:
    """Let JOB go on: it is submitted again at once, with its budgets full again.

    For a job with a shared checkpoint this says that nothing of its older executions writes any more: look first
    (dispatch why, dispatch ps). A job whose hold ran out within the last 14 days is opened again.

    \b
    Examples:
      dispatch release k3v9x2m41q0z --reason "the node is off"
      dispatch release --partition gpu --reason-like "*quota*" --reason "more space" --yes

    Exit codes: 0 done, 64 usage (also a job that nothing holds), 66 no such job, 69 the state folder does not
    answer, 77 another's jobs, or the site does not let you have one more open job.
    """
    import time

    from slurm_dispatch.cli.held import is_held
    from slurm_dispatch.cli.many import act
    from slurm_dispatch.cli.wishes import bench
    from slurm_dispatch.controller import wish
    from slurm_dispatch.records import people
    from slurm_dispatch.records.fold import fold
    from slurm_dispatch.records.state import Phase
    from slurm_dispatch.submit.open_jobs import check_open_jobs

    here = bench()

    def work(record: Record) -> dict[str, Any]:
        before: list[State] = []
        state = fold(record.read())
        if state.closed is not None:  # it is opened again
            check_open_jobs(here.folder, state.spec, here.site)

        def released(state: State) -> people.Facts:
            before.append(state)
            return people.release(state, reason, time.time())

        wish.write(record, here.means.by, released)
        if before[-1].phase not in {Phase.HELD, Phase.CLOSED}:
            return {"text": f"is released before anything was held; it is {before[-1].phase}"}
        return {"text": f"is released{here.submitted(record)}"}

    return act(here, jobs, filters, "release", work, yes=yes, takes=is_held, submits=True)
