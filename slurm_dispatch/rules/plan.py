"""The plan: the whole table from outcome to action, known before the job starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurm_dispatch.model.outcome import Action, Outcome
from slurm_dispatch.rules.rule import BUILT_IN, Rule, first_match

if TYPE_CHECKING:
    from collections.abc import Sequence

MEANING: dict[Outcome, str] = {
    Outcome.COMPLETED: "the command ended with 0",
    Outcome.UNFINISHED: "the command saved and wants to go on (status 85)",
    Outcome.FAILED: "the command ended with another status",
    Outcome.TIMEOUT: "the time limit",
    Outcome.OUT_OF_MEMORY: "more memory than was asked for",
    Outcome.NODE_FAIL: "a node was lost",
    Outcome.BOOT_FAIL: "a node did not start",
    Outcome.PREEMPTED: "a job of higher priority took the nodes",
    Outcome.CANCELLED: "an operator's scancel; its owner's, or one by nobody known, is final",
    Outcome.DEADLINE: "the deadline that was given to Slurm has passed",
    Outcome.LAUNCH_FAILED: "the script never started",
    Outcome.STALLED: "no publication for longer than the job allows",
    Outcome.NOT_RESUMED: "the training was given a save and started from nothing",
    Outcome.STORE_ERROR: "the checkpoint root failed",
    Outcome.SUSPECT: "a node stopped answering before Slurm gave it up",
    Outcome.LOST: "it ended, and nothing says why",
}
"""What each outcome means, in words for a person."""


@dataclass(frozen=True, slots=True)
class PlanRow:
    """What will be done about one outcome.

    :param budget: resubmissions for this cause without progress in between; ``None``: no limit but the cap.
    :param why: whose rule decides it, in words (``"your rule ..."``, ``"built in"``).
    """

    outcome: Outcome
    action: Action
    budget: int | None
    why: str
    rule: Rule


def plan(rules: Sequence[Rule], site: Sequence[Rule] = ()) -> tuple[PlanRow, ...]:
    """One row for each outcome, in the order of :class:`Outcome`.

    :param rules: the user's, in order.
    :param site: the site's defaults, which come after the user's.
    """
    rows = []
    for outcome in Outcome:
        rule = first_match((*rules, *site), outcome)
        if any(rule is own for own in rules):
            why = f"your rule {rule.text}"
        elif any(rule is other for other in site):
            why = f"the site's rule {rule.text}"
        elif outcome is Outcome.COMPLETED:
            why = "final"
        else:
            why = "built in"
        rows.append(PlanRow(outcome, rule.action, rule.budget, why, rule))
    return tuple(rows)


__all__ = ["BUILT_IN", "MEANING", "PlanRow", "plan"]
