"""The recovery engine on the real cluster: requeue, holds, maintenance, a silent node before Slurm gives it up."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING

import pytest

from docker.rig import ROOT
from tests.cluster.jobs import FOREVER, LONG_S, UNTIL_TOLD, Jobs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from docker.rig import Cluster

SETTINGS = """state = "/srv/slurm-dispatch"
suspicion = true
maintenance_spread_s = 2
"""
SLURMD_TIMEOUT_S = 300
PINGS_S = 2 * SLURMD_TIMEOUT_S / 3
"""No suspicion acts so soon after slurmctld's start."""
PATIENCE_S = 600.0
SUSPECT = ("--suspect", "30s")
LOW = ("--partition=low", "--ntasks=1")
GONE = {"CANCELLED", "COMPLETING"}
"""What Slurm says of a cancelled object on a node that does not answer; 22.05 tells the flag alone."""
COUNTS = "#!/bin/sh\nn=0\nwhile :; do n=$((n+1)); echo $n >count.tmp; mv count.tmp count; sleep 1; done\n"
"""A run whose life can be seen from outside, in its own folder."""


@pytest.fixture(scope="module")
def site(cluster: Cluster) -> Iterator[Jobs]:
    """The cluster with Slurm's own SlurmdTimeout, and a site that allows suspicion."""
    try:
        _settings(cluster, SETTINGS, SLURMD_TIMEOUT_S)
        yield Jobs(cluster)
    finally:
        with open(os.path.join(ROOT, "docker", "dispatch.toml"), encoding="utf-8") as stream:
            _settings(cluster, stream.read(), 20)


def _settings(cluster: Cluster, settings: str, slurmd_timeout_s: int) -> None:
    """Other settings of the site and of Slurm, with which slurmctld is started again."""
    for host in ("ctl", "login"):
        cluster.write("/etc/slurm-dispatch/dispatch.toml", settings, host=host)
    for host in cluster.hosts:
        cluster.sh(host, f"sed -i 's/^SlurmdTimeout=.*/SlurmdTimeout={slurmd_timeout_s}/' /etc/slurm/slurm.conf")
    cluster.crash_controller(saved=True)
    found = cluster.run("ctl", ["scontrol", "show", "config"]).stdout
    assert f"SlurmdTimeout           = {slurmd_timeout_s} sec" in found
    cluster.run("ctl", ["sh", "/src/docker/ticks", "again"])


def phase(jobs: Jobs, key: str) -> str:
    """The job's state, as ``dispatch show`` has it."""
    shown = jobs.cluster.run("ctl", ["dispatch", "status", "--user", "all", "--all", "--json"], timeout_s=LONG_S)
    return str(next(job["state"] for job in json.loads(shown.stdout)["jobs"] if job["job"] == key))


def boot_time(cluster: Cluster) -> int:
    """When slurmctld started."""
    text = cluster.sh("ctl", "SLURM_TIME_FORMAT=%s scontrol show config | grep ^BOOT_TIME")
    return int(text.split("=")[1])


def counted(jobs: Jobs, folder: str) -> int:
    """How far a run has counted, by what it wrote last."""
    return int(jobs.cluster.run("login", ["cat", f"{folder}/count"], check=False).stdout or 0)


def test_a_requeue_keeps_the_id_and_waits_for_no_two_minutes(site: Jobs) -> None:
    key = site.submit(UNTIL_TOLD, *LOW, rules=("failed:requeue",))
    folder = site.folder
    number = site.running(key)
    site.cluster.write(f"{folder}/fail", "", user="ada")
    site.wait(key, "requeued")
    end = site.last(key, "end")
    assert end is not None
    job = site.cluster.wait_job(number, ["RUNNING"], LONG_S)
    started = site.wait(key, "started", 2)
    assert (started["slurm_job_id"], started["restart"], job.restarts) == (number, 1, 1)
    assert started["at"] - end["at"] < 100.0  # Slurm alone: 121 s after the old run has completed
    assert site.objects(key) == [number]
    first = next(fact for fact in site.facts(key) if fact["kind"] == "started")
    assert int(first["epoch"]) < int(started["epoch"])
    site.cluster.run("login", ["dispatch", "cancel", key], user="ada", timeout_s=LONG_S)


def test_a_hold_is_told_and_a_release_goes_on(site: Jobs) -> None:
    key = site.submit(UNTIL_TOLD, *LOW, rules=("failed:hold,for=2h",))
    folder = site.folder
    site.running(key)
    site.cluster.write(f"{folder}/fail", "", user="ada")
    decision = site.wait(key, "decision")
    assert (decision["action"], decision["hold_for_s"]) == ("hold", 7200)
    assert site.wait(key, "told")["what"] == "start"
    assert site.wait(key, "held")["counted_s"] == 0
    site.settled(key, 1)
    assert phase(site, key) == "held"
    said = site.cluster.run(
        "login", ["dispatch", "release", key, "--reason", "looked at it"], user="ada", timeout_s=LONG_S, check=False
    )
    assert said.status == 0, said.stderr
    site.running(key, 2)
    site.settled(key, 2)
    site.cluster.run("login", ["dispatch", "cancel", key], user="ada", timeout_s=LONG_S)


