"""The commands epoch, publish, latest and ls."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from slurm_dispatch.cli.main import main
from slurm_dispatch.store.keep import keep
from slurm_dispatch.store.whole import Proof
from tests.store.scene import FIRST, NEW, OLD, SECOND, environment, fresh, save

if TYPE_CHECKING:
    from slurm_dispatch.store.root import CheckpointRoot


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CheckpointRoot:
    """An empty root, and the environment of the new execution in it."""
    made = fresh(tmp_path)
    for name, value in environment(made).items():
        if name.startswith("DISPATCH_"):
            monkeypatch.setenv(name, value)
    return made


@pytest.mark.parametrize(("arguments", "epoch"), [
    (["--submission", "3"], "3000000"),
    (["--generation", "2", "--submission", "3", "--restart", "1"], "2000003000001"),
    (["--generation", "9223371", "--submission", "999999", "--restart", "999999"], "9223371999999999999"),
])  # fmt: skip
def test_epoch(arguments: list[str], epoch: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["epoch", *arguments]) == 0
    assert capsys.readouterr().out == epoch + "\n"
    assert main(["epoch", "--json", *arguments]) == 0
    assert json.loads(capsys.readouterr().out)["epoch"] == epoch


@pytest.mark.parametrize(("arguments", "named"), [
    (["--submission", "0"], "submission"), (["--submission", "1000000"], "submission"),
    (["--submission", "x"], "submission"), (["--submission", "+1"], "submission"), ([], "submission"),
    (["--submission", "1", "--generation", "9223372"], "generation"),
    (["--submission", "1", "--restart", "-1"], "restart"), (["--submission", "1", "--restart", "1.5"], "restart"),
])  # fmt: skip
def test_epoch_out_of_bounds(arguments: list[str], named: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["epoch", *arguments]) == 64
    streams = capsys.readouterr()
    assert streams.out == ""
    assert streams.err.count("\n") == 1
    assert named in streams.err


def test_publish_and_latest(root: CheckpointRoot, capsys: pytest.CaptureFixture[str]) -> None:
    path = save(root, NEW, "checkpoint-5")
    assert main(["publish", "--step", "5", path]) == 0
    name = capsys.readouterr().out.strip()
    assert os.listdir(os.path.join(root.path, "pub")) == [name]
    assert main(["latest"]) == 0
    assert capsys.readouterr().out == path + "\n"
    assert main(["latest", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "name": name, "epoch": str(SECOND), "step": 5, "attempt": NEW, "path": path}  # fmt: skip


def test_options_come_before_the_environment(root: CheckpointRoot, capsys: pytest.CaptureFixture[str]) -> None:
    path = save(root, OLD, "checkpoint-5")
    arguments = ["--root", root.path, "--epoch", str(FIRST), "--attempt", OLD, "--json"]
    assert main(["publish", "--step", "5", *arguments, path]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["epoch"], said["attempt"]) == (str(FIRST), OLD)


def test_a_path_from_where_one_stands(root: CheckpointRoot, monkeypatch: pytest.MonkeyPatch) -> None:
    save(root, NEW, "checkpoint-5")
    monkeypatch.chdir(root.execution(NEW))
    assert main(["publish", "--step", "5", "checkpoint-5"]) == 0
    assert [p.path for p in root.listing()] == [f"exec/{NEW}/checkpoint-5".encode()]


def test_none_and_could_not_look_are_not_alike(
    root: CheckpointRoot, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["latest"]) == 66
    assert main(["latest", "--root", str(tmp_path / "nowhere")]) == 74
    assert main(["publish", "--step", "5", save(root, NEW, "checkpoint-5")]) == 0
    Path(root.path, "pub", "junk").touch()
    assert main(["latest"]) == 65
    streams = capsys.readouterr()
    assert len(streams.out.splitlines()) == 1  # what publish said
    none, nowhere, junk = streams.err.splitlines()
    assert "no publication" in none
    assert "nowhere" in nowhere
    assert "junk" in junk


@pytest.mark.parametrize("setting", ["DISPATCH_CHECKPOINT", "DISPATCH_ATTEMPT", "DISPATCH_EPOCH"])
@pytest.mark.parametrize("value", [None, "", "-"])
def test_what_is_not_set_is_named(
    root: CheckpointRoot, setting: str, value: str | None, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    path = save(root, NEW, "checkpoint-5")
    if value is None:
        monkeypatch.delenv(setting)
    else:
        monkeypatch.setenv(setting, value)
    expected = 74 if (setting, value) == ("DISPATCH_CHECKPOINT", "-") else 64
    assert main(["publish", "--step", "5", path]) == expected
    streams = capsys.readouterr()
    assert (streams.out, streams.err.count("\n")) == ("", 1)
    assert root.listing() == []


@pytest.mark.parametrize("step", ["-1", "x", "9223372036854775808", "1e3", ""])
def test_a_step_that_is_none(root: CheckpointRoot, step: str) -> None:
    assert main(["publish", f"--step={step}", save(root, NEW, "checkpoint-5")]) == 64
    assert root.listing() == []


def test_a_save_that_cannot_be_published(
    root: CheckpointRoot, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outside = tmp_path / "outside"
    outside.write_text("x")
    empty, foreign = save(root, NEW, "empty", b""), save(root, OLD, "checkpoint-5")
    for wrong in (str(outside), empty, foreign, root.execution(NEW), root.execution(NEW) + "/none"):
        assert main(["publish", "--step", "5", wrong]) == 65
        assert capsys.readouterr().err.count("\n") == 1
    assert root.listing() == []


def test_fallback(root: CheckpointRoot, capsys: pytest.CaptureFixture[str]) -> None:
    """C087, C154: only when it is asked for, and it is said."""
    older, path = save(root, NEW, "checkpoint-4"), save(root, NEW, "checkpoint-5")
    root.publish(SECOND, 4, older, attempt=NEW)
    root.publish(SECOND, 5, path, attempt=NEW)
    shutil.rmtree(path)
    assert main(["latest"]) == 65
    assert main(["latest", "--fallback"]) == 0
    streams = capsys.readouterr()
    assert streams.out == older + "\n"
    assert "falling back" in streams.err.splitlines()[-1]


def test_ls(root: CheckpointRoot, capsys: pytest.CaptureFixture[str]) -> None:
    """C089: both runs are shown, latest first, each with the state of its save."""
    assert main(["ls"]) == 0
    assert capsys.readouterr().out == ""
    assert main(["ls", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []
    for attempt, epoch, step, proof in ((OLD, FIRST, 5000, Proof.PROVED), (NEW, SECOND, 400, Proof.ASSUMED)):
        kept = keep(root, attempt, save(root, attempt, f"checkpoint-{step}"), proof=proof)
        assert kept is not None
        root.publish(epoch, step, kept, attempt=attempt)
    assert main(["publish", "--step", "500", save(root, NEW, "by hand")]) == 0
    capsys.readouterr()
    assert main(["ls", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [(each["step"], each["save"]) for each in listed] == [(500, "proved"), (400, "assumed"), (5000, "proved")]
    shutil.rmtree(os.path.join(root.path, listed[1]["path"]))
    assert main(["ls"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:3] for line in lines] == [
        ["EPOCH", "STEP", "SAVE"],
        [str(SECOND), "500", "proved"],
        [str(SECOND), "400", "gone"],
        [str(FIRST), "5000", "proved"],
    ]


def test_ls_with_a_save_that_cannot_be_looked_at(root: CheckpointRoot, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["publish", "--step", "5", save(root, NEW, "checkpoint-5")]) == 0
    Path(root.execution(NEW), ".dispatch", "save-checkpoint-5").write_text("torn")
    assert main(["ls"]) == 74
    streams = capsys.readouterr()
    assert "unknown" in streams.out
    assert "save-checkpoint-5" in streams.err


def test_hostile_names_on_one_line(root: CheckpointRoot, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """A save's name is data: never a second line or an escape on a terminal, and byte for byte from ``latest``."""
    path = save(root, NEW, "c\n\x1b[2J\udcff")
    assert main(["publish", "--step", "5", path]) == 0
    capsysbinary.readouterr()
    assert main(["ls"]) == 0
    assert capsysbinary.readouterr().out.count(b"\n") == 2
    assert main(["latest"]) == 0
    assert capsysbinary.readouterr().out == os.fsencode(path) + b"\n"


@pytest.mark.parametrize("name", ["epoch", "publish", "latest", "ls"])
def test_help_has_an_example_and_the_exit_codes(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0
    text = capsys.readouterr().out
    assert "Example:" in text
    assert "Exit codes:" in text
