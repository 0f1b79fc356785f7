"""Thinning: removing saves that can never be latest again, and nothing else.

Once this execution has published twice, nothing of an older one can be latest again. What is removed is outranked; a
reader has links or copies of its own, and a reader that is not yet done asks for latest again. So no proof that the
older run has ended is needed. What is not known to be older is left alone.
"""

from __future__ import annotations

import os
import re
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurm_dispatch.durable import TEMPORARY_PREFIX
from slurm_dispatch.errors import AbsentError, BadDataError, StoreError, show
from slurm_dispatch.model.identity import check_attempt
from slurm_dispatch.store.best import read_best
from slurm_dispatch.store.choice import read_choice
from slurm_dispatch.store.folders import enter
from slurm_dispatch.store.manifest import PREFIX
from slurm_dispatch.store.remove import remove_tree
from slurm_dispatch.store.whole import final_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurm_dispatch.model.publication import Publication
    from slurm_dispatch.store.best import Best
    from slurm_dispatch.store.root import CheckpointRoot

_OURS = re.compile(re.escape(TEMPORARY_PREFIX.encode()) + rb"[0-9a-f]{16}")

KEEP_OWN = 2
KEEP_ROOT = 3
OWN_AT_LEAST = 2
"""Publications of this execution before anything is thinned: the last may be torn by what nobody foresaw."""


@dataclass(frozen=True, slots=True)
class Thinned:
    """What was done.

    :ivar removed: paths relative to the root.
    :ivar trouble: one line for each thing that could not be removed; thinning is never needed for correctness.
    """

    removed: tuple[bytes, ...]
    trouble: tuple[str, ...]


