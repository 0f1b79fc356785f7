"""A requeued object whose next run was never seen: it ended while it waited, between two passes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.controller.site_rig import SiteRig

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def rig(tmp_path: Path) -> SiteRig:
    return SiteRig(tmp_path)


def test_what_ended_before_it_started_is_requeued_like_any_other(rig: SiteRig) -> None:
    key = rig.job("boot_fail:requeue")
    rig.start(key)
    number = rig.object(key)
    rig.slurm.restart(number)  # by somebody else
    rig.tick()
    rig.slurm.end(number, "BOOT_FAIL")
    rig.settle()
    assert rig.last(key, "decision").body["action"] == "requeue"
    assert (rig.slurm.calls("requeue"), rig.slurm.job(number)["restart"]) == (["requeue"], 2)
    assert rig.state(key).phase.value == "queued"


def test_a_requeued_object_that_ends_before_anybody_sees_it_wait_has_ended(rig: SiteRig) -> None:
    key = rig.job("failed:requeue", "boot_fail:stop")
    rig.start(key)
    rig.slurm.end(rig.object(key), "FAILED", exit_status=3)
    rig.end_note(key)
    number = rig.object(key)
    rig.tick()
    assert rig.slurm.job(number)["restart"] == 1
    rig.slurm.end(number, "BOOT_FAIL")
    rig.settle()
    assert rig.kinds(key)[-4:] == ["requeued", "end", "decision", "closed"]
    assert rig.slurm.calls("requeue") == ["requeue"]


def test_a_requeued_object_that_slurm_forgets_is_not_waited_for_as_if_it_had_not_begun(rig: SiteRig) -> None:
    """Its start note says that Slurm had it again; what came of that is unknown, and nothing is asked of Slurm."""
    key = rig.job("failed:requeue")
    rig.start(key)
    number = rig.object(key)
    rig.slurm.end(number, "FAILED", exit_status=3)
    rig.end_note(key)
    rig.tick()
    assert rig.state(key).phase.value == "requeuing"
    rig.start(key)
    rig.slurm.forget(number)
    rig.settle()
    assert rig.kinds(key)[-2:] == ["started", "requeued"]
    assert rig.state(key).phase.value == "running"
    assert rig.slurm.calls("requeue") == ["requeue"]
