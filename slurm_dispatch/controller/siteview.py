"""What one pass knows of the site, and what that comes to for one job. No I/O.

The law of this module: *what is not known changes nothing*: without a list of nodes none is avoided and none is
suspected, without a clock no hold runs out, and without an answer nothing has ceased.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from slurm_dispatch.config.limits import HOUR_S, bounds, resubmissions_left
from slurm_dispatch.config.limits import Recent as Counted
from slurm_dispatch.controller import maintenance, memory
from slurm_dispatch.controller.hints import Hints
from slurm_dispatch.controller.silence import Suspects
from slurm_dispatch.controller.siterules import SiteRules
from slurm_dispatch.errors import BadDataError
from slurm_dispatch.model.hostlist import expand
from slurm_dispatch.model.outcome import Action
from slurm_dispatch.records import observation as seen
from slurm_dispatch.records.policy import Limits, Policy
from slurm_dispatch.slurm.port import Nodes, Unknown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from slurm_dispatch.records.observation import CessationAnswer

_STANDING = frozenset({Action.HOLD, Action.STOP})


@dataclass(slots=True)
class Tally:
    """What a pass has used of the bounds for one owner, beside what the hints say.

    :param most_overlaps: so many executions may be suspected in it: its part of what the site's bounds leave to all
        owners; ``None``: nobody else works.
    """

    resubmissions: list[Counted] = field(default_factory=list)
    overlaps: list[Counted] = field(default_factory=list)
    most_overlaps: int | None = None


@dataclass(frozen=True, slots=True)
class Whose:
    """Whose job it is, and where it runs.

    :param user: the owner's name, by the user database and not by the record.
    :param partitions: where it ran last, or may run; empty: nobody has said it.
    """

    uid: int
    user: str
    account: str = ""
    partitions: tuple[str, ...] = ()

    @property
    def partition(self) -> str:
        """The first of them, as limits name one."""
        return self.partitions[0] if self.partitions else ""


@dataclass(slots=True)
class Cache:
    """What was worked out once for all jobs of a pass."""

    excluded: dict[tuple[int, tuple[str, ...]], tuple[str, ...]] = field(default_factory=dict)
    resubmissions: list[Counted] | None = None


@dataclass(frozen=True, slots=True)
class SiteView:
    """The site at the begin of a pass. The default is a site of which nothing is known.

    :param suspects: whose silence may be acted on.
    :param answers: (key of the job that asked, attempt): an answer about cessation that has just come.
    :param told: (key, seq of the hold, what): the status of the command that told the owner.
    :param cessation: somebody answers about cessation.
    :param number: which pass it is of, from 1.
    :param known: a tick made it, which asks and tells for the jobs; false for what a user runs himself.
    """

    rules: SiteRules = field(default_factory=SiteRules)
    hints: Hints = field(default_factory=Hints)
    nodes: Nodes | Unknown = field(default_factory=lambda: Unknown("not asked"))
    suspects: Suspects = field(default_factory=lambda: Suspects(why="not asked"))
    answers: Mapping[tuple[str, str], CessationAnswer] = field(default_factory=dict)
    told: Mapping[tuple[str, int, str], int | None] = field(default_factory=dict)
    cessation: bool = False
    known: bool = False
    number: int = 0
    cache: Cache = field(default_factory=Cache, compare=False)

    def elsewhere(self, cluster: str) -> SiteView:
        """The same site for what is on another cluster: nothing of this one's nodes and maintenances counts there."""
        why = f"the nodes are those of cluster {cluster}"
        return replace(
            self,
            nodes=Unknown(why),
            suspects=Suspects(why=why),
            hints=replace(self.hints, memory=(), windows=()),
            cache=Cache(resubmissions=self.cache.resubmissions),
        )

    def policy(self, base: Policy, whose: Whose, tally: Tally, now: float, jitter: float) -> Policy:
        """What the site adds to a job of this owner, now.

        :param base: what does not change.
        :param jitter: 0 to 1, drawn for this job.
        """
        if not self.known:
            return replace(base, jitter=jitter)
        return replace(
            base,
            limits=self._limits(whose, tally, now),
            excluded=self._excluded(whose, now),
            breaker=self.hints.breaker.of(whose.uid),
            maintenance_until=maintenance.back_at(
                self.hints.windows, whose.partitions, now, spread_s=self.rules.maintenance_spread_s, jitter=jitter
            ),
            holds_until=maintenance.holds_until(self.hints.windows, whose.partitions, now),
            cessation=self.cessation,
            cessation_interval_s=self.rules.cessation_interval_s,
            jitter=jitter,
            no_progress=self.rules.no_progress,
        )

    def _excluded(self, whose: Whose, now: float) -> tuple[str, ...]:
        """The nodes that this owner's jobs keep off there; the same for all of them in a pass."""
        about = (whose.uid, whose.partitions)
        if about not in self.cache.excluded:
            found: tuple[str, ...] = ()
            if isinstance(self.nodes, Nodes) and self.hints.memory:
                found = memory.excluded(
                    self.hints.memory, self.nodes, whose.uid, whose.partitions, self.rules.fading, now=now
                )
            self.cache.excluded[about] = found
        return self.cache.excluded[about]

    def _limits(self, whose: Whose, tally: Tally, now: float) -> Limits:
        rules, hints = self.rules, self.hints
        found = bounds(rules.limits, whose.user, whose.account, whose.partition)
        if rules.limits and self.cache.resubmissions is None:
            self.cache.resubmissions = [
                Counted(it.at, it.user, it.account, it.partition)
                for it in hints.recent.resubmissions
                if now - HOUR_S < it.at
            ]
        made = self.cache.resubmissions or []
        over = self._overlaps() + tally.overlaps
        overlaps = rules.suspicion and len(over) < rules.suspect_overlaps
        if tally.most_overlaps is not None:
            overlaps = overlaps and len(tally.overlaps) < tally.most_overlaps
        for limit in rules.limits:
            if limit.overlap is not None and limit.names(whose.user, whose.account, whose.partition):
                among = [it for it in over if limit.names(it.user, it.account, it.partition)]
                overlaps = overlaps and len(among) < limit.overlap
        longest = rules.longest_hold_s
        return Limits(
            allowed=frozenset(Action) if found.actions is None else found.actions | _STANDING,
            longest_hold_s=longest if found.longest_hold_s is None else min(longest, found.longest_hold_s),
            overlaps=overlaps,
            resubmissions_left=resubmissions_left(
                rules.limits, made + tally.resubmissions, whose.user, whose.account, whose.partition, now=now
            ),
        )

    def _overlaps(self) -> list[Counted]:
        found = self.hints.recent.overlaps
        return [Counted(it.since, it.user, it.account, it.partition) for it in found]

    def overlaps_free(self) -> int:
        """How many more executions may be suspected in this pass, so that none of the bounds is passed, whosever.

        A bound that is reached already forbids it to those whom it names, and takes nothing from the others.
        """
        rules, over = self.rules, self._overlaps()
        if not rules.suspicion:
            return 0
        left = [rules.suspect_overlaps - len(over)]
        for limit in rules.limits:
            if limit.overlap is not None:
                among = sum(1 for it in over if limit.names(it.user, it.account, it.partition))
                left += [limit.overlap - among] if among < limit.overlap else []
        return max(0, min(left))

    def on_suspects(self, nodes: str) -> bool:
        """One of the nodes of this list is silent, and that may be acted on."""
        try:
            return any(name in self.suspects.since for name in expand(nodes))
        except BadDataError:
            return False

    def clock(self) -> seen.SiteClock | None:
        """The site's clock."""
        clock = self.hints.clock
        return None if clock is None else seen.SiteClock(clock.id, clock.ran_s)

    def silent(self, nodes: Iterable[str]) -> tuple[seen.SilentNode, ...] | seen.Unknown:
        """Those of the nodes of an execution whose silence may be acted on."""
        if self.suspects.why:
            return seen.Unknown(self.suspects.why)
        since = self.suspects.since
        return tuple(seen.SilentNode(name, since[name]) for name in nodes if name in since)

    def respond(self, nodes: Iterable[str]) -> bool | None:
        """All of these nodes answer slurmctld; ``None``: nothing tells."""
        if not isinstance(self.nodes, Nodes):
            return None
        state = {node.name: not node.silent and node.state != "DOWN" for node in self.nodes.nodes}
        wanted = list(nodes)
        if not wanted or any(name not in state for name in wanted):
            return None
        return all(state[name] for name in wanted)


__all__ = ["SiteView", "Tally", "Whose"]
