"""Holds in the controller: the site's clock, telling the owner, cessation."""

from __future__ import annotations

import json
import os
import pwd
import stat
import time
from typing import TYPE_CHECKING

import pytest

from slurm_dispatch.controller import keeper
from slurm_dispatch.controller.cessation import Asker
from slurm_dispatch.controller.siterules import SiteRules
from slurm_dispatch.controller.tickfile import write_file
from slurm_dispatch.records.cessation import answered
from slurm_dispatch.state.asked import read_asked
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
    rig.ends(key, "OUT_OF_MEMORY", exit_signal=9)
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


def test_what_came_while_an_owner_was_busy_is_kept_for_the_next_pass(tmp_path: Path) -> None:
    """The child of an earlier pass ends after the answer came: it cannot have taken it."""
    argv, said = notify_command(tmp_path)
    rig = SiteRig(tmp_path, SiteRules(notify=argv, notify_user=ME, notify_timeout_s=50.0))
    key = held(rig)
    early = rig.view()
    rig.wait_for("the command", rig.keeper.ready)
    late = rig.view()
    assert (early.site.told, [about[0] for about in late.site.told]) == ({}, [key])
    rig.tick(view=early)
    assert "told" not in rig.kinds(key)
    rig.tick()
    assert rig.last(key, "told").body["status"] == 0
    assert len(said.read_text().splitlines()) == 1
    assert rig.keeper.ready() == set()


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
        self.later_s = 0.0  # how far the clock of its host is ahead of the real one, as the controller's can be
        self.say("unknown")

    def say(self, answer: str) -> None:
        (self.folder / "answer").write_text(answer)

    def ask(self, executions: Sequence[AskedExecution], deadline_s: float) -> list[CessationAnswer]:
        with (self.folder / "asked").open("a") as stream:
            stream.writelines(f"{it.attempt} {','.join(it.nodes)} {it.user}\n" for it in executions)
        answer = (self.folder / "answer").read_text()
        return [answered(answer, self.source, "", time.time() + self.later_s) for _ in executions]

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
    rig.ends(key, "PREEMPTED", "COMPLETING")
    rig.wait("an answer", lambda: "cessation" in rig.kinds(key))
    assert rig.decided(key)["why"] == "shared"
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
    rig.ends(key, "PREEMPTED", "COMPLETING")
    rig.wait("five questions", lambda: len(says.asked()) >= 5)
    kept = read_asked(rig.record(key).folder)
    assert rig.kinds(key).count("cessation") == 1
    assert [it.count > 1 for it in kept.values()] == [True]
    says.say("running")
    rig.wait("another answer", lambda: rig.last(key, "cessation").body["answer"] == "running")
    counts = [fact.body["count"] for fact in rig.facts(key) if fact.kind == "cessation"]
    assert len(counts) == 3
    assert counts[1] > 1


def test_the_end_of_a_hold_asks_and_tells_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two commands, each of which answers in a pass of its own: neither is begun anew because of the other."""
    monkeypatch.setattr(keeper, "LAST_S", 0.5)
    says = Says(tmp_path)
    says.say("running")
    argv, told = notify_command(tmp_path)
    rules = SiteRules(cessation_interval_s=3600.0, notify=argv, notify_user=ME, notify_timeout_s=50.0)
    rig = SiteRig(tmp_path, rules, Asker(says, user=ME))
    key = rig.job(shared=True, shared_hold_for_s=250.0)
    rig.start(key)
    rig.tick()
    rig.ends(key, "PREEMPTED", "COMPLETING")
    rig.wait("the start of it", lambda: "told" in rig.kinds(key) and "cessation" in rig.kinds(key))
    rig.later_s = says.later_s = 260.0
    rig.wait("its end", lambda: "closed" in rig.kinds(key))
    assert rig.last(key, "closed").body["why"] == "hold_expired"
    messages = [json.loads(line) for line in told.read_text().splitlines()]
    assert [it["left_s"] for it in messages] == [250, 0]
    words = [it["what"] for it in messages]
    assert words == [fact.body["what"] for fact in rig.facts(key) if fact.kind == "told"] == ["start", "expired"]
    assert len(says.asked()) < 10  # two, and more only where answers are late; not one in each pass


def test_nobody_goes_to_a_host_that_only_the_owner_s_record_names(tmp_path: Path) -> None:
    """The site's command has keys and passwords, and facts are the owner's files."""
    says = Says(tmp_path)
    says.say("ceased")
    rig = SiteRig(tmp_path, SiteRules(cessation_interval_s=0.0), Asker(says, user=ME))
    key = rig.job(shared=True)
    rig.start_note(key, rig.object(key), rig.slurm.start(rig.object(key)), nodes="c1,evil.example.com")
    rig.tick()
    rig.ends(key, "PREEMPTED", "COMPLETING")
    rig.wait("an answer", lambda: "cessation" in rig.kinds(key))
    answer = rig.last(key, "cessation").body
    assert (answer["answer"], answer["detail"]) == ("unknown", "Slurm has no node evil.example.com")
    for _ in range(3):
        rig.tick()
    assert (says.asked(), rig.state(key).phase.value) == ([], "held")


def test_where_slurm_does_not_tell_its_nodes_nobody_goes_anywhere(tmp_path: Path) -> None:
    says = Says(tmp_path)
    says.say("ceased")
    rig = SiteRig(tmp_path, SiteRules(cessation_interval_s=0.0), Asker(says, user=ME))
    key = rig.job(shared=True)
    rig.start(key)
    rig.tick()
    rig.slurm.knob(nodes="away")
    rig.ends(key, "PREEMPTED", "COMPLETING")
    rig.wait("an answer", lambda: "cessation" in rig.kinds(key))
    assert rig.last(key, "cessation").body["answer"] == "unknown"
    assert says.asked() == []
    rig.slurm.knob(nodes="ok")
    rig.wait("its release", lambda: "release" in rig.kinds(key))


def test_a_person_may_release_whatever_the_answers_are(tmp_path: Path) -> None:
    says = Says(tmp_path)
    says.say("running")
    rig = SiteRig(tmp_path, SiteRules(), Asker(says, user=ME))
    key = rig.job(shared=True)
    rig.start(key)
    rig.tick()
    rig.ends(key, "PREEMPTED", "COMPLETING")
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
    rig.ends(key, "PREEMPTED", "COMPLETING")
    rig.settle()
    assert rig.state(key).phase.value == "held"
    assert rig.reports[key].site["ask"] == []


def test_a_hold_whose_time_is_over_stands_until_the_day_after_a_maintenance(rig: SiteRig) -> None:
    """Its end was not told when it began."""
    key = held(rig)
    rig.settle()
    clock = rig.hints().clock
    assert clock is not None
    over = {"id": clock.id, "ran_s": clock.ran_s + rig.rules.longest_hold_s, "at": clock.at, "wanted": clock.wanted}
    write_file(rig.tick_folder, "clock", over)
    now = time.time()
    window = {"partition": "all", "begin": now - 60.0, "end": None, "by": "root"}
    write_file(rig.tick_folder, "maintenance.all", window)
    rig.settle()
    assert rig.state(key).phase.value == "held"
    write_file(rig.tick_folder, "maintenance.all", {**window, "end": now})
    rig.later_s = 80_000.0
    rig.settle()
    assert rig.state(key).phase.value == "held"
    rig.later_s = 86_500.0
    rig.settle()
    assert rig.last(key, "closed").body["why"] == "hold_expired"
