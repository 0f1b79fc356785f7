"""The helper in processes of its own on real servers."""

from __future__ import annotations

import filecmp
import signal
import sys
from typing import TYPE_CHECKING

import pytest

from slurm_dispatch.s3.manifest import state_of
from tests.s3.servers import BUCKET
from tests.watch.remote import RemoteScene
from tests.watch.rig import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.s3.servers import Juice, Seaweed, Server

LARGE = """
import os, sys
folder = os.path.join(sys.argv[1], "checkpoint-6")
os.mkdir(folder)
with open(os.path.join(folder, "weights"), "wb") as file:
    for number in range(40):
        file.write(bytes([number]) * (1 << 20))
open(os.path.join(folder, "done"), "w").close()
"""


@pytest.fixture
def scene_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_aws_files: None
) -> Iterator[Callable[[Server], RemoteScene]]:
    """A root of the test's own on a server."""
    made: list[RemoteScene] = []

    def on(server: Server) -> RemoteScene:
        made.append(RemoteScene(tmp_path, server.environment(), monkeypatch, prefix=tmp_path.name, bucket=BUCKET))
        return made[-1]

    yield on
    for scene in made:
        scene.close()


def test_the_server_stops_and_comes_back(
    seaweed: Seaweed, scene_on: Callable[[Server], RemoteScene]
) -> None:
    """The command knows nothing of it; what it saved meanwhile is published, and the next execution has all of it."""
    remote = scene_on(seaweed)
    first = remote.train("save 5 wait away save 7 touch saved wait end exit 0")
    remote.until_published(1, 5)
    seaweed.stop(signal.SIGKILL)
    try:
        remote.open("away")
        until(lambda: remote.passed("saved"), "the save")
    finally:
        seaweed.start()
    remote.until_published(1, 7)
    remote.open("end")
    assert first.end() == 0, first.said
    second = remote.train("save 8", number=2)
    assert second.end() == 0, second.said
    assert remote.published() == [(2, 8), (1, 7), (1, 5)]
    (copy,) = remote.local(2).glob("resume/*/checkpoint-7")
    assert filecmp.cmp(copy / "weights", remote.local(1) / "checkpoint-7" / "weights", shallow=False)


def test_a_file_in_parts_there_and_back(seaweed: Seaweed, scene_on: Callable[[Server], RemoteScene]) -> None:
    remote = scene_on(seaweed)
    words = ["--from", str(remote.disk), "--done", "done", "--", sys.executable, "-c", LARGE, "{dir}"]
    first = remote.helper(*words)
    assert first.end() == 0, first.said
    assert remote.published() == [(1, 6)]
    assert first.has_said("40.0 of 40.0 MiB")
    root = remote.opened
    assert str(state_of(root, root.listing()[0])) == "proved"
    second = remote.train("save 8", number=2)
    assert second.end() == 0, second.said
    (copy,) = remote.local(2).glob("resume/*/checkpoint-6")
    assert filecmp.cmp(copy / "weights", remote.local(1) / "checkpoint-6" / "weights", shallow=False)


def test_a_gateway_that_ignores_the_condition_is_refused(
    juice: Juice, scene_on: Callable[[Server], RemoteScene]
) -> None:
    """C143: by name, before the command runs."""
    remote = scene_on(juice)
    helper = remote.train("touch ran")
    assert helper.end() == 73, helper.said
    assert helper.has_said("makes one name twice")
    assert helper.has_said(juice.endpoint)
    assert not remote.passed("ran")
