"""The verdict on a submission that is over: which rule applies, and what forbids what it says. Pure.

Everything that it stands on is in the record or in the ``inputs`` of the decision, so that
:mod:`slurm_dispatch.records.replay` comes to the same one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from slurm_dispatch.errors import BadDataError, UsageError
from slurm_dispatch.model.outcome import Action, Outcome
from slurm_dispatch.model.quantity import moment
from slurm_dispatch.records.changes import changes, exclusion_refused
from slurm_dispatch.records.inputs import inputs_of
from slurm_dispatch.rules.applied import RECOVERING, Applied, applied
from slurm_dispatch.rules.rule import Rule, first_match, parse_rules

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurm_dispatch.records.policy import Policy
    from slurm_dispatch.records.state import State


NEVER = "DependencyNeverSatisfied"
"""Slurm's reason for a job whose dependencies cannot be met any more: it waits for ever, unless they are changed."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The body of a ``decision`` as values.

    :param used: what was used of the budget before this decision.
    :param close: the ``why`` of the ``closed`` that follows; ``None`` where the job goes on.
    :param why: what decided it: ``rule``, ``final``, ``cancelled``, or what forbids what the rule says.
    """

    on: int
    outcome: Outcome
    action: Action
    rule: Rule
    used: int
    reason: str
    submission: int | None = None
    not_before: float | None = None
    close: str | None = None
    why: str = "rule"
    changes: tuple[str, ...] = ()
    hold_for_s: float | None = None
    then: Action | None = None
    free: bool = False
    inputs: Mapping[str, Any] = field(default_factory=dict)

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
            "why": self.why,
            "changes": list(self.changes),
            "hold_for_s": self.hold_for_s,
            "then": None if self.then is None else self.then.value,
            "free": self.free,
            "inputs": dict(self.inputs),
        }


def rule_of(state: State, policy: Policy, outcome: Outcome) -> Rule:
    """The rule that decides about the end of the current submission with ``outcome``.

    :raises BadDataError: a rule in the record does not parse.
    """
    try:
        rules = (*parse_rules(state.spec.rules), *policy.rules)
    except UsageError as error:
        raise BadDataError(f"job {state.spec.job}: {error}", hint=error.hint) from error
    return first_match(rules, outcome, *_status(state))


def used_of(state: State, outcome: Outcome) -> int:
    """What was used of the budget for this cause."""
    if outcome is Outcome.LAUNCH_FAILED:
        return state.launch_failures
    return state.used.get(outcome, 0)


def verdict(state: State, policy: Policy, now: float) -> Verdict:
    """What follows what waits for a decision.

    A launch that failed counts against its own limit in a row and not against what other ends have used. What
    ends in a maintenance costs nothing, and neither does a requeue that Slurm refused.

    :param state: in phase ``ended``.
    :raises BadDataError: a rule in the record does not parse.
    """
    over = state.over
    if over is None:
        raise BadDataError(f"job {state.spec.job}: nothing waits for a decision")
    outcome = Outcome.SUSPECT if _cancelled_by_us(state) else over.outcome
    rule = rule_of(state, policy, outcome)
    found = Verdict(
        over.seq,
        outcome,
        rule.action,
        rule,
        used_of(state, outcome),
        f"the rule {rule.text} says so",
        inputs=inputs_of(policy, now, rule),
    )
    final = _final(state, found)
    if final is not None:
        return final
    means = applied(
        rule,
        shared=state.spec.shared,
        shared_hold_for_s=state.spec.shared_hold_for_s,
        allowed=policy.limits.allowed,
        longest_hold_s=policy.limits.longest_hold_s,
    )
    if rule.action is Action.STOP:
        return replace(found, close=outcome.value)
    found = replace(found, free=_is_free(state, policy, rule))
    if rule.action in RECOVERING:
        forbidden = _forbidden(state, policy, found, now)
        if forbidden is not None:
            return _hold(state, policy, found, *forbidden, now=now)
    if means.action is Action.HOLD:
        return _hold(state, policy, found, means.why, _says(means.why, found), now=now, means=means)
    if state.hold is not None:
        return _hold(state, policy, found, "person", _by_person(state), now=now)
    if policy.breaker is not None:
        return _hold(state, policy, found, "breaker", f"the site's breaker is open: {policy.breaker}", now=now)
    if policy.limits.resubmissions_left == 0:
        reason = "the site's limit on resubmissions an hour is reached"
        return _hold(state, policy, found, "limit", reason, now=now)
    return _recover(state, policy, found, now)


def _final(state: State, found: Verdict) -> Verdict | None:
    """What no rule changes."""
    end = None if state.current is None else state.current.end
    if found.outcome is Outcome.COMPLETED:
        return _stop(found, "completed", "final", "the command ended with 0")
    if found.outcome is Outcome.CANCELLED and end is not None:  # ours would be SUSPECT here
        by_uid = end.evidence.get("by_uid")
        if by_uid == state.spec.uid:
            return _stop(found, "cancelled", "cancelled", "its owner cancelled it, which is final")
        if end.evidence.get("reason") == NEVER:
            why = f"Slurm cancelled it, since what it depends on can never be met ({NEVER})"
            return _stop(found, "cancelled", "cancelled", why)
        if by_uid is None:
            why = "nothing tells who cancelled it, and its owner's cancel would be final"
            return _stop(found, "cancelled", "cancelled", why)
    return None


def _stop(found: Verdict, close: str, why: str, reason: str) -> Verdict:
    return replace(found, action=Action.STOP, close=close, why=why, reason=reason)


def _forbidden(state: State, policy: Policy, found: Verdict, now: float) -> tuple[str, str] | None:
    """What of the job's own caps and budgets forbids that it goes on: (why, in words)."""
    spec, rule, used, outcome = state.spec, found.rule, found.used, found.outcome
    cap = min(spec.max_submissions, policy.max_submissions)
    least = spec.no_progress if spec.no_progress is not None else policy.no_progress
    if len(state.submissions) >= cap:
        return "max_submissions", f"{len(state.submissions)} submissions are the most that this job may have"
    if spec.until is not None and now >= spec.until:
        return "until", f"it may be submitted until {moment(spec.until, utc=True)} only"
    if spec.max_node_hours is not None and state.node_hours >= spec.max_node_hours:
        hours = f"{state.node_hours:.2f} of {spec.max_node_hours:g}"
        return "max_node_hours", f"{hours} node-hours are used"
    if found.free:
        return None
    if rule.budget is not None and used >= rule.budget:
        return "budget", f"the budget of {rule.budget} for {outcome} is used up, without progress in between"
    if outcome is Outcome.LAUNCH_FAILED and used >= policy.launch_failures_max:
        return "launch_failures", f"{used + 1} submissions in a row never started their script"
    if least is not None and spec.root and state.no_progress >= least:
        return "no_progress", f"{state.no_progress} executions in a row published nothing new"
    return None


