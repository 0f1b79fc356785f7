"""What may be removed of a root's saves, and what never may: one place for the helper's thinning and for gc by hand.

The law: *what stays is found first, from one listing, and nothing that holds it or is in it is ever a candidate;
``best/`` is nobody's to remove; what was not published goes only where a greater epoch has published, since nothing
of it can be latest any more.* A publication is never a candidate: candidates are paths below ``exec/<attempt>/``.

No lock is needed for that. Publications are never removed, so a later listing has a latest that is as great or
greater, and everything that is a candidate by an older listing is outranked by a newer one too. That holds because no
save that was published once becomes latest by its old path: ``dispatch adopt`` publishes a path that it made itself.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from slurm_dispatch.errors import BadDataError, StoreError
from slurm_dispatch.model.publication import parse_name
from slurm_dispatch.store.choice import read_said
from slurm_dispatch.store.tree import LEFTOVER
from slurm_dispatch.store.whole import final_name

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from slurm_dispatch.model.publication import Publication
    from slurm_dispatch.store.roots import Root

BEST = b"best"
"""The folder in an execution's own that is pinned."""
MANIFEST = b"save-"
"""What the name of a save's manifest begins with (``store.manifest``)."""
_OWN = frozenset({b"kept", b"resume", b".dispatch", BEST})


def by_attempt(publications: Iterable[Publication]) -> dict[str, list[Publication]]:
    """Publications by the execution whose folder their save is in, in the same order."""
    found: dict[str, list[Publication]] = {}
    for publication in publications:
        if publication.attempt is not None:
            found.setdefault(publication.attempt, []).append(publication)
    return found


OWN_AT_LEAST = 2
"""Publications of an execution before it needs nothing older: the last may be torn by what nobody foresaw."""


def epochs_of(
    root: Root, published: Mapping[str, Sequence[Publication]], lent: dict[str, frozenset[bytes]] | None = None
) -> dict[str, int | None]:
    """The greatest epoch that each execution is known to have, from what it published and chose.

    ``None``: nothing tells, or its choice could not be read; such an execution may be anything.

    :param lent: gets, by execution, the paths of the saves that it has chosen to resume from, or was about to, and
        may still be reading. Only in a root where that save itself is read, and until the execution has published
        twice. The publications must have been listed before.
    :raises StoreError, BadDataError: with ``lent``, what such an execution has chosen could not be read.
    """
    epochs: dict[str, int | None] = {}
    for attempt in root.executions():
        known = [publication.epoch for publication in published.get(attempt, ())]
        reads = lent is not None and not root.takes_links and len(known) < OWN_AT_LEAST
        try:
            said = read_said(root, attempt)
            sources = {source for _, source in said.wishes}
            known += [epoch for epoch, _ in said.wishes]
            if said.choice is not None:
                known.append(said.choice.epoch)
                sources |= {said.choice.source} if said.choice.source is not None else set()
            reading = frozenset(parse_name(source).path for source in sources)
        except (BadDataError, StoreError):
            if reads:
                raise  # what it reads could be any save: nothing may go
            epochs[attempt] = None
            continue
        if lent is not None and reads:
            lent[attempt] = reading
        epochs[attempt] = max(known, default=None)
    return epochs


def greatest_step(publications: Iterable[Publication]) -> Publication | None:
    """The one of the greatest step, whatever its epoch; of several the one that outranks the others."""
    return max(publications, key=lambda one: (one.step, one.epoch, one.path), default=None)


