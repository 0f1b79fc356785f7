"""``dispatch gc``: remove outranked saves by hand, more than the helper's thinning does."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import click

from slurm_dispatch.cli.main import say
from slurm_dispatch.cli.where import json_option, timeout_option
from slurm_dispatch.errors import NotAllowedError, StoreError, UsageError, show
from slurm_dispatch.store.root import CheckpointRoot

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slurm_dispatch.anyroot import AnyRoot
    from slurm_dispatch.cli.standing import Executions
    from slurm_dispatch.state.jobs import Record
    from slurm_dispatch.store.gc import Known, Plan

NO_RECORD = "no record of a job of this root is here: what is removed is said by this command alone"


@click.command("gc")
@click.argument("root", metavar="ROOT")
@click.option("--keep-last", type=click.IntRange(1), required=True, metavar="N", help="Published saves that stay.")
@click.option("--keep-every", type=click.IntRange(1), metavar="STEPS", help="Steps that are multiples of this stay.")
@click.option("--drop", multiple=True, metavar="SAVE", help="A save that need not stay for having the greatest step.")
@click.option("--ended", multiple=True, metavar="ATTEMPT", help="An execution that you know to be over.")
@click.option("--pattern", metavar="GLOB", help="What the training calls its saves (checkpoint-{step}).")
@click.option("--dry-run", is_flag=True, help="Remove nothing; say what would go.")
@timeout_option
@json_option
def command(
    *,
    root: str,
    keep_last: int,
    keep_every: int | None,
    drop: tuple[str, ...],
    ended: tuple[str, ...],
    pattern: str | None,
    dry_run: bool,
    timeout: float,
    as_json: bool,
) -> None:
    """Remove saves of ROOT that are outranked: all but the last N published ones.

    What latest names stays, and the save with the greatest step of the root, unless --drop names it (by its
    publication or its path). Publications stay, and so does best/ of every execution. Nothing goes of an execution
    that its job's record, its node or its helper does not call over; --ended says it for one of which nothing is
    known. With --keep-every the last save of each step that is a multiple of STEPS stays too. What is removed is
    first said in the job's record.

    \b
    Examples:
      dispatch gc /scratch/run1 --keep-last 3 --dry-run
      dispatch gc /scratch/run1 --keep-last 1 --keep-every 10000

    Exit codes: 0 done, 64 usage, 65 a publication's name does not parse, 69 the job's record does not take it (then
    nothing is removed), 74 something could not be removed or looked at, 77 the root is another
    user's, 78 the site's settings are wrong.
    """
    from slurm_dispatch.anyroot import open_store
    from slurm_dispatch.cli.standing import Executions, site_here
    from slurm_dispatch.store.gc import Rules, plan
    from slurm_dispatch.watch.pattern import DEFAULT, parse_pattern, saves_of

    opened = open_store(root, say=say, timeout_s=timeout)
    check_own(opened)
    rules = Rules(keep_last, keep_every, named(opened, drop))
    known = Executions(opened, attempts(opened, ended), site=site_here())
    found = plan(opened, rules, known, saves_of([parse_pattern(pattern or DEFAULT)]))
    removed: Sequence[bytes] = found.paths
    trouble: Sequence[str] = ()
    if not dry_run and removed:
        record(known, found)
        removed, trouble = carry_out(opened, found)
    trouble = (*found.trouble, *trouble)
    if as_json:
        click.echo(json.dumps(described(opened, found, removed, trouble, dry_run=dry_run)))
    else:
        click.echo("\n".join(lines(opened, found, removed, dry_run=dry_run)))
    for line in trouble[1:]:
        say(line)
    if trouble:
        raise StoreError(trouble[0])


def check_own(root: AnyRoot) -> None:
    """Refuse root's hand in a user's files: what belongs to a user is touched with that user's rights only."""
    if not isinstance(root, CheckpointRoot):
        return  # whose it is in S3, the credentials say
    uid = os.stat(root.raw).st_uid
    if os.geteuid() == 0 and uid != 0:
        from slurm_dispatch.state.users import user_name

        name = user_name(uid)
        raise NotAllowedError(
            f"checkpoint root {show(root.path)} belongs to {name}", hint=f"runuser -u {name} -- dispatch gc ..."
        )


