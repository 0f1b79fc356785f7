"""``--single``: a program that writes one file again and again."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from slurm_dispatch.store.whole import Proof, look
from slurm_dispatch.watch.single import STILL_COARSE_S, STILL_S, SinglePublisher
from tests.savers.scene import Scene
from tests.savers.views import safetensors, zipped
from tests.store.scene import NEW, SECOND

OPTIONS = ["--single", "last.pt"]


class Pauses:
    """What a publisher does instead of a pause: remembers it, and lets the program do something meanwhile."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.meanwhile = lambda: None

    def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)
        self.meanwhile()


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> Pauses:
    found = Pauses()
    monkeypatch.setattr(SinglePublisher, "_pause", staticmethod(found))
    return found


def write(path: Path, content: bytes) -> None:
    """As a program does that truncates and writes; the time is another each time."""
    before = path.stat().st_mtime_ns if path.exists() else 1_700_000_000_123_456_789
    path.write_bytes(content)
    os.utime(path, ns=(before + 1_001, before + 1_001))


def test_each_new_content_is_a_save(tmp_path: Path, pauses: Pauses) -> None:
    scene = Scene(tmp_path, OPTIONS)
    file = scene.directory / "last.pt"
    assert scene.scan() == []
    for number in range(1, 5):
        write(file, zipped(b"%d" % number))
        assert scene.scan() == [number]
        assert scene.scan() == []
        path = Path(scene.latest().path)
        assert path.name == f"last-{number}.pt"
        assert path.read_bytes() == zipped(b"%d" % number)
        assert path.stat().st_ino != file.stat().st_ino
    assert pauses.seconds == [STILL_S] * 4
    assert sorted(os.listdir(scene.directory / "kept")) == ["last-2.pt", "last-3.pt", "last-4.pt"]


def test_a_file_that_is_being_written_is_none(tmp_path: Path, pauses: Pauses) -> None:
    """C103: truncated by a kill, or not done yet: the one before stays latest."""
    scene = Scene(tmp_path, OPTIONS)
    file = scene.directory / "last.pt"
    write(file, zipped(b"1"))
    assert scene.scan() == [1]
    whole = zipped(b"2" * 50)
    for cut in range(len(whole)):
        write(file, whole[:cut])
        assert scene.scan() == []
    pauses.meanwhile = lambda: write(file, whole + b" ")
    write(file, whole)
    assert scene.scan() == []
    assert Path(scene.latest().path).read_bytes() == zipped(b"1")


def test_it_changes_while_it_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(tmp_path, OPTIONS)
    file = scene.directory / "last.pt"
    write(file, zipped(b"1"))
    import slurm_dispatch.store.transfer as module

    copy = module._pour_plainly

    def pour(reading: int, writing: int) -> int:
        count = copy(reading, writing)
        write(file, zipped(b"2"))
        return count

    monkeypatch.setattr(module, "_pour_plainly", pour)
    assert scene.scan() == []
    monkeypatch.setattr(module, "_pour_plainly", copy)
    assert scene.scan() == [1]
    assert Path(scene.latest().path).read_bytes() == zipped(b"2")


def test_a_format_that_does_not_say_is_never_published(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """C103: an HDF5 file that is rewritten in place."""
    scene = Scene(tmp_path, ["--single", "latest.weights.h5"])
    write(scene.directory / "latest.weights.h5", b"\x89HDF\r\n\x1a\n" + b"x" * 5000)
    assert scene.settle() == []
    assert capfd.readouterr().err.count("has no structure that says whether it is whole") == 1


def test_stamps_in_whole_seconds_are_waited_for_longer(tmp_path: Path, pauses: Pauses) -> None:
    scene = Scene(tmp_path, OPTIONS)
    file = scene.directory / "last.pt"
    file.write_bytes(zipped())
    os.utime(file, (1_700_000_000, 1_700_000_000))
    assert scene.scan() == [1]
    assert pauses.seconds == [STILL_COARSE_S]


def test_the_count_rises_over_all_executions(tmp_path: Path) -> None:
    first = Scene(tmp_path, OPTIONS)
    for number in (1, 2, 3):
        write(first.directory / "last.pt", zipped(b"%d" % number))
        assert first.scan() == [number]
    second = Scene(
        tmp_path, OPTIONS, attempt=NEW, epoch=SECOND, resumed=first.latest().path, resumed_step=3
    )  # fmt: skip
    write(second.directory / "last.pt", zipped(b"4"))
    assert second.scan() == [4]
    # The old run lives on: it counts on above what it sees, and its epoch keeps it below the new one.
    write(first.directory / "last.pt", zipped(b"9"))
    assert first.scan() == [5]
    assert Path(second.latest().path).name == "last-4.pt"
    write(second.directory / "last.pt", zipped(b"5"))
    second.publisher = second.new_publisher()
    assert second.scan() == [6]
    assert Path(second.latest().path).name == "last-6.pt"


def test_what_it_resumed_from_is_no_new_save(tmp_path: Path) -> None:
    """A script that copies the save to where the program looks for it has made no progress."""
    first = Scene(tmp_path, OPTIONS)
    write(first.directory / "last.pt", zipped(b"1"))
    assert first.scan() == [1]
    second = Scene(tmp_path, OPTIONS, attempt=NEW, epoch=SECOND, resumed=first.latest().path, resumed_step=1)
    shutil.copyfile(first.latest().path, second.directory / "last.pt")
    assert second.scan() == []
    write(second.directory / "last.pt", zipped(b"2"))
    assert second.scan() == [2]


def test_a_helper_that_starts_anew_publishes_it_once(tmp_path: Path) -> None:
    scene = Scene(tmp_path, OPTIONS)
    write(scene.directory / "last.pt", zipped(b"1"))
    assert scene.scan() == [1]
    scene.publisher = scene.new_publisher()
    assert scene.scan() == []


def test_what_a_killed_keeper_left_is_not_published_for_what_came_after(tmp_path: Path) -> None:
    from slurm_dispatch.store.keep import keep

    scene = Scene(tmp_path, OPTIONS)
    file = scene.directory / "last.pt"
    write(file, zipped(b"1"))
    seen = look(file, read=False)
    assert keep(scene.root, scene.attempt, str(file), proof=Proof.PROVED, copy=True, expected=seen, name=b"last-1.pt")
    write(file, zipped(b"22"))
    assert scene.scan() == [1]
    assert Path(scene.latest().path).read_bytes() == zipped(b"22")


def test_a_folder_or_a_link_is_no_file(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    scene = Scene(tmp_path, OPTIONS)
    (scene.directory / "other.pt").write_bytes(zipped())
    (scene.directory / "last.pt").symlink_to("other.pt")
    assert scene.settle() == []
    (scene.directory / "last.pt").unlink()
    (scene.directory / "last.pt").mkdir()
    assert scene.settle() == []
    assert scene.root.latest() is None


def test_in_a_folder_below(tmp_path: Path) -> None:
    scene = Scene(tmp_path, ["--single", "out/model.safetensors"])
    (scene.directory / "out").mkdir()
    write(scene.directory / "out" / "model.safetensors", safetensors())
    assert scene.scan() == [1]
    assert Path(scene.latest().path).name == "model-1.safetensors"
