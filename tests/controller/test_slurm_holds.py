"""A hold that Slurm or an operator made: on record, told to the owner, and never lifted here."""

from __future__ import annotations

import os
import pwd
from typing import TYPE_CHECKING

import pytest

from slurm_dispatch.controller.siterules import SiteRules
from slurm_dispatch.records.describe import fact_text, notice, state_text
from slurm_dispatch.records.state import Phase
from slurm_dispatch.records.why import explain
from slurm_dispatch.slurm.holds import held_by
from tests.controller.index_rig import IndexRig

if TYPE_CHECKING:
    from pathlib import Path

ACTS = {"cancel", "requeue", "update", "submit"}
ME = pwd.getpwuid(os.getuid()).pw_name
LAUNCH = "launch_failed_requeued_held"


@pytest.fixture
def rig(tmp_path: Path) -> IndexRig:
    return IndexRig(tmp_path, SiteRules(notify=("/bin/true",), notify_user=ME))


def quiet(rig: IndexRig) -> None:
    """Ticks until one passes over every job."""
    rig.wait("a tick that has nothing to do", lambda: not rig.indexed_tick())


@pytest.mark.parametrize(
    ("state", "reason", "held"),
    [
        ("PENDING", LAUNCH, LAUNCH),
        ("PENDING", "launch failed requeued held", "launch failed requeued held"),
        ("PENDING", "JobHeldAdmin", "JobHeldAdmin"),
        ("PENDING", "JobHeldUser", "JobHeldUser"),
        ("PENDING", "JobHoldMaxRequeue", "JobHoldMaxRequeue"),
        ("REQUEUE_HOLD", "None", "held"),
        ("SPECIAL_EXIT", "None", "held"),
        ("RESV_DEL_HOLD", "ReservationDeleted", "ReservationDeleted"),
        ("PENDING", "DependencyNeverSatisfied", "DependencyNeverSatisfied"),
        ("CANCELLED", "DependencyNeverSatisfied", ""),
        ("PENDING", "Dependency", ""),
        ("PENDING", "Resources", ""),
        ("PENDING", "BeginTime", ""),
        ("PENDING", "AssocMaxJobsLimit", ""),
        ("RUNNING", "None", ""),
        ("COMPLETED", "JobHeldUser", ""),
    ],
)
def test_what_is_a_hold(state: str, reason: str, held: str) -> None:
    """C043, C057: every word that Slurm has for it."""
    assert held_by(state, reason) == held


@pytest.mark.parametrize(
    ("states", "reason", "word"),
    [
        (["PENDING"], LAUNCH, LAUNCH),
        (["PENDING"], "JobHeldAdmin", "JobHeldAdmin"),
        (["PENDING"], "JobHoldMaxRequeue", "JobHoldMaxRequeue"),
        (["REQUEUE_HOLD"], "None", "held"),
    ],
)
def test_a_hold_by_slurm_is_recorded_and_told_and_nothing_is_done(
    rig: IndexRig, states: list[str], reason: str, word: str
) -> None:
    """C043, C057: a Prolog failed, or an operator holds it: the cause may be there still, so nobody lifts it blindly;
    and the job does not wait for weeks without anybody's knowing."""
    key = rig.job()
    number = rig.object(key)
    quiet(rig)
    rig.slurm.set(number, states=states, reason=reason)
    rig.wait("the owner to be told", lambda: rig.indexed_tick() is not None and "told" in rig.kinds(key))
    quiet(rig)
    fact = rig.last(key, "slurm_hold")
    assert fact.body == {"submission": 1, "slurm_job_id": number, "reason": word}
    told = rig.last(key, "told").body
    assert (told["on"], told["what"], told["status"]) == (fact.seq, "notice", 0)
    assert (rig.kinds(key).count("slurm_hold"), rig.kinds(key).count("told")) == (1, 1)
    state = rig.state(key)
    assert state.phase is Phase.QUEUED
    assert state_text(state) == f"queued, held in Slurm: {word}"
    assert notice(state, fact.seq)[0] == "slurm_hold"
    assert word in notice(state, fact.seq)[1]
    assert word in fact_text(fact)
    advice = [line for line in explain(state, rig.facts(key)).would_change if str(number) in line]
    assert len(advice) == 1
    assert ("operator" if word == "JobHeldAdmin" else f"scontrol release {number}") in advice[0]
    assert not ACTS & set(rig.slurm.calls())


def test_a_hold_of_the_owners_own_is_recorded_and_not_told(rig: IndexRig) -> None:
    """C057: he made it himself with ``sbatch --hold`` or ``scontrol hold``."""
    key = rig.job()
    rig.slurm.set(rig.object(key), reason="JobHeldUser")
    quiet(rig)
    assert rig.last(key, "slurm_hold").body["reason"] == "JobHeldUser"
    assert "told" not in rig.kinds(key)


def test_a_dependency_that_can_never_be_met_is_told_after_a_while(rig: IndexRig) -> None:
    """C083: such a job sits in Slurm for ever. Not at once: what it depends on may be submitted again, and then it is
    re-pointed."""
    key = rig.job()
    number = rig.object(key)
    rig.slurm.set(number, reason="DependencyNeverSatisfied")
    quiet(rig)
    assert rig.last(key, "slurm_hold").body["reason"] == "DependencyNeverSatisfied"
    assert "told" not in rig.kinds(key)
    rig.slurm.set(number, reason="Dependency")
    quiet(rig)
    assert rig.state(key).slurm_hold is None
    rig.slurm.set(number, reason="DependencyNeverSatisfied")
    quiet(rig)
    rig.later_s = 601.0
    rig.wait("the owner to be told", lambda: rig.indexed_tick() is not None and "told" in rig.kinds(key))
    quiet(rig)
    advice = [line for line in explain(rig.state(key), rig.facts(key)).would_change if str(number) in line]
    assert advice == [f"that what it depends on is changed: scontrol update JobId={number} Dependency=..."]
    assert not ACTS & set(rig.slurm.calls())


def test_a_release_by_a_person_is_seen_by_asking_for_the_state(rig: IndexRig) -> None:
    """C057: whatever scontrol release said, what Slurm shows of the object counts; a second hold is told again."""
    key = rig.job()
    number = rig.object(key)
    rig.slurm.set(number, reason=LAUNCH)
    quiet(rig)
    rig.slurm.set(number, reason="Resources")
    quiet(rig)
    assert rig.last(key, "slurm_hold").body["reason"] is None
    assert rig.state(key).slurm_hold is None
    assert "held in Slurm no more" in fact_text(rig.last(key, "slurm_hold"))
    rig.slurm.set(number, reason=LAUNCH)
    rig.wait("the second", lambda: rig.indexed_tick() is not None and rig.kinds(key).count("told") == 2)
    rig.start(key)
    quiet(rig)
    assert rig.state(key).phase is Phase.RUNNING
    assert rig.state(key).slurm_hold is None


def test_a_person_can_cancel_what_slurm_holds(rig: IndexRig) -> None:
    key = rig.job()
    number = rig.object(key)
    rig.slurm.set(number, reason="JobHeldAdmin")
    quiet(rig)
    body = {"what": "cancel", "reason": "enough"}
    assert rig.record(key).append(rig.state(key).seq + 1, "request", "user:ada@login", body)
    quiet(rig)
    assert rig.state(key).phase is Phase.CLOSED
    assert rig.slurm.job(number)["states"] == ["CANCELLED"]
