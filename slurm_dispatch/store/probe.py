"""Whether a filesystem keeps what the protocol needs; asked once by an execution, in its own folder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slurm_dispatch.store.root import CheckpointRoot


@dataclass(frozen=True, slots=True)
class Probe:
    """What was found.

    :ivar links: hard links between two folders work; without them saves cannot be kept, and the saver's own
        path is published.
    :ivar folder_sync: folders can be synced.
    """

    links: bool
    folder_sync: bool


def probe(root: CheckpointRoot, attempt: str) -> Probe:
    """Try it in ``exec/<attempt>/.dispatch/``, which must be there. Leaves nothing behind.

    :raises CannotCreateError: the filesystem does not honour ``O_EXCL``, folds case, or is an object store
        behind FUSE; one line that says which.
    """
    raise NotImplementedError
