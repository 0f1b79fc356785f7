"""Which saves are in an execution's folder now: names only, nothing of their content."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurm_dispatch.errors import show, store_error
from slurm_dispatch.watch.pattern import Component, Match, Pattern, is_temporary

if TYPE_CHECKING:
    from collections.abc import Collection

RESERVED = frozenset({".dispatch", "best", "kept", "resume"})
"""The helper's own folders in ``exec/<attempt>/``."""
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


def scan(directory: str, pattern: Pattern, *, reserved: Collection[str] = RESERVED) -> Listing:
    """List ``directory`` by ``pattern``.

    :param reserved: names in ``directory`` itself that are passed over: they are ours.

    Links are not followed and are not saves: what a link is called says nothing about what it will name later.

    :raises StoreError: a folder could not be read; one that went meanwhile is no trouble, but ``directory`` is.
    """
    found: list[Candidate] = []
    troubles: list[tuple[str, str]] = []
    names: set[str] = set()
    level: list[tuple[str, int | None]] = [(directory, None)]
    last = len(pattern.components) - 1
    for depth, component in enumerate(pattern.components):
        below: list[tuple[str, int | None]] = []
        for folder, step in level:
            matching = _matching(folder, component, names, top=depth == 0, reserved=reserved)
            if len(matching) >= ENTRIES_MAX:
                troubles.append((folder, f"{ENTRIES_MAX} names in it match and the rest is not looked at"))
            for one in matching:
                if one.match.trouble is not None:
                    troubles.append((one.path, one.match.trouble))
                    continue
                if one.link:
                    troubles.append((one.path, "it is a symbolic link"))
                    continue
                here = step if one.match.step is None else one.match.step
                if depth == last:
                    if here is not None:
                        found.append(Candidate(here, one.path))
                elif one.folder:
                    below.append((one.path, here))
        level = below
    return Listing(*_one_a_step(found, troubles), tuple(sorted(names)[:NAMES_MAX]))


@dataclass(frozen=True, slots=True)
class _Matching:
    path: str
    match: Match
    link: bool
    folder: bool


def _matching(
    folder: str, component: Component, names: set[str], *, top: bool, reserved: Collection[str]
) -> list[_Matching]:
    """The names in ``folder`` that match, at most :data:`ENTRIES_MAX`; some of the others go into ``names``."""
    out: list[_Matching] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if (top and entry.name in reserved) or is_temporary(entry.name):
                    continue
                match = component.match(entry.name)
                if match is None:
                    if len(names) < 1000:
                        names.add(entry.name)
                    continue
                # Asked here, since a filesystem that does not tell the kind in its listing can fail now.
                out.append(_Matching(entry.path, match, entry.is_symlink(), entry.is_dir(follow_symlinks=False)))
                if len(out) >= ENTRIES_MAX:
                    break
    except OSError as error:
        if not top and error.errno in {errno.ENOENT, errno.ENOTDIR}:
            return []  # a saver removed it while we looked
        raise store_error(error, "listing", folder) from error
    return out


def _one_a_step(
    found: list[Candidate], troubles: list[tuple[str, str]]
) -> tuple[tuple[Candidate, ...], tuple[tuple[str, str], ...]]:
    """Several saves of one step: one of them if they are the same file or the same files, none otherwise."""
    groups: dict[int, list[Candidate]] = {}
    for candidate in sorted(found):
        groups.setdefault(candidate.step, []).append(candidate)
    kept: list[Candidate] = []
    for step, group in sorted(groups.items()):
        first = group[0]
        if len(group) > 1 and any(not same(first.path, other.path) for other in group[1:]):
            names = " and ".join(show(os.path.basename(one.path)) for one in group[:3])
            troubles += [
                (one.path, f"{names} are both saves of step {step}; say more in --pattern") for one in group[:1]
            ]
            continue
        kept.append(first)
    return tuple(kept), tuple(troubles)


def same(one: str, other: str) -> bool:
    """Whether two saves are the very same files (inode for inode), as hard links of a "last" save are."""
    return (marks := _inodes(one)) is not None and marks == _inodes(other)


def _inodes(path: str) -> dict[str, tuple[int, int]] | None:
    """Device and inode of each file of a save by its path in it; ``None`` if it cannot be told."""
    marks: dict[str, tuple[int, int]] = {}
    try:
        top = os.lstat(path)
        if not os.path.isdir(path):
            return {"": (top.st_dev, top.st_ino)}
        for folder, _, files in os.walk(path):
            for name in files:
                whole = os.path.join(folder, name)
                found = os.lstat(whole)
                marks[os.path.relpath(whole, path)] = (found.st_dev, found.st_ino)
                if len(marks) > ENTRIES_MAX:
                    return None
    except OSError:
        return None
    return marks
