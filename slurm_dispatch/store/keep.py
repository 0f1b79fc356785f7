"""Making a whole save one's own, so that no rotation, of this run or an older one, takes it away."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slurm_dispatch.store.root import CheckpointRoot, Save
    from slurm_dispatch.store.whole import Proof

COPY_BELOW = 1 << 20
"""Bytes. Smaller files are copied, since savers rewrite those in place."""


def keep(
    root: CheckpointRoot, attempt: str, source: str | bytes, *, proof: Proof, copy: bool = False
) -> bytes | None:
    """Make ``exec/<attempt>/kept/<name of source>``, durable, and its manifest.

    :param source: relative to the root, or absolute; inside ``exec/<attempt>/``; a file or a folder.
    :param copy: copy files of every size, for savers that rewrite large ones in place.
    :returns: the kept path relative to the root, to be published; ``None`` if the source changed or went
        meanwhile (try again at the next scan). A name that is kept already is returned as it is.
    :raises BadDataError: links that leave the save, special files, a path too long to be published.
    :raises StoreError: the disk; nothing but a ``.tmp-`` name is left.
    """
    raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Taken:
    """A save that was taken for resuming: what it was, and the absolute path of the execution's own links."""

    save: Save
    path: str


def take(root: CheckpointRoot, attempt: str, *, copy: bool = False, fallback: bool = False) -> Taken | None:
    """Make ``exec/<attempt>/resume/<name>`` of the latest save; if it vanishes meanwhile, of the next latest.

    :returns: ``None`` if there is no publication.
    :raises BadDataError: as :meth:`CheckpointRoot.latest`.
    """
    raise NotImplementedError


def sweep_kept(root: CheckpointRoot, attempt: str) -> int:
    """Remove ``.tmp-`` leftovers of killed processes in ``kept/`` and ``resume/`` of this execution.

    Only for the one process that keeps saves in this execution. Returns how many went.
    """
    raise NotImplementedError
