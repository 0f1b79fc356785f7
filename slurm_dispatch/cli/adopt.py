"""``dispatch adopt``: a person gives a save of a replaced run to the current lineage."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from slurm_dispatch.cli.wishes import Bench
    from slurm_dispatch.model.publication import Publication
    from slurm_dispatch.records.state import State
    from slurm_dispatch.state.jobs import Record


@click.command("adopt")
@click.argument("job")
@click.argument("publication")
@click.option("--reason", required=True, help="Why, for the record.")
def command(*, job: str, publication: str, reason: str) -> int:
    """Let JOB resume from PUBLICATION, a later save of a run that was replaced: links to it are published under a
    submission number of its own, and so are the latest.

    PUBLICATION is a name in pub/ of the job's checkpoint root, or the path of its save (dispatch ls lists both).
    Refused while an execution runs, whose next save would outrank it. A submission that waits in Slurm is replaced
    by one that is newer than what was adopted.

    \b
    Examples:
      dispatch ls --root /scratch/me/run
      dispatch adopt 4711 exec/h3k9a0c4m2p8x1z7q5w6/kept/checkpoint-9000 --reason "the ghost was right"

    Exit codes: 0 done, 64 usage (also a job that runs), 65 the publication is none or its save is gone, 66 no such
    job, 69 the state folder does not answer, 74 the checkpoint root does not answer, 75 a submission was made at the
    same time and may have chosen before.
    """
    from slurm_dispatch.cli.wishes import bench

    here = bench()
    key = here.key(job)
    absolute = os.path.abspath(publication) if os.sep in publication else ""

    def work(record: Record) -> dict[str, Any]:
        return {"text": _adopt(here, record, publication, absolute, reason)}

    click.echo(f"job {key}: {here.as_owner(key, work, submits=True)['text']}")
    return 0


def _adopt(here: Bench, record: Record, text: str, absolute: str, reason: str) -> str:
    from slurm_dispatch.anyroot import open_folder_root
    from slurm_dispatch.controller import wish
    from slurm_dispatch.errors import BadDataError, OutcomeUnknownError, UsageError
    from slurm_dispatch.model.epoch import Epoch
    from slurm_dispatch.model.identity import new_attempt
    from slurm_dispatch.model.publication import Publication
    from slurm_dispatch.records import people
    from slurm_dispatch.records.fold import fold
    from slurm_dispatch.records.state import Phase
    from slurm_dispatch.store.keep import bring, kept_path
    from slurm_dispatch.store.saves import check_length, check_save

    spec = fold(record.read()).spec
    root = open_folder_root(spec.root)
    listing = root.listing()
    old = _meant(listing, text, absolute, spec.root)
    if old.attempt is None:
        raise BadDataError(f"the save of {old.name} is not below exec/ of the root")
    check_save(root.raw, old.path)
    attempt = new_attempt()
    path = kept_path(attempt, os.path.basename(old.path))
    check_length(path, root.name_max())
    made: list[Publication] = []

    def adopted(state: State) -> people.Facts:
        new = Publication(int(Epoch(spec.generation, state.next_number, 0)), old.step, path)
        if new.epoch <= listing[0].epoch:
            raise UsageError(
                f"the root has saves of a later job than {spec.job}: they would outrank what is adopted",
                hint=f"adopt it for that job; the latest is {listing[0].name}",
            )
        made.append(new)
        return people.adopt(state, old.name, new.name, reason)

    wish.write(record, here.means.by, adopted)
    # The number is used up by now: a crash before this call costs a number, and the command is typed again.
    new = root.publish(made[-1].epoch, old.step, bring(root, old, attempt), attempt=attempt)
    said = f"step {old.step} is the latest now, as {new.name}"
    state = fold(record.read())
    if state.phase is Phase.WAITING:
        wish.cancel_replaced(record, here.means, here.view())
        return f"{said}{here.submitted(record, adopted=True)}"
    if state.numbers_used > Epoch.from_int(new.epoch).submission:
        raise OutcomeUnknownError(
            f"{said}, and submission {state.numbers_used} was made at the same time: it may have chosen before",
            hint=f"look at which save it resumed from (dispatch show {spec.job})",
        )
    after = {Phase.CLOSED: "reopen", Phase.HELD: "release"}.get(state.phase)
    return f"{said}; the job is {state.phase}" + (f", and dispatch {after} lets it go on" if after else "")


def _meant(listing: list[Publication], text: str, absolute: str, root: str) -> Publication:
    """The publication that a person means, by its name or by its save's path, absolute or within the root.

    :raises UsageError: there is none, or it is the latest already.
    """
    from slurm_dispatch.errors import UsageError, show

    names = {os.fsencode(text)}
    if absolute.startswith(root.rstrip("/") + "/"):
        names.add(os.fsencode(absolute[len(root.rstrip("/")) + 1 :]))
    for position, publication in enumerate(listing):
        if publication.name == text or publication.path in names:
            if position == 0:
                raise UsageError(f"{show(text)} is the latest already: there is nothing to adopt")
            return publication
    raise UsageError(f"{show(text)!r} is no publication of {show(root)}", hint=f"dispatch ls --root {show(root)}")
