"""Submissions whose answer is lost, late or no, and passes that run beside each other (P6, P7)."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from slurm_dispatch.controller import cancel, owner
from tests.controller.rig import SUBMIT_TIMEOUT_S, WAIT_S, Rig

TOP = Path(__file__).resolve().parents[2]


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def ended(rig: Rig, *rules: str) -> str:
    """A job whose first object was preempted."""
    key = rig.job(*rules)
    rig.start(key)
    rig.slurm.end(rig.object(key), "PREEMPTED", "COMPLETING")
    rig.end_note(key)
    return key


def test_an_accepted_submission_whose_answer_was_lost_is_adopted(rig: Rig) -> None:
    """C001: the socket timed out, and the job is in: one object, found by its word."""
    key = ended(rig)
    rig.slurm.knob(submit="lost_after")
    rig.tick()
    assert rig.kinds(key)[-1] == "watched"
    assert rig.tick()[key].due is not None
    assert rig.kinds(key)[-1] == "watched"
    rig.later_s = WAIT_S + 1
    rig.settle()
    assert rig.kinds(key)[-2:] == ["watched", "submitted"]
    assert rig.last(key, "submitted").body["how"] == "queue"
    assert len(rig.slurm.ids()) == 2


@pytest.mark.parametrize("how", ["note", "accounting"])
def test_it_is_found_in_the_other_sources_too(rig: Rig, how: str) -> None:
    key = ended(rig)
    rig.slurm.knob(submit="lost_after")
    rig.tick()
    number = rig.slurm.ids()[-1]
    if how == "note":
        rig.start_note(key, number, rig.slurm.start(number))
    rig.slurm.forget(number)
    rig.later_s = WAIT_S + 1
    rig.settle()
    assert rig.last(key, "submitted").body["how"] == how
    assert rig.object(key) == number


@pytest.mark.parametrize("what", ["another's object", "another's note"])
def test_what_only_looks_like_the_object_is_not_adopted(rig: Rig, what: str) -> None:
    """P6: the word and the owner are checked in each source; a comment can be copied by anybody."""
    key = ended(rig)
    rig.slurm.knob(submit="lost_before", accounting="none")
    rig.tick()
    mine = f"mine dispatch:{key}:0:2"
    if what == "another's object":
        rig.slurm.plain(comment=mine, uid=rig.uid + 1)
    else:
        number = rig.slurm.plain(comment="none", uid=rig.uid + 1)
        rig.start_note(key, number, rig.slurm.start(number), uid=rig.uid + 1)
    rig.tick()
    rig.later_s = WAIT_S + 1
    rig.tick()
    assert [fact.body["submission"] for fact in rig.facts(key) if fact.kind == "submitted"] == [1]
    assert "burnt" in rig.kinds(key)


def test_a_start_note_that_names_another_owner_tells_nothing(rig: Rig) -> None:
    """The hook is told the uid by Slurm: with another one it is another's object that has the word and the id."""
    key = rig.job()
    number = rig.object(key)
    rig.start_note(key, number, rig.slurm.start(number), uid=rig.uid + 1, nodes="elsewhere")
    rig.settle()
    assert [fact.body["nodes"] for fact in rig.facts(key) if fact.kind == "started"] == ["c1"]  # from the queue


def test_a_submission_that_never_arrived_is_burnt_and_the_next_has_another_number(rig: Rig) -> None:
    key = ended(rig, "launch_failed:resubmit,budget=2")
    rig.slurm.knob(submit="lost_before")
    rig.tick()
    rig.slurm.knob(submit="ok")
    rig.tick()
    assert rig.slurm.ids() == [101]
    rig.later_s = WAIT_S + 1
    rig.tick()
    assert "burnt" in rig.kinds(key)
    assert rig.reports[key].refuse == [f"dispatch:{key}:0:2"]
    rig.later_s += 86400
    rig.settle()
    assert rig.state(key).submissions[-1].number == 3
    assert len(rig.slurm.ids()) == 2


