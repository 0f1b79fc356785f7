"""The site's limit on open jobs counts for every way by which a job is opened."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.people.desk import Desk, make_desk

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    yield from make_desk(monkeypatch, "[[limit]]", "open_jobs = 1")


def expired(desk: Desk) -> str:
    key = desk.held(name="b")
    desk.add(key, "closed", why="hold_expired", reason="nobody released it")
    return key


@pytest.mark.parametrize("verb", ["reopen", "supersede", "release"])
def test_a_closed_job_is_not_opened_beyond_it(desk: Desk, verb: str) -> None:
    key = expired(desk) if verb == "release" else desk.closed(name="b")
    other = desk.running()
    before, keys = desk.rig.kinds(key), desk.keys()
    words = (verb, key, "--reason", "x")
    line = desk.refused(77, *words)
    assert "1 open jobs, and the site's limit 1 allows 1" in line
    assert "1 open jobs" in desk.refused(77, *words, by_root=True)
    assert (desk.rig.kinds(key), desk.keys()) == (before, keys)
    desk.ended(other, "COMPLETED")
    desk.ok(*words)
    assert sum(desk.phase(each) != "closed" for each in sorted(desk.keys())) == 1


def test_what_opens_nothing_is_not_counted(desk: Desk) -> None:
    """An open job is superseded by one, and one that is held is let go."""
    key = desk.held()
    desk.ok("release", key, "--reason", "x")
    desk.ok("supersede", key)
    assert sorted(desk.phase(each) for each in sorted(desk.keys())) == ["closed", "queued"]
