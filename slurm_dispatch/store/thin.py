"""Thinning: removing saves that can never be latest again, and nothing else.

Once this execution has published twice, nothing of an older one can be latest again. What is removed is outranked; a
reader has links or copies of its own, and a reader that is not yet done asks for latest again. So no proof that the
older run has ended is needed. What is not known to be older is left alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurm_dispatch.errors import BadDataError
from slurm_dispatch.model.identity import check_attempt
from slurm_dispatch.store.outranked import (
    OWN_AT_LEAST,
    Candidates,
    by_attempt,
    epochs_of,
    greatest_step,
    remove_all,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurm_dispatch.store.roots import Root

KEEP_OWN = 2
KEEP_ROOT = 3


@dataclass(frozen=True, slots=True)
class Thinned:
    """What was done.

    :ivar removed: paths relative to the root.
    :ivar trouble: one line for each thing that could not be removed; thinning is never needed for correctness.
    """

    removed: tuple[bytes, ...]
    trouble: tuple[str, ...]


def thin(
    root: Root,
    attempt: str,
    *,
    epoch: int,
    keep_own: int = KEEP_OWN,
    keep_root: int = KEEP_ROOT,
    is_save: Callable[[bytes], bool] | None = None,
) -> Thinned:
    """Remove outranked saves; does nothing before the second publication of this execution.

    Stay: the last ``keep_root`` published saves of the whole root, the one with the greatest step, the last
    ``keep_own`` published saves of this execution, and ``best/`` of every one. Go, of executions whose epoch is known
    to be lower: published saves, ``kept/``, ``resume/``, temporary names, and top-level names for which
    ``is_save(name)`` is true (the job's ``--pattern``). Of this execution: older published saves in ``kept/``, and
    ``resume/``. Never anything else, never through a link. The rules are :mod:`slurm_dispatch.store.outranked`'s.

    :param epoch: of this execution. Executions of the same epoch or of none that is known are left alone.
    :param keep_own: 1 or more.
    :param keep_root: 1 or more.
    :raises BadDataError: a publication's name does not parse.
    :raises StoreError: the root could not be listed; trouble with one save is reported, not raised.
    """
    if keep_own < 1 or keep_root < 1:
        raise BadDataError(f"cannot keep {min(keep_own, keep_root)} saves", hint="it is 1 at least")
    check_attempt(attempt)
    publications = root.listing()
    published = by_attempt(publications)
    own = published.get(attempt, [])
    if len(own) < OWN_AT_LEAST:
        return Thinned((), ())
    stay = {publication.path for publication in [*publications[:keep_root], *own[:keep_own]]}
    greatest = greatest_step(publications)
    if greatest is not None:
        stay.add(greatest.path)
    lent: dict[str, frozenset[bytes]] = {}
    epochs = epochs_of(root, published, lent)
    # A newer execution may be reading what it has chosen, or is about to: where it has no links, that stays.
    stay.update(path for one, paths in lent.items() if (epochs[one] or 0) > epoch for path in paths)
    work = Candidates(root, stay, is_save)
    # What this execution has kept and not published yet stays.
    kept = b"exec/" + attempt.encode("ascii") + b"/kept/"
    work.published(publication for publication in own if publication.path.startswith(kept))
    work.resumed(attempt)
    work.unsaved(attempt, own)
    for older, known in epochs.items():
        if older != attempt and known is not None and known < epoch:
            work.older(older, published.get(older, []))
    removed, trouble = remove_all(root, work.paths)
    return Thinned(tuple(path for path in removed if b"/.dispatch/" not in path), (*work.trouble, *trouble))


@dataclass(frozen=True, slots=True)
class Bound:
    """The most that the saves in a root take at any time, for one run and the one that it replaces.

    :ivar saves: saves, where links count as whole saves (they are, once their source is gone).
    :ivar size: bytes.
    :ivar inodes: files and folders, the publications not counted (one a save, and they are never removed).
    """

    saves: int
    size: int
    inodes: int


def bound(
    save_size: int, save_files: int, *, own_saves: int = 1, keep_own: int = KEEP_OWN, keep_root: int = KEEP_ROOT
) -> Bound:
    """The bound for the plan.

    What can be there: the saves that stay (``keep_root``, ``keep_own`` and the one with the greatest step), the
    one being kept, the one taken for resuming, what the training leaves in place and the one that it is writing;
    and, until the second publication of the replacement, the same of the run before.

    :param save_size: bytes of one save.
    :param save_files: files and folders of one save.
    :param own_saves: how many saves the training itself leaves in place (its own rotation).
    """
    one_run = keep_own + 1 + 1 + own_saves + 1
    saves = keep_root + 1 + 2 * one_run
    return Bound(saves, saves * save_size, saves * save_files)
