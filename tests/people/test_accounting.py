"""A site that has no accounting is not asked for it by what a person runs either."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.people.desk import Desk, make_desk

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    yield from make_desk(monkeypatch, "accounting = false")


def test_a_cancel_does_not_wait_for_accounting_that_the_site_has_switched_off(desk: Desk) -> None:
    """Slurm's configuration names a slurmdbd that nobody runs any more."""
    key = desk.job()
    desk.slurm.forget(desk.rig.object(key))
    desk.slurm.knob(accounting="away")
    before = len(desk.slurm.calls("accounting"))
    assert "is closed: cancelled" in desk.ok("cancel", key, "--wait", "0")
    assert len(desk.slurm.calls("accounting")) == before
