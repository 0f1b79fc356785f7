"""``dispatch doctor``: what the store of a checkpoint root is proved to do."""

from __future__ import annotations

import json

import click

from slurm_dispatch.anyroot import findings, open_store
from slurm_dispatch.cli.main import say
from slurm_dispatch.cli.where import json_option, root_option, the_root, timeout_option
from slurm_dispatch.errors import CannotCreateError, show
from slurm_dispatch.model.identity import new_attempt
from slurm_dispatch.store.roots import Answer, Finding


def table(found: list[Finding]) -> list[str]:
    """The lines of the table."""
    widths = [max(len(one.what) for one in found), max(len(str(one.answer)) for one in found)]
    return [f"{one.what:<{widths[0]}}  {one.answer!s:<{widths[1]}}  {show(one.text)}" for one in found]


@click.command("doctor")
@root_option
@timeout_option
@json_option
def command(root: str | None, timeout: float, as_json: bool) -> None:
    """Try out the store of a checkpoint root, a folder or s3://BUCKET/PREFIX, and show what it does.

    It is tried in the folder of an execution that is nobody's, below exec/ of the root, which is removed again.

    Each line has what the protocol asks for, and proved, refused (the store does not do it, and no run may publish
    there), lacking (it does not, and dispatch goes without) or assumed (it was not tried).

    Example: dispatch doctor --root s3://runs/llama

    Exit codes: 0 what publishing needs is proved; 73 something is refused; 74 the store failed; 78 the settings for
    S3 are wrong.
    """
    opened = open_store(the_root(root), say=say, timeout_s=timeout)
    found = findings(opened, f"doctor{new_attempt()}")
    if as_json:
        click.echo(json.dumps([{"what": f.what, "answer": f.answer.value, "text": f.text} for f in found]))
    else:
        click.echo("\n".join(table(found)))
    refused = [one for one in found if one.answer is Answer.REFUSED]
    if refused:
        raise CannotCreateError(
            f"checkpoint root {show(opened.path)} is refused: {', '.join(one.what for one in refused)}",
            hint="use another store",
        )
