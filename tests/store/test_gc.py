"""Removing by hand: what goes, what stays, and what is never touched."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from slurm_dispatch.errors import BadDataError, UsageError
from slurm_dispatch.state.as_user import in_child
from slurm_dispatch.store.choice import choose
from slurm_dispatch.store.gc import Known, Plan, Rules, Standing, plan
from slurm_dispatch.store.keep import bring, keep
from slurm_dispatch.store.manifest import SaveState, state_of
from slurm_dispatch.store.outranked import remove_all
from slurm_dispatch.store.root import CheckpointRoot, open_root
from slurm_dispatch.store.thin import thin
from slurm_dispatch.store.whole import Proof
from tests.store.gc_stage import memory
from tests.store.scene import FIRST, NEW, OLD, SECOND, fresh, save

if TYPE_CHECKING:
    from collections.abc import Callable

NOBODY = 65534


@pytest.fixture
def root(tmp_path: Path) -> CheckpointRoot:
    """An empty root."""
    return fresh(tmp_path)


def published(root: CheckpointRoot, attempt: str, epoch: int, *steps: int) -> None:
    """Saves of an execution, kept and published."""
    for step in steps:
        kept = keep(root, attempt, save(root, attempt, f"checkpoint-{step}"), proof=Proof.PROVED)
        assert kept is not None
        root.publish(epoch, step, kept, attempt=attempt)


def over(_: str) -> Known:
    """Everything is over."""
    return Known(Standing.OVER, "the test")


def gc(root: CheckpointRoot, rules: Rules, standing: Callable[[str], Known] = over) -> Plan:
    """One pass, with the usual pattern."""
    found = plan(root, rules, standing, lambda name: name.startswith(b"checkpoint-"))
    removed, trouble = remove_all(root, found.paths)
    assert (list(removed), trouble, found.trouble) == (found.paths, (), ())
    return found


def names(root: CheckpointRoot, attempt: str, folder: str = "kept") -> list[str]:
    """What is in a folder of an execution."""
    path = Path(root.execution(attempt), folder)
    return sorted(os.listdir(path)) if path.is_dir() else []


def test_the_last_and_the_greatest_stay(root: CheckpointRoot) -> None:
    published(root, OLD, FIRST, 1, 2, 900, 3)
    published(root, NEW, SECOND, 10, 20, 30)
    before = root.listing()
    found = gc(root, Rules(2))
    assert [one.step for one in found.stay] == [30, 20, 900]
    assert names(root, OLD) == ["checkpoint-900"]
    assert names(root, NEW) == ["checkpoint-20", "checkpoint-30"]
    # What the training wrote itself of a save that goes would hold its bytes; of one that stays it is the training's.
    assert sorted(os.listdir(root.execution(NEW))) == [".dispatch", "checkpoint-20", "checkpoint-30", "kept"]
    assert sorted(os.listdir(root.execution(OLD))) == [".dispatch", "kept"]
    assert root.listing() == before
    assert gc(root, Rules(2)).paths == []


def test_every_so_many_steps(root: CheckpointRoot) -> None:
    """Of two lineages with one step, the save that outranks the other."""
    published(root, OLD, FIRST, 50, 100, 150, 200)
    published(root, NEW, SECOND, 100, 150, 250)
    gc(root, Rules(1, every=100))
    assert names(root, OLD) == ["checkpoint-200"]
    assert names(root, NEW) == ["checkpoint-100", "checkpoint-250"]


def test_what_is_gone_counts_for_nothing(root: CheckpointRoot) -> None:
    """The last two are the last two that are there."""
    published(root, NEW, SECOND, 10, 20, 30, 40)
    shutil.rmtree(os.path.join(root.execution(NEW), "kept", "checkpoint-30"))
    gc(root, Rules(2))
    assert names(root, NEW) == ["checkpoint-20", "checkpoint-40"]


def test_the_greatest_step_goes_only_by_name(root: CheckpointRoot) -> None:
    published(root, OLD, FIRST, 900, 800)
    published(root, NEW, SECOND, 10, 20)
    greatest = f"exec/{OLD}/kept/checkpoint-900".encode()
    gc(root, Rules(1))
    assert names(root, OLD) == ["checkpoint-900"]
    gc(root, Rules(1, dropped=frozenset([greatest])))
    assert names(root, OLD) == []
    with pytest.raises(UsageError, match="is the latest: its save is never removed"):
        gc(root, Rules(1, dropped=frozenset([f"exec/{NEW}/kept/checkpoint-20".encode()])))
    assert names(root, NEW) == ["checkpoint-20"]


@pytest.mark.parametrize("rules", [(0, None), (-1, None), (1, 0)])
def test_rules_that_make_no_sense(rules: tuple[int, int | None]) -> None:
    with pytest.raises(BadDataError):
        Rules(*rules)


@pytest.mark.parametrize("standing", [Standing.RUNNING, Standing.UNKNOWN])
def test_nothing_goes_of_an_execution_that_is_not_known_to_be_over(root: CheckpointRoot, standing: Standing) -> None:
    """P5: unknown deletes nothing."""
    published(root, OLD, FIRST, 1, 2, 3)
    published(root, NEW, SECOND, 10, 20)
    known = {OLD: Known(standing, "its node"), NEW: over(NEW)}
    found = gc(root, Rules(1), known.__getitem__)
    assert found.left == {OLD: known[OLD]}
    assert names(root, OLD) == ["checkpoint-1", "checkpoint-2", "checkpoint-3"]
    assert names(root, NEW) == ["checkpoint-20"]


def test_where_only_the_helper_has_ended(root: CheckpointRoot) -> None:
    """Another helper of the same execution may be about to resume: nothing but published saves goes."""
    published(root, OLD, FIRST, 5)
    root.make_execution(NEW)
    choose(root, NEW, epoch=SECOND)
    published(root, NEW, SECOND, 10, 20)
    Path(root.execution(NEW), "kept", ".tmp-0123456789abcdef").mkdir()
    ended = {OLD: over(OLD), NEW: Known(Standing.ENDED, "its helper")}
    gc(root, Rules(1), ended.__getitem__)
    assert names(root, NEW) == [".tmp-0123456789abcdef", "checkpoint-20"]
    assert names(root, NEW, "resume") == ["checkpoint-5"]
    assert os.path.isdir(os.path.join(root.execution(NEW), "checkpoint-10"))
    gc(root, Rules(1))
    assert names(root, NEW) == ["checkpoint-20"]
    assert names(root, NEW, "resume") == []
    assert not os.path.exists(os.path.join(root.execution(NEW), "checkpoint-10"))


def test_what_has_no_publication_stays_where_it_could_be_latest(root: CheckpointRoot) -> None:
    published(root, OLD, FIRST, 1)
    published(root, NEW, SECOND, 10)
    unknown = save(root, "unknown", "checkpoint-7")
    for attempt in (OLD, NEW):
        assert keep(root, attempt, save(root, attempt, "checkpoint-99"), proof=Proof.PROVED)
    gc(root, Rules(1))
    assert names(root, OLD) == []
    assert names(root, NEW) == ["checkpoint-10", "checkpoint-99"]
    assert os.path.isdir(unknown)


def test_the_best_is_pinned(root: CheckpointRoot) -> None:
    """By hand and in the helper's thinning, published or not, whatever it is called."""
    published(root, OLD, FIRST, 1, 2)
    best = os.path.join(root.execution(OLD), "best", "checkpoint-3")
    shutil.copytree(save(root, OLD, "checkpoint-3"), best)
    root.publish(FIRST, 3, best, attempt=OLD)
    published(root, NEW, SECOND, 10, 20, 30)
    thin(root, NEW, epoch=SECOND, keep_root=1, is_save=lambda _: True)
    gc(root, Rules(1))
    plan(root, Rules(1), over, lambda _: True)
    assert os.listdir(best) == ["weights"]
    assert names(root, OLD) == []


