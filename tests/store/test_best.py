"""The best save over all executions: kept, carried on, pinned from thinning, and replaced by a better one."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from slurm_dispatch.errors import AbsentError, BadDataError
from slurm_dispatch.store.best import Best, best_of_all, carry_best, drop_outdone, keep_best, read_best
from slurm_dispatch.store.choice import choose
from slurm_dispatch.store.keep import keep
from slurm_dispatch.store.thin import thin
from slurm_dispatch.store.whole import Proof
from tests.store.scene import BIG, FIRST, NEW, OLD, SECOND, fresh, save

if TYPE_CHECKING:
    from pathlib import Path

    from slurm_dispatch.store.root import CheckpointRoot

LAST = "last0000000000000000"
THIRD = 3 * 10**6


@pytest.fixture
def root(tmp_path: Path) -> CheckpointRoot:
    """An empty root."""
    return fresh(tmp_path)


def kept(root: CheckpointRoot, attempt: str, epoch: int, step: int, score: float, *, greater: bool = False) -> Best:
    """A save of a step that is the best one of its execution."""
    path = save(root, attempt, f"checkpoint-{step}", BIG, small=b"x")
    return keep_best(
        root, attempt, path, epoch=epoch, step=step, metric="loss", score=score, greater_is_better=greater
    )


def carried(root: CheckpointRoot, attempt: str, epoch: int) -> Best | None:
    return carry_best(root, attempt, epoch=epoch, metric="loss", greater_is_better=False)


def published(root: CheckpointRoot, attempt: str, epoch: int, *steps: int) -> None:
    for step in steps:
        path = keep(root, attempt, save(root, attempt, f"checkpoint-{step}"), proof=Proof.PROVED)
        assert path is not None
        root.publish(epoch, step, path, attempt=attempt)


def test_a_better_one_takes_the_place(root: CheckpointRoot) -> None:
    first = kept(root, OLD, FIRST, 10, 2.0)
    assert first.path == os.path.join(root.execution(OLD), "best", "checkpoint-10")
    assert sorted(os.listdir(first.path)) == ["small", "weights"]
    second = kept(root, OLD, FIRST, 20, 1.0)
    assert read_best(root, OLD) == second
    assert os.listdir(os.path.join(root.execution(OLD), "best")) == ["checkpoint-20"]


def test_it_is_carried_on_and_only_then_the_old_one_goes(root: CheckpointRoot) -> None:
    """Thinning takes no best save, and an execution that knows of none removes none."""
    kept(root, OLD, FIRST, 10, 2.0)
    choose(root, OLD, epoch=FIRST)
    published(root, NEW, SECOND, 30, 40, 50, 60)
    thin(root, NEW, epoch=SECOND, is_save=lambda name: True)
    assert drop_outdone(root, NEW) == ()
    assert best_of_all(root, "loss", greater_is_better=False) == read_best(root, OLD)
    mine = carried(root, NEW, SECOND)
    assert mine == Best("loss", 2.0, False, SECOND, 10, os.path.join(root.execution(NEW), "best", "checkpoint-10"))
    assert os.stat(os.path.join(mine.path, "weights")).st_nlink == 2
    assert drop_outdone(root, NEW) == (f"exec/{OLD}/best/checkpoint-10".encode(),)
    assert os.listdir(os.path.join(root.execution(OLD), "best")) == []
    assert carried(root, NEW, SECOND) == best_of_all(root, "loss", greater_is_better=False) == mine
    with open(os.path.join(mine.path, "weights"), "rb") as file:
        assert file.read() == BIG


def test_a_better_one_of_an_older_execution_stays(root: CheckpointRoot) -> None:
    """A replaced run that lives on finds a better one: it is pinned until somebody has taken it over."""
    kept(root, OLD, FIRST, 10, 2.0)
    root.make_execution(NEW)
    carried(root, NEW, SECOND)
    ghost = kept(root, OLD, FIRST, 70, 0.5)
    assert drop_outdone(root, NEW) == ()
    assert best_of_all(root, "loss", greater_is_better=False) == ghost
    assert os.path.isdir(ghost.path)
    root.make_execution(LAST)
    assert carried(root, LAST, THIRD) == Best(
        "loss", 0.5, False, THIRD, 70, os.path.join(root.execution(LAST), "best", "checkpoint-70")
    )


def test_another_measure_is_not_compared(root: CheckpointRoot) -> None:
    kept(root, OLD, FIRST, 10, 2.0, greater=True)
    kept(root, NEW, SECOND, 20, 1.0)
    assert drop_outdone(root, NEW) == ()
    greatest = best_of_all(root, "loss", greater_is_better=True)
    assert greatest is not None
    assert greatest.step == 10
    assert best_of_all(root, "accuracy", greater_is_better=True) is None


def test_a_save_that_is_gone_is_not_the_best_one(root: CheckpointRoot) -> None:
    kept(root, OLD, FIRST, 10, 2.0)
    gone = kept(root, NEW, SECOND, 20, 1.0)
    os.rename(gone.path, os.path.join(root.path, "away"))
    found = best_of_all(root, "loss", greater_is_better=False)
    assert found is not None
    assert found.step == 10
    with pytest.raises(AbsentError):
        keep_best(root, NEW, gone.path, epoch=SECOND, step=1, metric="loss", score=0, greater_is_better=False)


def test_it_is_taken_again_if_its_execution_replaces_it_meanwhile(
    root: CheckpointRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    from slurm_dispatch.store import best as module

    kept(root, OLD, FIRST, 10, 2.0)
    root.make_execution(NEW)
    looks = []

    def look_then_replace(*words: object, **more: object) -> Best | None:
        found = best_of_all(*words, **more)  # type: ignore[arg-type]
        if not looks:
            kept(root, OLD, FIRST, 20, 1.0)
        looks.append(found)
        return found

    monkeypatch.setattr(module, "best_of_all", look_then_replace)
    mine = carried(root, NEW, SECOND)
    assert mine is not None
    assert (mine.step, mine.score) == (20, 1.0)
    assert os.path.isdir(mine.path)
    assert len(looks) == 2


def test_another_save_of_the_same_name_gets_a_folder_of_its_own(root: CheckpointRoot) -> None:
    """A later turn of the command writes the name again."""
    first = kept(root, OLD, FIRST, 10, 2.0)
    source = os.path.join(root.execution(OLD), "checkpoint-10", "small")
    with open(source, "wb") as file:
        file.write(b"longer")
    again = keep_best(
        root, OLD, os.path.dirname(source), epoch=FIRST, step=10, metric="loss", score=1.0, greater_is_better=False
    )
    assert again.path == os.path.join(root.execution(OLD), "best", "2", "checkpoint-10")
    assert not os.path.exists(first.path)
    assert read_best(root, OLD) == again


@pytest.mark.parametrize("score", [float("nan"), float("inf")])
def test_a_score_is_a_number(root: CheckpointRoot, score: float) -> None:
    with pytest.raises(BadDataError, match=f"the score of save .* is {score}"):
        kept(root, OLD, FIRST, 10, score)
    assert read_best(root, OLD) is None


@pytest.mark.parametrize("change", [{"v": 2}, {"path": "exec/other/best/x"}, {"score": None}, {"epoch": 5}])
def test_a_record_that_makes_no_sense_is_an_error(root: CheckpointRoot, change: dict[str, object]) -> None:
    kept(root, OLD, FIRST, 10, 2.0)
    path = os.path.join(root.execution(OLD), ".dispatch", "best")
    with open(path, encoding="ascii") as file:
        body = json.load(file)
    with open(path, "w", encoding="ascii") as file:
        json.dump({**body, **change}, file)
    with pytest.raises(BadDataError, match="does not parse"):
        best_of_all(root, "loss", greater_is_better=False)


def test_only_older_ones_that_are_known_to_be_go(root: CheckpointRoot) -> None:
    """Nothing goes for an execution whose own best save is gone, and nothing of a later one."""
    kept(root, OLD, FIRST, 10, 2.0)
    mine = kept(root, NEW, SECOND, 20, 1.0)
    assert drop_outdone(root, OLD) == ()
    os.rename(mine.path, os.path.join(root.path, "away"))
    assert drop_outdone(root, NEW) == ()
    os.rename(os.path.join(root.path, "away"), mine.path)
    assert drop_outdone(root, NEW) == (f"exec/{OLD}/best/checkpoint-10".encode(),)
    assert best_of_all(root, "loss", greater_is_better=False) == mine
