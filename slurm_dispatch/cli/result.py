"""``dispatch result JOB``: the folder of the execution that completed."""

from __future__ import annotations

import json
import os
import secrets
import stat
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from slurm_dispatch.cli.main import say
from slurm_dispatch.durable import TEMPORARY_PREFIX
from slurm_dispatch.errors import (
    AbsentError,
    BadDataError,
    CannotCreateError,
    NothingThereError,
    UsageError,
    show,
    store_error,
)
from slurm_dispatch.s3.place import is_place

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slurm_dispatch.model.publication import Publication
    from slurm_dispatch.records.state import Execution, State
    from slurm_dispatch.store.roots import Root


@dataclass(frozen=True, slots=True)
class Result:
    """What a job came to.

    :ivar directory: of the execution that completed; it is there. The root itself for a shared checkpoint.
    :ivar save: the last save that it published and that is still there, or ``None``.
    :ivar step: of the last publication of it, there or not; ``None`` if it published nothing.
    :ivar best: its best save by a score, if its training kept one.
    """

    job: str
    epoch: int
    attempt: str
    directory: str
    save: str | None
    step: int | None
    best: str | None


def completed(key: str, state: State) -> Execution:
    """The execution of a closed job that completed, the last one if several did.

    :raises NothingThereError: none did, or not yet.
    """
    from slurm_dispatch.model.outcome import Outcome
    from slurm_dispatch.records.state import Phase

    if state.phase is not Phase.CLOSED:
        hint = f"dispatch show {key} says where it is"
        raise NothingThereError(f"job {key} has not completed: it is {state.phase.value}", hint=hint)
    for submission in reversed(state.submissions):
        for end in reversed(submission.ends):
            if end.outcome is not Outcome.COMPLETED:
                continue
            known = submission.executions
            same = [one for one in known if end.restart is None or one.epoch.restart == end.restart]
            if same or known:
                return (same or list(known))[-1]
            raise NothingThereError(
                f"job {key} completed in submission {submission.number}, and no hook said which execution that was",
                hint="see that PrologSlurmctld is installed; dispatch ls --root ROOT lists what was published",
            )
    why = "" if state.closed is None else f": it was closed as {state.closed.why}"
    hint = "dispatch latest --root ROOT names the last save"
    raise NothingThereError(f"no execution of job {key} completed{why}", hint=hint)


def result_of(key: str, state: State) -> Result:
    """The result of a job, from its record and its checkpoint root.

    :raises NothingThereError: no execution completed, or the job has no root.
    :raises BadDataError: the folder is gone.
    :raises StoreError: it could not be looked.
    """
    from slurm_dispatch.anyroot import open_store
    from slurm_dispatch.store.best import is_best_there, read_best

    execution = completed(key, state)
    if not state.spec.root:
        raise NothingThereError(f"job {key} has no checkpoint root")
    root = open_store(state.spec.root, say=say)
    epoch, attempt = int(execution.epoch), execution.attempt
    if state.spec.shared:
        return Result(key, epoch, attempt, root.path, None, None, None)
    directory = root.execution(attempt)
    if attempt not in root.executions():
        raise BadDataError(f"job {key} completed in {show(directory)}, which is gone", hint="somebody removed it")
    own = [one for one in root.listing() if one.attempt == attempt]
    save = _newest_there(root, own)
    best = read_best(root, attempt)
    return Result(
        key, epoch, attempt, directory, None if save is None else root.path_of(save.path),
        own[0].step if own else None, None if best is None or not is_best_there(root, best) else best.path,
    )


def _newest_there(root: Root, publications: Sequence[Publication]) -> Publication | None:
    """The first whose save is there. Each folder is listed once: all may be gone, and a look may be a request."""
    names: dict[bytes, list[bytes]] = {}
    for publication in publications:
        folder, name = os.path.split(publication.path)
        if folder not in names:
            names[folder] = root.entries(folder)
        if name in names[folder]:
            return publication
    return None


def put_link(link: str, target: str) -> None:
    """Make ``link`` a symbolic link to ``target``, at once: whoever looks sees the old one or the new one.

    :raises CannotCreateError: something that is not a symbolic link is there.
    :raises StoreError: it could not be made.
    """
    folder = os.path.dirname(os.path.abspath(link))
    temporary = os.path.join(folder, f"{TEMPORARY_PREFIX}{secrets.token_hex(8)}")
    try:
        try:
            os.symlink(target, link)  # exclusive
        except FileExistsError:
            if not stat.S_ISLNK(os.lstat(link).st_mode):
                raise CannotCreateError(
                    f"{show(link)} is there and is no symbolic link", hint="give another path, or move it away"
                ) from None
        else:
            return
        os.symlink(target, temporary)
        try:
            os.rename(temporary, link)
        except OSError:
            os.unlink(temporary)
            raise
    except OSError as error:
        raise store_error(error, "making the link", link) from error


@click.command("result")
@click.argument("job")
@click.option("--link", metavar="PATH", help="Make PATH a symbolic link to it, in place of an older link.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object, with the last save and the best one.")
def command(*, job: str, link: str | None, as_json: bool) -> int:
    """Print the folder of the execution that completed, or its s3://...

    JOB is the job's key, any Slurm job id that it ever had, or its name. What the training wrote at its end is there;
    what earlier executions wrote is in their own folders.

    \b
    Examples:
      dispatch result 4711
      dispatch result my-training --link ~/models/my-training

    Exit codes: 0 done, 64 more than one job is meant, 65 the folder is gone, or the record is broken, 66 no execution
    completed, or there is no such job, 69 the state folder does not answer, 73 PATH is there and is no link, 74 the
    checkpoint root could not be read.
    """
    from slurm_dispatch.cli.one import one_job
    from slurm_dispatch.records.fold import fold

    _, key, facts = one_job(job)
    try:
        found = result_of(key, fold(facts))
    except AbsentError as error:
        raise BadDataError(f"the checkpoint root of job {key} is gone: {error}") from error
    if found.step is not None and found.save is None:
        say(f"the saves that it published up to step {found.step} were removed: a later execution outranks them")
    if link is not None:
        if is_place(found.directory):
            raise UsageError(f"the result is {show(found.directory)}, and a link is to a folder")
        put_link(link, found.directory)
    if as_json:
        body = {name: getattr(found, name) for name in ("job", "attempt", "directory", "step", "save", "best")}
        click.echo(json.dumps({**body, "epoch": str(found.epoch)}))
    else:
        sys.stdout.buffer.write(os.fsencode(found.directory) + b"\n")
    return 0
