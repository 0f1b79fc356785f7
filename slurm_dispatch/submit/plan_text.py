"""The plan as people read it: what will be done about each outcome, and why."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from slurm_dispatch.errors import DispatchError, show
from slurm_dispatch.model.outcome import Action, Outcome
from slurm_dispatch.rules.plan import MEANING, PlanRow, plan
from slurm_dispatch.rules.rule import parse_rules
from slurm_dispatch.state.folder import StateFolder
from slurm_dispatch.store.thin import bound

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slurm_dispatch.config.site import Site
    from slurm_dispatch.submit.request import Request

HELPER = "dispatch-watch"
_EXEC = re.compile(rf"\bexec\s(.*\s)?(\S*/)?{HELPER}\b")
NO_HELPER = f"does not call {HELPER}: no save is kept, published or handed to the next run"


def rows_of(request: Request, site: Site) -> tuple[PlanRow, ...]:
    """The plan of a request."""
    return plan(parse_rules(request.spec.rules), site.rules)


def short_plan(request: Request, rows: Sequence[PlanRow]) -> list[str]:
    """The plan in a few lines, for ``dispatch sbatch``, with what the person should know before the job starts."""
    lines = []
    for action in Action:
        named = [row for row in rows if row.action is action and row.outcome is not Outcome.COMPLETED]
        words = [f"{row.outcome}{'' if row.budget is None else f' ({_times(row.budget)})'}" for row in named]
        if words:
            lines.append(f"plan: {action} after {', '.join(words)}")
    lines.append(f"plan: at most {request.spec.max_submissions} submissions; dispatch plan says more")
    return lines + [f"note: {note}" for note in warnings(request, rows)]


def _times(budget: int) -> str:
    return "once" if budget == 1 else f"{budget} times"


def table(rows: Sequence[PlanRow], launch_failures: int) -> list[str]:
    """The whole plan as aligned lines with a heading. The rule comes last: only it can be long.

    :param launch_failures: how many launches in a row may fail.
    """
    cells = [("OUTCOME", "WHAT IT MEANS", "ACTION", "BUDGET", "WHY")]
    for row in rows:
        budget = str(row.budget)
        if row.action is not Action.RESUBMIT:
            budget = "-"
        elif row.outcome is Outcome.LAUNCH_FAILED and (row.budget is None or row.budget > launch_failures):
            budget = str(launch_failures)
        elif row.budget is None:
            budget = "no limit"
        cells.append((str(row.outcome), MEANING[row.outcome], str(row.action), budget, row.why))
    widths = [max(len(cell[column]) for cell in cells) for column in range(5)]
    return ["  ".join(text.ljust(width) for text, width in zip(cell, widths, strict=True)).rstrip() for cell in cells]


def report(request: Request, rows: Sequence[PlanRow], site: Site) -> list[str]:
    """All that ``dispatch plan`` prints."""
    spec = request.spec
    return [
        f"{show(spec.name)}: checkpoint root {show(spec.root) if spec.root else '(none)'}",
        "",
        *table(rows, site.launch_failures),
        "",
        f"The job has at most {spec.max_submissions} submissions. A budget counts the resubmissions for one outcome",
        "since the last new save.",
        *(f"note: {note}" for note in notes(request, rows, site)),
    ]


def notes(request: Request, rows: Sequence[PlanRow], site: Site) -> list[str]:
    """What the person should know beside the table; each one line."""
    found = []
    if not request.spec.root:
        found.append("no checkpoint root: dispatch sbatch refuses the job without --checkpoint ROOT")
    try:
        StateFolder(site.state)
    except DispatchError as error:
        found.append(f"dispatch sbatch cannot submit it now: {error}")
    found += warnings(request, rows)
    most = bound(1, 1)
    found.append(
        f"space: at most {most.saves} saves stay in the root at a time, if the training's own rotation keeps one"
    )
    return found


def warnings(request: Request, rows: Sequence[PlanRow]) -> list[str]:
    """What may be other than the person thinks; each one line."""
    found = []
    if not request.script.wrap:
        found += _helper_notes(request.script.content)
    else:
        wrapped = request.line.parsed.last("wrap")
        if wrapped is None or HELPER not in (wrapped.value or ""):
            found.append(f"the wrapped command {NO_HELPER}")
    if any(row.outcome is Outcome.CANCELLED and row.action is Action.RESUBMIT for row in rows):
        found.append("cancelled is resubmitted after an operator's scancel only: your own is final")
    if "--no-requeue" not in request.spec.argv:
        found.append("Slurm itself requeues it (--requeue); the rules apply once the object has ended for good")
    return found


def _helper_notes(script: bytes) -> list[str]:
    lines = [line.strip() for line in script.decode("utf-8", "surrogateescape").splitlines()]
    commands = [line for line in lines if line and not line.startswith("#")]
    if not any(HELPER in line for line in commands):
        return [f"the script {NO_HELPER}"]
    shell = lines[0].rstrip().endswith(("sh", "sh -l", "sh -e", "sh -eu")) if lines else False
    if shell and not any(_EXEC.search(line) for line in commands):
        why = "a signal reaches the shell, and the helper only when the shell hands it on"
        return [f"the script must end with 'exec {HELPER} ...': otherwise {why}"]
    return []


def as_json(request: Request, rows: Sequence[PlanRow], site: Site) -> str:
    """The same as one JSON object."""
    content: dict[str, Any] = {
        "name": request.spec.name,
        "root": request.spec.root or None,
        "max_submissions": request.spec.max_submissions,
        "plan": [
            {
                "outcome": str(row.outcome),
                "action": str(row.action),
                "budget": row.budget,
                "why": row.why,
                "means": MEANING[row.outcome],
            }
            for row in rows
        ],
        "notes": notes(request, rows, site),
    }
    return json.dumps(content, indent=2)
