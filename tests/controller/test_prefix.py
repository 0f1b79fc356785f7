"""The interrupted-prefix property: a pass that dies before any of its steps and runs again comes to the same end."""

from __future__ import annotations

from typing import Any

import pytest

from slurm_dispatch.records import people
from slurm_dispatch.records.state import Phase
from tests.controller.site_machine import CLOCK, ENDS, SPECS, Asked
from tests.controller.site_port import Cut
from tests.controller.site_world import SEEN, SUSPECT_S, WAIT_S, SiteWorld
from tests.controller.test_model import _time

__all__ = ["_time"]  # the fixture: the world's own time here too

PASSES = 9
DEEPEST = 150


def play(kind: str, how: str, act: str, cut: int | None) -> tuple[tuple[Any, ...], int, bool]:
    """One object runs and ends; passes follow, each of the first ones dying before step ``cut`` and run again.

    :returns: what it came to, the most steps of a pass that did not die, and whether a submission was left with an
        intent alone.
    """
    world = SiteWorld(**SPECS[kind])
    CLOCK[:], Asked.kept = [world], {}
    world.wrapper()
    world.start(101)
    world.tick("ctl1")
    if kind == "suspects":
        world.silent["n101"] = world.now - 2 * SUSPECT_S
    else:
        words, more = ENDS[how]
        world.end(101, *words, **more)
    most = 0
    for number in range(PASSES):
        if number == 3 and act == "cancel" and world.state.closed is None:
            world.job.person(lambda _: (("request", {"what": "cancel", "reason": ""}),))
        elif number == 3 and act == "release" and world.state.holding is not None:
            world.job.person(lambda state: people.release(state, "x", world.wall))
        if cut is not None and number < 6:
            world.tick("ctl1", cuts=[Cut(cut, "die")])
        world.tick("ctl1")
        most = max(most, world.steps)
        if kind == "suspects" and number == 4:
            for waiting in world.objects("PENDING"):
                world.start(waiting)
        world.passes(WAIT_S + 60 if number < 6 else 2000)
    state = world.state
    closed = None if state.closed is None else state.closed.why
    holding = None if state.holding is None else state.holding.why
    spent = sum(fact.kind == "decision" and fact.body["outcome"] == how for fact in world.job.record.facts)
    living = (len(world.objects("PENDING", "RUNNING")), len(world.living))
    made = {word.submission for it in world.slurm.ids() if (word := world.word(it)) is not None}
    unsent = any(submission.number not in made for submission in state.submissions)
    return (state.phase, closed, holding, spent, *living), most, unsent


@pytest.mark.parametrize("act", ["", "cancel", "release"])
@pytest.mark.parametrize("how", ["preempted", "failed", "out_of_memory", "completed", "by its owner", "by root"])
@pytest.mark.parametrize("kind", list(SPECS))
def test_a_pass_that_dies_before_any_step_is_finished_by_the_next(kind: str, how: str, act: str) -> None:
    whole, most, _ = play(kind, how, act, None)
    assert 3 < most < DEEPEST
    for cut in range(1, most + 1):
        came_to, _, unsent = play(kind, how, act, cut)
        if not (unsent and kind == "shared"):
            assert came_to == whole, f"died before step {cut} of {most}"
            continue
        # Nobody but a person may say of a shared job that its object does not exist (P5): it waits for one.
        phases = {Phase.HELD, Phase.QUEUED} if act == "release" else {Phase.HELD, Phase.CLOSED}
        assert came_to[0] in phases, f"died before step {cut} of {most}"
        assert came_to[-2:] == (int(came_to[0] is Phase.QUEUED), 0), f"died before step {cut} of {most}"


def test_passes_die_before_each_kind_of_step() -> None:
    """The property means something: these are among the steps before which a pass died above."""
    SEEN.clear()
    for kind, how, act in (("rules", "preempted", "cancel"), ("shared", "failed", "release"), ("suspects", "", "")):
        _, most, _ = play(kind, how, act, None)
        for cut in range(1, most + 1):
            play(kind, how, act, cut)
    died = {name.removeprefix("died before ") for name in SEEN if name.startswith("died before ")}
    appends = (
        "intent", "submitted", "started", "end", "decision", "held", "told", "cessation", "requeued", "suspected",
        "release",
    )  # fmt: skip
    others = {"queue", "detail", "accounting", "submit", "sbatch has arrived", "requeue"}
    assert {f"append {kind}" for kind in appends} | others <= died, sorted(died)
