"""What happened on the site in the last hours, as far as bounds on it need it: resubmissions, ends, overlaps.

The law of this module: *each happening counts once, however often and by whomever it is reported*, so that two ticks
at once, and one that is done again, change nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from slurm_dispatch.controller.tickfile import number, rows, text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

NAME = "recent"
KEPT_S = 86400.0
"""Longer than any window that is asked about."""
ROWS_MAX = 20_000
OWNER_ROWS_MAX = 2_000
"""Of one owner, so that one of many cannot push out what is known of others."""
END_NODES_MAX = 64
OVERLAP_EXPIRES_S = 14 * 86400.0
"""An overlap whose end nobody reported, since its record was removed."""


@dataclass(frozen=True, slots=True)
class Resubmission:
    """A submission that a tick made."""

    at: float
    job: str
    submission: int
    uid: int
    user: str
    account: str
    partition: str


@dataclass(frozen=True, slots=True)
class End:
    """An execution that ended otherwise than completed.

    :param nodes: at most :data:`END_NODES_MAX` of them.
    """

    at: float
    job: str
    submission: int
    uid: int
    outcome: str
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Overlap:
    """A job whose replacement was submitted while its suspected object may live."""

    since: float
    job: str
    uid: int
    user: str = ""
    account: str = ""
    partition: str = ""


@dataclass(frozen=True, slots=True)
class Recent:
    """All three, oldest first."""

    resubmissions: tuple[Resubmission, ...] = ()
    ends: tuple[End, ...] = ()
    overlaps: tuple[Overlap, ...] = ()


def updated(
    before: Recent,
    now: float,
    *,
    resubmissions: Iterable[Resubmission] = (),
    ends: Iterable[End] = (),
    overlaps: Iterable[Overlap] = (),
    over: Iterable[str] = (),
) -> Recent:
    """``before`` with what was reported; what is too old is gone.

    :param over: keys of jobs that were looked at and have no overlap.
    """
    told = {(it.job, it.submission): it for it in (*resubmissions, *before.resubmissions)}
    ended = {(it.job, it.submission, it.outcome): it for it in (*ends, *before.ends)}
    gone = set(over)
    both = {it.job: it for it in (*overlaps, *before.overlaps) if it.job not in gone}
    return Recent(
        _newest(told.values(), now, KEPT_S),
        _newest(ended.values(), now, KEPT_S),
        tuple(sorted((it for it in both.values() if now - it.since < OVERLAP_EXPIRES_S), key=lambda it: it.since)),
    )


def _newest(found: Iterable[Any], now: float, kept_s: float) -> tuple[Any, ...]:
    kept: list[Any] = []
    of_owner: dict[int, int] = {}
    for it in sorted(found, key=lambda it: (-it.at, it.job, it.submission)):
        of_owner[it.uid] = of_owner.get(it.uid, 0) + 1
        if now - it.at < kept_s and of_owner[it.uid] <= OWNER_ROWS_MAX:
            kept.append(it)
    return tuple(reversed(kept[:ROWS_MAX]))


def from_content(content: Mapping[str, Any] | None) -> Recent:
    """What a file says; rows that make no sense are left out."""
    found = content or {}
    resubmissions: list[Resubmission] = []
    for row in rows(found.get("resubmissions"), ROWS_MAX):
        if len(row) == 7 and type(row[2]) is int and type(row[3]) is int and text(row[1], 64):
            names = (text(row[4]), text(row[5]), text(row[6]))
            resubmissions.append(Resubmission(number(row[0]), row[1], row[2], row[3], *names))
    ends: list[End] = []
    for row in rows(found.get("ends"), ROWS_MAX):
        if len(row) == 6 and type(row[2]) is int and type(row[3]) is int and text(row[1], 64):
            names_ = row[5] if isinstance(row[5], list) else []
            nodes = tuple(name for name in map(text, names_[:END_NODES_MAX]) if name)
            ends.append(End(number(row[0]), row[1], row[2], row[3], text(row[4], 32), nodes))
    overlaps = tuple(
        Overlap(number(row[0]), row[1], row[2], text(row[3]), text(row[4]), text(row[5]))
        for row in rows(found.get("overlaps"), ROWS_MAX)
        if len(row) == 6 and type(row[2]) is int and text(row[1], 64)
    )
    return Recent(tuple(resubmissions), tuple(ends), overlaps)


def content(recent: Recent) -> dict[str, Any]:
    """The opposite of :func:`from_content`."""
    return {
        "resubmissions": [
            [it.at, it.job, it.submission, it.uid, it.user, it.account, it.partition] for it in recent.resubmissions
        ],
        "ends": [[it.at, it.job, it.submission, it.uid, it.outcome, list(it.nodes)] for it in recent.ends],
        "overlaps": [[it.since, it.job, it.uid, it.user, it.account, it.partition] for it in recent.overlaps],
    }


__all__ = ["KEPT_S", "NAME", "End", "Overlap", "Recent", "Resubmission", "content", "from_content", "updated"]
