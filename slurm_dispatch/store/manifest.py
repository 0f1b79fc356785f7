"""What a kept save was when it was kept, and how it was known to be whole: ``.dispatch/save-<name>``."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slurm_dispatch.model.publication import Publication
    from slurm_dispatch.store.root import CheckpointRoot
    from slurm_dispatch.store.whole import Look, Proof


class SaveState(str, Enum):
    """What ``dispatch ls`` says of a publication's save."""

    PROVED = "proved"
    ASSUMED = "assumed"
    GONE = "gone"
    CHANGED = "changed"
    UNRECORDED = "unrecorded"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Manifest:
    """Proof, number of files, bytes, and a digest of names, sizes and mtimes."""

    proof: Proof
    files: int
    size: int
    digest: str


def manifest_of(seen: Look, proof: Proof) -> Manifest:
    """The manifest of a look."""
    raise NotImplementedError


def write_manifest(root: CheckpointRoot, path: bytes, manifest: Manifest) -> None:
    """Leave it for the save at ``path`` (relative to the root, in an execution's folder)."""
    raise NotImplementedError


def state_of(root: CheckpointRoot, publication: Publication) -> SaveState:
    """The save as it is now, against its manifest."""
    raise NotImplementedError
