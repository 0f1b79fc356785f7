"""The verdict on a submission that is over: which rule applies, and whether budget and caps allow it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from slurm_dispatch.errors import BadDataError, UsageError
from slurm_dispatch.model.outcome import Action, Outcome
from slurm_dispatch.rules.rule import Rule, first_match, parse_rules

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slurm_dispatch.records.state import State

LAUNCH_FAILURES_MAX = 5
"""Submissions in a row that never started their script: a sixth would not either."""
BACKOFF_S: dict[Outcome, float] = {Outcome.LAUNCH_FAILED: 30.0, Outcome.STORE_ERROR: 60.0}
"""Outcomes whose cause needs time to go away: the first wait, doubled each time."""
BACKOFF_S_MAX = 1800.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """The body of a ``decision`` as values.

    :param used: what was used of the budget before this decision.
    :param close: the ``why`` of the ``closed`` that follows; ``None`` where the job goes on.
    """

    on: int
    outcome: Outcome
    action: Action
    rule: Rule
    used: int
    reason: str
    submission: int | None
    not_before: float | None
    close: str | None

    def body(self) -> dict[str, Any]:
        """The fields of the fact."""
        return {
            "on": self.on,
            "outcome": self.outcome.value,
            "action": self.action.value,
            "rule": self.rule.text,
            "budget_used": self.used,
            "budget": self.rule.budget,
            "reason": self.reason,
            "submission": self.submission,
            "not_before": self.not_before,
            "close": self.close,
        }


def verdict(
    state: State, site: Sequence[Rule], max_submissions: int, launch_failures_max: int, now: float
) -> Verdict:
    """What follows the end of the current submission.

    A launch that failed costs no budget of its own: it counts against the cap on submissions and against
    ``launch_failures_max`` in a row.

    :param state: in phase ``ended``.
    :raises BadDataError: a rule in the record does not parse.
    """
    current = state.submissions[-1]
    if current.end is not None:
        on, outcome = current.end.seq, current.end.outcome
    else:
        on, outcome = current.settled_seq or current.seq, Outcome.LAUNCH_FAILED
    try:
        rules = (*parse_rules(state.spec.rules), *site)
    except UsageError as error:
        raise BadDataError(f"job {state.spec.job}: {error}", hint=error.hint) from error
    rule = first_match(rules, outcome)
    launch = outcome is Outcome.LAUNCH_FAILED
    used = state.launch_failures if launch else state.used.get(outcome, 0)
    cap = min(state.spec.max_submissions, max_submissions)

    def stop(close: str, reason: str) -> Verdict:
        return Verdict(on, outcome, Action.STOP, rule, used, reason, None, None, close)

    if outcome is Outcome.COMPLETED:
        return stop("completed", "the command ended with 0")
    if outcome is Outcome.CANCELLED and current.end is not None:
        by_uid = current.end.evidence.get("by_uid")
        if by_uid == state.spec.uid:
            return stop("cancelled", "its owner cancelled it, which is final")
        if by_uid is None:
            return stop("cancelled", "nothing tells who cancelled it, and its owner's cancel would be final")
    if rule.action is not Action.RESUBMIT:
        return stop(outcome.value, f"the rule {rule.text} says so")
    if state.spec.shared:
        return stop("shared", "a shared checkpoint needs a person, and this version cannot wait for one")
    if current.number >= cap:
        return stop("max_submissions", f"{current.number} submissions are the most that this job may have")
    if rule.budget is not None and used >= rule.budget:
        return stop("budget", f"the budget of {rule.budget} for {outcome} is used up, without progress in between")
    if launch and used >= launch_failures_max:
        return stop("launch_failures", f"{used + 1} submissions in a row never started their script")
    wait_s = min(BACKOFF_S.get(outcome, 0.0) * 2.0 ** min(used, 20), BACKOFF_S_MAX)
    if launch and used == 0 and current.end is not None:
        wait_s = 0.0  # one launch can fail for a node's own reasons; sbatch that says no needs time
    reason = f"the rule {rule.text} says so"
    not_before = now + wait_s if wait_s else None
    return Verdict(on, outcome, Action.RESUBMIT, rule, used, reason, current.number + 1, not_before, None)
