"""Making a whole save one's own, so that no rotation, of this run or an older one, takes it away."""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurm_dispatch.durable import TEMPORARY_PREFIX, make_folder
from slurm_dispatch.errors import AbsentError, BadDataError, StoreError, TransientError, show, store_error
from slurm_dispatch.model.identity import check_attempt
from slurm_dispatch.store.folders import is_listed, list_fresh, sync_path, tries
from slurm_dispatch.store.manifest import SaveState, manifest_of, read_manifest, state_of, write_manifest
from slurm_dispatch.store.remove import remove_quietly
from slurm_dispatch.store.saves import check_length, relative_save
from slurm_dispatch.store.transfer import COPY_BELOW, transfer
from slurm_dispatch.store.whole import Proof, look

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurm_dispatch.model.publication import Publication
    from slurm_dispatch.store.root import CheckpointRoot, Save
    from slurm_dispatch.store.whole import Look

TAKE_WAITS_S = (0.0, 0.1, 0.5, 1.0, 2.0)
"""Waits before each try to take the latest save, which another run may be thinning meanwhile."""
RESUME_NAMES_MAX = 100
"""Saves of one name that one execution takes; it takes one for each turn of its command."""


def keep(
    root: CheckpointRoot,
    attempt: str,
    source: str | bytes,
    *,
    proof: Proof,
    copy: bool | Callable[[bytes], bool] = False,
    expected: Look | None = None,
    name: bytes | None = None,
) -> bytes | None:
    """Make ``exec/<attempt>/kept/<name of source>``, durable, and its manifest.

    :param source: relative to the root, or absolute; inside ``exec/<attempt>/``; a file or a folder.
    :param copy: copy files of every size, for savers that rewrite large ones in place; or those of which it is true,
        by their path in the save.
    :param name: what the kept save is called instead, for a file that is written again and again under one name.
    :param expected: the look that showed that the source is whole. Without it a rotation that began after that
        look, and was stopped half-way, would go unseen.
    :returns: the kept path relative to the root, to be published; ``None`` if the source changed or went
        meanwhile (try again at the next scan). What is kept already under this name, by a keeper that was killed
        before it published, is returned if it is as it was kept; if not, it is kept anew.
    :raises BadDataError: an empty save, links that leave it, special files, a path too long to be published.
    :raises StoreError: the disk; nothing but a ``.tmp-`` name is left.
    """
    relative = relative_save(root.raw, check_attempt(attempt), source)
    name = os.path.basename(relative) if name is None else name
    kept = kept_path(attempt, name)
    check_length(kept, root.name_max())
    folder = root.make_in_execution(attempt, b"kept")
    if os.path.lexists(os.path.join(folder, name)):
        if _is_kept(root, kept, expected):
            sync_path(folder)  # whoever renamed it may have been killed, or refused, before this
            return kept
        remove_out_of_sight(folder, name)

    def before(seen: Look) -> None:
        write_manifest(root, kept, manifest_of(seen, proof))

    seen = transfer(os.path.join(root.raw, relative), folder, name, copy=copy, expected=expected, before=before)
    return None if seen is None else kept


def bring(root: CheckpointRoot, publication: Publication, attempt: str) -> bytes:
    """Make ``exec/<attempt>/kept/<name>`` of a published save, whole and durable, with a manifest, to be published.

    A save that was published once may be removed at any time by who found it outranked before: what is to be latest
    again must have a path that nobody knows yet. ``attempt`` is a new one, of an execution that never runs.

    :returns: the path relative to the root.
    :raises BadDataError: the save is empty, or its new path is too long to be published.
    :raises TransientError: it went or changed meanwhile.
    :raises StoreError: the disk.
    """
    source, name = os.path.join(root.raw, publication.path), os.path.basename(publication.path)
    kept = kept_path(attempt, name)
    check_length(kept, root.name_max())
    before = read_manifest(root, publication.path)
    root.make_execution(attempt)
    folder = root.make_in_execution(attempt, b"kept")

    def note(seen: Look) -> None:
        write_manifest(root, kept, manifest_of(seen, Proof.PROVED if before is None else before.proof))

    if transfer(source, folder, name, copy=False, before=note) is None:
        raise TransientError(f"taking {show(publication.path)}: it changed or went meanwhile")
    return kept


def kept_path(attempt: str, name: bytes) -> bytes:
    """Where :func:`keep` and :func:`bring` put a save of this name, relative to the root."""
    return b"/".join((b"exec", check_attempt(attempt).encode("ascii"), b"kept", name))


