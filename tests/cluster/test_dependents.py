"""Jobs that depend on a Slurm job of ours, on the real cluster: they wait for the object that counts in the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cluster.jobs import LONG_S, Jobs

if TYPE_CHECKING:
    from docker.rig import Cluster

TWICE = """#!/bin/sh
if test -e second; then echo first >>order; exit 0; fi
: >second
until test -e fail; do sleep 0.2; done
exit 3
"""
"""Fails once somebody puts a file ``fail`` beside it, and completes when it runs again."""
LOW = ("--partition=low", "--ntasks=1")


def depends(cluster: Cluster, slurm_job_id: int) -> str:
    """What Slurm says that the job waits for, and why it waits."""
    return cluster.run("login", ["squeue", "-h", "-j", str(slurm_job_id), "-o", "%E %r"], user="ada").stdout.strip()


@pytest.mark.parametrize("rule", ["failed:resubmit,budget=1", "failed:requeue,budget=1"])
def test_what_depends_on_a_job_runs_once_and_after_it(jobs: Jobs, rule: str) -> None:
    """C083: a plain job and one of ours; under a new id, and the same one, whose first end Slurm takes for all."""
    cluster = jobs.cluster
    key = jobs.submit(TWICE, *LOW, rules=(rule,))
    folder = jobs.folder
    first = jobs.running(key)
    write = f"echo second >>{folder}/order"
    options = [*LOW, "--output=/dev/null", f"--dependency=afterok:{first}"]
    plain = cluster.submit("ada", "", [*options, "--wrap", write], cwd=folder)
    ours = jobs.submit(f"#!/bin/sh\n{write}\n", *LOW, f"--dependency=afterok:{first}")
    waits = jobs.wait(ours, "submitted")["slurm_job_id"]
    assert depends(cluster, plain) == depends(cluster, waits) == f"afterok:{first}(unfulfilled) Dependency"
    cluster.write(f"{folder}/fail", "", user="ada")
    moved = jobs.wait(key, "repointed")
    assert (moved["moved"], moved["left"]) == (sorted([plain, waits]), [])
    assert (moved["slurm_job_id"] == first) == ("requeue" in rule)
    assert jobs.wait(key, "closed")["why"] == "completed"
    cluster.wait_job(plain, ["COMPLETED"], LONG_S)
    assert jobs.wait(ours, "closed")["why"] == "completed"
    assert cluster.read(f"{folder}/order").split() == ["first", "second", "second"]
    assert jobs.kinds(ours).count("submitted") == 1
    assert len(jobs.objects(key)) == (1 if "requeue" in rule else 2)
