"""``torch.distributed.checkpoint`` on two ranks: an asynchronous save is published when its future is done."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integrations.conftest import Told, names, program
from tests.integrations.programs.ranks import attempt

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.savers


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Told]:
    """Two ranks, four saves."""
    root = tmp_path_factory.mktemp("dcp")
    return root, program("with_dcp.py", str(root))[0]


def test_rank_0_publishes_what_all_ranks_have_written(told: tuple[Path, Told]) -> None:
    """The second rank writes its files of step 10 late."""
    root, lines = told
    saved = {(one["rank"], one["step"]): (one["path"], one["late"]) for one in lines if one["what"] == "saved"}
    kept = f"exec/{attempt(1)}/kept/step-"
    assert {key: path for key, (path, _) in saved.items()} == {
        (0, 5): kept + "5", (1, 5): None, (0, 10): kept + "10", (1, 10): None,
    }
    assert saved[0, 10][1], "not before the last rank was done"
    assert names(root) == [(1, 5, kept + "5"), (1, 10, kept + "10")]
    (files,) = [one["files"] for one in lines if one["what"] == "kept"]
    whole = [".metadata", "__0_0.distcp", "__1_0.distcp"]
    assert files == {"step-5": whole, "step-10": whole}


def test_a_save_that_failed_is_not_published_and_says_so(told: tuple[Path, Told]) -> None:
    failed = {one["rank"]: one["error"] for one in told[1] if one["what"] == "failed"}
    assert failed == {0: "CheckpointException", 1: "CheckpointException"}
    assert not [step for _, step, _ in names(told[0]) if step == 15]


def test_what_cannot_be_published_is_the_futures_error(told: tuple[Path, Told]) -> None:
    outside = {one["rank"]: one["error"] for one in told[1] if one["what"] == "outside"}
    assert outside == {0: "BadDataError", 1: None}
