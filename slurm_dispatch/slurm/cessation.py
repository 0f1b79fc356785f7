"""The optional part of the port that says whether an execution's processes are gone.

The law: *ceased is said only of what was proved; a command that fails, hangs, prints too much or is not there,
and a node of which nothing is known, are unknown.*
"""

from __future__ import annotations

import os
import secrets
import time
from typing import TYPE_CHECKING, Protocol

from slurm_dispatch.records.cessation import (
    BOOT,
    CEASED,
    RUNNING,
    UNKNOWN,
    AskedExecution,
    NodeWord,
    answered,
    question,
)
from slurm_dispatch.slurm.commands import SlurmCommands
from slurm_dispatch.slurm.port import Unknown
from slurm_dispatch.slurm.run import Finished, Setting, run

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from slurm_dispatch.records.observation import CessationAnswer

SLURM_NODES = "slurm-nodes"
"""The built-in answer's name, in the site's settings and in facts."""
OUTPUT_MAX = 64 << 10
"""Bytes that the site's command may print."""
KILL_FAILED = "Kill task failed"
"""How slurmd drains a node on which it gave up on a process (``slurmstepd/step_terminate_monitor.c``, ``req.c``)."""
NAMED_MAX = 8
"""Nodes that an answer's detail names."""


class CessationSignal(Protocol):
    """Who can say it. An adapter or a site without one leaves the job to a person."""

    source: str
    """Its name in answers."""
    together: bool
    """One call answers about many executions at the cost of one; otherwise each is asked alone, side by side."""

    def ask(self, executions: Sequence[AskedExecution], deadline_s: float) -> Sequence[CessationAnswer]:
        """An answer for each execution, in their order. Never raises for what goes wrong: that is ``unknown``."""
        ...


class SiteCommand:
    """The site's own command: a question as JSON on standard input; status 0 is ceased, 1 not ceased, and
    everything else, a timeout too, unknown. Never in a shell, in ``/``, as the caller.

    :param argv: the command and its arguments.
    :param environment: the whole environment of it.
    """

    together = False

    def __init__(self, argv: Sequence[str], environment: Mapping[str, str]) -> None:
        self._argv = tuple(argv)
        self._setting = Setting(environment, workdir="/", umask=0o077)
        self.source = os.path.basename(self._argv[0])

    def ask(self, executions: Sequence[AskedExecution], deadline_s: float) -> list[CessationAnswer]:
        """Run the command once for each execution, one after the other, all within the deadline."""
        until = time.monotonic() + deadline_s
        return [self._ask(it, max(0.0, until - time.monotonic())) for it in executions]

    def _ask(self, execution: AskedExecution, deadline_s: float) -> CessationAnswer:
        setting = Setting(
            self._setting.environment, question(execution), workdir=self._setting.workdir, umask=self._setting.umask
        )
        finished = run(self._argv, setting, deadline_s=deadline_s, limit=OUTPUT_MAX)
        return answered(_meaning(finished), self.source, _said(finished), time.time())


def _meaning(finished: Finished) -> str:
    if finished.failure or finished.timed_out or finished.truncated:
        return UNKNOWN
    return {0: CEASED, 1: RUNNING}.get(finished.status if finished.status is not None else -1, UNKNOWN)


def _said(finished: Finished) -> str:
    lines = finished.stdout.decode("utf-8", "backslashreplace").split("\n")
    first = next((line.strip() for line in lines if line.strip()), "")
    if finished.status in {0, 1} and not (finished.timed_out or finished.truncated):
        return first
    return f"{finished.trouble} ({first})" if first else finished.trouble


class SlurmNodes:
    """What the hooks of each node have said, and whether Slurm gave up on a process there.

    :param reasons: why nodes are drained, by node (every node of the cluster, most with nothing); of how many seconds
        it may take, and the cluster's name.
    """

    source = SLURM_NODES
    together = True

    def __init__(self, reasons: Callable[[float, str], Mapping[str, str] | Unknown]) -> None:
        self._reasons = reasons

    def ask(self, executions: Sequence[AskedExecution], deadline_s: float) -> list[CessationAnswer]:
        """Slurm is asked once for all that are on one cluster, and not where no node has said anything yet."""
        until = time.monotonic() + deadline_s
        told = {it.cluster for it in executions if any(word.clean for word in it.words)}
        reasons = {cluster: self._reasons(max(0.0, until - time.monotonic()), cluster) for cluster in sorted(told)}
        at = time.time()
        return [judge(it, reasons.get(it.cluster, Unknown("not asked")), at) for it in executions]


def signal_of(argv: Sequence[str], environment: Mapping[str, str], home: str = "") -> CessationSignal | None:
    """The signal that the site's setting ``cessation`` names: nobody, the built-in answer, or a command.

    :param environment: what Slurm's commands, and the site's, run with.
    :param home: the name of the cluster that they ask; empty: it is asked for.
    """
    if not argv:
        return None
    if tuple(argv) == (SLURM_NODES,):
        return SlurmNodes(lambda deadline_s, cluster: reasons_on(cluster, environment, deadline_s, home))
    return SiteCommand(argv, environment)


