"""Read what ``scontrol show nodes`` prints in its many-line form. No I/O.

The law: *a line that decides counts only if it is there exactly once in its node's paragraph.* Operators write
free text into comments and reasons, and a newline in it could imitate such a line; an imitation makes the whole
answer unknown. (Only they can write there, and they can set the states themselves.)

The lines are the same in 22.05 and 26.05. A state is one word with flags (``IDLE+DRAIN+NOT_RESPONDING``); a star
for a node that does not answer (``DOWN*``) is what older and shorter forms print, and is read as well.
"""

from __future__ import annotations

import re

from slurm_dispatch.slurm.port import Node, Nodes, Unknown

_HEAD = re.compile(r"^NodeName=(\S+) ", re.MULTILINE)
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,255}\Z")
_STATE = re.compile(r"^   State=(\S+) ThreadsPerCore=[0-9]+ TmpDisk=", re.MULTILINE)
_PARTITIONS = re.compile(r"^   Partitions=(\S*) *$", re.MULTILINE)
_BOOT = re.compile(r"^   BootTime=(\S+) ?", re.MULTILINE)
# The whole of it is slurmctld's own: what an operator has written before would stand in front.
_DRAINED = re.compile(
    r"^   Reason=(Duplicate jobid|Prolog error) \[[A-Za-z0-9_.-]+@([0-9]{1,12})\]$", re.MULTILINE
)
_BASE_AND_FLAGS = re.compile(r"([A-Z]+)([*~#!%$@^-]?)((?:\+[A-Z_]+|\+\?)*)\Z")
_TIME = re.compile(r"[0-9]{1,12}\Z")

NODE_STATES = frozenset({
    "ALLOCATED", "DOWN", "ERROR", "FUTURE", "IDLE", "MIXED", "UNKNOWN",
})  # fmt: skip
NODES_MAX = 200_000
"""Nodes of one answer: more than any cluster has."""


def parse_nodes(text: str) -> Nodes | Unknown:
    """Every node of the answer, in its order."""
    heads = list(_HEAD.finditer(text))
    if not heads or text[: heads[0].start()].strip():
        return Unknown("scontrol show nodes printed something that is no node")
    if len(heads) > NODES_MAX:
        return Unknown(f"scontrol show nodes printed {len(heads)} nodes")
    if not text.endswith("\n"):
        return Unknown("scontrol show nodes was cut off in the middle of a line")
    ends = [head.start() for head in heads[1:]] + [len(text)]
    nodes: list[Node] = []
    seen: set[str] = set()
    for head, end in zip(heads, ends, strict=True):
        node = _node(head[1], text[head.start() : end])
        if node is None or node.name in seen:
            return Unknown(f"scontrol show nodes says of {head[1][:80]!r} what does not parse")
        seen.add(node.name)
        nodes.append(node)
    return Nodes(tuple(nodes))


def _node(name: str, paragraph: str) -> Node | None:
    states = _STATE.findall(paragraph)
    partitions = _PARTITIONS.findall(paragraph)
    boots = _BOOT.findall(paragraph)
    if not _NAME.match(name) or len(states) != 1 or len(partitions) > 1 or len(boots) > 1:
        return None
    state = _BASE_AND_FLAGS.match(states[0])
    if state is None or state[1] not in NODE_STATES:
        return None
    flags = {flag for flag in state[3].split("+") if flag}
    if state[2] == "*":
        flags.add("NOT_RESPONDING")
    listed = tuple(part for part in (partitions[0] if partitions else "").split(",") if part)
    boot = int(boots[0]) if boots and _TIME.match(boots[0]) and int(boots[0]) > 0 else None
    drained = _DRAINED.findall(paragraph)
    why = {reason: int(at) for reason, at in drained} if len(drained) == 1 else {}
    return Node(
        name, state[1], frozenset(flags), listed, boot, why.get("Duplicate jobid"), why.get("Prolog error")
    )


__all__ = ["NODES_MAX", "NODE_STATES", "parse_nodes"]
