"""Every name that a call made is synced by its folder, and every byte by its file, before the call returns.

A power loss on ext4 does not show a folder that was forgotten if anything else was synced behind it, since one fsync
commits the whole journal. So the calls of :mod:`tests.power.writer` are watched, in this process.
"""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "hooks" / "python"))

from slurm_dispatch.cli.site import begin
from slurm_dispatch.durable import TEMPORARY_PREFIX
from slurm_dispatch.store.choice import choose
from slurm_dispatch.store.manifest import manifest_of, write_manifest
from slurm_dispatch.store.root import open_root
from slurm_dispatch.store.whole import Proof, look
from slurm_dispatch.submit import root as submit_root
from slurm_dispatch.watch.place import Place
from slurm_dispatch.watch.prepare import open_place
from tests.power import saves, writer
from tests.store.scene import FIRST, NEW, OLD, fresh, kept_save, save

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

OTHER = "other000000000000000"
CALLS = 150
MAY_BE_LOST = {"hint", "thinning", "thinned"}


class Watch:
    """Which names and bytes a power loss could take now, on a filesystem that keeps nothing but what is synced."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: dict[tuple[int, int], set[str]] = {}
        self.files: dict[tuple[int, int], str] = {}
        for call, after in (
            ("mkdir", self._named), ("symlink", lambda _, name, **k: self._named(name, **k)),
            ("link", self._moved), ("rename", self._moved), ("replace", self._moved),
            ("open", self._opened), ("unlink", self._gone), ("rmdir", self._gone), ("write", self._written),
            ("copy_file_range", lambda _, descriptor, *__: self._written(descriptor)), ("fsync", self._synced),
        ):  # fmt: skip
            monkeypatch.setattr(os, call, self._wrapped(getattr(os, call), after))

    def unsynced(self) -> list[str]:
        """All of it."""
        return sorted({name for names in self.names.values() for name in names} | set(self.files.values()))

    def forget(self) -> None:
        """What was written up to now may be lost."""
        self.names.clear()
        self.files.clear()

    @staticmethod
    def _wrapped(call: Callable[..., Any], after: Callable[..., None]) -> Callable[..., Any]:
        def wrapper(*arguments: Any, **more: Any) -> Any:
            answer = call(*arguments, **more)
            after(*((answer, *arguments) if call.__name__ == "open" else arguments), **more)
            return answer

        return wrapper

    @staticmethod
    def _place(name: str | bytes, dir_fd: int | None) -> tuple[tuple[int, int], str]:
        text = os.fsdecode(name)
        if dir_fd is not None:
            text = os.path.join(os.readlink(f"/proc/self/fd/{dir_fd}"), text)
        found = os.stat(os.path.dirname(text) or ".")
        return (found.st_dev, found.st_ino), text

    def _named(self, name: str | bytes, *_: Any, dir_fd: int | None = None, **__: Any) -> None:
        folder, text = self._place(name, dir_fd)
        if not os.path.basename(text).startswith(TEMPORARY_PREFIX):
            self.names.setdefault(folder, set()).add(text)

    def _moved(self, _: Any, target: str | bytes, *, dst_dir_fd: int | None = None, **__: Any) -> None:
        self._named(target, dir_fd=dst_dir_fd)

    def _opened(
        self, descriptor: int, name: str | bytes, flags: int, *_: Any, dir_fd: int | None = None, **__: Any
    ) -> None:
        # An O_CREAT that found it there made nothing; none of ours that matter is without O_EXCL.
        if flags & os.O_CREAT and flags & os.O_EXCL:
            self._named(name, dir_fd=dir_fd)

    def _gone(self, name: str | bytes, *, dir_fd: int | None = None) -> None:
        folder, text = self._place(name, dir_fd)
        self.names.get(folder, set()).discard(text)

    def _written(self, descriptor: int, *_: Any, **__: Any) -> None:
        found = os.fstat(descriptor)
        if stat.S_ISREG(found.st_mode):
            self.files[found.st_dev, found.st_ino] = os.readlink(f"/proc/self/fd/{descriptor}")

    def _synced(self, descriptor: int) -> None:
        found = os.fstat(descriptor)
        self.names.pop((found.st_dev, found.st_ino), None)
        self.files.pop((found.st_dev, found.st_ino), None)


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    return Watch(monkeypatch)


def test_nothing_that_a_call_made_is_unsynced_when_it_is_told(
    tmp_path: Path, rng: random.Random, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C119: of every call that the power losses are about."""
    told: list[str] = []
    left: list[tuple[str, list[str]]] = []

    def tell(kind: str, **fields: Any) -> None:
        assert kind != "raised", fields
        told.append(kind)
        if kind not in MAY_BE_LOST and watch.unsynced():
            left.append((kind, watch.unsynced()))
        watch.forget()

    monkeypatch.setattr(writer, "tell", tell)
    write = saves.write

    def training(path: str, style: saves.Style) -> None:
        write(path, style)
        watch.forget()

    monkeypatch.setattr(saves, "write", training)
    work = writer.Writer(str(tmp_path), 0, 0, rng, None)
    watch.forget()  # the stand-in Slurm has a folder
    work.run_on(CALLS)
    assert not left, left[:5]
    assert {"claim", "execution", "choice", "kept", "published", "job", "fact", "note", "tick"} <= set(told)


