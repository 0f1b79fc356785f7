"""Ends that take long: nodes that cannot get rid of a process, jobs that complete for days, jobs that are stopped."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from slurm_dispatch.controller.breaker import Bounds
from slurm_dispatch.controller.ends import LOST_AFTER_S
from slurm_dispatch.controller.siterules import SiteRules
from slurm_dispatch.controller.tickfile import write_file
from tests.controller.site_rig import SiteRig

if TYPE_CHECKING:
    from pathlib import Path

DAY_S = 86400.0


@pytest.fixture
def rig(tmp_path: Path) -> SiteRig:
    return SiteRig(tmp_path)


def test_an_end_that_takes_long_holds_up_only_who_shares(rig: SiteRig) -> None:
    """C160: COMPLETING for 90 s on a node that is drained then. The isolated job is replaced at once, and its old run
    is below it; the shared one is held however long it takes."""
    isolated, shared = rig.job(), rig.job(shared=True)
    for key in (isolated, shared):
        rig.start(key)
    rig.settle()
    for key in (isolated, shared):
        rig.ends(key, "PREEMPTED", "COMPLETING")
    rig.settle()
    assert [fact.body["submission"] for fact in rig.facts(isolated) if fact.kind == "submitted"] == [1, 2]
    assert rig.state(shared).phase == "held"
    rig.slurm.node("c1", "IDLE", "DRAIN")
    rig.later_s = 90.0
    rig.settle()
    for key in (isolated, shared):
        rig.slurm.set(rig.state(key).submissions[0].object.slurm_job_id, states=["PREEMPTED"])  # type: ignore[union-attr]
    rig.later_s = 200.0
    rig.settle()
    assert rig.state(shared).phase == "held"
    assert rig.kinds(shared).count("submitted") == 1
    assert rig.kinds(isolated).count("submitted") == 2


def test_a_job_whose_replacements_spoil_their_nodes_is_stopped(tmp_path: Path) -> None:
    """C162: each execution leaves its node drained. After three the breaker opens and says why; no more follows."""
    rig = SiteRig(tmp_path, SiteRules(bounds=Bounds(drains=3)))
    key = rig.job("failed:resubmit", no_progress=None)
    for number, node in enumerate(("c1", "c2", "c3", "c4"), 1):
        start = rig.slurm.start(rig.object(key), nodes=node)
        rig.start_note(key, rig.object(key), start, nodes=node)
        rig.tick()
        rig.slurm.end(rig.object(key), "FAILED", exit_status=1, end_time=start + 90)
        rig.later_s += 91.0
        rig.settle()
        rig.slurm.node(node, "IDLE", "DRAIN")  # Slurm gives up on the process after the end
        rig.settle()
        assert rig.kinds(key).count("decision") == number
        assert len([line for line in rig.log if "3 executions in a row" in line]) == int(number >= 3)
    decision = rig.decided(key)
    assert (decision["action"], decision["why"]) == ("hold", "breaker")
    assert "3 executions in a row" in decision["reason"]
    assert rig.kinds(key).count("submitted") == 4


def test_a_job_that_completes_for_days_is_not_waited_for(rig: SiteRig) -> None:
    """C165: an isolated job goes on; a shared one is neither released nor kept for ever: its hold has an end."""
    isolated, shared = rig.job(), rig.job(shared=True)
    for key in (isolated, shared):
        rig.start(key)
    rig.settle()
    for key in (isolated, shared):
        rig.slurm.end(rig.object(key), "PREEMPTED", "COMPLETING", end_time=int(time.time() - 6 * DAY_S))
        rig.end_note(key, age_s=6 * DAY_S)
    rig.settle()
    assert rig.kinds(isolated).count("submitted") == 2
    state = rig.state(shared)
    assert state.phase == "held"
    assert state.holding is not None
    assert state.holding.for_s == DAY_S
    _run_out(rig, shared, DAY_S)
    assert rig.last(shared, "closed").body["why"] == "hold_expired"
    assert rig.kinds(shared).count("submitted") == 1


@pytest.mark.parametrize("accounting", ["ok", "none"])
def test_a_completing_job_of_which_nothing_tells_how_it_ended(rig: SiteRig, accounting: str) -> None:
    """C165: text hides the state behind COMPLETING, and accounting has no row: after a while a person is asked."""
    key = rig.job()
    rig.start(key)
    rig.settle()
    rig.slurm.knob(accounting=accounting)
    rig.slurm.end(rig.object(key), "COMPLETING")
    rig.slurm.set(rig.object(key), accounting_live=False)
    rig.end_note(key)
    rig.settle()
    assert rig.kinds(key)[-1] == "started"
    rig.later_s = LOST_AFTER_S + 10
    rig.settle()
    assert (rig.decided(key)["outcome"], rig.decided(key)["action"]) == ("lost", "hold")
    assert rig.kinds(key).count("submitted") == 1


def _run_out(rig: SiteRig, key: str, length_s: float) -> None:
    """Ticks run for as long as the hold is."""
    for _ in range(3):
        rig.later_s += 290.0
        rig.tick()
    clock = rig.hints().clock
    assert clock is not None
    body = {"id": clock.id, "ran_s": clock.ran_s + length_s, "at": clock.at, "wanted": clock.wanted}
    write_file(rig.tick_folder, "clock", body)
    for _ in range(3):
        rig.later_s += 60.0
        rig.tick()


def test_a_job_that_is_suspended_for_longer_than_a_hold_has_not_ended(rig: SiteRig) -> None:
    """C171: stopped for 25 h and then resumed: it is the current object all the time, shared or not."""
    isolated, shared = rig.job(), rig.job(shared=True)
    for key in (isolated, shared):
        rig.start(key)
    rig.settle()
    before = {key: rig.kinds(key) for key in (isolated, shared)}
    for key in (isolated, shared):
        rig.slurm.set(rig.object(key), states=["SUSPENDED"])
    for hours in (1, 25):
        rig.later_s = hours * 3600.0
        rig.settle()
    for key in (isolated, shared):
        rig.slurm.set(rig.object(key), states=["RUNNING"])
    rig.settle()
    assert {key: rig.kinds(key) for key in (isolated, shared)} == before


def test_a_hold_of_a_job_whose_old_run_is_only_stopped_closes_it_and_starts_nothing(rig: SiteRig) -> None:
    """C171: time passes while the older execution is stopped; that is no word that it is gone."""
    key = rig.job(shared=True)
    rig.start(key)
    rig.settle()
    rig.ends(key, "PREEMPTED", "COMPLETING")
    rig.settle()
    assert rig.state(key).phase == "held"
    _run_out(rig, key, DAY_S)
    assert rig.last(key, "closed").body["why"] == "hold_expired"
    rig.settle()
    assert rig.slurm.ids() == [rig.object(key)]


def test_a_clock_of_slurmctld_that_is_ahead_keeps_no_end_waiting_for_a_word(rig: SiteRig) -> None:
    """An hour ahead would be an hour's wait for what the helper has no time to say."""
    key = rig.job("stalled:resubmit")
    rig.start(key)
    rig.settle()
    rig.ends(key, "FAILED", exit_status=79, end_time=int(time.time()) + 3600)
    rig.settle()
    assert rig.last(key, "end").body["outcome"] == "stalled"
    assert rig.kinds(key).count("submitted") == 2
