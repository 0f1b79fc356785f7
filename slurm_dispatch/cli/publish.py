"""``dispatch publish``: publish a save by hand."""

from __future__ import annotations

import json
import os

import click

from slurm_dispatch.anyroot import open_store, publish_by_hand
from slurm_dispatch.cli.main import say
from slurm_dispatch.cli.where import json_option, root_option, the_attempt, the_epoch, the_root, timeout_option
from slurm_dispatch.errors import BadDataError, UsageError
from slurm_dispatch.model.epoch import parse_count
from slurm_dispatch.model.publication import STEP_MAX, Publication
from slurm_dispatch.s3.place import is_place


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
@timeout_option
@json_option
@click.argument("path", metavar="PATH")
def command(
    *,
    root: str | None,
    epoch: str | None,
    attempt: str | None,
    step: str,
    sync: bool,
    timeout: float,
    as_json: bool,
    path: str,
) -> None:
    """Publish the save at PATH, a file or folder in this execution's folder DISPATCH_DIR.

    In S3 PATH is s3://BUCKET/..., or relative to the root.

    Example: dispatch publish --step 500 "$DISPATCH_DIR/checkpoint-500"

    Exit codes: 0 published; 64 usage; 65 the save is outside the execution's folder, missing, empty or its
    path too long; 73 the store does not keep what publishing needs; 74 the store failed: publish again; 78 the
    settings for S3 are wrong.
    """
    number = the_step(step)
    which, whose = the_epoch(epoch), the_attempt(attempt)
    place = the_root(root)
    opened = open_store(place, say=say, timeout_s=timeout)
    where = path if is_place(place) else os.path.abspath(path)
    publication = publish_by_hand(opened, which, number, where, attempt=whose, sync=sync)
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
