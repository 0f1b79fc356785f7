"""The recovery engine in the controller: what is requeued, updated, told, asked, remembered and held."""

from __future__ import annotations

import json
import os
import pwd
import stat
import time
from typing import TYPE_CHECKING, Any

import pytest

from slurm_dispatch.config.limits import Limit
from slurm_dispatch.controller import hearsay, hints, keeper, maintenance
from slurm_dispatch.controller.breaker import Bounds
from slurm_dispatch.controller.cessation import Asker
from slurm_dispatch.controller.hearsay import Hearsay
from slurm_dispatch.controller.siterules import SiteRules
from slurm_dispatch.controller.tickfile import write_file
from slurm_dispatch.errors import BadDataError
from slurm_dispatch.records.cessation import answered
from slurm_dispatch.state.asked import read_asked
from tests.controller.fake_slurm import FakeSlurm
from tests.controller.site_rig import SiteRig

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from slurm_dispatch.records.cessation import AskedExecution
    from slurm_dispatch.records.observation import CessationAnswer

ME = pwd.getpwuid(os.getuid()).pw_name


@pytest.fixture
def rig(tmp_path: Path) -> SiteRig:
    return SiteRig(tmp_path)


def ends(rig: SiteRig, key: str, *states: str, **fields: Any) -> None:
    """The current object ends in these states, and the hooks say so."""
    rig.slurm.end(rig.object(key), *states, **fields)
    rig.end_note(key)


def decided(rig: SiteRig, key: str) -> dict[str, Any]:
    return dict(rig.last(key, "decision").body)


# Requeue.


def test_a_requeue_keeps_the_id_and_lifts_the_begin_delay(rig: SiteRig) -> None:
    key = rig.job("failed:requeue")
    rig.start(key)
    ends(rig, key, "FAILED", exit_status=1)
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
    ends(rig, key, "FAILED", exit_status=1)
    rig.settle()
    assert rig.slurm.job(rig.object(key))["updated"]["ExcNodeList"] == "c9,c1"


def test_what_slurm_will_not_requeue_is_resubmitted(rig: SiteRig) -> None:
    key = rig.job("failed:requeue")
    first = rig.object(key)
    rig.slurm.set(first, argv=["--no-requeue"])
    rig.start(key)
    ends(rig, key, "FAILED", exit_status=1)
    rig.settle()
    assert "presently disabled" in rig.last(key, "requeue_failed").body["why"]
    assert rig.object(key) != first
    assert rig.kinds(key)[-3:] == ["decision", "intent", "submitted"]


def test_an_object_that_slurm_forgot_is_resubmitted(rig: SiteRig) -> None:
    key = rig.job("failed:requeue")
    first = rig.object(key)
    rig.start(key)
    ends(rig, key, "FAILED", exit_status=1)
    rig.slurm.forget(first)
    rig.settle()
    assert "no job" in rig.last(key, "requeue_failed").body["why"]
    assert rig.slurm.calls("requeue") == []


def test_an_id_that_is_anothers_by_now_is_not_requeued(rig: SiteRig) -> None:
    """C061: slurmctld came back without the job and gave its id away."""
    key = rig.job("failed:requeue")
    number = rig.object(key)
    rig.start(key)
    ends(rig, key, "FAILED", exit_status=1)
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
    ends(rig, key, "FAILED", exit_status=1)
    rig.slurm.knob(requeue="lost_after")
    rig.tick()
    rig.slurm.start(number)  # it runs again before anybody looks
    rig.settle()
    assert (rig.slurm.job(number)["restart"], rig.slurm.job(number)["states"]) == (1, ["RUNNING"])
    assert rig.slurm.calls("requeue") == ["requeue"]


def test_slurm_away_does_not_requeue_and_goes_on_later(rig: SiteRig) -> None:
    key = rig.job("failed:requeue")
    rig.start(key)
    ends(rig, key, "FAILED", exit_status=1)
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
    ends(rig, key, "FAILED", exit_status=1)
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
    ends(rig, key, "FAILED", exit_status=1)
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
    ends(rig, key, "TIMEOUT")
    rig.settle()
    assert rig.last(key, "end").body["evidence"]["changed"] == ["--time=120"]
    assert rig.slurm.job(rig.object(key))["argv"].count("--time=120") == 1
    # What it was given then is what it asked for now.
    rig.start(key)
    rig.slurm.set(rig.object(key), time_limit_s=7200)
    ends(rig, key, "TIMEOUT")
    rig.settle()
    assert "changed" not in rig.last(key, "end").body["evidence"]
    assert "--time=120" in rig.slurm.job(rig.object(key))["argv"]


