"""Troubles of a scan, and what is told all the same."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from slurm_dispatch.errors import AmbiguousError
from slurm_dispatch.store.root import open_root
from slurm_dispatch.watch import publish, scanner
from slurm_dispatch.watch.options import parse
from slurm_dispatch.watch.place import Place
from slurm_dispatch.watch.publish import Publisher
from slurm_dispatch.watch.scanner import Serving
from tests.watch.rig import JOB


def test_what_only_might_match_is_not_thinned(tmp_path: Path) -> None:
    """A name whose step is not certain is never published, so it is no save of an older execution either."""
    root = open_root(str(tmp_path))
    log = Path(root.make_execution("old")) / "events.1703.0"
    log.write_text("log")
    old = log.with_name("step-5")
    old.write_text("w")
    root.publish(1000000, 5, str(old), attempt="old")
    folder = Path(root.make_execution("att"))
    publisher = Publisher(
        root, Place(str(tmp_path), JOB, 2000000, "att"),
        parse(["--pattern", "*{step}*", "--settle", "0", "--keep", "1,1", "--", "x"]), resumed_step=5,
    )  # fmt: skip
    publisher.begin()
    for step in (6, 7):
        (folder / f"step-{step}").write_text("w")
        publisher.scan(assume=True)
        assert publisher.scan(assume=True).published == [step]
    assert not old.exists()
    assert log.exists()


def test_what_was_published_is_told_though_the_scan_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Budgets are refunded by it: the first of two saves is published, the second meets an error, thinning too."""
    root = open_root(str(tmp_path))
    folder = Path(root.make_execution("att"))
    for step in (10, 20):
        (folder / f"checkpoint-{step}").mkdir()
        (folder / f"checkpoint-{step}" / "done").write_text("w")
    publisher = Publisher(
        root, Place(str(tmp_path), JOB, 1000000, "att"), parse(["--done", "done", "--", "x"]), resumed_step=None
    )
    publisher.begin()
    real = root.publish

    def failing(epoch: int, step: int, path: bytes, **more: Any) -> Any:
        if step == 20:
            raise AmbiguousError("publishing: Input/output error")
        return real(epoch, step, path, **more)

    def no_thinning(*_: object, **__: object) -> None:
        raise AmbiguousError("listing: Input/output error")

    monkeypatch.setattr(publish, "thin", no_thinning)
    with monkeypatch.context() as patch:
        patch.setattr(root, "publish", failing)
        with pytest.raises(AmbiguousError):
            publisher.scan(assume=True)
    assert publisher.scan(assume=True).published == [10, 20]
    assert publisher.scan(assume=True).published == []


def test_the_last_scan_of_a_slow_filesystem_lets_a_save_settle(tmp_path: Path) -> None:
    """Each look takes longer than the whole wait; the command has ended with 0, and its last save is published."""
    root = open_root(str(tmp_path))
    save = Path(root.make_execution("att")) / "checkpoint-10"
    save.mkdir()
    (save / "weights").write_text("w")
    now = 0.0

    def slow() -> float:
        nonlocal now
        now += 100.0
        return now

    publisher = Publisher(
        root, Place(str(tmp_path), JOB, 1000000, "att"), parse(["--settle", "0.01", "--", "x"]), resumed_step=None,
        clock=slow,
    )  # fmt: skip
    control, events = os.pipe(), os.pipe()
    try:
        os.write(control[1], b"assume\nlast\n")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(scanner, "LAST_PAUSE_S", -1000.0)
            Serving(publisher, control[0], events[1]).run()
    finally:
        for descriptor in (*control, *events):
            os.close(descriptor)
    assert [one.step for one in root.listing()] == [10]


def test_saves_that_went_unpublished_are_forgotten(tmp_path: Path) -> None:
    """A rotation that is faster than --settle, for weeks: what is remembered does not grow."""
    root = open_root(str(tmp_path))
    folder = Path(root.make_execution("att"))
    publisher = Publisher(root, Place(str(tmp_path), JOB, 1000000, "att"), parse(["--", "x"]), resumed_step=None)
    publisher.begin()
    for step in range(20):
        path = folder / f"checkpoint-{step}"
        path.write_text("w")
        publisher.scan(assume=True)
        path.unlink()
    assert len(publisher._settling._seen) == 1
