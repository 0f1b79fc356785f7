"""``dispatch hold``: nothing more is started until somebody releases it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from slurm_dispatch.cli.held import Filters, filter_options

if TYPE_CHECKING:
    from slurm_dispatch.records import people
    from slurm_dispatch.records.state import State
    from slurm_dispatch.state.jobs import Record


@click.command("hold")
@click.argument("jobs", metavar="[JOB]...", nargs=-1)
@click.option("--reason", required=True, help="Why, for the record.")
@click.option("--for", "length", metavar="TIME", help="How long, such as 12h; then the job is closed.")
@filter_options
@click.option("--yes", is_flag=True, help="Do it to the jobs that the filters take, which are only listed otherwise.")
def command(*, jobs: tuple[str, ...], reason: str, length: str | None, filters: Filters, yes: bool) -> int:
    """Hold JOB: what runs or waits in Slurm now is left alone, and nothing is submitted after it.

    JOB is the job's key, any Slurm job id that it ever had, or its unique name. Instead of jobs, filters choose
    among the open ones; without --yes they are only listed.

    \b
    Examples:
      dispatch hold k3v9x2m41q0z --reason "the loss looks wrong"
      dispatch hold --user ada --partition gpu --reason "quota" --yes

    Exit codes: 0 done, 64 usage (also a job that is closed), 66 no such job, 69 the state folder does not answer,
    77 another's jobs, or a hold that is longer than the site allows.
    """
    from slurm_dispatch.cli.many import act
    from slurm_dispatch.cli.wishes import bench
    from slurm_dispatch.controller import wish
    from slurm_dispatch.errors import BadDataError, UsageError
    from slurm_dispatch.model.quantity import parse_duration
    from slurm_dispatch.records import people
    from slurm_dispatch.submit.limits import check_hold

    try:
        for_s = None if length is None else parse_duration(length)
    except BadDataError as error:
        raise UsageError(f"--for: {error}", hint=error.hint) from error
    if for_s == 0:
        raise UsageError("--for: a hold of no length holds nothing")
    here = bench()

    def work(record: Record) -> dict[str, Any]:
        def held(state: State) -> people.Facts:
            check_hold(state.spec, for_s, here.site)
            return people.hold(state, reason, for_s)

        return {"text": f"is held{_more(wish.write(record, here.means.by, held))}"}

    return act(here, jobs, filters, "hold", work, yes=yes, takes=lambda state: state.hold is None)


def _more(state: State) -> str:
    """What becomes of what is there already."""
    from slurm_dispatch.records.state import Phase

    current, it = state.current, state.object
    if it is not None and state.phase is Phase.RUNNING:
        return f"; Slurm job {it.slurm_job_id} runs on, and nothing follows it"
    if it is not None:
        return f"; Slurm job {it.slurm_job_id} stays with Slurm, which may start it, and nothing follows it"
    if state.phase is Phase.SUBMITTING and current is not None:
        return f"; submission {current.number} is on its way to Slurm, and nothing follows it"
    return ""
