"""Facts: the entries of a job's record, as bytes and as values.

One JSON object a fact, with the fields of its kind as :data:`KINDS` and :data:`OPTIONAL` list them (and as the
table in ``ARCHITECTURE.md`` does; a test holds them together). Unknown fields are accepted and kept. An unknown
kind or version is refused, because a reader that passed over it would decide on half of the record.
"""

from __future__ import annotations

import json
from copy import copy
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from slurm_dispatch.errors import BadDataError, show
from slurm_dispatch.model.epoch import check
from slurm_dispatch.records import forms as f

if TYPE_CHECKING:
    from collections.abc import Mapping

SEQ_MAX = 9_999_999_999
"""Ten digits: the name of a fact has a fixed width, so that names sort as numbers do."""

DEPENDENTS_MAX = 2000
"""Slurm jobs that a fact names as dependents: ids of ten digits, so that it fits."""
LEFT_MAX = 64
"""Of those that could not be re-pointed, with the reason for each."""

REMOVED_MAX = 256
"""Paths of removed saves that a fact names; their number is all of them."""

NodeKey = tuple[str, str, bool | None, bool, str]
"""(attempt, node, clean, verified, how) of a fact ``node``."""

NODE: dict[str, f.Form] = {
    "attempt": f.attempt,
    "epoch": f.epoch,
    "node": f.text,
    "boot": f.null_or(f.text),
    "clean": f.null_or(f.flag),
    "left": f.list_of(f.integer(1, 2**31 - 1), 32),
    "start_time": f.null_or(f.moment),
    "verified": f.flag,
}
"""What an Epilog says of a node; the same in its note and in the fact that is made of it."""

ELDER_EXECUTION: dict[str, f.Form] = {
    "attempt": f.attempt,
    "slurm_job_id": f.job_id,
    "cluster": f.text,
    "nodes": f.text,
    "start_time": f.null_or(f.moment),
}
"""What a superseding job knows of an execution of its elder, so that its cessation can be asked."""

