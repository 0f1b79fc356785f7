"""The helper's own scans publish sharded saves, and only those that are whole and contradict nothing."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from slurm_dispatch.savers import table
from slurm_dispatch.watch import judge
from tests.savers.scene import Now, Scene
from tests.savers.test_rules import GOOD
from tests.savers.written import Files, deepspeed_files, megatron_files, saved

if TYPE_CHECKING:
    from slurm_dispatch.savers.layout import Verdict
    from slurm_dispatch.savers.view import SaveView

ROWS = ["dcp", "deepspeed-1", "megatron-torch", "megatron-dist", "orbax", "lightning", "lightning-folder"]


def put(scene: Scene, files: Files, name: str | None = None) -> Path:
    """Write a save into the execution's folder."""
    top = scene.directory / (name or files.name)
    for path, data in files.files.items():
        target = top / path if path else top
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    return top


@pytest.mark.parametrize("name", ROWS)
def test_auto_publishes_a_whole_save_and_no_half_one(name: str, tmp_path: Path) -> None:
    """C093, C097, C100, C102, C109: by its layout, without a word on the command line."""
    scene = Scene(tmp_path)
    files = GOOD[name]
    last = max(path for path in files.files if path != "commit_success.txt")
    put(scene, files.cut(last, files.sizes[last] - 1))
    assert scene.settle() == []
    assert scene.root.latest() is None
    put(scene, files)
    step = 7 if name == "dcp" else 20
    assert scene.scan() == [step]
    assert Path(scene.latest().path).name == files.name


def test_a_step_that_the_save_contradicts_is_not_published(tmp_path: Path) -> None:
    """C095, C098: the folder says 28, the trackers 28 and 20, the data 20."""
    for number, (files, tracker) in enumerate((
        (Files("global_step28", deepspeed_files(step=20)), "latest"),
        (Files("iter_0000028", megatron_files(step=20)), "latest_checkpointed_iteration.txt"),
    )):
        folder = tmp_path / str(number)
        folder.mkdir()
        scene = Scene(folder)
        put(scene, files)
        (scene.directory / tracker).write_text("28")
        assert scene.settle() == []


def test_a_missing_or_wrong_tracker_changes_nothing(tmp_path: Path) -> None:
    """C095, C097."""
    scene = Scene(tmp_path)
    put(scene, Files("global_step20", deepspeed_files(step=20)))
    (scene.directory / "latest").write_text("global_step99")
    assert scene.scan() == [20]


def test_lightning_s_names_without_a_step_are_no_saves(tmp_path: Path) -> None:
    """C093: beside a name with a step."""
    scene = Scene(tmp_path)
    state = {"": saved({"global_step": 20, "pytorch-lightning_version": "2.6.6"})}
    for name in ("last.ckpt", "last-v1.ckpt", "epoch=0-step=20-v1.ckpt"):
        put(scene, Files(name, state))
    put(scene, Files("epoch=0-step=20.ckpt", state))
    assert scene.settle() == [20]
    assert Path(scene.latest().path).name == "epoch=0-step=20.ckpt"


def test_a_slow_check_is_not_made_at_every_scan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A killed save with a great index stays torn; a change of it is seen at once."""
    clock, asked = Now(), []

    def check(view: SaveView) -> Verdict:
        asked.append(view.name)
        clock.seconds += 5
        return row.check(view)

    row = table.LAYOUTS["dcp"]
    slow = {"dcp": dataclasses.replace(row, check=check)}
    monkeypatch.setattr(judge, "layout_named", slow.__getitem__)
    monkeypatch.setattr(judge, "time", SimpleNamespace(monotonic=clock))
    scene = Scene(tmp_path, ("--layout", "dcp"))
    put(scene, GOOD["dcp"].but("__1_0.distcp"))
    for _ in range(10):
        assert scene.scan() == []
        clock.seconds += 10
    assert len(asked) == 1
    clock.seconds += 5
    assert scene.scan() == []
    assert len(asked) == 2
    put(scene, GOOD["dcp"])
    assert scene.scan() == [7]
