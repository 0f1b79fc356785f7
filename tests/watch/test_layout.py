"""``--layout``: which saves the helper publishes, and what it says."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from slurm_dispatch.errors import UsageError
from slurm_dispatch.watch.options import parse
from tests.savers.scene import Scene
from tests.savers.test_layouts import STATES, TRAINER
from tests.savers.views import safetensors, zipped
from tests.store.scene import NEW, SECOND

COMMAND = ["--", "x"]


def put(folder: Path, files: dict[str, bytes]) -> Path:
    """A save, or a part of one."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def trained(folder: Path, step: int, **more: bytes) -> Path:
    """A Trainer's save of a step."""
    return put(folder, {**TRAINER, "trainer_state.json": json.dumps({"global_step": step}).encode(), **more})


def test_auto_is_what_is_done_unless_names_or_markers_are_said() -> None:
    assert parse(COMMAND).layout == "auto"
    for words in (["--done", "x"], ["--pattern", "x-{step}"], ["--single", "last.pt"]):
        assert parse([*words, *COMMAND]).layout is None
        assert parse([*words, *COMMAND]).own_pattern is (words[0] == "--pattern")
    assert parse(["--layout", "plain", "--done", "x", *COMMAND]).layout == "plain"


@pytest.mark.parametrize("words", [
    ["--layout", "nobody"], ["--single", "../x"], ["--single", "/x"], ["--single", "kept/x"], ["--single", ""],
    ["--single", "x", "--done", "y"], ["--single", "x", "--layout", "auto"],
    ["--single", "x", "--pattern", "y{step}"],
])  # fmt: skip
def test_what_makes_no_sense_is_refused(words: list[str]) -> None:
    with pytest.raises(UsageError):
        parse([*words, *COMMAND])


