"""What the next submission has that the last one had not: options of sbatch, each ``--name=value``. Pure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from slurm_dispatch.errors import BadDataError
from slurm_dispatch.model.hostlist import expand
from slurm_dispatch.model.outcome import Outcome
from slurm_dispatch.records.inputs import EXCLUDED_MAX, excluded_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurm_dispatch.records.policy import Policy
    from slurm_dispatch.records.state import State
    from slurm_dispatch.records.verdict import Verdict

KEPT = ("--time=", "--mem=")
"""What a submission was given once, the later ones keep, until a person says otherwise (``State.given``)."""
_FIELDS = {"exclude": "ExcNodeList", "time": "TimeLimit", "mem": "MinMemoryNode"}


def changes(
    state: State, policy: Policy, verdict: Verdict, now: float, *, wait: bool
) -> tuple[tuple[str, ...], float]:
    """The options, and the seconds that the next submission waits.

    :param verdict: as far as it is known: outcome, rule, and how often this cause brought the job back already.
    :param wait: false for a hold, which is a wait already.
    """
    rule, outcome = verdict.rule, verdict.outcome
    found = _kept(state)
    limits = _limits(state)
    if rule.time is not None and limits.get("time_s") and "time" not in state.given:
        found["time"] = _time(rule.time.grown(limits["time_s"]))
    if rule.mem is not None and limits.get("mem_mb") and "mem" not in state.given:
        found["mem"] = f"{math.ceil(rule.mem.grown(limits['mem_mb']))}M"
    own = rule.exclude_nodes or outcome is Outcome.SUSPECT
    nodes = _excluded(state, policy, outcome) if own else policy.excluded[:EXCLUDED_MAX]
    if nodes:
        found["exclude"] = ",".join(nodes)
    wait_s = 0.0
    if wait and policy.maintenance_until is not None:
        wait_s = max(0.0, policy.maintenance_until - now)
    elif wait and rule.backoff is not None:
        wait_s = rule.backoff.wait_s(verdict.used, policy.jitter)
    if math.ceil(wait_s) > 0:
        found["begin"] = f"now+{math.ceil(wait_s)}"
    return tuple(f"--{name}={value}" for name, value in found.items()), wait_s


def object_fields(options: tuple[str, ...]) -> dict[str, str]:
    """The same changes as fields of an object that was requeued; it starts at once unless they say otherwise."""
    fields = {"StartTime": "now"}
    for option in options:
        name, _, value = option.removeprefix("--").partition("=")
        if name == "begin":
            fields["StartTime"] = value
        elif name in _FIELDS:
            fields[_FIELDS[name]] = value.removesuffix("M") if name == "mem" else value
    return fields


def held_nodes(state: State) -> tuple[str, ...]:
    """Nodes of the current submission's latest execution that did not say yet that they are clean, sorted."""
    current = state.current
    execution = None if current is None else current.execution
    if execution is None:
        return ()
    clean = {node for attempt, node, is_clean, _, _ in state.nodes if attempt == execution.attempt and is_clean}
    return tuple(sorted(set(_names(execution.nodes)) - clean))[:EXCLUDED_MAX]


def _kept(state: State) -> dict[str, str]:
    """What the submission that is over was given, and limits that somebody changed on its object."""
    current = state.current
    if current is None:
        return {}
    options = [it for it in current.changes if it.startswith(KEPT)]
    changed = current.ends[-1].evidence.get("changed") if current.ends else None
    if isinstance(changed, list):
        options += [it for it in changed if isinstance(it, str) and it.startswith(KEPT)]
    found = {name.removeprefix("--"): value for name, _, value in (it.partition("=") for it in options)}
    return {name: value for name, value in found.items() if name not in state.given}


def _limits(state: State) -> Mapping[str, float]:
    """The limits that the execution had, as far as its end tells them."""
    current = state.current
    limits = current.ends[-1].evidence.get("limits") if current is not None and current.ends else None
    if not isinstance(limits, dict):
        return {}
    return {name: float(value) for name, value in limits.items() if isinstance(value, int | float) and value > 0}


def _excluded(state: State, policy: Policy, outcome: Outcome) -> tuple[str, ...]:
    """The nodes to blame, those of the execution while they fit, and those of the node memory."""
    current = state.current
    if current is None:
        return excluded_of(policy)
    if outcome is Outcome.SUSPECT and current.suspected is not None:
        own = list(current.suspected.nodes)  # never cut: the replacement must go elsewhere
    else:
        blamed = current.end.evidence.get("nodes") if current.end is not None else None
        own = [it for it in blamed if isinstance(it, str)] if isinstance(blamed, list) else []
        if not own and not current.was_refused:
            own = list(_names(current.execution.nodes)) if current.execution is not None else []
        if len(own) > policy.exclude_max:
            own = []
    return tuple(dict.fromkeys([*own, *excluded_of(policy)]))


def _names(text: str) -> tuple[str, ...]:
    try:
        return expand(text)
    except BadDataError:
        return ()


def _time(seconds: float) -> str:
    """A time limit as sbatch takes it; its unit is the minute."""
    minutes = math.ceil(seconds / 60)
    days, rest = divmod(minutes, 24 * 60)
    return f"{days}-{rest // 60:02d}:{rest % 60:02d}:00"


__all__ = ["changes", "held_nodes", "object_fields"]