@pytest.mark.parametrize("away", ["queue", "accounting", "notes"])
def test_a_source_that_does_not_answer_settles_nothing(rig: Rig, away: str) -> None:
    """C003, C079: absence in one source, or in one that did not answer or not whole, is no proof."""
    key = ended(rig)
    rig.slurm.knob(submit="lost_before")
    rig.tick()
    facts = rig.kinds(key)
    if away == "notes":  # of this very submission, and torn
        Path(rig.path, "notes", f"start.{key}.0.2.999.0").write_text("{")
    else:
        rig.slurm.knob(**{away: "away"})
    rig.later_s = 10 * WAIT_S
    rig.tick()
    assert rig.kinds(key) == facts
    assert len(rig.slurm.ids()) == 1


def test_the_number_of_a_burnt_submission_that_arrives_late_is_a_stray(rig: Rig) -> None:
    key = ended(rig)
    rig.slurm.knob(submit="lost_before")
    rig.tick()
    rig.slurm.knob(submit="ok")
    rig.later_s = WAIT_S + 1
    rig.tick()
    late = rig.slurm.plain(comment=f"dispatch:{key}:0:2", uid=rig.uid)
    rig.later_s += 86400
    rig.settle()
    assert rig.slurm.job(late)["states"] == ["CANCELLED"]
    assert rig.object(key) != late
    assert "stray" in rig.kinds(key)


def test_sbatch_that_says_no_is_recorded_and_tried_later(rig: Rig) -> None:
    """C025: a limit is waited out with a bounded back-off, not in a storm."""
    key = ended(rig)
    rig.slurm.knob(submit="reject")
    rig.tick()
    assert "rejected" in rig.kinds(key)
    tried = rig.slurm.calls("submit")
    rig.tick()
    assert rig.slurm.calls("submit") == tried
    rig.slurm.knob(submit="ok")
    rig.later_s = 3600.0
    rig.settle()
    assert rig.state(key).phase.value == "queued"
    assert rig.state(key).submissions[-1].number == 3


def test_a_pass_near_its_end_begins_no_sbatch(rig: Rig) -> None:
    """A child that is killed in the middle of sbatch would make an answer ambiguous for nothing."""
    key = ended(rig)
    keys = [key]
    means = rig.means().until(time.monotonic() + SUBMIT_TIMEOUT_S - 1)
    (report,) = owner.unpack(owner.work(rig.folder.jobs_folder, rig.uid, keys, rig.view(), means), keys, [])
    assert report.soon
    assert rig.slurm.calls("submit") == []
    assert rig.kinds(key)[-1] == "decision"


def test_two_passes_with_one_view_submit_once(rig: Rig) -> None:
    """P7: the second finds what the first wrote, whatever it saw of Slurm."""
    key = ended(rig)
    first, second = rig.view(), rig.view()
    rig.tick(view=first)
    rig.tick(view=second)
    assert len(rig.slurm.ids()) == 2
    assert rig.kinds(key).count("decision") == 1


def test_an_answer_that_finds_its_number_taken_is_written_as_the_next(rig: Rig) -> None:
    """Another tick's ``watched`` between intent and answer does not make the submission wait to be settled."""
    key = ended(rig)
    inner = rig.slurm.submit

    def slow(call: object, accepted: object = None) -> object:
        facts = rig.facts(key)
        assert facts[-1].kind == "intent"
        rig.record(key).append(len(facts) + 1, "watched", "tick@other", {
            "submission": 2, "host": "other", "first_seen": time.time()})  # fmt: skip
        return inner(call, accepted)  # type: ignore[arg-type]

    rig.slurm.submit = slow  # type: ignore[method-assign,assignment]
    rig.tick()
    assert rig.kinds(key)[-3:] == ["intent", "watched", "submitted"]


