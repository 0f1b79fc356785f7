"""The index: what it picks, what it trusts, and that a job that it passes over had nothing to do."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_dispatch.controller import index
from slurm_dispatch.controller.index import Entry, Index
from slurm_dispatch.controller.silence import Suspects
from slurm_dispatch.controller.siteview import SiteView
from slurm_dispatch.controller.view import View
from slurm_dispatch.model.identity import Word
from slurm_dispatch.slurm.port import Queue, QueueJob, Unknown
from tests.controller.index_rig import IndexRig

if TYPE_CHECKING:
    from collections.abc import Callable

TOP = Path(__file__).resolve().parents[2]
NOW = 1_800_000_000.0
RUNS = QueueJob(7, 500, "RUNNING", "None", 100, 200, "c1", Word("abc", 0, 1), None)
WAITS = QueueJob(7, 500, "PENDING", "Priority", 100, 900, "", Word("abc", 0, 1), None)
ENTRY = Entry(4, "running", 7, None, 123, index.line_of([RUNS]), index.notes_of(["start.abc"]), "", 0.0)


def view(*jobs: QueueJob, site: SiteView | None = None) -> View:
    return View(NOW, "ctl", "fake", Queue(jobs), True, {}, True, site=site or SiteView())


def pick(entry: Entry | None, seen: View, *, names: tuple[str, ...] = ("start.abc",), last: float = NOW) -> bool:
    """Whether the job is visited whatever its record shows."""
    entries = {} if entry is None else {"abc": entry}
    picked = Index(entries).pick(500, ["abc"], {"abc": list(names)} if names else {}, seen, last)
    assert len(picked.visit) + len(picked.ask) == 1
    return picked.visit == ["abc"]


# What it picks.


def test_a_job_is_passed_over_while_all_is_the_same() -> None:
    assert not pick(ENTRY, view(RUNS))
    assert Index({"abc": ENTRY}).pick(500, ["abc"], {"abc": ["start.abc"]}, view(RUNS), NOW).ask == {"abc": 123}


@pytest.mark.parametrize(
    ("entry", "jobs", "names"),
    [
        (None, [RUNS], ("start.abc",)),
        (ENTRY, [], ("start.abc",)),
        (ENTRY, [replace(RUNS, state="COMPLETING")], ("start.abc",)),
        (ENTRY, [replace(RUNS, start_time=201)], ("start.abc",)),
        (ENTRY, [replace(RUNS, submit_time=101)], ("start.abc",)),
        (ENTRY, [replace(RUNS, nodes="c2")], ("start.abc",)),
        (ENTRY, [replace(RUNS, uid=501)], ("start.abc",)),
        (ENTRY, [replace(RUNS, word=None)], ("start.abc",)),
        (ENTRY, [RUNS, replace(RUNS, slurm_job_id=8)], ("start.abc",)),
        (ENTRY, [RUNS], ()),
        (ENTRY, [RUNS], ("start.abc", "end.abc")),
        (ENTRY._replace(needs=index.WORK), [RUNS], ("start.abc",)),
        (ENTRY._replace(due=NOW), [RUNS], ("start.abc",)),
        (ENTRY._replace(since=NOW - 3600), [RUNS], ("start.abc",)),
        (ENTRY._replace(needs="clock:other"), [RUNS], ("start.abc",)),
    ],
)
def test_a_job_is_visited_when_anything_is_another(
    entry: Entry | None, jobs: list[QueueJob], names: tuple[str, ...]
) -> None:
    assert pick(entry, view(*jobs), names=names)


def test_an_object_is_followed_by_its_id_when_its_comment_was_edited() -> None:
    edited = replace(RUNS, word=None)
    entry = ENTRY._replace(line=index.line_of([edited]))
    assert not pick(entry, view(edited))
    assert pick(entry, view(replace(edited, state="COMPLETING")))


def test_what_others_write_into_their_comments_changes_nothing() -> None:
    assert not pick(ENTRY, view(RUNS, replace(RUNS, slurm_job_id=9, uid=666)))


def test_when_and_why_an_object_waits_is_no_news_but_its_begin_time_is() -> None:
    line = index.line_of([WAITS])
    assert index.line_of([replace(WAITS, start_time=None, reason="Resources")]) == line
    assert index.line_of([replace(WAITS, reason="BeginTime")]) != line


def test_a_queue_that_is_not_told_says_nothing_of_a_job() -> None:
    away = View(NOW, "ctl", "fake", Unknown("away"), True, {}, True)
    assert not pick(ENTRY, away)
    assert pick(ENTRY, away, names=())


def test_silence_is_for_the_jobs_on_the_silent_node() -> None:
    entry = ENTRY._replace(needs=index.SILENT)
    silent = SiteView(suspects=Suspects({"c1": NOW - 60}))
    assert not pick(entry, view(RUNS))
    assert pick(entry, view(RUNS, site=silent))
    assert not pick(ENTRY, view(RUNS, site=silent))
    elsewhere = SiteView(suspects=Suspects({"c2": NOW - 60}))
    assert not pick(entry, view(RUNS, site=elsewhere))


def test_every_job_has_its_turn_once_an_hour() -> None:
    keys = [f"job{number}" for number in range(300)]
    turns: dict[str, int] = dict.fromkeys(keys, 0)
    most = 0
    for minute in range(120):
        now = NOW + 60 * minute
        turned = [key for key in keys if index.turns_up(key, now - 60, now, 3600.0)]
        most = max(most, len(turned))
        for key in turned:
            turns[key] += 1
    assert set(turns.values()) == {2}
    assert most < 30  # spread
    # Few jobs of an owner have one turn together, and each owner's is another.
    groups, times = index.groups_of(60), [NOW + 60 * minute for minute in range(60)]
    together = [
        {now for now in times for key in keys[:60]
         if index.turns_up(key, now - 60, now, 3600.0, groups=groups, of=uid)}
        for uid in range(8)
    ]  # fmt: skip
    assert [len(minutes) for minutes in together] == [1] * 8
    assert len(set().union(*together)) > 3
    assert [index.groups_of(count) for count in (0, 63, 64, 127, 128, 100_000)] == [1, 1, 1, 1, 2, 1024]
    assert index.turns_up("abc", None, NOW, 3600.0)
    assert index.turns_up("abc", NOW - 3600, NOW, 3600.0)


# What it trusts.


def test_a_young_time_stamp_is_trusted_when_the_record_was_read_again_later() -> None:
    """As git's racy index: a second fact within the same tick of the filesystem's clock leaves no other stamp."""
    stamp = int(NOW * 1e9)
    first = index.since_of(None, stamp, NOW + 0.001)
    assert first == NOW + 0.001
    entry = ENTRY._replace(stamp=stamp, since=first)
    assert index.since_of(entry, stamp, NOW + 1.0) == first
    assert index.since_of(entry, stamp, NOW + 2.5) == 0.0
    assert index.since_of(entry, stamp + 1, NOW + 60.0) == NOW + 60.0
    assert index.since_of(entry._replace(since=0.0), stamp, NOW + 1.0) == 0.0
    assert index.since_of(entry, stamp, NOW - 50.0) == NOW - 50.0  # the clock was set back
    assert index.since_of(None, stamp, NOW + 400.0) == 0.0  # older than clocks can differ


def test_an_entry_is_read_as_it_was_written() -> None:
    for entry in (
        ENTRY,
        ENTRY._replace(due=NOW + 0.5, since=NOW, needs=index.WORK),
        ENTRY._replace(phase="held", object=0, line="-", needs="clock:0123456789abcdef"),
    ):
        assert index.unpack(index.pack(entry)) == entry


@pytest.mark.parametrize(
    "row",
    ["", "4", "4 running 7 - 123 a b - 0 - 0", "x running 7 - 123 a b - 0 -", "4 flying 7 - 123 a b - 0 -",
     "4 running 7 - 123 a b magic 0 -", "0 running 7 - 123 a b - 0 -", "4 running -1 - 123 a b - 0 -",
     "4 running 7 nan 123 a b - 0 -", "4 running 7 - 123 a b - -1 -", "4 running 7 - 123 a b - nan -",
     f"4 running 7 - {'1' * 700} a b - 0 -", "4 running 7 - 123 a b - 0 a;b"],
)  # fmt: skip
def test_an_entry_that_makes_no_sense_is_none(row: str) -> None:
    assert index.entry_of(row) is None


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", '{"v": 1}', '{"v": 3, "uid": 500, "basis": "b", "jobs": {}}',
     '{"v": 1, "uid": 501, "basis": "b", "jobs": {}}', '{"v": 1, "uid": 500, "basis": "c", "jobs": {}}',
     '{"v": 1, "uid": 500, "basis": "b", "jobs": []}', '{"v": 1, "uid": 500, "basis": "b", "jobs": {"a": 1}}',
     '{"v": 1, "uid": 500, "basis": "b", "jobs": {"a": "1"}}', "[" * 100_000],
)  # fmt: skip
def test_a_file_that_makes_no_sense_is_an_empty_index_to_be_written(text: str) -> None:
    found = index.parse(text, 500, "b")
    assert (found.entries, found.changed) == ({}, True)


def test_a_file_is_written_only_for_what_differs() -> None:
    found = index.parse(index.render(Index({"abc": ENTRY}), 500, "b").decode(), 500, "b")
    assert (found.entries, found.changed) == ({"abc": ENTRY}, False)
    found.put("abc", ENTRY)
    found.put("gone", None)
    found.keep(["abc", "new"])
    assert not found.changed
    held = Index({"abc": ENTRY._replace(due=NOW)})
    held.put("abc", ENTRY._replace(due=NOW + 1))
    assert (held.changed, held.entries["abc"].due) == (False, NOW)
    held.put("abc", ENTRY._replace(due=NOW + 60))
    assert (held.changed, held.entries["abc"].due) == (True, NOW + 60)
    found.keep([])
    assert (found.entries, found.changed) == ({}, True)


def test_what_entries_hang_on_is_the_same_text_in_every_process() -> None:
    """Sets have another order in each process."""
    program = (
        "from slurm_dispatch.controller import index, siterules\n"
        "from slurm_dispatch.rules.rule import BUILT_IN\n"
        "print(index.basis_of(tuple(BUILT_IN), siterules.SiteRules()))\n"
    )
    told = {
        subprocess.run(
            [sys.executable, "-c", program], check=True, capture_output=True, cwd=TOP,
            env={**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONPATH": str(TOP)},
        ).stdout
        for seed in (1, 2, 3)
    }  # fmt: skip
    assert len(told) == 1
    assert index.basis_of(("a",)) != index.basis_of(("b",))


# With the index and without it.


def _current(rig: IndexRig, key: str) -> dict[str, Any]:
    return rig.slurm.job(rig.object(key))


def _start(rig: IndexRig, key: str) -> None:
    if _current(rig, key)["states"] == ["PENDING"] and _current(rig, key)["in_memory"]:
        rig.start(key)


def _start_unseen(rig: IndexRig, key: str) -> None:
    if _current(rig, key)["states"] == ["PENDING"]:
        rig.start(key, note=False)


def _end(*states: str) -> Callable[[IndexRig, str], None]:
    def end(rig: IndexRig, key: str) -> None:
        if _current(rig, key)["states"] == ["RUNNING"]:
            rig.slurm.end(rig.object(key), *states)
            rig.end_note(key)

    return end


def _clear(rig: IndexRig, key: str) -> None:
    states = _current(rig, key)["states"]
    if "COMPLETING" in states:
        rig.slurm.set(rig.object(key), states=[state for state in states if state != "COMPLETING"])


def _restart(rig: IndexRig, key: str) -> None:
    if _current(rig, key)["states"] == ["RUNNING"]:
        rig.slurm.restart(rig.object(key))


def _forget(rig: IndexRig, key: str) -> None:
    if not {"PENDING", "RUNNING", "COMPLETING"} & set(_current(rig, key)["states"]):
        rig.slurm.forget(rig.object(key))


def _edit(rig: IndexRig, key: str) -> None:
    rig.slurm.set(rig.object(key), comment="mine alone")


def _stray(rig: IndexRig, key: str) -> None:
    rig.slurm.plain(comment=f"dispatch:{key}:0:1", uid=rig.uid)


def _fact(kind: str, **body: Any) -> Callable[[IndexRig, str], None]:
    def append(rig: IndexRig, key: str) -> None:
        if rig.state(key).phase.value != "closed":
            rig.record(key).append(len(rig.facts(key)) + 1, kind, "user:ada@login", body)

    return append


def _progress(rig: IndexRig, key: str) -> None:
    execution = rig.state(key).submissions[-1].execution
    if execution is not None:
        body = {"attempt": execution.attempt, "epoch": str(execution.epoch), "step": 5, "resumed_from": None}
        rig.record(key).append(len(rig.facts(key)) + 1, "progress", "watch@c1", body)


def _reopen(rig: IndexRig, key: str) -> None:
    state = rig.state(key)
    if state.closed is not None:
        body = {"reason": "go on", "submission": state.next_number}
        rig.record(key).append(state.seq + 1, "reopened", "user:ada@login", body)


def _later(seconds: float) -> Callable[[IndexRig, str], None]:
    def later(rig: IndexRig, key: str) -> None:
        rig.later_s += seconds

    return later


def _queue(how: str) -> Callable[[IndexRig, str], None]:
    def turn(rig: IndexRig, key: str) -> None:
        rig.slurm.knob(queue=how)

    return turn


EVENTS: dict[str, Callable[[IndexRig, str], None]] = {
    "tick": lambda rig, key: None,
    "tick again": lambda rig, key: None,
    "starts": _start,
    "starts unseen": _start_unseen,
    "preempted": _end("PREEMPTED", "COMPLETING"),
    "completed": _end("COMPLETED"),
    "failed": _end("FAILED"),
    "out of memory": _end("OUT_OF_MEMORY"),
    "completing is over": _clear,
    "restarted by Slurm": _restart,
    "forgotten": _forget,
    "edited comment": _edit,
    "stray": _stray,
    "progress": _progress,
    "cancel": _fact("request", what="cancel", reason="enough"),
    "hold": _fact("hold", reason="wait", for_s=None),
    "reopen": _reopen,
    "a minute": _later(60.0),
    "an hour": _later(3600.0),
    "a week": _later(8 * 86400.0),
    "queue away": _queue("away"),
    "queue back": _queue("ok"),
}


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(sorted(EVENTS)), st.integers(0, 2)), min_size=1, max_size=25))
def test_a_job_that_is_passed_over_has_nothing_to_do(events: list[tuple[str, int]]) -> None:
    """After any sequence of facts, notes and changes of the queue: each visit that the index spares is made
    nevertheless, and must find nothing."""
    with TemporaryDirectory() as folder:
        rig = IndexRig(Path(folder))
        keys = [rig.job("failed:resubmit,budget=1"), rig.job(), rig.job("preempted:requeue")]
        rig.slurm.set(rig.object(keys[2]), argv=["--requeue"])
        for name, which in events:
            EVENTS[name](rig, keys[which])
            rig.indexed_tick()


def test_jobs_that_wait_run_are_held_or_closed_are_passed_over(tmp_path: Path) -> None:
    """The property above says something: these are the visits that are spared."""
    rig = IndexRig(tmp_path)
    keys = {what: rig.job() for what in ("waits", "runs", "held", "closed")}
    for what in ("runs", "held", "closed"):
        rig.start(keys[what])
    rig.slurm.end(rig.object(keys["held"]), "OUT_OF_MEMORY")
    rig.slurm.end(rig.object(keys["closed"]), "COMPLETED")
    for _ in range(4):
        rig.indexed_tick()
    phases = {what: rig.state(key).phase.value for what, key in keys.items()}
    assert phases == {"waits": "queued", "runs": "running", "held": "held", "closed": "closed"}
    before = rig.skipped
    rig.indexed_tick()
    assert rig.skipped == before + 4, rig.index.entries
