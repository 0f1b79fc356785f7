"""Handing on through the node, on the real cluster: the job cannot reach its record, and its facts come."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from docker.rig import PATIENCE_S
from tests.cluster.jobs import LONG_S, Jobs

if TYPE_CHECKING:
    from docker.rig import Cluster

pytestmark = pytest.mark.cluster
RUN = "/run/slurm-dispatch"
SAVES = """#!/bin/sh
unset SLURM_DISPATCH_RECORD
test ! -e ran || exec sleep 3600
touch ran
stat -c '%u %a' "$SLURM_DISPATCH_HAND"
head -c 1000000 /dev/zero >"$SLURM_DISPATCH_HAND/fill"
stat -c %s "$SLURM_DISPATCH_HAND/fill"
rm "$SLURM_DISPATCH_HAND/fill"
exec dispatch-watch --interval 1 --done done -- sh -c 'COMMAND'
"""
SAVE = 'mkdir "$DISPATCH_DIR/checkpoint-40" && echo w >"$DISPATCH_DIR/checkpoint-40/done"'


def test_progress_and_the_end_come_with_the_node_s_epilog(cluster: Cluster, jobs: Jobs) -> None:
    key = jobs.submit(SAVES.replace("COMMAND", f"{SAVE}; exit 3"), rules=("failed:resubmit,budget=5",))
    ended = jobs.wait(key, "ended")
    progress = jobs.wait(key, "progress")
    started = jobs.facts(key)[[fact["kind"] for fact in jobs.facts(key)].index("started")]
    for fact in (ended, progress):
        assert fact["by"].startswith("tick@")
        assert (fact["attempt"], fact["epoch"]) == (started["attempt"], "1000000")
    assert (progress["step"], progress["resumed_from"]) == (40, None)
    assert (ended["status"], ended["signal"], ended["outcome"], ended["step"]) == (3, None, None, 40)
    said = cluster.read(f"{jobs.folder}/out")
    assert "is handed on by this node's Epilog" in said
    owner, size = said.splitlines()[0], next(line for line in said.splitlines() if line.isdigit())
    assert owner == f"{cluster.sh('login', 'id -u', user='ada').strip()} 700"
    assert int(size) <= 64 * 1024  # and /run has the rest

    def gone() -> bool:
        left = [cluster.sh(node, f"ls {RUN}; cut -d' ' -f2 /proc/self/mounts") for node in cluster.nodes]
        return not re.search(rf"^({RUN}/)?{started['slurm_job_id']}\.", "\n".join(left), re.MULTILINE)

    cluster.wait_until(gone, PATIENCE_S, "file and folder of the execution to be gone")
    jobs.running(key, 2)
    cluster.run("login", ["dispatch", "cancel", key], user="ada", timeout_s=LONG_S)


def test_a_job_that_says_again_goes_on(cluster: Cluster, jobs: Jobs) -> None:
    """The decision may come before the Epilog; the status speaks then."""
    key = jobs.submit(SAVES.replace("COMMAND", f"{SAVE} && dispatch again"))
    jobs.running(key, 2)
    end = jobs.last(key, "end")
    assert end is not None
    assert end["outcome"] == "unfinished"
    assert "ending with 85" in cluster.read(f"{jobs.folder}/out")
    cluster.run("login", ["dispatch", "cancel", key], user="ada", timeout_s=LONG_S)
