"""What becomes of objects that PrologSlurmctld did not let start."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from slurm_dispatch.slurm.parse import parse_config
from tests.controller.rig import Rig

ASSETS = Path(__file__).resolve().parent.parent / "assets"


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def test_a_refused_launch_counts_as_launch_failed_and_costs_no_budget(rig: Rig) -> None:
    """C042: an attempt that never started uses no retry budget."""
    key = rig.job("launch_failed:resubmit,budget=2")
    number = rig.object(key)
    start = rig.slurm.start(number)
    rig.refused_note(key, number, "double_start", start)
    rig.slurm.end(number, "CANCELLED", by_uid=0)
    rig.settle()
    assert rig.kinds(key, 3)[:2] == ["refused", "end"]
    assert rig.last(key, "end").body["outcome"] == "launch_failed"
    assert len(rig.slurm.ids()) == 2


def test_a_refusal_that_was_noted_after_the_notes_were_read(rig: Rig) -> None:
    """C042: the pass has read the notes, then the start is refused, then Slurm shows it as cancelled by root."""
    key = rig.job("launch_failed:resubmit,budget=2")
    number = rig.object(key)
    start = rig.slurm.start(number)
    view = rig.view()
    view.config = {**(view.config or {}), "PrologSlurmctld": "/etc/slurm/dispatch/prolog-slurmctld"}
    rig.slurm.end(number, "CANCELLED", by_uid=0)
    view.queue = rig.slurm.queue()
    view.__post_init__()
    assert rig.tick(view=view)[key].soon
    assert "end" not in rig.kinds(key)
    rig.refused_note(key, number, "double_start", start)
    rig.settle()
    assert rig.last(key, "end").body["outcome"] == "launch_failed"


@pytest.mark.parametrize("release", ["22.05", "24.11", "26.05"])
def test_the_gate_is_known_by_what_each_release_says_of_it(rig: Rig, release: str) -> None:
    """C042: the same, with a real cluster's own words: from 24.05 on ``PrologSlurmctld[0]``."""
    key = rig.job("launch_failed:resubmit,budget=2")
    number = rig.object(key)
    rig.slurm.start(number)
    view = rig.view()
    text = json.loads((ASSETS / f"slurm-{release}" / "config.json").read_text(encoding="utf-8"))["stdout"]
    view.config = {**(view.config or {}), **parse_config(text)}
    rig.slurm.end(number, "CANCELLED", by_uid=0)
    view.queue = rig.slurm.queue()
    view.__post_init__()
    assert rig.tick(view=view)[key].soon
    assert "end" not in rig.kinds(key)


@pytest.mark.parametrize(("ran_s", "waits"), [(2, True), (10, False)])
def test_the_end_of_what_ran_and_root_cancelled_is_known_at_once(rig: Rig, ran_s: int, waits: bool) -> None:
    """Only a start may be refused, and at once: there is a note of this very start that it was let through."""
    key = rig.job("cancelled:resubmit,budget=2")
    number = rig.object(key)
    start = rig.slurm.start(number) - ran_s
    rig.slurm.set(number, start_time=start)
    rig.start_note(key, number, start)
    rig.settle()
    rig.slurm.end(number, "CANCELLED", by_uid=0, end_time=start + ran_s)
    view = rig.view()
    view.config = {**(view.config or {}), "PrologSlurmctld": "/etc/slurm/dispatch/prolog-slurmctld"}
    view.__post_init__()
    rig.tick(view=view)
    assert ("end" not in rig.kinds(key)) is waits


def test_a_refused_object_that_waits_again_is_cancelled(rig: Rig) -> None:
    key = rig.job(shared=True)
    number = rig.object(key)
    rig.start(key)
    rig.tick()
    rig.slurm.restart(number, "NODE_FAIL")
    rig.refused_note(key, number, "shared", 5)
    rig.settle()
    assert "CANCELLED" in rig.slurm.job(number)["states"]
    assert rig.state(key).phase.value == "held"
    assert len(rig.slurm.ids()) == 1


def refused(rig: Rig) -> tuple[str, int]:
    """A shared job that ran, was requeued and refused, and waits again; its key and its object."""
    key = rig.job(shared=True)
    number = rig.object(key)
    rig.start(key)
    rig.tick()
    rig.slurm.restart(number, "REQUEUED")
    rig.refused_note(key, number, "shared", 5)
    rig.slurm.restart(number)
    return key, number


def test_an_object_that_was_refused_and_cancelled_while_it_waited_had_no_more_starts(rig: Rig) -> None:
    """Slurm raises the count of an object that was refused; cancelled before it started so, it never did.

    Then all its executions are known, and cessation may lift the hold. No node is to blame for a refusal.
    """
    key, number = refused(rig)
    rig.settle()
    assert rig.last(key, "end").body["restart"] == 1
    state = rig.state(key)
    assert state.current is not None
    assert (state.phase.value, state.unseen, state.current.was_refused) == ("held", False, True)
    assert not any("--exclude" in option for option in rig.last(key, "decision").body["changes"])
    # One that had a node again is another matter: no note tells of that start.
    key, number = refused(rig)
    rig.slurm.start(number)
    rig.slurm.end(number, "CANCELLED")
    rig.settle()
    assert (rig.last(key, "end").body["restart"], rig.state(key).unseen) == (2, True)
