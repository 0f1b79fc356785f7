"""The tick's own files: each a hint that can be lost, torn or forged without harm."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from slurm_dispatch.controller import breaker, clock, hints, maintenance, memory, recent, silence
from slurm_dispatch.controller.breaker import Bounds, Breaker
from slurm_dispatch.controller.clock import Clock
from slurm_dispatch.controller.hints import Hints
from slurm_dispatch.controller.maintenance import Window
from slurm_dispatch.controller.memory import Entry, Fading, Failure
from slurm_dispatch.controller.recent import End, Overlap, Recent, Resubmission
from slurm_dispatch.controller.silence import Silence
from slurm_dispatch.controller.tickfile import read_file, write_file
from slurm_dispatch.slurm.port import Node, Nodes, Unknown

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

NOW = 1_800_000_000.0
FADING = Fading()


def full() -> Hints:
    """Hints with something in every part."""
    return Hints(
        Clock("c10c", 12.5, NOW, NOW + 5.0),
        Silence(NOW, {"c1": NOW - 30.0}, {"c2": NOW - 60.0}, "6 nodes are silent"),
        (Entry("c1", NOW - 5.0, 1.0, "abc", 2, 1001, "node_fail", "low"),),
        Recent(
            (Resubmission(NOW, "abc", 2, 1001, "ada", "ml", "low"),),
            (End(NOW, "abc", 1, 1001, "node_fail", ("c1", "c2")),),
            (Overlap(NOW - 1.0, "abc", 1001, "ada", "ml", "low"),),
        ),
        Breaker("too much", NOW, {1001: "his own"}),
        (),
    )


def nodes(*silent: str, count: int = 20, state: str = "IDLE") -> Nodes:
    """So many nodes, those silent."""
    named = [f"c{number}" for number in range(1, count + 1)]
    flags = {name: frozenset({"NOT_RESPONDING"}) if name in silent else frozenset() for name in named}
    return Nodes(tuple(Node(name, state if name in silent else "IDLE", flags[name], ("low",)) for name in named))


def config(started: float = NOW - 10_000.0) -> Mapping[str, str]:
    return {"BOOT_TIME": str(int(started)), "SlurmdTimeout": "300 sec"}


# The files.


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    hints.write(str(tmp_path), hints.changes(Hints(), full()))
    assert hints.load(str(tmp_path)) == full()
    assert sorted(os.listdir(tmp_path)) == ["breaker", "clock", "memory", "recent", "silent"]
    assert all(os.stat(tmp_path / name).st_mode & 0o777 == 0o644 for name in os.listdir(tmp_path))


def test_nothing_new_writes_nothing() -> None:
    assert hints.changes(full(), full()) == {}
    assert hints.changes(Hints(), Hints(clock=Clock("x", 0.0, NOW))) == {}  # nobody wants a clock
    assert hints.changes(Hints(), Hints(silence=Silence(NOW))) == {}  # nothing is silent


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b"null", b'{"v": 2, "id": "x", "ran_s": 1, "at": 1}', b"\xff\xfe", b"[" * 100_000,
     b'{"v": 1, "id": 5, "ran_s": "x", "entries": {"a": 1}, "nodes": [1], "open": "yes", "resubmissions": 3}',
     b'{"v": 1, "entries": [[1, 2], ["c1", 1, 1, "j", "x", 1, "failed", "low"], 5], "ends": [[1], null]}'],
)  # fmt: skip
def test_a_file_that_makes_no_sense_is_no_file(tmp_path: Path, data: bytes) -> None:
    for name in ("clock", "silent", "memory", "recent", "breaker", "maintenance.all"):
        (tmp_path / name).write_bytes(data)
    assert hints.load(str(tmp_path)) == Hints()


def test_a_file_is_never_read_through_a_link(tmp_path: Path) -> None:
    write_file(str(tmp_path), "elsewhere", clock.content(Clock("x", 1.0, NOW)))
    os.symlink(tmp_path / "elsewhere", tmp_path / "clock")
    assert read_file(str(tmp_path), "clock") is None
    assert hints.load(str(tmp_path)) == Hints()


def test_whatever_hints_a_child_hands_over_are_taken_as_far_as_they_go() -> None:
    content = json.loads(json.dumps({"clock": {"id": "x", "ran_s": 1, "at": 2}, "memory": 5, "maintenance": [3, {}]}))
    assert hints.unpack(content) == Hints(clock=Clock("x", 1.0, 2.0))


# The clock.


def test_the_clock_counts_time_in_which_ticks_ran() -> None:
    first = clock.wanted(clock.advance(None, NOW), NOW)
    second = clock.advance(first, NOW + 60.0)
    third = clock.advance(second, NOW + 90.0)
    assert (first.ran_s, second.ran_s, third.ran_s) == (0.0, 60.0, 90.0)
    away = clock.advance(third, NOW + 90.0 + clock.GAP_S + 1.0)
    assert away.ran_s == 90.0  # nobody ticked meanwhile
    assert clock.advance(away, away.at + 10.0).ran_s == 100.0
    seldom = clock.advance(third, NOW + 90.0 + clock.GAP_S + 1.0, 3 * clock.GAP_S)
    assert seldom.ran_s == 90.0 + clock.GAP_S + 1.0  # a site whose ticks come so seldom


def test_a_tick_that_comes_in_time_need_not_write_the_clock() -> None:
    written = clock.wanted(clock.advance(None, NOW), NOW)
    for minute in range(1, 60):  # nothing is written, and nothing is lost
        now, last = NOW + 60.0 * minute, NOW + 60.0 * (minute - 1) + 1.0
        reading = clock.advance(written, now, last=last)
        assert reading.ran_s == 60.0 * minute
        assert not clock.is_news(written, reading, last)
    hourly = clock.advance(written, NOW + clock.WRITE_S, last=NOW + clock.WRITE_S - 60.0)
    assert clock.is_news(written, hourly, NOW + clock.WRITE_S - 60.0)
    late = clock.advance(written, NOW + 1800.0 + clock.GAP_S + 1.0, last=NOW + 1800.0)
    assert late.ran_s == 1800.0  # up to the last tick before the gap
    assert clock.is_news(written, late, NOW + 1800.0)
    assert clock.is_news(written, clock.advance(written, NOW + 60.0), None)  # nothing tells of ticks in between
    assert clock.advance(written, NOW + 1800.0).ran_s == 0.0
    assert clock.is_news(None, written, NOW)


def test_a_clock_that_is_wanted_again_does_not_count_the_time_before() -> None:
    once = clock.wanted(clock.advance(None, NOW), NOW)
    now = NOW + 2 * clock.WANTED_S
    still = clock.advance(once, now, last=now - 60.0)
    again = clock.wanted(still, now)
    assert clock.is_news(once, again, now - 60.0)
    assert clock.advance(again, now + 60.0, last=now + 1.0).ran_s == once.ran_s + 60.0


def test_a_host_clock_that_steps_counts_nothing_twice() -> None:
    """Two hosts whose clocks differ, in turn."""
    reading = clock.wanted(clock.advance(None, NOW), NOW)
    for number in range(1, 11):
        reading = clock.advance(reading, NOW + 10.0 * number)
        reading = clock.advance(reading, NOW + 10.0 * number - 50.0)  # the other host is late
    assert reading.ran_s == 100.0
    forward = clock.advance(reading, NOW + 1e6)
    assert forward.ran_s == 100.0
    back = clock.advance(forward, NOW + 110.0)
    assert (back.ran_s, back.id) == (100.0, reading.id)


def test_a_clock_that_nobody_wants_stands_still() -> None:
    reading = clock.wanted(clock.advance(None, NOW), NOW)
    late = clock.advance(reading, NOW + clock.WANTED_S)
    assert late == reading
    assert clock.wanted(reading, NOW + 5.0) is reading  # not written for each pass
    assert clock.advance(None, NOW).id != reading.id


# Silent nodes.


def suspects(answer: Nodes | Unknown, seen: Silence, started: float = NOW - 10_000.0) -> silence.Suspects:
    return silence.suspects(seen, answer, lambda: config(started), NOW, share=0.01, count=5)


def test_silence_counts_from_the_first_look_without_a_break() -> None:
    first = silence.look(Silence(), nodes("c1"), NOW)
    second = silence.look(first, nodes("c1", "c2"), NOW + 60.0)
    assert second.silent == {"c1": NOW, "c2": NOW + 60.0}
    assert silence.look(second, Unknown("away"), NOW + 90.0) == second
    assert silence.look(second, nodes("c2"), NOW + 100.0).silent == {"c2": NOW + 60.0}
    late = silence.look(second, nodes("c1"), NOW + 60.0 + silence.GAP_S + 1.0)
    assert late.silent == {"c1": late.at}  # nothing tells what was in between
    back = silence.look(second, nodes("c1"), NOW - 10.0)  # the clock stepped
    assert back.silent == {"c1": NOW - 10.0}


def test_one_silent_node_may_be_suspected() -> None:
    answer = nodes("c1", state="ALLOCATED")
    found = suspects(answer, silence.look(Silence(), answer, NOW))
    assert found == silence.Suspects({"c1": NOW})
    assert suspects(nodes(), Silence()) == silence.Suspects()


@pytest.mark.parametrize(
    ("silent", "count", "acts"), [(5, 20, True), (6, 20, False), (10, 1000, True), (11, 1000, False)]
)
def test_many_silent_nodes_are_a_network(silent: int, count: int, acts: bool) -> None:
    """No suspicion acts while more than 1 % of the nodes, or 5, are silent: the larger counts."""
    answer = nodes(*[f"c{number}" for number in range(1, silent + 1)], count=count, state="ALLOCATED")
    found = suspects(answer, silence.look(Silence(), answer, NOW))
    assert bool(found.since) is acts
    assert bool(found.why) is not acts


def test_nodes_that_slurm_gave_up_long_ago_say_nothing_of_the_network() -> None:
    dead = [f"c{number}" for number in range(1, 11)]
    answer = nodes(*dead, count=20, state="DOWN")
    old = Silence(NOW, dict.fromkeys(dead, NOW - silence.GIVEN_UP_S - 1.0))
    assert suspects(answer, old) == silence.Suspects()
    fresh = silence.look(Silence(), answer, NOW)
    assert "10 nodes are silent" in suspects(answer, fresh).why


def test_a_node_that_is_down_is_slurms() -> None:
    answer = nodes("c1", state="DOWN")
    assert suspects(answer, silence.look(Silence(), answer, NOW)).since == {}


def test_no_suspicion_acts_within_two_pings_of_slurmctlds_start() -> None:
    answer = nodes("c1", state="ALLOCATED")
    seen = silence.look(Silence(), answer, NOW - 0.0)
    assert silence.ping_s(config()) == 100.0
    assert "two pings" in suspects(answer, seen, NOW - 199.0).why
    assert suspects(answer, seen, NOW - 200.0).since == {"c1": NOW}


@pytest.mark.parametrize("told", [Unknown("away"), {}, {"BOOT_TIME": "2026-11-30T09:00:00"}])
def test_a_controller_whose_start_is_not_known_suspects_nobody(told: Mapping[str, str] | Unknown) -> None:
    answer = nodes("c1", state="ALLOCATED")
    seen = silence.look(Silence(), answer, NOW)
    found = silence.suspects(seen, answer, lambda: told, NOW, share=0.01, count=5)
    assert (found.since, bool(found.why)) == ({}, True)


def test_the_configuration_is_asked_for_only_where_a_node_is_silent() -> None:
    asked: list[int] = []

    def ask() -> Mapping[str, str]:
        asked.append(1)
        return config()

    silence.suspects(Silence(), nodes(), ask, NOW, share=0.01, count=5)
    assert asked == []


# Node memory.


def failure(node: str, uid: int, outcome: str = "node_fail", job: str = "", **about: object) -> Failure:
    values: dict[str, object] = {"at": NOW, "job": job or f"j{uid}", "submission": 1, "uid": uid,
                                 "outcome": outcome, "partition": "low", "nodes": (node,)}  # fmt: skip
    return Failure(**{**values, **about})  # type: ignore[arg-type]


def keep_off(entries: tuple[Entry, ...], uid: int, now: float = NOW, answer: Nodes | None = None) -> tuple[str, ...]:
    return memory.excluded(entries, nodes() if answer is None else answer, uid, ["low"], FADING, now=now)


def test_ones_own_evidence_keeps_ones_own_jobs_off_and_it_takes_two_to_keep_all_off() -> None:
    one = memory.remember((), [failure("c1", 1001)], FADING, NOW)
    assert keep_off(one, 1001) == ("c1",)
    assert keep_off(one, 1002) == ()
    many = memory.remember(one, [failure("c1", 1001, job=f"k{number}") for number in range(50)], FADING, NOW)
    assert keep_off(many, 1002) == ()
    two = memory.remember(one, [failure("c1", 1003)], FADING, NOW)
    assert keep_off(two, 1002) == ("c1",)


def test_what_is_reported_twice_counts_once() -> None:
    once = memory.remember((), [failure("c1", 1001, "failed")], FADING, NOW)
    assert memory.remember(once, [failure("c1", 1001, "failed"), failure("c1", 1001, "failed")], FADING, NOW) == once


def test_evidence_fades_and_is_forgotten() -> None:
    one = memory.remember((), [failure("c1", 1001)], FADING, NOW)
    assert memory.scores(one, 1001, FADING, NOW + FADING.half_life_s) == {"c1": pytest.approx(0.5)}
    assert keep_off(one, 1001, NOW + 1.01 * FADING.half_life_s) == ()
    assert memory.remember(one, [], FADING, NOW + FADING.expiry_s) == ()


def test_the_more_nodes_an_execution_had_the_less_it_says_of_each() -> None:
    two = memory.remember((), [failure("", 1001, nodes=("c1", "c2", "c3"))], FADING, NOW)
    assert memory.scores(two, 1001, FADING, NOW) == pytest.approx(dict.fromkeys(("c1", "c2", "c3"), 1 / 3))
    assert memory.remember((), [failure("", 1001, nodes=tuple(f"c{n}" for n in range(65)))], FADING, NOW) == ()
    assert memory.remember((), [failure("c1", 1001, "preempted")], FADING, NOW) == ()


def test_no_more_than_a_share_of_the_partition_is_avoided_and_the_worst_first() -> None:
    bad = [failure(f"c{number}", 1001, job=f"j{number}", at=NOW - number) for number in range(1, 11)]
    entries = memory.remember((), bad, FADING, NOW)
    assert keep_off(entries, 1001) == ("c1", "c2")  # of twenty
    assert keep_off(entries, 1001, answer=nodes(count=3)) == ("c1",)  # one may always be
    assert keep_off(entries, 1001, answer=nodes(count=1)) == ()
    assert memory.excluded(entries, nodes(), 1001, ["low"], Fading(share=0.0), now=NOW) == ()
    assert memory.excluded(entries, nodes(), 1001, ["other"], FADING, now=NOW) == ()


def test_one_owner_does_not_push_out_what_others_saw() -> None:
    seen = memory.remember((), [failure("c1", 1001, at=NOW - 9.0)], FADING, NOW)
    flood = [failure("c2", 1002, job=f"j{number}") for number in range(6_000)]
    entries = memory.remember(seen, flood, FADING, NOW)
    assert len(entries) == 501
    assert keep_off(entries, 1001) == ("c1",)


# What happened lately, and the breaker.


def resubmissions(count: int, uid: int, at: float = NOW) -> list[Resubmission]:
    return [Resubmission(at, f"j{uid}x{number}", 2, uid, "u", "", "low") for number in range(count)]


def ends(count: int, uid: int, outcome: str, node: str = "", at: float = NOW) -> list[End]:
    named = (node,) if node else ()
    return [End(at - number, f"j{uid}x{number}", 1, uid, outcome, named) for number in range(count)]


BOUNDS = Bounds(resubmissions=10, window_s=600.0, drains=3, store_errors=4)


def test_a_storm_of_one_owner_holds_that_owner_and_one_of_two_holds_all() -> None:
    calm = recent.updated(Recent(), NOW, resubmissions=resubmissions(10, 1001))
    assert breaker.judge(Breaker(), calm, {}, BOUNDS, NOW) == Breaker()
    one = recent.updated(Recent(), NOW, resubmissions=resubmissions(500, 1001))
    found = breaker.judge(Breaker(), one, {}, BOUNDS, NOW)
    assert (found.of(1001) is None, found.of(1002), found.open) == (False, None, False)
    both = recent.updated(one, NOW, resubmissions=resubmissions(6, 1002))
    found = breaker.judge(Breaker(), both, {}, BOUNDS, NOW)
    assert found.open
    assert found.of(1003) == found.reason
    assert breaker.judge(found, both, {}, BOUNDS, NOW + 600.0) == Breaker()


def test_it_is_said_once() -> None:
    one = recent.updated(Recent(), NOW, resubmissions=[*resubmissions(9, 1001), *resubmissions(9, 1002)])
    first = breaker.judge(Breaker(), one, {}, BOUNDS, NOW)
    more = recent.updated(one, NOW, resubmissions=resubmissions(9, 1003))
    second = breaker.judge(first, more, {}, BOUNDS, NOW + 1.0)
    assert second.reason != first.reason
    assert second.since == NOW
    assert [len(breaker.said(*pair)) for pair in ((Breaker(), first), (first, second), (second, Breaker()))] == [
        1,
        0,
        1,
    ]
    assert "closed" in breaker.said(second, Breaker())[0]


def test_many_jobs_with_store_errors_at_once() -> None:
    three = recent.updated(Recent(), NOW, ends=ends(3, 1001, "store_error"))
    assert breaker.judge(Breaker(), three, {}, BOUNDS, NOW).of(1001) is None
    four = recent.updated(Recent(), NOW, ends=ends(4, 1001, "store_error"))
    assert "4 jobs with store_error" in str(breaker.judge(Breaker(), four, {}, BOUNDS, NOW).of(1001))
    one = recent.updated(Recent(), NOW, ends=ends(1, 1001, "store_error"))
    first = replace(BOUNDS, store_errors=1)  # the least that the setting can be
    assert "1 jobs with store_error of one user in 10m" in str(breaker.judge(Breaker(), one, {}, first, NOW).of(1001))
    assert breaker.judge(Breaker(), one, {}, replace(BOUNDS, store_errors=0), NOW).of(1001) is None
    again = recent.updated(three, NOW, ends=[End(NOW, "j1001x0", 2, 1001, "store_error", ())])
    assert breaker.judge(Breaker(), again, {}, BOUNDS, NOW).of(1001) is None  # three jobs still


def test_executions_in_a_row_that_leave_nodes_drained() -> None:
    """C162: the breaker opens after so many of them, and says why."""
    on_c1, on_c2 = ends(1, 1001, "failed", "c1"), ends(1, 1002, "failed", "c2", NOW - 9.0)
    row = recent.updated(Recent(), NOW, ends=[*on_c1, *on_c2, *ends(1, 1003, "failed", "c3")])
    drained = {"c1": NOW - 5.0, "c2": NOW + 20.0, "c3": NOW - 4.0}
    found = breaker.judge(Breaker(), row, drained, BOUNDS, NOW)
    assert "3 executions in a row" in found.reason
    assert breaker.judge(Breaker(), row, {"c1": NOW - 5.0}, BOUNDS, NOW) == Breaker()
    assert breaker.judge(Breaker(), row, {"c1": NOW - 9_000.0, "c2": NOW}, BOUNDS, NOW) == Breaker()  # drained before
    assert breaker.judge(Breaker(), row, {}, BOUNDS, NOW) == Breaker()  # a person brought them back


def test_what_ends_on_nodes_that_an_operator_drains_opens_no_breaker() -> None:
    """Jobs run out there, are preempted or cancelled: nothing speaks against the nodes."""
    drained = {"c1": NOW - 5.0}
    for outcome in ("timeout", "unfinished", "preempted", "cancelled", "out_of_memory"):
        row = recent.updated(Recent(), NOW, ends=ends(5, 1001, outcome, "c1"))
        assert breaker.judge(Breaker(), row, drained, BOUNDS, NOW) == Breaker(), outcome
    among = [
        *ends(1, 1001, "failed", "c1"), *ends(1, 1002, "failed", "c2"), *ends(4, 1003, "preempted", "c2"),
        *ends(1, 1004, "node_fail", "c3"),
    ]  # fmt: skip
    drained = {"c1": NOW - 10.0, "c2": NOW - 9.0, "c3": NOW - 10.0}
    found = breaker.judge(Breaker(), recent.updated(Recent(), NOW, ends=among), drained, BOUNDS, NOW)
    assert found.reason == "3 executions in a row left a node drained"


def test_a_drained_node_speaks_for_one_execution() -> None:
    """Of many that failed on one node in the minutes before, one left it drained, and no other node is in danger."""
    ages = (250.0, 200.0, 150.0, 100.0)
    earlier = [end for age in ages for end in ends(1, 1001 + int(age), "failed", "c1", NOW - age)]
    row = recent.updated(Recent(), NOW, ends=[*earlier, *ends(1, 1001, "failed", "c1", NOW - 9.0)])
    drained = {"c1": NOW - 5.0}
    assert breaker.judge(Breaker(), row, drained, replace(BOUNDS, drains=2), NOW) == Breaker()
    said = breaker.judge(Breaker(), row, drained, replace(BOUNDS, drains=1), NOW).of(1001)
    assert said == "1 executions in a row left a node drained"


def test_what_happened_counts_once_and_is_forgotten() -> None:
    first = recent.updated(Recent(), NOW, resubmissions=resubmissions(3, 1001), ends=ends(2, 1001, "failed"))
    again = recent.updated(first, NOW, resubmissions=resubmissions(3, 1001), ends=ends(2, 1001, "failed"))
    assert again == first
    assert recent.updated(first, NOW + recent.KEPT_S) == Recent()


def test_an_overlap_lasts_until_its_job_says_that_it_is_over() -> None:
    first = recent.updated(Recent(), NOW, overlaps=[Overlap(NOW, "abc", 1001, "ada")])
    assert recent.updated(first, NOW + 100.0, over=["xyz"]) == first
    assert recent.updated(first, NOW + 100.0, over=["abc"]) == Recent()
    assert recent.updated(first, NOW + recent.OVERLAP_EXPIRES_S) == Recent()


# Maintenance.


def back(
    *windows: Window, partitions: tuple[str, ...] = ("low",), now: float = NOW, jitter: float = 0.5
) -> float | None:
    return maintenance.back_at(windows, partitions, now, spread_s=600.0, jitter=jitter)


def test_what_ends_in_maintenance_comes_back_spread_after_its_end() -> None:
    window = Window("low", NOW - 60.0, NOW + 3600.0, "user:root@ctl")
    assert back(window) == NOW + 3600.0 + 300.0
    assert back(window, jitter=0.0) == NOW + 3600.0
    assert back(window, partitions=("high",)) is None
    assert back(window, partitions=()) is None
    assert back(window, now=NOW - 61.0) is None
    assert back(window, now=NOW + 3600.0 + 60.0) == NOW + 3660.0 + 300.0  # the tick came a little later
    assert back(window, now=NOW + 3600.0 + maintenance.GRACE_S) is None


def test_of_several_partitions_all_must_be_in_maintenance() -> None:
    low, high = Window("low", NOW, NOW + 100.0, ""), Window("high", NOW, NOW + 50.0, "")
    assert back(low, partitions=("low", "high")) is None
    assert back(low, high, partitions=("low", "high"), jitter=0.0) == NOW + 50.0
    everything = Window(maintenance.ALL, NOW, NOW + 70.0, "")
    assert back(everything, partitions=(), jitter=0.0) == NOW + 70.0
    assert back(low, everything, jitter=0.0) == NOW + 70.0


def test_an_end_that_was_not_told_is_thought_an_hour_away() -> None:
    assert back(Window("low", NOW - 9_000.0, None, ""), jitter=0.0) == NOW + maintenance.OPEN_S


@pytest.mark.parametrize("name", ["maintenance.", "maintenance.a/b", "maintenance.-x", "maintenance." + "p" * 300])
def test_a_file_with_a_name_that_is_none_is_no_maintenance(name: str) -> None:
    assert maintenance.from_content(name.partition(".")[2], {"begin": 1.0, "end": None}) is None


@pytest.mark.parametrize("partition", ["low", maintenance.ALL])
def test_no_hold_runs_out_in_a_maintenance_or_the_day_after(partition: str) -> None:
    def until(end: float | None, now: float, partitions: tuple[str, ...] = ("low", "high")) -> float | None:
        return maintenance.holds_until([Window(partition, NOW, end, "")], partitions, now)

    end = NOW + 3600.0
    assert until(end, NOW - 1.0) is None, "it has not begun"
    assert until(end, NOW + 1.0) == until(end, end + 80_000.0) == end + maintenance.HOLDS_S
    assert until(end, end + 2 * maintenance.HOLDS_S) == end + maintenance.HOLDS_S, "what it kept ran out then"
    assert until(None, NOW + 1.0) == NOW + maintenance.KEPT_S
    assert until(None, NOW + 2 * maintenance.KEPT_S) == NOW + maintenance.KEPT_S, "its end was forgotten"
    assert (until(end, NOW + 1.0, ("other",)) is None) == (partition == "low")
