"""``dispatch epoch``: an epoch from its parts."""

from __future__ import annotations

import json

import click

from slurm_dispatch.cli.where import json_option
from slurm_dispatch.errors import BadDataError, UsageError
from slurm_dispatch.model.epoch import GENERATION_MAX, RESTART_MAX, SUBMISSION_MAX, Epoch, parse_count


def epoch_of(generation: str, submission: str, restart: str) -> Epoch:
    """The epoch of three decimal numbers.

    :raises UsageError: one does not parse or is out of bounds; it is named.
    """
    try:
        return Epoch(
            parse_count("generation", generation, GENERATION_MAX),
            parse_count("submission", submission, SUBMISSION_MAX),
            parse_count("restart", restart, RESTART_MAX),
        )
    except BadDataError as error:
        raise UsageError(str(error), hint=error.hint) from error


@click.command("epoch")
@click.option("--generation", default="0", show_default=True, metavar="G", help=f"0 to {GENERATION_MAX}.")
@click.option("--submission", required=True, metavar="N", help=f"1 to {SUBMISSION_MAX}.")
@click.option("--restart", default="0", show_default=True, metavar="R", help=f"Slurm's count, 0 to {RESTART_MAX}.")
@json_option
def command(generation: str, submission: str, restart: str, as_json: bool) -> None:
    """Compute an epoch: G*10^12 + N*10^6 + R.

    Example: dispatch epoch --submission 3 --restart 1

    Exit codes: 0, and 64 for a part that is out of bounds.
    """
    epoch = epoch_of(generation, submission, restart)
    if as_json:
        parts = {"generation": epoch.generation, "submission": epoch.submission, "restart": epoch.restart}
        click.echo(json.dumps({"epoch": str(epoch), **parts}))
    else:
        click.echo(str(epoch))
