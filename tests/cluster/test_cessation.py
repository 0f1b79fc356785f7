"""Each ready-made cessation command, asked about executions that are gone, that are not, and that nobody can see.

The notes stay where the hooks leave them: no tick runs. The questions are those that the controller asks.

On Slurm 22.05 no Epilog knows by a start time which execution it ended, so its word proves nothing
(docs/cessation.md): there slurm-nodes says unknown wherever it says ceased or running elsewhere, but for a boot.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.cluster.ghosts import COMMANDS, Ghost, Power
from tests.cluster.site import WAIT_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from docker.rig import Cluster

NODE_FAIL_S = 240.0
UNKNOWN = dict.fromkeys(COMMANDS, "unknown")
CEASED = dict.fromkeys(COMMANDS, "ceased")
ASKED = {**UNKNOWN, "ssh-nodes": "ceased"}
"""Without what the nodes said they can still be asked; that they are on says nothing."""


@pytest.fixture(scope="module", autouse=True)
def power(cluster: Cluster) -> Iterator[Power]:
    """The nodes' power controllers."""
    controllers = Power(cluster)
    yield controllers
    controllers.close()


@pytest.fixture
def ghost(cluster: Cluster) -> Iterator[Ghost]:
    """A shared job whose notes no tick takes away; the cluster is whole and idle again after it."""
    cluster.service_off()
    yield Ghost(cluster)
    cluster.reset()


def host_of(ghost: Ghost) -> str:
    nodes: str = ghost.start()["nodes"]
    assert nodes in ghost.cluster.nodes
    return nodes


def after_epilogs(ghost: Ghost, answer: str, count: int = 1) -> str:
    """Wait for what so many Epilogs say, and for slurm-nodes to answer so; its answer on this Slurm."""
    said = f"the notes of {count} Epilogs"
    ghost.cluster.wait_until(lambda: len(ghost.notes("node")) >= count, WAIT_S, said)
    answer = answer if ghost.cluster.tells_starts else "unknown"
    ghost.wait_answer("slurm-nodes", answer)
    return answer


def test_an_execution_that_ended_and_is_gone(ghost: Ghost) -> None:
    ghost.begin("-N2", "-n2", then="srun true")
    ghost.ends()
    told = after_epilogs(ghost, "ceased", 2)
    assert ghost.answers() == (CEASED if told == "ceased" else ASKED)
    assert ghost.answers(evidence=False) == ASKED


def test_an_execution_that_runs_or_is_suspended_is_not_gone(ghost: Ghost) -> None:
    """C171: it is stopped, writes nothing, and may go on at any time."""
    ghost.begin()
    ghost.cluster.wait_job(ghost.id, {"RUNNING"}, WAIT_S)
    ghost.wait_answer("ssh-nodes", "running")
    assert ghost.answers() == {**UNKNOWN, "ssh-nodes": "running"}
    ghost.cluster.run("ctl", ["scontrol", "suspend", str(ghost.id)])
    ghost.cluster.wait_job(ghost.id, {"SUSPENDED"}, WAIT_S)
    assert ghost.answers() == {**UNKNOWN, "ssh-nodes": "running"}


@pytest.mark.parametrize("writer", ["attempt", "bare"])
def test_a_process_that_survives_its_job(ghost: Ghost, writer: str) -> None:
    """C163: forked twice, in a session of its own; also without the attempt in its environment."""
    ghost.begin(writer=writer, then="sleep 1")
    ended = ghost.ends()
    told = after_epilogs(ghost, "running")
    assert ghost.answers() == {"slurm-nodes": told, "ssh-nodes": "running", "fence-power": "unknown"}
    (node,) = ended.nodes
    argv = ["dispatch", "ps", "--attempt", ghost.start()["attempt"], "--uid", "2001", "--json"]
    shown = ghost.cluster.run(node, argv, check=False)
    processes = json.loads(shown.stdout)["processes"]
    why = {"attempt": "carries the attempt", "bare": "is the owner's, of no other live job"}[writer]
    assert shown.status == 1
    assert {it["why"] for it in processes} == {why}
    ghost.cluster.run(node, ["pkill", "-KILL", "-u", "ada"], check=False)
    ghost.wait_answer("ssh-nodes", "ceased")
    # The node itself has not said anything since.
    assert ghost.answers() == {"slurm-nodes": told, "ssh-nodes": "ceased", "fence-power": "unknown"}


def test_a_node_that_cannot_be_asked(ghost: Ghost) -> None:
    ghost.begin(writer="attempt")
    node = host_of(ghost)
    ghost.cluster.fault("pause", node)
    assert ghost.answers() == UNKNOWN
    ghost.cluster.fault("unpause", node)
    ghost.wait_answer("ssh-nodes", "running")
    ghost.cluster.fault("kill-node", node)
    assert ghost.answers() == {**UNKNOWN, "fence-power": "ceased"}


