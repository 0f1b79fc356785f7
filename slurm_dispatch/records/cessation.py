"""Cessation: what is asked about an execution, what is answered, and what of it becomes facts. No I/O.

The law: *only a proof for every node of the execution is "ceased"; whatever is missing, late, odd or told by
somebody else than the node itself is "unknown".*
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from slurm_dispatch.errors import BadDataError, one_line, show
from slurm_dispatch.records import forms as f
from slurm_dispatch.records.observation import CessationAnswer

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from slurm_dispatch.records.facts import Fact
    from slurm_dispatch.records.state import Cessation, ElderExecution

CEASED = "ceased"
RUNNING = "running"
UNKNOWN = "unknown"
ANSWERS = (CEASED, RUNNING, UNKNOWN)
SCAN = "scan"
BOOT = "boot"
DETAIL_MAX = 500
"""Characters of an answer's detail."""
NODES_MAX = 65_536
"""Nodes of one execution: more than Slurm can have in one cluster."""
NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}\Z")
"""A node's name as it may stand in a command line: no space, nothing that a shell knows, no dash at its start."""
QUESTION_MAX = 24 << 20
"""Bytes of a question: the longest names of the most nodes."""


def answered(answer: str, source: str, detail: str, at: float) -> CessationAnswer:
    """One answer: one of :data:`ANSWERS`, and a detail that is one short line whatever somebody printed.

    :raises BadDataError: ``answer`` is none.
    """
    if answer not in ANSWERS:
        raise BadDataError(f"{show(answer)} is no answer about cessation; it is one of {', '.join(ANSWERS)}")
    return CessationAnswer(answer, source, one_line(detail)[:DETAIL_MAX], at)


@dataclass(frozen=True, slots=True)
class NodeWord:
    """What a node's hooks said of one execution (a fact ``node``).

    :param clean: nothing of it is left; ``None``: the scan did not finish.
    :param verified: Slurm's start time named the execution.
    :param how: ``scan``; or ``boot``: the node has booted since the execution began there.
    :param seen: when, by the node's clock (Unix seconds), or ``None`` where it was not told.
    """

    node: str
    clean: bool | None
    verified: bool
    how: str = SCAN
    seen: float | None = None


@dataclass(frozen=True, slots=True)
class AskedExecution:
    """An execution that is asked about: one that has a start note.

    :param nodes: the names of its nodes.
    :param start: when it began, Unix seconds, or ``None`` where Slurm did not say.
    :param end: when its end was recorded, or ``None``.
    :param words: what nodes have said of it, oldest first.
    :raises BadDataError: no node, or one whose name is none of a node.
    """

    cluster: str
    slurm_job_id: int
    attempt: str
    nodes: tuple[str, ...]
    start: float | None
    end: float | None
    uid: int
    user: str
    words: tuple[NodeWord, ...] = ()

    def __post_init__(self) -> None:
        if not 0 < len(self.nodes) <= NODES_MAX:
            raise BadDataError(f"attempt {self.attempt} has {len(self.nodes)} nodes, and it must be 1 to {NODES_MAX}")
        for name in self.nodes:
            if not NODE_NAME.match(name):
                raise BadDataError(f"attempt {self.attempt}: {show(name)} is not the name of a node")


@dataclass(frozen=True, slots=True)
class Counted:
    """Equal answers that no fact says yet, as the cache ``<record>/asked`` keeps them.

    :param first: when the first of them was given, ``last``: the last (Unix seconds).
    """

    answer: str
    source: str
    detail: str
    count: int
    first: float
    last: float


def asked(
    it: ElderExecution, names: Sequence[str], *, uid: int, user: str, end: float | None, words: Sequence[NodeWord]
) -> AskedExecution:
    """The question about an execution.

    :param names: the names in its node list.
    :param words: see :func:`words_of`; of the record whose execution it is.
    :raises BadDataError: see :class:`AskedExecution`.
    """
    return AskedExecution(
        it.cluster, it.slurm_job_id, it.attempt, tuple(names), it.start_time, end, uid, user, tuple(words)
    )


