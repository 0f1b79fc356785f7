"""What a helper handed on through its node becomes the facts ``progress`` and ``ended``, for its own job only."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from slurm_dispatch.model.identity import attempt_of
from tests.controller.rig import Rig

if TYPE_CHECKING:
    from pathlib import Path

    from slurm_dispatch.model.identity import Word


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def note(
    rig: Rig, word: Word, number: int, attempt: str, epoch: str, start: float | None, node: str = "c1", **fields: Any
) -> None:
    """The Epilog's note."""
    body = {
        "attempt": attempt, "epoch": epoch, "node": node, "uid": rig.uid, "start_time": start, "verified": True,
        "progress": None, "resumed_from": None, "ended": False, "status": None, "signal": None, "outcome": None,
        "last": None, **fields,
    }  # fmt: skip
    dotted = f"{word.job}.{word.generation}.{word.submission}"
    rig.note(f"handed.{dotted}.{number}.{body['attempt']}.{node}.1", word, number, body)


def handed(rig: Rig, key: str, node: str = "c1", **fields: Any) -> None:
    """The Epilog's note about the latest execution."""
    execution = rig.state(key).submissions[-1].execution
    assert execution is not None
    attempt, epoch = fields.pop("attempt", execution.attempt), fields.pop("epoch", str(execution.epoch))
    note(rig, rig.word(key), rig.object(key), attempt, epoch, execution.start_time, node, **fields)


def started(rig: Rig, *rules: str) -> str:
    key = rig.job(*rules)
    rig.start(key)
    rig.tick()
    return key


def left(rig: Rig) -> list[str]:
    return [name for name in rig.notes() if name.startswith("handed.")]


def test_progress_and_the_end_become_facts_and_the_note_goes(rig: Rig) -> None:
    key = started(rig)
    handed(rig, key, progress=40, resumed_from=10, ended=True, status=3, last=40)
    rig.tick()
    assert rig.kinds(key, 4) == ["progress", "ended"]
    progress, ended = rig.last(key, "progress").body, rig.last(key, "ended").body
    assert (progress["step"], progress["resumed_from"]) == (40, 10)
    assert {name: ended[name] for name in ("status", "signal", "outcome", "step")} == {
        "status": 3, "signal": None, "outcome": None, "step": 40,
    }  # fmt: skip
    assert left(rig) == []
    rig.settle()
    assert rig.kinds(key, 4) == ["progress", "ended"]


def test_the_outcome_rests_on_it(rig: Rig) -> None:
    """The script ended with 0 and its command had more to do."""
    key = started(rig)
    handed(rig, key, progress=40, ended=True, status=0, outcome="unfinished", last=40)
    rig.slurm.end(rig.object(key), "COMPLETED")
    rig.end_note(key)
    rig.settle()
    assert rig.last(key, "end").body["outcome"] == "unfinished"
    assert len(rig.slurm.ids()) == 2


def test_it_comes_with_the_start_that_is_not_recorded_yet(rig: Rig) -> None:
    """A short job, and a controller that was away meanwhile."""
    key = rig.job()
    start = rig.start(key)
    attempt = attempt_of("fake", rig.object(key), rig.word(key), 0, start)
    about = (rig.word(key), rig.object(key), attempt, "1000000", start)
    note(rig, *about, progress=7)
    rig.tick()
    assert rig.kinds(key, 3) == ["started", "progress"]


@pytest.mark.parametrize(
    "wrong",
    [{"uid": 4_000_000_000}, {"attempt": "another"}, {"epoch": "1000001"}],
    ids=["another owner", "another attempt", "another epoch"],
)
def test_what_is_not_of_an_execution_of_the_owner_s_counts_for_nothing(rig: Rig, wrong: dict[str, Any]) -> None:
    key = started(rig)
    handed(rig, key, progress=40, ended=True, status=0, **wrong)
    rig.settle()
    assert rig.kinds(key, 4) == []