def test_a_time_that_grows_begins_with_what_the_object_had(rig: SiteRig) -> None:
    key = rig.job("timeout:resubmit,time=2x..1d", argv=("--time=60",))
    rig.start(key)
    rig.slurm.set(rig.object(key), time_limit_s=3600)
    ends(rig, key, "TIMEOUT")
    rig.settle()
    assert rig.last(key, "end").body["evidence"]["limits"] == {"time_s": 3600.0}
    assert "--time=0-02:00:00" in rig.slurm.job(rig.object(key))["argv"]


# Node memory.


def test_a_node_where_an_execution_failed_is_remembered_and_avoided(rig: SiteRig) -> None:
    key = rig.job()
    rig.start(key)
    rig.tick()
    rig.slurm.node("c1", "DOWN", "NOT_RESPONDING")
    ends(rig, key, "NODE_FAIL")
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
    ends(rig, other, "FAILED", exit_status=1)
    rig.settle()
    assert "--exclude=c2,c1" in rig.slurm.job(rig.object(other))["argv"]


def test_no_two_executions_in_a_row_end_on_a_node_that_is_suspect(rig: SiteRig) -> None:
    """Also where the rule says nothing of nodes."""
    now = time.time()
    rows = [["c1", now, 1.0, f"job{uid}", 1, uid, "node_fail", "low"] for uid in (7, 8)]
    write_file(rig.tick_folder, "memory", {"entries": rows})
    key = rig.job("failed:resubmit")
    rig.start(key)
    ends(rig, key, "FAILED", exit_status=1)
    rig.settle()
    assert "--exclude=c1" in rig.slurm.job(rig.object(key))["argv"]


def test_of_the_nodes_of_an_execution_those_in_trouble_are_blamed(rig: SiteRig) -> None:
    rig.slurm.node("c3", "IDLE")
    write_file(rig.tick_folder, "memory", {"entries": [["c9", time.time(), 0.1, "abc", 1, 7, "failed", "low"]]})
    key = rig.job()
    number = rig.object(key)
    rig.slurm.start(number, nodes="c[1-3]")
    rig.start_note(key, number, rig.slurm.job(number)["start_time"], nodes="c[1-3]")
    rig.tick()
    rig.slurm.node("c2", "DOWN", "NOT_RESPONDING")
    ends(rig, key, "NODE_FAIL")
    rig.settle()
    assert rig.last(key, "end").body["evidence"]["nodes"] == ["c2"]
    assert [entry.node for entry in rig.hints().memory] == ["c9", "c2"]
    assert "--exclude=c2" in rig.slurm.job(rig.object(key))["argv"]


def test_without_a_list_of_nodes_nothing_is_avoided(rig: SiteRig) -> None:
    write_file(rig.tick_folder, "memory", {"entries": [["c2", time.time(), 1.0, "abc", 1, rig.uid, "failed", "low"]]})
    rig.slurm.knob(nodes="away")
    key = rig.job("failed:resubmit,exclude-nodes")
    rig.start(key)
    ends(rig, key, "FAILED", exit_status=1)
    rig.settle()
    assert decided(rig, key)["inputs"]["excluded"] == []


# Suspicion.


@pytest.fixture
def suspicious(tmp_path: Path) -> SiteRig:
    """A site that allows suspicion, and has ticked before."""
    rig = SiteRig(tmp_path, SiteRules(suspicion=True))
    rig.tick()
    return rig


def silent(rig: SiteRig, **about: Any) -> tuple[str, int]:
    """A job that runs on c1, which has been silent for 29 seconds; its key and its object."""
    key = rig.job(suspect_s=30.0, **about)
    number = rig.object(key)
    rig.start(key)
    rig.tick()
    rig.slurm.node("c1", "ALLOCATED", "NOT_RESPONDING")
    rig.tick()
    rig.later_s += 29.0
    rig.tick()
    assert rig.state(key).phase.value == "running"
    return key, number