def test_auto_says_what_it_took(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """C085: published at once, and the save without its marker never."""
    scene = Scene(tmp_path)
    trained(scene.directory / "checkpoint-10", 10)
    put(scene.directory / "checkpoint-25", {"model.safetensors": safetensors()})
    assert scene.scan() == [10]
    assert scene.settle() == []
    assert scene.latest().publication.step == 10
    said = capfd.readouterr().err
    assert said.count("--layout auto: checkpoint-10 is a save of transformers Trainer") == 1
    assert said.count("checkpoint-25 does not change and is not published: trainer_state.json is not there yet") == 1


def test_auto_without_anything_to_recognise_is_what_it_was(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    put(scene.directory / "checkpoint-10", {"weights": b"x"})
    assert scene.scan() == []
    assert scene.settle() == [10]


def test_an_index_without_its_shards_is_not_assumed_whole(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    scene = Scene(tmp_path)
    index = json.dumps({"weight_map": {"a": "model-1.bin"}}).encode()
    put(scene.directory / "checkpoint-10", {"weights": b"x", "model.bin.index.json": index})
    assert scene.settle() == []
    assert "model-1.bin is missing: model.bin.index.json names it" in capfd.readouterr().err
    put(scene.directory / "checkpoint-10", {"model-1.bin": b"x"})
    assert scene.settle() == [10]


def test_a_step_that_is_not_the_name_s(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """C098: not published, and said."""
    scene = Scene(tmp_path, ["--layout", "transformers"])
    trained(scene.directory / "checkpoint-20", 28)
    assert scene.settle() == []
    assert "its name says step 20 and what is in it says 28" in capfd.readouterr().err


def test_the_user_s_marker_goes_with_a_layout(tmp_path: Path) -> None:
    scene = Scene(tmp_path, ["--layout", "transformers", "--done", "uploaded"])
    save = trained(scene.directory / "checkpoint-10", 10)
    assert scene.settle() == []
    (save / "uploaded").touch()
    assert scene.scan() == [10]
    trained(scene.directory / "checkpoint-20", 20, uploaded=b"", **{"optimizer.pt": zipped()[:-1]})
    assert scene.settle() == []


def test_the_user_s_marker_proves_what_the_layout_cannot(tmp_path: Path) -> None:
    scene = Scene(tmp_path, ["--layout", "accelerate", "--done", "random_states_0.pkl"])
    put(scene.directory / "checkpoints" / "checkpoint_0", STATES)
    assert scene.scan() == [1]


def test_a_pattern_of_one_s_own_goes_with_a_layout(tmp_path: Path) -> None:
    scene = Scene(tmp_path, ["--layout", "transformers", "--pattern", "run/step-{step}"])
    trained(scene.directory / "run" / "step-10", 10)
    trained(scene.directory / "checkpoint-20", 20)
    assert scene.scan() == [10]


def test_a_count_that_begins_anew_is_no_step(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """C105: save_iteration is 0 again after a load. It neither clashes nor looks like a run that did not resume."""
    first = Scene(tmp_path)
    for number in range(3):
        put(first.directory / "checkpoints" / f"checkpoint_{number}", STATES)
    assert first.settle() == [1, 2]
    assert Path(first.latest().path).name == "checkpoint_2"
    second = Scene(
        tmp_path, attempt=NEW, epoch=SECOND, resumed=first.latest().path, resumed_step=2,
    )  # fmt: skip
    put(second.directory / "checkpoints" / "checkpoint_0", STATES)
    assert second.settle() == [3]
    put(second.directory / "checkpoints" / "checkpoint_1", STATES)
    second.publisher = second.new_publisher()
    assert second.settle() == [4]
    assert second.settle() == []
    assert second.latest().path.endswith(f"{NEW}/kept/checkpoint_1")
    assert "whether the command resumed cannot be seen" in capfd.readouterr().err


def test_names_of_more_than_one_form(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """C093: epochs and steps side by side: what counts what is not guessed."""
    scene = Scene(tmp_path, ["--layout", "plain"])
    for name in ("ckpt_step_1000.pt", "ckpt_epoch_3.pt"):
        (scene.directory / name).write_bytes(zipped())
    assert scene.settle() == []
    assert "names of more than one form (ckpt_epoch_#.pt and ckpt_step_#.pt)" in capfd.readouterr().err
    resumed = "/r/resume/ckpt_step_900.pt"
    other = Scene(tmp_path, ["--layout", "plain"], attempt=NEW, resumed=resumed, resumed_step=900)
    for name in ("ckpt_step_1000.pt", "ckpt_epoch_3.pt"):
        (other.directory / name).write_bytes(zipped())
    assert other.settle() == [1000]


def test_the_first_form_stays(tmp_path: Path) -> None:
    scene = Scene(tmp_path, ["--layout", "plain"])
    (scene.directory / "ckpt_step_10.pt").write_bytes(zipped())
    assert scene.scan() == [10]
    (scene.directory / "ckpt_epoch_99.pt").write_bytes(zipped())
    (scene.directory / "ckpt_step_20.pt").write_bytes(zipped())
    assert scene.scan() == [20]


def test_plain_files_give_way_to_a_surer_layout(tmp_path: Path) -> None:
    """A table that is saved beside the checkpoints does not decide what a save is."""
    scene = Scene(tmp_path)
    (scene.directory / "step_5.npz").write_bytes(zipped())
    assert scene.scan() == [5]
    trained(scene.directory / "checkpoint-10", 10)
    (scene.directory / "step_20.npz").write_bytes(zipped())
    assert scene.scan() == [10]


def test_a_folder_that_is_named_by_a_number_is_no_save(tmp_path: Path) -> None:
    """C109: an empty one, and one with anything in it."""
    scene = Scene(tmp_path)
    (scene.directory / "3").mkdir()
    put(scene.directory / "4", {"half": b"x"})
    assert scene.settle() == []
    assert scene.root.latest() is None


def test_a_save_that_the_trainer_writes_again_is_copied(tmp_path: Path) -> None:
    """Its answer to SIGTERM truncates the files of the present step's save, which is published."""
    big = {"model.safetensors": safetensors(2 << 20)}
    for attempt, opcode, links in (("a" * 20, b"\x89", 2), ("b" * 20, b"\x88", 1)):
        scene = Scene(tmp_path, attempt=attempt)
        arguments = zipped(b"enable_jit_checkpointq_" + opcode)
        trained(scene.directory / "checkpoint-10", 10, **big, **{"training_args.bin": arguments})
        assert scene.scan() == [10]
        kept = scene.directory / "kept" / "checkpoint-10" / "model.safetensors"
        assert os.stat(kept).st_nlink == links


def test_many_helpers_see_one_save(tmp_path: Path) -> None:
    """C108, C086: each publishes it, and it is one publication."""
    scenes = [Scene(tmp_path) for _ in range(4)]
    trained(scenes[0].directory / "checkpoint-10", 10)
    assert [scene.scan() for scene in scenes] == [[10]] * 4
    assert len(scenes[0].root.listing()) == 1