def named(root: AnyRoot, drop: Sequence[str]) -> frozenset[bytes]:
    """The paths of the saves that a person names, by publication or by path.

    :raises UsageError: one is none of this root.
    """
    if not drop:
        return frozenset()
    publications = root.listing()
    paths = set()
    for text in drop:
        relative = os.fsencode(text.removeprefix(root.path + "/"))
        found = [one.path for one in publications if one.name == text or one.path == relative]
        if not found:
            raise UsageError(
                f"--drop {show(text)} is no publication of {show(root.path)}", hint="dispatch ls lists them"
            )
        paths.update(found)
    return frozenset(paths)


def attempts(root: AnyRoot, ended: Sequence[str]) -> Sequence[str]:
    """``--ended``, each of which must be an execution of this root."""
    there = set(root.executions())
    for attempt in ended:
        if attempt not in there:
            raise UsageError(f"--ended {show(attempt)} is no execution of {show(root.path)}")
    return ended


def record(known: Executions, found: Plan) -> None:
    """Say in the jobs' records what is about to go: each execution's in its own job's, the others' in the newest.

    :raises DispatchError: a record does not take it.
    """
    from slurm_dispatch.cli.standing import job_of

    records = known.records()
    if not records:
        say(NO_RECORD)
        return
    by_job: dict[str, list[str]] = {}
    for attempt, paths in found.removals.items():
        by_job.setdefault(job_of(records, attempt), []).extend(map(show, paths))
    from slurm_dispatch.cli.wishes import bench
    from slurm_dispatch.controller import wish
    from slurm_dispatch.records import people

    here = bench()
    for key, named_paths in by_job.items():

        def work(job: Record, said: list[str] = named_paths) -> dict[str, Any]:
            wish.write(job, here.means.by, lambda _: people.remove(said))
            return {}

        here.as_owner(key, work)


def carry_out(root: AnyRoot, found: Plan) -> tuple[tuple[bytes, ...], tuple[str, ...]]:
    """Remove what goes, with progress on stderr."""
    from slurm_dispatch.cli.layout import Progress
    from slurm_dispatch.store.outranked import remove_all

    return remove_all(root, found.paths, Progress("removed"))


def lines(root: AnyRoot, found: Plan, removed: Sequence[bytes], *, dry_run: bool) -> list[str]:
    """What a person reads."""
    from slurm_dispatch.anyroot import freed
    from slurm_dispatch.cli.layout import size, table
    from slurm_dispatch.store.gc import Standing

    said: list[str] = []
    if dry_run:
        said += [f"would remove {show(path)}" for path in removed]
    gone = set(removed)
    rows = [
        [attempt, str(sum(path in gone for path in paths)), _said(found.standings[attempt])]
        for attempt, paths in found.removals.items()
    ]
    rows += [[attempt, "0", _said(known)] for attempt, known in found.left.items()]
    if rows:
        cells = [[one, count, show(why)] for one, count, why in rows]
        said.append(table(["EXECUTION", "GO" if dry_run else "REMOVED", "IT IS"], cells))
    what = "1 save or leftover" if len(removed) == 1 else f"{len(removed)} saves and leftovers"
    if dry_run:
        took, inodes = freed(root, removed)
        said.append(f"{what} would go, which gives back {size(took)} and {inodes} inodes; nothing was removed")
    else:
        said.append(f"removed {what}")
    if found.latest is None:
        said.append("nothing is published here")
    else:
        stay = f"{len(found.stay)} published saves stay" if len(found.stay) != 1 else "1 published save stays"
        said.append(f"{stay}; the latest is step {found.latest.step}, {show(found.latest.path)}")
    if any(known.standing is Standing.UNKNOWN for known in found.left.values()):
        said.append("an execution of which nothing is known is left; --ended ATTEMPT says that it is over")
    return said


def _said(known: Known) -> str:
    return f"{known.standing}: {known.why}"


def described(
    root: AnyRoot, found: Plan, removed: Sequence[bytes], trouble: Sequence[str], *, dry_run: bool
) -> dict[str, Any]:
    """The same as JSON."""
    from slurm_dispatch.anyroot import freed

    content: dict[str, Any] = {
        "dry_run": dry_run,
        "removed": [os.fsdecode(path) for path in removed],
        "stay": [one.name for one in found.stay],
        "latest": None if found.latest is None else found.latest.name,
        "left": {
            attempt: {"standing": str(known.standing), "why": known.why} for attempt, known in found.left.items()
        },
        "trouble": list(trouble),
    }
    if dry_run:
        content["bytes"], content["inodes"] = freed(root, removed)
    return content


__all__ = ["command"]
