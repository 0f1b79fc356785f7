"""Node memory: which nodes were there when executions failed.

The law of this module: *one owner's failures keep that owner's jobs off a node; it takes two owners to keep
everybody off.* What an owner's process reports is his word, and a job with a bug fails on every node. The evidence
fades, expires, and may never keep jobs off more than a share of a partition.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from slurm_dispatch.controller.tickfile import number, rows, text

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from slurm_dispatch.slurm.port import Nodes

NAME = "memory"
ENTRIES_MAX = 5_000
OWNER_ENTRIES_MAX = 500
"""Of one owner: one of many must not push out what others saw."""
NODES_OF_ONE_MAX = 64
"""An execution on more nodes says next to nothing about each of them, and is not remembered."""
THRESHOLD = 0.5
"""A node is avoided from this score on."""
OWNER_MOST = 0.4
"""The most that one owner's evidence counts for other owners' jobs: below :data:`THRESHOLD`."""
WEIGHT: Mapping[str, float] = {
    "node_fail": 1.0,
    "boot_fail": 1.0,
    "suspect": 0.7,
    "launch_failed": 0.7,
    "stalled": 0.3,
    "failed": 0.15,
    "lost": 0.3,
}
"""What an outcome says against the nodes that were there; the others say nothing of them."""


@dataclass(frozen=True, slots=True)
class Fading:
    """How the memory fades, as the site sets it.

    :param half_life_s: evidence counts half after this: a node that was repaired or rebooted takes jobs again.
    :param share: the most of a partition that is avoided at once; one node may always be, of two or more, unless
        it is 0.
    """

    half_life_s: float = 6 * 3600.0
    expiry_s: float = 7 * 86400.0
    share: float = 0.1

    def counts(self, entry: Entry, now: float) -> float:
        """What the evidence counts now."""
        age_s = max(0.0, now - entry.at)
        return 0.0 if age_s >= self.expiry_s else float(entry.weight * 0.5 ** (age_s / self.half_life_s))


@dataclass(frozen=True, slots=True)
class Entry:
    """One node of one execution that failed.

    :param at: Unix seconds of the end.
    :param weight: of the outcome, shared among the execution's nodes.
    :param uid: whose job it was.
    :param submission: with ``job`` it tells the execution, so that what is reported twice counts once.
    """

    node: str
    at: float
    weight: float
    job: str
    submission: int
    uid: int
    outcome: str
    partition: str


@dataclass(frozen=True, slots=True)
class Failure:
    """An execution that failed, as an owner's child reports it; ``nodes`` is the expanded node list."""

    at: float
    job: str
    submission: int
    uid: int
    outcome: str
    partition: str
    nodes: tuple[str, ...]


def remember(entries: Sequence[Entry], failures: Iterable[Failure], fading: Fading, now: float) -> tuple[Entry, ...]:
    """The memory with these failures; what has expired is gone, and the bounds are kept by leaving out the oldest."""
    known = {(entry.node, entry.job, entry.submission, entry.outcome): entry for entry in entries}
    for it in failures:
        weight = WEIGHT.get(it.outcome, 0.0)
        if weight and 0 < len(it.nodes) <= NODES_OF_ONE_MAX:
            for node in it.nodes:
                key = (node, it.job, it.submission, it.outcome)
                at = min(it.at, now)
                share = weight / len(it.nodes)
                known.setdefault(key, Entry(node, at, share, it.job, it.submission, it.uid, it.outcome, it.partition))
    kept: list[Entry] = []
    of_owner: dict[int, int] = {}
    for entry in sorted(known.values(), key=lambda entry: (-entry.at, entry.node, entry.job, entry.submission)):
        of_owner[entry.uid] = of_owner.get(entry.uid, 0) + 1
        if 0.0 <= now - entry.at < fading.expiry_s and of_owner[entry.uid] <= OWNER_ENTRIES_MAX:
            kept.append(entry)
    return tuple(reversed(kept[:ENTRIES_MAX]))


def scores(entries: Iterable[Entry], uid: int | None, fading: Fading, now: float) -> dict[str, float]:
    """The score of each node for the jobs of ``uid``; ``None``: for somebody who has no evidence of his own."""
    by_owner: dict[tuple[str, int], float] = {}
    for entry in entries:
        key = (entry.node, entry.uid)
        by_owner[key] = by_owner.get(key, 0.0) + fading.counts(entry, now)
    found: dict[str, float] = {}
    for (node, owner), score in by_owner.items():
        found[node] = found.get(node, 0.0) + (score if owner == uid else min(OWNER_MOST, score))
    return found


def excluded(
    entries: Sequence[Entry], nodes: Nodes, uid: int, partitions: Iterable[str], fading: Fading, *, now: float
) -> tuple[str, ...]:
    """The nodes that the next submission of this owner keeps off, the worst first.

    :param partitions: where the job may run; none named: every partition of the cluster counts as one.
    """
    usable = usable_nodes(nodes, partitions)
    bad = {name: score for name, score in scores(entries, uid, fading, now).items() if score >= THRESHOLD}
    there = sorted((name for name in bad if name in usable), key=lambda name: (-bad[name], name))
    most = max(int(fading.share * len(usable)), 1 if fading.share and len(usable) > 1 else 0)
    return tuple(there[:most])


def usable_nodes(nodes: Nodes, partitions: Iterable[str]) -> set[str]:
    """The nodes of these partitions (none named: of all) that take jobs."""
    wanted = set(partitions)
    return {
        node.name
        for node in nodes.nodes
        if (not wanted or wanted & set(node.partitions)) and not node.drained and node.state != "DOWN"
    }


def spare(nodes: Nodes, partitions: Iterable[str], own: Collection[str]) -> int | None:
    """How many nodes can be excluded for a job so that it still has as many as it had; ``None``: not known.

    :param own: the nodes of its latest execution. They count as nodes that take jobs: those that do not now are
        among the first to be excluded.
    """
    return len(usable_nodes(nodes, partitions) | set(own)) - len(own) if own else None


def from_content(content: Mapping[str, Any] | None) -> tuple[Entry, ...]:
    """What a file says; rows that make no sense are left out."""
    found: list[Entry] = []
    for row in rows((content or {}).get("entries"), ENTRIES_MAX):
        if len(row) != 8 or type(row[4]) is not int or type(row[5]) is not int:
            continue
        node, job, outcome = text(row[0]), text(row[3], 64), text(row[6], 32)
        weight = min(1.0, number(row[2]))
        if node and job and outcome in WEIGHT and weight > 0.0:
            found.append(Entry(node, number(row[1]), weight, job, row[4], row[5], outcome, text(row[7])))
    return tuple(found)


def content(entries: Iterable[Entry]) -> dict[str, Any]:
    """The opposite of :func:`from_content`."""
    return {
        "entries": [
            [entry.node, entry.at, entry.weight, entry.job, entry.submission, entry.uid, entry.outcome,
             entry.partition]
            for entry in entries
        ]
    }  # fmt: skip


__all__ = [
    "NAME", "OWNER_MOST", "THRESHOLD", "WEIGHT", "Entry", "Fading", "Failure", "content", "excluded", "from_content",
    "remember", "scores", "spare", "usable_nodes",
]  # fmt: skip
