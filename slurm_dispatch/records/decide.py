"""The decision: from state and observation to the next actions. Pure; performs nothing.

The law: *unknown changes nothing; one current object; no number twice; what is closed never runs again.*
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from slurm_dispatch.model.epoch import Epoch
from slurm_dispatch.records.actions import Action, AppendFact, Cancel, LookUp, Nothing, Submit
from slurm_dispatch.records.observation import ObjectAlive, ObjectEnded, Observation, Unknown
from slurm_dispatch.records.settle import Adopt, Wait, settle
from slurm_dispatch.records.state import Phase, Settled, SlurmObject, State, Submission
from slurm_dispatch.records.verdict import LAUNCH_FAILURES_MAX, verdict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurm_dispatch.rules.rule import Rule

NEVER_SUBMITTED_S = 3600.0
"""A job without an intent for this long: whoever made it has died (between the two is well under a second)."""
LISTING_LAG_S = 60.0
"""A listing of the queue may be this much older than the end that a detailed answer showed."""


@dataclass(frozen=True, slots=True)
class Policy:
    """What the site adds to the job's own specification.

    :param rules: the site's default rules, which come after the job's.
    :param max_submissions: the site's cap; the job's own counts if it is lower.
    :param launch_failures_max: submissions in a row that never start their script before the job is stopped.
    """

    rules: tuple[Rule, ...] = ()
    max_submissions: int = 999_999
    launch_failures_max: int = LAUNCH_FAILURES_MAX


def decide(state: State, observation: Observation, policy: Policy, now: float) -> list[Action]:
    """The next actions for one job, to be performed in order; never empty.

    Stop at the first that fails. If a fact was appended or a submission made, read again and decide again,
    with the same observation or a newer one, until neither comes any more. Performing a prefix only, any
    number of times, and deciding again leads to the same end. A :class:`Cancel` that was performed already
    in the same tick may be passed over.

    :param now: Unix seconds by the clock of ``observation.host``, before anything of it was asked.
    :raises BadDataError: the record's rules do not parse.
    """
    incoming = _incoming(state, observation)
    if incoming:
        return incoming
    actions = _STEPS[state.phase](state, observation, policy, now)
    if any(isinstance(action, AppendFact | Submit) for action in actions):
        return actions
    return actions + _strays(state, observation, now)


def _incoming(state: State, observation: Observation) -> list[Action]:
    """What notes say and the record has not."""
    fresh: dict[tuple[Any, ...], Action] = {}
    known = {submission.number: submission for submission in state.submissions}
    for kind, body in observation.incoming:
        key: tuple[Any, ...] = (kind, body["attempt"], body["node"], body["clean"]) if kind == "node" else ()
        if kind == "node":
            new = key[1:] not in state.nodes
        elif kind in {"progress", "ended"}:  # what the helper handed on through its node: checked where it was read
            key, new = (kind, body["attempt"]), True
        else:
            submission = known.get(body["submission"])
            key = (kind, *(body.get(name) for name in ("slurm_job_id", "restart", "start_time", "attempt", "why")))
            new = submission is not None and _is_new(state, kind, body, submission)
        if new:
            fresh.setdefault(key, AppendFact(kind, body))
    return list(fresh.values())


def _is_new(state: State, kind: str, body: Mapping[str, Any], submission: Submission) -> bool:
    if kind == "started":
        epoch = Epoch(state.spec.generation, submission.number, body["restart"])
        if body["epoch"] != str(epoch):
            return False  # the fold would refuse it, and with it the whole record
        return not any(
            execution.started
            and (execution.epoch.restart, execution.attempt) == (body["restart"], body["attempt"])
            for execution in submission.executions
        )
    told = (body["slurm_job_id"], body["restart"], body["start_time"], body["why"])
    return not any(told == (it.slurm_job_id, it.restart, it.start_time, it.why) for it in submission.refusals)


def _new(state: State, _observation: Observation, _policy: Policy, now: float) -> list[Action]:
    if state.request is not None:
        return [_close("cancelled", state.request.reason)]
    if now - state.created >= NEVER_SUBMITTED_S:
        return [_close("never_submitted", "its making was cut short before sbatch was called")]
    return [Nothing("sbatch has not been called yet", state.created + NEVER_SUBMITTED_S)]


def _submitting(state: State, observation: Observation, _policy: Policy, now: float) -> list[Action]:
    """An intent without an answer: only its writer acts before everybody else has watched long enough."""
    intent = _last(state)
    first_seen = intent.watched.get(observation.host)
    clock = now if observation.clock is None else observation.clock
    if first_seen is None or clock < first_seen:
        if isinstance(observation.seen, Unknown):
            # What was sent to a slurmctld that hangs arrives once it answers again: until then no time counts.
            why = observation.seen.why
            return [Nothing(f"submission {intent.number} has no answer, and Slurm gives none ({why})")]
        body = {"submission": intent.number, "host": observation.host, "first_seen": clock}
        return [AppendFact("watched", body)]
    if now < first_seen + intent.wait_s:
        return [Nothing(f"submission {intent.number} has no answer yet", first_seen + intent.wait_s)]
    if observation.lookups is None or observation.lookups.submission != intent.number:
        return [LookUp(intent.number)]
    found = settle(observation.lookups, asked=state.request is not None)
    if isinstance(found, Wait):
        return [Nothing(f"submission {intent.number} cannot be settled: {found.why}")]
    if isinstance(found, Adopt):
        body = {"submission": intent.number, "cluster": found.cluster, "slurm_job_id": found.slurm_job_id}
        return [AppendFact("submitted", {**body, "how": found.how})]
    if state.spec.shared:
        return [Nothing(f"submission {intent.number} is nowhere, and a shared checkpoint leaves that to a person")]
    return [AppendFact("burnt", {"submission": intent.number, "evidence": found.evidence})]


def _in_slurm(state: State, observation: Observation, _policy: Policy, _now: float) -> list[Action]:
    """The current object is queued or runs, as far as the record knows."""
    current, seen = _last(state), observation.object
    if current.object is None or isinstance(seen, Unknown):
        why = seen.why if isinstance(seen, Unknown) else "no object"
        return [Nothing(f"what became of the object is unknown ({why})")]
    if (seen.submission, seen.slurm_job_id) != (current.number, current.object.slurm_job_id):
        return [Nothing("what was seen is not of the current object")]
    ended = seen.previous if isinstance(seen, ObjectAlive) else seen
    if ended is not None and (ended.final or _unrecorded(current, ended)):
        return [AppendFact("end", _end_body(current, current.object, ended))]
    if not isinstance(seen, ObjectAlive):
        return [Nothing("the execution ended, and Slurm starts the object again")]
    if state.request is not None:
        return [Cancel(current.object, current.number, "a person asked for it")]
    if seen.pending and any(refusal.why in {"refuse", "shared"} for refusal in current.refusals):
        return [Cancel(current.object, current.number, "it was refused and must not start")]
    return [Nothing("it waits in Slurm" if seen.pending else "it runs")]


def _unrecorded(current: Submission, ended: ObjectEnded) -> bool:
    if ended.restart is None:
        return False  # nothing tells it from an end that is recorded already
    return all(end.restart is None or end.restart < ended.restart for end in current.ends)


def _end_body(current: Submission, it: SlurmObject, ended: ObjectEnded) -> dict[str, Any]:
    return {
        "submission": current.number,
        "slurm_job_id": it.slurm_job_id,
        "restart": ended.restart,
        "start_time": ended.start_time,
        "outcome": ended.outcome.value,
        "evidence": dict(ended.evidence),
        "final": ended.final,
    }


def _ended(state: State, _observation: Observation, policy: Policy, now: float) -> list[Action]:
    """The submission is over: decide what follows, once."""
    current = _last(state)
    if current.decision is None and current.settled is Settled.REJECTED:
        return [_close("rejected", current.message)]
    if current.settled is Settled.BURNT and state.request is not None:
        return [_close("cancelled", state.request.reason)]
    if current.decision is None and current.settled is Settled.BURNT:
        # The wrapper never said that it had submitted; who typed the command will have tried again.
        return [_close("never_submitted", current.message)]
    found = verdict(state, policy.rules, policy.max_submissions, policy.launch_failures_max, now)
    if state.request is not None and found.close != "completed":
        return [_close("cancelled", state.request.reason)]
    return [AppendFact("decision", found.body())]


def _waiting(state: State, _observation: Observation, _policy: Policy, now: float) -> list[Action]:
    decision = state.decision
    if state.request is not None:
        return [_close("cancelled", state.request.reason)]
    if decision is None or decision.submission is None:
        return [Nothing("no decision names the next submission")]
    if decision.not_before is not None and now < decision.not_before:
        return [Nothing(f"submission {decision.submission} waits", decision.not_before)]
    return [Submit(decision.submission, (), decision.seq)]


def _stopping(state: State, _observation: Observation, _policy: Policy, _now: float) -> list[Action]:
    decision = state.decision
    if decision is None:
        return [Nothing("no decision says why")]
    return [_close(decision.close or "stopped", decision.reason)]


def _closed(_state: State, _observation: Observation, _policy: Policy, _now: float) -> list[Action]:
    return [Nothing("it is closed")]


_STEPS = {
    Phase.NEW: _new,
    Phase.SUBMITTING: _submitting,
    Phase.QUEUED: _in_slurm,
    Phase.RUNNING: _in_slurm,
    Phase.ENDED: _ended,
    Phase.WAITING: _waiting,
    Phase.STOPPING: _stopping,
    Phase.CLOSED: _closed,
}


def _strays(state: State, observation: Observation, now: float) -> list[Action]:
    """Objects in the queue with this job's word that are not the current one, each to be cancelled."""
    if isinstance(observation.seen, Unknown):
        return []
    actions: list[Action] = []
    known = {submission.number: submission for submission in state.submissions}
    for seen in observation.seen:
        submission = known.get(seen.submission)
        # A number that this record does not have yet: somebody else has just written it.
        if submission is None or not seen.alive or seen.uid != state.spec.uid:
            continue
        if seen.generation != state.spec.generation or submission.settled is Settled.OPEN:
            continue
        it = SlurmObject(seen.cluster, seen.slurm_job_id)
        if submission.object == it and not _outlived(state, submission, now):
            continue
        actions.append(Cancel(it, seen.submission, "it is not the job's current object", stray=True))
        if (seen.submission, seen.slurm_job_id) not in state.strays:
            body = {"submission": seen.submission, "slurm_job_id": seen.slurm_job_id, "cluster": seen.cluster}
            actions.append(AppendFact("stray", body))
    return actions


def _outlived(state: State, submission: Submission, now: float) -> bool:
    """Whether the submission's own object should be gone: it ended, and the job went on or is closed."""
    if submission is state.current and state.phase is not Phase.CLOSED:
        return False
    return submission.end is None or now - submission.end.at >= LISTING_LAG_S


def _last(state: State) -> Submission:
    return state.submissions[-1]  # the law: no phase but new and closed is without a submission


def _close(why: str, reason: str) -> AppendFact:
    return AppendFact("closed", {"why": why, "reason": reason})
