"""Thinning, gc, du and fsck on a root in S3: the rules of a folder, and what differs."""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING

import pytest

from slurm_dispatch.anyroot import freed, inspect, space
from slurm_dispatch.errors import AbsentError, CannotCreateError
from slurm_dispatch.model.identity import new_attempt
from slurm_dispatch.s3.manifest import record
from slurm_dispatch.s3.transfer import download
from slurm_dispatch.store.choice import Choice, choose_by, read_choice
from slurm_dispatch.store.fsck import fsck
from slurm_dispatch.store.gc import Known, Rules, Standing, plan
from slurm_dispatch.store.keep import Taken
from slurm_dispatch.store.outranked import remove_all
from slurm_dispatch.store.sound import Condition
from slurm_dispatch.store.thin import thin
from slurm_dispatch.store.whole import Proof
from tests.s3.scene import FIRST, NEW, OLD, SECOND
from tests.s3.test_commands import ROOT, run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from slurm_dispatch.s3.root import S3Root
    from tests.s3.stub import Stub

THIRD, LAST = 3 * 10**6, "last0000000000000000"


def kept(root: S3Root, step: int, *, epoch: int = FIRST, attempt: str = OLD) -> bytes:
    """A save that the helper has uploaded and published."""
    path = f"exec/{attempt}/kept/checkpoint-{step}"
    for name, content in (("weights", b"weights" * 100), ("done", b"1")):
        root.bucket.replace(root.place.key(path, name), content, root.bucket.deadline())
    record(root, path.encode(), Proof.PROVED)
    root.publish(epoch, step, path, attempt=attempt)
    return path.encode()


def chosen(root: S3Root, attempt: str, epoch: int) -> Choice:
    """The attempt has chosen the latest, and is still bringing it to its hosts."""

    def latest() -> Taken | None:
        save = root.latest()
        return None if save is None else Taken(save, save.path)

    return choose_by(root, attempt, latest, epoch=epoch, look=lambda _: True)


def saves(stub: Stub) -> set[str]:
    """What is there in kept/ of all executions."""
    return {key.split("/kept/")[1].split("/")[0] for key in stub.objects if "/kept/" in key}


def test_a_choice_is_made_once(root: S3Root, opened: Callable[..., S3Root], stub: Stub) -> None:
    """C094: of many who choose at once all get the same, and it is relative to the root."""
    kept(root, 5)
    first = chosen(root, NEW, SECOND)
    kept(root, 6)
    assert chosen(opened(), NEW, SECOND) == first
    assert read_choice(opened(), NEW) == first
    assert (first.step, first.resume) == (5, f"{ROOT}/exec/{OLD}/kept/checkpoint-5")
    assert json.loads(stub.objects[f"run/exec/{NEW}/.dispatch/choice"])["resume"] == f"exec/{OLD}/kept/checkpoint-5"


def test_who_comes_second_reads_the_first_choice(root: S3Root, opened: Callable[..., S3Root]) -> None:
    """The other one chose between our look for a choice and our note."""
    kept(root, 5)
    other = opened()

    def late() -> Taken | None:
        chosen(other, NEW, SECOND)
        kept(other, 6)
        save = root.latest()
        return None if save is None else Taken(save, save.path)

    assert choose_by(root, NEW, late, epoch=SECOND).step == 5


def test_thinning_takes_what_is_outranked(root: S3Root, stub: Stub) -> None:
    for step in (1, 2, 3, 4):
        kept(root, step)
    chosen(root, OLD, FIRST)
    assert thin(root, NEW, epoch=SECOND).removed == ()
    kept(root, 3, epoch=SECOND, attempt=NEW)
    kept(root, 5, epoch=SECOND, attempt=NEW)
    done = thin(root, NEW, epoch=SECOND, keep_own=1, keep_root=2)
    assert done.trouble == ()
    assert len(done.removed) == 4
    assert saves(stub) == {"checkpoint-3", "checkpoint-5"}
    assert not any(f"{OLD}/.dispatch/save-" in key for key in stub.objects)
    assert len(root.listing()) == 6


