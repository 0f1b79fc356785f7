"""``dispatch ps``: what of an execution still runs on this node."""

from __future__ import annotations

import json
import os
import socket
import time
from typing import TYPE_CHECKING, Any

import click

from slurm_dispatch.errors import BadDataError, DispatchError, UsageError, one_line

if TYPE_CHECKING:
    from slurm_dispatch.slurm.processes import Wanted

STATUS = {"clean": 0, "left": 1, "unknown": 75}
"""Exit status by answer: that of a cessation command, with 75 for unknown."""
TIMEOUT_S = 20.0
COMMAND_MAX = 120
"""Characters of a command line that are shown."""


@click.command("ps")
@click.option("--attempt", required=True, help="The execution's attempt, as dispatch show has it.")
@click.option("--job", "jobs", type=click.IntRange(1, 2**32 - 1), multiple=True, help="Its Slurm job id.")
@click.option("--uid", type=click.IntRange(0, 2**32 - 2), help="Its owner's user id.")
@click.option("--sluid", default="", help="Its SLUID, the name of its cgroup from Slurm 26.05 on.")
@click.option("--timeout", type=click.FloatRange(0.1, 3600), default=TIMEOUT_S, help="Seconds it may take (20).")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(
    *, attempt: str, jobs: tuple[int, ...], uid: int | None, sluid: str, timeout: float, as_json: bool
) -> int:
    """Show what of an execution still runs on this node.

    A process counts if it carries the attempt in its environment, if it is in the job's cgroup, or if it is the
    owner's and not of another live job of his. Job id and owner are taken from the node's own file of the execution
    while there is one. The first line is the answer, the attempt and the node's name; a process a line follows.

    \b
    Examples:
      dispatch ps --attempt 3k5w5ikf7n3q4zq2m6xa
      dispatch ps --attempt 3k5w5ikf7n3q4zq2m6xa --job 4711 --uid 2001 --json

    Exit codes: 0 clean: nothing of it runs here, 1 left: something does, 64 usage, 75 unknown: nothing was found,
    and not everything could be seen (not root, the owner not known, no end in time).
    """
    from slurm_dispatch.model.identity import check_attempt

    try:
        check_attempt(attempt)
    except BadDataError as error:
        raise UsageError(f"--attempt: {error}") from error
    if sluid and not (sluid.isalnum() and sluid.isascii() and len(sluid) <= 64):
        raise UsageError("--sluid: it is letters and digits")
    found = look(want(attempt, frozenset(jobs), uid, sluid), timeout)
    click.echo(json.dumps(found) if as_json else table(found))
    return STATUS[found["answer"]]


def want(attempt: str, jobs: frozenset[int], uid: int | None, sluid: str) -> Wanted:
    """What to look for: what was said, and what the node itself knows of its executions."""
    from slurm_dispatch.slurm import on_node
    from slurm_dispatch.slurm.processes import Wanted, boot

    here = on_node.executions()
    kept = [it for it in on_node.begun(on_node.spool_of()) if it.attempt == attempt]
    own = [it for it in here if it.attempt == attempt]
    jobs = jobs | {it.slurm_job_id for it in (*own, *kept)}
    if uid is None:
        uid = next((it.uid for it in (*own, *kept) if it.uid is not None), None)
    living = [it for it in here if it.attempt != attempt and it.uid is not None and it.uid == uid]
    now = boot()
    return Wanted(
        attempt,
        uid,
        jobs,
        sluid,
        frozenset(it.attempt for it in living),
        frozenset(it.attempt for it in living if it.slurm_job_id in jobs),
        # The file is on a RAM disk: one of this boot means that the execution began again.
        bool(kept) and not own and now is not None and all(it.boot not in {"", now} for it in kept),
    )


def look(wanted: Wanted, timeout_s: float) -> dict[str, Any]:
    """Search, in a child that is given up at the deadline: a process can be stuck in a way that holds its reader."""
    from slurm_dispatch.slurm.processes import boot, describe, scan
    from slurm_dispatch.state.as_user import in_child

    until = time.monotonic() + timeout_s
    me = os.getpid()

    def work() -> bytes:
        found = scan(wanted, deadline=until, besides=me)
        left = [{"pid": it.pid, "uid": it.uid, "why": it.why, **_described(describe(it))} for it in found.left]
        return json.dumps({"answer": found.answer, "why": "; ".join(found.troubles[:8]), "processes": left}).encode()

    try:
        answer = in_child(os.geteuid(), os.getegid(), os.getgroups(), work, timeout_s + 1.0, site_files=True)
        content = json.loads(answer)
    except DispatchError as error:
        content = {"answer": "unknown", "why": str(error), "processes": []}
    node = socket.gethostname().partition(".")[0]
    head = {"v": 1, "attempt": wanted.attempt, "node": node, "boot": boot(), "at": time.time()}
    if wanted.booted:
        head["booted"] = True
    return {**head, **content}


def _described(it: tuple[str, float | None]) -> dict[str, Any]:
    return {"command": one_line(it[0])[:COMMAND_MAX], "since": it[1]}


def table(found: dict[str, Any]) -> str:
    """The answer for a person."""
    from slurm_dispatch.state.users import user_name

    lines = [f"{found['answer']} {found['attempt']} {one_line(found['node'])}"]
    if found["answer"] == "unknown":
        lines[0] += f": {one_line(found['why'])}"
    for it in found["processes"]:
        since = "" if it["since"] is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(it["since"]))
        lines.append(f"{it['pid']:>9}  {user_name(it['uid']):<12}  {since:<19}  {it['why']:<36}  {it['command']}")
    return "\n".join(lines)


__all__ = ["STATUS", "command", "look", "table", "want"]
