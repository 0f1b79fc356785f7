"""Questions for tests."""

from __future__ import annotations

from typing import Any

from slurm_dispatch.records.cessation import AskedExecution, NodeWord

ATTEMPT = "abcdefgh234567abcdef"


def execution(*words: NodeWord, nodes: tuple[str, ...] = ("c1", "c2"), **changes: Any) -> AskedExecution:
    """An execution of job 7 on two nodes, with what they said."""
    given = {
        "cluster": "lab",
        "slurm_job_id": 7,
        "attempt": ATTEMPT,
        "start": 1000.0,
        "end": 2000.0,
        "uid": 54321,
        "user": "ada",
        **changes,
    }
    return AskedExecution(nodes=nodes, words=words, **given)


def clean(node: str, **changes: Any) -> NodeWord:
    """A node's word that nothing is left."""
    return NodeWord(**{"node": node, "clean": True, "verified": True, **changes})
