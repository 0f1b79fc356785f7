"""The decision: from state and observation to the next actions. Pure; performs nothing.

The law: *unknown changes nothing; one current object; no number twice; nothing is started while it is held; what
is closed never runs again.*
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from slurm_dispatch.errors import BadDataError
from slurm_dispatch.model.epoch import Epoch
from slurm_dispatch.records.actions import (
    Action,
    AppendFact,
    Cancel,
    LookUp,
    Nothing,
    Repoint,
    Requeue,
    Submit,
    Tell,
    UpdateObject,
)
from slurm_dispatch.records.changes import requeued_fields
from slurm_dispatch.records.decide_elder import elder, suspicion
from slurm_dispatch.records.decide_holds import NEVER_SUBMITTED_S, close, held, new
from slurm_dispatch.records.facts import node_key
from slurm_dispatch.records.law import Phase
from slurm_dispatch.records.observation import ObjectAlive, ObjectEnded, Observation, Unknown
from slurm_dispatch.records.settle import Adopt, Wait, settle
from slurm_dispatch.records.state import Settled, SlurmObject, State, Submission
from slurm_dispatch.records.verdict import NEVER, left_to_a_person, verdict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurm_dispatch.records.policy import Policy

DEPENDENCY_S = 600.0
"""A dependency that can never be met is told after this: what it names may be submitted again, and it re-pointed."""
REPOINT_S = 240.0
"""So long a completed job waits for its dependents to be asked for: by default Slurm remembers it for longer."""
LISTING_LAG_S = 60.0
"""A listing of the queue may be this much older than the end that a detailed answer showed."""


def decide(state: State, observation: Observation, policy: Policy, now: float) -> list[Action]:
    """The next actions for one job, to be performed in order; never empty.

    Stop at the first that fails (save :class:`UpdateObject`). If a fact was appended or a submission made, read
    again and decide again, with the same observation or a newer one, until neither comes any more; likewise
    once for what :class:`LookUp`, :class:`AskCessation` and :class:`CloseElder` ask, with the answer. Performing
    a prefix only, any number of times, and deciding again leads to the same end. A :class:`Cancel` or
    :class:`Requeue` that was performed already in the same tick may be passed over.

    :param now: Unix seconds by the clock of ``observation.host``, before anything of it was asked.
    :raises BadDataError: the record's rules do not parse.
    """
    incoming = _incoming(state, observation)
    if incoming:
        return incoming
    actions = _dependents(state, observation) + elder(state, observation)
    if not any(isinstance(action, AppendFact | Nothing) for action in actions):
        actions = actions + _STEPS[state.phase](state, observation, policy, now)
    if any(isinstance(action, AppendFact | Submit) for action in actions):
        return actions
    return actions + _strays(state, observation, now)


def _incoming(state: State, observation: Observation) -> list[Action]:
    """What notes say and the record has not."""
    fresh: dict[tuple[Any, ...], Action] = {}
    known = {submission.number: submission for submission in state.submissions}
    for kind, body in observation.incoming:
        key: tuple[Any, ...]
        if kind == "node":
            key = node_key(body)
            new = key not in state.nodes
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


def _submitting(state: State, observation: Observation, policy: Policy, now: float) -> list[Action]:
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
    over = state.request is not None or state.phase is Phase.CLOSED
    found = settle(observation.lookups, asked=over)
    if isinstance(found, Wait):
        return [Nothing(f"submission {intent.number} cannot be settled: {found.why}")]
    if isinstance(found, Adopt):
        body = {"submission": intent.number, "cluster": found.cluster, "slurm_job_id": found.slurm_job_id}
        return [AppendFact("submitted", {**body, "how": found.how})]
    if state.spec.shared and state.phase is not Phase.CLOSED:
        return [AppendFact("decision", left_to_a_person(state, policy, now).body())]
    return [AppendFact("burnt", {"submission": intent.number, "evidence": found.evidence})]


def _in_slurm(state: State, observation: Observation, policy: Policy, now: float) -> list[Action]:
    """The current object is queued or runs, as far as the record knows."""
    current, seen = _last(state), observation.object
    it = current.object
    if it is None or isinstance(seen, Unknown):
        why = seen.why if isinstance(seen, Unknown) else "no object"
        return [Nothing(f"what became of the object is unknown ({why})")]
    if (seen.submission, seen.slurm_job_id) != (current.number, it.slurm_job_id):
        return [Nothing("what was seen is not of the current object")]
    ended = seen.previous if isinstance(seen, ObjectAlive) else seen
    if ended is not None and _is_new_end(state, current, ended):
        return [AppendFact("end", end_body(it, ended))]
    if not isinstance(seen, ObjectAlive):
        return [Nothing("the execution ended, and Slurm starts the object again")]
    if state.request is not None:
        return [Cancel(it, current.number, "a person asked for it")]
    if seen.pending and any(refusal.why in {"refuse", "shared"} for refusal in current.refusals):
        return [Cancel(it, current.number, "it was refused and must not start")]
    if seen.pending:
        return _waits_in_slurm(state, current, seen, now)
    if state.slurm_hold is not None:
        return [_slurm_hold(current, it, None)]
    return suspicion(state, seen, observation, policy, now)


def _waits_in_slurm(state: State, current: Submission, seen: ObjectAlive, now: float) -> list[Action]:
    """It is pending. A hold that Slurm or an operator made is put on record and told, and never lifted by us (C043,
    C057): nobody here knows whether its cause is gone."""
    hold, it = state.slurm_hold, current.object
    if state.phase is not Phase.QUEUED:
        return [Nothing("it waits in Slurm again, and how its last execution ended is not known yet")]
    if it is not None and (hold.reason if hold is not None else "") != seen.held:
        return [_slurm_hold(current, it, seen.held or None)]
    if hold is None:
        return [Nothing("it waits in Slurm")]
    why = f"Slurm does not start it before a person acts there ({hold.reason})"
    if hold.reason == "JobHeldUser" or (hold.seq, "notice") in state.told:
        return [Nothing(why)]  # of a hold of his own the owner need not be told
    due = hold.at + (DEPENDENCY_S if hold.reason == NEVER else 0.0)
    return [Nothing(why, due)] if now < due else [Tell(hold.seq, "notice"), Nothing(why)]


def _slurm_hold(current: Submission, it: SlurmObject, reason: str | None) -> AppendFact:
    body = {"submission": current.number, "slurm_job_id": it.slurm_job_id, "reason": reason}
    return AppendFact("slurm_hold", body)


def _dependents(state: State, observation: Observation) -> list[Action]:
    """Jobs that wait for an object which was replaced wait for the current one instead (C083), once it was seen.

    The owner is told of those that could not be changed, whatever has become of the job meanwhile.
    """
    it, seen, told = state.object, observation.object, state.repointed
    shown = it is not None and not isinstance(seen, Unknown) and seen.slurm_job_id == it.slurm_job_id
    if it is not None and shown and state.must_repoint:
        return [Repoint(it, _last(state).number)]
    if told is not None and told.left and (told.seq, "notice") not in state.told:
        return [Tell(told.seq, "notice")]
    return []


def _is_new_end(state: State, current: Submission, ended: ObjectEnded) -> bool:
    """Not one that the record has: a final one comes once, unless we had the object requeued since."""
    if ended.final and not current.back:
        return True
    if ended.final and ended.restart is None:
        return not state.requeued
    return _unrecorded(current, ended)


def _unrecorded(current: Submission, ended: ObjectEnded) -> bool:
    if ended.restart is None:
        return False  # nothing tells it from an end that is recorded already
    return all(end.restart is None or end.restart < ended.restart for end in current.ends)


def end_body(it: SlurmObject, ended: ObjectEnded) -> dict[str, Any]:
    """The fields of a fact ``end``."""
    return {
        "submission": ended.submission,
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
        return [close("rejected", current.message)]
    if current.settled is Settled.BURNT and state.request is not None:
        return [close("cancelled", state.request.reason)]
    if current.decision is None and current.settled is Settled.BURNT:
        # The wrapper never said that it had submitted; who typed the command will have tried again.
        return [close("never_submitted", current.message)]
    found = verdict(state, policy, now)
    if found.close == "completed" and state.must_repoint:
        # It is what its dependents wait for: they are re-pointed before it is closed, while Slurm still knows it.
        it, until = current.object, (0.0 if state.over is None else state.over.at) + REPOINT_S
        if it is not None and now < until:
            return [Repoint(it, current.number), Nothing("jobs that depend on it could not be asked for yet", until)]
    if state.request is not None and found.close != "completed":
        return [close("cancelled", state.request.reason)]
    return [AppendFact("decision", found.body())]


def _waiting(state: State, _observation: Observation, policy: Policy, now: float) -> list[Action]:
    due = state.due
    if state.request is not None:
        return [close("cancelled", state.request.reason)]
    if due is None:
        return [Nothing("nothing names the next submission")]
    if due.not_before is not None and now < due.not_before:
        return [Nothing(f"submission {due.submission} waits", due.not_before)]
    if state.adopting_until is not None and now < state.adopting_until and not policy.adopted:
        return [Nothing(f"submission {due.submission} waits for a person who adopts a save", state.adopting_until)]
    return [Submit(due.submission, due.changes, due.seq)]


def _requeuing(state: State, observation: Observation, policy: Policy, _now: float) -> list[Action]:
    """The object ended, and Slurm is to take it again under the same id."""
    current, seen, decision = _last(state), observation.object, state.decision
    it = current.object
    over = max((end.restart for end in current.ends if end.restart is not None), default=0)
    begun = 0 if it is None else _begun(current, it)
    if it is not None and current.ends and begun > over:
        # Its hook noted a start after the end: Slurm has requeued it, whatever can be seen of it now.
        return [_requeued(current, it, begun)]
    if it is None or decision is None or isinstance(seen, Unknown):
        why = seen.why if isinstance(seen, Unknown) else "no object"
        return [Nothing(f"whether Slurm has requeued it is unknown ({why})")]
    if (seen.submission, seen.slurm_job_id) != (current.number, it.slurm_job_id):
        return [Nothing("what was seen is not of the current object")]
    if isinstance(seen, ObjectEnded):
        if state.request is not None:
            return [close("cancelled", state.request.reason)]
        before = current.ends[-1].restart if current.ends else None
        if before is None or seen.restart is None or seen.restart <= before:
            return [Requeue(it, current.number)]
        # It was requeued, and what came of that is over too, before anybody saw it wait.
        return [_requeued(current, it, seen.restart)]
    actions: list[Action] = []
    if seen.pending:
        fields = requeued_fields(state, policy.spare, decision.changes)
        actions.append(UpdateObject(it, current.number, fields))
    return [*actions, _requeued(current, it, over + 1 if seen.restart is None else seen.restart)]


def _begun(current: Submission, it: SlurmObject) -> int:
    """The greatest restart count of the object's starts."""
    starts = (each for each in current.executions if each.started and each.slurm_job_id == it.slurm_job_id)
    return max((each.epoch.restart for each in starts), default=0)


