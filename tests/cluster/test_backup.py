"""The controller moves to a backup while jobs run: its host dies, with a tick on it whose sbatch is under way.

For these tests slurmctld is on the login host and its backup on ctl, where accounting is, since a backup that cannot
ask accounting for the cluster's number does not take over. Both have the state files and the notes.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from docker.rig import STATE, Cluster
from tests.cluster.jobs import LONG_S, UNTIL_TOLD, Jobs
from tests.cluster.site import Managed, nodes_take_jobs

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE_S = 300.0
"""Each command of Slurm's first waits for the dead host, for two seconds and more."""
SPOOL = "/scratch/slurmctld"
OWN_SPOOL = "/var/spool/slurmctld"
BOTH = f"""s|^SlurmctldHost=.*|SlurmctldHost=login\\nSlurmctldHost=ctl\\nSlurmctldTimeout=10|
s|^StateSaveLocation=.*|StateSaveLocation={SPOOL}|
"""
"""Lines of sed on docker/slurm.conf, see docker/install."""
STOP = """pkill -CONT -x slurmctld
while pgrep -x 'slurmctld|slurmscriptd' >/dev/null; do pkill -x slurmctld; sleep 0.2; done
"""
FLAG = "/scratch/ada/sbatch"
HANGING = f"""#!/bin/sh
touch {FLAG}.began
until test -e {FLAG}.go; do sleep 0.1; done
exec /usr/bin/sbatch "$@"
"""
SITE = f"""state = "{STATE}"
slurm_bin = "/opt/hanging"
submit_timeout_s = 20
message_timeout_s = 1
"""
LOOP = "setsid dispatch tick --loop >>/var/log/slurm-dispatch/login.log 2>&1 </dev/null &"
ONE = ("--ntasks=1", "--partition=low")
RULES = ("failed:resubmit,budget=9",)


