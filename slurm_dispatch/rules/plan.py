"""The plan: the whole table from outcome to action, known before the job starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurm_dispatch.model.outcome import Action, Outcome
from slurm_dispatch.model.quantity import duration, size
from slurm_dispatch.rules.applied import RECOVERING, Applied, applied
from slurm_dispatch.rules.options import RULE_OPTIONS
from slurm_dispatch.rules.rule import BUILT_IN, Rule

if TYPE_CHECKING:
    from collections.abc import Sequence

MEANING: dict[Outcome, str] = {
    Outcome.COMPLETED: "the command ended with 0",
    Outcome.UNFINISHED: "saved, wants to go on (status 85)",
    Outcome.FAILED: "it ended with another status",
    Outcome.TIMEOUT: "the time limit",
    Outcome.OUT_OF_MEMORY: "more memory than was asked for",
    Outcome.NODE_FAIL: "a node was lost",
    Outcome.BOOT_FAIL: "a node did not start",
    Outcome.PREEMPTED: "a higher priority took the nodes",
    Outcome.CANCELLED: "another's scancel; yours is final",
    Outcome.DEADLINE: "Slurm's --deadline has passed",
    Outcome.LAUNCH_FAILED: "the script never started",
    Outcome.STALLED: "no publication for too long",
    Outcome.NOT_RESUMED: "given a save, began from nothing",
    Outcome.STORE_ERROR: "the checkpoint root failed",
    Outcome.SUSPECT: "a node went silent",
    Outcome.LOST: "ended, and nothing says why",
}
"""What each outcome means, in words for a person."""


@dataclass(frozen=True, slots=True)
class PlanRow:
    """What will be done about one outcome, or about some of its ends.

    :param when: which exit statuses and signals it is about, in words; ``""``: all (others).
    :param budget: how often this cause may bring the job back without progress in between; ``None``: no limit
        but the job's caps, or it does not bring it back.
    :param why: whose rule decides it, in words (``"your rule ..."``, ``"built in"``).
    """

    outcome: Outcome
    rule: Rule
    applied: Applied
    when: str
    budget: int | None
    why: str

    @property
    def action(self) -> Action:
        """What is done."""
        return self.applied.action


def plan(
    rules: Sequence[Rule],
    site: Sequence[Rule] = (),
    *,
    shared: bool = False,
    shared_hold_for_s: float = 86400.0,
    allowed: frozenset[Action] | None = None,
    longest_hold_s: float | None = None,
) -> tuple[PlanRow, ...]:
    """At least one row for each outcome, in the order of :class:`Outcome`; those of one outcome in the order in
    which they are tried.

    :param rules: the user's, in order.
    :param site: the site's defaults, which come after the user's.

    The others are those of :func:`~slurm_dispatch.rules.applied.applied`.
    """
    rows = []
    for outcome in Outcome:
        for rule in (*rules, *site, *BUILT_IN):
            if outcome not in rule.outcomes:
                continue
            found = applied(
                rule,
                shared=shared,
                shared_hold_for_s=shared_hold_for_s,
                allowed=allowed,
                longest_hold_s=longest_hold_s,
            )
            budget = rule.budget if rule.action in RECOVERING else None
            rows.append(PlanRow(outcome, rule, found, when(rule), budget, _why(outcome, rule, rules, site)))
            if not rule.narrow:
                break
    return tuple(rows)


def _why(outcome: Outcome, rule: Rule, rules: Sequence[Rule], site: Sequence[Rule]) -> str:
    if any(rule is own for own in rules):
        return f"your rule {rule.text}"
    if any(rule is other for other in site):
        return f"the site's rule {rule.text}"
    return "final" if outcome is Outcome.COMPLETED else "built in"


def when(rule: Rule) -> str:
    """``status 1+3-7 or signal SEGV``; nothing for a rule that is about every end."""
    written = {option.field: option.write for option in RULE_OPTIONS}
    words = []
    if rule.codes is not None:
        words.append(f"status {written['codes'](rule.codes)}")
    if rule.signals is not None:
        words.append(f"signal {written['signals'](rule.signals)}")
    return " or ".join(words)


def changes(rule: Rule, outcome: Outcome) -> tuple[str, ...]:
    """What the next submission has that this one had not, in words.

    A suspected node is left out whatever the rule says: an execution may still run there.
    """
    found = []
    if rule.backoff is not None:
        found.append(f"waits {rule.backoff}")
    if rule.exclude_nodes or outcome is Outcome.SUSPECT:
        found.append("other nodes")
    if rule.time is not None:
        found.append(f"time x {rule.time.factor:g}, up to {duration(rule.time.ceiling)}")
    if rule.mem is not None:
        found.append(f"memory x {rule.mem.factor:g}, up to {size(rule.mem.ceiling)}")
    return tuple(found)


__all__ = ["BUILT_IN", "MEANING", "PlanRow", "changes", "plan", "when"]
