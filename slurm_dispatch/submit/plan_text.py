"""The plan as people read it: what will be done about each outcome, and why."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from slurm_dispatch.model.outcome import Action, Outcome
from slurm_dispatch.rules.plan import MEANING, PlanRow, plan
from slurm_dispatch.rules.rule import parse_rules
from slurm_dispatch.store.thin import bound

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slurm_dispatch.config.site import Site
    from slurm_dispatch.submit.request import Request

HELPER = "dispatch-watch"
NO_HELPER = f"does not call {HELPER}: no save is kept, published or handed to the next run"


def rows_of(request: Request, site: Site) -> tuple[PlanRow, ...]:
    """The plan of a request."""
    return plan(parse_rules(request.spec.rules), site.rules)


def short_plan(rows: Sequence[PlanRow], max_submissions: int) -> list[str]:
    """The plan in a few lines, for ``dispatch sbatch``."""
    lines = []
    for action in Action:
        named = [row for row in rows if row.action is action and row.outcome is not Outcome.COMPLETED]
        if not named:
            continue
        words = [f"{row.outcome}{'' if row.budget is None else f' ({_times(row.budget)})'}" for row in named]
        lines.append(f"plan: {action} after {', '.join(words)}")
    lines.append(f"plan: at most {max_submissions} submissions")
    return lines


def _times(budget: int) -> str:
    return "once" if budget == 1 else f"{budget} times"


def table(rows: Sequence[PlanRow]) -> list[str]:
    """The whole plan as aligned lines with a heading."""
    cells = [("OUTCOME", "ACTION", "BUDGET", "WHY", "THE OUTCOME MEANS")]
    for row in rows:
        budget = "-" if row.budget is None else str(row.budget)
        cells.append((str(row.outcome), str(row.action), budget, row.why, MEANING[row.outcome]))
    widths = [max(len(cell[column]) for cell in cells) for column in range(5)]
    return ["  ".join(text.ljust(width) for text, width in zip(cell, widths, strict=True)).rstrip() for cell in cells]


def notes(request: Request) -> list[str]:
    """What the person should know beside the table; each one line."""
    found = []
    if not request.spec.root:
        found.append("no checkpoint root: dispatch sbatch refuses the job without --checkpoint ROOT")
    if not request.script.wrap:
        found += _helper_notes(request.script.content)
    else:
        wrapped = request.line.parsed.last("wrap")
        if wrapped is None or HELPER not in (wrapped.value or ""):
            found.append(f"the wrapped command {NO_HELPER}")
    if "--no-requeue" not in request.spec.argv:
        found.append("Slurm itself requeues it (--requeue); the rules apply once the object has ended for good")
    most = bound(1, 1)
    found.append(
        f"space: at most {most.saves} saves stay in the root at a time, if the training's own rotation keeps one"
    )
    return found


def _helper_notes(script: bytes) -> list[str]:
    lines = [line.strip() for line in script.decode("utf-8", "surrogateescape").splitlines()]
    commands = [line for line in lines if line and not line.startswith("#")]
    if not any(HELPER in line for line in commands):
        return [f"the script {NO_HELPER}"]
    shell = lines[0].rstrip().endswith(("sh", "sh -l", "sh -e", "sh -eu")) if lines else False
    if shell and commands and HELPER in commands[-1] and not commands[-1].startswith(f"exec {HELPER}"):
        why = "a signal reaches the shell, and the helper only when the shell hands it on"
        return [f"the last line of the script must be 'exec {HELPER} ...': otherwise {why}"]
    return []


def as_json(request: Request, rows: Sequence[PlanRow]) -> str:
    """The same as one JSON object."""
    content: dict[str, Any] = {
        "name": request.spec.name,
        "root": request.spec.root or None,
        "max_submissions": request.spec.max_submissions,
        "plan": [
            {"outcome": str(row.outcome), "action": str(row.action), "budget": row.budget, "why": row.why}
            for row in rows
        ],
        "notes": notes(request),
    }
    return json.dumps(content, indent=2)
