"""Two clients of one server of NFS, in the second kernel; without them the tests of two mounts are not looked at."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from slurm_dispatch.store import root as rooting
from slurm_dispatch.store.root import CheckpointRoot, open_root
from tests.store.kinds import NFS_MOUNTS

collect_ignore = [] if NFS_MOUNTS in os.environ else ["test_two_mounts.py"]


@dataclass(frozen=True)
class Two:
    """One root as two hosts see it.

    :ivar a: where it was made.
    :ivar b: on the other host.
    """

    a: CheckpointRoot
    b: CheckpointRoot

    def on_b(self, path: str | bytes) -> str:
        """What a path below ``a`` is called on the other host."""
        relative = os.path.relpath(os.fsdecode(path), self.a.path)
        return os.path.join(self.b.path, relative)


@pytest.fixture
def two(tmp_path: Path) -> Two:
    """An empty root, opened through both mounts."""
    here, there = (Path(mount) / tmp_path.name for mount in os.environ[NFS_MOUNTS].split(":"))
    here.mkdir()
    return Two(open_root(str(here)), open_root(str(there)))


@pytest.fixture
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fresh looks without the waits between them: what is seen is not seen because a cache forgot meanwhile."""
    monkeypatch.setattr(rooting, "FRESH_WAITS_S", (0.0,) * len(rooting.FRESH_WAITS_S))


@pytest.fixture
def remembers() -> bool:
    """Whether the second mount remembers for 30 s that a name was absent."""
    return "lookupcache=none" not in os.environ["NFS_OPTIONS"]
