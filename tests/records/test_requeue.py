"""A requeue under the same id: asked for, seen, and what comes between."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from slurm_dispatch.model.outcome import Outcome
from slurm_dispatch.records.actions import (
    AppendFact,
    Cancel,
    Requeue,
    UpdateObject,
)
from slurm_dispatch.records.observation import ObjectAlive, ObjectEnded, Observation, Unknown
from slurm_dispatch.records.state import Phase
from tests.records.life import Life, make_spec, start_body
from tests.records.test_holds import BLIND, OBJECT, ask, kinds, take


def requeuing(changes: tuple[str, ...] = ()) -> Life:
    life = Life(make_spec(rules=("preempted:requeue",))).run(1).end(1, "preempted")
    return life.decided("requeue", changes=list(changes))


def sees(it: Any) -> Observation:
    return replace(BLIND, object=it)


GONE = ObjectEnded(1, 101, Outcome.PREEMPTED, {}, restart=0)
BACK = ObjectAlive(1, 101, restart=1, pending=True)


def test_a_requeue_is_asked_for_and_recorded_once_slurm_has_it_again() -> None:
    life = requeuing()
    assert ask(life, sees(GONE)) == [Requeue(OBJECT, 1)]
    assert kinds(ask(life, sees(Unknown("away")))) == ["Nothing"]
    update, back = ask(life, sees(BACK))
    assert update == UpdateObject(OBJECT, 1, {"StartTime": "now", "ExcNodeList": "c1,c2"})
    assert back == AppendFact("requeued", {"submission": 1, "slurm_job_id": 101, "restart": 1})
    take(life, [back])
    assert life.state.phase is Phase.QUEUED
    assert life.state.requeued
    # What was seen before is not a second end.
    assert kinds(ask(life, sees(GONE))) == ["Nothing"]
    assert kinds(ask(life, sees(replace(GONE, restart=None)))) == ["Nothing"]
    life.started(1, restart=1)
    assert life.state.phase is Phase.RUNNING
    assert kinds(ask(life, sees(replace(GONE, restart=1)))) == ["end"]


def test_a_requeued_run_keeps_off_nodes_that_still_hold_the_old_one() -> None:
    life = Life().run(1)
    body = start_body(life.spec, 1)
    node = {"attempt": body["attempt"], "epoch": body["epoch"], "boot": None, "left": [], "start_time": None}
    life.add("node", **node, node="c1", clean=True, verified=True)
    life.add("node", **node, node="c2", clean=None, verified=True)
    life.end(1, "preempted").decided("requeue", changes=["--begin=now+30", "--exclude=c9", "--time=0-02:00:00"])
    update, _ = ask(life, sees(BACK))
    assert isinstance(update, UpdateObject)
    assert update.fields == {"StartTime": "now+30", "ExcNodeList": "c9,c2", "TimeLimit": "0-02:00:00"}


def test_a_requeued_object_that_runs_already_is_not_changed() -> None:
    assert kinds(ask(requeuing(), sees(ObjectAlive(1, 101, restart=1)))) == ["requeued"]


def test_a_cancel_while_it_is_requeued() -> None:
    life = requeuing().add("request", what="cancel", reason="")
    assert kinds(ask(life, sees(GONE))) == ["closed"]
    take(life, ask(life, sees(BACK)))
    assert ask(life, sees(BACK)) == [Cancel(OBJECT, 1, "a person asked for it")]


def test_a_start_that_was_noted_before_the_requeue_was_seen() -> None:
    life = requeuing().started(1, restart=1).add("requeued", submission=1, slurm_job_id=101, restart=1)
    assert life.state.phase is Phase.RUNNING
