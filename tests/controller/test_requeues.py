"""Requeue and node memory in the controller: what keeps its id, and which nodes are avoided."""

from __future__ import annotations

import os
import pwd
import time
from typing import TYPE_CHECKING

import pytest

from slurm_dispatch.controller.siterules import SiteRules
from slurm_dispatch.controller.tickfile import write_file
from tests.controller.site_rig import SiteRig

if TYPE_CHECKING:
    from pathlib import Path


ME = pwd.getpwuid(os.getuid()).pw_name


@pytest.fixture
def rig(tmp_path: Path) -> SiteRig:
    return SiteRig(tmp_path)


# Requeue.


def test_a_requeue_keeps_the_id_and_lifts_the_begin_delay(rig: SiteRig) -> None:
    key = rig.job("failed:requeue")
    rig.start(key)
    rig.ends(key, "FAILED", exit_status=1)
    rig.settle()
    number = rig.object(key)
    body = rig.slurm.job(number)
    assert (body["states"], body["restart"], body["reason"]) == (["PENDING"], 1, "None")
    assert body["updated"] == {"StartTime": "now+3", "ExcNodeList": "c1"}  # the old run may live there
    assert rig.slurm.ids() == [number]
    assert rig.last(key, "requeued").body == {"submission": 1, "slurm_job_id": number, "restart": 1}
    rig.start(key)
    rig.settle()
    assert rig.state(key).phase.value == "running"
    assert rig.slurm.calls("requeue") == ["requeue"]


def test_nodes_that_the_user_excluded_stay_excluded(rig: SiteRig) -> None:
    key = rig.job("failed:requeue", argv=("--job-name=train", "--exclude=c9"))
    rig.start(key)
    rig.ends(key, "FAILED", exit_status=1)
    rig.settle()
    assert rig.slurm.job(rig.object(key))["updated"]["ExcNodeList"] == "c9,c1"


def test_what_slurm_will_not_requeue_is_resubmitted(rig: SiteRig) -> None:
    key = rig.job("failed:requeue")
    first = rig.object(key)
    rig.slurm.set(first, argv=["--no-requeue"])
    rig.start(key)
    rig.ends(key, "FAILED", exit_status=1)
    rig.settle()
    assert "presently disabled" in rig.last(key, "requeue_failed").body["why"]
    assert rig.object(key) != first
    assert rig.kinds(key)[-3:] == ["decision", "intent", "submitted"]


def test_an_object_that_slurm_forgot_is_resubmitted(rig: SiteRig) -> None:
    key = rig.job("failed:requeue")
    first = rig.object(key)
    rig.start(key)
    rig.ends(key, "FAILED", exit_status=1)
    rig.slurm.forget(first)
    rig.settle()
    assert "no job" in rig.last(key, "requeue_failed").body["why"]
    assert rig.slurm.calls("requeue") == []


def test_an_id_that_is_anothers_by_now_is_not_requeued(rig: SiteRig) -> None:
    """C061: slurmctld came back without the job and gave its id away."""
    key = rig.job("failed:requeue")
    number = rig.object(key)
    rig.start(key)
    rig.ends(key, "FAILED", exit_status=1)
    rig.slurm.knob(detail="ok", requeue="away")
    rig.tick()
    assert rig.state(key).phase.value == "requeuing"
    rig.slurm.set(number, comment="dispatch:another00000:0:1", states=["RUNNING"])
    rig.slurm.knob(requeue="ok")
    rig.settle()
    assert rig.slurm.calls("requeue") == ["requeue"]  # the one that did not come through
    assert rig.slurm.job(number)["states"] == ["RUNNING"]


def test_a_lost_answer_to_a_requeue_requeues_nothing_twice(rig: SiteRig) -> None:
    """The reply is lost after the act."""
    key = rig.job("failed:requeue")
    number = rig.object(key)
    rig.start(key)
    rig.ends(key, "FAILED", exit_status=1)
    rig.slurm.knob(requeue="lost_after")
    rig.tick()
    rig.slurm.start(number)  # it runs again before anybody looks
    rig.settle()
    assert (rig.slurm.job(number)["restart"], rig.slurm.job(number)["states"]) == (1, ["RUNNING"])
    assert rig.slurm.calls("requeue") == ["requeue"]


