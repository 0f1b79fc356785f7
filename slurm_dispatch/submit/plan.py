"""The plan of a request: the rows, with all that they depend on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from slurm_dispatch.model.outcome import Action, Outcome
from slurm_dispatch.rules.applied import Applied
from slurm_dispatch.rules.plan import plan
from slurm_dispatch.rules.rule import parse_rules
from slurm_dispatch.submit.limits import bounds_of, longest_hold_s

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurm_dispatch.config.limits import Bounds
    from slurm_dispatch.config.site import Site
    from slurm_dispatch.records.spec import Spec
    from slurm_dispatch.rules.plan import PlanRow
    from slurm_dispatch.rules.rule import Rule
    from slurm_dispatch.submit.request import Request


@dataclass(frozen=True, slots=True)
class Plan:
    """What will be done, and for what reasons.

    :param bounded: the site's limits for this job.
    :param config: Slurm's configuration; empty if Slurm did not answer or was not asked.
    """

    request: Request
    site: Site
    bounded: Bounds
    rows: tuple[PlanRow, ...]
    rules: tuple[Rule, ...]
    config: Mapping[str, str]

    @property
    def spec(self) -> Spec:
        """The job's specification."""
        return self.request.spec

    def off(self, outcome: Outcome) -> str:
        """Why an outcome cannot come, or ``""``."""
        if outcome is Outcome.SUSPECT and self.spec.suspect_s is None:
            return "cannot come: no --suspect"
        if outcome is Outcome.STALLED and self.spec.stall_s is None:
            return "cannot come: no --stall"
        return ""

    def place_of(self, rule: Rule) -> str:
        """Where a rule of the user's stands, or ``""``."""
        for number, own in enumerate(self.rules, 1):
            if own is rule:
                return self.spec.origins.get(f"on {number}", "")
        return ""


def make_plan(request: Request, site: Site, config: Mapping[str, str] | None = None) -> Plan:
    """The plan of a request.

    :param config: ``scontrol show config``, if it is known.
    """
    spec = request.spec
    bounded = bounds_of(spec, site)
    rules = parse_rules(spec.rules)
    rows = plan(
        rules,
        site.rules,
        shared=spec.shared,
        shared_hold_for_s=spec.shared_hold_for_s,
        allowed=bounded.actions,
        longest_hold_s=longest_hold_s(bounded, site),
    )
    if not _told(site, config or {}):
        rows = tuple(_untold(row) if row.outcome is Outcome.CANCELLED else row for row in rows)
    return Plan(request, site, bounded, rows, rules, config or {})


def _told(site: Site, config: Mapping[str, str]) -> bool:
    """Whether accounting says who cancelled a job; scontrol does not."""
    storage = config.get("AccountingStorageType", "")
    return site.accounting if site.accounting is not None else not storage.endswith("/none")


def _untold(row: PlanRow) -> PlanRow:
    why = "final: without accounting nothing tells who cancelled"
    return replace(row, applied=Applied(Action.STOP, None, None, "rule"), budget=None, why=why)
