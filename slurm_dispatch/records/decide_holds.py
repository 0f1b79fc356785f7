"""The decision for a job that is held, or that waits for the job that it supersedes. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from slurm_dispatch.model.outcome import Action as Does
from slurm_dispatch.records.actions import Action, AppendFact, AskCessation, CloseElder, Nothing, Tell
from slurm_dispatch.records.elders import not_ceased
from slurm_dispatch.records.fold_holds import BY_THE_SITE
from slurm_dispatch.records.observation import Unknown

if TYPE_CHECKING:
    from slurm_dispatch.records.observation import CessationAnswer, Observation, SiteClock
    from slurm_dispatch.records.policy import Policy
    from slurm_dispatch.records.state import Holding, State

NEVER_SUBMITTED_S = 3600.0
"""A job without an intent for this long: whoever made it has died (between the two is well under a second)."""
ELDER_WAIT_S = 600.0
"""How long a job waits for what became of a shared elder's object; then a person decides what cessation cannot."""
COUNTED_MAX = 1440
"""So many equal answers are a fact of their own: what counts them until then can be lost."""
EXECUTIONS_SIZE_MAX = 40 * 1024
"""Characters of an elder's executions: they must fit into a fact. With more than that, a person decides."""
EXECUTION_SIZE = 160
"""Of one, beside its node list and its cluster."""
LAST_HOUR_S = 3600.0
LAST_LOOK_S = 10.0
"""An answer that was given no longer than this before a hold ran out is the last one that is asked for."""
LAST_WORD_S = 600.0
"""How long after a hold has run out it is waited for that one."""


def new(state: State, observation: Observation, _policy: Policy, now: float) -> list[Action]:
    """Before the first sbatch, which the wrapper calls itself, unless the job supersedes another."""
    if state.request is not None:
        return [close("cancelled", state.request.reason)]
    if state.spec.supersedes is not None:
        return _supersedes(state, state.spec.supersedes, observation, now)
    if now - state.created >= NEVER_SUBMITTED_S:
        return [close("never_submitted", "its making was cut short before sbatch was called")]
    return [Nothing("sbatch has not been called yet", state.created + NEVER_SUBMITTED_S)]


def _supersedes(state: State, key: str, observation: Observation, now: float) -> list[Action]:
    elder = observation.elder_closed
    if isinstance(elder, Unknown):
        return [Nothing(f"what became of job {key} is unknown ({elder.why})")]
    if elder is None:
        return [CloseElder(key, state.spec.keep)]
    if elder.by_job is None:
        return [close("never_submitted", f"job {key} had ended by itself before it could be superseded")]
    if elder.by_job != state.spec.job:
        return [close("never_submitted", f"job {elder.by_job} superseded job {key} first")]
    if not elder.complete and now - state.created < ELDER_WAIT_S:
        until = state.created + ELDER_WAIT_S
        return [Nothing(f"what became of the last submission of job {key} is not known yet", until)]
    executions: list[dict[str, Any]] = []
    size = 0
    for it in elder.executions:
        size += len(it.nodes) + len(it.cluster) + EXECUTION_SIZE
        if size > EXECUTIONS_SIZE_MAX:
            break
        executions.append(
            {
                "attempt": it.attempt,
                "slurm_job_id": it.slurm_job_id,
                "cluster": it.cluster,
                "nodes": it.nodes,
                "start_time": it.start_time,
            }
        )
    body = {
        "elder": key,
        "elder_seq": elder.seq,
        "executions": executions,
        "submission": state.next_number,
        "complete": elder.complete and len(executions) == len(elder.executions),
    }
    return [AppendFact("took_over", body)]


