"""Removing more than the helper's thinning does, when a person says so (``dispatch gc``).

The law: *never a publication, never what latest names, never the greatest step of the root unless it is named, and
nothing at all of an execution that is not known to be over.* What may go otherwise is
:mod:`slurm_dispatch.store.outranked`'s to say, as for the helper.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from slurm_dispatch.errors import BadDataError, UsageError
from slurm_dispatch.store.outranked import Candidates, by_attempt, epochs_of, greatest_step

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from slurm_dispatch.model.publication import Publication
    from slurm_dispatch.store.roots import Root


class Standing(str, Enum):
    """Whether an execution runs.

    ``over``: nothing of it runs any more. ``ended``: its helper has ended and publishes nothing more, unless the
    job's script starts another one.
    """

    OVER = "over"
    ENDED = "ended"
    RUNNING = "running"
    UNKNOWN = "unknown"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of an execution, and who says so, in a few words."""

    standing: Standing
    why: str


@dataclass(frozen=True, slots=True)
class Rules:
    """What a person wants to keep.

    :ivar last: so many published saves, those that outrank the others; 1 or more.
    :ivar every: of each step that is a multiple of this, the save that outranks the others; ``None``: of none.
    :ivar dropped: paths of saves that need not stay for having the greatest step of the root.
    """

    last: int
    every: int | None = None
    dropped: frozenset[bytes] = frozenset()

    def __post_init__(self) -> None:
        if self.last < 1:
            raise BadDataError(f"cannot keep {self.last} saves", hint="it is 1 at least: what latest names stays")
        if self.every is not None and self.every < 1:
            raise BadDataError(f"steps are no multiples of {self.every}", hint="it is 1 at least")


@dataclass(frozen=True, slots=True)
class Plan:
    """What a pass of gc would do.

    :ivar latest: the latest publication, ``None`` in a root without one: then nothing goes but leftovers.
    :ivar stay: the publications whose saves stay and are there, latest first.
    :ivar removals: what goes, by execution: paths relative to the root.
    :ivar standings: of every execution.
    :ivar left: executions in which something would go and nothing does, and why.
    :ivar trouble: one line for each folder that could not be listed.
    """

    latest: Publication | None
    stay: tuple[Publication, ...]
    removals: Mapping[str, tuple[bytes, ...]]
    left: Mapping[str, Known]
    standings: Mapping[str, Known]
    trouble: tuple[str, ...]

    @property
    def paths(self) -> list[bytes]:
        """Everything that goes, in order."""
        return [path for paths in self.removals.values() for path in paths]


def plan(
    root: Root,
    rules: Rules,
    standing: Callable[[str], Known],
    is_save: Callable[[bytes], bool] | None = None,
) -> Plan:
    """Find what may go; removes nothing. Carry it out with :func:`slurm_dispatch.store.outranked.remove_all`.

    Of executions of a smaller epoch than the latest's: all that the helper's thinning takes. Of those of the latest's
    epoch: published saves; and if they are over, and not only ended, what the training wrote of the same name. Of
    every one that is over: temporary names of ours; and ``resume/``, if it is known which epoch it has.

    :param standing: asked about each execution, before the publications are listed: what has ended by then
        publishes nothing that the listing has not.
    :raises BadDataError: a publication's name does not parse.
    :raises UsageError: the latest is named as one that may go.
    :raises StoreError: the root could not be listed.
    """
    standings = {attempt: standing(attempt) for attempt in root.executions()}
    publications = root.listing()
    latest = publications[0] if publications else None
    if latest is not None and latest.path in rules.dropped:
        raise UsageError(f"{latest.name} is the latest: its save is never removed")
    published = by_attempt(publications)
    looking = Candidates(root, (), is_save)
    there = [one for one in publications if _is_there(looking, one)]
    stay = staying(publications, there, rules)
    lent: dict[str, frozenset[bytes]] = {}
    epochs = epochs_of(root, published, lent)
    gone = {Standing.OVER, Standing.ENDED}
    # Where only a helper has ended, the next one in its script may be reading now.
    past = {attempt for attempt, known in standings.items() if known.standing is Standing.OVER}
    stay.update(path for attempt, paths in lent.items() if attempt not in past for path in paths)
    removals: dict[str, tuple[bytes, ...]] = {}
    left: dict[str, Known] = {}
    trouble = list(looking.trouble)
    for attempt, known in standings.items():
        work = Candidates(root, stay, is_save, looking.names)
        may = known.standing in gone
        over = known.standing is not Standing.ENDED
        _of_execution(work, attempt, epochs.get(attempt), latest, published.get(attempt, []), over=over)
        if known.standing is Standing.OVER:
            work.unsaved(attempt, published.get(attempt, []))
        trouble += work.trouble
        if work.paths and may:
            removals[attempt] = tuple(work.paths)
        elif work.paths:
            left[attempt] = known
    kept = tuple(one for one in there if one.path in stay)
    return Plan(latest, kept, removals, left, standings, tuple(trouble))


def staying(publications: Sequence[Publication], there: Sequence[Publication], rules: Rules) -> set[bytes]:
    """The paths that stay. Both sequences are latest first, and ``there`` has those whose saves were seen.

    The latest stays, and the greatest step, whether they were seen or not.
    """
    stay = {one.path for one in publications[:1]}
    last = dict.fromkeys(one.path for one in there)
    stay.update(list(last)[: rules.last])
    for some in (publications, there):
        greatest = greatest_step(one for one in some if one.path not in rules.dropped)
        if greatest is not None:
            stay.add(greatest.path)
    if rules.every is not None:
        steps: dict[int, bytes] = {}
        for one in there:
            if one.step % rules.every == 0:
                steps.setdefault(one.step, one.path)
        stay.update(steps.values())
    return stay


def _is_there(looking: Candidates, publication: Publication) -> bool:
    folder, name = os.path.split(publication.path)
    return name in looking.listed(folder)


def _of_execution(
    work: Candidates,
    attempt: str,
    epoch: int | None,
    latest: Publication | None,
    published: list[Publication],
    *,
    over: bool,
) -> None:
    if epoch is None:
        if over:  # killed before it chose: what it was taking has links to whole saves
            work.leftovers(attempt)
        return
    if latest is not None and epoch < latest.epoch:
        work.older(attempt, published)
        work.written(attempt, published)
        return
    if latest is not None and epoch == latest.epoch:
        work.published(published)
        if over:
            work.written(attempt, published)
    if over:  # another helper in it could be about to start its command from there
        work.resumed(attempt)
        work.leftovers(attempt)


__all__ = ["Known", "Plan", "Rules", "Standing", "plan", "staying"]
