"""What accounting tells of an end, rows that are not whole, and what slurmctld tells better than they do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from slurm_dispatch.model.identity import attempt_of
from tests.controller.rig import Rig

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def told(rig: Rig, number: int, **later: Any) -> None:
    """slurmdbd was away: accounting has the state of now, and neither the end nor who or what brought it about."""
    row = {**rig.slurm.job(number), "end_time": None, "by_uid": None, "exit_status": 0}
    rig.slurm.set(number, rows=[{**row, **later}], accounting_live=False)


def test_a_row_without_its_end_does_not_tell_who_cancelled_it(rig: Rig) -> None:
    """Slurm 22.05 was seen to have such a row for 3 to 14 seconds after slurmdbd had come back."""
    key = rig.job("cancelled:resubmit,budget=5")
    rig.start(key)
    number = rig.object(key)
    rig.slurm.end(number, "CANCELLED")
    told(rig, number)
    assert rig.tick()[key].soon
    assert "end" not in rig.kinds(key)
    told(rig, number, end_time=rig.slurm.job(number)["end_time"], by_uid=rig.uid + 1)
    rig.settle()
    assert rig.last(key, "end").body["evidence"]["by_uid"] == rig.uid + 1
    assert len(rig.slurm.ids()) == 2


ENDS = (("FAILED", 85, "unfinished"), ("CANCELLED", 0, "cancelled"))


@pytest.mark.parametrize(("state", "status", "outcome"), ENDS)
def test_a_row_without_its_end_is_no_end_of_what_slurmctld_forgot(
    rig: Rig, state: str, status: int, outcome: str
) -> None:
    key = rig.job("cancelled:stop")
    rig.start(key)
    number = rig.object(key)
    rig.slurm.end(number, state)
    told(rig, number)
    rig.slurm.forget(number)
    rig.tick()
    assert "end" not in rig.kinds(key)
    end_time = rig.slurm.job(number)["end_time"]
    told(rig, number, end_time=end_time, by_uid=rig.uid + 1, exit_status=status)
    rig.settle()
    assert rig.last(key, "end").body["outcome"] == outcome


def test_limits_are_those_that_slurmctld_tells(rig: Rig) -> None:
    """Accounting has all memory of a node for an object that was given no limit; half as much again is nowhere."""
    key = rig.job("out_of_memory:resubmit,mem=1.5x..100G,budget=5")
    rig.start(key)
    number = rig.object(key)
    row = {**rig.slurm.job(number), "states": ["OUT_OF_MEMORY"], "end_time": rig.slurm.job(number)["start_time"] + 2}
    row |= {"memory_mb": 4000, "time_limit_s": 60}
    rig.slurm.set(number, states=["COMPLETING"], rows=[row], accounting_live=False, time_limit_s=60)
    rig.settle()
    evidence = rig.last(key, "end").body["evidence"]
    assert (evidence["source"], evidence["limits"]) == ("accounting", {"time_s": 60.0})
    assert rig.last(key, "decision").body["changes"] == []


def test_what_slurm_22_05_requeued_is_found_by_the_order_of_its_rows(rig: Rig) -> None:
    """Its hooks do not tell the start, and its rows not the count; a row that has no end yet is waited for."""
    key = rig.job("cancelled:stop")
    number = rig.object(key)
    for restart, state in enumerate(("PREEMPTED", "REQUEUED")):
        rig.start_note(key, number, rig.slurm.start(number), start_time=None)
        rig.settle()
        rig.slurm.restart(number, state)
        whole = [{**row, "restart": None} for row in rig.slurm.job(number)["rows"]]
        rig.slurm.set(number, accounting_live=False, rows=[*whole[:-1], {**whole[-1], "end_time": None}])
        rig.settle()
        assert rig.kinds(key).count("end") == restart
        rig.slurm.set(number, rows=whole)
        rig.settle()
    ends = [fact.body for fact in rig.facts(key) if fact.kind == "end"]
    assert [(end["restart"], end["outcome"], end["final"]) for end in ends] == [
        (0, "preempted", False),
        (1, "cancelled", False),
    ]


def test_who_cancelled_it_is_waited_for(rig: Rig) -> None:
    """Accounting away: nothing happens, and it is asked again within moments."""
    key = rig.job("cancelled:resubmit,budget=5")
    rig.start(key)
    rig.slurm.end(rig.object(key), "CANCELLED", "COMPLETING", by_uid=rig.uid + 1)
    rig.slurm.knob(accounting="away")
    assert rig.tick()[key].soon
    assert rig.kinds(key, 3) == ["started"]
    rig.slurm.knob(accounting="ok")
    rig.settle()
    assert len(rig.slurm.ids()) == 2


def test_who_cancelled_it_is_waited_for_as_long_as_accounting_is_away(rig: Rig) -> None:
    """P5: a source that does not answer is not one that has nothing."""
    key = rig.job("cancelled:resubmit,budget=5")
    rig.start(key)
    rig.tick()
    rig.slurm.end(rig.object(key), "CANCELLED", "COMPLETING", by_uid=rig.uid + 1)
    rig.slurm.knob(accounting="away")
    rig.later_s = 86400.0
    rig.settle()
    assert "end" not in rig.kinds(key)
    rig.slurm.knob(accounting="ok")
    rig.settle()
    assert len(rig.slurm.ids()) == 2


def test_the_text_hides_the_state_and_accounting_has_it(rig: Rig) -> None:
    """A Slurm without JSON: COMPLETING is all that slurmctld says."""
    key = rig.job()
    rig.start(key)
    number = rig.object(key)
    row = {**rig.slurm.job(number), "states": ["PREEMPTED"], "end_time": rig.slurm.job(number)["start_time"] + 2}
    rig.slurm.set(number, states=["COMPLETING"], rows=[row], accounting_live=False)
    rig.settle()
    assert rig.last(key, "end").body["outcome"] == "preempted"
    assert rig.last(key, "end").body["evidence"]["source"] == "accounting"


def test_an_end_that_slurmctld_forgot_is_read_from_accounting(rig: Rig) -> None:
    """C036: a preempted job that is gone from the queue is resubmitted under a new id."""
    key = rig.job()
    rig.start(key)
    rig.tick()
    rig.slurm.end(rig.object(key), "PREEMPTED")
    rig.slurm.forget(rig.object(key))
    rig.settle()
    assert rig.last(key, "end").body["evidence"]["source"] == "accounting"
    assert len(rig.slurm.ids()) == 2


@pytest.mark.parametrize("version", ["22.05.8", "24.11.5"])
def test_a_start_that_the_queue_shows_before_its_note_is_one_execution(rig: Rig, version: str) -> None:
    """Seen on 22.05: its hooks hash no start time, and the same execution was recorded twice."""
    rig.slurm.knob(version=version)
    key = rig.job("failed:resubmit,budget=5")
    start = rig.start(key, note=False)
    rig.settle()
    assert rig.kinds(key).count("started") == 1
    told = start if version != "22.05.8" else None
    word, number = rig.word(key), rig.object(key)
    rig.start_note(key, number, start, start_time=told, attempt=attempt_of("fake", number, word, 0, told))
    rig.settle()
    assert rig.kinds(key).count("started") == 1
