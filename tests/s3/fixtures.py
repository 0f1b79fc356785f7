"""Servers for the tests of S3 and for the conformance suite."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from tests.s3.servers import Juice, Seaweed
from tests.s3.shelf import Shelf, put_in_place
from tests.s3.stub import Stub

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def no_aws_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No settings of whoever runs the tests."""
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "no-credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "no-config"))
    for name in ("AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def stub() -> Iterator[Stub]:
    """A stub of its own for each test."""
    with Stub() as one:
        yield one


@pytest.fixture
def shelf(monkeypatch: pytest.MonkeyPatch, no_aws_files: None) -> Shelf:
    """A store in memory in the place of the client, with three keys in a page."""
    shelf = Shelf(page=3)
    put_in_place(monkeypatch, lambda: shelf)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    return shelf


@pytest.fixture(scope="session")
def seaweed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seaweed]:
    """A running SeaweedFS for all tests of this process; each has a prefix of its own."""
    server = Seaweed(tmp_path_factory.mktemp("seaweed"))
    server.start()
    yield server
    server.stop(signal.SIGKILL)  # nothing of it is wanted any more


@pytest.fixture(scope="session")
def juice(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Juice]:
    """A running gateway of JuiceFS."""
    server = Juice(tmp_path_factory.mktemp("juice"))
    server.start()
    yield server
    server.stop(signal.SIGKILL)  # nothing of it is wanted any more
