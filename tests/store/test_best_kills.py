"""kill -9 at every call of keeping, carrying and dropping best saves: there is a whole best one all the time."""

from __future__ import annotations

import os
from pathlib import Path

from slurm_dispatch.store.best import best_of_all, keep_best
from slurm_dispatch.store.root import CheckpointRoot, open_root
from tests.kill import Point, Run, kill_at_every_call
from tests.store.scene import BIG, FIRST, NEW, OLD, SECOND, fresh, save, script, tree

WHOLE = {"weights": BIG, "small": b"state"}


def _best(root: CheckpointRoot, attempt: str, epoch: int, step: int, score: float) -> str:
    path = save(root, attempt, f"checkpoint-{step}", BIG, small=b"state")
    return keep_best(
        root, attempt, path, epoch=epoch, step=step, metric="loss", score=score, greater_is_better=False
    ).path


def _whole_one(folder: Path) -> int:
    """The step of the best save, which is there and whole."""
    found = best_of_all(open_root(str(folder / "root")), "loss", greater_is_better=False)
    assert found is not None
    assert tree(Path(found.path)) == WHOLE
    return found.step


def test_a_better_one_in_the_place_of_the_one_before(tmp_path: Path) -> None:
    body = f"""
from slurm_dispatch.store.best import keep_best
source = root.execution({NEW!r}) + '/checkpoint-20'
keep_best(root, {NEW!r}, source, epoch={SECOND}, step=20, metric='loss', score=1.0, greater_is_better=False)
"""

    def scene(folder: Path) -> Run:
        root = fresh(folder)
        _best(root, NEW, SECOND, 10, 2.0)
        save(root, NEW, "checkpoint-20", BIG, small=b"state")
        return script(root, body)

    def check(folder: Path, point: Point) -> None:
        assert _whole_one(folder) in {10, 20}

    def finished(folder: Path) -> None:
        assert _whole_one(folder) == 20
        root = open_root(str(folder / "root"))
        assert os.listdir(os.path.join(root.execution(NEW), "best")) == ["checkpoint-20"]

    points = kill_at_every_call(tmp_path, scene, check=check, finished=finished, least=15)
    assert {"rename", "fsync"} <= {point.call.removesuffix("at2").removesuffix("at") for point in points}


def test_the_best_of_an_older_execution_is_taken_over(tmp_path: Path) -> None:
    body = f"""
from slurm_dispatch.store.best import carry_best, drop_outdone
carry_best(root, {NEW!r}, epoch={SECOND}, metric='loss', greater_is_better=False)
drop_outdone(root, {NEW!r})
"""

    def scene(folder: Path) -> Run:
        root = fresh(folder)
        _best(root, OLD, FIRST, 10, 2.0)
        root.make_execution(NEW)
        return script(root, body)

    def check(folder: Path, point: Point) -> None:
        assert _whole_one(folder) == 10

    def finished(folder: Path) -> None:
        check(folder, Point("", 0, ""))
        root = open_root(str(folder / "root"))
        assert os.listdir(os.path.join(root.execution(OLD), "best")) == []
        assert os.listdir(os.path.join(root.execution(NEW), "best")) == ["checkpoint-10"]

    kill_at_every_call(tmp_path, scene, check=check, finished=finished, least=15)