def test_a_silent_node_is_replaced_before_slurm_gives_it_up(suspicious: SiteRig) -> None:
    rig = suspicious
    key, number = silent(rig)
    rig.later_s += 2.0
    rig.settle()
    second = rig.object(key)
    assert second != number
    assert "--exclude=c1" in rig.slurm.job(second)["argv"]
    assert rig.last(key, "suspected").body["nodes"] == ["c1"]
    assert rig.slurm.job(number)["states"] == ["RUNNING"]  # it may live on until its replacement runs
    assert [it.job for it in rig.hints().recent.overlaps] == [key]
    assert [entry.outcome for entry in rig.hints().memory] == ["suspect"]
    start = rig.slurm.start(second, nodes="c2")
    rig.start_note(key, second, start, nodes="c2")
    rig.settle()
    assert "CANCELLED" in rig.slurm.job(number)["states"]
    assert rig.slurm.job(second)["states"] == ["RUNNING"]
    assert rig.state(key).phase.value == "running"
    assert rig.hints().recent.overlaps == ()


def test_a_node_that_answers_first_keeps_its_run(suspicious: SiteRig) -> None:
    rig = suspicious
    key, number = silent(rig)
    rig.later_s += 2.0
    rig.settle()
    second = rig.object(key)
    rig.slurm.node("c1", "ALLOCATED")
    rig.settle()
    assert rig.slurm.job(second)["states"] == ["CANCELLED"]
    assert rig.slurm.job(number)["states"] == ["RUNNING"]
    state = rig.state(key)
    assert state.object is not None
    assert (state.phase.value, state.object.slurm_job_id) == ("running", number)
    assert rig.hints().recent.overlaps == ()


def test_jobs_whose_nodes_answer_are_left_alone(suspicious: SiteRig) -> None:
    rig = suspicious
    other = rig.job(suspect_s=30.0)
    rig.slurm.start(rig.object(other), nodes="c2")
    rig.start_note(other, rig.object(other), rig.slurm.job(rig.object(other))["start_time"], nodes="c2")
    silent(rig)
    plain = rig.job()  # did not ask for it
    rig.start(plain)
    rig.later_s += 2.0
    rig.settle()
    assert [rig.state(key).phase.value for key in (other, plain)] == ["running", "running"]


@pytest.mark.parametrize("how", ["site", "boot", "many", "nodes", "overlaps", "shared", "maintenance"])
def test_no_suspicion_acts_where_it_must_not(tmp_path: Path, how: str) -> None:
    rules = SiteRules(suspicion=how != "site", suspect_overlaps=0 if how == "overlaps" else 10)
    rig = SiteRig(tmp_path, rules)
    rig.tick()
    key, number = silent(rig, shared=how == "shared")
    if how == "boot":
        rig.slurm.knob(boot_time=str(int(time.time())))
    if how == "many":
        for name in range(10, 16):
            rig.slurm.node(f"d{name}", "IDLE", "NOT_RESPONDING")
    if how == "nodes":
        rig.slurm.knob(nodes="away")
    if how == "maintenance":
        write_file(rig.tick_folder, "maintenance.all", {"begin": time.time() - 60.0, "end": None, "by": ""})
    rig.later_s += 30.0
    rig.settle()
    assert (rig.state(key).phase.value, rig.slurm.ids()) == ("running", [number])


def test_why_no_suspicion_acts_is_said_once(suspicious: SiteRig) -> None:
    rig = suspicious
    for name in range(10, 16):
        rig.slurm.node(f"d{name}", "IDLE", "NOT_RESPONDING")
    for _ in range(3):
        rig.tick()
    rig.slurm.node("d20", "IDLE", "NOT_RESPONDING")
    rig.tick()
    assert len(rig.log) == 1
    assert "6 nodes are silent" in rig.log[0]


def test_one_pass_keeps_to_the_limit_on_overlaps(tmp_path: Path) -> None:
    rig = SiteRig(tmp_path, SiteRules(suspicion=True, suspect_overlaps=2))
    rig.tick()
    keys = [silent(rig)[0] for _ in range(1)]
    for _ in range(3):
        key = rig.job(suspect_s=30.0)
        rig.start(key)
        keys.append(key)
    rig.tick()
    rig.later_s += 2.0
    rig.settle()
    assert sum("suspected" in rig.kinds(key) for key in keys) == 2


# Slurm calls.


def test_a_quiet_tick_asks_for_the_queue_and_at_most_for_the_nodes(tmp_path: Path) -> None:
    rig = SiteRig(tmp_path, SiteRules(suspicion=True))
    rig.start(rig.job())
    rig.settle()
    before = len(rig.slurm.calls())
    rig.keeper.begin({}, time.time(), full=True)
    assert rig.slurm.calls()[before:] == ["nodes"]
    before = len(rig.slurm.calls())
    rig.keeper.begin({}, time.time(), full=False)
    assert rig.slurm.calls()[before:] == []


