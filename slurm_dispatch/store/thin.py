"""Thinning: removing saves that can never be latest again, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurm_dispatch.store.root import CheckpointRoot

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
    ``keep_own`` kept saves of this execution. Go, of executions whose epoch is known to be lower: published
    saves, ``kept/``, ``resume/``, temporary names, and top-level names for which ``is_save(name)`` is true
    (the job's ``--pattern``). Of this execution: older names in ``kept/``, and ``resume/``. Never anything else, never
    through a link.
    """
    raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Bound:
    """The most that stays in a root at any time: saves, bytes, inodes."""

    saves: int
    size: int
    inodes: int


def bound(
    save_size: int, save_files: int, *, own_saves: int = 1, keep_own: int = KEEP_OWN, keep_root: int = KEEP_ROOT
) -> Bound:
    """The bound for the plan.

    :param save_size: bytes of one save.
    :param save_files: files and folders of one save.
    :param own_saves: how many saves the training itself leaves in place (its own rotation).
    """
    raise NotImplementedError