def test_the_helper_s_own_facts_come_first(rig: Rig) -> None:
    """It wrote into the record after all, and its answer was lost; or another node of the execution says another."""
    key = started(rig)
    rig.helper(key, status=0, step=40)
    handed(rig, key, progress=40, ended=True, status=0, last=40)
    handed(rig, key, node="c2", ended=True, status=9)
    rig.settle()
    assert rig.kinds(key, 4) == ["ended", "progress"]
    assert left(rig) == []


def test_of_two_nodes_the_greater_step_stays(rig: Rig) -> None:
    key = started(rig)
    handed(rig, key, progress=40)
    handed(rig, key, node="c2", progress=30)
    handed(rig, key, node="c3", progress=50)
    rig.settle()
    execution = rig.state(key).submissions[-1].execution
    assert execution is not None
    assert execution.step == 50
    assert rig.kinds(key, 4) == ["progress", "progress"]
    assert left(rig) == []


def test_of_a_closed_job_it_goes_without_a_fact(rig: Rig) -> None:
    key = started(rig)
    rig.slurm.end(rig.object(key), "COMPLETED")
    rig.end_note(key)
    rig.settle()
    assert rig.kinds(key)[-1] == "closed"
    handed(rig, key, progress=40)
    rig.settle()
    assert rig.kinds(key)[-1] == "closed"
    assert left(rig) == []


def test_what_comes_after_the_decision_is_recorded_all_the_same(rig: Rig) -> None:
    """The Epilog of a node may run long after it; the steps are an older submission's then and refund nothing."""
    key = started(rig, "failed:resubmit,budget=1")
    execution = rig.state(key).submissions[-1].execution
    assert execution is not None
    about = (rig.word(key), rig.object(key), execution.attempt, str(execution.epoch), execution.start_time)
    rig.slurm.end(rig.object(key), "FAILED", exit_status=1)
    rig.end_note(key)
    rig.settle()
    assert len(rig.slurm.ids()) == 2
    note(rig, *about, progress=40, ended=True, status=1, last=40)
    rig.settle()
    assert rig.kinds(key)[-2:] == ["progress", "ended"]
    assert left(rig) == []


@pytest.mark.parametrize("status", [74, 79, 80])
def test_a_status_of_the_helpers_waits_for_its_word_which_comes_with_the_epilog(rig: Rig, status: int) -> None:
    """Slurm says the status while the node's Epilog has yet to run: a store error must not be a plain failure."""
    key = started(rig)
    number = rig.object(key)
    rig.slurm.end(number, "FAILED", "COMPLETING", exit_status=status)
    rig.end_note(key)
    end = rig.slurm.job(number)["end_time"]
    assert rig.tick(view=replace(rig.view(), at=end + 59.0))[key].soon
    assert "end" not in rig.kinds(key)
    handed(rig, key, progress=40, ended=True, outcome="store_error", last=40)
    rig.slurm.set(number, states=["FAILED"])
    rig.settle()
    assert rig.last(key, "end").body["outcome"] == "store_error"


@pytest.mark.parametrize("states", [("FAILED",), ("FAILED", "COMPLETING")])
@pytest.mark.parametrize(("told", "waits_s"), [(True, 5.0), (False, 60.0)])
@pytest.mark.parametrize(("status", "outcome"), [(74, "failed"), (79, "stalled"), (80, "not_resumed")])
def test_a_word_that_does_not_come_is_not_waited_for_for_ever(
    rig: Rig, status: int, outcome: str, states: tuple[str, ...], told: bool, waits_s: float
) -> None:
    """That nothing completes any more is younger than the list of the notes: only the Epilog's own note ends it."""
    key = started(rig)
    rig.slurm.end(rig.object(key), *states, exit_status=status)
    rig.end_note(key)
    if told:
        rig.node_note(key, rig.object(key))
    end = rig.slurm.job(rig.object(key))["end_time"]
    rig.tick(view=replace(rig.view(), at=end + waits_s - 1.0))
    assert "end" not in rig.kinds(key)
    for _ in range(3):
        rig.tick(view=replace(rig.view(), at=end + waits_s))
    assert rig.last(key, "end").body["outcome"] == outcome