def test_while_a_node_is_silent_passes_between_full_ones_ask_too_and_not_all_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = SiteRig(tmp_path, SiteRules(suspicion=True))
    rig.slurm.node("c1", "ALLOCATED", "NOT_RESPONDING")
    rig.tick()
    content = hints.read(rig.tick_folder)
    before = len(rig.slurm.calls("nodes"))
    rig.keeper.begin(content, time.time(), full=False)
    assert len(rig.slurm.calls("nodes")) == before  # the full pass has just asked
    monkeypatch.setattr(keeper, "SILENT_AGE_S", -1.0)
    found = rig.keeper.begin(content, time.time(), full=False)
    assert len(rig.slurm.calls("nodes")) == before + 1
    assert set(found.suspects.since) == {"c1"}


def test_a_site_without_suspicion_or_memory_is_not_asked_for_its_nodes(rig: SiteRig) -> None:
    rig.start(rig.job())
    rig.settle()
    assert rig.slurm.calls("nodes") == []
    assert os.listdir(rig.tick_folder) == []  # and nothing was written


# Breaker, limits, maintenance.


def test_a_storm_is_held_said_once_and_goes_on_by_itself(tmp_path: Path) -> None:
    rig = SiteRig(tmp_path, SiteRules(bounds=Bounds(resubmissions=2, window_s=600.0)))
    keys = [rig.job() for _ in range(3)]
    for key in keys:
        rig.start(key)
        ends(rig, key, "PREEMPTED", "COMPLETING")
        rig.tick()
    last = rig.job()
    rig.start(last)
    ends(rig, last, "PREEMPTED", "COMPLETING")
    rig.settle()
    assert (decided(rig, last)["action"], decided(rig, last)["why"]) == ("hold", "breaker")
    assert [line for line in rig.log if "breaker is open" in line] == rig.log
    rig.anew()  # another process goes on from the files
    rig.later_s = 601.0
    rig.settle()
    assert rig.last(last, "release").body["how"] == "breaker"
    assert rig.kinds(last)[-1] == "submitted"


def test_the_limit_on_resubmissions_holds_within_one_pass_too(tmp_path: Path) -> None:
    limits = (Limit(1, resubmissions_per_hour=2),)
    rig = SiteRig(tmp_path, SiteRules(limits=limits))
    keys = [rig.job() for _ in range(4)]
    for key in keys:
        rig.start(key)
        ends(rig, key, "PREEMPTED", "COMPLETING")
    rig.settle()
    actions = sorted(decided(rig, key)["action"] for key in keys)
    assert actions == ["hold", "hold", "resubmit", "resubmit"]
    assert len(rig.hints().recent.resubmissions) == 2
    rig.later_s = 3601.0
    rig.settle()
    assert sum(rig.kinds(key)[-1] == "submitted" for key in keys) == 4


def test_what_ends_in_maintenance_costs_nothing_and_comes_back_after_it(rig: SiteRig) -> None:
    now = time.time()
    window = maintenance.Window("low", now - 5.0, now + 3600.0, "user:root@ctl")
    write_file(rig.tick_folder, maintenance.name_of("low"), maintenance.content(window))
    key = rig.job("failed:resubmit,budget=0")
    rig.start(key)
    ends(rig, key, "FAILED", exit_status=1)
    rig.settle()
    found = decided(rig, key)
    assert (found["action"], found["free"]) == ("resubmit", True)
    assert window.end is not None
    assert window.end <= found["inputs"]["maintenance_until"] <= window.end + 600.0
    (begin,) = [word for word in rig.slurm.job(rig.object(key))["argv"] if word.startswith("--begin=now+")]
    assert 3500 < int(begin.partition("+")[2]) < 4300


# Holds: the site's clock, and telling.


