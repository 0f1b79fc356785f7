"""What a rule comes to for a certain job: the shared substitution, and the site's limits above it. Pure.

The plan shows it before the job starts, and the verdict on an execution applies the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurm_dispatch.model.outcome import Action

if TYPE_CHECKING:
    from slurm_dispatch.rules.rule import Rule

RECOVERING = frozenset({Action.RESUBMIT, Action.REQUEUE})
"""Actions after which the job runs again without anybody's word."""
HOLD_S_MAX = 14 * 86400.0
"""How long a hold lasts where nobody says otherwise."""


@dataclass(frozen=True, slots=True)
class Applied:
    """What a rule comes to.

    :param hold_for_s: of a hold, how long it lasts; ``None`` otherwise.
    :param then: of a hold, what follows when a person releases it (or, for a shared job, when all executions
        have ceased); ``None`` otherwise.
    :param why: ``rule``: it is applied as written; ``shared``: a shared checkpoint makes a hold of it;
        ``limit``: the site does not allow its action to this job.
    """

    action: Action
    hold_for_s: float | None
    then: Action | None
    why: str


def applied(
    rule: Rule,
    *,
    shared: bool,
    shared_hold_for_s: float,
    allowed: frozenset[Action] | None = None,
    longest_hold_s: float | None = None,
) -> Applied:
    """What ``rule`` comes to.

    A release is always followed by ``resubmit``: the object that ``requeue`` would start again has long gone.

    :param shared: the job has a shared checkpoint, or supersedes one that has.
    :param allowed: the recovering actions that the site allows; ``None``: both. A hold and a stop always are.
    :param longest_hold_s: the site's limit on holds; ``None``: :data:`HOLD_S_MAX`.
    """
    most = HOLD_S_MAX if longest_hold_s is None else longest_hold_s
    if rule.action is Action.HOLD:
        length = most if rule.hold_for_s is None else min(rule.hold_for_s, most)
        return Applied(Action.HOLD, length, Action.RESUBMIT, "rule")
    if rule.action not in RECOVERING:
        return Applied(rule.action, None, None, "rule")
    wanted = Action.RESUBMIT if shared else rule.action
    if allowed is not None and wanted not in allowed:
        return Applied(Action.HOLD, most, Action.RESUBMIT, "limit")
    if shared:
        return Applied(Action.HOLD, min(shared_hold_for_s, most), Action.RESUBMIT, "shared")
    return Applied(rule.action, None, None, "rule")
