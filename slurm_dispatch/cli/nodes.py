"""``dispatch nodes``: the nodes that jobs keep off, and why."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from slurm_dispatch.config.site import Site
    from slurm_dispatch.controller.hints import Hints
    from slurm_dispatch.controller.memory import Entry, Fading
    from slurm_dispatch.slurm.port import Nodes, Unknown

SHOWN_MAX = 5
"""Evidence of one node that is shown to a person: the newest."""
HEAD = ("NODE", "SCORE", "STATE", "YOUR JOBS", "EVIDENCE")


@click.command("nodes")
@click.option("--all", "everything", is_flag=True, help="Also the nodes whose evidence is too weak to count.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(*, everything: bool, as_json: bool) -> int:
    """List the nodes that were there when executions failed, with the evidence.

    SCORE is what the evidence counts for your jobs: your own in full, that of each other user up to a bound, and all
    of it less and less as it ages. From the threshold on, submissions of yours keep off the node, unless so much of
    a partition is to be avoided that the worst alone are. Nodes that are silent now are listed as well.

    \b
    Examples:
      dispatch nodes
      dispatch nodes --all --json

    Exit codes: 0 done, 64 usage, 78 bad configuration.
    """
    from slurm_dispatch.config.site import load_site
    from slurm_dispatch.controller import hints
    from slurm_dispatch.controller.siterules import fading_of
    from slurm_dispatch.slurm.commands import SlurmCommands, commands_environment

    site = load_site()
    found = hints.load(hints.tick_folder(site.state))
    port = SlurmCommands(commands_environment(site.slurm_bin or ""), timeout_s=_patience(site))
    content = evidence(found, port.nodes(), os.geteuid(), fading_of(site), time.time(), everything=everything)
    click.echo(json.dumps(content, indent=2) if as_json else text(content, time.time()))
    return 0


def _patience(site: Site) -> float:
    from slurm_dispatch.controller.glance import TIMEOUT_S

    return min(TIMEOUT_S, site.query_timeout_s)


def evidence(
    hints: Hints, answer: Nodes | Unknown, uid: int, fading: Fading, now: float, *, everything: bool
) -> dict[str, Any]:
    """What is known of each node, the worst first.

    :param answer: Slurm's nodes; where it does not tell them, nobody keeps off any.
    :param uid: whose jobs are meant.
    """
    from slurm_dispatch.controller import memory
    from slurm_dispatch.slurm.port import Unknown

    scores = memory.scores(hints.memory, uid, fading, now)
    told = {} if isinstance(answer, Unknown) else {node.name: node for node in answer.nodes}
    off: set[str] = set()
    if not isinstance(answer, Unknown):
        for partition in sorted({name for node in answer.nodes for name in node.partitions}):
            off.update(memory.excluded(hints.memory, answer, uid, [partition], fading, now=now))
    names = {name for name, score in scores.items() if everything or score >= memory.THRESHOLD}
    names |= {name for name, node in told.items() if node.silent}
    rows = []
    for name in sorted(names, key=lambda name: (-scores.get(name, 0.0), name)):
        node = told.get(name)
        mine = [entry for entry in hints.memory if entry.node == name and fading.counts(entry, now) > 0.0]
        rows.append({
            "node": name,
            "score": round(scores.get(name, 0.0), 3),
            "avoided": name in off,
            "state": None if node is None else "+".join([node.state, *sorted(node.flags)]),
            "silent_since": hints.silence.silent.get(name) if node is not None and node.silent else None,
            "evidence": [_entry(entry, fading, now) for entry in sorted(mine, key=lambda entry: -entry.at)],
        })  # fmt: skip
    return {
        "threshold": memory.THRESHOLD,
        "share": fading.share,
        "slurm_does_not_answer": answer.why if isinstance(answer, Unknown) else None,
        "nodes": rows,
    }


def _entry(entry: Entry, fading: Fading, now: float) -> dict[str, Any]:
    return {
        "at": entry.at,
        "outcome": entry.outcome,
        "job": entry.job,
        "submission": entry.submission,
        "uid": entry.uid,
        "counts": round(fading.counts(entry, now), 3),
        "expires": entry.at + fading.expiry_s,
    }


def text(content: dict[str, Any], now: float) -> str:
    """The evidence for a person: a line for each node, with its newest evidence."""
    from slurm_dispatch.cli.layout import age, dash, table

    rows, lines = [], []
    for row in content["nodes"]:
        said = [
            f"{it['outcome']} of {it['job']} {age(it['at'], now)}: {it['counts']:.2f}, gone {age(it['expires'], now)}"
            for it in row["evidence"]
        ]
        silent = row["silent_since"]
        state = dash(row["state"]) + (f", silent since {age(silent, now)}" if silent is not None else "")
        keep = "keep off" if row["avoided"] else "may use it"
        rows.append([row["node"], f"{row['score']:.2f}", state, keep, dash(said[0] if said else None)])
        rows += [["", "", "", "", more] for more in said[1:SHOWN_MAX]]
        if len(said) > SHOWN_MAX:
            rows.append(["", "", "", "", f"and {len(said) - SHOWN_MAX} older ones (--json has all)"])
    if rows:
        lines.append(table(HEAD, rows))
        most = f"the worst first and no more than {content['share'] * 100:g} % of a partition"
        from_ = f"from {content['threshold']:g} on, what brings a job back keeps off a node"
        lines.append(f"{from_}: {most}, but one at least")
    else:
        lines.append("no node has evidence against it, and none is silent")
    if content["slurm_does_not_answer"]:
        why = f"Slurm does not tell its nodes, so none is avoided: {content['slurm_does_not_answer']}"
        lines.append(click.style(why, fg="yellow"))
    return "\n".join(lines)