def notify_command(tmp_path: Path, status: int = 0) -> tuple[tuple[str, ...], Path]:
    """A command that keeps what it was told."""
    said, path = tmp_path / "said", tmp_path / "notify"
    path.write_text(f"#!/bin/sh\ncat >>{said}\nexit {status}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return (str(path), "--mail"), said


def held(rig: SiteRig) -> str:
    key = rig.job()
    rig.start(key)
    ends(rig, key, "OUT_OF_MEMORY", exit_signal=9)
    rig.tick()
    return key


def test_the_owner_is_told_once_and_the_status_is_in_the_record(tmp_path: Path) -> None:
    argv, said = notify_command(tmp_path, 3)
    rig = SiteRig(tmp_path, SiteRules(notify=argv, notify_user=ME, notify_timeout_s=50.0))
    key = held(rig)
    rig.wait("the owner to be told", lambda: "told" in rig.kinds(key))
    rig.settle()
    assert rig.last(key, "told").body == {"on": rig.last(key, "decision").seq, "what": "start", "status": 3}
    assert rig.kinds(key).count("told") == 1
    (line,) = said.read_text().splitlines()
    message = json.loads(line)
    assert rig.log == ["the notify command fails: status 3"]
    assert (message["job"], message["what"], message["why"], message["uid"]) == (key, "start", "rule", rig.uid)


def test_where_nobody_tells_the_record_says_so(rig: SiteRig) -> None:
    key = held(rig)
    rig.settle()
    assert rig.last(key, "told").body["status"] is None


def test_a_command_that_cannot_be_run_is_not_tried_again(tmp_path: Path) -> None:
    rig = SiteRig(tmp_path, SiteRules(notify=(str(tmp_path / "nothing"),), notify_user=ME))
    key = held(rig)
    rig.wait("the end of it", lambda: "told" in rig.kinds(key))
    assert rig.last(key, "told").body["status"] is None


def test_a_hold_counts_only_time_in_which_ticks_ran(rig: SiteRig) -> None:
    key = held(rig)
    rig.settle()
    assert rig.hints().clock is not None
    rig.later_s = 30 * 86400.0  # the controller was away for a month
    rig.settle()
    assert rig.state(key).phase.value == "held"
    length_s = rig.rules.longest_hold_s
    passes = 0
    while rig.state(key).phase.value == "held":
        rig.later_s += 290.0
        rig.tick()
        passes += 1
        assert passes < length_s / 290.0 + 10
        if passes == 3:  # nothing more to see in between: the rest at once
            clock = rig.hints().clock
            assert clock is not None
            body = {"id": clock.id, "ran_s": clock.ran_s + length_s - 900.0, "at": clock.at, "wanted": clock.wanted}
            write_file(rig.tick_folder, "clock", body)
    assert rig.last(key, "closed").body["why"] == "hold_expired"
    assert {"start", "expired"} <= {fact.body["what"] for fact in rig.facts(key) if fact.kind == "told"}


def test_a_clock_that_was_removed_loses_no_hold(rig: SiteRig) -> None:
    key = held(rig)
    rig.settle()
    for _ in range(3):
        rig.later_s += 200.0
        rig.tick()
    os.unlink(os.path.join(rig.tick_folder, "clock"))
    rig.settle()
    rig.later_s += 200.0
    rig.settle()
    assert rig.state(key).phase.value == "held"
    ids = [fact.body["clock"] for fact in rig.facts(key) if fact.kind == "held"]
    assert len(set(ids)) == 2


# Cessation.


class Says:
    """Answers what the file says, in a child as the real ones do; a line for each question."""

    source = "says"
    together = False

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.say("unknown")

    def say(self, answer: str) -> None:
        (self.folder / "answer").write_text(answer)

    def ask(self, executions: Sequence[AskedExecution], deadline_s: float) -> list[CessationAnswer]:
        with (self.folder / "asked").open("a") as stream:
            stream.writelines(f"{it.attempt} {','.join(it.nodes)} {it.user}\n" for it in executions)
        answer = (self.folder / "answer").read_text()
        return [answered(answer, self.source, "", time.time()) for _ in executions]

    def asked(self) -> list[str]:
        try:
            return (self.folder / "asked").read_text().splitlines()
        except FileNotFoundError:
            return []


def test_a_shared_job_goes_on_when_every_older_execution_has_ceased(tmp_path: Path) -> None:
    says = Says(tmp_path)
    rules = SiteRules(cessation_interval_s=5.0)
    rig = SiteRig(tmp_path, rules, Asker(says, user=ME))
    key = rig.job(shared=True)
    rig.start(key)
    rig.tick()
    attempt = rig.last(key, "started").body["attempt"]
    ends(rig, key, "PREEMPTED", "COMPLETING")
    rig.wait("an answer", lambda: "cessation" in rig.kinds(key))
    assert decided(rig, key)["why"] == "shared"
    assert rig.last(key, "cessation").body["answer"] == "unknown"
    assert says.asked()[0] == f"{attempt} c1 {ME}"
    says.say("ceased")
    rig.anew()  # another process has asked nobody yet
    rig.wait("its release", lambda: "submitted" in rig.kinds(key)[6:])
    assert rig.last(key, "release").body["how"] == "ceased"
    assert [fact.body["answer"] for fact in rig.facts(key) if fact.kind == "cessation"] == ["unknown", "ceased"]
    rig.settle()
    assert rig.kinds(key).count("intent") == 2


def test_equal_answers_are_counted_and_not_written_each_time(tmp_path: Path) -> None:
    says = Says(tmp_path)
    rig = SiteRig(tmp_path, SiteRules(cessation_interval_s=0.0), Asker(says, user=ME))
    key = rig.job(shared=True)
    rig.start(key)
    rig.tick()
    ends(rig, key, "PREEMPTED", "COMPLETING")
    rig.wait("five questions", lambda: len(says.asked()) >= 5)
    kept = read_asked(rig.record(key).folder)
    assert rig.kinds(key).count("cessation") == 1
    assert [it.count > 1 for it in kept.values()] == [True]
    says.say("running")
    rig.wait("another answer", lambda: rig.last(key, "cessation").body["answer"] == "running")
    counts = [fact.body["count"] for fact in rig.facts(key) if fact.kind == "cessation"]
    assert len(counts) == 3
    assert counts[1] > 1


def test_a_person_may_release_whatever_the_answers_are(tmp_path: Path) -> None:
    says = Says(tmp_path)
    says.say("running")
    rig = SiteRig(tmp_path, SiteRules(), Asker(says, user=ME))
    key = rig.job(shared=True)
    rig.start(key)
    rig.tick()
    ends(rig, key, "PREEMPTED", "COMPLETING")
    rig.wait("an answer", lambda: "cessation" in rig.kinds(key))
    on = rig.last(key, "decision").seq
    rig.record(key).append(len(rig.facts(key)) + 1, "release", "user:ada@login", {
        "on": on, "how": "person", "reason": "looked"})  # fmt: skip
    rig.settle()
    assert rig.kinds(key)[-1] == "submitted"


def test_where_nobody_answers_a_person_decides(rig: SiteRig) -> None:
    key = rig.job(shared=True)
    rig.start(key)
    rig.tick()
    ends(rig, key, "PREEMPTED", "COMPLETING")
    rig.settle()
    assert rig.state(key).phase.value == "held"
    assert rig.reports[key].site["ask"] == []


# What comes from an owner's child.


def test_what_a_child_says_is_taken_only_if_it_is_whole() -> None:
    whole = Hearsay("ml", "low", [hearsay.Ended(1, 5.0, "failed", ("c1",))], [(2, 6.0)], 7.0, True)
    content = hearsay.pack(whole)
    assert hearsay.unpack(json.loads(json.dumps(content)), 1001, "ada") == whole
    assert hearsay.pack(Hearsay("ml", "low")) == {}
    assert hearsay.unpack({}, 1001, "ada") == Hearsay()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("ended", [[1, 5.0, "exploded", []]]),
        ("ended", [[1, 5.0, "failed", ["c1; rm"]]]),
        ("ended", [[0, 5.0, "failed", []]]),
        ("ended", [[1, float("nan"), "failed", []]]),
        ("ended", [[1, 5.0, "failed"]]),
        ("ended", [[1, 5.0, "failed", []]] * 65),
        ("ended", [[1, 5.0, "failed", [f"c{n}" for n in range(65)]]]),
        ("resubmitted", [[True, 5.0]]),
        ("resubmitted", [[1]]),
        ("overlap", "now"),
        ("account", 5),
        ("partition", "p" * 129),
        ("ask", ["{}"]),
        ("ask", [5]),
        ("tell", [[1, "shout", "", "", ""]]),
        ("tell", [[0, "start", "", "", ""]]),
        ("tell", None),
    ],
)
def test_what_makes_no_sense_is_refused(field: str, value: object) -> None:
    content = hearsay.pack(Hearsay(clock=True))
    hearsay.unpack(content, 1001, "ada")
    with pytest.raises(BadDataError):
        hearsay.unpack({**content, field: value}, 1001, "ada")
    with pytest.raises(BadDataError):
        hearsay.unpack([], 1001, "ada")


def test_the_stand_ins_nodes_are_slurms(tmp_path: Path) -> None:
    slurm = FakeSlurm(str(tmp_path))
    slurm.node("c2", "MIXED", "NOT_RESPONDING")
    answer = slurm.nodes()
    assert [node.name for node in getattr(answer, "nodes", ()) if node.silent] == ["c2"]