def test_slurm_away_does_not_requeue_and_goes_on_later(rig: SiteRig) -> None:
    key = rig.job("failed:requeue")
    rig.start(key)
    rig.ends(key, "FAILED", exit_status=1)
    rig.slurm.knob(requeue="away")
    assert "cannot requeue" in rig.tick()[key].trouble
    rig.settle()
    assert rig.state(key).phase.value == "requeuing"
    rig.slurm.knob(requeue="ok")
    rig.settle()
    assert rig.kinds(key)[-1] == "requeued"


def test_the_delay_of_an_object_that_slurm_itself_restarted_is_lifted(rig: SiteRig) -> None:
    key = rig.job("node_fail:requeue")
    number = rig.object(key)
    rig.start(key)
    rig.settle()
    rig.slurm.restart(number, "NODE_FAIL")
    rig.settle()
    assert rig.slurm.job(number)["updated"] == {"StartTime": "now+3", "ExcNodeList": "c1"}
    # A begin time that a person gives it afterwards is his.
    rig.slurm.set(number, reason="BeginTime", begin_time=int(time.time()) + 3600)
    rig.settle()
    assert rig.slurm.calls("update") == ["update"]


def test_the_delay_that_comes_when_the_old_run_has_completed_is_lifted_too(rig: SiteRig) -> None:
    """Slurm sets it once COMPLETING is over, whatever the object was told before."""
    key = rig.job("failed:requeue")
    number = rig.object(key)
    rig.start(key)
    rig.ends(key, "FAILED", exit_status=1)
    rig.settle()
    rig.slurm.set(number, reason="BeginTime", begin_time=int(time.time()) + 121)
    rig.settle()
    assert rig.slurm.job(number)["reason"] == "None"
    assert rig.slurm.calls("update") == ["update", "update"]


def test_a_wait_for_the_end_of_a_maintenance_is_not_lifted(tmp_path: Path) -> None:
    rig = SiteRig(tmp_path, SiteRules(maintenance_spread_s=0.0))
    write_file(rig.tick_folder, "maintenance.all", {"begin": time.time() - 5.0, "end": time.time() + 100.0, "by": ""})
    key = rig.job("failed:requeue")
    number = rig.object(key)
    rig.start(key)
    rig.ends(key, "FAILED", exit_status=1)
    rig.settle()
    first, _, count = rig.slurm.job(number)["updated"]["StartTime"].partition("+")
    assert (first, int(count) > 50) == ("now", True)
    rig.slurm.set(number, reason="BeginTime", begin_time=int(time.time()) + 100)
    rig.settle()
    assert rig.slurm.calls("update") == ["update"]


def test_the_delay_stays_where_the_rule_is_another(rig: SiteRig) -> None:
    key = rig.job("node_fail:resubmit")
    rig.start(key)
    rig.settle()
    rig.slurm.restart(rig.object(key), "NODE_FAIL")
    rig.settle()
    assert rig.slurm.calls("update") == []


def test_a_limit_that_somebody_changed_on_the_object_goes_on(rig: SiteRig) -> None:
    key = rig.job("timeout:resubmit", argv=("--job-name=train", "--time=60"))
    rig.start(key)
    rig.slurm.set(rig.object(key), time_limit_s=7200)
    rig.ends(key, "TIMEOUT")
    rig.settle()
    assert rig.last(key, "end").body["evidence"]["changed"] == ["--time=120"]
    assert rig.slurm.job(rig.object(key))["argv"].count("--time=120") == 1
    # What it was given then is what it asked for now.
    rig.start(key)
    rig.slurm.set(rig.object(key), time_limit_s=7200)
    rig.ends(key, "TIMEOUT")
    rig.settle()
    assert "changed" not in rig.last(key, "end").body["evidence"]
    assert "--time=120" in rig.slurm.job(rig.object(key))["argv"]


def test_a_time_that_grows_begins_with_what_the_object_had(rig: SiteRig) -> None:
    key = rig.job("timeout:resubmit,time=2x..1d", argv=("--time=60",))
    rig.start(key)
    rig.slurm.set(rig.object(key), time_limit_s=3600)
    rig.ends(key, "TIMEOUT")
    rig.settle()
    assert rig.last(key, "end").body["evidence"]["limits"] == {"time_s": 3600.0}
    assert "--time=0-02:00:00" in rig.slurm.job(rig.object(key))["argv"]


# Node memory.


