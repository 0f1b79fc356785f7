"""What an end stands on, in the words of the fact ``end``. No I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from slurm_dispatch.errors import BadDataError
from slurm_dispatch.model.hostlist import expand
from slurm_dispatch.slurm import port

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slurm_dispatch.records.state import Execution

BLAMED_MAX = 64
"""Nodes that the evidence of an end names."""
OVER = frozenset(
    {
        "COMPLETED",
        "FAILED",
        "CANCELLED",
        "TIMEOUT",
        "NODE_FAIL",
        "BOOT_FAIL",
        "PREEMPTED",
        "OUT_OF_MEMORY",
        "DEADLINE",
        "LAUNCH_FAILED",
        "RECONFIG_FAIL",
        "REVOKED",
    }
)
"""Base states of an object that ended."""


def is_whole(row: port.JobDetail) -> bool:
    """Accounting's row has the end, and not only its state.

    After a time without slurmdbd, slurmctld first tells it of the start, with the state of now: for seconds the row
    is FAILED with 0:0, or CANCELLED by nobody, and its end is unknown.
    """
    return bool(row.states & OVER) and row.end_time is not None


def waited(detail: port.JobDetail) -> bool:
    """By Slurm's own record of the object it had no node since it was last queued, and was cancelled there."""
    return not detail.nodes and not has_run(detail) and detail.source != "accounting"


def has_run(detail: port.JobDetail) -> bool:
    """By Slurm's times it ran: what never did is given one time for both start and end."""
    return detail.start_time is not None and detail.end_time is not None and detail.end_time > detail.start_time


def row_of(rows: Sequence[port.JobDetail] | None, execution: Execution | None) -> port.JobDetail | None:
    """The row of ``rows`` (one object's, oldest first) that is about this execution."""
    if not rows or execution is None:
        return None
    for row in rows:
        if execution.start_time is not None and row.start_time == int(execution.start_time):
            return row
    for row in rows:
        if row.restart is not None and row.restart == execution.epoch.restart:
            return row
    # Slurm 22.05: no hook tells the start, and no row its count; each start has a row of its own, in their order.
    if execution.start_time is None and all(row.restart is None for row in rows):
        return rows[execution.epoch.restart] if execution.epoch.restart < len(rows) else None
    return None


def limits_of(detail: port.JobDetail) -> dict[str, float]:
    """The limits that Slurm had for the object: seconds and megabytes, as far as it says them."""
    limits = (("time_s", detail.time_limit_s), ("mem_mb", detail.memory_mb))
    return {name: float(value) for name, value in limits if value}


def in_trouble(execution: Execution | None, nodes: port.Nodes | port.Unknown) -> list[str]:
    """The nodes of an execution that are silent, down or drained now: they are to be blamed before the others."""
    if execution is None or isinstance(nodes, port.Unknown):
        return []
    bad = {node.name for node in nodes.nodes if node.in_trouble}
    try:
        return [name for name in expand(execution.nodes) if name in bad][:BLAMED_MAX]
    except BadDataError:
        return []


def evidence_of(detail: port.JobDetail | None, source: str) -> dict[str, Any]:
    """What Slurm said of an end, as the fact has it.

    :param source: who said it; without ``detail`` nobody said more.
    """
    if detail is None:
        return {
            "state": None,
            "flags": [],
            "reason": "",
            "exit_code": None,
            "signal": None,
            "by_uid": None,
            "source": source,
        }
    base = sorted(detail.states & OVER) or sorted(detail.states)
    return {
        "state": base[0],
        "flags": sorted(detail.states),
        "reason": detail.reason,
        "exit_code": detail.exit_status,
        "signal": detail.exit_signal,
        "by_uid": detail.by_uid,
        "source": source,
    }


__all__ = ["BLAMED_MAX", "OVER", "evidence_of", "has_run", "in_trouble", "is_whole", "limits_of", "row_of", "waited"]
