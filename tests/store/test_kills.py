"""kill -9 at every call of publish, keep, claim, choose, thin: nothing torn or twice, and the next run goes on."""

from __future__ import annotations

import os
from pathlib import Path

from slurm_dispatch.model.publication import Publication
from slurm_dispatch.store.choice import read_choice
from slurm_dispatch.store.keep import keep
from slurm_dispatch.store.root import CheckpointRoot, open_root
from slurm_dispatch.store.whole import Proof
from tests.kill import Point, Run, kill_at_every_call
from tests.store.scene import BIG, FIRST, NEW, OLD, SECOND, dispatch, fresh, save, script, tree


def _root(folder: Path) -> CheckpointRoot:
    return open_root(str(folder / "root"))


def _earlier(folder: Path, epoch: int = FIRST) -> CheckpointRoot:
    """A root with one publication of an older run, kept. Of epoch 0 it is an unmanaged run's: nobody's generation."""
    root = fresh(folder)
    kept = keep(root, OLD, save(root, OLD, "checkpoint-3", BIG, small=b"s"), proof=Proof.PROVED)
    assert kept is not None
    root.publish(epoch, 3, kept, attempt=OLD)
    return root


def _steps(root: CheckpointRoot) -> list[int]:
    return [publication.step for publication in root.listing()]


def test_publish(tmp_path: Path) -> None:
    """P2: a crash leaves a whole publication or none, and the earlier one is there all the time."""

    def scene(folder: Path) -> Run:
        root = _earlier(folder)
        path = save(root, NEW, "checkpoint-5")
        return dispatch(root, "publish", "--sync", "--step", "5", path)

    def check(folder: Path, point: Point) -> None:
        root = _root(folder)
        assert _steps(root) in ([3], [5, 3])
        latest = root.latest()
        assert latest is not None
        for name in os.listdir(root.path + "/pub"):
            assert os.stat(f"{root.path}/pub/{name}").st_size == 0

    def finished(folder: Path) -> None:
        root = _root(folder)
        assert _steps(root) == [5, 3]
        latest = root.latest()
        assert latest is not None
        assert latest.publication == Publication(SECOND, 5, f"exec/{NEW}/checkpoint-5".encode())

    points = kill_at_every_call(tmp_path, scene, check=check, finished=finished, least=10)
    assert {"openat", "fsync", "exit_group"} <= {point.call for point in points}


def test_keep_and_publish(tmp_path: Path) -> None:
    """C054: what is in ``kept/`` under a save's name is whole, whenever the keeper dies."""
    body = f"""
from slurm_dispatch.store.keep import keep, sweep_kept
from slurm_dispatch.store.whole import Proof
sweep_kept(root, {NEW!r})
kept = keep(root, {NEW!r}, root.execution({NEW!r}) + '/checkpoint-5', proof=Proof.PROVED)
root.publish({SECOND}, 5, kept, attempt={NEW!r})
"""

    def scene(folder: Path) -> Run:
        root = _earlier(folder)
        path = save(root, NEW, "checkpoint-5", BIG, small=b"state")
        os.mkdir(path + "/inner")
        Path(path, "inner", "rng").write_bytes(b"rng")
        return script(root, body)

    def check(folder: Path, point: Point) -> None:
        root = _root(folder)
        kept = Path(root.execution(NEW), "kept", "checkpoint-5")
        source = tree(Path(root.execution(NEW), "checkpoint-5"))
        assert source == {"weights": BIG, "small": b"state", "inner/rng": b"rng"}
        if kept.exists():
            assert tree(kept) == source
        assert _steps(root) == [3] or (_steps(root) == [5, 3] and kept.exists())
        assert root.latest() is not None

    def finished(folder: Path) -> None:
        check(folder, Point("", 0, ""))
        root = _root(folder)
        assert _steps(root) == [5, 3]
        assert os.listdir(os.path.join(root.execution(NEW), "kept")) == ["checkpoint-5"]

    points = kill_at_every_call(tmp_path, scene, check=check, finished=finished, least=25)
    assert {"mkdir", "fsync", "rename"} <= {point.call.removesuffix("at2").removesuffix("at") for point in points}


def test_claim_and_choose(tmp_path: Path) -> None:
    """A helper that dies before its command starts: the next one finds one choice, or makes one."""
    body = f"""
from slurm_dispatch.store.choice import choose
root.claim('mine', 0)
root.make_execution({NEW!r})
print(choose(root, {NEW!r}, epoch={SECOND}).step)
"""

    def scene(folder: Path) -> Run:
        return script(_earlier(folder, epoch=0), body)

    def check(folder: Path, point: Point) -> None:
        root = _root(folder)
        own = os.path.join(root.path, "own")
        assert not os.path.exists(own) or os.listdir(own) in ([], ["0"])
        choice = read_choice(root, NEW)
        if choice is not None:
            assert choice.step == 3
            assert choice.resume is not None
            assert tree(choice.resume) == {"weights": BIG, "small": b"s"}

    def finished(folder: Path) -> None:
        check(folder, Point("", 0, ""))
        choice = read_choice(_root(folder), NEW)
        assert choice is not None
        assert choice.turn == 1

    kill_at_every_call(tmp_path, scene, check=check, finished=finished, least=25)


def test_thin(tmp_path: Path) -> None:
    """A save that is half removed never looks like one that is there."""
    body = f"""
from slurm_dispatch.store.thin import thin
print(thin(root, {NEW!r}, epoch={SECOND}, keep_root=2, is_save=lambda name: name.startswith(b'checkpoint-')).trouble)
"""

    def scene(folder: Path) -> Run:
        root = _earlier(folder)
        for step in (5, 6):
            kept = keep(root, NEW, save(root, NEW, f"checkpoint-{step}"), proof=Proof.PROVED)
            assert kept is not None
            root.publish(SECOND, step, kept, attempt=NEW)
        return script(root, body)

    def check(folder: Path, point: Point) -> None:
        root = _root(folder)
        assert _steps(root) == [6, 5, 3]
        for publication in root.listing():
            path = os.path.join(root.path, os.fsdecode(publication.path))
            whole = {"weights": BIG, "small": b"s"} if publication.step == 3 else {"weights": b"weights"}
            assert tree(path) == whole or (publication.step == 3 and not os.path.exists(path))

    def finished(folder: Path) -> None:
        check(folder, Point("", 0, ""))
        root = _root(folder)
        assert os.listdir(os.path.join(root.execution(OLD), "kept")) == []
        assert sorted(os.listdir(root.execution(OLD))) == [".dispatch", "kept"]

    kill_at_every_call(tmp_path, scene, check=check, finished=finished, least=8)
