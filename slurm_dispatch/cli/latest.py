"""``dispatch latest``: the save to resume from."""

from __future__ import annotations

import json
import os
import sys

import click

from slurm_dispatch.anyroot import AnyRoot, inspect, open_store
from slurm_dispatch.cli.layout import size
from slurm_dispatch.cli.main import say
from slurm_dispatch.cli.publish import described
from slurm_dispatch.cli.where import json_option, root_option, the_root, timeout_option
from slurm_dispatch.errors import BadDataError, NothingThereError, StoreError, show
from slurm_dispatch.store.root import Save
from slurm_dispatch.store.sound import Condition, Found

PASS = frozenset({Condition.WHOLE, Condition.UNRECORDED})
"""Of a save without a manifest only its own structure can be asked; it is said."""
TRIES = 5
"""How often a newer save is checked in the place of one that went meanwhile."""


@click.command("latest")
@root_option
@click.option("--fallback", is_flag=True, help="Where the save of the latest is gone, take the next one.")
@click.option("--verify", is_flag=True, help="Check the save first, and say what was checked.")
@timeout_option
@json_option
def command(root: str | None, fallback: bool, verify: bool, timeout: float, as_json: bool) -> None:
    """Print the absolute path of the save to resume from, or its s3://...

    --verify compares the save's names, sizes and times (in S3 names, sizes and entity tags) with what they were when
    it was published, and looks into the files that have a structure of their own and into what its saver lists (their
    bytes are not all read). One that does not pass is an error; with --fallback the next one that passes is printed.

    Example: python train.py --resume "$(dispatch latest --verify)"

    Exit codes: 0 printed; 66 there is no publication; 65 a name does not parse, or the save is gone or does not pass;
    74 it could not be looked: never the same as none; 78 the settings for S3 are wrong.
    """
    opened = open_store(the_root(root), say=say, timeout_s=timeout)
    save = opened.latest(fallback=fallback)
    if save is None:
        nothing = f"checkpoint root {show(opened.path)} has no publication"
        raise NothingThereError(nothing, hint="this is a first start")
    found = None
    if verify:
        save, found = verified(opened, save, fallback=fallback)
    if as_json:
        checked = {} if found is None else {"save": str(found.condition), "why": found.why}
        click.echo(json.dumps({**described(save.publication), "path": save.path, **checked}))
    else:
        sys.stdout.buffer.write(os.fsencode(save.path) + b"\n")


def verified(root: AnyRoot, save: Save, *, fallback: bool) -> tuple[Save, Found]:
    """The save if it passes; with ``fallback``, the next one that does. Says on stderr what was checked.

    One that went because a newer one was published meanwhile is no answer: then that one is checked.

    :raises BadDataError: it does not pass, or none does.
    :raises StoreError: it could not be looked.
    """
    for _ in range(TRIES):
        try:
            return _passing(root, save, fallback=fallback)
        except (BadDataError, StoreError):
            now = root.latest(fallback=fallback)
            if now is None or now.publication == save.publication:
                raise
            save = now
    return _passing(root, save, fallback=fallback)


def _passing(root: AnyRoot, save: Save, *, fallback: bool) -> tuple[Save, Found]:
    publications = [one for one in root.listing() if one <= save.publication] if fallback else [save.publication]
    for publication in publications:
        found = inspect(root, publication)
        if found.condition is Condition.UNKNOWN:
            raise StoreError(found.why)
        which = f"step {publication.step}, {show(publication.path)}"
        if found.condition in PASS:
            say(f"checked {which}: {found.files} files, {size(found.size)}, none cut off; {found.why}")
            return Save(publication, f"{root.path}/{os.fsdecode(publication.path)}"), found
        if not fallback:
            raise BadDataError(
                f"publication {publication.name} is the latest of {show(root.path)} and its save "
                f"{show(publication.path)} is {found.condition}: {found.why}",
                hint="take the next one that passes with --verify --fallback",
            )
        say(f"{which} is {found.condition}: {found.why}")
    raise BadDataError(f"none of the {len(publications)} published saves of {show(root.path)} passes")
