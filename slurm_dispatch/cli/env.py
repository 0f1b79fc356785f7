"""``dispatch env``: the variables of this execution, for shells in containers and training without the helper."""

from __future__ import annotations

import json
import os
import re
import sys
from typing import TYPE_CHECKING

import click

from slurm_dispatch.s3.place import is_place

if TYPE_CHECKING:
    from slurm_dispatch.watch.place import Place
    from slurm_dispatch.watch.prepare import Prepared

DEADLINE_S = 900.0
"""For a checkpoint root that does not answer, as the helper's own."""
NAMES = (
    "DISPATCH_JOB", "DISPATCH_EPOCH", "DISPATCH_ATTEMPT", "DISPATCH_CHECKPOINT", "DISPATCH_DIR",
    "DISPATCH_RESUME", "DISPATCH_RESUME_STEP",
    "SLURM_DISPATCH_ATTEMPT", "SLURM_DISPATCH_DIR", "SLURM_DISPATCH_RESUME", "SLURM_DISPATCH_RESUME_STEP",
)  # fmt: skip
"""All that is printed, in this order: as an export, or as an unset."""
_PLAIN = re.compile(r"[A-Z][A-Z0-9_]*\Z")


def values_of(
    place: Place, *, prepare: bool, start_from: str | None = None, deadline_s: float = DEADLINE_S
) -> dict[str, str | None]:
    """Each of :data:`NAMES` with its value, ``None`` for those that must not be set.

    :param prepare: make the execution's folder, claim the root, and choose the save to resume from, if that
        is not done; otherwise nothing is made, and without a choice ``DISPATCH_RESUME`` is not set.
    :raises DispatchError: the root is another job's, or could not be looked at.
    """
    from slurm_dispatch.watch.apart import apart
    from slurm_dispatch.watch.place import variables
    from slurm_dispatch.watch.prepare import Prepared, choose_once, read

    def work() -> bytes:
        return (choose_once(place, start_from=start_from) if prepare else read(place)).encode()

    prepared: Prepared = Prepared.decode(apart(work, deadline_s, f"the checkpoint root {place.root}"))
    found: dict[str, str | None] = dict.fromkeys(NAMES)
    found.update(variables(place, prepared.directory, prepared.resume, prepared.step))
    found["DISPATCH_JOB"] = place.job
    found["DISPATCH_EPOCH"] = str(place.epoch)
    found["DISPATCH_ATTEMPT"] = place.attempt
    return {name: found[name] for name in NAMES}


def shell_line(name: str, value: str | None) -> str:
    """``export NAME='value'`` or ``unset NAME``, safe in every POSIX shell whatever the value holds.

    Within single quotes only the single quote is special; it becomes ``'\\''``. (``$'...'`` is not in POSIX.)
    """
    if not _PLAIN.match(name):
        raise ValueError(name)
    if value is None:
        return f"unset {name}"
    quoted = value.replace("'", "'\\''")
    return f"export {name}='{quoted}'"


@click.command("env")
@click.option("--prepare", is_flag=True, help="Make the execution's folder and choose what to resume from.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object; null for what is not set.")
@click.option("--root", metavar="PATH", help="The checkpoint root; otherwise DISPATCH_CHECKPOINT.")
@click.option("--from", "folder", metavar="DIR", help="For a root in S3: as given to dispatch-watch.")
def command(prepare: bool, as_json: bool, root: str | None, folder: str | None) -> None:
    """Print the variables of this execution, for a shell.

    \b
    Example, in a batch script or in a container:
      eval "$(dispatch env --prepare)"
      python train.py --output_dir "$DISPATCH_DIR" ${DISPATCH_RESUME:+--resume "$DISPATCH_RESUME"}

    DISPATCH_RESUME is not set on a first start. Every rank and step gets the same.

    Exit codes: 0 done; 64 no root; 65 the root holds what it must not; 73 the root is another job's;
    74 it could not be looked at; 78 the identity is not whole.
    """
    from slurm_dispatch.watch.place import FROM, find_place

    given = root or os.environ.get("DISPATCH_CHECKPOINT") or ""
    if folder is None and is_place(given):
        folder = os.environ.get(FROM)
    place = find_place(os.environ, root=root, local=folder, remote=True)
    found = values_of(place, prepare=prepare, start_from=os.environ.get("SLURM_DISPATCH_START_FROM"))
    if as_json:
        click.echo(json.dumps(found))
        return
    # Bytes: a path need not be UTF-8, and must come out as it went in.
    text = "".join(shell_line(name, value) + "\n" for name, value in found.items())
    sys.stdout.flush()
    sys.stdout.buffer.write(os.fsencode(text))
    sys.stdout.buffer.flush()