def words_of(facts: Iterable[Fact], attempt: str) -> tuple[NodeWord, ...]:
    """What the record's ``node`` facts say of an execution, oldest first by the node's own clock."""
    found = [
        NodeWord(
            fact.body["node"],
            fact.body["clean"],
            fact.body["verified"],
            fact.body.get("how", SCAN),
            fact.body.get("seen"),
        )
        for fact in facts
        if fact.kind == "node" and fact.body["attempt"] == attempt
    ]
    if all(word.seen is not None for word in found):
        # A note that waited in a node's spool can come after a newer one.
        found.sort(key=lambda word: word.seen or 0.0)
    return tuple(found)


def tally(
    told: Cessation | None, kept: Counted | None, answer: CessationAnswer
) -> tuple[CessationAnswer, Counted | None]:
    """Count an answer that came again.

    :param told: the last fact about this execution.
    :param kept: what the cache has; passed over where it does not follow that fact.
    :returns: (the answer as an observation, with its count, and with what was counted before where it is another
        one; what the cache keeps from now on).
    """
    if told is None:
        return answer, None
    if kept is not None and (not _equal(kept, told) or kept.last <= told.last):
        kept = None
    if not _equal(answer, told):
        before = None
        if kept is not None:
            before = CessationAnswer(kept.answer, kept.source, kept.detail, kept.last, kept.count, kept.first)
        return replace(answer, before=before), None
    first, count = (answer.at, 1) if kept is None else (kept.first, kept.count + 1)
    counted = Counted(answer.answer, answer.source, answer.detail, count, first, answer.at)
    return replace(answer, count=count, first=first), counted


def _equal(one: Counted | CessationAnswer, other: Cessation) -> bool:
    return (one.answer, one.source) == (other.answer, other.source)


_WORD: dict[str, f.Form] = {
    "node": f.text,
    "clean": f.null_or(f.flag),
    "verified": f.flag,
    "how": f.one_of(SCAN, BOOT),
    "seen": f.null_or(f.moment),
}
_QUESTION: dict[str, f.Form] = {
    "cluster": f.text,
    "object": f.job_id,
    "attempt": f.attempt,
    "nodes": f.list_of(f.text, NODES_MAX),
    "start": f.null_or(f.moment),
    "end": f.null_or(f.moment),
    "owner": f.text,
    "uid": f.unsigned,
}


def question(execution: AskedExecution) -> bytes:
    """What the site's command reads: one JSON object, ASCII, ended by a newline."""
    content = {
        "v": f.VERSION,
        "cluster": execution.cluster,
        "object": execution.slurm_job_id,
        "attempt": execution.attempt,
        "nodes": list(execution.nodes),
        "start": execution.start,
        "end": execution.end,
        "owner": execution.user,
        "uid": execution.uid,
        "evidence": [{name: getattr(word, name) for name in _WORD} for word in execution.words],
    }
    return json.dumps(content, ensure_ascii=True, allow_nan=False).encode("ascii") + b"\n"


def parse_question(data: bytes) -> AskedExecution:
    """The opposite of :func:`question`. ``evidence`` may be missing: then nothing is known of any node.

    :raises BadDataError: it is no question; the message names the field.
    """
    content = f.parse_object(data, "the question", limit=QUESTION_MAX)
    for name, form in _QUESTION.items():
        if name not in content:
            raise BadDataError(f"the question: no field {name}")
        f.check_form(f"the question: {name}", form, content[name])
    words = content.get("evidence", [])
    f.check_form("the question: evidence", f.list_of(f.obj, 2 * NODES_MAX), words)
    for word in words:
        for name, form in _WORD.items():
            f.check_form(f"the question: evidence: {name}", form, word.get(name))
    return AskedExecution(
        cluster=content["cluster"],
        slurm_job_id=content["object"],
        attempt=content["attempt"],
        nodes=tuple(content["nodes"]),
        start=content["start"],
        end=content["end"],
        uid=content["uid"],
        user=content["owner"],
        words=tuple(NodeWord(**{name: word[name] for name in _WORD}) for word in words),
    )
