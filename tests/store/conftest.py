"""The stores under test: each test of the conformance suite runs over every one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from slurm_dispatch.s3 import root as s3_rooting
from slurm_dispatch.store import keep as keeping
from slurm_dispatch.store import root as rooting
from tests.s3.fixtures import no_aws_files, seaweed, shelf, stub
from tests.store import kinds

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["no_aws_files", "seaweed", "shelf", "stub"]


@pytest.fixture(params=list(kinds.here()))
def store(request: pytest.FixtureRequest) -> kinds.Store:
    """An empty store of each kind."""
    return kinds.here()[request.param](request)


@pytest.fixture(scope="session")
def ext4_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder on ext4."""
    yield from kinds.ext4(tmp_path_factory.mktemp("ext4"))


@pytest.fixture(scope="session")
def tmpfs_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder on tmpfs."""
    yield from kinds.tmpfs(tmp_path_factory.mktemp("tmpfs"))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fresh looks without the waits between them: nothing here waits for another host's cache, on NFS neither."""
    for module in (rooting, s3_rooting):
        monkeypatch.setattr(module, "FRESH_WAITS_S", (0.0,) * len(rooting.FRESH_WAITS_S))
    monkeypatch.setattr(keeping, "TAKE_WAITS_S", (0.0,) * len(keeping.TAKE_WAITS_S))
