"""What of the policy a decision stands on, as the fact says it, and back. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from slurm_dispatch.errors import BadDataError, DispatchError
from slurm_dispatch.model.outcome import Action
from slurm_dispatch.records.policy import Limits, Policy
from slurm_dispatch.rules.rule import parse_rules

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurm_dispatch.rules.rule import Rule

EXCLUDED_MAX = 256
"""Node names in one decision: it must fit into a fact, and sbatch's list into a command line."""
EXCLUDED_TEXT_MAX = 12 * 1024
"""Characters of them together; the list is in a decision twice."""


def inputs_of(policy: Policy, now: float, rule: Rule) -> dict[str, Any]:
    """The field ``inputs`` of a decision.

    :param rule: the one that decided: of the site's rules only that one is said, since no other mattered.
    """
    return {
        "now": now,
        "rules": [rule.text] if any(rule is own for own in policy.rules) else [],
        "max_submissions": policy.max_submissions,
        "launch_failures_max": policy.launch_failures_max,
        "allowed": sorted(action.value for action in policy.limits.allowed),
        "longest_hold_s": policy.limits.longest_hold_s,
        "resubmissions_left": policy.limits.resubmissions_left,
        "excluded": list(excluded_of(policy)),
        "exclude_max": policy.exclude_max,
        "spare": policy.spare,
        "breaker": policy.breaker,
        "maintenance_until": policy.maintenance_until,
        "jitter": policy.jitter,
        "no_progress": policy.no_progress,
    }


def excluded_of(policy: Policy) -> tuple[str, ...]:
    """Nodes of the node memory, as many as one decision can name."""
    found: list[str] = []
    size = 0
    for name in policy.excluded[:EXCLUDED_MAX]:
        size += len(name) + 1
        if size > EXCLUDED_TEXT_MAX:
            break
        found.append(name)
    return tuple(found)


def policy_of(inputs: Mapping[str, Any]) -> tuple[Policy, float]:
    """The policy and the moment that a decision stands on.

    :raises BadDataError: they are not what :func:`inputs_of` makes.
    """
    try:
        limits = Limits(
            frozenset(Action(word) for word in inputs["allowed"]),
            inputs["longest_hold_s"],
            resubmissions_left=inputs["resubmissions_left"],
        )
        policy = Policy(
            rules=parse_rules(inputs["rules"]),
            max_submissions=inputs["max_submissions"],
            launch_failures_max=inputs["launch_failures_max"],
            limits=limits,
            excluded=tuple(inputs["excluded"]),
            exclude_max=inputs["exclude_max"],
            spare=inputs.get("spare"),
            breaker=inputs["breaker"],
            maintenance_until=inputs["maintenance_until"],
            jitter=inputs["jitter"],
            no_progress=inputs["no_progress"],
        )
        return policy, inputs["now"]
    except (KeyError, TypeError, ValueError, DispatchError) as error:
        raise BadDataError(f"the inputs of a decision do not say what it stands on: {error}") from error


__all__ = ["EXCLUDED_MAX", "excluded_of", "inputs_of", "policy_of"]