def _is_kept(root: CheckpointRoot, kept: bytes, expected: Look | None) -> bool:
    """Whether what is kept stays: it is as it was kept, and what is to be kept; or it is published and so not ours to
    touch.

    A later turn of the command may have written the save again in place, and through the links into the kept one:
    large files of the one turn, small ones of the other. Or it was written again after a keeper had kept it and was
    killed.
    """
    manifest, now = read_manifest(root, kept), look(os.path.join(root.raw, kept), read=False)
    if manifest is not None and now is not None and manifest_of(now, manifest.proof) == manifest:
        wanted = expected is None or manifest_of(expected, manifest.proof) == manifest
        if wanted:
            return True
    return any(publication.path == kept for publication in root.listing())


def remove_out_of_sight(folder: bytes, name: bytes) -> bool:
    """Remove a save that nobody has published, first out of sight as one; false if it was gone, or is half gone."""
    away = os.path.join(folder, f"{TEMPORARY_PREFIX}{secrets.token_hex(8)}".encode())
    try:
        os.rename(os.path.join(folder, name), away)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise store_error(error, "removing", os.path.join(folder, name)) from error
    return remove_quietly(away)


@dataclass(frozen=True, slots=True)
class Taken:
    """A save that was taken for resuming: what it was, and the absolute path of the execution's own links."""

    save: Save
    path: str


def take(root: CheckpointRoot, attempt: str, *, copy: bool = False, fallback: bool = False) -> Taken | None:
    """Make ``exec/<attempt>/resume/<name>`` of the latest save; if it vanishes meanwhile, of the next latest.

    A save that this execution keeps itself is taken as it is. Where the name is there already and is another
    save's (an earlier turn of the command), it becomes ``resume/<n>/<name>``.

    :returns: ``None`` if there is no publication.
    :raises BadDataError: as :meth:`CheckpointRoot.latest`.
    :raises StoreError: the disk, or the save changed at each of several tries.
    """
    own_kept = b"/".join((b"exec", check_attempt(attempt).encode("ascii"), b"kept", b""))
    save = None
    for _ in tries(TAKE_WAITS_S):
        save = root.latest(fallback=fallback)
        if save is None:
            return None
        if save.publication.path.startswith(own_kept):
            return Taken(save, save.path)
        try:
            path = _take(root, attempt, os.fsencode(save.path), copy)
        except BadDataError:
            # Who thins it may have emptied it between the two looks; then another one is the latest by now.
            now = root.latest(fallback=fallback)
            if now is None or now.publication == save.publication:
                raise
            continue
        if path is not None:
            if state_of(root, save.publication) is SaveState.CHANGED:
                root.say(f"save {show(save.path)} is not what it was when it was published; resuming from it")
            return Taken(save, os.fsdecode(path))
    assert save is not None
    raise TransientError(f"taking {show(save.path)}: it changed or went each time it was tried")


def _take(root: CheckpointRoot, attempt: str, source: bytes, copy: bool) -> bytes | None:
    name = os.path.basename(source)
    for number in range(1, RESUME_NAMES_MAX):
        folder = root.make_in_execution(attempt, b"resume")
        if number > 1:
            folder = os.path.join(folder, b"%d" % number)
            make_folder(os.fsdecode(folder), mode=root.modes().folder)
        path = os.path.join(folder, name)
        if not is_listed(path):
            try:
                return None if transfer(source, folder, name, copy=copy) is None else path
            except (AbsentError, TransientError) as error:
                # Another process of this execution chose at the same time and was first, or swept what was half made.
                if not is_listed(path):
                    if isinstance(error, AbsentError):
                        return None
                    raise
        if same_save(source, path):
            return path
    raise BadDataError(f"save {show(source)} has been taken {RESUME_NAMES_MAX} times in one execution")


def same_save(source: bytes, path: bytes) -> bool:
    """Whether two saves have the same entries, sizes and times, as what was taken from one has."""
    one, other = look(source, read=False), look(path, read=False)
    if one is None or other is None:
        return False
    return [(e.path, e.kind, e.size, e.mtime_ns) for e in one.entries] == [
        (e.path, e.kind, e.size, e.mtime_ns) for e in other.entries
    ]


def sweep_kept(root: CheckpointRoot, attempt: str) -> int:
    """Remove ``.tmp-`` leftovers of killed processes in ``kept/`` and ``resume/`` of this execution.

    Only for the one process that keeps saves in this execution.

    :returns: how many went.
    """
    gone = 0
    for name in ("kept", "resume"):
        folder = os.fsencode(os.path.join(root.execution(attempt), name))
        try:
            found = list_fresh(folder)
        except AbsentError:
            continue
        for inner in found:
            if inner.startswith(TEMPORARY_PREFIX.encode()):
                # As one: the training may keep a save itself now, and must not rename a half-removed one into place.
                try:
                    gone += remove_out_of_sight(folder, inner)
                except StoreError:
                    continue  # swept the next time
    return gone


__all__ = [
    "COPY_BELOW", "Taken", "bring", "keep", "kept_path", "remove_out_of_sight", "same_save", "sweep_kept", "take",
]  # fmt: skip
