"""``dispatch supersede``: a new job goes on in the place of an old one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from slurm_dispatch.cli.wishes import Bench
    from slurm_dispatch.state.jobs import Record
    from slurm_dispatch.submit.request import Request


@click.command("supersede", context_settings={"ignore_unknown_options": False})
@click.argument("job")
@click.option("--reason", default="", help="Why, for the record.")
@click.option("--keep-running", is_flag=True, help="Leave alone what runs of the old job; its saves count no more.")
@click.argument("sbatch", metavar="[-- SBATCH ARGUMENTS]", nargs=-1, type=click.UNPROCESSED)
def command(*, job: str, reason: str, keep_running: bool, sbatch: tuple[str, ...]) -> int:
    """Close JOB in favour of a new job in the same checkpoint root, which resumes from its latest save and outranks
    every save of it, also those that are still to come.

    Without arguments of sbatch the new job repeats the old one's script, options and environment. With them it is
    what they say, as for dispatch sbatch; the checkpoint root stays. What the old job has in Slurm is cancelled.

    \b
    Examples:
      dispatch supersede 4711 --reason "a lower learning rate" -- --time=2-0 train.sh --lr 1e-4
      dispatch supersede my-training

    Exit codes: 0 done, 64 usage (also a job that another goes on for already), 66 no such job, 69 the state folder
    does not answer, 77 not allowed.
    """
    from slurm_dispatch.cli.wishes import bench

    here = bench()
    key = here.key(job)
    request = _request(here, sbatch) if sbatch else None

    def work(record: Record) -> dict[str, Any]:
        return {"text": _supersede(here, record, request, reason, keep_running=keep_running)}

    click.echo(str(here.as_owner(key, work, submits=True)["text"]))
    return 0


def _request(here: Bench, sbatch: tuple[str, ...]) -> Request:
    from slurm_dispatch.errors import UsageError
    from slurm_dispatch.submit.first import all_options
    from slurm_dispatch.submit.request import Plain, prepare

    asking = here.means.site_environment
    found = prepare(
        sbatch, environment=dict(os.environ), site=here.site, more=all_options(asking), need_root=False
    )
    if isinstance(found, Plain):
        raise UsageError(f"this is no job that can go on in the place of another: {found.why}")
    return found


def _supersede(here: Bench, record: Record, request: Request | None, reason: str, *, keep_running: bool) -> str:
    from slurm_dispatch.controller import wish
    from slurm_dispatch.errors import DispatchError, UsageError
    from slurm_dispatch.records import people
    from slurm_dispatch.records.fold import fold
    from slurm_dispatch.records.state import Phase
    from slurm_dispatch.submit.supersede import make_new, make_repeated

    by, host, cluster = here.means.by, here.host, here.site.cluster
    elder = fold(record.read())
    keep = None
    if keep_running:
        if elder.phase is not Phase.RUNNING or elder.object is None:
            text = f"job {elder.spec.job} does not run: it is {elder.phase}"
            raise UsageError(text, hint="leave --keep-running out")
        keep = elder.object.slurm_job_id
    people.supersede(elder, elder.spec.job, reason, keep)  # what is refused is refused before anything is made
    if request is None:
        new = make_repeated(here.folder, elder, record, keep=keep, by=by)
    else:
        new = make_new(here.folder, elder, request, dict(os.environ), keep=keep, by=by)
    try:
        wish.write(record, by, lambda state: people.supersede(state, new.key, reason, keep))
    except DispatchError:
        # Somebody else's job goes on: this one has never been anything.
        wish.write(new, by, lambda _: (("closed", {"why": "never_submitted", "reason": "not superseded"}),))
        raise
    text = f"job {new.key} goes on in the place of job {record.key}"
    how = wish.submitted(new, here.means, host, cluster)
    trouble = wish.clear(record, here.means, host=host, cluster=cluster or "").trouble
    return f"{text}{how}" + (f"; of the old job: {trouble}" if trouble else "")
