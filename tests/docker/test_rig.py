"""The rig: commands, files, users, jobs, and a clean cluster afterwards."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from docker.rig import HOSTS, NODES, PATIENCE_S, STATE, ClusterError
from tests.docker.writer import Writer

if TYPE_CHECKING:
    from docker.rig import Cluster


def test_a_command_runs_as_the_user_with_the_users_groups_home_and_environment(cluster: Cluster) -> None:
    done = cluster.run("login", ["sh", "-c", 'id -un; id -Gn; pwd; echo "$HOME $USER $WORD"'], user="ada",
                       env={"WORD": "a b"})
    assert done.stdout.split("\n") == ["ada", "ada lab", "/home/ada", "/home/ada ada a b", ""]
    assert cluster.run("c2", ["pwd"], user="ben", cwd="/tmp").stdout == "/tmp\n"


def test_streams_and_status_come_back_whole(cluster: Cluster) -> None:
    text = "0123456789abcde\n" * 100_000
    done = cluster.run("c1", ["sh", "-c", "cat; echo trouble >&2; exit 3"], input=text, check=False)
    assert (done.status, done.stdout == text, done.stderr) == (3, True, "trouble\n")
    assert cluster.run("c1", ["sh", "-c", "kill -9 $$"], check=False).status == -9
    with pytest.raises(ClusterError, match=r"on c1 as root ended with 3: trouble"):
        cluster.run("c1", ["sh", "-c", "echo trouble >&2; exit 3"])
    with pytest.raises(ClusterError, match="could not be started: FileNotFoundError"):
        cluster.run("c1", ["/no/such/program"])


def test_a_deadline_ends_the_command_with_all_its_processes(cluster: Cluster) -> None:
    with pytest.raises(ClusterError, match="did not end in 1 s; stdout: 'begun"):
        cluster.run("c1", ["sh", "-c", "echo begun; sleep 7654 & sleep 7654"], timeout_s=1)

    def gone() -> bool:
        return cluster.run("c1", ["pgrep", "-f", "sleep 7654"], check=False).stdout == ""

    # Both are killed at once; their end takes as long as the machine is busy.
    cluster.wait_until(gone, PATIENCE_S, "both processes to be gone")


def test_a_daemon_that_a_command_leaves_behind_keeps_nobody_waiting(cluster: Cluster) -> None:
    done = cluster.run("c1", ["sh", "-c", "setsid sleep 3000 & echo $!"], timeout_s=600)
    cluster.run("c1", ["kill", done.stdout.strip()])


def test_a_wait_in_vain_shows_the_cluster(cluster: Cluster) -> None:
    with pytest.raises(ClusterError, match=r"waited 0\.2 s for rain in vain") as caught:
        cluster.wait_until(lambda: False, 0.2, "rain")
    for part in ("--- queue\n", "--- nodes\n", "c3 idle", "--- slurmctld\n"):
        assert part in str(caught.value)


def test_hosts_share_homes_checkpoints_and_state_and_have_the_same_users(cluster: Cluster) -> None:
    for folder in ("/home/ada", "/scratch/ada"):
        cluster.sh("c1", f"echo here >{folder}/shared-1 && ln -f {folder}/shared-1 {folder}/shared-2", user="ada")
        for host in HOSTS:
            assert cluster.read(f"{folder}/shared-2", host) == "here\n"
    for host in HOSTS:
        assert cluster.sh(host, "id -u ada; id -u ben; hostname") == f"2001\n2002\n{host}\n"
        assert cluster.sh(host, f"stat -c '%a %U %n' {STATE}/*") == (
            f"1777 slurm {STATE}/jobs\n700 slurm {STATE}/notes\n755 root {STATE}/tick\n"
        )


def test_the_package_is_the_one_of_this_tree_on_every_host(cluster: Cluster) -> None:
    script = "import slurm_dispatch, os; print(os.path.dirname(slurm_dispatch.__file__))"
    for host in HOSTS:
        folder = cluster.run(host, ["python3", "-I", "-c", script]).stdout.strip()
        assert cluster.sh(host, f"diff -r -x __pycache__ {folder} /src/slurm_dispatch") == ""


def test_daemons_keep_their_names_when_slurm_executes_them_anew(cluster: Cluster) -> None:
    """Everything here that kills or looks for one does so by its name."""
    names = {"ctl": "slurmctld", **dict.fromkeys(NODES, "slurmd")}

    def found() -> list[list[str]]:
        """The processes that bear the name, for each host."""
        asked = ((host, ["pgrep", "-x", name]) for host, name in names.items())
        return [cluster.run(host, words, check=False).stdout.split() for host, words in asked]

    before = found()
    cluster.run("ctl", ["scontrol", "reconfigure"])

    def renewed() -> bool:
        # The old one of a host hands over to the new one, and ends.
        return all(len(new) == 1 and new != old for old, new in zip(before, found(), strict=True))

    cluster.wait_until(renewed, PATIENCE_S, "one new daemon on each host, by its name")
    cluster.wait_until(cluster.nodes_idle, PATIENCE_S, "all nodes to be idle")


@pytest.mark.parametrize("user", ["ada", "ben"])
def test_both_users_submit_and_accounting_knows_their_jobs(cluster: Cluster, user: str) -> None:
    script = f"#!/bin/sh\nsrun -n 2 -N 2 id -un >/scratch/{user}/who\n"
    job = cluster.submit(user, script, ["-N", "2", "-o", "/dev/null", "--comment", "word"])
    done = cluster.wait_job(job, {"COMPLETED"})
    assert (done.user, done.comment, done.exit_status, done.restarts) == (user, "word", 0, 0)
    assert cluster.read(f"/scratch/{user}/who") == f"{user}\n" * 2
    asked = ["sacct", "-X", "-n", "-P", "-j", str(job), "-o", "user,state,comment"]
    cluster.wait_until(lambda: cluster.run("login", asked, user=user).stdout == f"{user}|COMPLETED|word\n", 120,
                       f"job {job} in accounting")


def test_an_unknown_job_is_none(cluster: Cluster) -> None:
    assert cluster.job(999_999) is None


def test_ticks_can_be_switched_off_and_on(cluster: Cluster) -> None:
    asked = ["pgrep", "-f", "^sh /src/docker/service|^cron|dispatch tick"]
    cluster.service_off()
    assert cluster.run("ctl", asked, check=False).stdout == ""
    cluster.service_on()
    cluster.service_on()
    # Below process 1, since both fork: what a fork runs bears the parent's name until it has one of its own.
    count = "pgrep -P 1 -x cron | wc -l; pgrep -P 1 -f '^sh /src/docker/service' | wc -l"
    assert cluster.sh("ctl", count) == "1\n1\n"


def test_reset_leaves_no_job_process_fault_note_or_record(cluster: Cluster) -> None:
    writer = Writer(cluster, ["-w", "c2"])
    detach = "setsid setsid sh -c 'while :; do date >>/scratch/ada/left; sleep 0.2; done' >/dev/null 2>&1 &"
    cluster.sh("c3", detach, user="ada")
    waiting = cluster.submit("ben", "#!/bin/sh\n", ["--hold"])
    cluster.sh("ctl", f"mkdir -p {STATE}/jobs/x1/facts; touch {STATE}/notes/start.x {STATE}/notes/.tmp")
    cluster.sh("c1", "mkdir -p /run/slurm-dispatch; touch /run/slurm-dispatch/1.2")
    cluster.run("ctl", ["scontrol", "update", "node=c1", "state=drain", "reason=test"])
    cluster.fault("stop-slurmd", "c2")

    cluster.reset()

    assert cluster.node_states() == dict.fromkeys(NODES, "idle")
    assert cluster.run("ctl", ["squeue", "-h", "-a"]).stdout == ""
    for job in (writer.id, waiting):
        found = cluster.job(job)
        assert found is None or found.state not in ("RUNNING", "PENDING")
    assert cluster.run("c3", ["pgrep", "-u", "ada,ben"], check=False).stdout == ""
    assert cluster.sh("ctl", f"ls -A {STATE}/jobs {STATE}/notes") == f"{STATE}/jobs:\n\n{STATE}/notes:\n"
    assert cluster.run("c1", ["ls", "/run/slurm-dispatch"], check=False).stdout == ""
    after = Writer(cluster, ["-w", "c2"])
    assert after.node == "c2"


def test_up_is_harmless_where_it_is_up(cluster: Cluster) -> None:
    """Jobs, hosts and addresses stay."""
    writer = Writer(cluster)
    asked = "cat /proc/1/stat | cut -d' ' -f22; hostname -I"
    before = [cluster.sh(host, asked) for host in HOSTS]
    cluster.up()
    assert [cluster.sh(host, asked) for host in HOSTS] == before
    assert cluster.wait_job(writer.id, {"RUNNING"}).restarts == 0
    writer.wait_lines(1)


def test_every_wait_has_its_deadline(cluster: Cluster) -> None:
    began = time.monotonic()
    with pytest.raises(ClusterError, match=r"waited 0\.5 s for job 999999 to be RUNNING in vain"):
        cluster.wait_job(999_999, {"RUNNING"}, 0.5)
    assert time.monotonic() - began >= 0.5
