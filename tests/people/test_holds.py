"""``dispatch hold``, ``release``, ``holds`` and ``reopen``."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from slurm_dispatch.controller import clock, wish
from slurm_dispatch.controller.clock import Clock
from slurm_dispatch.controller.hints import tick_folder
from slurm_dispatch.errors import ServiceAwayError, UsageError
from slurm_dispatch.records import people

if TYPE_CHECKING:
    from slurm_dispatch.records.people import Facts
    from slurm_dispatch.records.state import State
    from tests.people.desk import Desk


def test_a_hold_of_a_job_that_waits_and_its_release(desk: Desk) -> None:
    key = desk.waiting()
    assert desk.ok("hold", key, "--reason", "the loss looks wrong") == f"job {key} is held\n"
    desk.tick()
    assert desk.phase(key) == "held"
    assert len(desk.slurm.ids()) == 1
    text = desk.ok("release", key, "--reason", "it was the plot")
    number = desk.rig.object(key)
    assert text == f"job {key} is released: submission 2 is Slurm job {number}\n"
    release = desk.rig.last(key, "release")
    assert (release.body["how"], release.body["reason"]) == ("person", "it was the plot")
    assert release.by.startswith("user:")
    assert "--time=2:00:00" in desk.object(number)["argv"]


def test_a_hold_of_a_job_that_runs_holds_what_comes_next(desk: Desk) -> None:
    key = desk.running()
    number = desk.rig.object(key)
    assert f"Slurm job {number} runs on, and nothing follows it" in desk.ok("hold", key, "--reason", "wait")
    assert desk.phase(key) == "running"
    desk.ended(key, "PREEMPTED")
    assert (desk.phase(key), desk.rig.last(key, "decision").body["why"]) == ("held", "person")
    assert "submission 2 is Slurm job" in desk.ok("release", key, "--reason", "go")
    desk.tick()
    assert desk.phase(key) == "queued"


@pytest.mark.parametrize(
    ("made", "says"),
    [("job", "stays with Slurm, which may start it"), ("submitting", "submission 1 is on its way to Slurm")],
)
def test_a_hold_says_what_becomes_of_what_is_there(desk: Desk, made: str, says: str) -> None:
    key = getattr(desk, made)()
    assert says in desk.ok("hold", key, "--reason", "wait", "--for", "12h")
    state = desk.state(key)
    assert state.hold is not None
    assert state.hold.for_s == 43200.0


def test_a_release_before_anything_was_held(desk: Desk) -> None:
    key = desk.running()
    desk.ok("hold", key, "--reason", "wait")
    text = desk.ok("release", key, "--reason", "no")
    assert text == f"job {key} is released before anything was held; it is running\n"
    desk.ended(key, "PREEMPTED")
    assert desk.phase(key) == "queued"


def test_what_cannot_be_held_or_released(desk: Desk) -> None:
    over, running = desk.closed(), desk.running(name="other")
    assert "is closed (completed) and cannot be held" in desk.refused(64, "hold", over, "--reason", "x")
    assert "dispatch reopen opens it again" in desk.refused(64, "release", over, "--reason", "x")
    assert "is not held: it is running" in desk.refused(64, "release", running, "--reason", "x")
    assert "Missing option '--reason'" in desk.refused(64, "hold", running)
    assert "there is no reason" in desk.refused(64, "hold", running, "--reason", "  ")
    assert "longer than 1000" in desk.refused(64, "hold", running, "--reason", "x" * 1001)
    assert "is not a duration" in desk.refused(64, "hold", running, "--reason", "x", "--for", "2")
    assert "holds nothing" in desk.refused(64, "hold", running, "--reason", "x", "--for", "0s")
    longest = desk.refused(77, "hold", running, "--reason", "x", "--for", "11d")
    assert "a hold of 11d is longer than the 10d that the site's longest_hold_s allows" in longest
    assert "no job of yours is named" in desk.refused(66, "release", "nothing", "--reason", "x")
    assert "is not closed: it is running" in desk.refused(64, "reopen", running, "--reason", "x")
    assert desk.state(running).hold is None


def test_a_hold_that_ran_out_is_released_for_a_while(desk: Desk) -> None:
    key, late = desk.held(), desk.held()
    for job in (key, late):
        desk.add(job, "closed", why="hold_expired", reason="nobody released it")
    text = desk.ok("release", key, "--reason", "holidays")
    assert f"is released: submission 2 is Slurm job {desk.rig.object(key)}" in text
    assert desk.rig.kinds(key)[-3:] == ["reopened", "intent", "submitted"]
    _age(desk, late, 15 * 86400.0)
    assert "ran out more than 14 days ago" in desk.refused(64, "release", late, "--reason", "holidays")


def _age(desk: Desk, key: str, by_s: float) -> None:
    """Everything was written so much earlier."""
    for fact in desk.rig.facts(key):
        path = desk.rig.record(key)._path(fact.seq)
        with open(path, encoding="utf-8") as stream:
            content = json.load(stream)
        with open(path, "w", encoding="utf-8") as stream:
            json.dump({**content, "at": content["at"] - by_s}, stream)
            stream.write("\n")


def test_a_shared_hold_that_ran_out_is_released_at_once(desk: Desk) -> None:
    key = desk.running(shared=True)
    desk.ended(key, "PREEMPTED")
    assert desk.phase(key) == "held"
    desk.add(key, "closed", why="hold_expired", reason="nobody released it")
    desk.ok("release", key, "--reason", "the node is off")
    assert desk.rig.kinds(key)[-4:] == ["reopened", "release", "intent", "submitted"]


def test_a_shared_job_waits_and_a_person_lets_it_go(desk: Desk) -> None:
    """Whatever ended it, nothing of it starts beside what may still run before somebody says so."""
    key = desk.running(shared=True)
    desk.ended(key, "NODE_FAIL")
    desk.tick()
    assert len(desk.slurm.ids()) == 1
    assert "submission 2 is Slurm job" in desk.ok("release", key, "--reason", "the node is off")


def test_reopen(desk: Desk) -> None:
    key, shared = desk.closed(), desk.closed(shared=True, name="other")
    text = desk.ok("reopen", key, "--reason", "another epoch")
    assert text == f"job {key} is open again: submission 2 is Slurm job {desk.rig.object(key)}\n"
    assert "held until every older execution has ceased or you release it" in desk.ok(
        "reopen", shared, "--reason", "another epoch"
    )
    desk.tick()
    assert desk.phase(shared) == "held"


def test_sbatch_that_refuses_and_slurm_that_is_away_are_said(desk: Desk) -> None:
    key, other = desk.held(), desk.held(name="other")
    desk.slurm.knob(submit="reject")
    assert "sbatch refused it: sbatch: error: Invalid partition name" in desk.ok("release", key, "--reason", "go")
    desk.slurm.knob(submit="lost_after", queue="away")
    text = desk.ok("release", other, "--reason", "go")
    assert "whether Slurm has submission 2 is not known yet, and the next ticks find out" in text
    assert desk.phase(other) == "submitting"


def test_filters_choose_and_nothing_is_done_before_yes(desk: Desk) -> None:
    keys = [desk.running(name=f"job{number}", partition=part, account="ml") for number, part in enumerate("aab")]
    for key in keys:
        desk.decided(key)
    listed = desk.ok("hold", "--partition", "a", "--reason", "quota of ada")
    assert [line.split()[0] for line in listed.splitlines()[1:3]] == sorted(keys[:2])
    assert "these 2 jobs are meant; nothing was done: give --yes to hold" in listed
    assert {desk.phase(key) for key in keys} == {"waiting"}
    desk.ok("hold", "--partition", "a", "--reason", "quota of ada", "--yes")
    assert [desk.phase(key) for key in keys] == ["held", "held", "waiting"]
    assert desk.ok("hold", "--partition", "a", "--reason", "again") == "no job is meant\n"
    desk.ok("hold", keys[2], "--reason", "the store")
    asked = len(desk.slurm.calls("queue"))
    released = desk.ok("release", "--account", "ml", "--reason-like", "QUOTA", "--reason", "more", "--yes")
    assert released.count("is released: submission 2") == 2
    assert len(desk.slurm.calls("queue")) == asked + 1  # once for all
    assert [desk.phase(key) for key in keys] == ["queued", "queued", "held"]
    assert desk.ok("release", "--reason-like", "store*", "--reason", "x") == "no job is meant\n"
    assert "this job is meant" in desk.ok("release", "--reason-like", "*store", "--reason", "x")


def test_jobs_or_filters_and_not_both(desk: Desk) -> None:
    key = desk.held()
    for words in ((), (key, "--partition", "a")):
        assert "and not both" in desk.refused(64, "release", *words, "--reason", "x")
    assert "there is no user" in desk.refused(64, "release", "--user", "nobodyatall", "--reason", "x")
    if desk.root:
        assert "only root" in desk.refused(77, "holds", "--user", "all")
        assert key in desk.ok("holds", "--user", "all", by_root=True)


def test_several_jobs_are_done_as_far_as_they_can_be(desk: Desk) -> None:
    held, running, other = desk.held(), desk.running(name="b"), desk.held(name="c")
    said = desk.dispatch("release", held, running, other, held, "--reason", "go")
    assert said.status == 64
    assert said.out.count("is released: submission 2") == 2
    assert said.err == f"dispatch: job {running} is not held: it is running\n"
    nothing = desk.dispatch("hold", running, "nothing", "--reason", "go")
    assert (nothing.status, desk.state(running).hold) == (66, None)


def test_holds_lists_who_waits_and_who_will(desk: Desk) -> None:
    assert desk.ok("holds") == "no job is held\n"
    failed, running = desk.held(name="failed"), desk.running(name="runs")
    desk.job(name="free")
    desk.ok("hold", running, "--reason", "a look first")
    rows = {line.split()[0]: line for line in desk.ok("holds").splitlines()}
    assert set(rows) == {"JOB", failed, running}
    assert "not yet: running" in rows[running]
    assert "a look first" in rows[running]
    assert " rule " in rows[failed]
    assert "  10d 0h  " in rows[failed]
    shown = desk.ok("show", running)
    assert "state       running, then held\n" in shown
    assert "hold        a look first, by user:" in shown
    found = json.loads(desk.ok("holds", "--reason-like", "a look*", "--json"))["holds"]
    assert [(it["job"], it["why"], it["left_s"]) for it in found] == [(running, "person", None)]


def test_a_partition_that_sbatch_was_not_given_is_said_to_be_left_out(desk: Desk) -> None:
    """A job on the default partition: who holds all of that partition must know that it is not among them."""
    several, nowhere = desk.running(name="a", partition="a,b"), desk.running(name="b")
    listed = desk.dispatch("hold", "--partition", "b", "--reason", "quota")
    assert listed.status == 0
    assert [line.split()[0] for line in listed.out.splitlines()[1:-1]] == [several]
    assert listed.err == f"dispatch: left out, since sbatch was given no partition: {nowhere}\n"
    assert desk.dispatch("holds", "--partition", "b", "--reason-like", "x").err == ""


def test_what_is_left_of_a_hold_is_what_the_next_tick_would_count(desk: Desk) -> None:
    """The clock's file is written once an hour; all the time from then to the last tick counts."""
    key = desk.held()
    now, folder = time.time(), Path(tick_folder(desk.rig.path))
    desk.add(key, "held", on=desk.rig.last(key, "decision").seq, clock="k", ran_s=10.0, counted_s=0.0)
    reading = Clock("k", 10.0, now - 7200.0, wanted=now + 1e6)
    folder.mkdir(exist_ok=True)
    (folder / "clock").write_text(json.dumps({"v": 1, **clock.content(reading)}))
    (folder / "last").touch()
    assert "  9d 22h  " in next(line for line in desk.ok("holds").splitlines() if line.startswith(key))
    window = {"v": 1, "partition": "all", "begin": now, "end": now + 20 * 86400.0 - 600.0, "by": "root"}
    (folder / "maintenance.all").write_text(json.dumps(window))  # and a day after it, at the earliest
    assert "  20d 23h  " in next(line for line in desk.ok("holds").splitlines() if line.startswith(key))


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_root_acts_with_the_rights_of_the_owner_and_leaves_nothing_of_its_own(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = desk.held()
    monkeypatch.setenv("ROOTS_SECRET", "1")
    monkeypatch.setenv("SLURM_DISPATCH_RECORD", "/elsewhere")
    desk.ok("hold", key, "--reason", "a look", by_root=True)
    desk.ok("release", key, "--reason", "go", by_root=True)
    record = desk.rig.record(key)
    assert {os.stat(record._path(fact.seq)).st_uid for fact in record.read()} == {desk.rig.uid}
    assert desk.rig.last(key, "release").by.startswith("user:root@")
    made = desk.object(desk.rig.object(key))
    assert made["caller"] == desk.rig.uid
    assert made["handed"]["HOME"] == "/home/ada"
    assert not {"ROOTS_SECRET", "SLURM_DISPATCH_RECORD"} & (set(made["handed"]) | set(made["own"]))


class Beside:
    """Somebody else who writes first: the person's wish is made of what was there before."""

    def __init__(self, desk: Desk, key: str, kind: str, **body: object) -> None:
        self.desk, self.key, self.fact, self.asked = desk, key, (kind, body), 0

    def __call__(self, wanted: Facts) -> Facts:
        """``wanted``, after the other's fact."""
        self.asked += 1
        if self.asked == 1:
            self.desk.add(self.key, self.fact[0], **self.fact[1])
        return wanted


def test_a_hold_beside_a_tick_that_submits_holds_what_follows(desk: Desk) -> None:
    key = desk.waiting()
    word = str(desk.state(key).spec.word(2))
    decided = desk.rig.last(key, "decision").seq
    beside = Beside(desk, key, "intent", submission=2, word=word, host="ctl", deadline=1.0, wait_s=1.0, changes=[],
                    decision=decided)  # fmt: skip

    def held(state: State) -> Facts:
        return beside(people.hold(state, "wait"))

    state = wish.write(desk.rig.record(key), "user:ada@login", held)
    assert (beside.asked, state.phase.value, state.holding) == (2, "submitting", None)
    assert state.hold is not None


def test_a_release_of_a_hold_that_was_lifted_meanwhile_is_refused(desk: Desk) -> None:
    key = desk.held()
    beside = Beside(desk, key, "release", on=desk.rig.last(key, "decision").seq, how="person", reason="first")

    def released(state: State) -> Facts:
        return beside(people.release(state, "second", 0.0))

    with pytest.raises(UsageError, match="is not held: it is waiting"):
        wish.write(desk.rig.record(key), "user:ada@login", released)
    assert desk.rig.kinds(key).count("release") == 1


def test_a_record_that_changes_all_the_time_is_given_up(desk: Desk) -> None:
    key = desk.held()

    def held(state: State) -> Facts:
        wanted = people.hold(state, "mine")
        desk.add(key, "hold", reason="another's", for_s=None)
        return wanted

    with pytest.raises(ServiceAwayError, match="changes all the time"):
        wish.write(desk.rig.record(key), "user:ada@login", held)
