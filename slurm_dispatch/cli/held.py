"""The jobs that are held, for the commands that list and release them; and the filters that choose among them."""

from __future__ import annotations

import fnmatch
import functools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from slurm_dispatch.errors import DispatchError
from slurm_dispatch.records.fold import fold
from slurm_dispatch.state.read import own_jobs, read_jobs

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurm_dispatch.cli.wishes import Bench
    from slurm_dispatch.records.state import State

NAMED_MAX = 8
"""Jobs that one line names."""


@dataclass(frozen=True, slots=True)
class Filters:
    """Which jobs are meant; what is ``None`` is not looked at.

    :param user: whose records are read.
    :param reason_like: a glob; without ``*`` it may stand anywhere in the reason.
    """

    user: str | None = None
    account: str | None = None
    partition: str | None = None
    reason_like: str | None = None

    def __bool__(self) -> bool:
        return any((self.user, self.account, self.partition, self.reason_like))

    def takes(self, state: State, reason: str) -> bool:
        """Whether the job, which is one of the user's, is among those that are meant."""
        spec = state.spec
        like = self.reason_like
        if like is not None and not any(mark in like for mark in "*?["):
            like = f"*{like}*"
        return (
            self.account in {None, spec.account}
            and (self.partition is None or self.partition in spec.partition.split(","))
            and (like is None or fnmatch.fnmatchcase(reason.lower(), like.lower()))
        )

    def unsaid(self, state: State) -> str:
        """What is asked for of the job and was not given to sbatch, so that the record does not tell; or empty."""
        spec = state.spec
        asked = (("account", self.account, spec.account), ("partition", self.partition, spec.partition))
        return next((name for name, wanted, given in asked if wanted is not None and not given), "")


def filter_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """``--user --account --partition --reason-like``, as the one argument ``filters``."""

    @functools.wraps(function)
    def filtered(
        *, user: str | None, account: str | None, partition: str | None, reason_like: str | None, **others: Any
    ) -> Any:
        return function(filters=Filters(user, account, partition, reason_like), **others)

    for option in (
        click.option("--reason-like", metavar="GLOB", help="Those whose reason is like this."),
        click.option("--partition", help="Those for which sbatch was given this partition."),
        click.option("--account", help="Those for which sbatch was given this account."),
        click.option("--user", help="Another user's jobs, or 'all' (for root)."),
    ):
        filtered = option(filtered)
    return filtered


def jobs_of(bench: Bench, filters: Filters) -> tuple[dict[str, State], list[str]]:
    """The open jobs that the filters take, held or not, by key; and a line for each that cannot be read.

    :raises UsageError: there is no such user; :class:`NotAllowedError`: another's jobs, and the caller is not root.
    """
    from slurm_dispatch.cli.status import whose

    uid = whose(filters.user)
    states: dict[str, State] = {}
    trouble: list[str] = []
    unsaid: dict[str, list[str]] = {}
    found = read_jobs(bench.folder, own_jobs(bench.folder, uid), deadline_s=bench.site.owner_timeout_s)
    for key, facts in found.items():
        try:
            if isinstance(facts, DispatchError):
                raise facts
            state = fold(facts)
        except DispatchError as error:
            trouble.append(f"job {key}: {error}")
            continue
        if state.closed is not None:
            continue
        if name := filters.unsaid(state):
            if replace(filters, **{name: None}).takes(state, reason_of(state)):
                unsaid.setdefault(name, []).append(key)
        elif filters.takes(state, reason_of(state)):
            states[key] = state
    trouble += [
        f"left out, since sbatch was given no {name}: {', '.join(keys[:NAMED_MAX])}"
        + (f" and {len(keys) - NAMED_MAX} more" if len(keys) > NAMED_MAX else "")
        for name, keys in unsaid.items()
    ]
    return states, trouble


def reason_of(state: State) -> str:
    """Why it is held, or will be; empty if it is not."""
    if state.holding is not None:
        return state.holding.reason
    return "" if state.hold is None else state.hold.reason


def is_held(state: State) -> bool:
    """Whether it is held, or will be once what runs has ended."""
    return state.holding is not None or state.hold is not None


__all__ = ["Filters", "filter_options", "is_held", "jobs_of", "reason_of"]