KINDS: dict[str, dict[str, f.Form]] = {
    "spec": {
        "job": f.key,
        "generation": f.generation,
        "user": f.text,
        "uid": f.unsigned,
        "gid": f.unsigned,
        "groups": f.list_of(f.unsigned),
        "cluster": f.text,
        "name": f.text,
        "root": f.text,
        "shared": f.flag,
        "argv": f.list_of(f.text),
        "script_name": f.null_or(f.text),
        "script_args": f.list_of(f.text),
        "script_sha256": f.text,
        "wrap": f.flag,
        "workdir": f.text,
        "umask": f.integer(0, 0o777),
        "comment": f.text,
        "rules": f.list_of(f.text),
        "max_submissions": f.submission,
        "start_from": f.null_or(f.text),
        "host": f.text,
        "supersedes": f.null_or(f.key),
    },
    "intent": {
        "submission": f.submission,
        "word": f.text,
        "host": f.text,
        "deadline": f.moment,
        "wait_s": f.duration,
        "changes": f.list_of(f.text),
        "decision": f.null_or(f.sequence),
    },
    "submitted": {
        "submission": f.submission,
        "cluster": f.text,
        "slurm_job_id": f.job_id,
        "how": f.one_of("answer", "note", "queue", "accounting"),
    },
    "rejected": {"submission": f.submission, "status": f.integer(-255, 255), "message": f.text},
    "burnt": {"submission": f.submission, "evidence": f.text},
    "watched": {"submission": f.submission, "host": f.text, "first_seen": f.moment},
    "started": {
        "submission": f.submission,
        "slurm_job_id": f.job_id,
        "restart": f.restart,
        "epoch": f.epoch,
        "attempt": f.attempt,
        "start_time": f.null_or(f.moment),
        "nodes": f.text,
    },
    "refused": {
        "submission": f.submission,
        "slurm_job_id": f.job_id,
        "restart": f.restart,
        "start_time": f.null_or(f.moment),
        "why": f.text,
    },
    "progress": {"attempt": f.attempt, "epoch": f.epoch, "step": f.step, "resumed_from": f.null_or(f.step)},
    "ended": {
        "attempt": f.attempt,
        "epoch": f.epoch,
        "status": f.null_or(f.integer(0, 255)),
        "signal": f.null_or(f.integer(1, 255)),
        "outcome": f.null_or(f.outcome),
        "step": f.null_or(f.step),
    },
    "node": NODE,
    "end": {
        "submission": f.submission,
        "slurm_job_id": f.job_id,
        "restart": f.null_or(f.restart),
        "start_time": f.null_or(f.moment),
        "outcome": f.outcome,
        "evidence": f.obj,
        "final": f.flag,
    },
    "decision": {
        "on": f.sequence,
        "outcome": f.outcome,
        "action": f.action,
        "rule": f.text,
        "budget_used": f.integer(0, 10**9),
        "budget": f.null_or(f.integer(0, 10**9)),
        "reason": f.text,
        "submission": f.null_or(f.submission),
        "not_before": f.null_or(f.moment),
        "close": f.null_or(f.text),
    },
    "hold": {"reason": f.text, "for_s": f.null_or(f.duration)},
    "release": {"on": f.sequence, "how": f.one_of("person", "ceased", "breaker"), "reason": f.text},
    "held": {"on": f.sequence, "clock": f.text, "ran_s": f.duration, "counted_s": f.duration},
    "told": {
        "on": f.sequence,
        "what": f.one_of("start", "half", "last_hour", "expired", "notice"),
        "status": f.null_or(f.integer(-255, 255)),
    },
    "cessation": {
        "attempt": f.attempt,
        "answer": f.one_of("ceased", "running", "unknown"),
        "source": f.text,
        "detail": f.text,
        "count": f.integer(1, 10**9),
        "first": f.moment,
        "last": f.moment,
    },
    "requeued": {"submission": f.submission, "slurm_job_id": f.job_id, "restart": f.restart},
    "requeue_failed": {"submission": f.submission, "slurm_job_id": f.job_id, "why": f.text},
    "suspected": {
        "submission": f.submission,
        "slurm_job_id": f.job_id,
        "restart": f.restart,
        "nodes": f.list_of(f.text),
        "since": f.moment,
    },
    "cleared": {"submission": f.submission, "reason": f.text},
    "updated": {
        "argv": f.null_or(f.list_of(f.text)),
        "script_sha256": f.null_or(f.text),
        "script_name": f.null_or(f.text),
        "script_args": f.null_or(f.list_of(f.text)),
        "rules": f.null_or(f.list_of(f.text)),
        "settings": f.obj,
        "reason": f.text,
    },
    "adopted": {"submission": f.submission, "publication": f.text, "name": f.text, "reason": f.text},
    "took_over": {
        "elder": f.key,
        "elder_seq": f.sequence,
        "executions": f.list_of(f.record(ELDER_EXECUTION)),
        "submission": f.submission,
    },
    "reopened": {"reason": f.text, "submission": f.submission},
    "request": {"what": f.one_of("cancel"), "reason": f.text},
    "stray": {"submission": f.submission, "slurm_job_id": f.job_id, "cluster": f.text},
    "slurm_hold": {"submission": f.submission, "slurm_job_id": f.job_id, "reason": f.null_or(f.text)},
    "dependents": {"jobs": f.null_or(f.list_of(f.job_id, DEPENDENTS_MAX))},
    "repointed": {
        "slurm_job_id": f.job_id,
        "moved": f.list_of(f.job_id, DEPENDENTS_MAX),
        "left": f.list_of(f.record({"slurm_job_id": f.job_id, "why": f.text}), LEFT_MAX),
    },
    "removed": {"how": f.one_of("gc"), "count": f.integer(1, 10**9), "paths": f.list_of(f.text, REMOVED_MAX)},
    "closed": {"why": f.text, "reason": f.text},
}
"""Each kind of fact with the fields that it must have and the form of each."""

NODE_OPTIONAL: dict[str, tuple[f.Form, Any]] = {
    "how": (f.one_of("scan", "boot"), "scan"),
    "seen": (f.null_or(f.moment), None),
}
"""Whether the node was searched, or has booted since; and when, by its own clock (a note's ``at``)."""

