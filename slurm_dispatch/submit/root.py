"""The checkpoint root when a job is submitted: made if it is not there, and free of other jobs."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from slurm_dispatch.anyroot import open_store
from slurm_dispatch.durable import sync_name
from slurm_dispatch.errors import CannotCreateError, DispatchError, StoreError, show
from slurm_dispatch.model.epoch import GENERATION_MAX
from slurm_dispatch.model.identity import new_attempt
from slurm_dispatch.s3.place import is_place
from slurm_dispatch.store.root import CheckpointRoot

if TYPE_CHECKING:
    from slurm_dispatch.anyroot import AnyRoot
    from slurm_dispatch.s3.root import S3Root


def prepare_root(path: str, *, adopt: bool) -> int:
    """The generation that a new job has in the root at ``path``: 0, or with ``adopt`` one above all in it.

    The last component of a folder's path is made if only that is missing; a store in S3 is proved to make one name
    once. The helper proves that again and claims the generation when the job runs, with the settings and credentials
    that are there: this look only says in good time what would fail then.

    :raises CannotCreateError: the root is another job's and ``adopt`` is false, its folder cannot be made, the store
        does not keep what the protocol needs, or there is no generation above those in it.
    :raises ConfigurationError: S3's client is not installed here, or its settings are wrong.
    :raises StoreError: it cannot be looked into.
    """
    remote = is_place(path)
    if not remote:
        _make(path)
    root = open_store(path)
    highest = root.highest().generation
    if highest >= 0 and not adopt:
        raise CannotCreateError(
            f"the checkpoint root {show(path)} belongs to {_owner(root, highest)} already",
            hint="give another root, or --adopt-root to go on from what is in it",
        )
    if highest >= GENERATION_MAX:
        raise CannotCreateError(f"the checkpoint root {show(path)} has generation {highest}, and none is above it")
    if not isinstance(root, CheckpointRoot):
        _prove(root)
    return highest + 1


def _prove(root: S3Root) -> None:
    """Try the store out in the folder of an execution that is nobody's, and leave nothing there."""
    attempt = new_attempt()
    try:
        root.prove(attempt)
    finally:
        with suppress(StoreError):  # an empty object that is nobody's
            root.bucket.remove(root.place.key("exec", attempt, ".dispatch", "proved"), root.bucket.deadline())


def _make(path: str) -> None:
    try:
        # Not os.makedirs: a filesystem that is not mounted here must not become a folder on this host's disk.
        os.mkdir(path)
    except FileExistsError:
        return  # if it is no folder, opening it says so
    except OSError as error:
        raise CannotCreateError(
            f"the checkpoint root {show(path)} cannot be made: {error.strerror}", hint="make it, or give another one"
        ) from error
    sync_name(path)  # what is published in it is not more durable than it is


def _owner(root: AnyRoot, generation: int) -> str:
    try:
        owner = root.owners().get(generation)
    except DispatchError:
        owner = None
    return "runs without a job" if owner is None else f"job {show(owner)}"
