"""A pass that is killed at any call is finished by the next one: nothing twice, nothing lost."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from slurm_dispatch.records.fold import fold
from slurm_dispatch.records.people import release
from tests.controller.one_pass import one_pass
from tests.controller.rig import WAIT_S, Rig
from tests.kill import Point, Run, kill_at_every_call

TOP = Path(__file__).resolve().parents[2]


def test_a_pass_that_is_killed_anywhere_is_finished_by_the_next(tmp_path: Path) -> None:
    def scene(folder: Path) -> Run:
        rig = Rig(folder)
        key = rig.job()
        rig.start(key)
        rig.slurm.end(rig.object(key), "PREEMPTED", "COMPLETING")
        rig.end_note(key)
        env = {**os.environ, "PYTHONPATH": str(TOP), "PYTHONDONTWRITEBYTECODE": "1"}
        return Run([sys.executable, "-m", "tests.controller.one_pass", str(folder)], cwd=folder, env=env)

    def check(folder: Path, point: Point) -> None:
        rig = Rig(folder)
        (job,) = rig.folder.jobs()
        fold(rig.facts(job.key))  # whole, and allowed by the law
        assert len(rig.slurm.ids()) <= 2, point

    def finished(folder: Path) -> None:
        """Also what was left to be settled: an intent whose writer died between sbatch and the answer."""
        rig = Rig(folder)
        (job,) = rig.folder.jobs()
        rig.later_s = WAIT_S + 60
        rig.tick()
        rig.later_s = 2 * (WAIT_S + 60)
        rig.tick()
        rig.later_s += 86400  # a burnt first answer waits with its back-off
        rig.settle()
        state = rig.state(job.key)
        assert state.phase.value == "queued"
        waiting = [number for number in rig.slurm.ids() if rig.slurm.job(number)["states"] == ["PENDING"]]
        assert waiting == [rig.object(job.key)]
        assert [name for name in rig.notes() if not name.startswith(("start.", "refuse."))] == []
        assert rig.kinds(job.key).count("end") == 1

    # Byte code is kept out of the count; the scene is made in this process, before the program runs.
    visited = kill_at_every_call(tmp_path, scene, check=check, finished=finished, mark="/facts/.tmp-", least=20)
    assert {"link", "unlink", "fsync"} <= {point.call for point in visited}


RELEASED, EXPIRED = "a" * 12, "b" * 12
RAN_S = 3700.0


def test_a_pass_that_releases_and_closes_is_finished_by_the_next(tmp_path: Path) -> None:
    """A held job was released and is resubmitted; the hold of another runs out, its owner is told, and it closes."""

    def scene(folder: Path) -> Run:
        rig = Rig(folder)
        for key in (RELEASED, EXPIRED):
            rig.job("preempted:hold,for=1h", key=key)
            rig.start(key)
            rig.slurm.end(rig.object(key), "PREEMPTED", "COMPLETING")
            rig.end_note(key)
        for _ in range(4):
            one_pass(rig, 0.0)
        assert {rig.state(key).phase.value for key in (RELEASED, EXPIRED)} == {"held"}
        state = rig.state(RELEASED)
        for kind, body in release(state, "it may go on", time.time()):
            assert rig.record(RELEASED).append(state.seq + 1, kind, "user:ada@login", body)
        env = {**os.environ, "PYTHONPATH": str(TOP), "PYTHONDONTWRITEBYTECODE": "1"}
        argv = [sys.executable, "-m", "tests.controller.one_pass", str(folder), str(RAN_S)]
        return Run(argv, cwd=folder, env=env)

    def check(folder: Path, point: Point) -> None:
        rig = Rig(folder)
        for key in (RELEASED, EXPIRED):
            fold(rig.facts(key))
        assert len(rig.slurm.ids()) <= 3, point

    def finished(folder: Path) -> None:
        rig = Rig(folder)
        for later_s in (WAIT_S + 60, 2 * (WAIT_S + 60), 86400.0, 86460.0, 86520.0, 86580.0):
            rig.later_s = later_s
            one_pass(rig, RAN_S)
        state = rig.state(EXPIRED)
        assert state.closed is not None
        assert state.closed.why == "hold_expired"
        assert [fact.body["what"] for fact in rig.facts(EXPIRED) if fact.kind == "told"].count("expired") == 1
        assert rig.kinds(EXPIRED).count("closed") == 1
        assert rig.state(RELEASED).phase.value == "queued"
        assert rig.kinds(RELEASED).count("release") == 1
        waiting = [number for number in rig.slurm.ids() if rig.slurm.job(number)["states"] == ["PENDING"]]
        assert waiting == [rig.object(RELEASED)]

    visited = kill_at_every_call(tmp_path, scene, check=check, finished=finished, mark="/facts/.tmp-", least=20)
    assert {"link", "unlink", "fsync"} <= {point.call for point in visited}
    print(f"{len(visited)} points")
