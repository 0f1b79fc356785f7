"""``DispatchCallback`` with the real Trainer of transformers: alone, on two ranks, and beside ``dispatch-watch``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from tests.integrations.conftest import Told, names, program
from tests.integrations.programs.ranks import attempt

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.savers, pytest.mark.sample]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Told]:
    """Four executions, one after the other."""
    root = tmp_path_factory.mktemp("alone")
    return root, program("with_transformers.py", "alone", str(root))[0]


def trained(told: Told, number: int) -> dict[str, Any]:
    (found,) = [one for one in told if one["what"] == "trained" and one["execution"] == number]
    return found


def test_each_save_is_published_and_resumed_from(alone: tuple[Path, Told]) -> None:
    """The Trainer keeps one save and its best one; what is published stays for who comes next."""
    root, told = alone
    assert trained(told, 1)["resume"] is None
    assert trained(told, 1)["callback"] == ["DispatchCallback", True]
    assert trained(told, 2)["resume"] == str(root / "exec" / attempt(2) / "resume" / "checkpoint-15")
    assert trained(told, 4)["resume"] == str(root / "exec" / attempt(4) / "resume" / "checkpoint-30")
    assert [(number, step) for number, step, _ in names(root)] == [
        (1, 5), (1, 10), (1, 15), (2, 20), (2, 25), (2, 30), (4, 35), (4, 40), (4, 45),
    ]
    assert all(path == f"exec/{attempt(number)}/kept/checkpoint-{step}" for number, step, path in names(root))


def test_the_best_save_is_carried_over_all_executions(alone: tuple[Path, Told]) -> None:
    """``load_best_model_at_end`` of the second execution loads what the first one saved, though that is thinned."""
    root, told = alone
    first, second = trained(told, 1), trained(told, 2)
    assert first["best"][:2] == [0.9, 10]
    assert second["best"] == [0.9, 10, str(root / "exec" / attempt(2) / "best" / "checkpoint-10")]
    assert second["print"] == first["prints"]["10"]
    assert second["print"] != second["prints"]["30"]
    left = root / "exec" / attempt(1)
    assert not (left / "kept" / "checkpoint-10").exists()
    assert not os.listdir(left / "best")


def test_a_training_that_does_not_load_what_it_was_given_is_ended(alone: tuple[Path, Told]) -> None:
    _, told = alone
    (said,) = [one for one in told if one["what"] == "not_resumed"]
    assert said["execution"] == 3
    assert "the save of step 5 is not published: this execution resumes from step 30" in said["error"]


def test_a_later_better_score_counts_against_the_best_of_all(alone: tuple[Path, Told]) -> None:
    root, told = alone
    last = trained(told, 4)
    assert last["best"][:2] == [0.95, 35]
    assert os.listdir(root / "exec" / attempt(4) / "best") == ["checkpoint-35"]
    assert os.listdir(root / "exec" / attempt(2) / "best") == []


def test_two_ranks_publish_once_all_are_done(tmp_path: Path) -> None:
    """The second rank writes its own file of each save late: it is in every save that is published."""
    told, _ = program("with_transformers.py", "ranks", str(tmp_path))
    kept = {one["execution"]: one["files"] for one in told if one["what"] == "kept"}
    assert (set(kept[1]), set(kept[2])) == ({"checkpoint-10"}, {"checkpoint-15", "checkpoint-20"})
    for files in [*kept[1].values(), *kept[2].values()]:
        assert {"rng_state_0.pth", "rng_state_1.pth", "trainer_state.json"} <= set(files)
    assert [(number, step) for number, step, _ in names(tmp_path)] == [(1, 5), (1, 10), (2, 15), (2, 20)]
    best = {one["rank"]: one["best"] for one in told if one["what"] == "rank" and one["execution"] == 2}
    assert best == dict.fromkeys((0, 1), str(tmp_path / "exec" / attempt(2) / "best" / "checkpoint-10"))


def test_beside_dispatch_watch_each_save_is_one_publication(tmp_path: Path) -> None:
    """Whichever of the two comes first: the Trainer may delete a save before the helper has seen it."""
    root = tmp_path / "root"
    identity = {"DISPATCH_JOB": "job", "DISPATCH_EPOCH": str(10**6), "DISPATCH_ATTEMPT": attempt(1)}
    words = ("--root", str(root), "--done", "trainer_state.json", "--interval", "0.05", "--no-thin")
    told, said = program("with_transformers.py", "helped", below=words, **identity)
    assert told == [{"what": "helped", "directory": str(root / "exec" / attempt(1)), "step": 20}]
    assert names(root) == [(1, step, f"exec/{attempt(1)}/kept/checkpoint-{step}") for step in (5, 10, 15, 20)]
    assert len(os.listdir(root / "exec" / attempt(1) / "kept")) == 4, "the callback thins as the helper was told"
    assert "is not published" not in said, said
