"""What the site's settings say about the whole site's safety: suspicion, node memory, breaker, limits, telling."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from slurm_dispatch.controller.breaker import Bounds
from slurm_dispatch.controller.clock import GAP_S
from slurm_dispatch.controller.memory import Fading
from slurm_dispatch.records.policy import CESSATION_INTERVAL_S, HOLD_MAX_S

if TYPE_CHECKING:
    from slurm_dispatch.config.limits import Limit
    from slurm_dispatch.config.site import Site


@dataclass(frozen=True, slots=True)
class SiteRules:
    """The settings; each is explained in :data:`~slurm_dispatch.config.settings.SETTINGS`.

    :param gap_s: ticks further apart than this did not run in between.
    """

    suspicion: bool = False
    suspect_share: float = 0.01
    suspect_count: int = 5
    suspect_overlaps: int = 10
    fading: Fading = field(default_factory=Fading)
    bounds: Bounds = field(default_factory=Bounds)
    maintenance_spread_s: float = 600.0
    limits: tuple[Limit, ...] = ()
    longest_hold_s: float = HOLD_MAX_S
    no_progress: int | None = None
    cessation_interval_s: float = CESSATION_INTERVAL_S
    notify: tuple[str, ...] = ()
    notify_user: str = ""
    notify_timeout_s: float = 30.0
    gap_s: float = GAP_S


def fading_of(site: Site) -> Fading:
    """How the site's node memory fades."""
    return Fading(site.memory_half_life_s, site.memory_expiry_s, site.memory_share)


def rules_of(site: Site) -> SiteRules:
    """The rules in the loaded settings."""
    return SiteRules(
        suspicion=site.suspicion,
        suspect_share=site.suspect_share,
        suspect_count=site.suspect_count,
        suspect_overlaps=site.suspect_overlaps,
        fading=fading_of(site),
        bounds=Bounds(site.breaker_count, site.breaker_window_s, site.breaker_drained, site.breaker_store_errors),
        maintenance_spread_s=site.maintenance_spread_s,
        limits=site.limit,
        longest_hold_s=site.longest_hold_s,
        no_progress=site.no_progress,
        cessation_interval_s=site.cessation_interval_s,
        notify=site.notify,
        notify_user=site.notify_user or site.slurm_user,
        notify_timeout_s=site.notify_timeout_s,
        gap_s=max(GAP_S, 3 * site.tick_interval_s),
    )


__all__ = ["SiteRules", "fading_of", "rules_of"]
