"""A desk for each test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.people.desk import Desk, make_desk

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    yield from make_desk(monkeypatch, 'longest_hold_s = "10d"')