def held(state: State, observation: Observation, policy: Policy, now: float) -> list[Action]:
    """Nothing is started. What lifts the hold, what ends it, and whom it is told."""
    holding = state.holding
    if state.request is not None:
        return [close("cancelled", state.request.reason)]
    if holding is None:
        return [Nothing("nothing says what holds it")]
    if holding.why in BY_THE_SITE and state.hold is None and not state.spec.shared and _lets(policy):
        return [_release(holding, "breaker", "what the site held it for is over")]
    waiting = not_ceased(state) if holding.ceased else ()
    clock = observation.clock_ran
    length_s = policy.limits.longest_hold_s if holding.for_s is None else holding.for_s
    length_s = min(length_s, policy.limits.longest_hold_s)
    own_s = length_s - counted_s(state, clock)
    left_s = left_of(own_s, policy.holds_until, now)
    lately = now + left_s - LAST_LOOK_S if left_s <= 0 else None
    answers = [
        AppendFact("cessation", _answer_body(it.attempt, answer))
        for it in waiting
        if (new := observation.cessation.get(it.attempt)) is not None and _is_news(state, it.attempt, new, lately)
        for answer in (new.before, new)
        if answer is not None
    ]
    if answers:
        return list(answers)
    if holding.ceased and not waiting and _lets(policy):
        return [_release(holding, "ceased", "every older execution has ceased")]
    unasked = tuple(it for it in waiting if it.attempt not in observation.cessation) if policy.cessation else ()
    asks: list[Action] = [AskCessation(unasked)] if unasked else []
    if clock is None:
        return [*asks, Nothing(f"held ({holding.why}), and the site's clock could not be read")]
    moved = _clock(state, holding, clock)
    if moved is not None:
        return [moved]
    if lately is not None and left_s > -LAST_WORD_S and policy.cessation:
        # The record says who was asked since: answers are there for one pass, and the owner's telling takes another.
        silent = tuple(it for it in waiting if not _answered_since(state, it.attempt, lately))
        if silent:
            return [AskCessation(silent, last=True)]
    what = _due(length_s, left_s)
    if (holding.seq, what) not in state.told:
        return [Tell(holding.seq, what, max(0.0, left_s))]
    if left_s <= 0:
        return [close("hold_expired", f"nobody released it: {holding.reason}")]
    why = holding.reason
    if own_s <= 0:
        why = "its time is over, and it does not run out in a maintenance, nor soon after it"
    return [*asks, Nothing(f"held ({holding.why}): {why}", now + _next(length_s, left_s, policy, asks))]


def counted_s(state: State, clock: SiteClock | None) -> float:
    """How much of the hold has been counted, by the site's clock."""
    base = state.held
    if base is None:
        return 0.0
    if clock is None or clock.id != base.clock:
        return base.counted_s
    return base.counted_s + max(0.0, clock.ran_s - base.ran_s)


def left_of(own_s: float, holds_until: float | None, now: float) -> float:
    """Seconds until a hold runs out, negative once it has: as late as its length says, and a maintenance.

    :param own_s: what of its length has not been counted.
    :param holds_until: as in :class:`~slurm_dispatch.records.policy.Policy`.
    """
    return own_s if holds_until is None else max(own_s, holds_until - now)


def _lets(policy: Policy) -> bool:
    """Whether the site has nothing against a submission now."""
    limits = policy.limits
    return policy.breaker is None and Does.RESUBMIT in limits.allowed and limits.resubmissions_left != 0


def _clock(state: State, holding: Holding, clock: SiteClock) -> AppendFact | None:
    """A new base of the hold's clock where there is none, or where the site's clock began anew."""
    base = state.held
    if base is not None and base.clock == clock.id and base.ran_s <= clock.ran_s:
        return None
    before = 0.0 if base is None else base.counted_s
    body = {"on": holding.seq, "clock": clock.id, "ran_s": clock.ran_s, "counted_s": before}
    return AppendFact("held", body)


def _due(length_s: float, left_s: float) -> str:
    """What the owner is to know by now; what he was not told in time is left out."""
    if left_s <= 0:
        return "expired"
    if left_s <= LAST_HOUR_S and length_s > 2 * LAST_HOUR_S:
        return "last_hour"
    return "half" if left_s <= length_s / 2 else "start"


def _next(length_s: float, left_s: float, policy: Policy, asks: list[Action]) -> float:
    """Seconds until there is something to do."""
    times = [left_s]
    times += [left_s - mark for mark in (LAST_HOUR_S, length_s / 2) if left_s > mark]
    if asks:
        times.append(policy.cessation_interval_s)
    return min(times)


def _answered_since(state: State, attempt: str, moment: float) -> bool:
    before = state.cessation.get(attempt)
    return before is not None and before.last >= moment


def _is_news(state: State, attempt: str, answer: CessationAnswer, lately: float | None) -> bool:
    """Equal answers in a row are one fact; the last one of a hold is always one."""
    before = state.cessation.get(attempt)
    if before is None or (before.answer, before.source) != (answer.answer, answer.source):
        return True
    if lately is not None and before.last < lately <= answer.at:
        return True
    return answer.count >= COUNTED_MAX and answer.at > before.last


def _answer_body(attempt: str, answer: CessationAnswer) -> dict[str, Any]:
    return {
        "attempt": attempt,
        "answer": answer.answer,
        "source": answer.source,
        "detail": answer.detail,
        "count": answer.count,
        "first": answer.at if answer.first is None else answer.first,
        "last": answer.at,
    }


def _release(holding: Holding, how: str, reason: str) -> AppendFact:
    return AppendFact("release", {"on": holding.seq, "how": how, "reason": reason})


def close(why: str, reason: str) -> AppendFact:
    """The job is over."""
    return AppendFact("closed", {"why": why, "reason": reason})


__all__ = ["ELDER_WAIT_S", "NEVER_SUBMITTED_S", "close", "counted_s", "held", "left_of", "new"]
