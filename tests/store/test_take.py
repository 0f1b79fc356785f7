"""Taking the save to resume from."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from slurm_dispatch.errors import TransientError
from slurm_dispatch.store import keep as keeping
from slurm_dispatch.store.keep import sweep_kept, take
from slurm_dispatch.store.root import CheckpointRoot
from slurm_dispatch.store.transfer import transfer
from tests.store.scene import BIG, FIRST, NEW, OLD, SECOND, fresh, kept_save, save, tree


@pytest.fixture
def root(tmp_path: Path) -> CheckpointRoot:
    """An empty root."""
    return fresh(tmp_path)


def test_the_latest_is_taken(root: CheckpointRoot) -> None:
    """C087: what the replacement loads is its own, whatever the old run deletes."""
    path = save(root, OLD, "checkpoint-5", BIG, small=b"s")
    publication = root.publish(FIRST, 5, path, attempt=OLD)
    root.make_execution(NEW)
    taken = take(root, NEW)
    assert taken is not None
    assert taken.save.publication == publication
    assert taken.path == os.path.join(root.execution(NEW), "resume", "checkpoint-5")
    before = tree(path)
    subprocess.run(["rm", "-r", path], check=True)
    assert tree(taken.path) == before


def test_nothing_to_take(root: CheckpointRoot) -> None:
    root.make_execution(NEW)
    assert take(root, NEW) is None


def test_a_save_that_vanishes_while_it_is_taken(root: CheckpointRoot, monkeypatch: pytest.MonkeyPatch) -> None:
    """C087: latest is asked again; meanwhile there is a newer one, since that is why the old one went."""
    first = save(root, OLD, "checkpoint-5")
    root.publish(FIRST, 5, first, attempt=OLD)
    second = save(root, OLD, "checkpoint-9")
    root.make_execution(NEW)
    real = transfer
    calls = []

    def gone(source: bytes, folder: bytes, name: bytes, *, copy: bool) -> object:
        calls.append(name)
        if len(calls) == 1:
            subprocess.run(["rm", "-r", first], check=True)
            root.publish(FIRST, 9, second, attempt=OLD)
        return real(source, folder, name, copy=copy)

    monkeypatch.setattr(keeping, "transfer", gone)
    taken = take(root, NEW)
    assert taken is not None
    assert taken.save.publication.step == 9
    assert calls == [b"checkpoint-5", b"checkpoint-9"]


def test_a_swept_half_of_a_save_is_taken_again(root: CheckpointRoot, monkeypatch: pytest.MonkeyPatch) -> None:
    """`dispatch env --prepare` takes a save while a helper of the same execution starts and sweeps ``resume/``."""
    root.publish(FIRST, 5, save(root, OLD, "checkpoint-5"), attempt=OLD)
    root.make_execution(NEW)
    real = os.rename
    swept = []

    def sweeping(source: bytes, target: bytes, **more: int) -> None:
        monkeypatch.setattr(os, "rename", real)  # once; the sweep renames too
        swept.append(sweep_kept(root, NEW))
        real(source, target, **more)

    monkeypatch.setattr(os, "rename", sweeping)
    taken = take(root, NEW)
    assert taken is not None
    assert tree(taken.path) == {"weights": b"weights"}
    assert swept == [1]


def test_a_save_that_changes_each_time_is_an_error(root: CheckpointRoot, monkeypatch: pytest.MonkeyPatch) -> None:
    root.publish(FIRST, 5, save(root, OLD, "checkpoint-5"), attempt=OLD)
    root.make_execution(NEW)
    monkeypatch.setattr(keeping, "transfer", lambda *_, **__: None)
    with pytest.raises(TransientError, match="checkpoint-5"):
        take(root, NEW)


def test_a_changed_save_is_said(root: CheckpointRoot) -> None:
    """C169: it is resumed from, since there is nothing better, and it is said."""
    path = save(root, OLD, "checkpoint-5", BIG)
    root.publish(FIRST, 5, kept_save(root, path), attempt=OLD)
    with open(path + "/weights", "ab") as late:
        late.write(b"late")
    said: list[str] = []
    again = CheckpointRoot(root.path, said.append)
    again.make_execution(NEW)
    assert take(again, NEW) is not None
    assert any("not what it was" in line for line in said)


def test_what_the_execution_keeps_itself_is_taken_as_it_is(root: CheckpointRoot) -> None:
    kept = kept_save(root, save(root, NEW, "checkpoint-5"), NEW)
    root.publish(SECOND, 5, kept, attempt=NEW)
    taken = take(root, NEW)
    assert taken is not None
    assert taken.path == kept


def test_two_saves_of_one_name(root: CheckpointRoot) -> None:
    """C105: a replacement's checkpoint-5 is another save than the old run's."""
    root.publish(FIRST, 5, save(root, OLD, "checkpoint-5", b"first"), attempt=OLD)
    root.make_execution(NEW)
    one = take(root, NEW)
    same = take(root, NEW)
    assert one is not None
    assert same is not None
    assert one.path == same.path
    root.publish(FIRST + 1, 5, save(root, "other", "checkpoint-5", b"second"), attempt="other")
    two = take(root, NEW)
    assert two is not None
    assert (Path(one.path, "weights").read_bytes(), Path(two.path, "weights").read_bytes()) == (b"first", b"second")
    assert os.path.basename(two.path) == "checkpoint-5"


def test_a_save_that_is_emptied_while_it_is_taken(root: CheckpointRoot, monkeypatch: pytest.MonkeyPatch) -> None:
    """C087: who thins it had published another one before; that is the one to resume from, and no error."""
    path = save(root, OLD, "checkpoint-1")
    root.publish(FIRST, 1, path, attempt=OLD)
    root.make_execution(NEW)
    transfer, emptied = keeping.transfer, []

    def thinned(*words: Any, **more: Any) -> Any:
        if not emptied:
            emptied.append(path)
            root.publish(FIRST, 2, save(root, OLD, "checkpoint-2"), attempt=OLD)
            os.unlink(os.path.join(path, "weights"))
        return transfer(*words, **more)

    monkeypatch.setattr(keeping, "transfer", thinned)
    taken = keeping.take(root, NEW)
    assert emptied
    assert taken is not None
    assert taken.save.publication.step == 2
    assert Path(taken.path, "weights").read_bytes() == b"weights"
