"""Thinning: what goes, what stays, and what is never touched."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slurm_dispatch.errors import BadDataError
from slurm_dispatch.store.choice import choose
from slurm_dispatch.store.fsck import fsck
from slurm_dispatch.store.keep import keep
from slurm_dispatch.store.manifest import manifest_of, write_manifest
from slurm_dispatch.store.thin import Thinned, bound, thin
from slurm_dispatch.store.whole import Proof, look
from tests.store.scene import FIRST, NEW, OLD, SECOND, fresh, save

if TYPE_CHECKING:
    from slurm_dispatch.store.root import CheckpointRoot

NOTHING = Thinned((), ())


@pytest.fixture
def root(tmp_path: Path) -> CheckpointRoot:
    """An empty root."""
    return fresh(tmp_path)


def is_save(name: bytes) -> bool:
    """The pattern of a job."""
    return re.fullmatch(rb"checkpoint-[0-9]+", name) is not None


def _published(root: CheckpointRoot, attempt: str, epoch: int, *steps: int) -> list[str]:
    paths = []
    for step in steps:
        kept = keep(root, attempt, save(root, attempt, f"checkpoint-{step}"), proof=Proof.PROVED)
        assert kept is not None
        root.publish(epoch, step, kept, attempt=attempt)
        paths.append(os.path.join(root.path, os.fsdecode(kept)))
    return paths


def _saves(root: CheckpointRoot, attempt: str, folder: str = "kept") -> list[str]:
    try:
        return sorted(os.listdir(os.path.join(root.execution(attempt), folder)))
    except FileNotFoundError:
        return []


def test_nothing_goes_before_the_second_publication(root: CheckpointRoot) -> None:
    _published(root, OLD, FIRST, 1, 2, 3, 4, 5)
    _published(root, NEW, SECOND, 6)
    assert thin(root, NEW, epoch=SECOND, is_save=is_save) == NOTHING
    assert len(_saves(root, OLD)) == 5


def test_what_stays(root: CheckpointRoot) -> None:
    """The last three of the root, the greatest step of all, and the saver's log."""
    _published(root, OLD, FIRST, 1, 2, 900, 3, 4)
    _published(root, NEW, SECOND, 10, 20)
    log = Path(root.execution(OLD), "train.log")
    log.write_text("the loss of every step")
    choose(root, OLD, epoch=FIRST)
    thinned = thin(root, NEW, epoch=SECOND, is_save=is_save)
    assert thinned.trouble == ()
    # 900 is both the next in order (epoch, then step) and the greatest of all.
    assert _saves(root, OLD) == ["checkpoint-900"]
    assert _saves(root, NEW) == ["checkpoint-10", "checkpoint-20"]
    assert log.read_text() == "the loss of every step"
    assert sorted(os.listdir(root.execution(OLD))) == [".dispatch", "kept", "resume", "train.log"]
    assert _saves(root, OLD, "resume") == []
    assert len(root.listing()) == 7
    latest = root.latest()
    assert latest is not None
    assert latest.publication.step == 20


def test_own_saves_and_resume(root: CheckpointRoot) -> None:
    _published(root, OLD, FIRST, 5)
    root.make_execution(NEW)
    assert choose(root, NEW, epoch=SECOND).step == 5
    _published(root, NEW, SECOND, 10)
    assert _saves(root, NEW, "resume") == ["checkpoint-5"]
    _published(root, NEW, SECOND, 20, 30, 40)
    thin(root, NEW, epoch=SECOND, is_save=is_save)
    assert _saves(root, NEW, "resume") == []
    assert _saves(root, NEW) == ["checkpoint-20", "checkpoint-30", "checkpoint-40"]
    thin(root, NEW, epoch=SECOND, keep_root=1, keep_own=2, is_save=is_save)
    assert _saves(root, NEW) == ["checkpoint-30", "checkpoint-40"]
    # The training's own saves are its own to rotate while it runs.
    assert os.path.exists(os.path.join(root.execution(NEW), "checkpoint-10"))


def test_an_outranked_run_thins_nothing_of_its_replacement(root: CheckpointRoot) -> None:
    """C163: the old run lives, publishes, and thins: never what is not older than itself."""
    _published(root, NEW, SECOND, 1, 2, 3, 4, 5, 6)
    unknown = save(root, "unknown", "checkpoint-1")
    _published(root, "same", FIRST, 1, 2)
    _published(root, OLD, FIRST, 1000, 2000)
    thinned = thin(root, OLD, epoch=FIRST, is_save=is_save)
    assert _saves(root, NEW) == [f"checkpoint-{n}" for n in range(1, 7)]
    assert os.path.exists(unknown)
    assert len(_saves(root, "same")) == 2
    assert all(path.startswith(f"exec/{OLD}/".encode()) for path in thinned.removed)


