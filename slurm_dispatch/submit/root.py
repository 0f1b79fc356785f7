"""The checkpoint root when a job is submitted: made if it is not there, and free of other jobs."""

from __future__ import annotations

import os

from slurm_dispatch.durable import sync_name
from slurm_dispatch.errors import CannotCreateError, show
from slurm_dispatch.model.epoch import GENERATION_MAX
from slurm_dispatch.store.root import open_root


def prepare_root(path: str, *, adopt: bool) -> int:
    """The generation that a new job has in the root at ``path``: 0, or with ``adopt`` one above all in it.

    The last component of the path is made if only that is missing. The helper claims the generation when the
    job runs; this look only says in good time what would fail then.

    :raises CannotCreateError: the root is another job's and ``adopt`` is false, its folder cannot be made, or
        there is no generation above those in it.
    :raises StoreError: it cannot be looked into.
    """
    _make(path)
    highest = open_root(path).highest().generation
    if highest < 0:
        return 0
    if not adopt:
        owner = _owner(path, highest)
        raise CannotCreateError(
            f"the checkpoint root {show(path)} belongs to {owner} already",
            hint="give another root, or --adopt-root to go on from what is in it",
        )
    if highest >= GENERATION_MAX:
        raise CannotCreateError(f"the checkpoint root {show(path)} has generation {highest}, and none is above it")
    return highest + 1


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


def _owner(path: str, generation: int) -> str:
    try:
        return f"job {show(os.readlink(os.path.join(path, 'own', str(generation))))}"
    except OSError:
        return "runs without a job"