def _is_free(state: State, policy: Policy, rule: Rule) -> bool:
    counted = (state.over is not None and state.over.kind == "requeue_failed") or _cancelled_by_us(state)
    return rule.action in RECOVERING and (counted or policy.maintenance_until is not None)


def _cancelled_by_us(state: State) -> bool:
    """The replacement of a suspected execution was cancelled because the nodes answered, and nobody else did it."""
    current, over = state.current, state.over
    if current is None or current.object is None or over is None or over.kind != "end":
        return False
    marked = (current.number, current.object.slurm_job_id) in state.strays
    return marked and over.outcome in {Outcome.CANCELLED, Outcome.LAUNCH_FAILED}


def left_to_a_person(state: State, policy: Policy, now: float) -> Verdict:
    """Nothing was ever heard of the open intent of a job with a shared checkpoint: it is held, not burnt (P6)."""
    current = state.current
    if current is None:
        raise BadDataError(f"job {state.spec.job} has no intent")
    outcome = Outcome.LAUNCH_FAILED
    rule = rule_of(state, policy, outcome)
    reason = f"submission {current.number} is nowhere, and a shared checkpoint leaves that to a person"
    return Verdict(
        current.seq,
        outcome,
        Action.HOLD,
        rule,
        used_of(state, outcome),
        reason,
        submission=state.next_number,
        why="shared",
        hold_for_s=min(state.spec.shared_hold_for_s, policy.limits.longest_hold_s),
        then=Action.RESUBMIT,
        free=True,
        inputs=inputs_of(policy, now, rule),
    )


