"""What Slurm says and this version does not know: nothing is done about it, and a person hears of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from slurm_dispatch.controller.glance import glance
from tests.controller.rig import Rig

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("states", [("FROBBED",), ("FAILED", "FROBBED"), ("FROBBED", "COMPLETING")])
def test_a_state_that_is_not_known_changes_nothing_and_is_told(tmp_path: Path, states: tuple[str, ...]) -> None:
    """C066: the log of the tick names it; once Slurm says something that is known, all goes on."""
    rig = Rig(tmp_path)
    key = rig.job("failed:stop")
    rig.start(key)
    rig.settle()
    before = rig.kinds(key)
    rig.slurm.end(rig.object(key), *states)
    rig.settle()
    assert rig.kinds(key) == before
    assert "FROBBED is a state that this version does not know" in rig.reports[key].trouble
    rig.slurm.end(rig.object(key), "FAILED", exit_status=1)
    rig.settle()
    assert rig.last(key, "end").body["outcome"] == "failed"
    assert rig.reports[key].trouble == ""


def test_status_names_it(tmp_path: Path) -> None:
    """A person reads it beside Slurm's own word."""
    rig = Rig(tmp_path)
    key = rig.job()
    rig.start(key)
    rig.settle()
    rig.slurm.end(rig.object(key), "FROBBED")
    words = glance({key: rig.state(key)}, rig.slurm).words[key]
    assert words.startswith("FROBBED")
    assert words.endswith(": a state that this version does not know; nothing is done about it")


@pytest.mark.parametrize("ran_s", [0, 1, 30])
def test_a_node_whose_prolog_failed(tmp_path: Path, ran_s: int) -> None:
    """C042: Slurm says FAILED 1:0 of it as of a script that failed, and drains the node."""
    rig = Rig(tmp_path)
    key = rig.job("failed,launch_failed:stop")
    start = rig.start(key)
    rig.settle()
    rig.slurm.node("c1", "IDLE", "DRAIN")
    rig.slurm.end(rig.object(key), "FAILED", end_time=start + ran_s, exit_status=1)
    rig.settle()
    assert rig.last(key, "end").body["outcome"] == "launch_failed"


@pytest.mark.parametrize(
    ("by_uid", "apart_s", "outcome"),
    [(0, 0, "launch_failed"), (0, 90, "cancelled"), (0, None, "cancelled"), (500, 0, "cancelled")],
)
def test_a_job_that_slurmctld_started_twice(tmp_path: Path, by_uid: int, apart_s: int | None, outcome: str) -> None:
    """A backup that took over with old state sends the script again; slurmd has the job that runs cancelled."""
    rig = Rig(tmp_path)
    key = rig.job("cancelled,launch_failed:stop")
    start = rig.start(key)
    rig.settle()
    end = start + 55
    rig.slurm.node("c1", "IDLE", "DRAIN", duplicate_at=None if apart_s is None else end + apart_s)
    rig.slurm.end(rig.object(key), "CANCELLED", end_time=end, exit_signal=15, by_uid=by_uid)
    rig.settle()
    assert rig.last(key, "end").body["outcome"] == outcome


@pytest.mark.parametrize(
    ("by_uid", "ran_s", "apart_s", "outcome"),
    [
        (0, 0, 0, "launch_failed"),
        (0, 30, 1, "launch_failed"),
        (0, 61, 0, "cancelled"),
        (0, 0, 90, "cancelled"),
        (0, 0, None, "cancelled"),
        (500, 0, 0, "cancelled"),
    ],
)
def test_a_job_that_slurmd_cancelled_since_its_prolog_failed(
    tmp_path: Path, by_uid: int, ran_s: int, apart_s: int | None, outcome: str
) -> None:
    """Seen on 22.05, once in two: slurmd's kill came before slurmctld had ended it as FAILED 1:0."""
    rig = Rig(tmp_path)
    key = rig.job("cancelled,launch_failed:stop")
    start = rig.start(key)
    rig.settle()
    end = start + ran_s
    rig.slurm.node("c1", "IDLE", "DRAIN", prolog_failed_at=None if apart_s is None else end + apart_s)
    rig.slurm.end(rig.object(key), "CANCELLED", end_time=end, by_uid=by_uid)
    rig.settle()
    assert rig.last(key, "end").body["outcome"] == outcome


@pytest.mark.parametrize(("drained", "outcome"), [(True, "launch_failed"), (False, "failed")])
def test_a_node_is_drained_a_moment_after_the_end(tmp_path: Path, drained: bool, outcome: str) -> None:
    """So what ended as it began is looked at once more."""
    rig = Rig(tmp_path)
    key = rig.job("failed,launch_failed:stop")
    start = rig.start(key)
    rig.settle()
    before = rig.kinds(key)
    rig.slurm.end(rig.object(key), "FAILED", end_time=start, exit_status=1)
    rig.tick(view=replace(rig.view(), at=start + 2.0))
    assert rig.kinds(key) == before
    assert rig.reports[key].soon
    rig.slurm.node("c1", "IDLE", *(["DRAIN"] if drained else []))
    rig.later_s = 10.0
    rig.settle()
    assert rig.last(key, "end").body["outcome"] == outcome


def test_a_slow_prolog_is_waited_for_while_the_job_is_completing(tmp_path: Path) -> None:
    """It failed after half a minute; its node is drained before the job has completed."""
    rig = Rig(tmp_path)
    key = rig.job("failed,launch_failed:stop")
    start = rig.start(key)
    rig.settle()
    before = rig.kinds(key)
    rig.slurm.end(rig.object(key), "FAILED", "COMPLETING", end_time=start + 30, exit_status=1)
    rig.settle()
    assert rig.kinds(key) == before
    rig.slurm.node("c1", "IDLE", "DRAIN")
    rig.settle()
    assert rig.last(key, "end").body["outcome"] == "launch_failed"


@pytest.mark.parametrize(("ran_s", "status"), [(61, 1), (0, 2)])
def test_a_drained_node_says_nothing_of_other_ends(tmp_path: Path, ran_s: int, status: int) -> None:
    """A job that ran for longer than a Prolog may, or ended with a status of its own, has failed."""
    rig = Rig(tmp_path)
    key = rig.job("failed,launch_failed:stop")
    start = rig.start(key)
    rig.settle()
    rig.slurm.node("c1", "IDLE", "DRAIN")
    rig.slurm.end(rig.object(key), "FAILED", end_time=start + ran_s, exit_status=status)
    rig.settle()
    assert rig.last(key, "end").body["outcome"] == "failed"


def test_a_helper_that_was_there_says_more_than_a_drained_node(tmp_path: Path) -> None:
    """The command ran, so the script did."""
    rig = Rig(tmp_path)
    key = rig.job("failed,launch_failed:stop")
    start = rig.start(key)
    rig.settle()
    rig.helper(key, status=1)
    rig.slurm.node("c1", "IDLE", "DRAIN")
    rig.slurm.end(rig.object(key), "FAILED", end_time=start, exit_status=1)
    rig.settle()
    assert rig.last(key, "end").body["outcome"] == "failed"