def judge(execution: AskedExecution, reasons: Mapping[str, str] | Unknown, at: float) -> CessationAnswer:
    """The built-in answer from what is known of each node.

    A node is proved by the word of its own Epilog for this attempt, with Slurm's start time to it, that it is clean,
    unless Slurm gave up on a process there; or by its own word that it has booted since.
    """
    found = {node: _of_node(node, words, reasons) for node, words in _by_node(execution).items()}
    left = [(node, why) for node, (answer, why) in found.items() if answer == RUNNING]
    missing = [(node, why) for node, (answer, why) in found.items() if answer == UNKNOWN]
    if not missing and not left:
        text = f"proved for each of {len(found)} nodes" if len(found) > 1 else "proved for its node"
        return answered(CEASED, SLURM_NODES, text, at)
    return answered(RUNNING if left else UNKNOWN, SLURM_NODES, _list(left + missing), at)


def unproved(execution: AskedExecution, reasons: Mapping[str, str] | Unknown) -> list[str]:
    """The nodes that :func:`judge` has no proof for, in the order of the execution."""
    return [node for node, words in _by_node(execution).items() if _of_node(node, words, reasons)[0] != CEASED]


def _by_node(execution: AskedExecution) -> dict[str, list[NodeWord]]:
    by_node: dict[str, list[NodeWord]] = {node: [] for node in execution.nodes}
    for word in execution.words:
        if word.node in by_node:
            by_node[word.node].append(word)
    return by_node


def _of_node(node: str, words: Sequence[NodeWord], reasons: Mapping[str, str] | Unknown) -> tuple[str, str]:
    """What is known of one node, and in words why it is not proved."""
    verified = [word for word in words if word.verified]
    if not verified:
        return UNKNOWN, "its Epilog was not sure which execution it ended" if words else "no word of it"
    last = verified[-1]  # an earlier one is no longer true, or was not
    if last.clean is None:
        return UNKNOWN, "its Epilog's scan did not finish"
    if not last.clean:
        return RUNNING, "processes were left when its Epilog ran"
    if last.how == BOOT:
        return CEASED, ""
    why = _against(node, reasons)
    return (CEASED, "") if why is None else (UNKNOWN, why)


def _against(node: str, reasons: Mapping[str, str] | Unknown) -> str | None:
    if isinstance(reasons, Unknown):
        return f"Slurm does not tell why its nodes are drained ({reasons.why})"
    if node not in reasons:
        return "Slurm does not know the node"
    return f'Slurm says "{KILL_FAILED}" of it' if KILL_FAILED.lower() in reasons[node].lower() else None


def _list(nodes: Sequence[tuple[str, str]]) -> str:
    named = [f"{node}: {why}" for node, why in nodes[:NAMED_MAX]]
    more = len(nodes) - len(named)
    return "; ".join(named) + (f"; and {more} more" if more else "")


def reasons_on(
    cluster: str, environment: Mapping[str, str], deadline_s: float, home: str = ""
) -> dict[str, str] | Unknown:
    """:func:`drain_reasons` of a cluster by its name: two clusters can have nodes of one name.

    :param home: the name of the cluster that the commands ask; empty: it is asked for.
    """
    until = time.monotonic() + deadline_s
    commands = SlurmCommands(environment, timeout_s=deadline_s)
    if not home:
        config = commands.config()
        if isinstance(config, Unknown):
            return config
        home = config.get("ClusterName", "")
    left_s = max(0.0, until - time.monotonic())
    if cluster in {"", home}:
        return drain_reasons(environment, left_s)
    try:
        there = commands.at(cluster)
    except ValueError as error:
        return Unknown(str(error))
    return drain_reasons(environment, left_s, there.cluster or "")


def drain_reasons(environment: Mapping[str, str], deadline_s: float, other: str = "") -> dict[str, str] | Unknown:
    """Why each node is drained or down, by node, as Slurm shows it (``none`` where it is not); one call of sinfo.

    :param other: of another cluster.
    """
    mark = secrets.token_hex(8)
    where = [f"--clusters={other}"] if other else []
    argv = ["sinfo", *where, "--noheader", "--all", "--Node", f"--format={mark}|%N|%E"]
    finished = run(argv, Setting(environment), deadline_s=deadline_s)
    if finished.trouble:
        return Unknown(f"sinfo: {finished.trouble}")
    return parse_reasons(finished.stdout.decode("utf-8", "backslashreplace"), mark)


def parse_reasons(text: str, mark: str) -> dict[str, str] | Unknown:
    """What sinfo printed. A line without the mark goes on with the reason before it, which had a newline."""
    found: dict[str, str] = {}
    name = ""
    for line in text.split("\n"):
        parts = line.split("|", 2)
        if parts[0] == mark and len(parts) == 3:
            name = parts[1]
            found[name] = f"{found[name]}\n{parts[2]}" if name in found else parts[2]
        elif line and name:
            found[name] += "\n" + line
        elif line:
            return Unknown(f"sinfo printed what does not parse: {line[:80]!r}")
    return found
