"""Which saves are in an execution's folder now: names only, nothing of their content."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurm_dispatch.errors import show, store_error
from slurm_dispatch.watch.pattern import RESERVED, Component, Match, Pattern, is_temporary
from slurm_dispatch.watch.tree import DISK

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from slurm_dispatch.watch.tree import Tree

NAMES_MAX = 10
"""How many names are listed when nothing matched."""
ENTRIES_MAX = 100_000
"""Matching names of one folder that are looked at; a folder with more is not a folder of saves."""


@dataclass(frozen=True, slots=True, order=True)
class Candidate:
    """A name that matches. ``path`` is absolute."""

    step: int
    path: str


@dataclass(frozen=True, slots=True)
class Listing:
    """One scan.

    :ivar found: candidates whose step is certain, by rising step; one a step.
    :ivar troubles: path and why it is not published.
    :ivar names: up to :data:`NAMES_MAX` names that were seen and did not match, sorted.
    """

    found: tuple[Candidate, ...]
    troubles: tuple[tuple[str, str], ...]
    names: tuple[str, ...]


def scan(
    directory: str,
    patterns: Pattern | Sequence[Pattern],
    *,
    reserved: Collection[str] = RESERVED,
    unfinished: Callable[[str], bool] = lambda _: False,
    tree: Tree = DISK,
    stamps: dict[str, object] | None = None,
) -> Listing:
    """List ``directory`` by a pattern, or by several.

    :param reserved: names in ``directory`` itself that are passed over: they are ours.
    :param unfinished: names that are passed over beside those of :func:`is_temporary`.
    :param stamps: gets the stamp of each folder that is listed, from before that.

    Links are not followed and are not saves: what a link is called says nothing about what it will name later.

    :raises StoreError: a folder could not be read; one that went meanwhile is no trouble, but ``directory`` is.
    """
    several = [patterns] if isinstance(patterns, Pattern) else patterns
    one = _Scan([part for pattern in several for part in pattern.components], reserved, unfinished, tree, stamps)
    for pattern in several:
        one.run(directory, pattern)
    return Listing(*_one_a_step(list(one.found), list(one.troubles), tree), tuple(sorted(one.names)[:NAMES_MAX]))


def candidates(
    directory: str,
    patterns: Sequence[Pattern],
    *,
    reserved: Collection[str] = RESERVED,
    tree: Tree = DISK,
    stamps: dict[str, object] | None = None,
) -> list[Candidate]:
    """Every name that one of the patterns takes, by rising step, also where several are of one step.

    :raises StoreError: as :func:`scan`.
    """
    parts = [part for pattern in patterns for part in pattern.components]
    one = _Scan(parts, reserved, lambda _: False, tree, stamps)
    for pattern in patterns:
        one.run(directory, pattern)
    return sorted(one.found)


class _Scan:
    """One scan. Each folder is listed once, whatever the number of patterns."""

    def __init__(
        self,
        components: Sequence[Component],
        reserved: Collection[str],
        unfinished: Callable[[str], bool],
        tree: Tree,
        stamps: dict[str, object] | None = None,
    ) -> None:
        self.tree = tree
        self.stamps = {} if stamps is None else stamps
        self.components = components
        self.reserved = reserved
        self.unfinished = unfinished
        self.folders: dict[str, list[_Entry]] = {}
        self.names: set[str] = set()
        """Up to 1,000 names that no part of any pattern matches."""
        self.found: dict[Candidate, None] = {}
        self.troubles: dict[tuple[str, str], None] = {}

    def run(self, directory: str, pattern: Pattern) -> None:
        """List by one pattern, level by level."""
        level: list[tuple[str, int | None]] = [(directory, None)]
        last = len(pattern.components) - 1
        for depth, component in enumerate(pattern.components):
            below: list[tuple[str, int | None]] = []
            for folder, step in level:
                matching = self._matching(folder, component, top=depth == 0)
                if len(matching) >= ENTRIES_MAX:
                    self._trouble(folder, f"{ENTRIES_MAX} names in it match and the rest is not looked at")
                for one in matching:
                    if one.match.trouble is not None:
                        self._trouble(one.path, one.match.trouble)
                        continue
                    if one.link:
                        self._trouble(one.path, "it is a symbolic link")
                        continue
                    here = step if one.match.step is None else one.match.step
                    if depth == last:
                        if here is not None:
                            self.found.setdefault(Candidate(here, one.path))
                    elif one.folder:
                        below.append((one.path, here))
            level = below

    def _trouble(self, path: str, what: str) -> None:
        self.troubles.setdefault((path, what))

    def _matching(self, folder: str, component: Component, *, top: bool) -> list[_Matching]:
        return [
            _Matching(entry.path, match, entry.link, entry.folder)
            for entry in self._entries(folder, top=top)
            if (match := component.match(entry.name)) is not None
        ]

    def _entries(self, folder: str, *, top: bool) -> list[_Entry]:
        """The names in ``folder`` that some part of a pattern matches, at most :data:`ENTRIES_MAX`."""
        known = self.folders.get(folder)
        if known is not None:
            return known
        out: list[_Entry] = []
        try:
            if folder not in self.stamps:
                self.stamps[folder] = self.tree.stamp(folder)
            with self.tree.entries(folder) as entries:
                for entry in entries:
                    name = entry.name
                    if (top and name in self.reserved) or is_temporary(name) or self.unfinished(name):
                        continue
                    if not any(component.match(name) for component in self.components):
                        if len(self.names) < 1000:
                            self.names.add(name)
                        continue
                    # Asked here, since a filesystem that does not tell the kind in its listing can fail now.
                    out.append(_Entry(name, entry.path, entry.is_symlink(), entry.is_dir(follow_symlinks=False)))
                    if len(out) >= ENTRIES_MAX:
                        break
        except OSError as error:
            if top or error.errno not in {errno.ENOENT, errno.ENOTDIR}:
                raise store_error(error, "listing", folder) from error
            out = []  # a saver removed it while we looked
        self.folders[folder] = out
        return out


@dataclass(frozen=True, slots=True)
class _Entry:
    name: str
    path: str
    link: bool
    folder: bool


@dataclass(frozen=True, slots=True)
class _Matching:
    path: str
    match: Match
    link: bool
    folder: bool


def _one_a_step(
    found: list[Candidate], troubles: list[tuple[str, str]], tree: Tree
) -> tuple[tuple[Candidate, ...], tuple[tuple[str, str], ...]]:
    """Several saves of one step: one of them if they are the same file or the same files, none otherwise."""
    groups: dict[int, list[Candidate]] = {}
    for candidate in sorted(found):
        groups.setdefault(candidate.step, []).append(candidate)
    kept: list[Candidate] = []
    for step, group in sorted(groups.items()):
        first = group[0]
        if len(group) > 1 and any(not tree.same(first.path, other.path) for other in group[1:]):
            names = " and ".join(show(os.path.basename(one.path)) for one in group[:3])
            troubles += [
                (one.path, f"{names} are both saves of step {step}; say more in --pattern") for one in group[:1]
            ]
            continue
        kept.append(first)
    return tuple(kept), tuple(troubles)
