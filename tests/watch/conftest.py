"""The scene."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.watch.rig import Scene

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    """A root and a job; every helper that a test leaves is killed."""
    made = Scene(tmp_path)
    yield made
    made.close()