def _hold(
    state: State,
    policy: Policy,
    found: Verdict,
    why: str,
    reason: str,
    *,
    now: float,
    means: Applied | None = None,
) -> Verdict:
    """The job waits; a release is always followed by a new submission."""
    most = policy.limits.longest_hold_s
    length = most if means is None or means.hold_for_s is None else means.hold_for_s
    if why == "person" and state.hold is not None and state.hold.for_s is not None:
        length = min(state.hold.for_s, most)
    waits = why == "shared"  # once it is lifted, the rule that it stands in for applies
    added, wait_s = changes(state, policy, found, now, wait=waits)
    ours = waits and _nothing_made(state) and wait_s > 0
    return replace(
        found,
        action=Action.HOLD,
        why=why,
        reason=reason,
        submission=state.next_number,
        hold_for_s=length,
        then=Action.RESUBMIT,
        changes=_without_begin(added) if ours else added,
        not_before=math.ceil(now + wait_s) if ours else None,
    )


def _recover(state: State, policy: Policy, found: Verdict, now: float) -> Verdict:
    """What the rule says, at last."""
    added, wait_s = changes(state, policy, found, now, wait=True)
    over = state.over
    if found.rule.action is Action.REQUEUE and over is not None and over.kind == "end":
        return replace(found, action=Action.REQUEUE, changes=added)
    # What sbatch refused, it would refuse again at once: there is no object that could wait in Slurm instead.
    ours = _nothing_made(state) and wait_s > 0
    reason = found.reason
    if found.rule.action is Action.REQUEUE:
        reason = f"{reason}, and Slurm does not requeue it"
    if exclusion_refused(state):
        reason = f"{reason}; at once and without --exclude, which sbatch may have refused"
    return replace(
        found,
        action=Action.RESUBMIT,
        submission=state.next_number,
        changes=_without_begin(added) if ours else added,
        not_before=math.ceil(now + wait_s) if ours else None,
        reason=reason,
    )


def _nothing_made(state: State) -> bool:
    return state.over is not None and state.over.kind in {"rejected", "burnt"}


def _without_begin(options: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(option for option in options if not option.startswith("--begin="))


def _status(state: State) -> tuple[int | None, int | None]:
    """The status and the signal with which the command of the current submission ended: the helper's word first."""
    current = state.current
    if current is None or state.over is None or state.over.kind not in {"end", "requeue_failed"}:
        return None, None
    words = current.words
    if words is not None and (words.status is not None or words.signal is not None):
        return words.status, words.signal
    evidence = current.ends[-1].evidence if current.ends else {}
    code, signal = evidence.get("exit_code"), evidence.get("signal")
    return code if isinstance(code, int) else None, signal if isinstance(signal, int) and signal > 0 else None


def _by_person(state: State) -> str:
    hold = state.hold
    return "" if hold is None else f"{hold.by} holds it: {hold.reason}"


def _says(why: str, found: Verdict) -> str:
    if why == "shared":
        return "an older execution may still write the shared checkpoint"
    if why == "limit":
        return f"the site does not allow what the rule {found.rule.text} says to this job"
    return found.reason


__all__ = ["NEVER", "Verdict", "left_to_a_person", "rule_of", "used_of", "verdict"]
