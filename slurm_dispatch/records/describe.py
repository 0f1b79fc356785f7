"""Facts and states in words for a person. No I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from slurm_dispatch.errors import one_line
from slurm_dispatch.model.outcome import Action, Outcome
from slurm_dispatch.records.state import Phase, Settled, State

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from slurm_dispatch.records.facts import Fact


def fact_text(fact: Fact) -> str:
    """What the fact says, in one line without number, time and author."""
    return body_text(fact.kind, fact.body)


def body_text(kind: str, body: Mapping[str, Any]) -> str:
    """What a fact of this kind says."""
    return one_line(_TEXTS[kind](body))


def notice(state: State, on: int) -> tuple[str, str]:
    """What the owner is told of fact ``on``: (why, in words)."""
    hold, left, holding = state.slurm_hold, state.repointed, state.holding
    if hold is not None and hold.seq == on:
        return "slurm_hold", f"Slurm does not start the job before a person acts there ({hold.reason})"
    if left is not None and left.seq == on:
        jobs = "; ".join(f"Slurm job {number}: {why}" for number, why in left.left)
        return "dependents", f"jobs that depended on an earlier Slurm job of it could not be changed: {jobs}"
    return ("", "") if holding is None else (holding.why, holding.reason)


def state_text(state: State) -> str:
    """The phase, and what it means for this job, in a few words."""
    if state.closed is not None:
        return f"closed: {state.closed.why}"
    if state.request is not None:
        return f"{state.phase}, {state.request.what} asked for"
    if state.holding is not None:
        return f"held: {state.holding.why}"
    if state.phase is Phase.SUBMITTING:
        return "submitting, no answer yet"
    if state.slurm_hold is not None:
        return f"{state.phase}, held in Slurm: {state.slurm_hold.reason}"
    if state.hold is not None:
        return f"{state.phase}, then held"
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
    step = "no save of it is known" if body["step"] is None else f"its last save is step {body['step']}"
    return f"the command ended: {how}, {step}"


def _end(body: Mapping[str, Any]) -> str:
    state = body["evidence"].get("state")
    then = "" if body["final"] else "; Slurm restarts it"
    by = ""
    if body["outcome"] == Outcome.CANCELLED.value:
        uid = body["evidence"].get("by_uid")
        by = "" if uid is None else f", by {'root' if uid == 0 else f'uid {uid}'}"
    return f"Slurm job {body['slurm_job_id']} ended: {body['outcome']}" + (f" ({state})" if state else "") + by + then


def _decision(body: Mapping[str, Any]) -> str:
    what = f"{body['outcome']}: {body['action']}"
    if body["submission"] is not None:
        what += ", then" if body["action"] == Action.HOLD.value else " as"
        what += f" submission {body['submission']}"
    budget = ""
    if body["free"]:
        budget = " (it costs no budget)"
    elif body["budget"] is not None and body["why"] != "budget":
        budget = f" (of its budget {body['budget_used']} of {body['budget']} were used)"
    changes = _change(body)
    return f"{what}{changes}, because {body['reason']}{budget}"


def _refused(body: Mapping[str, Any]) -> str:
    why = {
        "shared": "its checkpoint is shared, and it ran before",
        "double_start": "Slurm started it twice",
        "refuse": "a tick had forbidden it",
    }
    return f"Slurm job {body['slurm_job_id']} was not let start: {why[body['why']]}"


def _node(body: Mapping[str, Any]) -> str:
    clean = {True: "is clean", False: f"still has {len(body['left'])} processes", None: "could not be searched"}
    return f"node {body['node']} {clean[body['clean']]} after attempt {body['attempt']}"


def _because(body: Mapping[str, Any]) -> str:
    return f": {body['reason']}" if body["reason"] else ""


def _release(body: Mapping[str, Any]) -> str:
    how = {"person": "a person released it", "ceased": "it is released", "breaker": "the site released it"}
    return how[body["how"]] + _because(body)


def _told(body: Mapping[str, Any]) -> str:
    what = {
        "start": "that it is held",
        "half": "that half of the hold is over",
        "last_hour": "that the hold ends within an hour",
        "expired": "that the hold ran out",
        "notice": f"of fact {body['on']}",
    }
    if body["status"] is None:
        return f"nobody told the owner {what[body['what']]}: there is no notify command, or it did not run to its end"
    how = "" if body["status"] == 0 else f"; the notify command ended with {body['status']}"
    return f"the owner was told {what[body['what']]}{how}"


def _slurm_hold(body: Mapping[str, Any]) -> str:
    number, reason = body["slurm_job_id"], body["reason"]
    if reason is None:
        return f"Slurm job {number} is held in Slurm no more"
    return f"Slurm does not start job {number} before a person acts there ({reason})"


def _dependents(body: Mapping[str, Any]) -> str:
    if body["jobs"] is None:
        return "whether other jobs depend on it is not known yet"
    return f"Slurm jobs that depend on it: {', '.join(map(str, body['jobs'])) or 'none'}"


def _repointed(body: Mapping[str, Any]) -> str:
    moved, left = body["moved"], body["left"]
    parts = [f"{', '.join(map(str, moved))} now depend on Slurm job {body['slurm_job_id']}"] if moved else []
    parts += [f"{it['slurm_job_id']} does not: {it['why']}" for it in left]
    return f"of the Slurm jobs that depended on it, {'; '.join(parts)}" if parts else "none is left"


def _cessation(body: Mapping[str, Any]) -> str:
    says = {
        "ceased": "all processes are gone",
        "running": "processes are still there",
        "unknown": "whether processes are still there is unknown",
    }
    detail = f": {body['detail']}" if body["detail"] else ""
    times = "" if body["count"] == 1 else f", {body['count']} times"
    return f"attempt {body['attempt']}: {says[body['answer']]}, says {body['source']}{times}{detail}"


def _updated(body: Mapping[str, Any]) -> str:
    parts = [name for name in ("argv", "script_args", "rules") if body[name] is not None]
    parts += ["script"] if body["script_sha256"] is not None else []
    parts += sorted(body["settings"])
    return f"the next submission is changed ({', '.join(parts) or 'nothing'})" + _because(body)


def _took_over(body: Mapping[str, Any]) -> str:
    older = len(body["executions"])
    waits = f"; {older} of its executions may still run" if older else ""
    return f"it goes on in place of job {body['elder']}{waits}"


def _closed(body: Mapping[str, Any]) -> str:
    by = "" if body["by_job"] is None else f" by job {body['by_job']}"
    return f"closed: {body['why']}{by}" + (f", {body['reason']}" if body["reason"] else "")


def _saves(count: int) -> str:
    return "1 outranked save" if count == 1 else f"{count} outranked saves"


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
    "refused": _refused,
    "progress": lambda b: (
        f"step {b['step']} is saved"
        + ("" if b["resumed_from"] is None else f", resumed from {b['resumed_from']}")
        + (f"; the helper removed {_saves(b['removed'])}" if b["removed"] else "")
    ),
    "ended": _ended,
    "node": _node,
    "end": _end,
    "decision": _decision,
    "hold": lambda b: "a person holds it" + _because(b) + ("" if b["for_s"] is None else f", for {b['for_s']:g} s"),
    "release": _release,
    "held": lambda b: f"the hold of fact {b['on']} has counted {b['counted_s']:.0f} s",
    "told": _told,
    "slurm_hold": _slurm_hold,
    "dependents": _dependents,
    "repointed": _repointed,
    "cessation": _cessation,
    "requeued": lambda b: f"Slurm has job {b['slurm_job_id']} again, restart count {b['restart']}",
    "requeue_failed": lambda b: f"Slurm does not requeue job {b['slurm_job_id']}: {b['why']}",
    "suspected": lambda b: (
        f"Slurm job {b['slurm_job_id']} is to be replaced: {', '.join(b['nodes'])} does not answer"
    ),
    "cleared": lambda b: f"submission {b['submission']} is current again" + _because(b),
    "updated": _updated,
    "adopted": lambda b: (
        f"publication {b['publication']} was given to it as {b['name']}, under submission {b['submission']}"
        + _because(b)
    ),
    "took_over": _took_over,
    "reopened": lambda b: f"opened again, submission {b['submission']} is next" + _because(b),
    "request": lambda b: f"{b['what']} was asked for" + (f": {b['reason']}" if b["reason"] else ""),
    "stray": lambda b: f"Slurm job {b['slurm_job_id']} of submission {b['submission']} is a stray: cancelled",
    "removed": lambda b: f"{_saves(b['count'])} removed by hand: {', '.join(b['paths'][:3])}"
    + (", ..." if b["count"] > 3 else ""),
    "closed": _closed,
}
