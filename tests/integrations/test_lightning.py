"""``DispatchCallback`` with the real Trainer of Lightning: alone, and beside ``dispatch-watch``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from tests.integrations.conftest import Told, names, program
from tests.integrations.programs.ranks import attempt

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.savers


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Told]:
    """Four executions, one after the other."""
    root = tmp_path_factory.mktemp("alone")
    return root, program("with_lightning.py", "alone", str(root))[0]


def trained(told: Told, number: int) -> dict[str, Any]:
    (found,) = [one for one in told if one["what"] == "trained" and one["execution"] == number]
    return found


def test_each_step_is_published_once_and_resumed_from(alone: tuple[Path, Told]) -> None:
    """Two ``ModelCheckpoint`` can save one step, and ``last.ckpt`` has none of its own."""
    root, told = alone
    assert trained(told, 1)["callback"] == ["DispatchCallback", True]
    assert trained(told, 1)["resume"] is None
    resumed = [os.path.basename(trained(told, number)["resume"]) for number in (2, 4)]
    assert resumed == ["epoch=0-step=15.ckpt", "epoch=0-step=30.ckpt"]
    assert [(number, step) for number, step, _ in names(root)] == [
        (1, 5), (1, 10), (1, 15), (2, 20), (2, 25), (2, 30), (4, 35), (4, 40),
    ]
    assert not [path for _, _, path in names(root) if path.endswith("last.ckpt")]


def test_the_best_checkpoint_is_carried_over_all_executions(alone: tuple[Path, Told]) -> None:
    """Lightning takes the scores of a checkpoint only where the folder is the same."""
    root, told = alone
    assert (trained(told, 1)["score"], trained(told, 2)["score"], trained(told, 4)["score"]) == (0.9, 0.9, 0.95)
    assert trained(told, 2)["best"] == str(root / "exec" / attempt(2) / "best" / "best-step=10.ckpt")
    assert trained(told, 2)["changed"] <= 1, "only of the ModelCheckpoint that has no score"
    assert trained(told, 4)["best"] == str(root / "exec" / attempt(4) / "best-step=35.ckpt")
    assert os.listdir(root / "exec" / attempt(4) / "best") == ["best-step=35.ckpt"]
    assert os.listdir(root / "exec" / attempt(2) / "best") == []


def test_a_training_that_does_not_load_what_it_was_given_is_ended(alone: tuple[Path, Told]) -> None:
    said = trained(alone[1], 3)["error"]
    assert "the save of step 5 is not published: this execution resumes from step 30" in said


def test_beside_dispatch_watch_each_save_is_one_publication(tmp_path: Path) -> None:
    root = tmp_path / "root"
    identity = {"DISPATCH_JOB": "job", "DISPATCH_EPOCH": str(10**6), "DISPATCH_ATTEMPT": attempt(1)}
    words = ("--root", str(root), "--pattern", "epoch=*-step={step}.ckpt", "--interval", "0.05", "--no-thin")
    told, said = program("with_lightning.py", "helped", below=words, **identity)
    assert told[0]["step"] == 20
    steps = [step for _, step, _ in names(root)]
    assert sorted(set(steps)) == [5, 10, 15, 20]
    regular = [path for _, _, path in names(root) if "epoch=" in path]
    assert len(regular) == len(set(regular)), "none twice"
    assert "is not published" not in said