def test_many_processes_at_once_submit_once(rig: Rig, tmp_path: Path) -> None:
    """Ticks on several hosts at one moment: one decision, one submission, for each of several jobs."""
    keys = [ended(rig) for _ in range(4)]
    argv = [sys.executable, "-m", "tests.controller.one_pass", str(tmp_path)]
    ticks = [subprocess.Popen(argv, stderr=subprocess.PIPE, cwd=TOP) for _ in range(4)]
    try:
        for tick in ticks:
            _, said = tick.communicate(timeout=120)
            assert tick.returncode == 0, said
    finally:
        for tick in ticks:
            tick.kill()
            tick.wait()
    rig.settle()
    assert len(rig.slurm.ids()) == 8
    for key in keys:
        assert rig.kinds(key).count("decision") == 1
        assert rig.kinds(key).count("intent") == 2
        assert rig.state(key).phase.value == "queued"


def test_a_tick_that_died_in_a_hanging_sbatch_is_settled(rig: Rig, tmp_path: Path) -> None:
    """The object came, the tick was killed before it heard of it."""
    key = ended(rig)
    rig.slurm.knob(submit="hang")
    tick = subprocess.Popen([sys.executable, "-m", "tests.controller.one_pass", str(tmp_path)], cwd=TOP)
    try:
        deadline = time.monotonic() + 60
        while len(rig.slurm.ids()) < 2:
            assert time.monotonic() < deadline
            assert tick.poll() is None
            time.sleep(0.01)
    finally:
        os.kill(tick.pid, signal.SIGKILL)
        tick.wait()
    rig.slurm.knob(submit="ok")
    rig.tick()
    assert rig.kinds(key)[-2:] == ["intent", "watched"]
    rig.later_s = WAIT_S + 1
    rig.settle()
    assert len(rig.slurm.ids()) == 2
    assert rig.last(key, "submitted").body["how"] == "queue"


def test_one_broken_record_never_stops_the_others(rig: Rig) -> None:
    broken, whole, cut, liar = rig.job(), ended(rig), rig.job(), rig.job()
    facts = rig.record(broken).facts_folder
    with open(os.path.join(facts, "0000000003"), "w", encoding="ascii") as stream:
        stream.write("{")
    os.unlink(os.path.join(rig.record(cut).facts_folder, "0000000002"))
    spec = dataclasses.replace(rig.spec(key="liarliar"), uid=rig.uid + 1)
    rig.folder.create_job(spec, b"", b"", by="user:ada@login")
    reports = rig.tick()
    assert rig.state(whole).phase.value == "queued"
    assert rig.state(whole).submissions[-1].number == 2
    assert "0000000003" in reports[broken].trouble
    assert reports[cut].trouble
    assert "names uid" in reports["liarliar"].trouble
    assert not reports[liar].trouble


@pytest.mark.parametrize("planted", ["link", "fifo", "folder", "huge"])
def test_a_record_with_something_else_in_it_is_one_line(rig: Rig, planted: str, tmp_path: Path) -> None:
    """A hostile owner: links, FIFOs and huge files in the record stop neither the tick nor another job."""
    hostile, other = rig.job(), ended(rig)
    path = os.path.join(rig.record(hostile).facts_folder, "0000000003")
    os.unlink(path)
    if planted == "link":
        os.symlink("/etc/passwd", path)
    elif planted == "fifo":
        os.mkfifo(path)
    elif planted == "folder":
        os.mkdir(path)
    else:
        with open(path, "wb") as stream:
            stream.truncate(1 << 34)
    reports = rig.tick()
    assert reports[hostile].trouble
    assert len(reports[hostile].trouble) <= owner.LINE_MAX
    assert rig.state(other).submissions[-1].number == 2


