"""``dispatch why``: the last decision about a job, what it stands on, and what would change it."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from slurm_dispatch.records.why import Why


INPUTS = {
    "now": "it was",
    "rules": "the site's rule",
    "max_submissions": "the most submissions that it lets any job have",
    "launch_failures_max": "the most launches that fail in a row",
    "allowed": "the actions that it allows this job",
    "longest_hold_s": "the longest hold",
    "resubmissions_left": "resubmissions left this hour",
    "excluded": "nodes to keep off, by the node memory",
    "exclude_max": "the most nodes of one end to keep off",
    "spare": "nodes that can be left out",
    "breaker": "the breaker is open",
    "maintenance_until": "maintenance until",
    "jitter": "drawn for the backoff (0 to 1)",
    "no_progress": "executions without progress, where the job names none",
}
"""The names of what the site said, for a person; ``--json`` has them as the fact does."""


@click.command("why")
@click.argument("job")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(*, job: str, as_json: bool) -> int:
    """Say why JOB is where it is: the last decision, the rule, the facts that it stands on, the budget that is
    left, and what would change it.

    \b
    Examples:
      dispatch why 4711
      dispatch why my-training --json

    Exit codes: 0 done, 64 more than one job is meant, 65 the record is broken, 66 there is no such job, 69 the
    state folder does not answer.
    """
    from slurm_dispatch.cli.one import one_job
    from slurm_dispatch.cli.status import ask_slurm
    from slurm_dispatch.controller import hints
    from slurm_dispatch.controller.silentword import silent_word
    from slurm_dispatch.controller.siterules import rules_of
    from slurm_dispatch.records.fold import fold
    from slurm_dispatch.records.policy import Policy
    from slurm_dispatch.records.why import explain

    site, key, facts = one_job(job)
    state = fold(facts)
    seen = ask_slurm({key: state}, site)
    policy = Policy(site.rules, site.most_submissions, site.launch_failures, no_progress=site.no_progress)
    silent = silent_word(state, hints.load(hints.tick_folder(site.state)), rules_of(site), time.time())
    why = explain(state, facts, policy, seen.reasons.get(key, ""), nodes=silent)
    if as_json:
        content = {"job": key, **asdict(why), "slurm_does_not_answer": seen.trouble or None}
        click.echo(json.dumps(content, indent=2))
    else:
        click.echo(text(key, state.spec.name, why, seen.away))
    return 0


def text(key: str, name: str, why: Why, away: str = "") -> str:
    """The answer for a person; ``away`` is its last line."""
    from slurm_dispatch.errors import one_line

    lines = [f"job {key} ({name}) is {why.state}", ""]
    number = "" if why.decision is None else f" (fact {why.decision})"
    lines.append(f"decided{number}: {why.what}" if why.decision is not None else why.what)
    if why.rule:
        lines.append(f"by the rule: {why.rule}")
    if why.helper:
        lines.append(f"its helper: {why.helper}")
    if why.nodes:
        lines.append(f"its nodes: {why.nodes}")
    if why.stands_on:
        lines += ["", "It stands on these facts:"]
        width = len(str(max(seq for seq, _ in why.stands_on)))
        lines += [f"  {seq:>{width}}  {says}" for seq, says in why.stands_on]
    if why.inputs:
        lines += ["", "and on what the site said then:"]
        lines += [f"  {INPUTS.get(name, name)}: {_input(name, value)}" for name, value in why.inputs]
    if why.budget or why.caps:
        lines += ["", "Used, of what there is:"]
        budget = [(cause, used, "any number" if most is None else str(most)) for cause, used, most in why.budget]
        lines += [f"  {cause}: {used} of {most}" for cause, used, most in budget]
        lines += [f"  {cap}: {used} of {most}" for cap, used, most in why.caps]
    if why.would_change:
        lines += ["", "What would change it:"]
        lines += [f"  {line}" for line in why.would_change]
    if away:
        lines += ["", away]
    return "\n".join(one_line(line) if line else "" for line in lines)


def _input(name: str, value: str) -> str:
    """A number as people read it; what it was exactly ``--json`` shows."""
    from slurm_dispatch.cli.layout import clock
    from slurm_dispatch.model.quantity import duration

    try:
        number = float(value)
    except ValueError:
        return value
    if name in {"now", "maintenance_until"}:
        return clock(number)
    if name.endswith("_s"):
        return duration(number)
    return f"{number:.2f}" if name == "jitter" else value
