"""The site's clock: the seconds in which ticks ran. A hold's length is counted by it, so that none runs out while
the controller is away.

The law of this module: *a second counts only if ticks came before and after it, no more than* :data:`GAP_S`
*apart.* Each tick leaves its time at the file ``last``, and one that comes too late after it writes the reading
anew: so all the time from a written reading to ``last`` counts, and a tick that comes in time need not write. A host
clock that steps back counts nothing; one that steps forward by more than that counts nothing either. The reading
never falls under one id while ``last`` is there. Where the file was lost, a new id begins at 0, and whoever counts
from a reading sees that by the id.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from slurm_dispatch.controller.tickfile import number, text

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME = "clock"
GAP_S = 300.0
"""Ticks further apart than this were not running in between: cron comes each minute."""
WANTED_S = 20 * 86400.0
"""The clock is written for so long after a job last needed it: more than the longest hold and a release after it.
A site without holds writes nothing."""
_RENEW_S = 86400.0
_EXACT_S = 1e-3
WRITE_S = 3600.0
"""A reading is written this often even if every tick comes in time."""


@dataclass(frozen=True, slots=True)
class Clock:
    """One reading.

    :param ran_s: seconds in which ticks ran, under this ``id``.
    :param at: Unix seconds of the reading.
    :param wanted: Unix seconds until which it is kept going.
    """

    id: str
    ran_s: float
    at: float
    wanted: float = 0.0


def advance(before: Clock | None, now: float, gap_s: float = GAP_S, *, last: float | None = None) -> Clock:
    """The reading at ``now``; a fresh clock where there is none, and the same one where nobody wants it.

    :param gap_s: see :data:`GAP_S`; longer where the site's ticks come less often.
    :param last: Unix seconds when the last tick ended; ``None``: not known, then it was no later than ``before``.
    """
    if before is None:
        return Clock(secrets.token_hex(8), 0.0, now)
    if now >= before.wanted or now <= before.at:
        return before
    ticked = before.at if last is None else min(max(last, before.at), now)
    counted = ticked - before.at + (now - ticked if now - ticked <= gap_s else 0.0)
    return replace(before, ran_s=before.ran_s + counted, at=now)


def is_news(before: Clock | None, after: Clock, last: float | None) -> bool:
    """``after`` must be written, since the next tick could not tell it from ``before`` and the time of this one."""
    if before is None or last is None or (before.id, before.wanted) != (after.id, after.wanted):
        return after != before
    passed = after.at - before.at
    return passed >= WRITE_S or abs(after.ran_s - before.ran_s - passed) > _EXACT_S


def wanted(clock: Clock, now: float) -> Clock:
    """The same, kept going: a job counts by it. Renewed once a day, so that not each tick writes for it."""
    if clock.wanted - now > WANTED_S - _RENEW_S:
        return clock
    # The time in which nobody wanted it was not counted.
    return replace(clock, at=clock.at if now < clock.wanted else now, wanted=now + WANTED_S)


def from_content(content: Mapping[str, Any] | None) -> Clock | None:
    """What a file says; ``None`` where it says nothing that can be used."""
    found = content or {}
    name = text(found.get("id"), 64)
    if not name:
        return None
    ran_s = number(found.get("ran_s"), -1.0)
    at = number(found.get("at"), -1.0)
    return Clock(name, ran_s, at, number(found.get("wanted"))) if ran_s >= 0.0 and at >= 0.0 else None


def content(clock: Clock) -> dict[str, Any]:
    """The opposite of :func:`from_content`."""
    return {"id": clock.id, "ran_s": clock.ran_s, "at": clock.at, "wanted": clock.wanted}


__all__ = ["GAP_S", "NAME", "WANTED_S", "Clock", "advance", "content", "from_content", "is_news", "wanted"]
