"""``dispatch du``: bytes and inodes of a root, by execution."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from slurm_dispatch.cli.main import say
from slurm_dispatch.cli.where import json_option, root_argument, the_root, timeout_option
from slurm_dispatch.errors import StoreError

if TYPE_CHECKING:
    from slurm_dispatch.store.space import Space, Usage

HOW = (
    "a file with several names (hard links) counts once, where it is met first, from the top; ALONE is what nothing "
    "outside the execution's folder shares"
)
HOW_REMOTE = "an inode is an object here; the parts of uploads that were not finished are not listed"


@click.command("du")
@root_argument
@timeout_option
@json_option
def command(root: str | None, timeout: float, as_json: bool) -> None:
    """Say what ROOT (default: DISPATCH_CHECKPOINT) takes on disk, by execution, the newest first.

    A file with several names counts once, in the first execution that has it, and there in kept/ before resume/,
    best/ and the REST. ALONE is what removing the execution's folder would give back. Blocks that files share
    without being links cannot be told, and count for each. In S3 nothing is shared, and an inode is an object.

    Example: dispatch du /scratch/run1

    Exit codes: 0 done, 65 a publication's name does not parse, 74 something could not be looked at.
    """
    from slurm_dispatch.anyroot import open_store, space

    opened = open_store(the_root(root), say=say, timeout_s=timeout)
    found = space(opened)
    how = HOW if opened.takes_links else HOW_REMOTE
    click.echo(json.dumps([described(row) for row in found.rows]) if as_json else text(found, how))
    for line in found.troubles[1:]:
        say(line)
    if found.troubles:
        raise StoreError(found.troubles[0])


def described(row: Usage) -> dict[str, Any]:
    """One row as JSON has it."""
    return {
        "name": row.name,
        "epoch": None if row.epoch is None else str(row.epoch),
        "bytes": row.size,
        "content_bytes": row.content,
        "inodes": row.inodes,
        "alone_bytes": row.alone,
        "parts": row.parts,
    }


def text(found: Space, how: str = HOW) -> str:
    """The table, the sum, and how it was counted."""
    from slurm_dispatch.cli.layout import dash, size, table
    from slurm_dispatch.store.space import PARTS

    rows = [
        [
            row.name, dash(row.epoch), size(row.size), f"{row.inodes:,}", size(row.alone),
            *(size(row.parts[part]) for part in PARTS),
        ]
        for row in found.rows
    ]  # fmt: skip
    total = sum(row.size for row in found.rows)
    inodes = sum(row.inodes for row in found.rows)
    rows.append(["all", "-", size(total), f"{inodes:,}", "-", "-", "-", "-", "-"])
    head = ["EXECUTION", "EPOCH", "ON DISK", "INODES", "ALONE", *(part.upper() for part in PARTS)]
    return f"{table(head, rows)}\n{how}"


__all__ = ["command"]
