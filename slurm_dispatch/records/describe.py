"""Facts and states in words for a person. No I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from slurm_dispatch.errors import one_line
from slurm_dispatch.records.state import Phase, Settled, State

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from slurm_dispatch.records.facts import Fact


def fact_text(fact: Fact) -> str:
    """What the fact says, in one line without number, time and author."""
    return one_line(_TEXTS[fact.kind](fact.body))


def state_text(state: State) -> str:
    """The phase, and what it means for this job, in a few words."""
    if state.closed is not None:
        return f"closed: {state.closed.why}"
    if state.request is not None:
        return f"{state.phase}, {state.request.what} asked for"
    if state.phase is Phase.SUBMITTING:
        return "submitting, no answer yet"
    return str(state.phase)


def last_outcome(state: State) -> str | None:
    """How the latest execution that is over ended, or ``None`` while none is."""
    for submission in reversed(state.submissions):
        if submission.ends:
            return str(submission.ends[-1].outcome)
        if submission.settled in {Settled.REJECTED, Settled.BURNT}:
            return str(submission.settled.value)
    return None


def _change(body: Mapping[str, Any]) -> str:
    return " with " + " ".join(body["changes"]) if body["changes"] else ""


def _ended(body: Mapping[str, Any]) -> str:
    how = body["outcome"] or (
        f"signal {body['signal']}" if body["signal"] is not None else f"status {body['status']}"
    )
    step = "nothing published" if body["step"] is None else f"last published step {body['step']}"
    return f"the command ended: {how}, {step}"


def _end(body: Mapping[str, Any]) -> str:
    state = body["evidence"].get("state")
    then = "" if body["final"] else "; Slurm restarts it"
    return f"Slurm job {body['slurm_job_id']} ended: {body['outcome']}" + (f" ({state})" if state else "") + then


def _decision(body: Mapping[str, Any]) -> str:
    what = f"{body['outcome']}: {body['action']}"
    if body["submission"] is not None:
        what += f" as submission {body['submission']}"
    budget = "" if body["budget"] is None else f", {body['budget_used']} of {body['budget']} were used"
    return f"{what}, because {body['reason']}{budget}"


def _node(body: Mapping[str, Any]) -> str:
    clean = {True: "is clean", False: f"still has {len(body['left'])} processes", None: "could not be searched"}
    return f"node {body['node']} {clean[body['clean']]} after attempt {body['attempt']}"


_TEXTS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "spec": lambda b: f"job {b['name']} of {b['user']}, submitted on {b['host']} from {b['workdir']}",
    "intent": lambda b: f"submission {b['submission']} is about to be made on {b['host']}" + _change(b),
    "submitted": lambda b: f"submission {b['submission']} is Slurm job {b['slurm_job_id']} (known by {b['how']})",
    "rejected": lambda b: f"submission {b['submission']} was refused by sbatch with {b['status']}: {b['message']}",
    "burnt": lambda b: f"submission {b['submission']} never reached Slurm: {b['evidence']}",
    "watched": lambda b: f"{b['host']} began to watch submission {b['submission']}",
    "started": lambda b: (
        f"Slurm job {b['slurm_job_id']} started on {b['nodes']}, epoch {b['epoch']}, attempt {b['attempt']}"
    ),
    "refused": lambda b: f"Slurm job {b['slurm_job_id']} was not let start: {b['why']}",
    "progress": lambda b: (
        f"step {b['step']} is published"
        + ("" if b["resumed_from"] is None else f", resumed from {b['resumed_from']}")
    ),
    "ended": _ended,
    "node": _node,
    "end": _end,
    "decision": _decision,
    "request": lambda b: f"{b['what']} was asked for" + (f": {b['reason']}" if b["reason"] else ""),
    "stray": lambda b: f"Slurm job {b['slurm_job_id']} of submission {b['submission']} is a stray: cancelled",
    "closed": lambda b: f"closed: {b['why']}" + (f", {b['reason']}" if b["reason"] else ""),
}