@pytest.fixture
def backed(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster with a backup; nothing ticks."""
    cluster.service_off()
    try:
        shared = f"rm -rf {SPOOL} {FLAG}.*; cp -a {OWN_SPOOL} {SPOOL} && cat >/cluster/slurm.sed"
        cluster.sh("ctl", STOP + shared, input=BOTH, timeout_s=LONG_S)
        renew(cluster)
        cluster.sh("login", "slurmctld; mkdir -p /var/log/slurm-dispatch")
        cluster.wait_until(lambda: "primary) at login is UP" in ping(cluster), PATIENCE_S, "slurmctld on login")
        cluster.sh("ctl", "slurmctld")
        cluster.wait_until(lambda: "backup) at ctl is UP" in ping(cluster), PATIENCE_S, "its backup on ctl")
        cluster.wait_until(cluster.nodes_idle, PATIENCE_S, "all nodes to be idle")
        yield cluster
    finally:
        cluster.fault("heal-login")
        cluster.sh("login", f"pkill -KILL -f '[d]ispatch tick'; {STOP}:", timeout_s=LONG_S)
        # The numbers of jobs must not begin again below those that accounting has.
        back = f"{STOP}rm /cluster/slurm.sed; chmod 755 {SPOOL}; cp -a {SPOOL}/. {OWN_SPOOL}/; rm -rf {SPOOL}"
        cluster.sh("ctl", back, timeout_s=LONG_S)
        renew(cluster)
        cluster.run("ctl", ["sh", "/src/docker/controller", "start"], timeout_s=LONG_S)
        cluster.service_on()


def renew(cluster: Cluster) -> None:
    """Slurm's settings anew on every host, and slurmd with them on the nodes."""

    def one(host: str) -> None:
        again = "" if host not in cluster.nodes else "; sh /src/docker/node restart"
        cluster.sh(host, f"sh /src/docker/install settings{again}", timeout_s=LONG_S)

    with ThreadPoolExecutor(len(cluster.hosts)) as pool:
        list(pool.map(one, cluster.hosts))


def ping(cluster: Cluster) -> str:
    return cluster.run("ctl", ["scontrol", "ping"], check=False).stdout


def fail(cluster: Cluster, folder: str) -> None:
    """End the execution of an UNTIL_TOLD job."""
    cluster.sh("ctl", f"touch {folder}/fail && chown ada {folder}/fail")


def begin(cluster: Cluster, jobs: Jobs) -> tuple[str, str, str, Managed]:
    """A job that runs on, its folder, one whose second submission hangs on login, and a shared one, which waits."""
    kept = jobs.submit(UNTIL_TOLD, *ONE, rules=RULES)
    folder = jobs.folder
    hung = jobs.submit(UNTIL_TOLD, *ONE, rules=RULES)
    shared = Managed(cluster, shared=True)
    shared.submit("exec sleep 3600\n", ["--requeue", "--hold"])
    cluster.write("/opt/hanging/sbatch", HANGING, mode="755")
    cluster.write("/etc/slurm-dispatch/hanging.toml", SITE)
    cluster.sh("login", LOOP, env={"DISPATCH_CONFIG": "/etc/slurm-dispatch/hanging.toml"})
    for key in (kept, hung):
        jobs.running(key)
    fail(cluster, jobs.folder)
    called = ["test", "-e", f"{FLAG}.began"]
    cluster.wait_until(lambda: not cluster.run("ctl", called, check=False).status, PATIENCE_S, "login to call sbatch")
    return kept, folder, hung, shared


def lose_login(cluster: Cluster, shared: Managed) -> int:
    """The shared job starts, which no state file says; login dies while its sbatch waits. The job's start time."""
    marker = cluster.save_state(SPOOL)
    cluster.run("ctl", ["scancel", "--name", marker])
    folders = f"for i in 0 1 2 3 4 5 6 7 8 9; do install -d -o slurm -g slurm {SPOOL}/hash.$i; done"
    cluster.sh("ctl", f"{folders}; chmod 555 {SPOOL}")
    cluster.run("ctl", ["scontrol", "release", str(shared.id)])
    first = cluster.wait_job(shared.id, {"RUNNING"}).start_time
    cluster.wait_until(lambda: shared.notes("start"), PATIENCE_S, "the start note")
    # Frozen, so that what sbatch sends gets no answer. (On a machine so slow that login's tick has ended it by now,
    # at its deadline, the next one is under way, or none.)
    seen = "for i in $(seq 50); do ss -Htnp | grep '\"sbatch\"' && break; sleep 0.1; done"
    cluster.sh("login", f"kill -STOP $(pidof slurmctld); touch {FLAG}.go; {seen}", timeout_s=PATIENCE_S)
    cluster.fault("kill-login")
    cluster.sh("ctl", f"chmod 755 {SPOOL}")
    return first


def test_the_host_of_slurmctld_and_of_a_tick_dies(backed: Cluster) -> None:
    """Jobs run on, the gate on the backup knows what the dead host let start, and another host's tick goes on."""
    jobs = Jobs(backed)
    kept, folder, hung, shared = begin(backed, jobs)
    runs = int(jobs.facts(kept)[-1]["slurm_job_id"])
    first = lose_login(backed, shared)
    backed.service_on()
    backed.wait_until(lambda: backed.run("ctl", ["squeue"], check=False).status == 0, PATIENCE_S, "the backup")

    # The backup knows the shared job as one that waits. Its gate has the dead host's note.
    backed.run("ctl", ["scontrol", "release", str(shared.id)])
    (refused,) = backed.wait_until(lambda: shared.notes("refused"), PATIENCE_S, "the double start to be refused")
    assert (refused["why"], refused["restart"]) == ("double_start", 0)
    if backed.tells_starts:
        assert refused["start_time"] > first

    def again() -> bool:
        shared.runs_again()
        return len(shared.notes("refused")) > 1

    backed.wait_until(again, PATIENCE_S, "the next start to be refused", every_s=1.0)
    backed.run("ctl", ["scancel", str(shared.id)])
    backed.run("ctl", ["scancel", "-u", "root"])  # what save_state left; the state files knew nothing of its end
    assert shared.notes("refused")[1]["why"] == "shared"
    assert [note["start_time"] for note in shared.notes("start")] == [shared.told(first)]

    # What login's tick had sent is lost. Here it is watched for as long as it could arrive, and submitted anew.
    jobs.wait(hung, "burnt", patience_s=PATIENCE_S)
    anew = jobs.wait(hung, "submitted", 2, PATIENCE_S)
    assert anew["by"] == "tick@ctl"
    backed.wait_job(anew["slurm_job_id"], ["RUNNING"], PATIENCE_S)

    # What ran goes on, under its id, until it ends.
    job = backed.job(runs)
    assert job is not None
    assert (job.state, job.restarts) == ("RUNNING", 0)
    fail(backed, folder)
    second = jobs.wait(kept, "submitted", 2, PATIENCE_S)
    assert second["by"] == "tick@ctl"
    backed.wait_job(second["slurm_job_id"], ["RUNNING"], PATIENCE_S)

    # login comes back, and both hosts tick.
    backed.fault("heal-login")
    backed.sh("login", LOOP)
    fail(backed, folder)
    jobs.running(kept, 3)
    both_tick(backed)
    assert [fact["outcome"] for fact in jobs.facts(kept) if fact["kind"] == "end"] == ["failed", "failed"]
    jobs.settled(kept, 3)
    kinds = jobs.kinds(hung)
    assert kinds.count("intent") == anew["submission"] == kinds.count("burnt") + 2
    assert len(jobs.objects(hung)) == 2
    nodes_take_jobs(backed)


def both_tick(cluster: Cluster) -> None:
    """Passes by hand on both hosts at once, beside their loops."""
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda host: cluster.run(host, ["dispatch", "tick"], timeout_s=LONG_S), ("ctl", "login")))