def test_an_adopted_save_is_another(root: CheckpointRoot) -> None:
    """What was published once may be on somebody's list of what goes: what is latest again has a path of its own."""
    published(root, OLD, FIRST, 900)
    published(root, NEW, SECOND, 10, 20)
    found = plan(root, Rules(1, dropped=frozenset([f"exec/{OLD}/kept/checkpoint-900".encode()])), over)
    assert f"exec/{OLD}/kept/checkpoint-900".encode() in found.paths
    old = root.listing()[-1]
    root.publish(SECOND + 10**6, 900, bring(root, old, "adopted"), attempt="adopted")
    remove_all(root, found.paths)
    latest = root.latest()
    assert latest is not None
    assert Path(latest.path, "weights").read_bytes() == b"weights"
    assert state_of(root, latest.publication) is SaveState.PROVED
    gc(root, Rules(1))
    assert root.latest() == latest


def test_the_manifest_of_a_save_that_stays_is_not_that_of_one_that_goes(root: CheckpointRoot) -> None:
    """Both are called checkpoint-900: the kept save, and what the training wrote."""
    published(root, OLD, FIRST, 900)
    published(root, NEW, SECOND, 10, 20)
    thin(root, NEW, epoch=SECOND, is_save=lambda name: name.startswith(b"checkpoint-"))
    assert not os.path.exists(os.path.join(root.execution(OLD), "checkpoint-900"))
    assert state_of(root, root.listing()[-1]) is SaveState.PROVED


