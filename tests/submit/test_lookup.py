"""Settling an intent whose answer was lost, and finding the job that a person means."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from slurm_dispatch.errors import NothingThereError, UsageError
from slurm_dispatch.model.identity import Word
from slurm_dispatch.slurm.port import Absent, JobDetail, Present, Queue, QueueJob, Unknown
from slurm_dispatch.state.folder import StateFolder
from slurm_dispatch.submit.job import find_job
from slurm_dispatch.submit.lookup import Burnt, Found, NoteSeen, Wait, settle

if TYPE_CHECKING:
    from tests.submit.scene import Scene

WORD = Word("abc", 0, 2)


def queue(*jobs: tuple[int, int]) -> Queue:
    """A queue with these (id, uid), all with the word."""
    return Queue(tuple(QueueJob(job, uid, "PENDING", "", 1, None, "", WORD) for job, uid in jobs))


def ask(**more: object) -> Found | Burnt | Wait:
    """All sources answer and none has it, unless told otherwise."""
    given: dict[str, object] = {"notes": (), "queue": queue(), "accounting": Absent()}
    word = more.pop("word", WORD)
    return settle(word, 7, watched_s=200, settle_after_s=100, **{**given, **more})  # type: ignore[arg-type]


def test_what_settles() -> None:
    """P6: found in any source with the owner checked, the lowest id of several; burnt only if all answer."""
    assert isinstance(ask(), Burnt)
    assert ask(queue=queue((5, 7), (3, 7), (1, 8))) == Found(3, None, "queue", (5,))
    assert ask(notes=[NoteSeen(WORD, 9, "c", 7)]) == Found(9, "c", "note")
    assert isinstance(ask(notes=[NoteSeen(WORD, 9, "c", 8)]), Burnt)


def row(number: int, uid: int, word: Word = WORD) -> JobDetail:
    """A row of accounting."""
    states = frozenset(["CANCELLED"])
    return JobDetail(number, uid, states, "", 0, 0, 0, 1, None, None, "", str(word), "accounting", word)


def test_what_settles_from_accounting() -> None:
    """P6: a row counts only with this word and this owner; the lowest id of several."""
    others = (row(2, 8), row(1, 7, Word("abc", 0, 1)))
    assert ask(accounting=Present((row(9, 7), row(4, 7), *others))) == Found(4, None, "accounting", (9,))
    assert isinstance(ask(accounting=Present(others)), Burnt)


@pytest.mark.parametrize("source", ["notes", "queue", "accounting"])
def test_a_source_that_gives_no_answer(source: str) -> None:
    """P5, C076: then it waits; so does a shared job, always."""
    assert isinstance(ask(**{source: Unknown("away")}), Wait)
    assert isinstance(ask(word=Word("abc", 0, 2, shared=True)), Wait)


def test_nothing_is_burnt_before_its_time() -> None:
    """P6: not before one has watched it oneself for long enough; finding needs no time."""
    given = {"watched_s": 99, "settle_after_s": 100, "notes": (), "accounting": Absent()}
    assert isinstance(settle(WORD, 7, queue=queue(), **given), Wait)  # type: ignore[arg-type]
    assert isinstance(settle(WORD, 7, queue=queue((3, 7)), **given), Found)  # type: ignore[arg-type]


def test_find_job(scene: Scene) -> None:
    """By key, by a Slurm job id, by its unique name; two of one name are both named."""
    scene.sbatch("-J", "one", "train.sh")
    scene.root = scene.path / "scratch" / "b"
    scene.sbatch("-J", "two", "train.sh")
    folder = StateFolder(str(scene.path / "state"))
    by_name = {record.read()[0].body["name"]: record.key for record in scene.records()}
    if os.geteuid() != 0 or scene.uid != 0:
        assert find_job(by_name["one"], folder) == by_name["one"]
        assert find_job("102", folder) == by_name["two"]
        assert find_job("two", folder) == by_name["two"]
    with pytest.raises(NothingThereError):
        find_job("three", folder)
    scene.root = scene.path / "scratch" / "c"
    scene.sbatch("-J", "two", "train.sh")
    with pytest.raises(UsageError, match=by_name["two"]):
        find_job("two", folder)


@pytest.mark.parametrize("text", ["101_0", "101_[0-4]", "101_*", "101+0", "101.0", "101,102", "0101 ", "-101"])
def test_a_form_that_means_more_than_one_slurm_job_names_none(scene: Scene, text: str) -> None:
    """C037: whatever id a person gives to any command, it never becomes that of a whole array."""
    scene.sbatch("train.sh")
    with pytest.raises(NothingThereError):
        find_job(text, StateFolder(str(scene.path / "state")))
    result = scene.run("cancel", "--", text)
    assert result.status == 66, result
    assert scene.calls("scancel") == []