def test_what_a_newer_execution_brings_to_its_hosts_stays(root: S3Root, stub: Stub) -> None:
    """C087: there are no links in S3: an elder that still runs would remove what its replacement is downloading."""
    kept(root, 1)
    kept(root, 2)
    assert chosen(root, NEW, SECOND).step == 2
    for step in (3, 4, 5):
        kept(root, step)
    thin(root, OLD, epoch=FIRST, keep_own=1, keep_root=1)
    assert saves(stub) == {"checkpoint-2", "checkpoint-5"}
    kept(root, 6, epoch=SECOND, attempt=NEW)
    kept(root, 7, epoch=SECOND, attempt=NEW)
    thin(root, NEW, epoch=SECOND, keep_own=1, keep_root=1)
    assert saves(stub) == {"checkpoint-7"}


def test_what_an_outranked_execution_has_chosen_goes(root: S3Root, stub: Stub) -> None:
    kept(root, 1)
    chosen(root, NEW, SECOND)
    for step in (2, 3):
        kept(root, step, epoch=THIRD, attempt=LAST)
    thin(root, LAST, epoch=THIRD, keep_own=1, keep_root=1)
    assert saves(stub) == {"checkpoint-3"}


def test_gc_and_the_standing_of_executions(root: S3Root, stub: Stub) -> None:
    for step in (1, 2, 3):
        kept(root, step)
    chosen(root, NEW, SECOND)
    kept(root, 4)

    def standing(attempt: str) -> Known:
        return Known(Standing.OVER if attempt == OLD else Standing.RUNNING, "said so")

    found = plan(root, Rules(1), standing)
    assert [path.rpartition(b"/")[2] for path in found.paths] == [b"checkpoint-2", b"checkpoint-1"]
    size, count = freed(root, found.paths)
    assert (size, count) == (2 * 701, 4)
    assert remove_all(root, found.paths)[1] == ()
    assert saves(stub) == {"checkpoint-3", "checkpoint-4"}  # 3 is what the running one has chosen
    over = plan(root, Rules(1), lambda _: Known(Standing.OVER, "said so"))
    assert [path.rpartition(b"/")[2] for path in over.paths] == [b"checkpoint-3"]


def test_fsck_tells_removed_from_gone(root: S3Root, stub: Stub) -> None:
    one, other, third = (kept(root, step) for step in (1, 2, 3))
    looking = functools.partial(inspect, root)
    assert fsck(root, inspecting=looking).faults == []
    root.remove(one)
    report = fsck(root, inspecting=looking)
    assert report.faults == []
    assert {found.condition for _, found in report.saves} == {Condition.WHOLE, Condition.REMOVED}
    del stub.objects[f"run/{other.decode()}/weights"]
    del stub.objects[f"run/{other.decode()}/done"]
    stub.objects[f"run/{third.decode()}/done"] = b"2"
    stub.objects[f"run/exec/{OLD}/kept/checkpoint-9/weights"] = b"half"
    report = fsck(root, inspecting=looking)
    assert [found.condition for _, found in report.saves] == [
        Condition.CHANGED, Condition.GONE, Condition.REMOVED,
    ]  # fmt: skip
    assert len(report.faults) == 2
    (execution,) = report.executions
    assert execution.loose == (f"exec/{OLD}/kept/checkpoint-9".encode(),)


def test_space(root: S3Root) -> None:
    kept(root, 1)
    kept(root, 2)
    rows = {row.name: row for row in space(root).rows}
    assert (rows[OLD].parts["kept"], rows[OLD].alone > 1402) == (1402, True)
    assert (rows["pub"].inodes, rows["pub"].size) == (2, 0)


