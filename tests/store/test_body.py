"""What stands in a root as JSON and is none, or is of another version, is bad data and names its place."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from slurm_dispatch.errors import BadDataError, CorruptError
from slurm_dispatch.store.best import read_best
from slurm_dispatch.store.choice import read_choice
from slurm_dispatch.store.manifest import read_manifest
from tests.store.scene import OLD, fresh

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurm_dispatch.store.root import CheckpointRoot

READERS: dict[str, Callable[[CheckpointRoot], object]] = {
    "choice": lambda root: read_choice(root, OLD),
    "best": lambda root: read_best(root, OLD),
    "save-checkpoint-5": lambda root: read_manifest(root, f"exec/{OLD}/kept/checkpoint-5".encode()),
}


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b'{"v": 2}', b'{"v": 1}', b"\xff", b"[" * 60_000])
@pytest.mark.parametrize("name", READERS)
def test_what_is_no_object_of_ours(tmp_path: Path, name: str, text: bytes) -> None:
    root = fresh(tmp_path)
    folder = os.path.join(root.make_execution(OLD), ".dispatch")
    Path(folder, name).write_bytes(text)
    with pytest.raises((BadDataError, CorruptError), match="does not parse"):
        READERS[name](root)
