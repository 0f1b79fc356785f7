"""A pass that is killed at any call is finished by the next one: nothing twice, nothing lost."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from slurm_dispatch.records.fold import fold
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