def test_the_commands(root: S3Root, stub: Stub, tmp_path: Path) -> None:
    attempt = new_attempt()  # another test's process with the same one would be a run of it on this node
    for step in (1, 2, 3):
        kept(root, step, attempt=attempt)
    du = run(stub, tmp_path, "du", "--json")
    assert (du.returncode, du.stderr) == (0, "")
    assert json.loads(du.stdout)[0]["parts"]["kept"] == 3 * 701
    assert "object" in run(stub, tmp_path, "du").stdout
    checked = run(stub, tmp_path, "fsck")
    assert (checked.returncode, "nothing is wrong" in checked.stdout) == (0, True), checked.stderr
    words = ["gc", ROOT, "--keep-last", "1", "--ended", attempt]
    dry = run(stub, tmp_path, *words, "--dry-run", DISPATCH_ATTEMPT=NEW)
    assert "2 saves and leftovers would go" in dry.stdout, dry.stderr
    assert saves(stub) == {"checkpoint-1", "checkpoint-2", "checkpoint-3"}
    done = run(stub, tmp_path, *words, DISPATCH_ATTEMPT=NEW)
    assert done.returncode == 0, done.stderr
    assert saves(stub) == {"checkpoint-3"}
    assert run(stub, tmp_path, "latest").stdout == f"{ROOT}/exec/{attempt}/kept/checkpoint-3\n"


def test_notes_are_made_once(root: S3Root, opened: Callable[..., S3Root], stub: Stub) -> None:
    """The answer that is lost after the act is no second winner, and no loser."""
    fault = stub.fault("act-then-drop", key="run-1", times=1)
    assert root.notes(NEW).leave("run-1", b"me")
    assert fault.met == 1
    assert not opened().notes(NEW).leave("run-1", b"other")
    assert opened().notes(NEW).read("run-1", 100) == b"me"
    assert root.notes(NEW).names() == ["run-1"]
    assert root.notes(OLD).names() == []
    assert root.notes(OLD).read("run-1", 100) is None


def test_the_proof_is_given_before_a_note_counts(root: S3Root, stub: Stub) -> None:
    stub.fault("ignore")
    with pytest.raises(CannotCreateError, match="makes one name twice"):
        root.prove(NEW)


def test_what_a_removal_has_left_is_no_save(root: S3Root, stub: Stub, tmp_path: Path) -> None:
    """C109: the elder's thinning was killed after the markers: the large objects alone are not brought."""
    one, other = kept(root, 1), kept(root, 2)
    del stub.objects[f"run/exec/{OLD}/.dispatch/save-checkpoint-1"]
    del stub.objects[f"run/{one.decode()}/done"]
    with pytest.raises(AbsentError, match="went while"):
        download(root, one, str(tmp_path / "copy"))
    assert list(tmp_path.iterdir()) == []
    del stub.objects[f"run/exec/{OLD}/.dispatch/save-checkpoint-2"]
    download(root, other, str(tmp_path / "latest"))  # nobody removes the latest: it was published without a manifest
    assert (tmp_path / "latest" / "done").read_bytes() == b"1"


def test_a_removal_that_begins_during_a_download(root: S3Root, stub: Stub, tmp_path: Path) -> None:
    """C087: every byte was read, and it is not known of which save: gone, and the next latest is asked for."""
    one = kept(root, 1)
    kept(root, 2)
    key = f"run/exec/{OLD}/.dispatch/save-checkpoint-1"

    def removes(seconds: float) -> None:
        stub.objects.pop(key, None)

    with pytest.raises(AbsentError, match="went while"):
        download(root, one, str(tmp_path / "copy"), moving=removes)
    assert list(tmp_path.iterdir()) == []


def test_a_removal_of_many_objects(root: S3Root, stub: Stub) -> None:
    """Many at once, and still in order: the manifest, what is small, and what is large."""
    path = kept(root, 1)
    for number in range(60):
        stub.objects[f"run/{path.decode()}/rng-{number}"] = b"s" * 40
        stub.objects[f"run/{path.decode()}/shard-{number}"] = b"w" * 4000
    before = len(stub.requests)
    assert root.remove(path)
    gone = [one.key for one in stub.requests[before:] if one.method == "DELETE"]
    assert gone[0] == f"run/exec/{OLD}/.dispatch/save-checkpoint-1"
    small = [at for at, key in enumerate(gone) if "/rng-" in key]
    large = [at for at, key in enumerate(gone) if "/shard-" in key]
    assert (len(small), len(large)) == (60, 60)
    assert max(small) < min(large)
    assert not [key for key in stub.objects if path.decode() in key]
