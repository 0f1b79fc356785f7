"""The best save in S3: what differs from a folder, where nothing goes at once and there are no links."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from slurm_dispatch.anyroot import taker
from slurm_dispatch.errors import AbsentError, StoreError
from slurm_dispatch.s3.transfer import copy_save, download
from slurm_dispatch.store import best as keeping
from slurm_dispatch.store.best import Best, best_of_all, carry_best, drop_outdone, keep_best, read_best
from slurm_dispatch.watch.local import bring_best
from tests.s3.scene import FIRST, NEW, OLD, SECOND, published
from tests.s3.stub import BUCKET

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from slurm_dispatch.s3.root import S3Root
    from tests.s3.stub import Stub

ROOT = f"s3://{BUCKET}/run"
THIRD, LAST = 3 * 10**6, "last0000000000000000"


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without waits between tries."""
    monkeypatch.setattr(keeping, "TAKE_WAITS_S", (0.0,) * len(keeping.TAKE_WAITS_S))


def kept(root: S3Root, stub: Stub, step: int, score: float, *, attempt: str = OLD, epoch: int = FIRST) -> Best:
    """A save of two objects that the saver wrote itself, and that is the best one of its execution."""
    source = f"exec/{attempt}/checkpoint-{step}"
    stub.objects[f"run/{source}/weights"] = b"weights%d" % step * 10
    stub.objects[f"run/{source}/done"] = b"1"
    return keep_best(
        root, attempt, f"{ROOT}/{source}", epoch=epoch, step=step, metric="loss", score=score,
        greater_is_better=False, take=taker(root, attempt),
    )


def carried(root: S3Root, attempt: str = NEW, epoch: int = SECOND) -> Best | None:
    take = taker(root, attempt)
    return carry_best(root, attempt, epoch=epoch, metric="loss", greater_is_better=False, take=take)


def below(stub: Stub, attempt: str) -> set[str]:
    """The objects in the best/ of an execution."""
    inside = f"run/exec/{attempt}/best/"
    return {key[len(inside) :] for key in stub.objects if key.startswith(inside)}


def test_a_copy_that_was_killed_leaves_the_one_before(
    root: S3Root, stub: Stub, opened: Callable[..., S3Root]
) -> None:
    """And the next one takes its place, with nothing of it."""
    first = kept(root, stub, 1, 2.0)
    fault = stub.fault("answer", method="PUT", key="best/checkpoint-2/weights", status=403, code="AccessDenied")
    with pytest.raises(StoreError):
        kept(root, stub, 2, 1.0)
    assert read_best(root, OLD) == first
    assert {"checkpoint-1/weights", "checkpoint-1/done"} <= below(stub, OLD)
    fault.times = 0
    stub.objects[f"run/exec/{OLD}/best/checkpoint-2/of-an-earlier-one"] = b"x"
    second = kept(root, stub, 2, 1.0)
    assert read_best(opened(), OLD) == second
    assert below(stub, OLD) == {"checkpoint-2/weights", "checkpoint-2/done"}


def test_a_removal_says_so_before_its_first_object_goes(root: S3Root, stub: Stub) -> None:
    """C109: killed in the middle, what is left is nobody's best save, and the next removal goes on."""
    kept(root, stub, 1, 2.0)
    mine = carried(root)
    fault = stub.fault("answer", method="POST", status=403, code="AccessDenied")
    more = stub.fault("answer", method="DELETE", status=403, code="AccessDenied")
    assert drop_outdone(root, NEW) == ()
    assert below(stub, OLD) == {"checkpoint-1/weights", "checkpoint-1/done"}
    assert json.loads(stub.objects[f"run/exec/{OLD}/.dispatch/best"])["removing"] is True
    assert read_best(root, OLD) is None
    assert best_of_all(root, "loss", greater_is_better=False) == mine
    fault.times = more.times = 0
    assert drop_outdone(root, NEW) == (f"exec/{OLD}/best/checkpoint-1".encode(),)
    assert below(stub, OLD) == set()
    assert below(stub, NEW) == {"checkpoint-1/weights", "checkpoint-1/done"}


def test_a_best_save_that_goes_while_it_is_copied_is_asked_for_again(root: S3Root, stub: Stub) -> None:
    """C087: a later execution has taken it over in the same moment, and removes it here: that one's is taken then."""
    kept(root, stub, 1, 2.0)
    took: list[Best | None] = []
    take = taker(root, NEW)
    assert take is not None

    def meanwhile(source: str, still: Callable[[], bool]) -> bytes:
        if not took:
            took.append(carried(root, LAST, THIRD))
            objects = {key: body for key, body in stub.objects.items() if f"{OLD}/best" in key}
            assert drop_outdone(root, LAST)
            stub.objects.update(objects)  # they go one after the other: none has gone when the copy is made
        return take(source, still)

    mine = carry_best(root, NEW, epoch=SECOND, metric="loss", greater_is_better=False, take=meanwhile)
    assert mine is not None
    assert mine.path == f"{ROOT}/exec/{NEW}/best/checkpoint-1"
    assert below(stub, NEW) == {"checkpoint-1/weights", "checkpoint-1/done"}
    assert len(took) == 1


def test_one_that_goes_while_it_is_brought_to_a_host(root: S3Root, stub: Stub, tmp_path: Path) -> None:
    """C087: half of it is never there."""
    best = kept(root, stub, 1, 2.0)
    path = bring_best(root, str(tmp_path / "here"), best)
    carried(root)
    removed = {key: body for key, body in stub.objects.items() if f"{OLD}/best" in key}
    drop_outdone(root, NEW)
    stub.objects.update(removed)
    with pytest.raises(AbsentError):
        bring_best(root, str(tmp_path / "there"), best)
    assert not [one for one in (tmp_path / "there").rglob("*") if one.is_file()]
    assert bring_best(root, str(tmp_path / "here"), best) == path


def test_a_copy_of_a_published_save_that_is_being_removed(root: S3Root, stub: Stub, tmp_path: Path) -> None:
    """C109: without a manifest and outranked, what is left of it is no save."""
    one = published(root, 1)
    published(root, 2)
    with pytest.raises(AbsentError, match="went while"):
        copy_save(root, one.path, f"exec/{NEW}/kept/checkpoint-1".encode())
    with pytest.raises(AbsentError, match="went while"):
        download(root, one.path, str(tmp_path / "copy"))
