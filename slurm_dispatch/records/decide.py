"""The decision: from state and observation to the next actions. Pure; performs nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slurm_dispatch.records.actions import Action
    from slurm_dispatch.records.observation import Observation
    from slurm_dispatch.records.state import State
    from slurm_dispatch.rules.rule import Rule

LAUNCH_FAILURES_MAX = 5
"""Submissions in a row that never started their script: a sixth would not either."""


@dataclass(frozen=True, slots=True)
class Policy:
    """What the site adds to the job's own specification.

    :param rules: the site's default rules, which come after the job's.
    :param max_submissions: the site's cap; the job's own counts if it is lower.
    """

    rules: tuple[Rule, ...] = ()
    max_submissions: int = 999_999
    launch_failures_max: int = LAUNCH_FAILURES_MAX


def decide(state: State, observation: Observation, policy: Policy, now: float) -> list[Action]:
    """The next actions for one job, to be performed in order; never empty.

    One step at a time: after facts were appended, fold again and decide again, until the answer is
    :class:`~slurm_dispatch.records.actions.Nothing` (or an act that failed). Performing a prefix only, any
    number of times, and deciding again leads to the same end.

    :param now: Unix seconds by the clock of ``observation.host``.
    """
    raise NotImplementedError
