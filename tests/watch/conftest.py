"""The scenes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.s3.fixtures import no_aws_files, stub
from tests.watch.remote import RemoteScene
from tests.watch.rig import Scene

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.s3.stub import Stub

__all__ = ["no_aws_files", "stub"]


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    """A root and a job; every helper that a test leaves is killed."""
    made = Scene(tmp_path)
    yield made
    made.close()


@pytest.fixture
def remote(tmp_path: Path, stub: Stub, no_aws_files: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[RemoteScene]:
    """A root in S3, on the stub."""
    made = RemoteScene(tmp_path, stub.environment(), monkeypatch)
    yield made
    made.close()
