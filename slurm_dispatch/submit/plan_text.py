"""The plan as people and programs read it: what will be done about each outcome, and why."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from slurm_dispatch.errors import show
from slurm_dispatch.model.outcome import Action, Outcome
from slurm_dispatch.model.quantity import duration
from slurm_dispatch.rules.plan import MEANING, changes
from slurm_dispatch.slurm.configuration import seconds_of
from slurm_dispatch.submit.plan_notes import caps, missing_hooks, notes, warnings
from slurm_dispatch.submit.plan_table import WIDTH, meanings, table, wrapped

if TYPE_CHECKING:
    from slurm_dispatch.rules.plan import PlanRow
    from slurm_dispatch.submit.plan import Plan

PREFIX = len("dispatch: ")


def report(plan: Plan, more: list[str]) -> list[str]:
    """All that ``dispatch plan`` prints.

    :param more: notes that come first.
    """
    spec = plan.spec
    root = show(spec.root) if spec.root else "(none)"
    shared = ", shared" if spec.shared else ""
    about = "A budget is how often an outcome may bring the job back since its last new save; then it is held."
    lines = [
        f"{show(spec.name)}: checkpoint root {root}{shared}",  # never broken: people copy the path
        "",
        *table(plan),
        "",
        *wrapped(f"{about} Whatever the budgets, it is held after {caps(plan)}.", WIDTH),
        "",
        *meanings(plan.rows),
        "",
    ]
    for note in [*more, *notes(plan)]:
        first, *rest = wrapped(f"note: {note}", WIDTH - 6)
        lines += [first, *(f"      {line}" for line in rest)]
    return lines


def short_plan(plan: Plan) -> list[str]:
    """The plan in a few lines, for ``dispatch sbatch``, with what the person should know before the job starts."""
    lines: list[str] = []
    groups: dict[str, list[str]] = {}
    narrow = {row.outcome for row in plan.rows if row.when}
    for row in plan.rows:
        if row.outcome is not Outcome.COMPLETED and not plan.off(row.outcome):
            groups.setdefault(_group(row), []).append(_word(row, among=row.outcome in narrow))
    order = [str(action) for action in Action]
    for group in sorted(groups, key=lambda text: order.index(text.split(" ", maxsplit=1)[0])):
        lines += _continued(f"plan: {group} after {', '.join(groups[group])}")
    lines += _continued(f"plan: held after {caps(plan)}; dispatch plan says more")
    for note in warnings(plan):
        lines += _continued(f"note: {note}")
    return lines


def _group(row: PlanRow) -> str:
    if row.applied.hold_for_s is None:
        return str(row.action)
    return f"{row.action} for {duration(row.applied.hold_for_s)}"


def _word(row: PlanRow, *, among: bool) -> str:
    """:param among: other rows are about some ends of this outcome."""
    details = [row.when or "otherwise"] if among else []
    if row.budget is not None and row.action is not Action.HOLD:
        details.append("once" if row.budget == 1 else f"{row.budget} times")
    return f"{row.outcome} ({', '.join(details)})" if details else str(row.outcome)


def _continued(text: str) -> list[str]:
    first, *rest = wrapped(text, WIDTH - PREFIX - 6)
    return [first, *(f"      {line}" for line in rest)]


def as_json(plan: Plan, more: list[str]) -> str:
    """The same as one JSON object."""
    spec = plan.spec
    content: dict[str, Any] = {
        "name": spec.name,
        "root": spec.root or None,
        "shared": spec.shared,
        "max_submissions": spec.max_submissions,
        "max_node_hours": spec.max_node_hours,
        "until": spec.until,
        "no_progress": spec.no_progress,
        "stall_s": spec.stall_s,
        "suspect_s": spec.suspect_s,
        "slurmd_timeout_s": seconds_of(plan.config, "SlurmdTimeout"),
        "cessation": list(plan.site.cessation),
        "missing_hooks": missing_hooks(plan),
        "plan": [
            {
                "outcome": str(row.outcome),
                "when": row.when or None,
                "possible": not plan.off(row.outcome),
                "action": str(row.action),
                "budget": row.budget,
                "hold_for_s": row.applied.hold_for_s,
                "then": None if row.applied.then is None else str(row.applied.then),
                "changes": list(changes(row.rule, row.outcome)),
                "rule": row.rule.text,
                "why": row.why,
                "place": plan.place_of(row.rule) or None,
                "instead": row.applied.why if row.applied.why != "rule" else None,
                "means": MEANING[row.outcome],
            }
            for row in plan.rows
        ],
        "notes": [*more, *notes(plan)],
    }
    return json.dumps(content, indent=2)
