"""What dispatch-watch does in a job with a shared checkpoint, and in one that may stall, on the real cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from docker.rig import PATIENCE_S
from tests.cluster.jobs import LONG_S, Jobs

if TYPE_CHECKING:
    from docker.rig import Cluster

pytestmark = pytest.mark.cluster
SHARED = """#!/bin/sh
#SBATCH --ntasks=2 --nodes=2
exec dispatch-watch --interval 1 -- srun sh -c '
    told="$DISPATCH_DIR/told.$SLURM_PROCID"
    echo "$SLURM_PROCID $DISPATCH_DIR ${DISPATCH_RESUME-unset} $SLURM_DISPATCH_SHARED $#" >>"$told"
    if [ $SLURM_PROCID = 0 ]; then mkdir "$DISPATCH_DIR/checkpoint-40"; fi
    exec sleep 3600' x {resume:--resume}
"""
STALLS = """#!/bin/sh
#DISPATCH --stall 10m
#DISPATCH --on stalled:resubmit,budget=5
test ! -e ran || exec sleep 3600
touch ran
echo "the job's own: $SLURM_DISPATCH_STALL"
exec dispatch-watch --stall 5s --interval 1 --grace 5 --done done -- srun sleep 3600
"""


def test_every_rank_of_a_shared_job_works_in_the_root(cluster: Cluster, jobs: Jobs) -> None:
    key = jobs.submit(SHARED, "--shared-checkpoint")
    root = f"{jobs.folder}/root"
    progress = jobs.wait(key, "progress")
    assert (progress["step"], progress["resumed_from"], progress["by"][:6]) == (40, None, "watch@")
    for rank in (0, 1):
        cluster.sh("login", f"until [ -s {root}/told.{rank} ]; do sleep 0.2; done", timeout_s=PATIENCE_S)
        assert cluster.read(f"{root}/told.{rank}") == f"{rank} {root} unset 1 0\n"
    names = cluster.sh("login", f"ls {root}").split()
    assert names == ["checkpoint-40", "exec", "own", "told.0", "told.1"]
    assert cluster.sh("login", f"readlink {root}/own/0").strip() == key
    assert "nothing is published" in cluster.read(f"{jobs.folder}/out")
    cluster.run("login", ["dispatch", "cancel", key], user="ada", timeout_s=LONG_S)


def test_a_job_that_stalls_is_ended_and_goes_on_elsewhere(cluster: Cluster, jobs: Jobs) -> None:
    """The steps are ended, and the outcome is the helper's. Its command line goes before the job's settings."""
    key = jobs.submit(STALLS)
    jobs.running(key, 2)
    ended, end = jobs.last(key, "ended"), jobs.last(key, "end")
    assert ended is not None
    assert end is not None
    assert (ended["outcome"], ended["by"][:6]) == ("stalled", "watch@")
    assert end["outcome"] == "stalled"
    said = cluster.read(f"{jobs.folder}/out")
    assert "the job's own: 600\n" in said
    assert "nothing was published for 5 s (--stall)" in said
    cluster.run("login", ["dispatch", "cancel", key], user="ada", timeout_s=LONG_S)
