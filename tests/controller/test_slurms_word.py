"""What Slurm says of a job that it brings back itself, suspends, or has forgotten."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.controller.rig import Rig

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def test_of_many_rows_the_newest_decides(rig: Rig) -> None:
    """C035, C064: four executions that Slurm requeued, and one that completed after them, when slurmctld has
    forgotten all: each end is recorded, in order, and only the last decides."""
    key = rig.job("preempted,cancelled:resubmit")
    number = rig.object(key)
    for _ in range(4):
        rig.start(key)
        rig.tick()
        rig.slurm.restart(number, "PREEMPTED")
        rig.tick()
    rig.start(key)
    rig.tick()
    rig.slurm.end(number, "COMPLETED")
    rig.slurm.forget(number)
    rig.settle()
    ends = [fact.body for fact in rig.facts(key) if fact.kind == "end"]
    assert [(end["restart"], end["outcome"], end["final"]) for end in ends] == [
        *((count, "preempted", False) for count in range(4)), (4, "completed", True),
    ]  # fmt: skip
    assert rig.last(key, "closed").body["why"] == "completed"
    assert rig.slurm.ids() == [number]


def test_a_suspended_job_is_neither_dead_nor_replaced(rig: Rig) -> None:
    """C082: somebody stopped it with scontrol suspend; it goes on later as the same execution."""
    key = rig.job("failed,node_fail,lost,stalled:resubmit")
    rig.start(key)
    rig.settle()
    before = rig.kinds(key)
    rig.slurm.set(rig.object(key), states=["SUSPENDED"])
    rig.later_s = 86400.0
    rig.settle()
    assert rig.kinds(key) == before
    assert not {"submit", "cancel", "requeue"} & set(rig.slurm.calls())
    rig.slurm.set(rig.object(key), states=["RUNNING"])
    rig.settle()
    assert rig.kinds(key) == before


def test_a_site_without_accounting_brings_a_job_back(rig: Rig) -> None:
    """C081: what slurmctld says and the records are enough, and accounting is not asked."""
    rig.slurm.knob(accounting="none")
    key = rig.job("node_fail:resubmit")
    rig.start(key)
    rig.settle()
    rig.slurm.end(rig.object(key), "NODE_FAIL")
    rig.end_note(key)
    rig.settle()
    assert rig.last(key, "end").body["evidence"]["source"] == "json"
    assert rig.kinds(key).count("submitted") == 2
    assert rig.slurm.calls("accounting") == []


@pytest.mark.parametrize("site", ["CANCEL", "REQUEUE"])
def test_a_preemption_is_answered_once(rig: Rig, site: str) -> None:
    """C036, C034: where PreemptMode is CANCEL, Slurm does not bring the job back and the rule does, under a new id
    and with the next epoch; where it is REQUEUE, Slurm does, and the rule waits."""
    key = rig.job("preempted:resubmit")
    rig.start(key)
    rig.tick()
    number = rig.object(key)
    if site == "CANCEL":
        rig.slurm.end(number, "PREEMPTED")
    else:
        rig.slurm.restart(number, "PREEMPTED")
    rig.end_note(key, number)
    rig.settle()
    rig.later_s = 3600.0
    rig.settle()
    assert len(rig.slurm.ids()) == (2 if site == "CANCEL" else 1)
    rig.start(key)
    rig.settle()
    epochs = [int(fact.body["epoch"]) for fact in rig.facts(key) if fact.kind == "started"]
    assert epochs == [1_000_000, 2_000_000 if site == "CANCEL" else 1_000_001]


def test_an_owner_s_cancel_of_a_job_that_was_refused_and_waits_again_is_final(rig: Rig) -> None:
    """C042: Slurm raises the count and queues it again, and no tick cancels it for such a refusal: its owner does."""
    key = rig.job("launch_failed:resubmit,budget=2")
    number = rig.object(key)
    start = rig.slurm.start(number)
    rig.refused_note(key, number, "double_start", start)
    rig.slurm.restart(number, "NODE_FAIL")
    rig.settle()
    assert "refused" in rig.kinds(key)
    assert rig.slurm.job(number)["states"] == ["PENDING"]
    rig.slurm.end(number, "CANCELLED", by_uid=rig.uid)
    rig.settle()
    assert rig.last(key, "end").body["outcome"] == "cancelled"
    assert rig.state(key).phase.value == "closed"
    assert len(rig.slurm.ids()) == 1