def test_never_through_a_link_and_whatever_stands_there(root: CheckpointRoot, tmp_path: Path) -> None:
    """Links, a FIFO, names that are no text, and a file where a folder should be."""
    published(root, OLD, FIRST, 1, 2)
    precious = tmp_path / "precious"
    (precious / "checkpoint-1").mkdir(parents=True)
    (precious / "checkpoint-1" / "weights").write_bytes(b"x")
    kept = os.path.join(root.execution(OLD), "kept")
    os.symlink(precious, os.path.join(kept, "checkpoint-7"))
    os.symlink(precious / "checkpoint-1", os.path.join(kept, "checkpoint-1", "inner"))
    os.mkfifo(os.path.join(kept, "checkpoint-2", "fifo"))
    odd = os.path.join(os.fsencode(kept), b"\xff\n\x1b[2J")
    os.mkdir(odd)
    os.mkdir(os.path.join(odd, b"-rf \xfe"))
    os.chmod(odd, 0)
    Path(root.path, "exec", "file").write_bytes(b"no folder")
    os.symlink(precious, os.path.join(root.path, "exec", "linked"))
    published(root, NEW, SECOND, 10)
    if os.geteuid() != 0:
        os.chmod(odd, 0o700)
    found = plan(root, Rules(1), over)
    removed, trouble = remove_all(root, found.paths)
    assert trouble == ()
    assert sorted(removed) == sorted(found.paths)
    assert names(root, OLD) == []
    assert (precious / "checkpoint-1" / "weights").read_bytes() == b"x"
    assert stat.S_ISLNK(os.lstat(os.path.join(root.path, "exec", "linked")).st_mode)


def test_a_file_of_another_user_stays_and_is_said(root: CheckpointRoot) -> None:
    """What cannot be removed is out of sight at least, and everything else goes."""
    if os.geteuid() != 0:
        pytest.fail("this test makes files of another user, which takes root")
    published(root, OLD, FIRST, 1, 2)
    published(root, NEW, SECOND, 10)
    for top, folders, files in os.walk(root.path):
        for name in (".", *folders, *files):
            os.lchown(os.path.join(top, name), NOBODY, NOBODY)
    inner = Path(root.execution(OLD), "kept", "checkpoint-1", "theirs")
    inner.mkdir(mode=0o755)
    (inner / "file").touch()
    for above in Path(root.path).parents:
        if above.stat().st_mode & 0o001 == 0:
            above.chmod(above.stat().st_mode | 0o011)

    def work() -> bytes:
        again = open_root(root.path)
        found = plan(again, Rules(1), over)
        removed, trouble = remove_all(again, found.paths)
        return b"%d %s" % (len(removed), "\n".join(trouble).encode())

    said = in_child(NOBODY, NOBODY, [], work, 60.0).decode()
    assert said == f"3 removing exec/{OLD}/kept/checkpoint-1: Permission denied"
    left = names(root, OLD)
    assert len(left) == 1
    assert left[0].startswith(".tmp-")


def test_two_hands_at_one_folder(root: CheckpointRoot, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other removes the very folder that this one is about to list."""
    published(root, OLD, FIRST, 1)
    published(root, NEW, SECOND, 10)
    found = plan(root, Rules(1), over)
    real = os.listdir
    gone = []

    def listed(where: int | bytes) -> list[str]:
        folder = os.readlink(f"/proc/self/fd/{where}") if isinstance(where, int) else ""
        if ".tmp-" in folder and not gone:
            gone.append(folder)
            shutil.rmtree(folder)
        return real(where)

    monkeypatch.setattr(os, "listdir", listed)
    _, trouble = remove_all(root, found.paths)
    assert (trouble, len(gone)) == ((), 1)
    assert names(root, OLD) == []


def test_a_save_of_100_000_files(tmp_path: Path) -> None:
    folder = memory(tmp_path)
    root = fresh(Path(folder))
    try:
        _of_100_000_files(root)
    finally:
        shutil.rmtree(folder)


def _of_100_000_files(root: CheckpointRoot) -> None:
    path = Path(save(root, OLD, "checkpoint-1"))
    root.publish(FIRST, 1, str(path), attempt=OLD)
    for number in range(100):
        folder = path / str(number)
        folder.mkdir()
        descriptor = os.open(folder, os.O_RDONLY)
        for inner in range(1000):
            if number < 50:
                os.link(path / "weights", str(inner), dst_dir_fd=descriptor)
            else:
                os.symlink("nowhere", str(inner), dir_fd=descriptor)
        os.close(descriptor)
    published(root, NEW, SECOND, 10)
    gc(root, Rules(1))
    assert not path.exists()
