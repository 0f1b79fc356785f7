"""The scene of every test of submission."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.submit.scene import Scene

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def scene() -> Iterator[Scene]:
    """A user's host with stand-ins for Slurm's commands."""
    with Scene() as made:
        yield made
