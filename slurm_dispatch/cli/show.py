"""``dispatch show JOB``: one job, or its facts."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slurm_dispatch.controller.glance import Glance
    from slurm_dispatch.records.facts import Fact
    from slurm_dispatch.records.state import Repointed, State


@click.command("show")
@click.argument("job")
@click.option("--facts", "as_facts", is_flag=True, help="Every fact of the record, one a line.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object; with --facts the facts as they are.")
def command(*, job: str, as_facts: bool, as_json: bool) -> int:
    """Show one job: what it is, where it stands, and each of its submissions.

    JOB is the job's key, any Slurm job id that it ever had, or its name.

    \b
    Examples:
      dispatch show 4711
      dispatch show my-training --facts

    Exit codes: 0 done, 64 more than one job is meant, 65 the record is broken, 66 there is no such job,
    69 the state folder does not answer, 78 bad configuration.
    """
    from slurm_dispatch.cli.one import one_job
    from slurm_dispatch.cli.status import ask_slurm, json_of
    from slurm_dispatch.records.fold import fold

    site, key, facts = one_job(job)
    if as_json and as_facts:
        click.echo(json.dumps([_plain(fact) for fact in facts], indent=2))
    elif as_facts:
        click.echo(_facts(facts))
    elif as_json:
        state = fold(facts)
        seen = ask_slurm({key: state}, site)
        told = {"in_slurm": seen.words.get(key), "slurm_does_not_answer": seen.trouble or None}
        content = {**json_of(key, state), **told, "submissions": _submissions(state)}
        click.echo(json.dumps(content, indent=2))
    else:
        state = fold(facts)
        click.echo(_text(key, state, facts, ask_slurm({key: state}, site), time.time()))
    return 0


def _plain(fact: Fact) -> dict[str, object]:
    return {"seq": fact.seq, "at": fact.at, "kind": fact.kind, "by": fact.by, **fact.body}


def _facts(facts: Sequence[Fact]) -> str:
    from slurm_dispatch.cli.layout import clock
    from slurm_dispatch.errors import one_line
    from slurm_dispatch.records.describe import fact_text

    kind = max(len(fact.kind) for fact in facts)
    return "\n".join(
        f"{fact.seq:>5}  {clock(fact.at)}  {fact.kind.ljust(kind)}  {fact_text(fact)}  [{one_line(fact.by)}]"
        for fact in facts
    )


def _submissions(state: State) -> list[dict[str, object]]:
    return [
        {
            "submission": submission.number,
            "settled": submission.settled.value,
            "slurm_job_id": None if submission.object is None else submission.object.slurm_job_id,
            "cluster": None if submission.object is None else submission.object.cluster,
            "executions": [
                {
                    "epoch": str(execution.epoch),
                    "attempt": execution.attempt,
                    "nodes": execution.nodes,
                    "start_time": execution.start_time,
                    "resumed_from": execution.resumed_from,
                    "step": execution.step,
                }
                for execution in submission.executions
            ],
            "ends": [
                {
                    "outcome": end.outcome.value,
                    "restart": end.restart,
                    "final": end.final,
                    "evidence": dict(end.evidence),
                }
                for end in submission.ends
            ],
        }
        for submission in state.submissions
    ]


def _text(key: str, state: State, facts: Sequence[Fact], seen: Glance, now: float) -> str:
    from slurm_dispatch.cli.layout import both, dash
    from slurm_dispatch.controller.glance import waits_for
    from slurm_dispatch.errors import one_line
    from slurm_dispatch.records.describe import state_text
    from slurm_dispatch.records.silent import silent_text

    spec = state.spec
    script = "--wrap" if spec.wrap else dash(spec.script_name)
    lines = [
        ("job", f"{key}  {spec.name}"),
        ("owner", f"{spec.user} (uid {spec.uid}), submitted on {spec.host}"),
        ("state", state_text(state)),
        ("checkpoint", dash(spec.root) + (" (shared)" if spec.shared else "")),
        ("script", f"{' '.join([script, *spec.script_args])}, in {spec.workdir}"),
        ("rules", "; ".join(spec.rules) if spec.rules else "built in"),
        ("created", both(state.created, now)),
        ("changed", both(state.changed, now)),
        ("progress", "-" if state.step is None else f"step {state.step}, {both(state.progress_at, now)}"),
    ]
    told = waits_for(state) or seen.words.get(key, "")
    if seen.trouble:
        told = f"not told: {seen.trouble}"
    if told:
        lines.insert(3, ("in Slurm", told))
    changed = _on_disk(state)
    if changed:
        lines.insert([name for name, _ in lines].index("script") + 1, ("on disk", changed))
    helper = silent_text(state)
    if helper:
        lines.append(("helper", helper))
    if state.hold is not None:
        hold = state.hold
        lines.append(("hold", f"{hold.reason}, by {hold.by}, {both(hold.at, now)}"))
    if state.repointed is not None:
        lines.append(("dependents", _dependents(state.repointed)))
    decision = state.decision
    if decision is not None:
        text = f"{decision.outcome}: {decision.action}, because {decision.reason} (fact {decision.seq})"
        lines.append(("decided", text))
    if state.used:
        lines.append(("used", ", ".join(f"{cause} {count}" for cause, count in state.used.items())))
    if state.request is not None:
        lines.append(("asked for", f"{state.request.what} by {state.request.by}, {both(state.request.at, now)}"))
    if state.closed is not None:
        lines.append(("closed", f"{state.closed.why}: {state.closed.reason}"))
    width = max(len(name) for name, _ in lines)
    text = "\n".join(f"{name.ljust(width)}  {one_line(value)}" for name, value in lines)
    return "\n\n".join([text, _submission_table(state), f"{len(facts)} facts; --facts shows them"])


def _dependents(it: Repointed) -> str:
    moved = f"{', '.join(map(str, it.moved))} wait for Slurm job {it.slurm_job_id}" if it.moved else ""
    left = [f"Slurm job {number} was left: {why}" for number, why in it.left]
    return "; ".join([*([moved] if moved else []), *left]) or "-"


def _on_disk(state: State) -> str:
    """Whether the script's file is another by now than what will be submitted; nothing where it cannot be read."""
    import hashlib
    import os

    from slurm_dispatch.errors import DispatchError
    from slurm_dispatch.submit.script import read_file

    spec = state.spec
    if spec.wrap or spec.script_name is None or os.geteuid() != spec.uid:
        return ""
    try:
        content = read_file(spec.script_name, spec.workdir)
    except DispatchError:
        return ""
    if hashlib.sha256(content).hexdigest() == state.script_sha256:
        return ""
    path = os.path.join(spec.workdir, spec.script_name)
    return f"the script is another by now; dispatch update {spec.job} --script {path} takes it"