class Candidates:
    """Collects what may go, execution by execution; removes nothing.

    :param stay: the paths that stay, relative to the root.
    :param is_save: whether a name in an execution's folder is a save that the training wrote (the job's pattern).
    :param listed: what was listed already, and is not listed again: a cache that shows now what it did not show then
        must not make a candidate of what was not found to stay.
    :ivar paths: what may go, in order; none is named twice.
    :ivar trouble: one line for each folder that could not be listed.
    """

    def __init__(
        self,
        root: Root,
        stay: Iterable[bytes],
        is_save: Callable[[bytes], bool] | None = None,
        listed: dict[bytes, frozenset[bytes]] | None = None,
    ) -> None:
        self.root = root
        self._stay = set(stay)
        self._holding = {above for path in self._stay for above in _above(path)}
        self._is_save = is_save
        self.names: dict[bytes, frozenset[bytes]] = {} if listed is None else listed
        self.paths: dict[bytes, None] = {}
        self.trouble: list[str] = []

    def listed(self, folder: bytes) -> frozenset[bytes]:
        """The names in a folder of the root, listed once."""
        if folder not in self.names:
            try:
                self.names[folder] = frozenset(self.root.entries(folder))
            except StoreError as error:
                self.trouble.append(str(error))
                self.names[folder] = frozenset()
        return self.names[folder]

    def published(self, publications: Iterable[Publication]) -> None:
        """Their saves, those that are still there: most went in earlier passes, and one look a folder tells which."""
        for publication in publications:
            folder, name = os.path.split(publication.path)
            if name in self.listed(folder):
                self._add(publication.path)

    def written(self, attempt: str, publications: Iterable[Publication]) -> None:
        """What the training itself wrote and the helper kept from: ``checkpoint-5`` beside ``kept/checkpoint-5``."""
        own = _folder(attempt)
        there = self.listed(own) - _OWN
        for publication in publications:
            folder, name = os.path.split(publication.path)
            if folder == own + b"/kept" and publication.path not in self._stay and name in there:
                self._add(own + b"/" + name)

    def resumed(self, attempt: str) -> None:
        """``resume/`` of an execution: its own links to what it resumed from."""
        self._all(_folder(attempt) + b"/resume")

    def leftovers(self, attempt: str) -> None:
        """What a killed process left under a temporary name of ours."""
        own = _folder(attempt)
        for folder in (own, own + b"/kept", own + b"/resume"):
            for name in sorted(self.listed(folder)):
                if LEFTOVER.fullmatch(name):
                    self._add(folder + b"/" + name)

    def unsaved(self, attempt: str, publications: Iterable[Publication]) -> None:
        """Manifests of which no save is there: its saver has removed it, or it went before it was published.

        After all else of the execution: a manifest goes with the save that it is about, and what else has its name
        and goes too is no reason to stay. Only where nobody keeps a save meanwhile: a manifest can be there before
        its save.
        """
        own = _folder(attempt)
        try:
            # In this order; and not what was listed before, where a folder that could not be listed has nothing.
            notes = [name for name in self.root.entries(own + b"/.dispatch") if name.startswith(MANIFEST)]
            kept = self.root.entries(own + b"/kept") if notes else []
            top = self.root.entries(own) if notes else []
        except StoreError as error:
            self.trouble.append(str(error))
            return
        published = {one.path for one in publications}
        paths = {own + b"/" + name for name in top} - (self.paths.keys() - published)
        for name in notes:
            save = name.removeprefix(MANIFEST)
            if save not in kept and own + b"/" + save not in paths:
                self.paths.setdefault(own + b"/.dispatch/" + name)

    def older(self, attempt: str, publications: Iterable[Publication]) -> None:
        """Everything that is a save, of an execution that a greater epoch has outranked."""
        self.published(publications)
        self._all(_folder(attempt) + b"/kept")
        self.resumed(attempt)
        own = _folder(attempt)
        for name in sorted(self.listed(own)):
            if LEFTOVER.fullmatch(name) or self._written_save(name):
                self._add(own + b"/" + name)

    def _all(self, folder: bytes) -> None:
        for name in sorted(self.listed(folder)):
            self._add(folder + b"/" + name)

    def _written_save(self, name: bytes) -> bool:
        if self._is_save is None or name in _OWN:
            return False
        final = final_name(name)
        return self._is_save(name) or (final is not None and self._is_save(final))

    def _add(self, path: bytes) -> None:
        """One path, unless it is one that stays, holds one, or is in one."""
        parts = path.split(b"/")
        if len(parts) < 3 or parts[0] != b"exec" or parts[2] in {BEST, b".dispatch"}:
            return
        if path in self._stay or path in self._holding or not self._stay.isdisjoint(_above(path)):
            return
        self.paths.setdefault(path)


def remove_all(
    root: Root, paths: Collection[bytes], progress: Callable[[int, int], None] | None = None
) -> tuple[tuple[bytes, ...], tuple[str, ...]]:
    """Remove candidates, one after the other.

    :param progress: called after each, gone or not, with (how many, of how many).
    :returns: (what this call removed, one line for each that could not be removed).
    """
    removed: list[bytes] = []
    trouble: list[str] = []
    for number, path in enumerate(paths, start=1):
        try:
            if root.remove(path):
                removed.append(path)
        except StoreError as error:
            trouble.append(str(error))
        if progress is not None:
            progress(number, len(paths))
    return tuple(removed), tuple(trouble)


def _folder(attempt: str) -> bytes:
    return b"exec/" + attempt.encode("ascii")


def _above(path: bytes) -> list[bytes]:
    parts = path.split(b"/")
    return [b"/".join(parts[:count]) for count in range(1, len(parts))]


__all__ = ["BEST", "OWN_AT_LEAST", "Candidates", "by_attempt", "epochs_of", "greatest_step", "remove_all"]
