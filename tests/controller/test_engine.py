"""The recovery engine in the controller: suspicion, Slurm calls, breaker, limits, and what children report."""

from __future__ import annotations

import json
import os
import pwd
import time
from typing import TYPE_CHECKING

import pytest

from slurm_dispatch.config.limits import Limit
from slurm_dispatch.controller import hearsay, hints, keeper, maintenance
from slurm_dispatch.controller.breaker import Bounds
from slurm_dispatch.controller.hearsay import Hearsay
from slurm_dispatch.controller.siterules import SiteRules
from slurm_dispatch.controller.tickfile import write_file
from slurm_dispatch.errors import BadDataError
from tests.controller.fake_slurm import FakeSlurm
from tests.controller.site_rig import SiteRig

if TYPE_CHECKING:
    from pathlib import Path

    from slurm_dispatch.slurm.port import CancelAnswer

ME = pwd.getpwuid(os.getuid()).pw_name


@pytest.fixture
def rig(tmp_path: Path) -> SiteRig:
    return SiteRig(tmp_path)


# Suspicion.


@pytest.fixture
def suspicious(tmp_path: Path) -> SiteRig:
    """A site that allows suspicion, and has ticked before."""
    rig = SiteRig(tmp_path, SiteRules(suspicion=True))
    rig.tick()
    return rig


def test_a_silent_node_is_replaced_before_slurm_gives_it_up(suspicious: SiteRig) -> None:
    rig = suspicious
    key, number = rig.runs_on_a_silent_node()
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
    key, number = rig.runs_on_a_silent_node()
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
    rig.runs_on_a_silent_node()
    plain = rig.job()  # did not ask for it
    rig.start(plain)
    rig.later_s += 2.0
    rig.settle()
    assert [rig.state(key).phase.value for key in (other, plain)] == ["running", "running"]


def test_no_node_is_remembered_for_a_refusal_of_our_own(tmp_path: Path) -> None:
    rig = SiteRig(tmp_path)
    key = rig.job(shared=True)
    number = rig.start(key)
    rig.tick()
    rig.slurm.restart(rig.object(key), "REQUEUED")
    rig.refused_note(key, rig.object(key), "shared", number + 5)
    rig.slurm.restart(rig.object(key))
    rig.settle()
    assert rig.last(key, "end").body["outcome"] == "launch_failed"
    assert [end.outcome for end in rig.hints().recent.ends] == ["cancelled", "launch_failed"]
    assert rig.hints().memory == ()


@pytest.mark.parametrize("how", ["site", "boot", "many", "nodes", "overlaps", "shared", "maintenance"])
def test_no_suspicion_acts_where_it_must_not(tmp_path: Path, how: str) -> None:
    rules = SiteRules(suspicion=how != "site", suspect_overlaps=0 if how == "overlaps" else 10)
    rig = SiteRig(tmp_path, rules)
    rig.tick()
    key, number = rig.runs_on_a_silent_node(shared=how == "shared")
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
    keys = [rig.runs_on_a_silent_node()[0]]
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
        rig.ends(key, "PREEMPTED", "COMPLETING")
        rig.tick()
    last = rig.job()
    rig.start(last)
    rig.ends(last, "PREEMPTED", "COMPLETING")
    rig.settle()
    assert (rig.decided(last)["action"], rig.decided(last)["why"]) == ("hold", "breaker")
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
        rig.ends(key, "PREEMPTED", "COMPLETING")
    rig.settle()
    actions = sorted(rig.decided(key)["action"] for key in keys)
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
    rig.ends(key, "FAILED", exit_status=1)
    rig.settle()
    found = rig.decided(key)
    assert (found["action"], found["free"]) == ("resubmit", True)
    assert window.end is not None
    assert window.end <= found["inputs"]["maintenance_until"] <= window.end + 600.0
    (begin,) = [word for word in rig.slurm.job(rig.object(key))["argv"] if word.startswith("--begin=now+")]
    assert 3500 < int(begin.partition("+")[2]) < 4300


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
        ("tell", [[1, "shout", "", "", "", 0.0]]),
        ("tell", [[0, "start", "", "", "", 0.0]]),
        ("tell", [[1, "start", "", "", "", -1.0]]),
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


def test_a_replacement_that_starts_as_it_is_cancelled_costs_neither_the_job_nor_a_budget(
    suspicious: SiteRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The nodes answer, scancel goes out, and Slurm starts the replacement in that very second."""
    rig = suspicious
    key, first = rig.runs_on_a_silent_node()
    rig.later_s += 2.0
    rig.settle()
    second = rig.object(key)
    rig.slurm.node("c1", "ALLOCATED")
    cancel = rig.slurm.cancel

    def too_late(number: int, cluster: str | None) -> CancelAnswer:
        if number == second and "PENDING" in rig.slurm.job(number)["states"]:
            rig.start_note(key, number, rig.slurm.start(number, nodes="c2"), nodes="c2")
        return cancel(number, cluster)

    monkeypatch.setattr(rig.slurm, "cancel", too_late)
    rig.settle()
    for number in (first, second):
        assert "CANCELLED" in rig.slurm.job(number)["states"]
        rig.end_note(key, number)
    rig.settle()
    third = rig.object(key)
    alive = [number for number in rig.slurm.ids() if rig.slurm.job(number)["states"] == ["PENDING"]]
    assert alive == [third]
    assert third not in {first, second}
    decided = rig.decided(key)
    assert (decided["action"], decided["outcome"], decided["free"]) == ("resubmit", "suspect", True)
    assert rig.state(key).phase.value == "queued"


def test_a_stranger_s_note_with_this_jobs_word_does_not_say_where_it_runs(rig: SiteRig) -> None:
    """Limits and maintenances are those of the owner's own partition."""
    key = rig.job("timeout:resubmit")
    rig.start(key)
    stranger = rig.slurm.plain(comment=f"mine {rig.word(key)}", uid=rig.uid + 7)
    rig.start_note(key, stranger, rig.slurm.start(stranger), uid=rig.uid + 7, partition="debug", account="theirs")
    rig.ends(key, "TIMEOUT")
    rig.tick()
    assert rig.heard(rig.reports[key]).partition == "low"
