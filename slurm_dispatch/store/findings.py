"""What a filesystem was proved to do, for ``dispatch doctor``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from slurm_dispatch.errors import CannotCreateError, show, store_error
from slurm_dispatch.store import probe as probing
from slurm_dispatch.store.roots import Answer, Finding
from slurm_dispatch.store.saves import longest_path

if TYPE_CHECKING:
    from slurm_dispatch.store.root import CheckpointRoot


def findings(root: CheckpointRoot, attempt: str) -> list[Finding]:
    """Try the filesystem out in the folder of ``attempt``, which must be nobody's, and remove that folder again.

    :raises StoreError: it could not be tried.
    """
    kind, options = probing.mount_of(os.path.realpath(root.raw), probing.MOUNTS)
    versions = sorted(word for word in options if word.startswith("vers="))
    what = " ".join([kind or "of unknown type", *versions])
    found = [Finding("filesystem", Answer.ASSUMED, what)]
    executions = os.path.join(root.path, "exec")
    was_there = os.path.isdir(executions)
    folder = root.make_execution(attempt)
    try:
        found += _tried(root, attempt)
    finally:
        _remove(os.path.join(folder, ".dispatch"), folder, *([] if was_there else [executions]))
    limit = root.name_max()
    carried = f"{limit} bytes: paths of saves of {longest_path(limit)} bytes at most"
    found.append(Finding("names", Answer.PROVED, carried))
    return found


def _tried(root: CheckpointRoot, attempt: str) -> list[Finding]:
    try:
        probed = probing.probe(root, attempt)
    except CannotCreateError as error:
        return [Finding("one name once", Answer.REFUSED, str(error))]
    found = [Finding("one name once", Answer.PROVED, "a second exclusive create of a name was refused")]
    found.append(
        Finding("hard links", Answer.PROVED, "saves are kept by links")
        if probed.links
        else Finding("hard links", Answer.LACKING, "saves cannot be kept; the saver's own paths are published")
    )
    found.append(
        Finding("folders synced", Answer.PROVED, "a publication that was returned outlives a power loss")
        if probed.folder_sync
        else Finding("folders synced", Answer.LACKING, "after a power loss a publication may be missing")
    )
    return found


def _remove(*folders: str) -> None:
    for folder in folders:
        try:
            os.rmdir(folder)
        except OSError as error:
            if os.path.isdir(folder) and not os.listdir(folder):
                raise store_error(error, "removing", show(folder)) from error
