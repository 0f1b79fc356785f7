"""kill -9 at every call of prepare, keep and publish that changes something: nothing torn, nothing twice."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from slurm_dispatch.store.root import open_root
from tests.kill import Run, kill_at_every_call
from tests.watch.rig import JOB, REPOSITORY

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kill import Point

PROGRAM = str(REPOSITORY / "tests" / "watch" / "publish_once.py")
LARGE = b"w" * (2 << 20)


def scene(folder: Path) -> Run:
    """A root with a lower execution's publication, and a whole save of this one."""
    root = folder / "root"
    root.mkdir()
    opened = open_root(str(root))
    opened.claim(JOB, 0)
    old = os.path.join(opened.make_execution("old"), "checkpoint-7")
    os.mkdir(old)
    _write(old)
    opened.publish(10**6, 7, old, attempt="old")
    save = os.path.join(opened.make_execution("new"), "checkpoint-10")
    os.mkdir(save)
    _write(save)
    return again(folder)


def again(folder: Path) -> Run:
    return Run(
        [sys.executable, PROGRAM],
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(REPOSITORY),
            "DISPATCH_JOB": JOB,
            "DISPATCH_EPOCH": "2000000",
            "DISPATCH_ATTEMPT": "new",
            "DISPATCH_CHECKPOINT": str(folder / "root"),
        },
    )


def _write(save: str) -> None:
    for name, content in (("weights", LARGE), ("state", b"s"), ("done", b"1")):
        with open(os.path.join(save, name), "wb") as file:
            file.write(content)


def _whole(path: str) -> None:
    with open(os.path.join(path, "weights"), "rb") as file:
        assert file.read() == LARGE
    assert sorted(os.listdir(path)) == ["done", "state", "weights"]


def check(folder: Path, point: Point) -> None:
    """Whatever is published is whole, and the latest is the old save or the new one."""
    root = open_root(str(folder / "root"))
    published = root.listing()
    assert [one.step for one in published] in ([7], [10, 7]), published
    latest = root.latest()
    assert latest is not None
    _whole(latest.path)


def finished(folder: Path) -> None:
    root = open_root(str(folder / "root"))
    assert [(one.epoch, one.step) for one in root.listing()] == [(2 * 10**6, 10), (10**6, 7)]
    latest = root.latest()
    assert latest is not None
    _whole(latest.path)
    kept = folder / "root" / "exec" / "new" / "kept"
    assert os.listdir(kept) == ["checkpoint-10"]


def test_kill_at_every_call(tmp_path: Path) -> None:
    points = kill_at_every_call(tmp_path, scene, check=check, finished=finished, again=again, least=20)
    assert {point.call for point in points} >= {"mkdir", "linkat", "fsync", "rename", "exit_group"}, sorted(
        {point.call for point in points}
    )
