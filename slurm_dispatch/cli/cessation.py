"""``dispatch cessation``: the built-in answer about an execution's processes, for the site's own scripts."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurm_dispatch.config.site import Site
    from slurm_dispatch.records.cessation import AskedExecution
    from slurm_dispatch.slurm.port import Unknown

STATUS = {"ceased": 0, "running": 1, "unknown": 75}


@click.command("cessation")
@click.option("--fields", is_flag=True, help="Print the question's fields for a shell script instead.")
@click.option("--timeout", type=click.FloatRange(0.1, 3600), default=20.0, help="Seconds that Slurm may take (20).")
def command(*, fields: bool, timeout: float) -> int:
    """Answer a question about an execution's processes from what its nodes have said.

    The question is the JSON object that a cessation command gets on standard input. The answer is slurm-nodes, the
    built-in one. With --fields, one field a line is printed, safe for a shell's read: attempt, job, uid, start and
    end (Unix seconds or -), proved (how many nodes need no more proof), and a line "node NAME" for each other.

    \b
    Examples:
      dispatch cessation <question.json
      dispatch cessation --fields <question.json | while read -r name value; do ...

    Exit codes: 0 ceased (with --fields: done), 1 not ceased, 65 not a question, 75 unknown, 78 bad configuration.
    """
    from slurm_dispatch.records.cessation import QUESTION_MAX, parse_question
    from slurm_dispatch.slurm.cessation import judge

    execution = parse_question(sys.stdin.buffer.read(QUESTION_MAX + 1))
    reasons = reasons_of(execution, timeout)
    if fields:
        click.echo(lines(execution, reasons))
        return 0
    answer = judge(execution, reasons, time.time())
    click.echo(answer.detail)
    return STATUS[answer.answer]


def reasons_of(
    execution: AskedExecution, timeout_s: float, site: Site | None = None
) -> Mapping[str, str] | Unknown:
    """Why nodes are drained, where that matters at all.

    :param site: the settings of this host, unless they are known.
    """
    from slurm_dispatch.config.site import load_site
    from slurm_dispatch.slurm.cessation import reasons_on
    from slurm_dispatch.slurm.commands import commands_environment
    from slurm_dispatch.slurm.port import Unknown

    if not any(word.clean for word in execution.words):
        return Unknown("not asked")
    site = load_site() if site is None else site
    return reasons_on(execution.cluster, commands_environment(site.slurm_bin or ""), timeout_s, site.cluster or "")


def lines(execution: AskedExecution, reasons: Mapping[str, str] | Unknown) -> str:
    """The fields for a shell: names, numbers and words of ``[a-zA-Z0-9._-]`` only."""
    from slurm_dispatch.slurm.cessation import unproved

    left = unproved(execution, reasons)
    found = [
        f"attempt {execution.attempt}",
        f"job {execution.slurm_job_id}",
        f"uid {execution.uid}",
        f"start {_seconds(execution.start)}",
        f"end {_seconds(execution.end)}",
        f"proved {len(set(execution.nodes)) - len(left)}",
    ]
    return "\n".join(found + [f"node {node}" for node in left])


def _seconds(moment: float | None) -> str:
    return "-" if moment is None else str(int(moment))


__all__ = ["STATUS", "command", "lines", "reasons_of"]
