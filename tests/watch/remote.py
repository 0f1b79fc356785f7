"""A scene for the helper with a root in S3: the stub in this process, and a folder that stands for a host's disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurm_dispatch.anyroot import open_store
from slurm_dispatch.s3.root import S3Root
from tests.s3.stub import BUCKET
from tests.watch.rig import Scene, until

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import pytest

    from slurm_dispatch.model.publication import Publication
    from tests.watch.rig import Helper


class RemoteScene(Scene):
    """One root in S3; the helpers find it by the variables of ``store``.

    :ivar disk: what ``--from`` names.
    """

    def __init__(
        self,
        folder: Path,
        store: Mapping[str, str],
        monkeypatch: pytest.MonkeyPatch,
        prefix: str = "run",
        bucket: str = BUCKET,
    ) -> None:
        super().__init__(folder)
        self.place = f"s3://{bucket}/{prefix}"
        self.disk = folder / "disk"
        for name, value in store.items():
            monkeypatch.setenv(name, value)

    def environment(self, number: int = 1, **more: str) -> dict[str, str]:
        return super().environment(number, **{"DISPATCH_CHECKPOINT": self.place, **more})

    def train(
        self, script: str, *options: str, number: int = 1, environment: Mapping[str, str] | None = None
    ) -> Helper:
        options = ("--from", str(self.disk), *(options or ("--done", "done")))
        return super().train(script, *options, number=number, environment=environment)

    @property
    def opened(self) -> S3Root:
        root = open_store(self.place, timeout_s=60.0)
        assert isinstance(root, S3Root)
        return root

    def publications(self) -> list[Publication]:
        return self.opened.listing()

    def published(self) -> list[tuple[int, int]]:
        return [(one.epoch // 10**6, one.step) for one in self.publications()]

    def until_published(self, number: int, step: int) -> None:
        until(lambda: (number, step) in self.published(), f"step {step} of execution {number}")

    def local(self, number: int = 1) -> Path:
        """The folder that execution ``number`` saves into."""
        return self.disk / f"attempt{number}"
