"""What is looked at between two scans, and that a save is published long before the next one is due."""

from __future__ import annotations

import os
import select
from typing import TYPE_CHECKING

import pytest

from slurm_dispatch.watch.glance import (
    GLANCE_S,
    LIVELY_S,
    PACE,
    PACE_LATER,
    RECENT_S,
    REMOTE_LIVELY_S,
    REMOTE_S,
    Glances,
    Marks,
    Pace,
    Rest,
)
from slurm_dispatch.watch.options import parse
from slurm_dispatch.watch.place import Place
from slurm_dispatch.watch.publish import GLANCED_MAX, Publisher
from slurm_dispatch.watch.single import SinglePublisher
from slurm_dispatch.watch.tree import DISK
from tests.store.scene import FIRST, OLD, fresh

if TYPE_CHECKING:
    from pathlib import Path

    from slurm_dispatch.store.root import CheckpointRoot
    from tests.watch.rig import Scene


@pytest.fixture
def root(tmp_path: Path) -> CheckpointRoot:
    return fresh(tmp_path)


def publisher(root: CheckpointRoot, *words: str) -> Publisher:
    options = parse([*words, "--", "x"])
    made = Publisher(root, Place(root.path, "k" * 12, FIRST, OLD), options, resumed_step=None)
    made.begin()
    return made


def write(*parts: str, text: str = "x") -> str:
    path = os.path.join(*parts)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="ascii") as file:
        file.write(text)
    return path


@pytest.mark.parametrize("words", [("--done", "done"), ("--layout", "megatron"), ()], ids=str)
def test_a_new_name_is_seen_and_nothing_else(root: CheckpointRoot, words: tuple[str, ...]) -> None:
    folder = root.make_execution(OLD)
    os.mkdir(os.path.join(folder, "checkpoints"))
    one = publisher(root, *words)
    one.scan(assume=False)
    assert one.marks.folders
    assert not one.marks.changed(DISK)
    write(folder, ".dispatch", "note")
    assert not one.marks.changed(DISK)
    inner = "checkpoints/iter_0000005" if "megatron" in words else "checkpoint-5"
    write(folder, inner, "weights")
    assert one.marks.changed(DISK)


def test_a_save_that_is_not_whole_is_seen_to_grow(root: CheckpointRoot) -> None:
    """Also by a write into a file far below, which no folder tells of."""
    folder = root.make_execution(OLD)
    os.mkdir(os.path.join(folder, "kept"))
    path = write(folder, "checkpoint-5", "a", "b", "weights")
    one = publisher(root, "--done", "done")
    one.scan(assume=False)
    assert not one.marks.changed(DISK)
    with open(path, "a", encoding="ascii") as file:
        file.write("more")
    assert one.marks.changed(DISK)
    one.scan(assume=False)
    write(folder, "checkpoint-5", "done")
    assert one.marks.changed(DISK)
    assert one.scan(assume=False).published == [5]
    assert one.marks.saves == ()
    assert not one.marks.changed(DISK)


def test_only_the_newest_are_glanced_at(root: CheckpointRoot) -> None:
    folder = root.make_execution(OLD)
    for step in range(1, GLANCED_MAX + 4):
        write(folder, f"checkpoint-{step}", "weights")
    one = publisher(root, "--done", "done")
    one.scan(assume=False)
    assert [os.path.basename(path) for path, _ in one.marks.saves] == [
        f"checkpoint-{step}" for step in range(4, GLANCED_MAX + 4)
    ]


def test_what_cannot_be_asked_is_left_to_the_scan(root: CheckpointRoot, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = root.make_execution(OLD)
    one = publisher(root)
    one.scan(assume=False)

    def fails(path: str) -> object:
        raise OSError(5, "Input/output error", path)

    monkeypatch.setattr(DISK, "stamp", fails)
    write(folder, "checkpoint-5", "weights")
    assert not one.marks.changed(DISK)


def test_scans_follow_a_change() -> None:
    pace = Pace(remote=False)
    first, second = Marks((("/a", 1),)), Marks((("/a", 2),))
    assert pace.after(first, 0.0, cost_s=0.0) == Rest(GLANCE_S, False, PACE_LATER)
    assert pace.after(first, 9.0, cost_s=0.0) == Rest(GLANCE_S, False, PACE_LATER)
    assert pace.after(second, 10.0, cost_s=0.0) == Rest(GLANCE_S, True, PACE)
    assert pace.after(second, 10 + LIVELY_S / 2, cost_s=1.0) == Rest(PACE * 1.0, True, PACE)
    assert pace.after(second, 10 + LIVELY_S, cost_s=0.0) == Rest(GLANCE_S, False, PACE)
    assert pace.after(second, 10 + RECENT_S, cost_s=0.0) == Rest(GLANCE_S, False, PACE_LATER)


def test_in_a_store_scans_follow_while_a_save_is_made() -> None:
    pace = Pace(remote=True)
    pace.after(Marks(), 0.0, cost_s=0.0)
    grown = Marks(saves=(("s3://b/r/exec/a/checkpoint-5", ()),))
    assert pace.after(grown, 10.0, cost_s=0.0).lively
    assert pace.after(grown, 9.9 + REMOTE_LIVELY_S, cost_s=0.0) == Rest(REMOTE_S, True, PACE)
    assert not pace.after(grown, 10.0 + REMOTE_LIVELY_S, cost_s=0.0).lively


def test_the_thread_tells_once_and_forgets(tmp_path: Path) -> None:
    path = str(tmp_path)
    glances = Glances(DISK)
    try:
        glances.begin(Marks(((path, None),)), Rest(0.01, False, PACE))
        assert select.select([glances.descriptor], [], [], 60)[0]
        glances.end()
        assert not select.select([glances.descriptor], [], [], 0)[0]
        glances.begin(Marks(((path, DISK.stamp(path)),)), Rest(0.01, False, PACE))
        write(path, "new")
        assert select.select([glances.descriptor], [], [], 60)[0]
    finally:
        glances.close()


def test_a_save_is_published_long_before_the_next_scan_is_due(scene: Scene) -> None:
    """The command waits until its save is published: no last scan comes before that."""
    helper = scene.train("wait begin save 10 wait one save 20 wait two exit 0", "--done", "done", "--interval", "1h")
    helper.until_said("a first start")
    scene.open("begin")
    helper.until_said("published step 10")
    scene.open("one")
    helper.until_said("published step 20")
    scene.open("two")
    assert helper.end() == 0, helper.said


def test_one_file_is_seen_to_be_written_again(root: CheckpointRoot) -> None:
    folder = root.make_execution(OLD)
    options = parse(["--single", "last.pt", "--", "x"])
    one = SinglePublisher(root, Place(root.path, "k" * 12, FIRST, OLD), options, resumed_step=None)
    one.begin()
    one.scan(assume=False)
    assert not one.marks.changed(DISK)
    path = write(folder, "last.pt", text="not whole")
    assert one.marks.changed(DISK)
    one.scan(assume=False)
    assert not one.marks.changed(DISK)
    write(path, text="not whole either")
    assert one.marks.changed(DISK)
