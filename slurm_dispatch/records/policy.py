"""What a site adds to the specification of a job, as far as a decision depends on it. No I/O."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from slurm_dispatch.model.outcome import Action

if TYPE_CHECKING:
    from slurm_dispatch.rules.rule import Rule

LAUNCH_FAILURES_MAX = 5
"""Submissions in a row that never started their script: a sixth would not either."""
HOLD_MAX_S = 14 * 86400.0
"""The longest hold where the site does not say."""
CESSATION_INTERVAL_S = 60.0


@dataclass(frozen=True, slots=True)
class Limits:
    """The site's limits for this job's user, account and partition.

    :param allowed: actions that may be taken; a recovery that is not among them is a hold, or a stop if that is
        not among them either.
    :param longest_hold_s: seconds; holds are cut to it.
    :param overlaps: whether one more execution may be replaced on suspicion now.
    :param resubmissions_left: how many may still be decided this hour; ``None``: no limit.
    """

    allowed: frozenset[Action] = frozenset(Action)
    longest_hold_s: float = HOLD_MAX_S
    overlaps: bool = True
    resubmissions_left: int | None = None


@dataclass(frozen=True, slots=True)
class Policy:
    """What the site adds to the job's own specification, at this moment.

    :param rules: the site's default rules, which come after the job's.
    :param max_submissions: the site's cap; the job's own counts if it is lower.
    :param launch_failures_max: submissions in a row that never start their script before the job is held.
    :param excluded: nodes of the node memory for the job's partition, capped.
    :param exclude_max: the most nodes that one submission excludes; the nodes of the execution that just ended
        are excluded too only while all of them fit.
    :param spare: how many nodes can be excluded so that as many as the job had still take jobs in its partitions;
        ``None``: not known. The nodes that the job had count as if they did.
    :param breaker: why the site's breaker is open, or ``None``.
    :param maintenance_until: Unix seconds, with this job's spread, when the maintenance that is on now ends for
        it; ``None``: none is on.
    :param holds_until: Unix seconds before which no hold runs out, since a maintenance is on or has ended; it may be
        over.
    :param cessation: the site has a cessation signal.
    :param jitter: drawn for this decision, 0 to 1.
    :param no_progress: the limit for a job whose own specification has none; ``None``: no limit.
    :param adopted: who asks has published what the record says that is adopted: nothing waits for that any more.
    """

    rules: tuple[Rule, ...] = ()
    max_submissions: int = 999_999
    launch_failures_max: int = LAUNCH_FAILURES_MAX
    limits: Limits = field(default_factory=Limits)
    excluded: tuple[str, ...] = ()
    exclude_max: int = 16
    spare: int | None = None
    breaker: str | None = None
    maintenance_until: float | None = None
    holds_until: float | None = None
    cessation: bool = False
    cessation_interval_s: float = CESSATION_INTERVAL_S
    jitter: float = 0.0
    no_progress: int | None = None
    adopted: bool = False


__all__ = ["CESSATION_INTERVAL_S", "HOLD_MAX_S", "LAUNCH_FAILURES_MAX", "Limits", "Policy"]
