"""The scene."""

from __future__ import annotations


import pytest

from tests.watch.rig import Scene
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path
    from collections.abc import Iterator


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    """A root and a job; every helper that a test leaves is killed."""
    made = Scene(tmp_path)
    yield made
    made.close()
