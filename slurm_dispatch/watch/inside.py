"""How a training that publishes itself makes a save the execution's own: in a folder, by an upload, or where it is.

The helper does the same (:mod:`slurm_dispatch.watch.keeping`), and both may do it to one save at once: whoever comes
second finds it done. Here somebody says that the save is whole, so what is wrong with it is an error at once.
"""

from __future__ import annotations

import functools
import os
import time
from typing import TYPE_CHECKING

from slurm_dispatch.errors import AbsentError, BadDataError, TransientError, show, store_error
from slurm_dispatch.s3.place import is_place
from slurm_dispatch.store.folders import tries
from slurm_dispatch.store.keep import keep
from slurm_dispatch.store.manifest import manifest_of, read_manifest, write_manifest
from slurm_dispatch.store.probe import probe
from slurm_dispatch.store.root import CheckpointRoot, open_root
from slurm_dispatch.store.saves import relative_save
from slurm_dispatch.store.sound import judge
from slurm_dispatch.store.view import FilesView
from slurm_dispatch.store.whole import Look, Proof, look
from slurm_dispatch.watch.keeping import Uploaded
from slurm_dispatch.watch.say import say

if TYPE_CHECKING:
    from slurm_dispatch.s3.root import S3Root

KEEP_WAITS_S = (0.0, 0.1, 0.3, 1.0, 3.0)
"""Waits before each try to keep a save: ``dispatch-watch`` may be keeping the same one."""
PAUSE_S = 0.2
"""Between two looks whether another process has uploaded the save."""


def own(
    root: CheckpointRoot | S3Root, attempt: str, path: str, *, directory: str | None = None, copy: bool = False
) -> bytes:
    """Make the whole save at ``path`` the execution's own; its path relative to the root, to be published.

    :param path: a path of this host; or, in a root in S3, the ``s3://...`` of what the saver wrote there itself.
    :param directory: where this host's processes of the execution save for a root in S3; ``None`` if nobody says.
    :param copy: in a folder: copy files of every size.
    :raises BadDataError: it is outside the execution's folder, missing, empty, torn, or still being written.
    :raises StoreError: the store; the same again is safe.
    """
    if isinstance(root, CheckpointRoot):
        return _in_folder(root, attempt, os.path.abspath(path), copy)
    if is_place(path):
        return _where_it_is(root, attempt, path)
    return _by_upload(root, attempt, os.path.abspath(path), directory)


def _in_folder(root: CheckpointRoot, attempt: str, path: str, copy: bool) -> bytes:
    relative = relative_save(root.raw, attempt, path)
    seen = look(os.path.join(root.raw, relative))
    if seen is not None and seen.torn is not None:
        raise BadDataError(f"save {show(path)} is not whole: {show(seen.torn or path)} is cut")
    if _links(root.path, attempt):
        return _kept(root, attempt, relative, seen, copy)
    if seen is not None and read_manifest(root, relative) is None:
        write_manifest(root, relative, manifest_of(seen, Proof.PROVED))
    return relative


def _kept(root: CheckpointRoot, attempt: str, relative: bytes, seen: Look | None, copy: bool) -> bytes:
    """The kept path of the save, whoever keeps it."""
    trouble: AbsentError | TransientError | None = None
    for _ in tries(KEEP_WAITS_S):
        try:
            kept = keep(root, attempt, relative, proof=Proof.PROVED, copy=copy, expected=seen)
        except (AbsentError, TransientError) as error:
            trouble = error  # dispatch-watch keeps the same save at this moment, or sweeps
            continue
        if kept is not None:
            return kept
        if look(os.path.join(root.raw, relative), read=False) is None:
            raise BadDataError(f"save {show(relative)} is not there")
    raise trouble or _written(show(relative))


@functools.lru_cache(maxsize=16)
def _links(root: str, attempt: str) -> bool:
    """Whether saves can be kept here: tried once by a process, and not at each save."""
    return probe(open_root(root), attempt).links


def _where_it_is(root: S3Root, attempt: str, path: str) -> bytes:
    from slurm_dispatch.s3.manifest import record
    from slurm_dispatch.s3.view import view_of

    relative = root.relative_save(attempt, path)
    root.check_save(relative, root.bucket.deadline())
    view = view_of(root, relative)
    try:
        torn = None if view is None else judge(view)
    except OSError as error:
        raise store_error(error, "reading in save", path) from error
    if torn is not None:
        raise BadDataError(f"save {show(path)} is not whole: {torn}")
    record(root, relative, Proof.PROVED)
    return relative


def _by_upload(root: S3Root, attempt: str, path: str, directory: str | None) -> bytes:
    from slurm_dispatch.s3.transfer import FILE_S, RATE_MIN

    if directory is not None and not os.path.realpath(path).startswith(os.path.join(os.path.realpath(directory), "")):
        raise BadDataError(
            f"save {show(path)} is outside {show(directory)}", hint="an execution publishes what it wrote itself"
        )
    seen = look(path)
    if seen is None:
        raise BadDataError(f"save {show(path)} is not there")
    try:
        # Where each host writes a part of a save, only this one's is here: its index names what is missing.
        torn = judge(FilesView(path, seen))
    except OSError as error:
        raise store_error(error, "reading in save", path) from error
    if torn is not None:
        raise BadDataError(f"save {show(path)} is not whole: {torn}")
    ends_at = time.monotonic() + FILE_S + seen.size / RATE_MIN
    while True:
        # One that hangs is waited for no longer than an upload may take: then this process uploads it, too.
        folder = directory if time.monotonic() < ends_at else None
        kept = Uploaded(root, attempt, folder, links=False, say=say).keep(path, seen, Proof.PROVED, copy=False)
        if kept is not None:
            return kept
        now = look(path, read=False)
        if now is None:
            raise BadDataError(f"save {show(path)} is not there")
        if now.entries != seen.entries:
            raise _written(show(path))
        time.sleep(PAUSE_S)  # another process of this host uploads it


def _written(name: str) -> BadDataError:
    return BadDataError(f"save {name} is still being written", hint="publish it when it is whole")


__all__ = ["own"]