def test_what_a_child_answers_is_checked(rig: Rig) -> None:
    key = rig.job()
    rig.tick()
    data = owner.work(rig.folder.jobs_folder, rig.uid, [key], rig.view(), rig.means())
    for bad in (b"", b"[", b"{}x", b'[{"key": 1}]', b"[1]", b'"' + b"[" * 100_000):
        with pytest.raises(owner.BadDataError):
            owner.unpack(bad, [key], [])
    with pytest.raises(owner.BadDataError):
        owner.unpack(data, ["another"], [])
    mine, other = f"start.{key}.0.1.5.0", "start.other.0.1.5.0"
    asked = json.dumps([mine, other, "../x.y.z.a", f"end.{key}.0.{'9' * 300}", f"end.{key}.0.1.\0"])
    words = json.dumps([f"dispatch:{key}:0:{n}" for n in range(1, 1000)] + ["dispatch:other:0:1"])
    data = data.replace(b'"done_notes": []', b'"done_notes": ' + asked.encode())
    data = data.replace(b'"refuse": []', b'"refuse": ' + words.encode()).replace(b'"due": null', b'"due": NaN')
    (report,) = owner.unpack(data, [key], [mine, other])
    assert report.done_notes == [mine]
    assert report.refuse == [f"dispatch:{key}:0:{n}" for n in range(900, 1000)]
    assert report.due is None


def test_a_person_cancels_and_the_job_closes_at_once(rig: Rig) -> None:
    key = rig.job("cancelled:resubmit,budget=3")
    rig.start(key)
    rig.tick()
    means = dataclasses.replace(rig.means(), by="user:ada@login")
    outcome = cancel.cancel(rig.record(key), "enough", means, host="login", cluster="fake", wait_s=0.0)
    if outcome.closed is None:  # asked for, and seen as ended by the next look
        outcome = cancel.cancel(rig.record(key), "enough", means, host="login", cluster="fake", wait_s=0.0)
    assert (outcome.closed, outcome.reason) == ("cancelled", "enough")
    assert cancel.unpack(cancel.pack(outcome)) == outcome
    again = cancel.cancel(rig.record(key), "", means, host="login", cluster="fake", wait_s=0.0)
    assert again.already
    assert rig.kinds(key).count("request") == 1
    assert len(rig.slurm.ids()) == 1


def test_a_cancel_while_slurm_is_away_is_finished_by_a_tick(rig: Rig) -> None:
    key = rig.job()
    rig.start(key)
    rig.tick()
    rig.slurm.knob(queue="away", cancel="away")
    outcome = cancel.cancel(rig.record(key), "", rig.means(), host="login", cluster="fake", wait_s=0.0)
    assert outcome.closed is None
    assert "Unable to contact slurm controller" in outcome.trouble
    rig.slurm.knob(queue="ok", cancel="ok")
    rig.settle()
    assert rig.last(key, "closed").body["why"] == "cancelled"


def test_an_intent_is_watched_from_when_it_was_read_not_from_when_the_pass_began(rig: Rig) -> None:
    """P6: a pass that asked Slurm before the intent was written has not watched it since then."""
    key = rig.job(submitted=False)
    old = rig.view()
    old.at -= WAIT_S  # a slow pass: other jobs of the owner came first
    rig.tick(view=old)
    watched = rig.last(key, "watched").body
    assert watched["first_seen"] >= rig.facts(key)[1].at
    rig.tick()
    assert rig.kinds(key) == ["spec", "intent", "watched"]
    rig.tick(view=old)  # and it does not begin anew again and again
    assert rig.kinds(key) == ["spec", "intent", "watched"]


def test_an_unsettled_object_that_slurm_requeued_meanwhile_is_found(rig: Rig) -> None:
    """A requeue gives it a later time of submission; its word and its owner are what counts."""
    rig.slurm.knob(accounting="none")
    key = ended(rig)
    rig.slurm.knob(submit="lost_after")
    rig.tick()
    number = rig.slurm.ids()[-1]
    rig.slurm.set(number, submit_time=rig.slurm.job(number)["submit_time"] + 86400, restart=1)
    rig.later_s = WAIT_S + 1
    rig.settle()
    assert "burnt" not in rig.kinds(key)
    assert rig.object(key) == number
