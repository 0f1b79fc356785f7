"""What the next submission has that the last one had not: options of sbatch, each ``--name=value``. Pure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from slurm_dispatch.model.hostlist import node_names
from slurm_dispatch.model.outcome import Outcome
from slurm_dispatch.records.inputs import EXCLUDED_MAX, excluded_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurm_dispatch.records.policy import Policy
    from slurm_dispatch.records.state import State
    from slurm_dispatch.records.verdict import Verdict
    from slurm_dispatch.rules.rule import Rule

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
    nodes = () if exclusion_refused(state) else _excluded(state, policy, rule, outcome)
    if nodes:
        found["exclude"] = ",".join(nodes)
    wait_s = 0.0
    if wait and policy.maintenance_until is not None:
        wait_s = max(0.0, policy.maintenance_until - now)
    elif wait and rule.backoff is not None and not exclusion_refused(state):
        wait_s = rule.backoff.wait_s(verdict.used, policy.jitter)
    if math.ceil(wait_s) > 0:
        found["begin"] = f"now+{math.ceil(wait_s)}"
    return tuple(f"--{name}={value}" for name, value in found.items()), wait_s


def requeued_fields(state: State, spare: int | None, options: tuple[str, ...]) -> dict[str, str]:
    """Changes as fields of an object that was requeued; it starts at once unless they say otherwise.

    It keeps off nodes that may still hold the old run too. Slurm takes an object whose nodes are all excluded for one
    that can never run, and lets it wait for good: so none is where it is not known that enough are left.

    :param spare: as in :class:`~slurm_dispatch.records.policy.Policy`.
    """
    fields = {"StartTime": "now"}
    for option in options:
        name, _, value = option.removeprefix("--").partition("=")
        if name == "begin":
            fields["StartTime"] = value
        elif name in _FIELDS:
            fields[_FIELDS[name]] = value.removesuffix("M") if name == "mem" else value
    wanted = [it for it in fields.pop("ExcNodeList", "").split(",") if it]
    nodes = list(dict.fromkeys([*wanted, *held_nodes(state)]))
    fitting = [it for it in (nodes, wanted) if it and spare is not None and len(it) <= spare]
    if fitting:
        fields["ExcNodeList"] = ",".join(fitting[0])
    return fields


def exclusion_refused(state: State) -> bool:
    """sbatch refused a submission that was to keep off nodes: it may be that too few are left. The next one is
    another request, and is made at once without."""
    over, current = state.over, state.current
    if over is None or current is None or over.kind != "rejected":
        return False
    return any(option.startswith("--exclude=") for option in current.changes)


def held_nodes(state: State) -> tuple[str, ...]:
    """Nodes of the current submission's latest execution that did not say yet that they are clean, sorted."""
    current = state.current
    execution = None if current is None else current.execution
    if execution is None:
        return ()
    clean = {node for attempt, node, is_clean, _, _ in state.nodes if attempt == execution.attempt and is_clean}
    return tuple(sorted(set(node_names(execution.nodes)) - clean))[:EXCLUDED_MAX]


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


def _excluded(state: State, policy: Policy, rule: Rule, outcome: Outcome) -> tuple[str, ...]:
    """The nodes to blame, those of the execution while they fit, and those of the node memory, the worst first;
    never so many that too few are left, since then the job could never run."""
    own = _to_blame(state, policy, outcome) if rule.exclude_nodes or outcome is Outcome.SUSPECT else []
    # A suspected node is never left in: an execution may still run there.
    if policy.spare is not None and outcome is not Outcome.SUSPECT and len(own) > policy.spare:
        own = []
    more = [it for it in excluded_of(policy) if it not in own]
    return (*own, *(more if policy.spare is None else more[: max(0, policy.spare - len(own))]))


def _to_blame(state: State, policy: Policy, outcome: Outcome) -> list[str]:
    current = state.current
    if current is None:
        return []
    if outcome is Outcome.SUSPECT:
        # A replacement that was cancelled since the nodes answered is not on them, and nothing is wrong with its own.
        suspected = [it.suspected for it in state.submissions if it.suspected is not None]
        return list(suspected[-1].nodes) if suspected else []
    blamed = current.end.evidence.get("nodes") if current.end is not None else None
    own = [it for it in blamed if isinstance(it, str)] if isinstance(blamed, list) else []
    if not own and not current.was_refused:
        own = list(node_names(current.execution.nodes)) if current.execution is not None else []
    return own if len(own) <= policy.exclude_max else []


def _time(seconds: float) -> str:
    """A time limit as sbatch takes it; its unit is the minute."""
    minutes = math.ceil(seconds / 60)
    days, rest = divmod(minutes, 24 * 60)
    return f"{days}-{rest // 60:02d}:{rest % 60:02d}:00"


__all__ = ["changes", "exclusion_refused", "held_nodes", "requeued_fields"]
