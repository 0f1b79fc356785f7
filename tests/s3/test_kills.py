"""kill -9 at every request, before it is sent and after it is done: who does the same again comes to the same end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from slurm_dispatch.anyroot import open_store
from slurm_dispatch.s3 import deadline, transfer
from slurm_dispatch.s3.manifest import state_of
from slurm_dispatch.s3.root import S3Root
from slurm_dispatch.store.gc import Known, Rules, Standing, plan
from slurm_dispatch.store.manifest import SaveState
from slurm_dispatch.store.outranked import remove_all
from slurm_dispatch.store.thin import thin
from slurm_dispatch.store.whole import Proof, look
from slurm_dispatch.watch.keeping import Uploaded
from tests.controller.schedule import Killed
from tests.s3.scene import NEW, OLD, SECOND
from tests.s3.stub import BUCKET
from tests.s3.test_keeping import kept
from tests.s3.world import lay

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.s3.shelf import Shelf


def opened() -> S3Root:
    """The root, as each process opens it for itself."""
    root = open_store(f"s3://{BUCKET}/run")
    assert isinstance(root, S3Root)
    return root


class Count:
    """A gate that counts requests, and kills at one of them.

    :param at: the number of the request; before it is sent if it is even, when it is done if it is odd.
    """

    def __init__(self, at: int = -1) -> None:
        self.requests = 0
        self._at = at

    def __call__(self, verb: str, key: str, act: Callable[[], Any]) -> Any:
        """The next request."""
        number, self.requests = self.requests, self.requests + 1
        if number == self._at // 2 and self._at >= 0 and self._at % 2 == 0:
            raise Killed
        result = act()
        if number == self._at // 2 and self._at >= 0:
            raise Killed
        return result


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests one after the other: their order is the same in each run."""
    monkeypatch.setattr(deadline.Deadline, "call", lambda _, act: act())
    monkeypatch.setattr(transfer, "_all", lambda acts, meter: [meter.add(*act()) for act in acts])


def at_each(shelf: Shelf, act: Callable[[], None], check: Callable[[], None]) -> int:
    """Kill ``act`` at each of its requests, check, and let it end; returns at how many.

    :param shelf: as it is before.
    :param check: what must hold at any moment.
    """
    before = dict(shelf.objects)
    shelf.gate = count = Count()
    act()
    end = dict(shelf.objects)
    for at in range(2 * count.requests):
        shelf.objects = dict(before)
        shelf.gate = Count(at)
        try:
            act()
        except Killed:
            pass
        shelf.gate = Count()
        check()
        act()
        check()
        assert shelf.objects == end, f"killed at {at / 2:g} of {count.requests} requests"
    return count.requests


def check_latest(step: int) -> Callable[[], None]:
    """What latest names is there and whole, and of this step at least."""

    def check() -> None:
        root = opened()
        save = root.latest()
        assert save is not None
        assert save.publication.step >= step
        assert state_of(root, save.publication) is SaveState.PROVED

    return check


def test_gc_at_every_request(shelf: Shelf) -> None:
    root = opened()
    kept(root, 1)
    kept(root, 2)
    kept(root, 4, epoch=SECOND, attempt=NEW)

    def collect() -> None:
        root = opened()
        found = plan(root, Rules(1), lambda _: Known(Standing.OVER, "the test"))
        assert remove_all(root, found.paths)[1] == ()

    assert at_each(shelf, collect, check_latest(4)) > 40
    assert {key.split("/")[4] for key in shelf.objects if "/kept/" in key} == {"checkpoint-4"}


def test_a_helper_at_every_request(shelf: Shelf, tmp_path: Path) -> None:
    """It uploads, publishes and thins; what the next one finds half done it ends."""
    for step in (5,):
        lay(str(tmp_path / f"checkpoint-{step}"), f"step {step}")

    kept(opened(), 2)
    kept(opened(), 3, epoch=SECOND, attempt=NEW)

    def work() -> None:
        root = opened()
        keeping = Uploaded(root, NEW, str(tmp_path), say=lambda _: None)
        published = {one.step for one in root.listing()}
        for step in sorted({5} - published):
            path = str(tmp_path / f"checkpoint-{step}")
            seen = look(path)
            assert seen is not None
            relative = keeping.keep(path, seen, Proof.PROVED, copy=False)
            assert relative is not None
            root.publish(SECOND, step, relative, attempt=NEW)
        assert thin(root, NEW, epoch=SECOND, keep_own=1, keep_root=1).trouble == ()

    assert at_each(shelf, work, check_latest(3)) > 50
    assert {key.split("/")[4] for key in shelf.objects if "/kept/" in key} == {"checkpoint-5"}
    assert not any(f"{OLD}/kept" in key for key in shelf.objects)
