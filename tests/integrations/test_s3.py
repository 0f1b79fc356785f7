"""The callbacks with a root in S3: the real libraries save on this host's disk, on a real server.

Beside ``dispatch-watch`` it is the stub, which counts what is sent.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from slurm_dispatch.anyroot import open_store, states_of
from slurm_dispatch.store.best import read_best
from tests.integrations.conftest import Told, names, program
from tests.integrations.programs.ranks import attempt
from tests.s3.fixtures import no_aws_files, seaweed, stub
from tests.s3.servers import BUCKET

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.s3.servers import Seaweed
    from tests.s3.stub import Stub

__all__ = ["no_aws_files", "seaweed", "stub"]

pytestmark = pytest.mark.savers


def variables(
    server: Seaweed | Stub, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[str, Mapping[str, str]]:
    """A root of the test's own, and what a program needs to save to it by way of ``folder``/disk."""
    found = {
        **server.environment(), "AWS_CONFIG_FILE": os.environ["AWS_CONFIG_FILE"],
        "AWS_SHARED_CREDENTIALS_FILE": os.environ["AWS_SHARED_CREDENTIALS_FILE"],
    }  # fmt: skip
    for name, value in found.items():
        monkeypatch.setenv(name, value)
    (folder / "disk").mkdir()
    return f"s3://{BUCKET}/{folder.name}", found


def trained(told: Told, number: int) -> dict[str, Any]:
    (found,) = [one for one in told if one["what"] == "trained" and one["execution"] == number]
    return found


def all_proved(place: str) -> bool:
    """Whether each save that is there is as it was when it was published."""
    root = open_store(place)
    return {str(state) for state in states_of(root, root.listing())} <= {"proved", "gone"}