def test_slurm_s_own_word_about_a_node_proves_nothing(ghost: Ghost) -> None:
    """C134: DOWN, NODE_FAIL, COMPLETING gone, not listed, time passed: with the process alive, and it writes on."""
    ghost.begin(writer="attempt")
    node = host_of(ghost)
    ghost.cluster.fault("stop-slurmd", node)
    ghost.cluster.wait_job(ghost.id, {"NODE_FAIL"}, NODE_FAIL_S)
    assert ghost.cluster.node_states()[node].startswith("down")
    assert ghost.answers() == {**UNKNOWN, "ssh-nodes": "running"}


def test_a_node_that_has_booted_says_so(ghost: Ghost) -> None:
    ghost.begin(writer="attempt")
    node = host_of(ghost)
    ghost.cluster.fault("kill-node", node)
    assert ghost.ask("slurm-nodes") == "unknown"
    ghost.cluster.fault("heal", node)
    ghost.wait_answer("slurm-nodes", "ceased")
    (note,) = [note for note in ghost.notes("node") if note["how"] == "boot"]
    assert (note["node"], note["clean"], note["verified"]) == (node, True, True)
    assert ghost.answers() == CEASED
    assert ghost.answers(evidence=False) == ASKED


def test_a_node_that_is_cut_off_and_back(ghost: Ghost) -> None:
    """C172: nothing is said of it while it is away, and after it is back only what is seen there."""
    ghost.begin(writer="attempt")
    node = host_of(ghost)
    ghost.cluster.fault("cut", node)
    ghost.cluster.wait_job(ghost.id, {"NODE_FAIL"}, NODE_FAIL_S)
    assert ghost.answers() == UNKNOWN
    ghost.cluster.fault("heal", node)
    ghost.wait_answer("ssh-nodes", "running")
    assert ghost.ask("fence-power") == "unknown"
    assert ghost.ask("slurm-nodes") in {"unknown", "running"}
    ghost.cluster.run(node, ["pkill", "-KILL", "-u", "ada"], check=False)
    ghost.wait_answer("ssh-nodes", "ceased")


def test_a_first_execution_cut_off_while_a_second_was_refused_elsewhere(ghost: Ghost) -> None:
    """What the second one's nodes say is no word about the first."""
    cluster = ghost.cluster
    first = ghost.begin("--requeue", writer="attempt")
    node = host_of(ghost)
    cluster.fault("cut", node)
    cluster.wait_job(ghost.id, {"PENDING"}, NODE_FAIL_S)
    cluster.wait_until(lambda: ghost.runs_again() or ghost.notes("refused"), WAIT_S, "the second one's refusal")
    (refused,) = cluster.wait_until(lambda: ghost.notes("refused"), WAIT_S, "the refusal's note")[:1]
    assert (refused["why"], refused["restart"]) == ("shared", 1)
    cluster.run("ctl", ["scancel", str(ghost.id)], check=False)
    assert [note["attempt"] for note in ghost.notes("start")] == [first["attempt"]]
    assert ghost.answers() == UNKNOWN
    cluster.fault("heal", node)
    ghost.wait_answer("ssh-nodes", "running")
    assert ghost.ask("slurm-nodes") in {"unknown", "running"}
    assert ghost.ask("fence-power") == "unknown"
    cluster.run(node, ["pkill", "-KILL", "-u", "ada"], check=False)
    ghost.wait_answer("ssh-nodes", "ceased")


def test_two_nodes_of_which_one_cannot_be_asked(ghost: Ghost) -> None:
    """Each node needs a proof of its own, and the proofs may be of different kinds."""
    ghost.begin("-N2", "-n2")
    ghost.cluster.wait_job(ghost.id, {"RUNNING"}, WAIT_S)
    asked = json.loads(ghost.question())["nodes"]
    gone, other = asked[1], asked[0]
    ghost.cluster.fault("kill-node", gone)
    ghost.cluster.run("ctl", ["scancel", str(ghost.id)])
    ghost.cluster.wait_until(lambda: ghost.notes("node"), WAIT_S, "the Epilog of the node that is there")
    assert {note["node"] for note in ghost.notes("node")} == {other}
    proved = ghost.cluster.tells_starts  # the other node, by its Epilog
    if proved:
        ghost.wait_answer("fence-power", "ceased")
    assert ghost.answers() == {**UNKNOWN, "fence-power": "ceased" if proved else "unknown"}
    ghost.cluster.fault("heal", gone)
    told = after_epilogs(ghost, "ceased", 2)
    if not proved:
        ghost.wait_answer("ssh-nodes", "ceased")
    assert ghost.answers() == (CEASED if told == "ceased" else ASKED)


def test_a_node_on_which_slurm_gave_up_on_a_process(ghost: Ghost) -> None:
    """C160: the Epilog came, and saw nothing; Slurm says otherwise."""
    ghost.begin(then="true")
    (node,) = ghost.ends().nodes
    after_epilogs(ghost, "ceased")
    ghost.cluster.run("ctl", ["scontrol", "update", f"node={node}", "state=drain", "reason=Kill task failed"])
    assert ghost.ask("slurm-nodes") == "unknown"
    ghost.cluster.run("ctl", ["scontrol", "update", f"node={node}", "state=resume"])
    after_epilogs(ghost, "ceased")
