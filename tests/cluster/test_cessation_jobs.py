"""Jobs with a shared checkpoint on the real cluster, from their first execution's end to what lets them go on.

The service ticks; nobody releases anything by hand, but on Slurm 22.05, where what an Epilog says proves nothing
(docs/cessation.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.cluster.ghosts import COMMANDS, WRITER, Power
from tests.cluster.jobs import LONG_S, UNTIL_TOLD, Jobs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from docker.rig import Cluster

SETTINGS = """state = "/srv/slurm-dispatch"
cessation_interval_s = 5
"""
SHARED = ("--shared-checkpoint", "--partition=low", "--nodes=1")
NODE_FAIL_S = 300.0
LEAVES_ONE = WRITER.replace("$1", "beat").replace('"$2" = bare', "a = b") + UNTIL_TOLD.removeprefix("#!/bin/sh\n")
"""The same as a job that fails when it is told to, with a process that leaves it and writes ``beat``."""


@pytest.fixture
def jobs(cluster: Cluster) -> Iterator[Jobs]:
    """Jobs on a site whose answers come quickly; whole and idle again after each test."""
    settings(cluster)
    yield Jobs(cluster)
    cluster.reset()
    for host in ("ctl", "login"):
        cluster.run(host, ["cp", "/src/docker/dispatch.toml", "/etc/slurm-dispatch/dispatch.toml"])
    cluster.run("ctl", ["sh", "/src/docker/ticks", "again"])


def settings(cluster: Cluster, *command: str) -> None:
    """The site's settings, with its own cessation command if one is given."""
    words = ", ".join(f'"{word}"' for word in command)
    text = SETTINGS + (f"cessation = [{words}]\n" if command else "")
    for host in ("ctl", "login"):
        cluster.write("/etc/slurm-dispatch/dispatch.toml", text, host=host)
    cluster.run("ctl", ["sh", "/src/docker/ticks", "again"])


def fail(jobs: Jobs) -> None:
    """The job's command ends with 3."""
    jobs.cluster.write(f"{jobs.folder}/fail", "", user="ada")


def goes_on(jobs: Jobs, key: str) -> None:
    """The hold is lifted by cessation, and the job runs again, once."""
    release = jobs.wait(key, "release")
    assert release["how"] == "ceased"
    jobs.running(key, 2)
    kinds = jobs.kinds(key)
    answers = [fact["answer"] for fact in jobs.facts(key) if fact["kind"] == "cessation"]
    assert answers[-1] == "ceased"
    assert kinds.index("cessation") < kinds.index("release")
    assert (kinds.count("intent"), kinds.count("started")) == (2, 2), kinds


def stays_held(jobs: Jobs, key: str, answer: str) -> None:
    """It is asked about, answered so, and two more ticks change nothing."""
    told = jobs.wait(key, "cessation")
    assert told["answer"] == answer
    for _ in range(2):
        jobs.cluster.run("ctl", ["dispatch", "tick"], timeout_s=LONG_S)
    kinds = jobs.kinds(key)
    assert (kinds.count("intent"), kinds.count("release")) == (1, 0), kinds


def goes_on_after_epilog(jobs: Jobs, key: str) -> None:
    """The word of its node's Epilog lets it go on; on Slurm 22.05 that is unknown, and a person does."""
    if jobs.cluster.tells_starts:
        goes_on(jobs, key)
        return
    jobs.wait(key, "node")
    stays_held(jobs, key, "unknown")
    said = jobs.cluster.run("login", ["dispatch", "release", key, "--reason", "gone"], user="ada", timeout_s=LONG_S)
    assert "submission 2 is Slurm job" in said.stdout
    assert jobs.wait(key, "release")["how"] == "person"
    jobs.running(key, 2)


def node_of(jobs: Jobs, key: str) -> str:
    """The node of its first execution."""
    return str(jobs.wait(key, "started")["nodes"])


def test_it_goes_on_once_its_node_says_that_it_is_clean(jobs: Jobs) -> None:
    key = jobs.submit(UNTIL_TOLD, *SHARED, rules=("failed:resubmit",))
    jobs.running(key)
    fail(jobs)
    decision = jobs.wait(key, "decision")
    assert (decision["action"], decision["why"]) == ("hold", "shared")
    goes_on_after_epilog(jobs, key)
    last = jobs.last(key, "cessation")
    assert last is not None
    assert last["source"] == "slurm-nodes"
    assert (last["detail"] == "proved for its node") is jobs.cluster.tells_starts


def test_a_process_that_survives_keeps_it_held_until_the_site_s_command_finds_it_gone(jobs: Jobs) -> None:
    settings(jobs.cluster, *COMMANDS["ssh-nodes"])
    key = jobs.submit(LEAVES_ONE, *SHARED, rules=("failed:resubmit",))
    jobs.running(key)
    beat = f"{jobs.folder}/beat"
    jobs.cluster.wait_until(
        lambda: jobs.cluster.run("login", ["test", "-s", beat], check=False).status == 0, LONG_S, "it to write"
    )
    fail(jobs)
    jobs.wait(key, "decision")
    jobs.wait(key, "node")
    stays_held(jobs, key, "running")
    jobs.cluster.run(node_of(jobs, key), ["pkill", "-KILL", "-u", "ada"], check=False)
    goes_on(jobs, key)
    counts = [fact["count"] for fact in jobs.facts(key) if fact["kind"] == "cessation"]
    assert len(counts) <= 4, "equal answers in a row are one fact"


def held_until_healed(
    jobs: Jobs, key: str, fault: str, on: Callable[[Jobs, str], None] = goes_on
) -> tuple[str, dict[str, Any]]:
    """Its node suffers the fault: the job is held while nothing is known, and goes on once the node is back.

    :returns: the node, and the last that it said of the execution.
    """
    jobs.running(key)
    node = node_of(jobs, key)
    jobs.cluster.fault(fault, node)
    jobs.cluster.wait_until(lambda: jobs.last(key, "decision"), NODE_FAIL_S, "Slurm to give up the node")
    stays_held(jobs, key, "unknown")
    jobs.cluster.fault("heal", node)
    on(jobs, key)
    last = jobs.last(key, "node")
    assert last is not None
    return node, last


def test_a_node_that_lost_its_power_and_booted_lets_it_go_on(jobs: Jobs) -> None:
    key = jobs.submit(UNTIL_TOLD, *SHARED, rules=("node_fail:resubmit",))
    node, last = held_until_healed(jobs, key, "kill-node")
    assert (last["how"], last["node"]) == ("boot", node)


def test_a_node_that_is_cut_off_keeps_it_held_until_it_is_back_and_clean(jobs: Jobs) -> None:
    """C172: the processes live on behind the cut; Slurm ends them once the node is back, and its Epilog says so."""
    key = jobs.submit(UNTIL_TOLD, *SHARED, rules=("node_fail:resubmit",))
    node, last = held_until_healed(jobs, key, "cut", goes_on_after_epilog)
    by_start = jobs.cluster.tells_starts
    assert (last["how"], last["clean"], last["verified"], last["node"]) == ("scan", True, by_start, node)


def test_a_power_controller_that_says_off_lets_it_go_on(jobs: Jobs) -> None:
    power = Power(jobs.cluster)
    try:
        settings(jobs.cluster, *COMMANDS["fence-power"])
        key = jobs.submit(UNTIL_TOLD, *SHARED, rules=("node_fail:resubmit",))
        jobs.running(key)
        jobs.cluster.fault("kill-node", node_of(jobs, key))
        goes_on(jobs, key)
    finally:
        power.close()
