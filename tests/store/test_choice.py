"""The choice of the save to resume from."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from slurm_dispatch.errors import BadDataError
from slurm_dispatch.store import choice as choosing
from slurm_dispatch.store.choice import Choice, choose, read_choice
from slurm_dispatch.store.root import CheckpointRoot, open_root
from tests.store.scene import FIRST, NEW, OLD, SECOND, fresh, save, script

if TYPE_CHECKING:
    from slurm_dispatch.store.keep import Taken


@pytest.fixture
def root(tmp_path: Path) -> CheckpointRoot:
    """A root in which the new execution has its folder."""
    made = fresh(tmp_path)
    made.make_execution(NEW)
    return made


def _published(root: CheckpointRoot, step: int, epoch: int = FIRST, attempt: str = OLD) -> str:
    path = save(root, attempt, f"checkpoint-{step}")
    return root.publish(epoch, step, path, attempt=attempt).name


def test_a_first_start(root: CheckpointRoot) -> None:
    """C091: nothing to resume is a choice too, and it is kept."""
    assert read_choice(root, NEW) is None
    chosen = choose(root, NEW, epoch=SECOND)
    assert chosen == Choice(1, SECOND, None, None, None)
    assert read_choice(root, NEW) == chosen


def test_chosen_once_whatever_is_published_later(root: CheckpointRoot) -> None:
    name = _published(root, 5)
    chosen = choose(root, NEW, epoch=SECOND)
    resume = os.path.join(root.execution(NEW), "resume", "checkpoint-5")
    assert chosen == Choice(1, SECOND, resume, 5, name)
    _published(root, 9)
    assert choose(root, NEW, epoch=SECOND) == chosen == read_choice(root, NEW)


def test_a_second_turn_chooses_anew(root: CheckpointRoot) -> None:
    _published(root, 5)
    first = choose(root, NEW, epoch=SECOND)
    _published(root, 9, SECOND, NEW)
    second = choose(root, NEW, epoch=SECOND, again=True)
    assert (second.turn, second.step) == (2, 9)
    assert read_choice(root, NEW) == second != first
    assert sorted(n for n in os.listdir(os.path.join(root.execution(NEW), ".dispatch")) if n[0] == "c") == [
        "choice", "choice-2"]  # fmt: skip


def test_a_choice_that_was_thinned_is_made_anew(root: CheckpointRoot) -> None:
    _published(root, 5)
    first = choose(root, NEW, epoch=SECOND)
    assert first.resume is not None
    shutil.rmtree(first.resume)
    again = choose(root, NEW, epoch=SECOND)
    assert again.turn == 2
    assert again.resume is not None
    assert os.path.exists(again.resume)


def test_the_choice_under_another_path(root: CheckpointRoot, tmp_path: Path) -> None:
    """C094: the root has another path on another host."""
    _published(root, 5)
    choose(root, NEW, epoch=SECOND)
    (tmp_path / "other").symlink_to(root.path)
    there = read_choice(open_root(str(tmp_path / "other")), NEW)
    assert there is not None
    assert there.resume == str(tmp_path / "other" / "exec" / NEW / "resume" / "checkpoint-5")


def test_start_from_counts_only_while_nothing_is_published(root: CheckpointRoot, tmp_path: Path) -> None:
    before = tmp_path / "made before"
    before.mkdir()
    assert choose(root, NEW, epoch=SECOND, start_from=str(before)) == Choice(1, SECOND, str(before), None, None)
    assert read_choice(root, NEW) == Choice(1, SECOND, str(before), None, None)
    _published(root, 5)
    later = choose(root, NEW, epoch=SECOND, start_from=str(before), again=True)
    assert later.step == 5


@pytest.mark.parametrize("wrong", ["relative", "/nowhere/at/all"])
def test_start_from_what_is_not_there(root: CheckpointRoot, wrong: str) -> None:
    with pytest.raises(BadDataError, match="start from"):
        choose(root, NEW, epoch=SECOND, start_from=wrong)
    assert read_choice(root, NEW) is None


def test_an_execution_that_is_outranked_knows_it(root: CheckpointRoot) -> None:
    _published(root, 5, SECOND + 1)
    assert choose(root, NEW, epoch=SECOND).outranked


def test_eight_that_choose_at_once_get_the_same(root: CheckpointRoot, tmp_path: Path) -> None:
    _published(root, 5)
    barrier = tmp_path / "barrier"
    barrier.mkdir()
    what = script(root, f"""
import time
from slurm_dispatch.store.choice import choose
open(sys.argv[1] + '/' + str(os.getpid()), 'w').close()
deadline = time.monotonic() + 60
while len(os.listdir(sys.argv[1])) < 8:
    assert time.monotonic() < deadline
print(choose(root, {NEW!r}, epoch={SECOND}))
""", str(barrier))  # fmt: skip
    running = [subprocess.Popen(what.argv, env=dict(what.env or {}), stdout=subprocess.PIPE) for _ in range(8)]
    said = {process.communicate(timeout=120)[0] for process in running}
    assert [process.returncode for process in running] == [0] * 8
    assert said == {f"{read_choice(root, NEW)}\n".encode()}
    assert len(os.listdir(os.path.join(root.execution(NEW), "resume"))) == 1


def test_who_chose_second_takes_what_the_first_chose(
    root: CheckpointRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process chooses, and a newer save is published, while this one looks: its own choice is not taken."""
    _published(root, 5)
    real = choosing.take
    first: list[Choice] = []

    def slow(*words: Any, **more: Any) -> Taken | None:
        monkeypatch.setattr(choosing, "take", real)
        first.append(choose(open_root(root.path), NEW, epoch=SECOND))
        _published(root, 9)
        return real(*words, **more)

    monkeypatch.setattr(choosing, "take", slow)
    assert choose(root, NEW, epoch=SECOND) == first[0] == read_choice(root, NEW)
    assert first[0].step == 5


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"v": 2}', "null", '{"v": 1, "turn": 1, "epoch": 5}'])
def test_a_choice_that_does_not_parse_is_named(root: CheckpointRoot, text: str) -> None:
    Path(root.execution(NEW), ".dispatch", "choice").write_text(text)
    with pytest.raises(BadDataError, match="choice"):
        read_choice(root, NEW)


def test_unknown_fields_are_passed_over(root: CheckpointRoot) -> None:
    choose(root, NEW, epoch=SECOND)
    path = Path(root.execution(NEW), ".dispatch", "choice")
    body = json.loads(path.read_text())
    path.write_text(json.dumps({**body, "later": 1}))
    assert read_choice(root, NEW) == Choice(1, SECOND, None, None, None)