def thin(
    root: CheckpointRoot,
    attempt: str,
    *,
    epoch: int,
    keep_own: int = KEEP_OWN,
    keep_root: int = KEEP_ROOT,
    is_save: Callable[[bytes], bool] | None = None,
) -> Thinned:
    """Remove outranked saves; does nothing before the second publication of this execution.

    Stay: the last ``keep_root`` published saves of the whole root, the one with the greatest step, the last
    ``keep_own`` published saves of this execution. Go, of executions whose epoch is known to be lower: published
    saves, ``kept/``, ``resume/``, temporary names, and top-level names for which ``is_save(name)`` is true (the job's
    ``--pattern``), and ``best/`` where this execution has a best save that is as good. Of this execution: older saves
    in ``kept/``, and ``resume/``. Never anything else, never through a link.

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
    published: dict[str | None, list[Publication]] = {}
    for publication in publications:
        published.setdefault(publication.attempt, []).append(publication)
    own = published.get(attempt, [])
    if len(own) < OWN_AT_LEAST:
        return Thinned((), ())
    stay = {publication.path for publication in [*publications[:keep_root], *own[:keep_own]]}
    stay.add(max(publications, key=lambda publication: publication.step).path)
    work = _Thinning(root, stay, is_save)
    work.own(attempt, own)
    try:
        work.best = read_best(root, attempt)
    except (BadDataError, StoreError) as error:
        work.trouble.append(str(error))
    for older in _older(root, attempt, epoch, publications):
        work.older(older, published.get(older, []))
    return Thinned(tuple(work.removed), tuple(work.trouble))


def _older(root: CheckpointRoot, attempt: str, epoch: int, publications: list[Publication]) -> list[str]:
    """The executions whose epoch is known to be lower than ours: from what they published, or chose."""
    epochs: dict[str, set[int]] = {}
    for publication in publications:
        if publication.attempt is not None:
            epochs.setdefault(publication.attempt, set()).add(publication.epoch)
    older = []
    for name in sorted(_executions(root)):
        if name == attempt:
            continue
        known = set(epochs.get(name, ()))
        try:
            choice = read_choice(root, name)
        except (BadDataError, StoreError):
            continue  # not known: left alone
        if choice is not None:
            known.add(choice.epoch)
        if known and max(known) < epoch:
            older.append(name)
    return older


def _executions(root: CheckpointRoot) -> list[str]:
    names = []
    try:
        found = os.listdir(os.path.join(root.path, "exec"))
    except OSError:
        return []
    for name in found:
        try:
            names.append(check_attempt(name))
        except BadDataError:
            continue  # not ours
    return names


class _Thinning:
    """One pass: what stays, and what was done."""

    def __init__(self, root: CheckpointRoot, stay: set[bytes], is_save: Callable[[bytes], bool] | None) -> None:
        self.root = root
        self.stay = stay
        self.is_save = is_save
        self.best: Best | None = None
        self.removed: list[bytes] = []
        self.trouble: list[str] = []

    def own(self, attempt: str, published: list[Publication]) -> None:
        """Older saves of this execution in ``kept/``, published ones only: what is not yet published stays."""
        prefix = b"/".join((b"exec", attempt.encode("ascii")))
        kept = prefix + b"/kept/"
        self._remove_published([one.path for one in published if one.path.startswith(kept)])
        self._remove(prefix + b"/resume")

    def older(self, attempt: str, published: list[Publication]) -> None:
        """Everything of an older execution that is a save."""
        prefix = b"/".join((b"exec", attempt.encode("ascii")))
        self._remove_published([one.path for one in published])
        for folder in (b"kept", b"resume"):
            for name in self._list(prefix + b"/" + folder):
                self._remove(b"/".join((prefix, folder, name)))
        if self._is_outdone(attempt):
            for name in self._list(prefix + b"/best"):
                self._remove(prefix + b"/best/" + name)
        for name in self._list(prefix):
            if _OURS.fullmatch(name) or self._is_save(name):
                self._remove(prefix + b"/" + name)

    def _is_outdone(self, attempt: str) -> bool:
        """Whether this execution's best save is as good as that of an older one: taken over, or outdone."""
        if self.best is None or not os.path.lexists(self.best.path):
            return False
        try:
            theirs = read_best(self.root, attempt)
        except (BadDataError, StoreError):
            return False  # not known: left alone
        if theirs is None:
            return True  # its record comes after its save, and it has none yet
        same = theirs.same_measure(self.best.metric, self.best.greater_is_better)
        return same and not theirs.beats(self.best.score)

    def _remove_published(self, paths: list[bytes]) -> None:
        """Remove those that are still there: most went in earlier passes, and one look a folder tells which."""
        there: dict[bytes, set[bytes]] = {}
        for path in paths:
            folder, name = os.path.split(path)
            if folder not in there:
                there[folder] = set(self._list(folder))
            if name in there[folder]:
                self._remove(path)

    def _is_save(self, name: bytes) -> bool:
        if self.is_save is None or name in {b"kept", b"resume", b"best", b".dispatch"}:
            return False
        final = final_name(name)
        return self.is_save(name) or (final is not None and self.is_save(final))

    def _list(self, relative: bytes) -> list[bytes]:
        try:
            descriptor = self._open(relative)
        except AbsentError:
            return []
        except StoreError as error:
            self.trouble.append(str(error))
            return []
        try:
            return sorted(os.fsencode(name) for name in os.listdir(descriptor))
        except OSError as error:
            self.trouble.append(f"listing {show(relative)}: {error.strerror}")
            return []
        finally:
            os.close(descriptor)

    def _remove(self, relative: bytes) -> None:
        """Remove one path, unless it is one that stays, holds one, or is in one."""
        for kept in self.stay:
            if relative == kept or kept.startswith(relative + b"/") or relative.startswith(kept + b"/"):
                return
        folder, name = os.path.split(relative)
        try:
            parent = self._open(folder)
        except AbsentError:
            return
        except StoreError as error:
            self.trouble.append(str(error))
            return
        try:
            if not _OURS.fullmatch(name):
                # First out of sight, as one: a save that is half removed must not look like one that is there.
                away = f"{TEMPORARY_PREFIX}{secrets.token_hex(8)}".encode()
                os.rename(name, away, src_dir_fd=parent, dst_dir_fd=parent)
                name = away
            remove_tree(parent, name)
            self.removed.append(relative)
            self._forget(relative)
        except FileNotFoundError:
            return
        except OSError as error:
            self.trouble.append(f"removing {show(relative)}: {error.strerror}")
        finally:
            os.close(parent)

    def _forget(self, relative: bytes) -> None:
        """Remove the manifest of a save that is gone: one a publication would pile up as long as the job lives."""
        parts = relative.split(b"/")
        if len(parts) < 3 or parts[2] in {b"resume", b"best"}:
            return
        try:
            folder = self._open(b"/".join((*parts[:2], b".dispatch")))
        except StoreError:
            return
        try:
            os.unlink(PREFIX.encode("ascii") + parts[-1], dir_fd=folder)
        except OSError:
            pass  # it had none; a manifest without its save says nothing
        finally:
            os.close(folder)

    def _open(self, relative: bytes) -> int:
        """The folder at ``relative``, entered one part at a time, so that a link on the way is never followed."""
        descriptor = os.open(self.root.raw, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        shown = self.root.raw
        for part in relative.split(b"/"):
            shown = os.path.join(shown, part)
            try:
                inner = enter(descriptor, part, shown)
            finally:
                os.close(descriptor)
            descriptor = inner
        return descriptor


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