def test_a_node_where_an_execution_failed_is_remembered_and_avoided(rig: SiteRig) -> None:
    key = rig.job()
    rig.start(key)
    rig.tick()
    rig.slurm.node("c1", "DOWN", "NOT_RESPONDING")
    rig.ends(key, "NODE_FAIL")
    rig.settle()
    (entry,) = rig.hints().memory
    assert (entry.node, entry.job, entry.outcome, entry.uid, entry.partition) == (
        "c1",
        key,
        "node_fail",
        rig.uid,
        "low",
    )
    assert "--exclude=c1" in rig.slurm.job(rig.object(key))["argv"]
    rig.slurm.node("c1", "IDLE")  # back, and another job of the owner's keeps off it
    other = rig.job("failed:resubmit,exclude-nodes")
    rig.slurm.start(rig.object(other), nodes="c2")
    rig.start_note(other, rig.object(other), rig.slurm.job(rig.object(other))["start_time"], nodes="c2")
    rig.ends(other, "FAILED", exit_status=1)
    rig.settle()
    assert "--exclude=c2,c1" in rig.slurm.job(rig.object(other))["argv"]


def test_no_two_executions_in_a_row_end_on_a_node_that_is_suspect(rig: SiteRig) -> None:
    """Also where the rule says nothing of nodes."""
    now = time.time()
    rows = [["c1", now, 1.0, f"job{uid}", 1, uid, "node_fail", "low"] for uid in (7, 8)]
    write_file(rig.tick_folder, "memory", {"entries": rows})
    key = rig.job("failed:resubmit")
    rig.start(key)
    rig.ends(key, "FAILED", exit_status=1)
    rig.settle()
    assert "--exclude=c1" in rig.slurm.job(rig.object(key))["argv"]


def test_of_the_nodes_of_an_execution_those_in_trouble_are_blamed(rig: SiteRig) -> None:
    for node in ("c3", "c4"):
        rig.slurm.node(node, "IDLE")
    write_file(rig.tick_folder, "memory", {"entries": [["c9", time.time(), 0.1, "abc", 1, 7, "failed", "low"]]})
    key = rig.job()
    number = rig.object(key)
    rig.slurm.start(number, nodes="c[1-3]")
    rig.start_note(key, number, rig.slurm.job(number)["start_time"], nodes="c[1-3]")
    rig.tick()
    rig.slurm.node("c2", "DOWN", "NOT_RESPONDING")
    rig.ends(key, "NODE_FAIL")
    rig.settle()
    assert rig.last(key, "end").body["evidence"]["nodes"] == ["c2"]
    assert [entry.node for entry in rig.hints().memory] == ["c9", "c2"]
    assert "--exclude=c2" in rig.slurm.job(rig.object(key))["argv"]


@pytest.mark.parametrize(("rule", "nodes"), [("resubmit", "c[1-2]"), ("requeue", "c[1-2]"), ("requeue", "c1")])
def test_a_job_that_needs_every_node_keeps_off_none(rig: SiteRig, rule: str, nodes: str) -> None:
    """sbatch would refuse it; an object that was requeued would wait as BadConstraints, and for good."""
    key = rig.job(f"failed:{rule},exclude-nodes")
    number = rig.object(key)
    rig.slurm.start(number, nodes=nodes)
    rig.start_note(key, number, rig.slurm.job(number)["start_time"], nodes=nodes)
    rig.tick()
    rig.ends(key, "FAILED", exit_status=1)
    rig.settle()
    excluded = nodes == "c1"
    assert rig.decided(key)["action"] == rule
    assert rig.decided(key)["changes"] == (["--exclude=c1"] if excluded else [])
    if rule == "requeue":
        fields = rig.slurm.job(number)["updated"]
        assert fields.get("ExcNodeList") == ("c1" if excluded else None), fields
    else:
        assert "--exclude" not in " ".join(rig.slurm.job(rig.object(key))["argv"])


def test_without_a_list_of_nodes_nothing_is_avoided(rig: SiteRig) -> None:
    write_file(rig.tick_folder, "memory", {"entries": [["c2", time.time(), 1.0, "abc", 1, rig.uid, "failed", "low"]]})
    rig.slurm.knob(nodes="away")
    key = rig.job("failed:resubmit,exclude-nodes")
    rig.start(key)
    rig.ends(key, "FAILED", exit_status=1)
    rig.settle()
    assert rig.decided(key)["inputs"]["excluded"] == []
