"""The site's limits: which of them are about a job, and what they come to. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurm_dispatch.model.outcome import Action

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

HOUR_S = 3600.0
_WHOLE = ("overlap", "open_jobs", "resubmissions_per_hour")


@dataclass(frozen=True, slots=True)
class Limit:
    """One ``[[limit]]`` table; its fields are explained in
    :data:`~slurm_dispatch.config.settings.LIMIT_SETTINGS`.

    :param number: which table of the file it is, from 1.
    """

    number: int
    user: tuple[str, ...] | None = None
    account: tuple[str, ...] | None = None
    partition: tuple[str, ...] | None = None
    per: str = "user"
    open_jobs: int | None = None
    resubmissions_per_hour: int | None = None
    actions: tuple[str, ...] | None = None
    longest_hold_s: float | None = None
    overlap: int | None = None

    def names(self, user: str, account: str, partition: str) -> bool:
        """Whether it is about such a job.

        :param account: ``""`` while nobody has said which; then a limit that asks for one does not count.
        :param partition: or several with commas between, of which Slurm takes one.
        """
        asked = ((self.user, user), (self.account, account), (self.partition, partition))
        return all(names is None or any(part in names for part in word.split(",")) for names, word in asked)

    def __str__(self) -> str:
        return f"the site's limit {self.number}"


@dataclass(frozen=True, slots=True)
class Recent:
    """A resubmission of the last hour."""

    at: float
    user: str
    account: str
    partition: str


@dataclass(frozen=True, slots=True)
class Bounds:
    """What the limits that name a job come to; ``None``: no bound.

    :param actions: the recovering actions that are allowed.
    :param overlap: replacements for ``--suspect`` beside executions that Slurm has not ended.
    :param places: which limit says each, by the name of the field.
    """

    actions: frozenset[Action] | None
    longest_hold_s: float | None
    overlap: int | None
    open_jobs: int | None
    places: tuple[tuple[str, str], ...] = ()
    resubmissions_per_hour: int | None = None

    def place(self, field: str) -> str:
        """Which limit bounds ``field``."""
        return dict(self.places).get(field, "")


def bounds(limits: Iterable[Limit], user: str, account: str, partition: str) -> Bounds:
    """The bounds of a job: of each kind the lowest of the limits that name it, and the actions that all allow."""
    actions: frozenset[Action] | None = None
    least: dict[str, float] = {}
    places: dict[str, str] = {}
    for limit in limits:
        if not limit.names(user, account, partition):
            continue
        if limit.actions is not None:
            these = frozenset(map(Action, limit.actions))
            if actions is None or not actions <= these:
                places["actions"] = str(limit)
            actions = these if actions is None else actions & these
        for field in ("longest_hold_s", *_WHOLE):
            value = getattr(limit, field)
            if value is not None and (field not in least or value < least[field]):
                least[field] = value
                places[field] = str(limit)
    whole = {name: int(least[name]) if name in least else None for name in _WHOLE}
    return Bounds(
        actions,
        least.get("longest_hold_s"),
        whole["overlap"],
        whole["open_jobs"],
        tuple(sorted(places.items())),
        whole["resubmissions_per_hour"],
    )


def resubmissions_left(
    limits: Iterable[Limit], recent: Sequence[Recent], user: str, account: str, partition: str, *, now: float
) -> int | None:
    """How many resubmissions a job's limits leave in this hour; ``None``: no limit; never below 0.

    :param recent: all resubmissions of the last hour, or more; older ones do not count.
    """
    left: int | None = None
    for limit in limits:
        if limit.resubmissions_per_hour is None or not limit.names(user, account, partition):
            continue
        used = sum(
            1
            for it in recent
            if now - HOUR_S < it.at
            and limit.names(it.user, it.account, it.partition)
            and (limit.per == "all" or it.user == user)
        )
        here = max(limit.resubmissions_per_hour - used, 0)
        left = here if left is None else min(left, here)
    return left