def test_an_execution_that_chose_and_published_nothing(root: CheckpointRoot) -> None:
    """Its epoch is known from its choice: its saves go, and what a killed keeper left."""
    root.make_execution(OLD)
    choose(root, OLD, epoch=FIRST)
    for name in ("checkpoint-5", "tmp-checkpoint-6", "checkpoint-7.orbax-checkpoint-tmp-17"):
        save(root, OLD, name)
    os.makedirs(os.path.join(root.execution(OLD), "kept", ".tmp-0123456789abcdef"))
    os.makedirs(os.path.join(root.execution(OLD), ".tmp-0123456789abcdef"))
    save(root, OLD, "tmp-logs")
    _published(root, NEW, SECOND, 10, 20)
    thin(root, NEW, epoch=SECOND, is_save=is_save)
    assert _saves(root, OLD) == []
    assert sorted(os.listdir(root.execution(OLD))) == [".dispatch", "kept", "tmp-logs"]


def test_what_a_living_keeper_makes_goes_as_one(root: CheckpointRoot, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ghost that is keeping a save when it is thinned never gives half of it a save's name."""
    root.make_execution(OLD)
    choose(root, OLD, epoch=FIRST)
    kept = Path(root.execution(OLD), "kept")
    making = kept / ".tmp-0123456789abcdef"
    making.mkdir(parents=True)
    for name in ("done", "weights"):
        (making / name).write_bytes(b"x")
    _published(root, NEW, SECOND, 10, 20)
    real, tried = os.unlink, []

    def unlink(path: bytes, *, dir_fd: int | None = None) -> None:
        real(path, dir_fd=dir_fd)
        if path in {b"done", b"weights"} and not tried:
            tried.append(path)
            with pytest.raises(FileNotFoundError):
                os.rename(making, kept / "checkpoint-5")

    monkeypatch.setattr(os, "unlink", unlink)
    assert thin(root, NEW, epoch=SECOND).trouble == ()
    assert tried
    assert _saves(root, OLD) == []


def test_never_through_a_link(root: CheckpointRoot, tmp_path: Path) -> None:
    """What an old run's links name is not what is removed."""
    _published(root, OLD, FIRST, 1, 2)
    precious = tmp_path / "precious"
    (precious / "checkpoint-1").mkdir(parents=True)
    (precious / "checkpoint-1" / "weights").write_bytes(b"x")
    os.symlink(precious, os.path.join(root.execution(OLD), "checkpoint-77"))
    os.symlink(precious / "checkpoint-1", os.path.join(root.execution(OLD), "kept", "checkpoint-78"))
    os.symlink(precious, os.path.join(root.execution(OLD), "resume"))
    linked = os.path.join(root.path, "exec", "linked")
    os.symlink(precious, linked)
    root.make_execution("inner")
    choose(root, "inner", epoch=FIRST)
    os.symlink(precious, os.path.join(root.execution("inner"), "kept"))
    _published(root, NEW, SECOND, 10, 20, 30)
    thin(root, NEW, epoch=SECOND, is_save=is_save)
    assert (precious / "checkpoint-1" / "weights").read_bytes() == b"x"
    assert not os.path.lexists(os.path.join(root.execution(OLD), "checkpoint-77"))
    assert _saves(root, OLD) == []
    assert os.path.islink(linked)


@pytest.mark.parametrize("name", ["a\nb", "-rf", "\x1b[2J", "\udcff\udcfe", " ", "..."])
def test_hostile_names(root: CheckpointRoot, name: str) -> None:
    _published(root, OLD, FIRST, 1)
    inside = os.path.join(root.execution(OLD), "checkpoint-5", name)
    os.makedirs(inside)
    Path(inside, name).write_bytes(b"x")
    beside = os.path.join(root.execution(OLD), name)
    os.makedirs(beside)
    _published(root, NEW, SECOND, 10, 20)
    thinned = thin(root, NEW, epoch=SECOND, is_save=is_save)
    assert thinned.trouble == ()
    assert not os.path.exists(os.path.dirname(inside))
    assert os.path.isdir(beside)


def test_a_deep_tree(root: CheckpointRoot) -> None:
    """Deeper than is removed: it is said, and the rest is thinned."""
    _published(root, OLD, FIRST, 1, 2, 3)
    deep = os.path.join(root.execution(OLD), "checkpoint-5")
    os.mkdir(deep)
    descriptor = os.open(deep, os.O_RDONLY)
    for _ in range(300):
        os.mkdir("d", dir_fd=descriptor)
        inner = os.open("d", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = inner
    os.close(descriptor)
    _published(root, NEW, SECOND, 10, 20)
    thinned = thin(root, NEW, epoch=SECOND, is_save=is_save)
    assert any("deep" in line for line in thinned.trouble)
    assert _saves(root, OLD) == ["checkpoint-3"]


def test_keeping_none_is_refused(root: CheckpointRoot) -> None:
    for own, whole in ((0, 1), (1, 0)):
        with pytest.raises(BadDataError, match="cannot keep 0"):
            thin(root, NEW, epoch=SECOND, keep_own=own, keep_root=whole)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=15, deadline=None)
@given(
    runs=st.lists(st.lists(st.integers(1, 99), unique=True, min_size=0, max_size=5), min_size=1, max_size=4),
    number=st.integers(0, 10**9),
)
def test_latest_is_never_thinned(tmp_path: Path, runs: list[list[int]], number: int) -> None:
    """After any history and any thinning: latest is the same, the last three are there, and the greatest step is."""
    folder = tmp_path / f"{number}-{len(os.listdir(tmp_path))}"
    folder.mkdir()
    root = fresh(folder)
    for index, steps in enumerate(runs):
        attempt, epoch = f"run{index}", (index + 1) * 10**6
        root.make_execution(attempt)
        choose(root, attempt, epoch=epoch)
        for step in steps:
            _published(root, attempt, epoch, step)
            before = root.listing()
            thin(root, attempt, epoch=epoch, is_save=is_save)
            assert root.listing() == before
            greatest = max(before, key=lambda p: p.step)
            for stays in [*before[:3], greatest]:
                assert os.path.exists(os.path.join(root.path, os.fsdecode(stays.path))), stays


def test_the_manifest_goes_with_its_save(root: CheckpointRoot) -> None:
    """One a publication would pile up for as long as the job lives."""
    _published(root, OLD, FIRST, *range(1, 11))
    _published(root, NEW, SECOND, *range(11, 21))
    thin(root, NEW, epoch=SECOND, is_save=is_save)
    for attempt in (OLD, NEW):
        left = [name for name in os.listdir(os.path.join(root.execution(attempt), ".dispatch")) if "save-" in name]
        assert sorted(left) == [f"save-{name}" for name in _saves(root, attempt)]


def test_space_stays_within_the_bound(root: CheckpointRoot) -> None:
    """Many runs in a row, each replaced after a few saves: the bound that the plan prints holds all the time."""
    size, files = 100, 2
    most = bound(size, files + 1, own_saves=1)
    for index in range(12):
        attempt, epoch = f"run{index}", (index + 1) * 10**6
        root.make_execution(attempt)
        choose(root, attempt, epoch=epoch)
        for turn in range(4):
            step = index * 10 + turn
            path = save(root, attempt, f"checkpoint-{step}", b"x" * size)
            kept = keep(root, attempt, path, proof=Proof.PROVED)
            assert kept is not None
            root.publish(epoch, step, kept, attempt=attempt)
            if turn:
                before = os.path.join(root.execution(attempt), f"checkpoint-{step - 1}")
                os.unlink(before + "/weights")
                os.rmdir(before)
            thin(root, attempt, epoch=epoch, is_save=is_save)
            weights = list(Path(root.path, "exec").rglob("weights"))
            assert len(weights) <= most.saves
            assert sum(p.stat().st_size for p in weights) <= most.size


@pytest.mark.parametrize(
    ("stays", "goes"), [("checkpoint-9/model", "checkpoint-9"), ("checkpoint-9", "checkpoint-9/model")]
)
def test_what_holds_a_save_that_stays_or_is_a_part_of_it_stays(root: CheckpointRoot, stays: str, goes: str) -> None:
    """Published by hand: a folder in a save, and the save around it, are two publications of one thing."""
    path = save(root, OLD, "checkpoint-9")
    os.mkdir(os.path.join(path, "model"))
    for name in ("weights", "model/part"):
        Path(path, name).write_bytes(b"x")
    for step, name in ((900, stays), (9, goes)):
        root.publish(FIRST, step, os.path.join(root.execution(OLD), name), attempt=OLD)
    _published(root, NEW, SECOND, 10, 20, 30)
    thin(root, NEW, epoch=SECOND, is_save=is_save)
    assert sorted(os.listdir(path)) == ["model", "weights"]
    assert os.listdir(os.path.join(path, "model")) == ["part"]


def test_a_pass_does_not_try_what_went_earlier(root: CheckpointRoot, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job of many weeks has publications without number; a pass costs one look a folder beyond what it removes."""
    _published(root, OLD, FIRST, *range(1, 41))
    _published(root, NEW, SECOND, *range(41, 81))
    assert thin(root, NEW, epoch=SECOND).removed
    opened: list[object] = []
    real = os.open

    def counted(path: str, *rest: int, dir_fd: int | None = None) -> int:
        opened.append(path)
        return real(path, *rest, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", counted)
    assert thin(root, NEW, epoch=SECOND).removed == ()
    assert len(opened) < 60


def test_manifests_of_what_a_saver_removed_go(root: CheckpointRoot) -> None:
    """Where saves are published where they are, the saver rotates them: that is no fault, and nothing piles up."""
    for step in (1, 2, 3):
        path = os.fsencode(save(root, OLD, f"checkpoint-{step}"))
        seen = look(path)
        assert seen is not None
        write_manifest(root, os.path.relpath(path, root.raw), manifest_of(seen, Proof.PROVED))
        root.publish(FIRST, step, path, attempt=OLD)
    for step in (1, 2):
        shutil.rmtree(os.path.join(root.execution(OLD), f"checkpoint-{step}"))
    assert fsck(root).faults == []
    assert thin(root, OLD, epoch=FIRST) == NOTHING
    assert [name for name in root.notes(OLD).names() if name.startswith("save-")] == ["save-checkpoint-3"]
