"""Objects that are not the current one, and what notes say: cancelled, told once, and nothing else touched."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from slurm_dispatch.records.actions import AppendFact, Cancel, LookUp
from slurm_dispatch.records.decide import LISTING_LAG_S
from slurm_dispatch.records.observation import (
    Observation,
    Seen,
)
from slurm_dispatch.records.state import Phase, SlurmObject
from tests.records.life import CLUSTER, UID, Life, start_body
from tests.records.test_decide import BLIND, LIVES, alive, ask, nothing

# Strays


def see(number: int, slurm_job_id: int, **more: Any) -> Observation:
    values = {"generation": 0, "cluster": CLUSTER, "uid": UID, "alive": True, **more}
    return replace(BLIND, seen=(Seen(submission=number, slurm_job_id=slurm_job_id, **values),))


def test_a_stray_is_cancelled_and_told_once() -> None:
    life = Life().round(1).run(2)
    actions = ask(life, see(1, 555), later=100)
    stray = Cancel(SlurmObject(CLUSTER, 555), 1, "it is not the job's current object", stray=True)
    # Killed between the two, the record still says what becomes of the object.
    assert actions[1:] == [
        AppendFact("stray", {"submission": 1, "slurm_job_id": 555, "cluster": CLUSTER}),
        stray,
    ]
    life.add("stray", submission=1, slurm_job_id=555, cluster=CLUSTER)
    assert ask(life, see(1, 555), later=100)[1:] == [stray]


def test_a_second_object_of_the_current_number_is_a_stray() -> None:
    assert any(isinstance(action, Cancel) for action in ask(Life().run(1), see(1, 555)))


def test_an_old_object_that_somebody_requeues_is_a_stray_also_of_a_closed_job() -> None:
    life = Life().round(1).run(2)
    assert any(isinstance(action, Cancel) for action in ask(life, see(1, 101), later=LISTING_LAG_S))
    life = LIVES[Phase.CLOSED]()
    assert any(isinstance(action, Cancel) for action in ask(life, see(1, 101), later=LISTING_LAG_S))


def test_an_object_that_somebody_requeues_while_its_job_is_held_is_a_stray() -> None:
    """Otherwise it would run beside the hold, and beside the next submission."""
    life = Life().run(1).end(1, "failed").holds(2, "failed")
    assert any(isinstance(action, Cancel) for action in ask(life, see(1, 101), later=LISTING_LAG_S))
    assert not any(isinstance(action, Cancel) for action in ask(life, see(1, 101)))


def test_a_listing_that_is_older_than_the_end_makes_no_stray() -> None:
    life = Life().round(1).run(2)
    nothing(ask(life, see(1, 101)))


@pytest.mark.parametrize(
    "observation",
    [
        see(2, 102),
        see(1, 555, uid=UID + 1),
        see(1, 555, generation=1),
        see(1, 555, alive=False),
        see(3, 103),
    ],
    ids=["current", "another's", "other-generation", "ended", "number-not-read-yet"],
)
def test_what_is_never_cancelled(observation: Observation) -> None:
    """A word that somebody copied, and a number that another tick has just written."""
    nothing(ask(Life().round(1).run(2), observation, later=1000))


def test_an_object_of_an_unsettled_intent_is_not_a_stray() -> None:
    life = Life().round(1).intent(2, 6).add("watched", submission=2, host="ctl", first_seen=0)
    assert ask(life, see(2, 102)) == [LookUp(2)]


# Notes


def test_notes_become_facts_once() -> None:
    life = Life().intent(1).submitted(1)
    start = start_body(life.spec, 1)
    refused = {"submission": 1, "slurm_job_id": 101, "restart": 0, "start_time": 7, "why": "double_start"}
    node = {
        "attempt": start["attempt"],
        "epoch": start["epoch"],
        "node": "c1",
        "boot": "b",
        "clean": True,
        "left": [],
        "start_time": 7,
        "verified": True,
    }
    incoming = (("started", start), ("started", start), ("refused", refused), ("node", node))
    observation = replace(BLIND, incoming=incoming)
    actions = ask(life, observation)
    assert [action.kind for action in actions if isinstance(action, AppendFact)] == ["started", "refused", "node"]
    for action in actions:
        assert isinstance(action, AppendFact)
        life.add(action.kind, **action.body)
    nothing(ask(life, observation))


def test_a_note_about_a_number_that_is_not_in_the_record_is_passed_over() -> None:
    life = Life().run(1)
    nothing(ask(life, replace(BLIND, incoming=(("started", start_body(life.spec, 9)),))))
    wrong = {**start_body(life.spec, 1), "attempt": "b" * 20, "epoch": "7000000"}
    nothing(ask(life, replace(BLIND, incoming=(("started", wrong),))))


def test_a_refused_object_that_waits_again_is_cancelled() -> None:
    life = Life().intent(1).submitted(1)
    life.add("refused", submission=1, slurm_job_id=101, restart=0, start_time=None, why="refuse")
    assert isinstance(ask(life, alive(1, pending=True))[0], Cancel)
    other = Life().intent(1).submitted(1)
    other.add("refused", submission=1, slurm_job_id=101, restart=0, start_time=None, why="double_start")
    nothing(ask(other, alive(1, pending=True)))
