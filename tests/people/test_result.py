"""``dispatch result``: the folder of the execution that completed, and the link to it."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from slurm_dispatch.anyroot import open_store, taker
from slurm_dispatch.cli.main import main
from slurm_dispatch.cli.result import put_link
from slurm_dispatch.errors import CannotCreateError
from slurm_dispatch.store.best import keep_best
from slurm_dispatch.store.root import CheckpointRoot, open_root
from tests.s3.fixtures import no_aws_files, stub
from tests.s3.stub import BUCKET

if TYPE_CHECKING:
    from pathlib import Path

    from tests.people.desk import Desk
    from tests.s3.stub import Stub

__all__ = ["no_aws_files", "stub"]


@pytest.fixture
def root(desk: Desk) -> CheckpointRoot:
    """The checkpoint root of the desk's jobs, the owner's."""
    path = os.path.join(desk.home, "root")
    os.mkdir(path)
    os.chown(path, desk.rig.uid, -1)
    return open_root(path)


def test_the_folder_of_the_execution_that_completed(desk: Desk, root: CheckpointRoot, tmp_path: Path) -> None:
    key = desk.running("preempted:resubmit", root=root.path)
    desk.ended(key, "PREEMPTED")
    desk.rig.start(key)
    desk.tick()
    execution = desk.state(key).submissions[-1].executions[-1]
    assert execution.attempt != desk.state(key).submissions[0].executions[-1].attempt
    directory = root.make_execution(execution.attempt)
    assert "has not completed: it is running" in desk.refused(66, "result", key)
    desk.ended(key, "COMPLETED")
    link = os.path.join(desk.home, "result")
    told = json.loads(desk.ok("result", key, "--json", "--link", link))
    assert told == {
        "job": key, "attempt": execution.attempt, "directory": directory, "step": None, "save": None, "best": None,
        "epoch": str(int(execution.epoch)),
    }
    assert os.readlink(link) == directory
    os.rmdir(os.path.join(directory, ".dispatch"))
    os.rmdir(directory)
    assert f"{directory}, which is gone" in desk.refused(65, "result", key)


def test_a_result_whose_saves_were_thinned_says_so(desk: Desk, root: CheckpointRoot) -> None:
    key = desk.running(root=root.path)
    execution = desk.state(key).submissions[-1].executions[-1]
    directory = root.make_execution(execution.attempt)
    for step in (5, 10):
        save = os.path.join(directory, f"checkpoint-{step}")
        with open(save, "wb") as file:
            file.write(b"weights")
        root.publish(int(execution.epoch), step, save, attempt=execution.attempt)
    desk.ended(key, "COMPLETED")
    assert json.loads(desk.ok("result", key, "--json"))["save"] == save
    os.unlink(save)
    told = json.loads(desk.ok("result", key, "--json"))
    assert (told["save"], told["step"]) == (os.path.join(directory, "checkpoint-5"), 10)
    os.unlink(os.path.join(directory, "checkpoint-5"))
    said = desk.dispatch("result", key, "--json")
    assert said.status == 0
    assert json.loads(said.out)["save"] is None
    assert said.err == (
        "dispatch: the saves that it published up to step 10 were removed: a later execution outranks them\n"
    )


def test_the_path_is_all_that_is_printed(
    desk: Desk, root: CheckpointRoot, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    key = desk.running(root=root.path)
    directory = root.make_execution(desk.state(key).submissions[-1].executions[-1].attempt)
    desk.ended(key, "COMPLETED")
    assert main(["result", key]) == 0
    assert capfdbinary.readouterr() == (os.fsencode(directory) + b"\n", b"")


def test_where_none_completed_that_is_said(desk: Desk, root: CheckpointRoot) -> None:
    key = desk.running("failed:stop", root=root.path)
    desk.ended(key, "FAILED")
    assert f"no execution of job {key} completed: it was closed as failed" in desk.refused(66, "result", key)
    key = desk.closed(root=os.path.join(root.path, "none"))
    assert f"the checkpoint root of job {key} is gone" in desk.refused(65, "result", key)


def test_a_link_is_replaced_at_once_and_nothing_else_is(tmp_path: Path) -> None:
    link, old, new = tmp_path / "link", tmp_path / "old", tmp_path / "new"
    put_link(str(link), str(old))
    put_link(str(link), str(new))
    assert os.readlink(link) == str(new)
    for there in (tmp_path / "file", tmp_path / "folder"):
        if there.name == "file":
            there.write_text("mine")
        else:
            there.mkdir()
        with pytest.raises(CannotCreateError, match="is there and is no symbolic link"):
            put_link(str(there), str(new))
    assert (tmp_path / "file").read_text() == "mine"
    assert sorted(os.listdir(tmp_path)) == ["file", "folder", "link"]


def test_a_result_in_s3(
    desk: Desk,
    stub: Stub,
    no_aws_files: None,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The place, and of its saves the last that is there; no link can lead to it."""
    for name, value in stub.environment().items():
        monkeypatch.setenv(name, value)
    key = desk.running(root=f"s3://{BUCKET}/run")
    execution = desk.state(key).submissions[-1].executions[-1]
    directory = f"s3://{BUCKET}/run/exec/{execution.attempt}"
    desk.ended(key, "COMPLETED")

    def told(status: int, *more: str) -> str:
        # In this process: the client's threads do not outlive a fork.
        capfd.readouterr()
        assert main(["result", key, *more]) == status
        said = capfd.readouterr()
        return said.err if status else said.out

    assert f"{directory}, which is gone" in told(65)
    opened = open_store(f"s3://{BUCKET}/run")
    for step in (5, 10):
        stub.objects[f"run/exec/{execution.attempt}/kept/checkpoint-{step}/weights"] = b"weights"
        path = f"exec/{execution.attempt}/kept/checkpoint-{step}"
        opened.publish(int(execution.epoch), step, path, attempt=execution.attempt)
    found = json.loads(told(0, "--json"))
    assert (found["directory"], found["save"], found["step"]) == (directory, f"{directory}/kept/checkpoint-10", 10)
    del stub.objects[f"run/exec/{execution.attempt}/kept/checkpoint-10/weights"]
    assert json.loads(told(0, "--json"))["save"] == f"{directory}/kept/checkpoint-5"
    assert found["best"] is None
    stub.objects[f"run/exec/{execution.attempt}/checkpoint-7/weights"] = b"weights"
    best = keep_best(
        opened, execution.attempt, f"{directory}/checkpoint-7", epoch=int(execution.epoch), step=7, metric="loss",
        score=1.0, greater_is_better=False, take=taker(opened, execution.attempt),
    )
    assert json.loads(told(0, "--json"))["best"] == best.path == f"{directory}/best/checkpoint-7"
    assert told(0) == f"{directory}\n"
    link = os.path.join(desk.home, "link")
    assert "a link is to a folder" in told(64, "--link", link)
    assert not os.path.lexists(link)
