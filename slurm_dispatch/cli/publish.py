"""``dispatch publish``: publish a save by hand."""

from __future__ import annotations

import json
import os

import click

from slurm_dispatch.cli.main import say
from slurm_dispatch.cli.where import json_option, root_option, the_attempt, the_epoch, the_root
from slurm_dispatch.errors import BadDataError, UsageError
from slurm_dispatch.model.epoch import parse_count
from slurm_dispatch.model.publication import STEP_MAX, Publication
from slurm_dispatch.store.manifest import manifest_of, read_manifest, write_manifest
from slurm_dispatch.store.root import CheckpointRoot, open_root
from slurm_dispatch.store.saves import check_length, check_save, relative_save
from slurm_dispatch.store.whole import Proof, look


def publish_by_hand(
    root: CheckpointRoot, epoch: int, step: int, path: str | bytes, *, attempt: str, sync: bool
) -> Publication:
    """Publish the path that is given, as it is: whoever says so by hand says that it is whole.

    :raises BadDataError: as :meth:`CheckpointRoot.publish`; nothing is written then.
    """
    relative = relative_save(root.raw, attempt, path)
    check_length(relative, root.name_max())
    check_save(root.raw, relative)
    if read_manifest(root, relative) is None:
        seen = look(os.path.join(root.raw, relative), read=False)
        if seen is not None:
            root.make_execution(attempt)
            write_manifest(root, relative, manifest_of(seen, Proof.PROVED))
    return root.publish(epoch, step, relative, attempt=attempt, sync=sync)


def the_step(text: str) -> int:
    """A step from the command line."""
    try:
        return parse_count("step", text, STEP_MAX)
    except BadDataError as error:
        raise UsageError(str(error), hint=error.hint) from error


@click.command("publish")
@root_option
@click.option("--epoch", metavar="E", help="Default: DISPATCH_EPOCH.")
@click.option("--attempt", metavar="A", help="Default: DISPATCH_ATTEMPT.")
@click.option("--step", required=True, metavar="S", help="The training step of the save.")
@click.option("--sync", is_flag=True, help="Sync the save's files and folders to disk first.")
@json_option
@click.argument("path", metavar="PATH")
def command(
    *, root: str | None, epoch: str | None, attempt: str | None, step: str, sync: bool, as_json: bool, path: str
) -> None:
    """Publish the save at PATH, a file or folder in this execution's folder DISPATCH_DIR.

    Example: dispatch publish --step 500 "$DISPATCH_DIR/checkpoint-500"

    Exit codes: 0 published; 64 usage; 65 the save is outside the execution's folder, missing, empty or its
    path too long; 74 the store failed: publish again.
    """
    number = the_step(step)
    which, whose = the_epoch(epoch), the_attempt(attempt)
    opened = open_root(the_root(root), say=say)
    publication = publish_by_hand(opened, which, number, os.path.abspath(path), attempt=whose, sync=sync)
    if as_json:
        click.echo(json.dumps(described(publication)))
    else:
        click.echo(publication.name)


def described(publication: Publication) -> dict[str, object]:
    """A publication as JSON has it: the epoch as text, since it can pass 2^53."""
    return {
        "name": publication.name,
        "epoch": str(publication.epoch),
        "step": publication.step,
        "attempt": publication.attempt,
        "path": os.fsdecode(publication.path),
    }
