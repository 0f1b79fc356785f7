"""Servers and roots for the tests of S3."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from slurm_dispatch.anyroot import open_store
from slurm_dispatch.s3 import root as rooting
from slurm_dispatch.s3.root import S3Root
from tests.s3.fixtures import juice, no_aws_files, seaweed, shelf, stub
from tests.s3.stub import BUCKET

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.s3.stub import Stub

__all__ = ["juice", "no_aws_files", "seaweed", "shelf", "stub"]

Opener = "Callable[..., S3Root]"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fresh looks without the waits between them."""
    monkeypatch.setattr(rooting, "FRESH_WAITS_S", (0.0,) * len(rooting.FRESH_WAITS_S))


@pytest.fixture
def opened(stub: Stub, monkeypatch: pytest.MonkeyPatch, no_aws_files: None) -> Callable[..., S3Root]:
    """Opens the same root on the stub, as each process does for itself."""
    for name, value in stub.environment().items():
        monkeypatch.setenv(name, value)

    def again(path: str = f"s3://{BUCKET}/run", **more: object) -> S3Root:
        root = open_store(path, **{"timeout_s": 60.0, **more})  # type: ignore[arg-type]
        assert isinstance(root, S3Root)
        return root

    return again


@pytest.fixture
def root(opened: Callable[..., S3Root]) -> S3Root:
    """The root, opened once."""
    return opened()