_SETTLED = {"open": "no answer yet", "submitted": "-", "rejected": "rejected", "burnt": "never arrived"}


def _submission_table(state: State) -> str:
    from slurm_dispatch.cli.layout import dash, table

    rows = []
    for submission in state.submissions:
        slurm = None if submission.object is None else str(submission.object.slurm_job_id)
        if submission.object is not None and state.spec.clusters:
            slurm = f"{slurm}@{submission.object.cluster}"
        ends = {end.restart: end.outcome.value for end in submission.ends}
        # Where nothing told which execution an end is of, it is of the last one.
        unnumbered = ends.get(None)
        last = submission.ends[-1].outcome.value if submission.ends else None
        head = [str(submission.number), dash(slurm)]
        settled = None if submission.object is not None else _SETTLED[submission.settled.value]
        if submission is not state.current and submission.object is not None:
            settled = "replaced"  # before it ran
        if not submission.executions:
            rows.append([*head, "-", "-", "-", "-", dash(last or settled)])
        for execution in submission.executions:
            outcome = ends.get(execution.epoch.restart)
            if outcome is None and execution is submission.executions[-1]:
                outcome = unnumbered
            steps = "-"
            if execution.step is not None:
                steps = f"{'start' if execution.resumed_from is None else execution.resumed_from} to {execution.step}"
            rows.append([*head, str(execution.epoch), execution.attempt, dash(execution.nodes), steps, dash(outcome)])
    if not rows:
        return "no submission yet"
    return table(("N", "SLURM ID", "EPOCH", "ATTEMPT", "NODES", "STEPS", "END"), rows)
