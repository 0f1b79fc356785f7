"""The controller on the real cluster: each end is resubmitted exactly once, and what is final stays final."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from docker.rig import STATE, ClusterError
from tests.cluster.jobs import FOREVER, LONG_S, UNTIL_TOLD, Jobs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from docker.rig import Cluster

ONE_NODE = ("--nodes=1", "--exclusive", "--partition=low")
HELPED = """#!/bin/sh
exec dispatch-watch --done whole --interval 1 -- sh -c 'until test -e fail; do sleep 0.2; done; rm fail; exit 3'
"""
HELD = "/run/held-epilog"


@pytest.fixture(scope="module")
def jobs(cluster: Cluster) -> Jobs:
    return Jobs(cluster)


@pytest.fixture(autouse=True)
def clean(cluster: Cluster) -> Any:
    """Each test leaves no job behind: a node each is all that there is."""
    yield
    cluster.service_on()
    cluster.run("ctl", ["sh", "-c", "dispatch status >/dev/null; scancel -u ada; scancel -u ben"], check=False)


def test_the_stand_in_of_the_unit_tests_is_like_this_slurm(cluster: Cluster) -> None:
    argv = ["python3", "-B", "-m", "tests.controller.conformance"]
    done = cluster.run("login", argv, user="ada", cwd="/src", timeout_s=LONG_S)
    assert done.stdout == "conforms\n"


def test_a_preempted_job_is_resubmitted_once(cluster: Cluster, jobs: Jobs) -> None:
    key = jobs.submit(FOREVER, *ONE_NODE)
    first = jobs.running(key)
    job = cluster.job(first)
    assert job is not None
    high = cluster.submit(
        "ben", FOREVER, ["--partition=high", "--exclusive", f"--nodelist={job.nodes[0]}"], cwd="/tmp"
    )
    second = jobs.running(key, 2)
    end = jobs.last(key, "end")
    assert end is not None
    assert (end["outcome"], end["slurm_job_id"], end["final"]) == ("preempted", first, True)
    assert second != first
    cluster.run("ctl", ["scancel", str(high)])
    jobs.settled(key, 2)
    started = [fact for fact in jobs.facts(key) if fact["kind"] == "started"]
    assert int(started[0]["epoch"]) < int(started[1]["epoch"])
    cluster.run("login", ["dispatch", "cancel", key], user="ada", timeout_s=LONG_S)


def test_an_operators_cancel_is_what_the_rule_says_and_the_owners_is_final(cluster: Cluster, jobs: Jobs) -> None:
    key = jobs.submit(FOREVER, *ONE_NODE, rules=("cancelled:resubmit,budget=3",))
    cluster.run("ctl", ["scancel", str(jobs.running(key))])
    second = jobs.running(key, 2)
    cluster.run("login", ["scancel", str(second)], user="ada")
    closed = jobs.wait(key, "closed")
    assert closed["why"] == "cancelled"
    jobs.settled(key, 2)


def test_a_node_that_is_set_down_is_left_behind(cluster: Cluster, jobs: Jobs) -> None:
    key = jobs.submit(FOREVER, *ONE_NODE)
    job = cluster.job(jobs.running(key))
    assert job is not None
    cluster.run("ctl", ["scontrol", "update", f"node={job.nodes[0]}", "state=down", "reason=test"])
    try:
        jobs.running(key, 2)
        end = jobs.last(key, "end")
        assert end is not None
        assert end["outcome"] == "node_fail"
        jobs.settled(key, 2)
    finally:
        # Not needed where the node has registered again by itself.
        cluster.run("ctl", ["scontrol", "update", f"node={job.nodes[0]}", "state=resume"], check=False)
    cluster.run("login", ["dispatch", "cancel", key], user="ada", timeout_s=LONG_S)


def test_a_command_that_saved_and_wants_to_go_on_goes_on_until_it_is_done(jobs: Jobs) -> None:
    script = "#!/bin/sh\necho x >>count\ntest $(wc -l <count) -ge 3 || exit 85\n"
    key = jobs.submit(script, "--nodes=1")
    assert jobs.wait(key, "closed")["why"] == "completed"
    outcomes = [fact["outcome"] for fact in jobs.facts(key) if fact["kind"] == "end"]
    assert outcomes == ["unfinished", "unfinished", "completed"]
    jobs.settled(key, 3)


def test_failures_use_up_their_budget(cluster: Cluster, jobs: Jobs) -> None:
    """The next submission has the limits that the rule gives it."""
    rule = "failed:resubmit,budget=1,mem=2x..512G,time=3x..40m"
    key = jobs.submit("#!/bin/sh\nexit 3\n", "--nodes=1", "--mem=100M", "--time=20", rules=(rule,))
    decision = jobs.wait(key, "decision", 2)
    assert (decision["action"], decision["why"]) == ("hold", "budget")
    jobs.wait(key, "held")
    outcomes = [fact["outcome"] for fact in jobs.facts(key) if fact["kind"] == "end"]
    assert outcomes == ["failed", "failed"]
    for number, limits in zip(jobs.objects(key), ("00:20:00 100M", "00:40:00 200M"), strict=True):
        shown = cluster.run("ctl", ["scontrol", "show", "job", str(number)]).stdout
        found = [re.search(rf"{name}=(\S+)", shown) for name in ("TimeLimit", "MinMemoryNode")]
        assert " ".join(it[1] for it in found if it) == limits, shown
        assert "Requeue=0 " in shown, "Slurm itself starts none of them again, though JobRequeue=1 is its default"
    jobs.settled(key, 2)


def test_a_requeue_by_the_user_is_slurms_own_and_the_rules_wait(cluster: Cluster, jobs: Jobs) -> None:
    key = jobs.submit(FOREVER, *ONE_NODE, "--requeue")
    first = jobs.running(key)
    cluster.run("login", ["scontrol", "requeue", str(first)], user="ada")
    end = jobs.wait(key, "end")
    assert (end["final"], end["restart"]) == (False, 0)
    jobs.settled(key, 1)
    cluster.run("login", ["dispatch", "cancel", key], user="ada", timeout_s=LONG_S)
    assert jobs.last(key, "closed") is not None


def test_many_ticks_at_once_on_two_hosts_submit_once(cluster: Cluster, jobs: Jobs) -> None:
    """The service, cron, and by hand on two hosts: they meet at one fact."""
    keys = [jobs.submit(FOREVER, "--nodes=1", rules=("cancelled:resubmit,budget=3",)) for _ in range(3)]
    cluster.service_off()
    ids = [jobs.wait(key, "submitted")["slurm_job_id"] for key in keys]
    for number in ids:
        cluster.wait_job(number, ["RUNNING"])
    cluster.run("ctl", ["scancel", *map(str, ids)])
    for number in ids:
        cluster.wait_job(number, ["CANCELLED"])
    four = "for n in 1 2 3 4; do dispatch tick & done; wait"
    cluster.service_on()
    for host in ("ctl", "login", "ctl"):
        cluster.sh(host, four, timeout_s=LONG_S)
    for key in keys:
        jobs.running(key, 2)
        jobs.settled(key, 2)
        assert jobs.kinds(key).count("decision") == 1
        cluster.run("login", ["dispatch", "cancel", key], user="ada", timeout_s=LONG_S)


def test_slurmctld_away_for_three_ticks_changes_nothing(cluster: Cluster, jobs: Jobs) -> None:
    """C174, C077: two executions end meanwhile; a node's note comes of one, the helper's word of the other.

    (A cancel would not do: a crash makes accounting forget who it was.)
    """
    rules = ("failed:resubmit,budget=3",)
    early = jobs.submit(UNTIL_TOLD, *ONE_NODE, rules=rules)
    early_folder = jobs.folder
    late = jobs.submit(HELPED, *ONE_NODE, rules=rules)
    late_folder = jobs.folder
    objects = {key: jobs.running(key) for key in (early, late)}
    cluster.service_off()
    job = cluster.job(objects[early])
    assert job is not None
    with held_epilog(cluster, job.nodes[0]) as let_go:
        cluster.write(f"{early_folder}/fail", "", user="ada")
        cluster.wait_job(objects[early], ["FAILED", "COMPLETING"])  # in the text of 22.05 the flag hides the state
        began = partial(cluster.run, job.nodes[0], ["test", "-e", f"{HELD}.began"], check=False)
        cluster.wait_until(lambda: began().status == 0, LONG_S, "the node's Epilog to begin")
        # Told to end, it saves what it knows.
        cluster.sh("ctl", "pkill -x slurmctld; while pgrep -x 'slurmctld|slurmscriptd'; do sleep 0.1; done")
        try:
            before = {key: jobs.kinds(key) for key in objects}
            let_go()
            cluster.write(f"{late_folder}/fail", "", user="ada")
            jobs.wait(late, "ended")
            note = f"ls {STATE}/notes | grep '^node\\.{early}\\.' || :"
            cluster.wait_until(lambda: cluster.sh("ctl", note), LONG_S, "the node's note")
            with ThreadPoolExecutor() as at_once:
                three = at_once.submit(lambda: [tick(cluster) for _ in range(3)])
                words = (["status"], ["why", late])
                said = list(at_once.map(lambda asked: people(cluster, asked), words))
            assert all("Slurm does not tell its queue" in line for line in three.result())
            for text in said:
                assert text.count("Slurm does not answer, the record is all that is shown: ") == 1, text
            came = {key: jobs.kinds(key)[len(kinds) :] for key, kinds in before.items()}
            assert came == {early: ["node"], late: ["ended"]}
        finally:
            cluster.run("ctl", ["sh", "/src/docker/controller", "start"], timeout_s=LONG_S)
    tick(cluster)
    cluster.service_on()
    for key in objects:
        jobs.running(key, 2)
    for key in objects:
        jobs.settled(key, 2)
        outcomes = [fact["outcome"] for fact in jobs.facts(key) if fact["kind"] == "end"]
        assert outcomes == ["failed"]
        cluster.run("login", ["dispatch", "cancel", key], user="ada", timeout_s=LONG_S)


def tick(cluster: Cluster) -> str:
    """One pass; what it says."""
    return cluster.run("ctl", ["dispatch", "tick"], timeout_s=LONG_S).stderr


def people(cluster: Cluster, words: list[str]) -> str:
    """What ``dispatch`` answers to ada."""
    return cluster.run("login", ["dispatch", *words], user="ada", timeout_s=LONG_S).stdout


@contextmanager
def held_epilog(cluster: Cluster, node: str) -> Iterator[Callable[[], object]]:
    """The node's Epilog begins, and goes on only when it is let go: call what this gives.

    Slurm ends it after PrologEpilogTimeout, which is a minute.
    """
    stub = "/etc/slurm/dispatch/epilog"
    cluster.sh(node, f"cp -a {stub} {stub}.kept")
    held = f"#!/bin/sh\ntouch {HELD}.began\nuntil test -e {HELD}.go; do sleep 0.1; done\nexec {stub}.kept\n"
    cluster.write(stub, held, host=node, mode="755")
    go = ["touch", f"{HELD}.go"]
    try:
        yield lambda: cluster.run(node, go)
    finally:
        cluster.run(node, go)
        cluster.sh(node, f"mv {stub}.kept {stub}; rm -f {HELD}.*")


def test_a_crash_of_slurmctld_loses_nothing(cluster: Cluster, jobs: Jobs) -> None:
    key = jobs.submit(FOREVER, *ONE_NODE, rules=("cancelled:resubmit,budget=3",))
    first = jobs.running(key)
    cluster.crash_controller(saved=True)
    cluster.wait_job(first, ["RUNNING"])
    jobs.settled(key, 1)
    cluster.run("ctl", ["scancel", str(first)])
    jobs.running(key, 2)
    cluster.crash_controller(saved=True)
    jobs.settled(key, 2)
    cluster.run("login", ["dispatch", "cancel", key], user="ada", timeout_s=LONG_S)


def test_a_person_cancels(cluster: Cluster, jobs: Jobs) -> None:
    key = jobs.submit(FOREVER, *ONE_NODE)
    first = jobs.running(key)
    done = cluster.run(
        "login", ["dispatch", "cancel", str(first), "--reason", "wrong data"], user="ada", timeout_s=LONG_S
    )
    assert "is closed: cancelled (wrong data)" in done.stdout
    cluster.wait_job(first, ["CANCELLED"])
    other = cluster.run("login", ["dispatch", "cancel", key], user="ben", check=False)
    assert other.status != 0
    jobs.settled(key, 1)


def test_an_answer_of_sbatch_that_was_lost_is_settled(cluster: Cluster, jobs: Jobs) -> None:
    """C001: sbatch says that the socket timed out, and Slurm has the job. Never two, and never none."""
    stub = '#!/bin/sh\n/usr/bin/sbatch "$@" >/dev/null\n'
    stub += "echo 'sbatch: error: Socket timed out on send/recv operation' >&2\nexit 1\n"
    cluster.write("/opt/lossy/sbatch", stub, host="ctl", mode="755")
    site = f'state = "{STATE}"\nslurm_bin = "/opt/lossy"\nsubmit_timeout_s = 10\nmessage_timeout_s = 1\n'
    cluster.write("/etc/slurm-dispatch/lossy.toml", site, host="ctl")
    tick = {"DISPATCH_CONFIG": "/etc/slurm-dispatch/lossy.toml"}
    key = jobs.submit(FOREVER, *ONE_NODE, rules=("cancelled:resubmit,budget=3",))
    first = jobs.running(key)
    cluster.service_off()
    cluster.run("ctl", ["scancel", str(first)])
    cluster.wait_job(first, ["CANCELLED"])

    def settled() -> bool:
        cluster.run("ctl", ["dispatch", "tick"], env=tick, timeout_s=LONG_S)
        return jobs.kinds(key).count("submitted") == 2

    cluster.wait_until(settled, LONG_S, "the submission to be settled", every_s=1.0)
    fact = jobs.last(key, "submitted")
    assert fact is not None
    assert fact["how"] in {"note", "queue"}
    kinds = jobs.kinds(key)
    assert "watched" in kinds
    assert "burnt" not in kinds
    cluster.service_on()
    jobs.settled(key, 2)
    cluster.run("login", ["dispatch", "cancel", key], user="ada", timeout_s=LONG_S)


def test_nobody_but_root_ticks(cluster: Cluster) -> None:
    done = cluster.run("login", ["dispatch", "tick"], user="ada", check=False)
    assert done.status == 77
    with pytest.raises(ClusterError):
        cluster.run("login", ["cat", f"{STATE}/notes"], user="ada")