def test_what_ends_in_maintenance_comes_back_after_it(site: Jobs) -> None:
    cluster = site.cluster
    key = site.submit(UNTIL_TOLD, *LOW, rules=("failed:resubmit,budget=0",))
    folder = site.folder
    site.running(key)
    cluster.run("ctl", ["dispatch", "site", "maintenance", "begin", "--partition", "low", "--for", "1h"])
    announced = json.loads(cluster.run("ctl", ["dispatch", "site", "maintenance", "--json"]).stdout)["maintenance"][0]
    try:
        cluster.write(f"{folder}/fail", "", user="ada")
        decision = site.wait(key, "decision")
        assert (decision["action"], decision["free"]) == ("resubmit", True)
        until = decision["inputs"]["maintenance_until"]
        assert announced["end"] <= until <= announced["end"] + 2.0
        second = site.wait(key, "submitted", 2)["slurm_job_id"]
        job = cluster.job(second)
        assert job is not None
        assert job.state == "PENDING"
        shown = cluster.sh("ctl", f"SLURM_TIME_FORMAT=%s scontrol show job {second} | grep -o 'EligibleTime=[0-9]*'")
        assert int(shown.partition("=")[2]) >= until - 1.0
    finally:
        cluster.run("ctl", ["dispatch", "site", "maintenance", "end", "--partition", "low"])
    cluster.run("login", ["dispatch", "cancel", key], user="ada", timeout_s=LONG_S)


def test_a_silent_node_is_replaced_long_before_slurm_gives_it_up(site: Jobs) -> None:
    """One node stays cut off, one answers again before its replacement ran, and one was never silent."""
    cluster = site.cluster
    lost = site.submit(COUNTS, *LOW, "--nodelist=c1", *SUSPECT)
    never = site.submit(COUNTS, *LOW, "--nodelist=c2", *SUSPECT)
    never_folder = site.folder
    healed = site.submit(COUNTS, "--partition=low", "--exclusive", "--nodelist=c3", *SUSPECT)
    healed_folder = site.folder
    objects = {key: site.running(key) for key in (lost, never, healed)}
    # Slurm alone, on the same node.
    alone = cluster.submit(
        "ben", FOREVER, ["--partition=low", "--ntasks=1", "--requeue", "--nodelist=c1"], cwd="/tmp"
    )
    cluster.wait_job(alone, ["RUNNING"])
    time.sleep(max(0.0, boot_time(cluster) + PINGS_S - time.time()))
    cut = time.time()
    for node in ("c3", "c1"):
        cluster.fault("cut", node)
    # Nowhere is a whole node free: this replacement waits, and the node that answers again keeps its run.
    site.wait(healed, "suspected", patience_s=PATIENCE_S)
    waiting = site.wait(healed, "submitted", 2)["slurm_job_id"]
    pending = cluster.job(waiting)
    assert pending is not None
    assert pending.state == "PENDING"
    cluster.fault("heal", "c3")
    # The other one has a place, and its old object goes once it runs.
    site.wait(lost, "suspected", patience_s=PATIENCE_S)
    second = site.running(lost, 2)
    still = cluster.job(alone)
    assert still is not None
    assert (still.state, still.restarts) == ("RUNNING", 0)  # Slurm has not noticed yet
    replaced = cluster.job(second)
    assert replaced is not None
    assert replaced.nodes == ("c2",)
    print(f"RUNNING {replaced.start_time - cut:.0f} s after the cut, and SlurmdTimeout is {SLURMD_TIMEOUT_S} s")
    cluster.wait_until(
        lambda: (found := cluster.job(objects[lost])) is None or found.state in GONE,
        LONG_S, "the suspected object to be cancelled", every_s=1.0,
    )  # fmt: skip
    site.wait(healed, "cleared", patience_s=PATIENCE_S)
    cluster.wait_job(waiting, ["CANCELLED"], LONG_S)
    for key, folder in ((never, never_folder), (healed, healed_folder)):
        job = cluster.job(objects[key])
        assert job is not None
        assert (job.state, job.restarts) == ("RUNNING", 0)
        before = counted(site, folder)
        cluster.wait_until(lambda f=folder, b=before: counted(site, f) > b, LONG_S, "it to go on")  # type: ignore[misc]
    assert "suspected" not in site.kinds(never)
    found = json.loads(cluster.run("login", ["dispatch", "nodes", "--json"], user="ada").stdout)
    assert "c1" in {row["node"] for row in found["nodes"] if row["evidence"]}
    cluster.fault("heal", "c1")
    for key in (lost, never, healed):
        cluster.run("login", ["dispatch", "cancel", key], user="ada", timeout_s=LONG_S)
