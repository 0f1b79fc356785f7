"""Cessation: what is asked about an execution, what is answered, and what of it becomes facts. No I/O.

The law: *only a proof for every node of the execution is "ceased"; whatever is missing, late, odd or told by
somebody else than the node itself is "unknown".*
"""

from __future__ import annotations

import json
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
DETAIL_MAX = 500
"""Characters of an answer's detail."""
DETAIL_EVERY_S = 3600.0
"""An equal answer with another detail becomes a fact no sooner than this after the one before."""
NODES_MAX = 65_536
"""Nodes of one execution: more than any cluster of Slurm has."""


@dataclass(frozen=True, slots=True)
class CessationAnswer:
    """Are the processes of an execution gone?

    :param answer: one of :data:`ANSWERS`.
    :param source: who said it: ``slurm-nodes``, or the name of the site's command.
    :param detail: one line for a person, at most :data:`DETAIL_MAX` characters.
    :param at: Unix seconds when it was asked.
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
    how: str = "scan"
    seen: float | None = None


@dataclass(frozen=True, slots=True)
class AskedExecution:
    """An execution that is asked about: one that has a start note.

    :param nodes: Slurm's node list, as ``c[1-3]``.
    :param start: when it began, Unix seconds, or ``None`` where Slurm did not say.
    :param end: when its end was recorded, or ``None``.
    :param words: what nodes have said of it, oldest first.
    """

    cluster: str
    slurm_job_id: int
    attempt: str
    nodes: str
    start: float | None
    end: float | None
    uid: int
    user: str
    words: tuple[NodeWord, ...] = ()


@dataclass(frozen=True, slots=True)
class Counted:
    """Equal answers since the last fact: what ``<record>/asked`` keeps of an attempt. Losing it loses the count."""

    answer: str
    source: str
    detail: str
    count: int
    first: float
    last: float


def words_of(facts: Iterable[Fact], attempt: str) -> tuple[NodeWord, ...]:
    """What the record's ``node`` facts say of an execution, oldest first by the node's clock where it is told."""
    raise NotImplementedError


def facts_of(
    attempt: str, told: Counted | None, since: Counted | None, answer: CessationAnswer
) -> tuple[tuple[Mapping[str, Any], ...], Counted | None]:
    """What an answer adds to the record.

    :param told: the last ``cessation`` fact of the attempt as :class:`Counted`, or ``None``.
    :param since: equal answers that were counted since, from the cache.
    :returns: (bodies of the ``cessation`` facts to append, in order; what the cache keeps now). An answer equal
        to the one before (answer and source) is only counted. Another one is a fact, after one that has the count.
    """
    raise NotImplementedError
