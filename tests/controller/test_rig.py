"""What the rig lays out comes whole: loops and ticks of the tests work on the site meanwhile."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from tests.controller.rig import Rig
from tests.controller.sites import Site, make_site

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def site() -> Iterator[Site]:
    yield from make_site()


def there(rig: Rig) -> list[str]:
    """The names in ``jobs/`` and ``notes/``."""
    return sorted(os.listdir(os.path.join(rig.path, "jobs"))) + rig.notes()


def test_nothing_is_seen_before_the_end_of_the_block(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    with rig.at_once():
        key = rig.job()
        rig.start(key)
        assert rig.kinds(key) == ["spec", "intent", "submitted"]
        assert there(rig) == []
    assert there(rig)[0] == key
    assert [name.partition(".")[0] for name in rig.notes()] == ["start"]
    assert rig.kinds(key) == ["spec", "intent", "submitted"]
    rig.end_note(key)
    assert [name.partition(".")[0] for name in rig.notes()] == ["end", "start"]


def test_what_a_block_that_fails_has_made_is_not_seen(tmp_path: Path) -> None:
    rig = Rig(tmp_path)

    def fails() -> None:
        with rig.at_once():
            rig.start(rig.job())
            raise KeyError

    with pytest.raises(KeyError):
        fails()
    assert there(rig) == []


def test_it_belongs_to_whom_it_must_when_it_comes(site: Site) -> None:
    key = site.preempted()
    record = site.rig.record(key)
    owners = {os.stat(path).st_uid for path in (record.folder, record.facts_folder, record._path(3))}
    assert owners == {site.rig.uid}
    notes = os.path.join(site.rig.path, "notes")
    for name in site.rig.notes():
        assert os.stat(os.path.join(notes, name)).st_uid == os.stat(notes).st_uid
        with open(os.path.join(notes, name), encoding="utf-8") as file:
            assert json.load(file)["job"] == key
