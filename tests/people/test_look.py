"""``dispatch why`` and ``replay``: what was decided, and that it comes to the same again."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from slurm_dispatch.records.why import explain
from tests.records.life import KEY, Life

if TYPE_CHECKING:
    from tests.people.desk import Desk


def test_why_says_what_was_decided_and_what_would_change_it(desk: Desk) -> None:
    key = desk.held()
    text = desk.ok("why", key)
    assert text.startswith(f"job {key} (train) is held: rule\n")
    assert "by the rule: failed:hold\n" in text
    assert f"Slurm job {desk.rig.object(key)} ended: failed (FAILED)" in text
    assert f"  dispatch release {key} --reason ...\n" in text
    assert "\n  it was: 20" in text  # a date, and no number of seconds
    assert "\n  the longest hold: 14d\n" in text
    assert "failed: hold, then submission 2, because" in text
    content = json.loads(desk.ok("why", key, "--json"))
    assert (content["job"], content["rule"], content["decision"]) == (key, "failed:hold", 6)
    assert float(dict(content["inputs"])["now"]) > 1e9


@pytest.mark.parametrize(
    ("made", "says"),
    [
        ("job", "nothing was decided yet: its first submission waits in Slurm"),
        ("submitting", "nothing was decided yet: its first submission has no answer"),
        ("running", "nothing was decided yet: its first submission runs"),
        ("closed", "dispatch reopen"),
    ],
)
def test_why_where_nothing_waits_for_a_decision(desk: Desk, made: str, says: str) -> None:
    assert says in desk.ok("why", getattr(desk, made)())


@pytest.mark.parametrize(
    ("why", "option"),
    [("max_submissions", "--max-submissions N"), ("max_node_hours", "--max-node-hours HOURS"),
     ("until", "--until DATE")],
)  # fmt: skip
def test_a_cap_is_to_be_raised_before_the_release(why: str, option: str) -> None:
    """A release does not raise it, and the next end would hold the job again."""
    life = Life().run(1).end(1, "preempted").holds(2, why=why)
    first, second = explain(life.state, life.facts).would_change
    assert first == f"dispatch update {KEY} {option}, before the release: else the next end holds it again"
    assert second == f"dispatch release {KEY} --reason ..."
    life = Life().run(1).end(1, "preempted").holds(2, why="budget")
    assert explain(life.state, life.facts).would_change == (second,)


def test_why_slurm_lets_the_first_submission_wait() -> None:
    life = Life().intent(1).submitted(1)
    assert "waits in Slurm (JobHeldUser)" in explain(life.state, life.facts, pending_reason="JobHeldUser").what


def test_a_person_who_holds_what_comes_is_named(desk: Desk) -> None:
    key = desk.running()
    desk.ok("hold", key, "--reason", "a look")
    assert f"dispatch release {key}: a person holds what comes next" in desk.ok("why", key)
    assert "running, then held" in desk.ok("status")
    desk.ended(key, "PREEMPTED")
    text = desk.ok("why", key)
    assert "held: person" in text
    assert "a person holds it: a look" in text


def test_what_is_not_there_is_said_in_one_line(desk: Desk) -> None:
    for command in ("why", "replay"):
        assert "no job of yours" in desk.refused(66, command, "nothing")
    desk.held(), desk.held()
    assert "names 2 jobs" in desk.refused(64, "why", "train")


def test_a_replay_comes_to_the_same_after_all_that_persons_can_do(desk: Desk) -> None:
    key = desk.running("failed:hold", "preempted:resubmit,budget=3,backoff=30s..30m")
    assert desk.ok("replay", key) == f"job {key}: nothing was decided yet\n"
    desk.ended(key, "PREEMPTED")
    desk.rig.start(key)
    desk.tick()
    desk.ok("hold", key, "--reason", "a look")
    desk.ok("update", key, "--on", "failed:resubmit,budget=1", "--time=3-0")
    desk.ended(key, "PREEMPTED")
    desk.ok("release", key, "--reason", "go")
    desk.rig.start(key)
    desk.tick()
    desk.ended(key, "FAILED")
    desk.ok("cancel", key, "--wait", "60")
    desk.ok("reopen", key, "--reason", "once more")
    lines = desk.ok("replay", key).splitlines()
    assert len(lines) == 3, lines
    assert all(line.endswith(": the same") for line in lines), lines
    assert [it["same"] for it in json.loads(desk.ok("replay", key, "--json"))["decisions"]] == [True] * 3


def test_a_decision_that_nobody_would_make_now_is_said(desk: Desk) -> None:
    key = desk.held()
    path = desk.rig.record(key)._path(desk.rig.last(key, "decision").seq)
    with open(path, encoding="utf-8") as stream:
        content = json.load(stream)
    with open(path, "w", encoding="utf-8") as stream:
        stream.write(json.dumps({**content, "action": "resubmit", "then": None}) + "\n")
    said = desk.dispatch("replay", key)
    assert said.status == 65, said
    assert "failed: resubmit as submission 2: now it would be failed: hold as submission 2 (differs: " in said.out
