"""Jobs on two clusters that share a state folder and a slurmdbd; the ticks are of the first one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.cluster.jobs import LONG_S, UNTIL_TOLD, Jobs

if TYPE_CHECKING:
    from docker.rig import Cluster

ONE_TASK = ("--ntasks=1", "--mem=50M", "--partition=low")


def second(cluster: Cluster, *words: str) -> None:
    """What ``docker/second`` does."""
    cluster.run("login", ["sh", "/src/docker/second", *words], timeout_s=LONG_S)


def listed(cluster: Cluster, name: str, key: str) -> list[tuple[int, str]]:
    """The job's objects in this cluster's queue: id and state."""
    rows = cluster.sh("ctl", f"squeue -M {name} -h -t all -o '%i|%T|%k'").splitlines()
    found = [row.split("|") for row in rows if f"dispatch:{key}:" in row]
    return [(int(parts[0]), parts[1]) for parts in found]


def test_each_object_is_asked_for_at_its_own_cluster(cluster: Cluster, jobs: Jobs) -> None:
    """C005, C079, C080: one id on both clusters, one of which goes away; and each job goes on where it is."""
    here = jobs.submit(UNTIL_TOLD, *ONE_TASK)
    its_folder = jobs.folder
    number = jobs.running(here)
    try:
        second(cluster, "start", str(number))
        there = jobs.submit(UNTIL_TOLD, *ONE_TASK, "-M", "second")
        folder = jobs.folder
        submitted = jobs.wait(there, "submitted")
        assert (submitted["cluster"], submitted["slurm_job_id"]) == ("second", number)
        started = jobs.wait(there, "started")
        assert started["slurm_job_id"] == number
        cluster.wait_until(lambda: listed(cluster, "second", there) == [(number, "RUNNING")], LONG_S, "it to run")

        second(cluster, "away")
        before = jobs.kinds(there)
        cluster.write(f"{its_folder}/fail", "", user="ada")
        assert jobs.running(here, 2) != number
        for _ in range(2):
            cluster.run("ctl", ["dispatch", "tick"], timeout_s=LONG_S)
        assert jobs.kinds(there) == before

        second(cluster, "start")
        cluster.write(f"{folder}/fail", "", user="ada")
        again = jobs.wait(there, "submitted", 2)
        assert again["cluster"] == "second"
        end = jobs.last(there, "end")
        assert end is not None
        assert (end["outcome"], end["slurm_job_id"], end["evidence"]["exit_code"]) == ("failed", number, 3)
        assert listed(cluster, "dispatch", there) == []

        cluster.run("login", ["dispatch", "cancel", there], user="ada", timeout_s=LONG_S)
        assert jobs.wait(there, "closed")["why"] == "cancelled"
        assert {state for _, state in listed(cluster, "second", there)} <= {"FAILED", "CANCELLED", "COMPLETING"}
        assert [state for _, state in listed(cluster, "dispatch", here)][-1] == "RUNNING"
    finally:
        second(cluster, "stop")


def test_without_slurmdbd_a_job_can_be_cancelled_and_requeued(cluster: Cluster, jobs: Jobs) -> None:
    """C081: by its own name Slurm finds a cluster only through slurmdbd, so the own one is never asked by name."""
    rule = "failed:requeue,budget=5"
    key = jobs.submit(UNTIL_TOLD, *ONE_TASK, rules=(rule,))
    number = jobs.running(key)
    cluster.sh("ctl", "while pgrep -x slurmdbd >/dev/null; do pkill -x slurmdbd; sleep 0.1; done")
    try:
        cluster.write(f"{jobs.folder}/fail", "", user="ada")
        assert jobs.wait(key, "requeued")["slurm_job_id"] == number
        jobs.wait(key, "started", 2)
        cluster.run("login", ["dispatch", "cancel", key], user="ada", timeout_s=LONG_S)
        cluster.wait_job(number, ["CANCELLED"])
    finally:
        cluster.sh("ctl", "runuser -u slurm -- slurmdbd", timeout_s=LONG_S)
        told = ["sacctmgr", "-n", "show", "cluster"]
        cluster.wait_until(lambda: not cluster.run("ctl", told, check=False).status, LONG_S, "slurmdbd to answer")
