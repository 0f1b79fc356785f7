"""``dispatch cancel``: close a job for good and cancel what it has in Slurm."""

from __future__ import annotations

import json

import click

from slurm_dispatch.errors import one_line


@click.command("cancel")
@click.argument("job")
@click.option("--reason", default="", help="Why, for the record.")
@click.option(
    "--wait",
    "wait_s",
    type=click.FloatRange(0, 3600),
    default=15.0,
    show_default=True,
    help="How many seconds to wait for Slurm to say that it has ended.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(*, job: str, reason: str, wait_s: float, as_json: bool) -> int:
    """Close JOB for good: nothing is submitted for it any more, and its Slurm job is cancelled.

    JOB is the job's key, any Slurm job id that it ever had, or its unique name. The wish is in the job's record
    before anything is cancelled, so that the next tick finishes what this command cannot.

    \b
    Examples:
      dispatch cancel k3v9x2m41q0z
      dispatch cancel 4711 --reason "wrong data"

    Exit codes: 0 closed, 66 no such job, 69 the state folder does not answer, 75 recorded, and Slurm has not
    said yet that it has ended.
    """
    from slurm_dispatch.cli.wishes import QUESTIONS, bench
    from slurm_dispatch.controller import cancel
    from slurm_dispatch.errors import NothingThereError
    from slurm_dispatch.state.as_user import in_child
    from slurm_dispatch.state.users import identity

    here = bench()
    key = here.key(job)
    site, host, means = here.site, here.host, here.means
    record = here.folder.record(key)

    def work() -> bytes:
        return cancel.pack(cancel.cancel(record, reason, means, host=host, cluster=site.cluster or "", wait_s=wait_s))

    found = here.folder.job(key)
    if found is None:
        raise NothingThereError(f"job {key} has just been removed")
    owner = found.uid
    deadline_s = wait_s + site.owner_timeout_s + QUESTIONS * site.query_timeout_s
    # Root cancels for a user with that user's rights; a user's own goes the same way, with a deadline.
    outcome = cancel.unpack(in_child(owner, *identity(owner), work, deadline_s))
    if as_json:
        click.echo(
            json.dumps(
                {
                    "job": key,
                    "closed": outcome.closed,
                    "reason": outcome.reason,
                    "trouble": outcome.trouble,
                    "already": outcome.already,
                }
            )
        )
    elif outcome.closed is not None:
        was = "was closed already" if outcome.already else "is closed"
        click.echo(f"job {key} {was}: {outcome.closed}{f' ({one_line(outcome.reason)})' if outcome.reason else ''}")
    else:
        click.echo(f"job {key}: the wish is recorded, and a tick will carry it out ({one_line(outcome.trouble)})")
    return 0 if outcome.closed is not None else 75
