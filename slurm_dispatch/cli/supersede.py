"""``dispatch supersede``: a new job goes on in the place of an old one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from slurm_dispatch.cli.wishes import Bench
    from slurm_dispatch.records import people
    from slurm_dispatch.records.state import State
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
    does not answer, 75 it broke off half-way and a tick finishes it, 77 not allowed.
    """
    from slurm_dispatch.cli.wishes import bench
    from slurm_dispatch.errors import NotAllowedError, one_line

    here = bench()
    key = here.key(job)
    request = None
    if sbatch:
        if not here.is_mine(key):  # its script would be read, and its environment be made, with another's rights
            raise NotAllowedError(
                f"a new script or new options for job {key} come from its owner",
                hint=f"run it as {here.owner(key)}, or without arguments of sbatch",
            )
        request = _request(here, sbatch)

    def work(record: Record) -> dict[str, Any]:
        return _supersede(here, record, request, reason, keep_running=keep_running)

    found = here.as_owner(key, work, submits=True)
    click.echo(one_line(found["text"]))
    if request is not None and not request.settings.flag("no-plan"):
        _say_plan(here, request)
    return 0


def _request(here: Bench, sbatch: tuple[str, ...]) -> Request:
    from slurm_dispatch.errors import UsageError
    from slurm_dispatch.slurm.resubmit import NOT_REPEATED
    from slurm_dispatch.submit.first import all_options
    from slurm_dispatch.submit.request import Plain, prepare

    more = all_options(here.means.site_environment)
    found = prepare(sbatch, environment=dict(os.environ), site=here.site, more=more, need_root=False)
    if isinstance(found, Plain):
        raise UsageError(f"this is no job that can go on in the place of another: {found.why}")
    settings = found.settings
    for name in ("adopt-root", "start-from"):
        if settings.values[name]:
            raise UsageError(f"--{name} is not for a job that goes on in the place of another")
    for name in sorted(NOT_REPEATED - {"comment", "quiet", "verbose", "dependency"}):
        if found.line.has(name):
            raise UsageError(f"--{name} is not for a job that goes on in the place of another")
    return found


def _say_plan(here: Bench, request: Request) -> None:
    from slurm_dispatch.cli.main import say
    from slurm_dispatch.submit.plan import make_plan
    from slurm_dispatch.submit.plan_text import short_plan

    for line in short_plan(make_plan(request, here.site, here.view().config)):
        say(line)


def _supersede(
    here: Bench, record: Record, request: Request | None, reason: str, *, keep_running: bool
) -> dict[str, Any]:
    from slurm_dispatch.controller import wish
    from slurm_dispatch.errors import DispatchError, OutcomeUnknownError, UsageError
    from slurm_dispatch.records import people
    from slurm_dispatch.records.fold import fold
    from slurm_dispatch.submit.open_jobs import check_open_jobs
    from slurm_dispatch.submit.supersede import make_new, make_repeated

    by, elder = here.means.by, fold(record.read())
    keep = _kept(elder) if keep_running else None
    people.supersede(elder, elder.spec.job, reason, keep)  # what is refused is refused before anything is made
    if elder.closed is not None:
        check_open_jobs(here.folder, elder.spec if request is None else request.spec, here.site)
    if request is None:
        new = make_repeated(here.folder, elder, record, keep=keep, by=by)
    else:
        new = make_new(here.folder, elder, request, dict(os.environ), keep=keep, by=by)

    def closed(state: State) -> people.Facts:
        if state.closed is not None and state.closed.by_job == new.key:
            return ()  # a tick has seen the new job and was faster
        return people.supersede(state, new.key, reason, keep)

    try:
        wish.write(record, by, closed)
    except UsageError:
        # Somebody else's job goes on: this one has never been anything, and a tick would say so too.
        wish.write(new, by, _never_was)
        raise
    except DispatchError as error:
        raise OutcomeUnknownError(
            f"whether job {new.key} goes on in the place of job {record.key} is not known: {error}",
            hint=f"the next tick brings it about; look at dispatch show {new.key} first",
        ) from error
    left = _left(elder, keep, wish.clear(record, here.means, here.view()))
    return {"text": f"job {new.key} goes on in the place of job {record.key}{here.submitted(new)}{left}"}


def _kept(elder: State) -> int:
    """The Slurm job that runs on.

    :raises UsageError: none runs.
    """
    from slurm_dispatch.errors import UsageError
    from slurm_dispatch.records.state import Phase

    if elder.phase is not Phase.RUNNING or elder.object is None:
        text = f"job {elder.spec.job} does not run: it is {elder.phase}"
        raise UsageError(text, hint="leave --keep-running out")
    return elder.object.slurm_job_id


def _never_was(state: State) -> people.Facts:
    if state.closed is not None:
        return ()
    return (("closed", {"why": "never_submitted", "reason": "another job went on in the place of the same one"}),)


def _left(elder: State, keep: int | None, trouble: str) -> str:
    """What becomes of what the old job has in Slurm."""
    if keep is not None:
        return f"; its Slurm job {keep} runs on, and its saves count no more"
    if trouble:
        return f"; the next tick cancels what the old one has in Slurm ({trouble})"
    return "" if elder.object is None else f"; the old one's Slurm job {elder.object.slurm_job_id} is cancelled"
