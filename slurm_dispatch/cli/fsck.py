"""``dispatch fsck``: a checkpoint root looked at as a whole."""

from __future__ import annotations

import functools
import json
import os
from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from slurm_dispatch.cli.main import say
from slurm_dispatch.cli.publish import described
from slurm_dispatch.cli.where import json_option, root_argument, the_root, timeout_option
from slurm_dispatch.errors import BadDataError, StoreError, one_line, show

if TYPE_CHECKING:
    from slurm_dispatch.store.fsck import ExecutionSeen, Report
    from slurm_dispatch.store.roots import Root

SHOWN_MAX = 20
"""Lines of one kind that are shown without ``--all``."""


@click.command("fsck")
@root_argument
@click.option("--all", "every", is_flag=True, help="List every publication, and every name without one.")
@timeout_option
@json_option
def command(root: str | None, every: bool, timeout: float, as_json: bool) -> None:
    """Check ROOT (default: DISPATCH_CHECKPOINT) and change nothing.

    Every name must parse; every published save must be there, as it was when it was published, and whole by its own
    structure and by the marker and the index that its saver writes (what dispatch removed is fine, unless it is the
    latest). Saves without a publication, executions and the latest are listed.

    SAVE is whole, torn, changed, gone (it went, and not by dispatch), removed (by dispatch), unrecorded (published
    without a manifest) or unknown (it could not be looked at).

    Example: dispatch fsck /scratch/run1

    Exit codes: 0 nothing is wrong, 65 something is (each fault is a line on stderr), 74 something could not be
    looked at, or the root is not there.
    """
    from slurm_dispatch.anyroot import inspect, open_store
    from slurm_dispatch.cli.layout import Progress
    from slurm_dispatch.store.fsck import fsck

    opened = open_store(the_root(root), say=say, timeout_s=timeout)
    report = fsck(opened, Progress("looked at"), functools.partial(inspect, opened))
    click.echo(json.dumps(content(opened, report)) if as_json else text(opened, report, every))
    for line in [*report.faults, *report.troubles]:
        say(line)
    if report.faults:
        count = "1 thing is" if len(report.faults) == 1 else f"{len(report.faults)} things are"
        raise BadDataError(f"{count} wrong in {show(opened.path)}")
    if report.troubles:
        raise StoreError(f"{len(report.troubles)} things in {show(opened.path)} could not be looked at")


def content(root: Root, report: Report) -> dict[str, Any]:
    """The report as JSON has it."""
    return {
        "root": root.path,
        "owners": {str(generation): job for generation, job in report.owners.items()},
        "latest": None if report.latest is None else report.latest[0].name,
        "publications": [
            {**described(one), "save": str(found.condition), "why": found.why, "files": found.files,
             "bytes": found.size}
            for one, found in report.saves
        ],
        "executions": [
            {
                "attempt": one.attempt, "epoch": None if one.epoch is None else str(one.epoch),
                "published": one.published, "there": one.there,
                "unpublished": [os.fsdecode(path) for path in one.loose],
                "leftovers": [os.fsdecode(path) for path in one.leftovers],
            }
            for one in report.executions
        ],
        "faults": report.faults,
        "troubles": report.troubles,
    }  # fmt: skip


def text(root: Root, report: Report, every: bool) -> str:
    """The report for a person: whose root, the latest, how many of each, the executions, what has no publication."""
    from slurm_dispatch.cli.layout import dash, size, table

    said = [f"checkpoint root {show(root.path)}: {_whose(report)}"]
    if report.latest is None:
        said.append("latest: nothing is published")
    else:
        one, found = report.latest
        said.append(
            f"latest: step {one.step} of epoch {one.epoch}, {show(one.path)}: {found.condition}, "
            f"{found.files} files, {size(found.size)} ({one_line(found.why)})"
        )
        counts = Counter(str(found.condition) for _, found in report.saves)
        counted = ", ".join(f"{count} {name}" for name, count in counts.most_common())
        said.append(f"published saves: {len(report.saves)}: {counted}")
    if every and report.saves:
        rows = [
            [str(one.epoch), str(one.step), str(found.condition), show(one.path), found.why]
            for one, found in report.saves
        ]
        said.append(table(["EPOCH", "STEP", "SAVE", "PATH", "WHY"], rows))
    if report.executions:
        rows = [_row(one) for one in report.executions]
        head = ["EXECUTION", "EPOCH", "PUBLISHED", "THERE", "UNPUBLISHED", "LEFTOVERS"]
        said.append(table(head, [[dash(cell) for cell in row] for row in rows]))
    for what, paths in (
        ("kept and not published", [path for one in report.executions for path in one.loose]),
        ("leftover", [path for one in report.executions for path in one.leftovers]),
    ):
        shown = paths if every else paths[:SHOWN_MAX]
        said += [f"{what}: {show(path)}" for path in shown]
        if len(paths) > len(shown):
            said.append(f"{what}: {len(paths) - len(shown)} more (--all)")
    said.append("nothing is wrong" if not report.faults and not report.troubles else _wrong(report))
    return "\n".join(said)


def _whose(report: Report) -> str:
    if not report.owners:
        return "no job has claimed it"
    generation, job = list(report.owners.items())[-1]
    return f"generation {generation} is job {job}'s"


def _row(one: ExecutionSeen) -> list[str]:
    epoch = "" if one.epoch is None else str(one.epoch)
    return [one.attempt, epoch, str(one.published), str(one.there), str(len(one.loose)), str(len(one.leftovers))]


def _wrong(report: Report) -> str:
    return f"wrong: {len(report.faults)}, could not be looked at: {len(report.troubles)}"


__all__ = ["command"]
