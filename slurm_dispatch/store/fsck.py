"""A whole root looked at: every name, every published save, what is there without a publication, and who is latest.

Changes nothing. What is found wrong is a fault; what could not be looked at is trouble, and no fault. What a run that
lives publishes and removes meanwhile is neither.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from slurm_dispatch.errors import BadDataError, CorruptError, StoreError, show
from slurm_dispatch.model.publication import Publication, parse_name
from slurm_dispatch.store.outranked import by_attempt, epochs_of
from slurm_dispatch.store.root import CheckpointRoot
from slurm_dispatch.store.sound import FAULTS, Condition, inspect
from slurm_dispatch.store.tree import LEFTOVER

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurm_dispatch.store.roots import Root
    from slurm_dispatch.store.sound import Found


@dataclass(frozen=True, slots=True)
class ExecutionSeen:
    """An execution's folder.

    :ivar epoch: the greatest that it published under or chose with; ``None`` if nothing tells.
    :ivar published: its publications; ``there``: those of them whose save is there.
    :ivar loose: saves in ``kept/`` that no publication names, relative to the root.
    :ivar leftovers: temporary names of ours: what is being made or removed, or was when it was killed.
    """

    attempt: str
    epoch: int | None
    published: int
    there: int
    loose: tuple[bytes, ...]
    leftovers: tuple[bytes, ...]


@dataclass(slots=True)
class Report:
    """What was found.

    :ivar owners: generation: the job that claimed it.
    :ivar saves: every publication that parses, latest first, and what was found of its save.
    :ivar faults: one line each; ``troubles``: what could not be looked at.
    """

    owners: dict[int, str] = field(default_factory=dict)
    saves: list[tuple[Publication, Found]] = field(default_factory=list)
    executions: list[ExecutionSeen] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)

    @property
    def latest(self) -> tuple[Publication, Found] | None:
        """The latest; ``None`` where nothing is published."""
        return self.saves[0] if self.saves else None


def fsck(
    root: Root,
    progress: Callable[[int, int], None] | None = None,
    inspecting: Callable[[Publication], Found] | None = None,
) -> Report:
    """Look at everything in a root.

    :param progress: called after each save with (how many were looked at, how many there are).
    :param inspecting: looks at a publication's save; unless given, as it is looked at in a root that is a folder.
    :raises StoreError: the root or its publications could not be listed.
    """
    if inspecting is None:
        assert isinstance(root, CheckpointRoot)
        inspecting = functools.partial(inspect, root)
    report = Report()
    publications = _names(root, report)
    try:
        report.owners = root.owners()
    except BadDataError as error:
        report.faults.append(str(error))
    for number, publication in enumerate(publications, start=1):
        report.saves.append((publication, inspecting(publication)))
        if progress is not None:
            progress(number, len(publications))
    moved = _look_again(root, report, inspecting)
    for number, (publication, found) in enumerate(report.saves, start=1):
        latest = number == 1 and not moved
        if found.condition in FAULTS or (latest and found.condition is Condition.REMOVED):
            which = "the latest" if latest else f"step {publication.step} of epoch {publication.epoch}"
            report.faults.append(f"{show(publication.path)}, {which}, is {found.condition}: {found.why}")
        elif found.condition is Condition.UNKNOWN:
            report.troubles.append(found.why)
    _executions(root, report, publications)
    return report


def _look_again(root: Root, report: Report, inspecting: Callable[[Publication], Found]) -> bool:
    """Look once more at what was not there whole: a run that lives thins meanwhile, and is done with that by now.

    :returns: whether something was published above the latest meanwhile, so that it may be removed like any other.
    """
    saves = report.saves
    well = {Condition.WHOLE, Condition.REMOVED}
    for number, (publication, found) in enumerate(saves):
        if found.condition not in well:
            saves[number] = (publication, inspecting(publication))
    if not saves or saves[0][1].condition is not Condition.REMOVED:
        return False
    return max(root.names(), default="") > saves[0][0].name


def _names(root: Root, report: Report) -> list[Publication]:
    publications = []
    for name in sorted(root.names(), reverse=True):
        try:
            publications.append(parse_name(name))
        except BadDataError as error:
            report.faults.append(f"pub/: {error}")
            continue
        try:
            root.check_published(name)
        except CorruptError as error:
            report.faults.append(str(error))
        except StoreError as error:
            report.troubles.append(str(error))
    return publications


def _executions(root: Root, report: Report, publications: list[Publication]) -> None:
    published = by_attempt(publications)
    there = {one.path for one, found in report.saves if found.size}
    named = {publication.path for publication in publications}
    for attempt, epoch in epochs_of(root, published).items():
        own = b"exec/" + attempt.encode("ascii")
        loose: list[bytes] = []
        leftovers: list[bytes] = []
        for folder in (own, own + b"/kept", own + b"/resume"):
            try:
                names = root.entries(folder)
            except StoreError as error:
                report.troubles.append(str(error))
                continue
            for name in names:
                path = folder + b"/" + name
                if LEFTOVER.fullmatch(name):
                    leftovers.append(path)
                elif folder.endswith(b"/kept") and path not in named:
                    loose.append(path)
        mine = published.get(attempt, [])
        count = sum(one.path in there for one in mine)
        report.executions.append(
            ExecutionSeen(attempt, epoch, len(mine), count, tuple(loose), tuple(leftovers))
        )
    report.executions.sort(key=lambda one: (-1 if one.epoch is None else one.epoch, one.attempt), reverse=True)


__all__ = ["ExecutionSeen", "Report", "fsck"]