def _requeued(current: Submission, it: SlurmObject, restart: int) -> AppendFact:
    body = {"submission": current.number, "slurm_job_id": it.slurm_job_id, "restart": restart}
    return AppendFact("requeued", body)


def _stopping(state: State, _observation: Observation, _policy: Policy, _now: float) -> list[Action]:
    decision = state.decision
    if decision is None:
        return [Nothing("no decision says why")]
    return [close(decision.close or "stopped", decision.reason)]


def _closed(state: State, observation: Observation, policy: Policy, now: float) -> list[Action]:
    if state.current is not None and state.current.settled is Settled.OPEN:
        return _submitting(state, observation, policy, now)  # superseded: what it made must still be found
    return [Nothing("it is closed")]


_STEPS = {
    Phase.NEW: new,
    Phase.SUBMITTING: _submitting,
    Phase.QUEUED: _in_slurm,
    Phase.RUNNING: _in_slurm,
    Phase.ENDED: _ended,
    Phase.WAITING: _waiting,
    Phase.HELD: held,
    Phase.REQUEUING: _requeuing,
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
        it = SlurmObject(seen.cluster, seen.slurm_job_id)
        if seen.generation != state.spec.generation or _is_kept(state, submission, it):
            continue
        if submission.object == it and not _outlived(state, submission, now):
            continue
        # The fact comes first: once it is cancelled nothing shows it any more, and the record would not say why.
        if (seen.submission, seen.slurm_job_id) not in state.strays:
            body = {"submission": seen.submission, "slurm_job_id": seen.slurm_job_id, "cluster": seen.cluster}
            actions.append(AppendFact("stray", body))
        actions.append(Cancel(it, seen.submission, "it is not the job's current object", stray=True))
    return actions


def _is_kept(state: State, submission: Submission, it: SlurmObject) -> bool:
    """It is not a stray, or not ours to cancel yet."""
    if state.closed is not None and state.closed.keep == it.slurm_job_id and submission.object in {None, it}:
        return True
    if submission.settled is Settled.OPEN:
        return state.phase is not Phase.CLOSED
    # A suspected object lives on until its replacement runs: decide_elder ends it.
    suspected = None if state.elder is None or state.phase is Phase.CLOSED else state.elder.object
    return suspected == it


def _outlived(state: State, submission: Submission, now: float) -> bool:
    """Whether the submission's own object should be gone: it ended, or was replaced, or the job is closed.

    An object that ended for good and that somebody had requeued is one, too, while its job is held. What waits
    without an end is replaced (fact ``adopted``).
    """
    if submission is state.current and state.phase not in {Phase.WAITING, Phase.HELD, Phase.CLOSED}:
        return False
    return submission.end is None or now - submission.end.at >= LISTING_LAG_S


def _last(state: State) -> Submission:
    current = state.current  # the law: none of these phases is without one
    if current is None:
        raise BadDataError(f"job {state.spec.job} is {state.phase} and has no submission")
    return current


__all__ = ["LISTING_LAG_S", "NEVER_SUBMITTED_S", "decide", "end_body"]
