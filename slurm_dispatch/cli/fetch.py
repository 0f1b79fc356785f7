"""``dispatch fetch``: the save to resume from, brought from S3 to a local folder."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import click

from slurm_dispatch.anyroot import open_store
from slurm_dispatch.cli.main import say
from slurm_dispatch.cli.where import json_option, root_option, the_root, timeout_option
from slurm_dispatch.errors import NothingThereError, UsageError, show
from slurm_dispatch.s3.root import S3Root
from slurm_dispatch.s3.take import take_latest
from slurm_dispatch.s3.transfer import download

if TYPE_CHECKING:
    from slurm_dispatch.model.publication import Publication
    from slurm_dispatch.store.root import Save


def fetch(root: S3Root, folder: str, *, fallback: bool = False) -> tuple[Publication, str]:
    """Bring the save of the latest publication below ``folder``, whole or not at all; its own name stays.

    :param folder: absolute; made if only its last component is missing.
    :param fallback: take the next one where the latest is gone or damaged.
    :raises NothingThereError: there is no publication.
    :raises CannotCreateError: something of the save's name is there already.
    :raises BadDataError: the latest is damaged. :raises TransientError: see :func:`take_latest`.
    """

    def take(save: Save) -> str:
        if not os.path.isdir(folder):
            try:
                os.mkdir(folder)
            except OSError as error:
                raise UsageError(f"--to {show(folder)} cannot be made: {error.strerror}") from error
        relative = save.publication.path
        target = os.path.join(folder, os.fsdecode(relative).rpartition("/")[2])
        download(root, relative, target, say=say)
        return target

    taken = take_latest(root, take, fallback=fallback)
    if taken is None:
        nothing = f"checkpoint root {show(root.path)} has no publication"
        raise NothingThereError(nothing, hint="this is a first start")
    return taken.save.publication, taken.path


@click.command("fetch")
@root_option
@click.option("--to", "folder", metavar="FOLDER", default=".", show_default=True, help="Where to; made if missing.")
@click.option("--fallback", is_flag=True, help="Where the latest is gone or damaged, take the next one.")
@timeout_option
@json_option
def command(root: str | None, folder: str, fallback: bool, timeout: float, as_json: bool) -> None:
    """Bring the save to resume from from S3 into FOLDER, and print its local path.

    It has its name there only when all of it is on disk. Progress goes to stderr.

    Example: python train.py --resume "$(dispatch fetch --root s3://runs/llama --to "$TMPDIR")"

    Exit codes: 0 printed; 64 usage; 66 there is no publication; 65 a name does not parse, or the save is gone or
    damaged; 73 something of its name is there already; 74 the store or the disk failed; 78 the settings
    for S3 are wrong.
    """
    place = the_root(root)
    opened = open_store(place, say=say, timeout_s=timeout)
    if not isinstance(opened, S3Root):
        raise UsageError(f"checkpoint root {show(place)} is a folder", hint="use dispatch latest")
    publication, path = fetch(opened, os.path.abspath(folder), fallback=fallback)
    if as_json:
        click.echo(json.dumps({"name": publication.name, "step": publication.step, "path": path}))
    else:
        click.echo(path)
