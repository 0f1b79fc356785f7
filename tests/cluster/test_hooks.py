"""Hooks under hostile users and broken folders, on the real cluster: the job runs, the nodes stay up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from docker.rig import STATE
from tests.cluster.site import WAIT_S, Managed, lost_is_gone, nodes_take_jobs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from docker.rig import Cluster

RUN = "/run/slurm-dispatch"
SPOOL = "/var/spool/slurmctld"


@pytest.fixture
def job(cluster: Cluster) -> Iterator[Managed]:
    """A job whose notes no tick takes away."""
    cluster.service_off()
    yield Managed(cluster)
    cluster.run("ctl", ["scancel", "-u", "ada"], check=False)
    cluster.wait_until(cluster.nodes_idle, WAIT_S, "all nodes to be idle")
    cluster.service_on()


@pytest.mark.parametrize(
    "evil",
    ["a\nb", "$(touch /tmp/evil) `touch /tmp/evil`", "%n%s%x", "'\"\\", "x" * 900, "dispatch:evil:0:1:s", "é\x07"],
)
def test_hostile_comments_names_and_environments(job: Managed, evil: str) -> None:
    hostile = {
        "LD_PRELOAD": "/nonexistent.so",
        "BASH_ENV": "/nonexistent",
        "IFS": "=:",
        "PYTHONPATH": "/scratch",
        "PYTHONHOME": "/nonexistent",
        "BASH_FUNC_printf%%": "() { echo evil; }",
        "DISPATCH_ATTEMPT": evil,
        "SLURM_DISPATCH_CHECKPOINT": evil,
        "SLURM_DISPATCH_EXECUTION": evil,
    }
    cluster = job.cluster
    options = [f"--comment={evil} {job.word}", f"--job-name={evil}", "-N2", "-n2"]
    job.submit("unset LD_PRELOAD PYTHONHOME\nsrun {show}\n", options, env=hostile)
    ended = job.ends()
    shown = job.shown()
    assert {task["DISPATCH_ATTEMPT"] for task in shown.values()} == {job.attempt(0, ended.start_time)}
    assert sorted(shown) == ["0.0", "0.1"]
    notes = cluster.wait_until(lambda: len(job.notes("node")) == 2 and job.notes("node"), WAIT_S, "both Epilogs")
    assert {note["clean"] for note in notes} == {True}
    for host in ("ctl", "c1", "c2", "c3"):
        assert cluster.run(host, ["test", "-e", "/tmp/evil"], check=False).status == 1
    nodes_take_jobs(cluster)


BROKEN = {
    "full": f"mkdir -p {RUN} && mount -t tmpfs -o size=4k,mode=755 none {RUN} && head -c 4096 /dev/zero >{RUN}/fill",
    "read-only": f"mkdir -p {RUN} && mount -t tmpfs -o ro,mode=755 none {RUN}",
    "a dangling link": f"rm -rf {RUN} && ln -s /tmp/evil {RUN}",
    "another user's": f"mkdir -p {RUN} && chown ben {RUN}",
    "a file": f"rm -rf {RUN} && touch {RUN}",
}


@pytest.mark.parametrize("how", list(BROKEN))
def test_a_run_folder_that_cannot_be_used(job: Managed, how: str) -> None:
    cluster = job.cluster
    cluster.sh("c1", BROKEN[how])
    try:
        job.submit("{show}\nsrun {show}\n", ["-w", "c1"])
        job.ends()
        assert {name: sorted(task) for name, task in job.shown().items()} == {"batch.0": [], "0.0": []}
        nodes_take_jobs(cluster)
        assert cluster.run("c1", ["test", "-e", "/tmp/evil"], check=False).status == 1
    finally:
        cluster.sh("c1", f"umount {RUN}; rm -rf {RUN}; true")


def test_a_node_without_its_file_beside_one_that_has_it(job: Managed) -> None:
    """The batch script's node has the file; the other's ranks take what srun handed on."""
    cluster = job.cluster
    cluster.sh("c2", BROKEN["full"])
    try:
        job.submit("srun {show}\nsrun --export=NONE {show}\n", ["-w", "c1,c2", "-N2", "-n2"])
        ended = job.ends()
        shown = job.shown()
        assert sorted(shown) == ["0.0", "0.1", "1.0", "1.1"]
        # Under --export=NONE only what begins with SLURM comes along, and that is enough.
        assert {task["DISPATCH_ATTEMPT"] for task in shown.values()} == {job.attempt(0, ended.start_time)}
        nodes_take_jobs(cluster)
    finally:
        cluster.sh("c2", f"umount {RUN}; rm -rf {RUN}; true")


def test_notes_that_cannot_be_written(job: Managed) -> None:
    cluster = job.cluster
    cluster.sh("ctl", f"mv {STATE}/notes {STATE}/away")
    try:
        job.submit("{show}\n")
        job.ends()
        assert job.shown()["batch.0"]["DISPATCH_EPOCH"] == "1000000"
        nodes_take_jobs(cluster)
    finally:
        cluster.sh("ctl", f"mv {STATE}/away {STATE}/notes")
    spooled = cluster.sh("c1", "cat /var/spool/slurm-dispatch/node.*; true") + cluster.sh(
        "c2", "cat /var/spool/slurm-dispatch/node.*; true"
    )
    spooled += cluster.sh("c3", "cat /var/spool/slurm-dispatch/node.*; true")
    assert f'"job": "{job.word.job}"' in spooled


def test_one_restart_count_is_never_started_twice(job: Managed) -> None:
    """slurmctld comes back with state from before the start, as after a crash, and starts the job again."""
    cluster = job.cluster
    job.submit("exec sleep 3600\n", ["--requeue", "--hold"])
    # Told to end, it saves all that it knows, and nobody writes beside the copy.
    stop = "pkill -x slurmctld; while pgrep -x 'slurmctld|slurmscriptd'; do sleep 0.1; done; "
    copy = f"rm -rf {SPOOL}.old && cp -a {SPOOL} {SPOOL}.old && "
    cluster.sh("ctl", stop + copy + "sh /src/docker/controller start", timeout_s=WAIT_S)
    cluster.run("ctl", ["scontrol", "release", str(job.id)])
    first = cluster.wait_job(job.id, {"RUNNING"}).start_time
    cluster.wait_until(lambda: job.notes("start"), WAIT_S, "the start note")
    stop = "pkill -9 -x 'slurmctld|slurmscriptd'; while pgrep -x 'slurmctld|slurmscriptd'; do sleep 0.1; done; "
    put_back = f"rm -rf {SPOOL} && cp -a {SPOOL}.old {SPOOL}; "
    # The second start must fall into another second than the first: that is what tells them apart.
    wait = f"while [ $(date +%s) -le {first + 1} ]; do sleep 0.1; done; "
    cluster.sh("ctl", stop + put_back + wait + "sh /src/docker/controller start", timeout_s=WAIT_S)
    if not cluster.tells_starts:
        _runs_again_as_the_same(job, first)
        return
    cluster.run("ctl", ["scontrol", "release", str(job.id)])
    (refused,) = cluster.wait_until(lambda: job.notes("refused"), WAIT_S, "the second start to be refused")
    assert (refused["why"], refused["restart"]) == ("double_start", 0)
    assert refused["start_time"] > first

    second = cluster.wait_until(
        job.runs_again, WAIT_S, "the job to run under the next restart count", every_s=1.0
    ).start_time
    starts = {note["restart"]: (note["attempt"], note["epoch"]) for note in job.notes("start")}
    assert starts == {0: (job.attempt(0, first), "1000000"), 1: (job.attempt(1, second), "1000001")}
    nodes_take_jobs(cluster)


def _runs_again_as_the_same(job: Managed, first: int) -> None:
    """Slurm 22.05: a second start looks like a hook that runs again for the first, and is let through.

    That of a shared job is refused; see test_shared_gate, and ARCHITECTURE.md, Known limits.
    """
    cluster = job.cluster
    lost_is_gone(cluster)
    cluster.run("ctl", ["scontrol", "release", str(job.id)])

    def again() -> bool:
        found = cluster.job(job.id)
        return found is not None and found.states == ("RUNNING",) and found.start_time > first

    cluster.wait_until(again, WAIT_S, "the job to run under the same restart count")
    (start,) = job.notes("start")
    assert (start["restart"], start["attempt"], start["epoch"]) == (0, job.attempt(0, None), "1000000")
    assert job.notes("refused") == []
    nodes_take_jobs(cluster)
