"""What a person's wish to end a job does, whatever Slurm knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.controller.rig import WAIT_S, Rig

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def test_a_person_asks_for_the_end(rig: Rig) -> None:
    key = rig.job("cancelled:resubmit,budget=5")
    rig.start(key)
    rig.tick()
    rig.record(key).append(5, "request", "user:ada@login", {"what": "cancel", "reason": "enough"})
    rig.settle()
    assert "CANCELLED" in rig.slurm.job(rig.object(key))["states"]
    assert rig.last(key, "closed").body == {"why": "cancelled", "reason": "enough", "by_job": None, "keep": None}
    assert len(rig.slurm.ids()) == 1


@pytest.mark.parametrize("accounting", ["ok", "none"])
def test_a_person_closes_a_job_whose_object_slurm_lost(rig: Rig, accounting: str) -> None:
    """A crash with old state: nothing tells of an end, and a person's wish and Slurm's word close it."""
    rig.slurm.knob(accounting=accounting)
    key = rig.job("lost:resubmit,budget=5")
    rig.start(key)
    rig.tick()
    number = rig.object(key)
    rig.slurm.set(number, in_memory=False)  # accounting has it as running, for ever
    rig.later_s = 86400.0
    rig.tick()
    rig.record(key).append(5, "request", "user:ada@login", {"what": "cancel", "reason": "gone"})
    rig.slurm.knob(detail="away")
    rig.tick()
    assert rig.kinds(key, 5) == []  # not listed is no word of Slurm's
    rig.slurm.knob(detail="ok")
    rig.settle()
    assert rig.last(key, "closed").body == {"why": "cancelled", "reason": "gone", "by_job": None, "keep": None}
    assert rig.last(key, "end").body["outcome"] == "lost"
    rig.slurm.set(number, in_memory=True)  # it was there after all
    rig.later_s += 3600.0
    rig.settle()
    assert "CANCELLED" in rig.slurm.job(number)["states"]
    assert len(rig.slurm.ids()) == 1


def test_a_persons_wish_and_a_lost_object_wait_for_accounting(rig: Rig) -> None:
    """It may have completed: accounting that is away has not said."""
    key = rig.job()
    rig.start(key)
    rig.tick()
    rig.slurm.end(rig.object(key), "COMPLETED")
    rig.slurm.forget(rig.object(key))
    rig.record(key).append(5, "request", "user:ada@login", {"what": "cancel", "reason": "gone"})
    rig.slurm.knob(accounting="away")
    rig.tick()
    assert rig.kinds(key, 5) == []
    rig.slurm.knob(accounting="ok")
    rig.settle()
    assert rig.last(key, "closed").body["why"] == "completed"


@pytest.mark.parametrize("source", ["queue", "accounting"])
def test_a_person_closes_a_job_whose_submission_cannot_be_settled(rig: Rig, source: str) -> None:
    """Accounting that never answers by the comment would hold it for ever; a queue that is away is waited for."""
    key = rig.job(submitted=False)
    rig.tick()
    rig.slurm.knob(**{source: "away"})
    rig.later_s = WAIT_S + 1
    assert rig.record(key).append(4, "request", "user:ada@login", {"what": "cancel", "reason": "enough"})
    rig.tick()
    assert (rig.state(key).phase.value == "closed") is (source == "accounting")
    rig.slurm.knob(queue="ok")
    rig.settle()
    assert rig.last(key, "closed").body == {"why": "cancelled", "reason": "enough", "by_job": None, "keep": None}
    late = rig.slurm.plain(comment=f"dispatch:{key}:0:1", uid=rig.uid)
    rig.settle()
    assert rig.slurm.job(late)["states"] == ["CANCELLED"]


def test_a_cancel_right_after_a_requeue_has_no_row_to_wait_for(rig: Rig) -> None:
    """Seen on 24.11: the row of the requeue stays the last, and nothing ever tells who cancelled it."""
    key = rig.job("cancelled:resubmit,budget=5")
    rig.start(key)
    rig.tick()
    number = rig.object(key)
    rig.slurm.restart(number)
    rig.tick()
    rig.slurm.end(number, "CANCELLED")
    rig.slurm.set(number, accounting_live=False)
    rig.settle()
    assert rig.last(key, "closed").body["why"] == "cancelled"
    assert len(rig.slurm.ids()) == 1