OPTIONAL: dict[str, dict[str, tuple[f.Form, Any]]] = {
    "node": NODE_OPTIONAL,
    "spec": {
        "shared_hold_for_s": (f.duration, 86400.0),
        "stall_s": (f.null_or(f.duration), None),
        "suspect_s": (f.null_or(f.duration), None),
        "max_node_hours": (f.null_or(f.duration), None),
        "until": (f.null_or(f.moment), None),
        "no_progress": (f.null_or(f.integer(1, 10**6)), None),
        "account": (f.text, ""),
        "partition": (f.text, ""),
        "origins": (f.texts, {}),
        "elders_shared": (f.flag, False),
        "keep": (f.null_or(f.job_id), None),
        "dependency": (f.text, ""),
        "clusters": (f.list_of(f.text), []),
    },
    "progress": {"removed": (f.integer(0, 10**9), 0), "paths": (f.list_of(f.text, REMOVED_MAX), [])},
    "updated": {"given": (f.list_of(f.text), [])},
    "decision": {
        "why": (f.text, ""),
        "changes": (f.list_of(f.text), []),
        "hold_for_s": (f.null_or(f.duration), None),
        "then": (f.null_or(f.one_of("resubmit", "requeue")), None),
        "free": (f.flag, False),
        "inputs": (f.obj, {}),
    },
    "took_over": {"complete": (f.flag, True)},
    "closed": {"by_job": (f.null_or(f.key), None), "keep": (f.null_or(f.job_id), None)},
}
"""Fields that a fact of a kind may lack, which then has the default: records of before stay readable. A parsed
fact always has them. A default is never changed in place: every fact gets one of its own."""


@dataclass(frozen=True, slots=True)
class Fact:
    """One entry of a record.

    :param seq: 1 for the first; without gaps.
    :param at: Unix seconds, by the clock of the host that wrote it: for people, never for order.
    :param kind: one of :data:`KINDS`.
    :param by: ``user:<name>@<host>``, ``tick@<host>`` or ``watch@<node>``.
    :param body: the other fields, read only.
    """

    seq: int
    at: float
    kind: str
    by: str
    body: Mapping[str, Any]


def node_key(body: Mapping[str, Any]) -> NodeKey:
    """What two facts ``node`` have in common if they say the same."""
    return body["attempt"], body["node"], body["clean"], body["verified"], body.get("how", "scan")


def fact_name(seq: int) -> str:
    """The file's name: the sequence number as ten digits."""
    check("fact", seq, 1, SEQ_MAX)
    return f"{seq:010d}"


def render(fact: Fact) -> bytes:
    """The bytes of a fact, ended by a newline; deterministic.

    :raises BadDataError: a field is missing or wrong, or the whole is longer than 65,536 bytes.
    """
    content: dict[str, Any] = {"v": f.VERSION, "seq": fact.seq, "at": fact.at, "kind": fact.kind, "by": fact.by}
    for name, value in fact.body.items():
        if name in content:
            raise BadDataError(f"fact {fact.seq} ({fact.kind}): a field cannot be called {name}")
        content[name] = value
    try:
        data = json.dumps(content, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode("ascii") + b"\n"
    except (TypeError, ValueError) as error:
        raise BadDataError(f"fact {fact.seq} ({fact.kind}) cannot be written as JSON: {error}") from error
    parse_fact(fact.seq, data)  # what a reader would refuse is never written
    return data


def parse_fact(seq: int, data: bytes) -> Fact:
    """The fact that file number ``seq`` holds.

    :raises BadDataError: not a JSON object of a version that is known, another number in it than its name
        says, or a field of its kind that is missing or wrong; the message names the number and the field.
    """
    where = f"fact {seq}"
    content = f.parse_object(data, where)
    if content.pop("seq", None) != seq:
        raise BadDataError(f"{where}: the number in it is not that of its name")
    kind = content.pop("kind", None)
    if not isinstance(kind, str) or kind not in KINDS:
        raise BadDataError(
            f"{where}: {show(kind)!r} is not a kind of fact that this version knows",
            hint="a newer slurm-dispatch may have written it; use that one",
        )
    where = f"{where} ({kind})"
    for name, form in (("at", f.moment), ("by", f.text), *KINDS[kind].items()):
        if name not in content:
            raise BadDataError(f"{where}: no field {name}")
        f.check_form(f"{where}: {name}", form, content[name])
    for name, (form, default) in OPTIONAL.get(kind, {}).items():
        if name in content:
            f.check_form(f"{where}: {name}", form, content[name])
        else:
            content[name] = copy(default)
    return Fact(seq, content.pop("at"), kind, content.pop("by"), MappingProxyType(content))
