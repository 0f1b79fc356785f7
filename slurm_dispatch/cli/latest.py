"""``dispatch latest``: the save to resume from."""

from __future__ import annotations

import json
import os
import sys

import click

from slurm_dispatch.anyroot import open_store
from slurm_dispatch.cli.main import say
from slurm_dispatch.cli.publish import described
from slurm_dispatch.cli.where import json_option, root_option, the_root, timeout_option
from slurm_dispatch.errors import NothingThereError, show


@click.command("latest")
@root_option
@click.option("--fallback", is_flag=True, help="Where the save of the latest is gone, take the next one.")
@timeout_option
@json_option
def command(root: str | None, fallback: bool, timeout: float, as_json: bool) -> None:
    """Print the absolute path of the save to resume from, or its s3://...

    Example: python train.py --resume "$(dispatch latest)"

    Exit codes: 0 printed; 66 there is no publication; 65 a name does not parse or the save is gone; 74 it
    could not be looked: never the same as none.
    """
    opened = open_store(the_root(root), say=say, timeout_s=timeout)
    save = opened.latest(fallback=fallback)
    if save is None:
        nothing = f"checkpoint root {show(opened.path)} has no publication"
        raise NothingThereError(nothing, hint="this is a first start")
    if as_json:
        click.echo(json.dumps({**described(save.publication), "path": save.path}))
    else:
        sys.stdout.buffer.write(os.fsencode(save.path) + b"\n")
