"""``dispatch adopt``: a person gives a save of a replaced run to the current lineage."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from slurm_dispatch.anyroot import AnyRoot
    from slurm_dispatch.cli.wishes import Bench
    from slurm_dispatch.model.publication import Publication
    from slurm_dispatch.records.state import State
    from slurm_dispatch.state.jobs import Record

COPY_S = 6 * 3600.0
"""For the copy of a save within S3, in which each object has a deadline of its own."""


@click.command("adopt")
@click.argument("job")
@click.argument("publication")
@click.option("--reason", required=True, help="Why, for the record.")
def command(*, job: str, publication: str, reason: str) -> int:
    """Let JOB resume from PUBLICATION, a later save of a run that was replaced: links to it are published under a
    submission number of its own, and so are the latest. In S3, where no links are, a copy that the store makes.

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
    from slurm_dispatch.s3.place import is_place

    here = bench()
    key = here.key(job)
    meant = os.path.abspath(publication) if os.sep in publication and not is_place(publication) else publication

    def copy(record: Record) -> dict[str, Any]:
        return {"attempt": _copied(record, (publication, meant), reason)}

    # In a process of its own too: a client of S3 outlives no fork.
    attempt = here.as_owner(key, copy, more_s=COPY_S)["attempt"]

    def work(record: Record) -> dict[str, Any]:
        return {"text": _adopt(here, record, (publication, meant), reason, attempt)}

    click.echo(f"job {key}: {here.as_owner(key, work, submits=True)['text']}")
    return 0


def _copied(record: Record, texts: tuple[str, str], reason: str) -> str | None:
    """The attempt below which a root in S3 has a copy of the save now: that may take long, and from the fact on the
    ticks wait for its publication. ``None`` for a folder, where links are made when their time has come.

    :raises DispatchError: it cannot be adopted as things are.
    """
    from slurm_dispatch.anyroot import bring_again, open_store
    from slurm_dispatch.cli.main import say
    from slurm_dispatch.model.identity import new_attempt
    from slurm_dispatch.records import people
    from slurm_dispatch.records.fold import fold
    from slurm_dispatch.s3.place import is_place

    state = fold(record.read())
    if not is_place(state.spec.root):
        return None
    root = open_store(state.spec.root, say=say)
    listing = root.listing()
    old = _meant(root, listing, texts)
    attempt = new_attempt()
    people.adopt(state, old.name, _new(root, state, listing, old, attempt).name, reason)
    bring_again(root, old, attempt, say=say)
    return attempt


def _adopt(here: Bench, record: Record, texts: tuple[str, str], reason: str, copied: str | None) -> str:
    from slurm_dispatch.anyroot import bring_again, open_store
    from slurm_dispatch.controller import wish
    from slurm_dispatch.errors import OutcomeUnknownError
    from slurm_dispatch.model.epoch import Epoch
    from slurm_dispatch.model.identity import new_attempt
    from slurm_dispatch.records import people
    from slurm_dispatch.records.fold import fold
    from slurm_dispatch.records.state import Phase

    spec = fold(record.read()).spec
    root = open_store(spec.root)
    listing = root.listing()
    old = _meant(root, listing, texts)
    attempt = copied or new_attempt()
    made: list[Publication] = []

    def adopted(state: State) -> people.Facts:
        new = _new(root, state, listing, old, attempt)
        made.append(new)
        return people.adopt(state, old.name, new.name, reason)

    wish.write(record, here.means.by, adopted)
    # The number is used up by now: a crash before this call costs a number, and the command is typed again.
    path = made[-1].path if copied else bring_again(root, old, attempt)
    new = root.publish(made[-1].epoch, old.step, path, attempt=attempt)
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


def _new(root: AnyRoot, state: State, listing: list[Publication], old: Publication, attempt: str) -> Publication:
    """What would be published.

    :raises UsageError: it would be outranked. :raises BadDataError: its path is too long here.
    """
    from slurm_dispatch.errors import UsageError
    from slurm_dispatch.model.epoch import Epoch
    from slurm_dispatch.model.publication import Publication
    from slurm_dispatch.store.keep import kept_path
    from slurm_dispatch.store.saves import check_length

    path = kept_path(attempt, os.path.basename(old.path))
    check_length(path, root.name_max())
    new = Publication(int(Epoch(state.spec.generation, state.next_number, 0)), old.step, path)
    if new.epoch <= listing[0].epoch:
        raise UsageError(
            f"the root has saves of a later job than {state.spec.job}: they would outrank what is adopted",
            hint=f"adopt it for that job; the latest is {listing[0].name}",
        )
    return new


def _meant(root: AnyRoot, listing: list[Publication], texts: tuple[str, str]) -> Publication:
    """The publication that a person means, by its name or by its save's path, absolute or within the root.

    :param texts: as it was typed, and the absolute path or address that this is.
    :raises UsageError: there is none, or it is the latest already.
    :raises BadDataError: its save is missing, or is no execution's.
    """
    from slurm_dispatch.anyroot import check_there
    from slurm_dispatch.errors import BadDataError, UsageError, show

    text, absolute = texts
    inside = f"{root.path.rstrip('/')}/"
    names = {os.fsencode(text), os.fsencode(absolute.removeprefix(inside))}
    for position, publication in enumerate(listing):
        if publication.name == text or publication.path in names:
            if position == 0:
                raise UsageError(f"{show(text)} is the latest already: there is nothing to adopt")
            if publication.attempt is None:
                raise BadDataError(f"the save of {publication.name} is not below exec/ of the root")
            check_there(root, publication)
            return publication
    where = show(root.path)
    raise UsageError(f"{show(text)!r} is no publication of {where}", hint=f"dispatch ls --root {where}")