def test_a_manifest_that_takes_the_place_of_another_is_synced(tmp_path: Path, watch: Watch) -> None:
    """One of a keeper that was killed before its save was there."""
    root = fresh(tmp_path)
    seen = look(os.fsencode(save(root, NEW, "s1")), read=False)
    assert seen is not None
    path = f"exec/{NEW}/kept/s1".encode()
    write_manifest(root, path, manifest_of(seen, Proof.ASSUMED))
    watch.forget()
    write_manifest(root, path, manifest_of(seen, Proof.PROVED))
    assert not watch.unsynced()


def test_a_second_save_of_one_name_is_taken_to_a_folder_that_is_synced(tmp_path: Path, watch: Watch) -> None:
    root = fresh(tmp_path)
    for number, attempt in enumerate((OLD, OTHER), start=1):
        root.publish(number * FIRST, number, kept_save(root, save(root, attempt, "s1"), attempt), attempt=attempt)
        root.make_execution(NEW)
        watch.forget()  # the training's own
        made = choose(root, NEW, epoch=9 * FIRST, again=True)
        assert made.resume is not None
        assert not watch.unsynced()
    assert os.path.relpath(made.resume, root.execution(NEW)) == "resume/2/s1"


@pytest.mark.parametrize("by", ["wrapper", "helper"])
def test_a_root_that_is_made_is_synced(tmp_path: Path, watch: Watch, by: str) -> None:
    """A publication in it is not more durable than it is."""
    path = str(tmp_path / "root")
    if by == "wrapper":
        submit_root._make(path)
    else:
        open_place(Place(root=path, job=None, epoch=0, attempt=NEW))
    assert open_root(path).listing() == []
    assert not watch.unsynced()


def test_what_a_person_announces_is_synced(tmp_path: Path, watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power loss in a maintenance does not take its window."""
    config, state = tmp_path / "dispatch.toml", tmp_path / "state"
    (state / "tick").mkdir(parents=True)
    config.write_text(f'state = "{state}"\nuser_mode = true\n')
    monkeypatch.setenv("DISPATCH_CONFIG", str(config))
    for number in range(2):  # the second takes the place of the first
        watch.forget()
        begin.callback(partition="gpu", length=f"{number + 1}h")  # type: ignore[misc]
        assert (state / "tick" / "maintenance.gpu").is_file()
        assert not watch.unsynced()


def test_the_watch_sees_what_is_not_synced(tmp_path: Path, watch: Watch) -> None:
    for number in range(4):
        os.mkdir(tmp_path / f"folder{number}")
    descriptor = os.open(tmp_path / "folder0" / "file", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    os.write(descriptor, b"x")
    os.close(descriptor)
    assert len(watch.unsynced()) == 5
    folder = os.open(tmp_path, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)
    assert watch.unsynced() == [str(tmp_path / "folder0" / "file")]
    os.rename(tmp_path / "folder0" / "file", tmp_path / "folder1" / "moved")
    assert str(tmp_path / "folder1" / "moved") in watch.unsynced()
