"""The stores under test: each test of the conformance suite runs over every one."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from slurm_dispatch.store import keep as keeping
from slurm_dispatch.store import root as rooting
from slurm_dispatch.store.root import CheckpointRoot, open_root
from tests.store.scene import fresh
from tests.store.scene import save as lay_save


@dataclass
class Store:
    """A root, and the hands that a framework has on it. One class a kind of store, with these same methods."""

    root: CheckpointRoot

    def again(self) -> CheckpointRoot:
        """The same root, opened as by another process."""
        return open_root(self.root.path)

    def save(self, attempt: str, name: str, content: bytes = b"weights") -> str:
        """What a framework writes into its execution's folder. Returns the path to publish."""
        return lay_save(self.root, attempt, name, content)

    def remove(self, path: str) -> None:
        """What a rotation does."""
        shutil.rmtree(path)

    def become(self, path: str, now: str) -> None:
        """Something else stands where a save was."""
        shutil.rmtree(path)
        if now == "emptied":
            os.mkdir(path)
        elif now == "a link":
            os.symlink("checkpoint-5", path)
        else:
            os.mkfifo(path)

    def plant(self, name: str) -> None:
        """Somebody puts a name among the publications."""
        pub = Path(self.root.path) / "pub"
        pub.mkdir(exist_ok=True)
        (pub / name).touch()

    def plant_owner(self, name: str, target: str) -> None:
        """Somebody claims a generation."""
        own = Path(self.root.path) / "own"
        own.mkdir(exist_ok=True)
        (own / name).symlink_to(target)


@pytest.fixture(params=["posix"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """An empty store of each kind."""
    assert request.param == "posix"
    return Store(fresh(tmp_path))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fresh looks without the waits between them: nothing here waits for another host's cache."""
    monkeypatch.setattr(rooting, "FRESH_WAITS_S", (0.0,) * len(rooting.FRESH_WAITS_S))
    monkeypatch.setattr(keeping, "TAKE_WAITS_S", (0.0,) * len(keeping.TAKE_WAITS_S))
