"""The site's breaker: while it is open, what would be submitted again is held, and nothing is lost.

The law of this module: *one owner's storm stops that owner; it takes a second one to stop the site.* It opens by
what happened in a window, and closes by itself once the window has passed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from slurm_dispatch.controller.memory import WEIGHT
from slurm_dispatch.controller.tickfile import number, text
from slurm_dispatch.model.quantity import duration

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from slurm_dispatch.controller.recent import End, Recent

NAME = "breaker"
DRAIN_LAG_S = 300.0
"""A node that is drained this long before or after an execution's end was drained by it, as far as one can tell."""
OWNERS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Bounds:
    """What opens it. Zero in a bound means that it never does.

    :param resubmissions: more than so many resubmissions in ``window_s``.
    :param drains: so many executions in a row that each left a node drained.
    :param store_errors: so many jobs with ``store_error`` in ``window_s``.
    """

    resubmissions: int = 500
    window_s: float = 600.0
    drains: int = 3
    store_errors: int = 20


@dataclass(frozen=True, slots=True)
class Breaker:
    """Open or not.

    :param reason: why it is open for everybody; empty while it is not.
    :param since: Unix seconds when it opened.
    :param owners: uid: why it is open for this owner alone.
    """

    reason: str = ""
    since: float = 0.0
    owners: Mapping[int, str] = field(default_factory=dict)

    @property
    def open(self) -> bool:
        """Open for everybody."""
        return bool(self.reason)

    def of(self, uid: int) -> str | None:
        """Why it is open for this owner's jobs, or ``None``."""
        return self.reason or self.owners.get(uid) or None


def judge(before: Breaker, recent: Recent, drained: Mapping[str, float], bounds: Bounds, now: float) -> Breaker:
    """What follows from what happened until now.

    :param drained: node: Unix seconds of the first look that saw it drained.
    """
    since = now - bounds.window_s
    fresh = _by_owner(it.uid for it in recent.resubmissions if since < it.at <= now)
    failing = {(it.uid, it.job) for it in recent.ends if it.outcome == "store_error" and since < it.at <= now}
    broken = _by_owner(uid for uid, _ in failing)
    window = duration(bounds.window_s)
    owners: dict[int, str] = {}
    reason = ""
    for counted, bound, most, what in (
        (fresh, bounds.resubmissions, bounds.resubmissions, "resubmissions"),
        (broken, bounds.store_errors, bounds.store_errors - 1, "jobs with store_error"),
    ):
        if bound <= 0:
            continue
        for uid, count in counted.items():
            if count > most:
                owners.setdefault(uid, f"{count} {what} of one user in {window}, more than {most}")
        # One owner alone never gets beyond the bound: little more than half of it is the most that he adds.
        together = sum(min(count, most // 2 + 1) for count in counted.values())
        if len(counted) > 1 and together > most and not reason:
            reason = f"{sum(counted.values())} {what} in {window}, more than {most}"
    row = _drained_in_a_row(recent.ends, drained, now)
    if bounds.drains and len(row) >= bounds.drains and not reason:
        said = f"{len(row)} executions in a row left a node drained"
        if len({end.uid for end in row}) > 1:
            reason = said
        else:
            owners.setdefault(row[0].uid, said)
    return Breaker(reason, before.since if reason and before.open else (now if reason else 0.0), owners)


def said(before: Breaker, after: Breaker) -> list[str]:
    """The lines for the log: each opening and each closing once, however its numbers change meanwhile."""
    lines: list[str] = []
    if after.open and not before.open:
        lines.append(f"the breaker is open: {after.reason}; what would be submitted again is held")
    if before.open and not after.open:
        lines.append("the breaker is closed again: what it held goes on")
    for uid in sorted(set(before.owners) ^ set(after.owners)):
        if uid in after.owners:
            lines.append(f"the breaker is open for uid {uid}: {after.owners[uid]}; what would follow is held")
        else:
            lines.append(f"the breaker is closed again for uid {uid}")
    return lines


def _by_owner(uids: Iterable[int]) -> dict[int, int]:
    found: dict[int, int] = {}
    for uid in uids:
        found[uid] = found.get(uid, 0) + 1
    return found


def _drained_in_a_row(ends: Iterable[End], drained: Mapping[str, float], now: float) -> list[End]:
    """The newest failures, as long as each end left a node drained that is drained still; a node speaks for one end.

    What says nothing against nodes (a cancel, a preemption, the time limit) is no failure: an operator drains nodes
    on which such executions end. Slurm drains a node a while after the end, when it gives up on a process: an end
    that is younger than that says nothing yet, and does not end the row.
    """
    ends = sorted((end for end in ends if end.at <= now), key=lambda end: end.at, reverse=True)
    left = {_who_left(node, at, ends) for node, at in drained.items()}
    row: list[End] = []
    for nth, end in enumerate(ends):
        if nth in left:
            row.append(end)
        elif now - end.at > DRAIN_LAG_S and not any(_is_near(drained[it], end) for it in end.nodes if it in drained):
            break
    return row


def _who_left(node: str, at: float, ends: Sequence[End]) -> int | None:
    """Which of the ends left the node drained: the failure on it that is nearest, and none of the others."""
    near = [
        (abs(at - end.at), nth) for nth, end in enumerate(ends)
        if node in end.nodes and end.outcome in WEIGHT and _is_near(at, end)
    ]  # fmt: skip
    return min(near)[1] if near else None


def _is_near(at: float, end: End) -> bool:
    return abs(at - end.at) <= DRAIN_LAG_S


def from_content(content: Mapping[str, Any] | None) -> Breaker:
    """What a file says; closed where it says nothing that can be used."""
    found = content or {}
    reason = text(found.get("reason"), 500) if found.get("open") is True else ""
    told = found.get("owners")
    owners: dict[int, str] = {}
    if isinstance(told, dict):
        for name, why in list(told.items())[:OWNERS_MAX]:
            if isinstance(name, str) and name.isascii() and name.isdigit() and len(name) < 12 and text(why, 500):
                owners[int(name)] = why
    return Breaker(reason, number(found.get("since")) if reason else 0.0, owners)


def content(breaker: Breaker) -> dict[str, Any]:
    """The opposite of :func:`from_content`."""
    owners = {str(uid): why for uid, why in breaker.owners.items()}
    return {"open": breaker.open, "reason": breaker.reason, "since": breaker.since, "owners": owners}


__all__ = ["DRAIN_LAG_S", "NAME", "Bounds", "Breaker", "content", "from_content", "judge", "said"]