def test_the_trainer_of_transformers(
    seaweed: Seaweed, tmp_path: Path, no_aws_files: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it resumes from and its best save are on its disk, whatever execution on whatever host saved them."""
    place, more = variables(seaweed, tmp_path, monkeypatch)
    told, _ = program("with_transformers.py", "alone", place, FROM_DIR=str(tmp_path / "disk"), **more)
    assert trained(told, 1)["resume"] is None
    for number, name in ((2, "checkpoint-15"), (4, "checkpoint-30")):
        resume = trained(told, number)["resume"]
        assert os.path.basename(resume) == name
        assert resume.startswith(f"{tmp_path}/disk/{attempt(number)}/resume/")
    assert [(number, step) for number, step, _ in names(place)] == [
        (1, 5), (1, 10), (1, 15), (2, 20), (2, 25), (2, 30), (4, 35), (4, 40), (4, 45),
    ]
    assert all(path == f"exec/{attempt(number)}/kept/checkpoint-{step}" for number, step, path in names(place))
    assert all_proved(place)
    first, second = trained(told, 1), trained(told, 2)
    assert second["best"][:2] == [0.9, 10]
    assert second["best"][2].startswith(f"{tmp_path}/disk/{attempt(2)}/best/")
    assert second["print"] == first["prints"]["10"], "load_best_model_at_end has loaded it"
    (said,) = [one for one in told if one["what"] == "not_resumed"]
    assert "the save of step 5 is not published: this execution resumes from step 30" in said["error"]
    root = open_store(place)
    best = read_best(root, attempt(4))
    assert best is not None
    assert (best.score, best.step) == (0.95, 35)
    assert [root.entries(f"exec/{attempt(number)}/best".encode()) for number in (1, 2)] == [[], []]


def test_two_hosts_that_share_no_disk(
    seaweed: Seaweed, tmp_path: Path, no_aws_files: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each brings what it resumes from, and the best save, to its own disk; the weights are the same on both."""
    place, more = variables(seaweed, tmp_path, monkeypatch)
    disk = tmp_path / "disk"
    for rank in (0, 1):
        (disk / f"host{rank}").mkdir()
    told, _ = program("with_transformers.py", "hosts", place, FROM_DIR=str(disk), **more)
    assert [(number, step) for number, step, _ in names(place)] == [(1, 5), (1, 10), (2, 15), (2, 20)]
    assert all_proved(place)
    found = {(one["execution"], one["rank"]): one for one in told if one["what"] == "trained"}
    assert sorted(found) == [(1, 0), (1, 1), (2, 0), (2, 1)]
    for rank in (0, 1):
        second = found[2, rank]
        assert second["resume"].startswith(f"{disk}/host{rank}/{attempt(2)}/resume/")
        assert os.path.basename(second["resume"]) == "checkpoint-10"
        assert second["best"][:2] == [0.9, 10]
        assert second["best"][2].startswith(f"{disk}/host{rank}/{attempt(2)}/best/")
        assert second["print"] == found[1, rank]["prints"]["10"], "load_best_model_at_end has loaded it"
    assert found[2, 0]["print"] == found[2, 1]["print"]


def test_beside_dispatch_watch_each_save_is_sent_once(
    stub: Stub, tmp_path: Path, no_aws_files: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever of the two comes first, and while the other one is at it."""
    place, more = variables(stub, tmp_path, monkeypatch)
    identity = {"DISPATCH_JOB": "job", "DISPATCH_EPOCH": str(10**6), "DISPATCH_ATTEMPT": attempt(1)}
    words = ("--root", place, "--from", str(tmp_path / "disk"), "--done", "trainer_state.json", "--interval", "0.05")
    told, said = program("with_transformers.py", "helped", below=(*words, "--no-thin"), **identity, **more)
    assert told == [{"what": "helped", "directory": str(tmp_path / "disk" / attempt(1)), "step": 20}]
    assert names(place) == [(1, step, f"exec/{attempt(1)}/kept/checkpoint-{step}") for step in (5, 10, 15, 20)]
    assert all_proved(place)
    assert "is not published" not in said, said
    for step in (5, 10, 15, 20):
        assert len(stub.of("PUT", f"kept/checkpoint-{step}/model.safetensors")) == 1, f"step {step}"


def test_the_trainer_of_lightning(
    seaweed: Seaweed, tmp_path: Path, no_aws_files: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, more = variables(seaweed, tmp_path, monkeypatch)
    told, _ = program("with_lightning.py", "alone", place, FROM_DIR=str(tmp_path / "disk"), **more)
    resumed = [trained(told, number)["resume"] for number in (2, 4)]
    assert [os.path.basename(path) for path in resumed] == ["epoch=0-step=15.ckpt", "epoch=0-step=30.ckpt"]
    assert all(path.startswith(f"{tmp_path}/disk/") for path in resumed)
    assert [(number, step) for number, step, _ in names(place)] == [
        (1, 5), (1, 10), (1, 15), (2, 20), (2, 25), (2, 30), (4, 35), (4, 40),
    ]
    assert all_proved(place)
    assert (trained(told, 1)["score"], trained(told, 2)["score"], trained(told, 4)["score"]) == (0.9, 0.9, 0.95)
    carried = trained(told, 2)["best"]
    assert (os.path.basename(carried), carried.startswith(f"{tmp_path}/disk/{attempt(2)}/best/")) == (
        "best-step=10.ckpt", True,
    )
    assert "this execution resumes from step 30" in trained(told, 3)["error"]


def test_lightning_that_writes_to_s3_itself(
    seaweed: Seaweed, tmp_path: Path, no_aws_files: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a folder of this host: by fsspec, and by its own hand it is resumed from there."""
    place, more = variables(seaweed, tmp_path, monkeypatch)
    told, _ = program("with_lightning.py", "alone", place, **more)
    resumed = [trained(told, number)["resume"] for number in (2, 4)]
    assert [os.path.basename(path) for path in resumed] == ["epoch=0-step=15.ckpt", "epoch=0-step=30.ckpt"]
    assert all(path.startswith(f"{place}/exec/") for path in resumed)
    assert [(number, step) for number, step, _ in names(place)] == [
        (1, 5), (1, 10), (1, 15), (2, 20), (2, 25), (2, 30), (4, 35), (4, 40),
    ]
    assert all_proved(place)
    assert (trained(told, 1)["score"], trained(told, 2)["score"], trained(told, 4)["score"]) == (0.9, 0.9, 0.95)
    assert trained(told, 2)["best"] == f"{place}/exec/{attempt(2)}/best/best-step=10.ckpt"
    assert "this execution resumes from step 30" in trained(told, 3)["error"]


@pytest.mark.parametrize("direct", [False, True], ids=["from-disk", "by-itself"])
def test_an_asynchronous_save_of_two_ranks(
    seaweed: Seaweed, tmp_path: Path, no_aws_files: None, monkeypatch: pytest.MonkeyPatch, direct: bool
) -> None:
    """The second rank writes its files of step 10 late, and fails at step 15; ``by-itself`` with the library's fsspec
    writer."""
    place, more = variables(seaweed, tmp_path, monkeypatch)
    told, _ = program("with_dcp.py", place, **({} if direct else {"FROM_DIR": str(tmp_path / "disk")}), **more)
    saved = {(one["rank"], one["step"]): one["path"] for one in told if one["what"] == "saved"}
    where = f"exec/{attempt(1)}/step-" if direct else f"exec/{attempt(1)}/kept/step-"
    assert saved == {(0, 5): f"{where}5", (1, 5): None, (0, 10): f"{where}10", (1, 10): None}
    assert names(place) == [(1, 5, f"{where}5"), (1, 10, f"{where}10")]
    assert all_proved(place)
    root = open_store(place)
    for step in (5, 10):
        assert root.entries(f"{where}{step}".encode()) == [b".metadata", b"__0_0.distcp", b"__1_0.distcp"]
    assert {one["error"] for one in told if one["what"] == "failed"} == {"CheckpointException"}
    assert {one["rank"]: one["error"] for one in told if one["what"] == "outside"} == {0: "BadDataError", 1: None}
