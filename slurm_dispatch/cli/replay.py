"""``dispatch replay``: every decision about a job once more, from its facts alone."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from slurm_dispatch.records.replay import Replayed


@click.command("replay")
@click.argument("job")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(*, job: str, as_json: bool) -> int:
    """Make every decision about JOB again, from the facts before it and from what it recorded of the site, and
    say whether the same comes out. Nothing is changed.

    \b
    Examples:
      dispatch replay 4711

    Exit codes: 0 all the same, 64 more than one job is meant, 65 the record is broken or a decision comes out
    otherwise, 66 there is no such job, 69 the state folder does not answer.
    """
    from slurm_dispatch.cli.one import one_job
    from slurm_dispatch.records.replay import replay

    _, key, facts = one_job(job)
    found = replay(facts)
    if as_json:
        content = [
            {"fact": it.seq, "same": it.same, "differs": list(it.differs), "trouble": it.trouble,
             "recorded": dict(it.recorded), "now": dict(it.now)}
            for it in found
        ]  # fmt: skip
        click.echo(json.dumps({"job": key, "decisions": content}, indent=2))
    else:
        click.echo("\n".join(_line(it) for it in found) if found else f"job {key}: nothing was decided yet")
    return 65 if any(it.same is False for it in found) else 0


def _line(it: Replayed) -> str:
    what = _what(it.recorded)
    if it.same is None:
        return f"fact {it.seq}: {what}: cannot be told ({it.trouble})"
    if it.same:
        return f"fact {it.seq}: {what}: the same"
    return f"fact {it.seq}: {what}: now it would be {_what(it.now)} (differs: {', '.join(it.differs)})"


def _what(body: Any) -> str:
    number = "" if body.get("submission") is None else f" as submission {body['submission']}"
    return f"{body['outcome']}: {body['action']}{number}"
