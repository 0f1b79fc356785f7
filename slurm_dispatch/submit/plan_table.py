"""The table of a plan, for a terminal of 100 columns."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from slurm_dispatch.model.outcome import Action, Outcome
from slurm_dispatch.model.quantity import duration
from slurm_dispatch.rules.applied import RECOVERING
from slurm_dispatch.rules.plan import MEANING, PlanRow, changes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slurm_dispatch.submit.plan import Plan

WIDTH = 100
HEAD = ("OUTCOME", "ACTION", "BUDGET", "WHAT CHANGES", "WHY")
_CHANGES_WIDTH = 25
_GAP = "  "


def table(plan: Plan) -> list[str]:
    """The plan as aligned lines with a heading; which ends of an outcome a row is about stands below its name."""
    cells = [[[word] for word in HEAD]]
    before: PlanRow | None = None
    for row in plan.rows:
        when = row.when or ("otherwise" if before is not None and before.outcome is row.outcome else "")
        cells.append(_cells(plan, row, when))
        before = row
    widths = [max(len(line) for columns in cells for line in columns[column]) for column in range(len(HEAD) - 1)]
    widths.append(WIDTH - sum(widths) - len(_GAP) * len(widths))
    for cell in cells[1:]:
        cell[-1] = wrapped(cell[-1][0], widths[-1])
    lines = []
    for columns in cells:
        for number in range(max(map(len, columns))):
            texts = [cell[number] if number < len(cell) else "" for cell in columns]
            padded = (text.ljust(width) for text, width in zip(texts, widths, strict=True))
            lines.append(_GAP.join(padded).rstrip())
    return lines


def _cells(plan: Plan, row: PlanRow, when: str) -> list[list[str]]:
    outcome = [str(row.outcome), *([f"  {line}" for line in wrapped(when, 16)] if when else [])]
    off = plan.off(row.outcome)
    if off:
        return [outcome, ["-"], ["-"], ["-"], [off]]
    return [
        outcome,
        [action_text(row)],
        [budget_text(row, plan.site.launch_failures)],
        wrapped(change_text(row), _CHANGES_WIDTH),
        [why_text(plan, row)],
    ]


def action_text(row: PlanRow) -> str:
    """``resubmit``, or ``hold 24h``."""
    return str(row.action) + (f" {duration(row.applied.hold_for_s)}" if row.applied.hold_for_s else "")


def budget_text(row: PlanRow, launch_failures: int) -> str:
    """How often, in words."""
    if row.rule.action not in RECOVERING or row.applied.why == "limit" or row.action is Action.STOP:
        return "-"
    if row.outcome is Outcome.LAUNCH_FAILED and (row.budget is None or row.budget > launch_failures):
        return f"{launch_failures} in a row"
    return "no limit" if row.budget is None else str(row.budget)


def change_text(row: PlanRow) -> str:
    """What the next submission has that this one had not, and what a release leads to."""
    found = ", ".join(changes(row.rule, row.outcome)) if row.action is not Action.STOP else ""
    if row.action is Action.HOLD:
        return "then resubmit" + (f", {found}" if found else "")
    return found or ("nothing" if row.action in RECOVERING else "-")


def why_text(plan: Plan, row: PlanRow) -> str:
    """Whose rule it is and where it stands, and what stands above it."""
    why = row.why
    place = plan.place_of(row.rule)
    if place and why.startswith("your rule"):
        why = f"{why} ({place})"
    if row.applied.why == "shared":
        return f"{why}; shared checkpoint: held"
    if row.applied.why == "limit":
        return f"{why}; {plan.bounded.place('actions')} does not allow {row.rule.action}"
    return why


def wrapped(text: str, width: int) -> list[str]:
    """Lines of at most ``width`` characters; a long rule is broken behind a comma or, in a list, a plus."""
    lines: list[str] = []
    for line in textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False) or [""]:
        left = line
        while len(left) > width:
            at = left.rfind(",", 0, width) + 1 or left.rfind("+", 0, width) + 1 or width
            lines.append(left[:at])
            left = left[at:]
        lines.append(left)
    return lines


def meanings(rows: Sequence[PlanRow], width: int = WIDTH) -> list[str]:
    """What each outcome means, in two columns."""
    names = list(dict.fromkeys(row.outcome for row in rows))
    half = (len(names) + 1) // 2
    name_width = max(len(name.value) for name in names)
    cells = [f"{name.value.ljust(name_width)}  {MEANING[name]}" for name in names]
    left = max(map(len, cells[:half]))
    lines = []
    for number in range(half):
        second = cells[half + number] if half + number < len(cells) else ""
        lines.append(f"{cells[number].ljust(left)}   {second}".rstrip()[:width])
    return lines
