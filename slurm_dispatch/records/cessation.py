"""Cessation: what is asked about an execution, what is answered, and what of it becomes facts. No I/O.

The law: *only a proof for every node of the execution is "ceased"; whatever is missing, late, odd or told by
somebody else than the node itself is "unknown".*
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from slurm_dispatch.errors import BadDataError, one_line, show
from slurm_dispatch.records import forms as f

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from slurm_dispatch.records.facts import Fact

CEASED = "ceased"
RUNNING = "running"
UNKNOWN = "unknown"
ANSWERS = (CEASED, RUNNING, UNKNOWN)
SCAN = "scan"
BOOT = "boot"
DETAIL_MAX = 500
"""Characters of an answer's detail."""
DETAIL_EVERY_S = 3600.0
"""An equal answer with another detail becomes a fact no sooner than this after the one before."""
COUNT_MAX = 1440
"""So many equal answers are a fact: the cache that is lost loses no more than a day of them."""
NODES_MAX = 65_536
"""Nodes of one execution: more than Slurm can have in one cluster."""
NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}\Z")
"""A node's name as it may stand in a command line: no space, nothing that a shell knows, no dash at its start."""
QUESTION_MAX = 24 << 20
"""Bytes of a question: the longest names of the most nodes."""


@dataclass(frozen=True, slots=True)
class CessationAnswer:
    """Are the processes of an execution gone?

    :param answer: one of :data:`ANSWERS`.
    :param source: who said it: ``slurm-nodes``, or the name of the site's command.
    :param detail: one line for a person, at most :data:`DETAIL_MAX` characters.
    :param at: Unix seconds when it was answered.
    """

    answer: str
    source: str
    detail: str
    at: float

    def __post_init__(self) -> None:
        if self.answer not in ANSWERS:
            raise BadDataError(f"{show(self.answer)} is no answer about cessation; it is one of {', '.join(ANSWERS)}")
        object.__setattr__(self, "detail", one_line(self.detail)[:DETAIL_MAX])


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
    """Equal answers, as a ``cessation`` fact or the cache ``<record>/asked`` has them.

    :param first: when the first of them was given, ``last``: the last (Unix seconds).
    """

    answer: str
    source: str
    detail: str
    count: int
    first: float
    last: float

    def body(self, attempt: str) -> dict[str, Any]:
        """The body of the fact ``cessation``."""
        return {
            "attempt": attempt,
            "answer": self.answer,
            "source": self.source,
            "detail": self.detail,
            "count": self.count,
            "first": self.first,
            "last": self.last,
        }


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


def facts_of(
    attempt: str, told: Counted | None, since: Counted | None, answer: CessationAnswer
) -> tuple[tuple[Mapping[str, Any], ...], Counted | None]:
    """What an answer adds to the record.

    :param told: the last ``cessation`` fact of the attempt, or ``None``.
    :param since: equal answers that were counted since, from the cache, or ``None``.
    :returns: (bodies of the ``cessation`` facts to append, in order; what the cache keeps now). An answer equal
        to the one before (answer and source) is only counted. Another one is a fact, after one that has the count.
    """
    fresh = Counted(answer.answer, answer.source, answer.detail, 1, answer.at, answer.at)
    if told is not None and told.answer == CEASED:
        return (), None  # for good
    if told is None:
        return (fresh.body(attempt),), None
    if since is not None and not _equal(since, told):
        since = None  # the cache of another time
    if not _equal(fresh, told):
        return ((since.body(attempt), fresh.body(attempt)) if since else (fresh.body(attempt),)), None
    counted = fresh if since is None else replace(since, detail=fresh.detail, count=since.count + 1, last=fresh.last)
    news = counted.detail != told.detail and not 0 <= counted.last - told.last < DETAIL_EVERY_S
    if news or counted.count >= COUNT_MAX:
        return (counted.body(attempt),), None
    return (), counted


def _equal(one: Counted, other: Counted) -> bool:
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
