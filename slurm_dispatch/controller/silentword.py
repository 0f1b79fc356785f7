"""Why a running job whose node is silent is not replaced on suspicion yet, in words for a person. Decides nothing.

It goes by what the last tick that looked has left in the tick's own files, so that Slurm is not asked again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurm_dispatch.controller.silence import GAP_S
from slurm_dispatch.controller.siteview import SiteView, Tally, Whose
from slurm_dispatch.model.hostlist import node_names
from slurm_dispatch.model.quantity import duration
from slurm_dispatch.records.law import Phase
from slurm_dispatch.records.policy import Policy

if TYPE_CHECKING:
    from slurm_dispatch.controller.hints import Hints
    from slurm_dispatch.controller.siterules import SiteRules
    from slurm_dispatch.records.state import State

EXACT_S = 120
"""A longer silence is told in whole minutes."""
SHOWN_MAX = 4
"""Names of silent nodes that are shown."""


def silent_word(state: State, hints: Hints, rules: SiteRules, now: float) -> str:
    """What the silence of its nodes comes to for a job that may be replaced for it; empty where there is none.

    :param hints: what ticks remember of the site.
    :param now: Unix seconds.
    """
    wait_s, seen = state.spec.suspect_s, hints.silence
    if wait_s is None or state.phase is not Phase.RUNNING or state.elder is not None or state.spec.clusters:
        return ""
    if not 0.0 <= now - seen.at <= max(GAP_S, rules.gap_s):
        return ""
    silent = {name: seen.silent[name] for name in _nodes(state) if name in seen.silent}
    if not silent:
        return ""
    names = sorted(silent)
    shown = ", ".join(names[:SHOWN_MAX]) + (", ..." if len(names) > SHOWN_MAX else "")
    for_s = int(now - min(silent.values()))
    lasts = duration(float(for_s if for_s < EXACT_S else for_s - for_s % 60))
    means = _kept(state, hints, rules, now) or f"once that lasts {duration(wait_s)} a replacement starts elsewhere"
    return f"{shown} has been silent for {lasts}, as ticks saw it; {means}"


def _kept(state: State, hints: Hints, rules: SiteRules, now: float) -> str:
    """What keeps the suspicion from acting, or an empty text."""
    if not rules.suspicion:
        return "the site allows no suspicion any more: it waits for Slurm"
    if hints.silence.why:
        return f"it waits for Slurm, since no suspicion acts now ({hints.silence.why})"
    if state.hold is not None:
        return "it waits for Slurm, since a person holds what comes next"
    spec = state.spec
    whose = Whose(spec.uid, spec.user, spec.account, spec.partitions)
    policy = SiteView(rules=rules, hints=hints, known=True).policy(Policy(), whose, Tally(), now, 0.0)
    if policy.breaker is not None:
        return f"it waits for Slurm, since the site's breaker is open ({policy.breaker})"
    if policy.maintenance_until is not None:
        return "it waits for Slurm, since a maintenance is on"
    if not policy.limits.overlaps:
        return "it waits for Slurm: as many jobs as the site allows have a replacement beside a suspected execution"
    return ""


def _nodes(state: State) -> tuple[str, ...]:
    execution = None if state.current is None else state.current.execution
    return () if execution is None else node_names(execution.nodes)


__all__ = ["silent_word"]
