"""``dispatch ls``: all publications of a root."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from slurm_dispatch.anyroot import AnyRoot, open_store, states_of
from slurm_dispatch.cli.main import say
from slurm_dispatch.cli.publish import described
from slurm_dispatch.cli.where import json_option, root_option, the_root, timeout_option
from slurm_dispatch.errors import StoreError, show

if TYPE_CHECKING:
    from slurm_dispatch.model.publication import Publication


def table(rows: list[tuple[Publication, str]]) -> list[str]:
    """The lines of the table, with a head."""
    cells = [("EPOCH", "STEP", "SAVE", "PATH")]
    cells += [(str(each.epoch), str(each.step), state, show(each.path)) for each, state in rows]
    widths = [max(len(row[column]) for row in cells) for column in range(3)]
    return [
        f"{row[0]:>{widths[0]}}  {row[1]:>{widths[1]}}  {row[2]:<{widths[2]}}  {row[3]}" for row in cells
    ]


def states(root: AnyRoot) -> tuple[list[tuple[Publication, str]], StoreError | None]:
    """Each publication, latest first, with the state of its save, and the first trouble with a save.

    :raises BadDataError: a name does not parse.
    :raises StoreError: the publications could not be listed.
    """
    rows: list[tuple[Publication, str]] = []
    trouble: StoreError | None = None
    publications = root.listing()
    for publication, state in zip(publications, states_of(root, publications), strict=True):
        if isinstance(state, StoreError):
            trouble = trouble or state
        rows.append((publication, "unknown" if isinstance(state, StoreError) else str(state)))
    return rows, trouble


@click.command("ls")
@root_option
@timeout_option
@json_option
def command(root: str | None, timeout: float, as_json: bool) -> None:
    """List all publications, latest first.

    SAVE is proved (a marker or its own structure said that it was whole, or a person did), assumed (it had not
    changed for a while), changed (since it was published), gone, or unrecorded.

    Example: dispatch ls --root /scratch/run1

    Exit codes: 0 listed, also where there are none; 65 a name does not parse; 74 something could not be looked at;
    78 the settings for S3 are wrong.
    """
    opened = open_store(the_root(root), say=say, timeout_s=timeout)
    rows, trouble = states(opened)
    if as_json:
        click.echo(json.dumps([{**described(each), "save": state} for each, state in rows]))
    elif rows:
        click.echo("\n".join(table(rows)))
    else:
        say(f"checkpoint root {show(opened.path)} has no publication")
    if trouble is not None:
        raise trouble
