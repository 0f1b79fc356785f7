"""What an owner's child reports that counts beyond the owner's own jobs.

The law of this module: *it is one owner's word.* Every field is checked and bounded, the owner and his name come from
the tick and never from here, and nothing in it can name another's job.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from slurm_dispatch.errors import BadDataError
from slurm_dispatch.model.epoch import SUBMISSION_MAX
from slurm_dispatch.model.outcome import Outcome
from slurm_dispatch.records.cessation import NODE_NAME, AskedExecution, parse_question, question

if TYPE_CHECKING:
    from collections.abc import Iterable

FAILURES_MAX = 64
"""Ends of one job in one pass."""
ASKED_MAX = 256
"""Executions of one job that are asked about in one pass."""
TOLD_MAX = 16
NODES_MAX = 64
"""Nodes of one failed execution; more of them say nothing of each."""
NAME_MAX = 128
TEXT_MAX = 2_000
WHAT = frozenset({"start", "half", "last_hour", "expired", "notice"})
_OUTCOMES = frozenset(outcome.value for outcome in Outcome)


@dataclass(frozen=True, slots=True)
class Ended:
    """An execution that ended, otherwise than completed."""

    submission: int
    at: float
    outcome: str
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Message:
    """What the owner is to be told: of a hold, or as ``notice`` of something else."""

    on: int
    what: str
    name: str
    why: str
    reason: str
    left_s: float


@dataclass(slots=True)
class Hearsay:
    """What one job's pass has to say.

    :param account, partition: where it ran last or will run, as far as is known.
    :param ended: executions whose end is a new fact.
    :param resubmitted: submissions that this pass made, with the time (Unix seconds).
    :param overlap: since when (Unix seconds) a suspected object of it may live beside its replacement, or ``None``.
    :param clock: it counts by the site's clock.
    :param ask: executions whose cessation is to be asked, as :func:`~slurm_dispatch.records.cessation.question` has
        them.
    :param view: the number of the pass's view, where that had an answer for this job, which it has taken; else 0.
    :param last: they are asked even if they were asked a moment ago: the hold runs out.
    """

    account: str = ""
    partition: str = ""
    ended: list[Ended] = field(default_factory=list)
    resubmitted: list[tuple[int, float]] = field(default_factory=list)
    overlap: float | None = None
    clock: bool = False
    ask: list[AskedExecution] = field(default_factory=list)
    last: bool = False
    tell: list[Message] = field(default_factory=list)
    view: int = 0


def pack(it: Hearsay) -> dict[str, Any]:
    """As JSON has it; an empty object where there is nothing to say."""
    if it == Hearsay(account=it.account, partition=it.partition):
        return {}
    return {
        "account": it.account,
        "partition": it.partition,
        "ended": [[end.submission, end.at, end.outcome, list(end.nodes)] for end in it.ended],
        "resubmitted": [list(row) for row in it.resubmitted],
        "overlap": it.overlap,
        "clock": it.clock,
        "ask": [question(execution).decode("ascii") for execution in it.ask[:ASKED_MAX]],
        "last": it.last,
        "view": it.view,
        "tell": [[told.on, told.what, told.name, told.why, told.reason, told.left_s] for told in it.tell],
    }


def unpack(content: object, uid: int, user: str) -> Hearsay:
    """The opposite of :func:`pack`, as the tick takes it from a child of ``uid``, whose name is ``user``.

    :raises BadDataError: it is none.
    """
    if not isinstance(content, dict):
        raise BadDataError("what it says for the site is no object")
    if not content:
        return Hearsay()
    try:
        overlap = content["overlap"]
        return Hearsay(
            account=_name(content["account"]),
            partition=_name(content["partition"]),
            ended=[_ended(*row) for row in _list(content["ended"], FAILURES_MAX)],
            resubmitted=[
                (_submission(row[0]), _moment(row[1])) for row in _list(content["resubmitted"], FAILURES_MAX)
            ],
            overlap=None if overlap is None else _moment(overlap),
            clock=content["clock"] is True,
            ask=[_asked(row, uid, user) for row in _list(content["ask"], ASKED_MAX)],
            last=content["last"] is True,
            tell=[_message(*row) for row in _list(content["tell"], TOLD_MAX)],
            view=_count(content["view"]),
        )
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise BadDataError(f"what it says for the site makes no sense: {error}") from error


def _list(value: object, most: int) -> Iterable[Any]:
    if not isinstance(value, list) or len(value) > most:
        raise TypeError("a list is none, or too long")
    return value


def _ended(submission: object, at: object, outcome: object, nodes: object) -> Ended:
    if outcome not in _OUTCOMES:
        raise ValueError("an outcome is none")
    names = tuple(_list(nodes, NODES_MAX))
    if not all(isinstance(name, str) and NODE_NAME.match(name) for name in names):
        raise ValueError("a node's name is none")
    return Ended(_submission(submission), _moment(at), str(outcome), names)


def _message(*row: object) -> Message:
    on, what, name, why, reason, left_s = row
    if type(on) is not int or on < 1 or what not in WHAT:
        raise ValueError("a message is none")
    return Message(on, str(what), _text(name), _text(why), _text(reason), _moment(left_s))


def _asked(row: object, uid: int, user: str) -> AskedExecution:
    if not isinstance(row, str):
        raise TypeError("a question is no text")
    it = parse_question(row.encode("ascii"))
    return AskedExecution(it.cluster, it.slurm_job_id, it.attempt, it.nodes, it.start, it.end, uid, user, it.words)


def _count(value: object) -> int:
    if type(value) is not int or not 0 <= value < 1 << 62:
        raise ValueError("a number is none")
    return value


def _submission(value: object) -> int:
    if type(value) is not int or not 0 < value <= SUBMISSION_MAX:
        raise ValueError("a submission's number is none")
    return value


def _moment(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value < 1e12:
        raise ValueError("a time is none")
    return float(value)


def _name(value: object) -> str:
    if not isinstance(value, str) or len(value) > NAME_MAX:
        raise TypeError("a name is none")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("a text is none")
    return value[:TEXT_MAX]


__all__ = ["ASKED_MAX", "FAILURES_MAX", "NODES_MAX", "WHAT", "Ended", "Hearsay", "Message", "pack", "unpack"]
