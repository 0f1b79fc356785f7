"""``dispatch reopen``: undo that a job was closed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from slurm_dispatch.state.jobs import Record


@click.command("reopen")
@click.argument("job")
@click.option("--reason", required=True, help="Why, for the record.")
def command(*, job: str, reason: str) -> int:
    """Open JOB again, whatever closed it: it is submitted once more and resumes from its latest save.

    With a shared checkpoint it is held first, until a person releases it or every older execution has ceased.

    \b
    Examples:
      dispatch reopen 4711 --reason "it should train for another epoch"

    Exit codes: 0 done, 64 usage (also a job that is open, or that another goes on for), 66 no such job, 69 the
    state folder does not answer, 77 the site does not let you have one more open job.
    """
    from slurm_dispatch.cli.wishes import bench
    from slurm_dispatch.controller import wish
    from slurm_dispatch.records import people
    from slurm_dispatch.records.fold import fold
    from slurm_dispatch.records.state import Phase
    from slurm_dispatch.submit.open_jobs import check_open_jobs

    here = bench()
    key = here.key(job)

    def work(record: Record) -> dict[str, Any]:
        check_open_jobs(here.folder, fold(record.read()).spec, here.site)
        state = wish.write(record, here.means.by, lambda before: people.reopen(before, reason))
        if state.phase is Phase.HELD:
            return {"text": "is open again, and held until every older execution has ceased or you release it"}
        return {"text": f"is open again{here.submitted(record)}"}

    click.echo(f"job {key} {here.as_owner(key, work, submits=True)['text']}")
    return 0
