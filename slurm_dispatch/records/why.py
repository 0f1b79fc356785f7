"""Why a job is where it is: the last decision, what it stands on, what is left, what would change it. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from slurm_dispatch.model.outcome import Action, Outcome
from slurm_dispatch.records.describe import fact_text, state_text
from slurm_dispatch.records.elders import not_ceased
from slurm_dispatch.records.law import Phase
from slurm_dispatch.records.policy import Policy
from slurm_dispatch.records.silent import silent_text
from slurm_dispatch.records.verdict import NEVER, rule_of, used_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slurm_dispatch.records.facts import Fact
    from slurm_dispatch.records.state import Holding, State, Submission


LIMITS = ("Assoc", "QOS", "MaxJob", "MaxCpu", "MaxNode", "MaxGRES", "MaxMem", "JobArrayTaskLimit")
"""How Slurm's reasons for a wait behind somebody's limits begin."""


@dataclass(frozen=True, slots=True)
class Why:
    """The answer, each line ready to be shown.

    :param state: where the job is, in a few words.
    :param decision: seq of the last decision, or ``None``.
    :param what: what it says, in one line; where there is none, what the job waits for.
    :param rule: the rule's text, or ``None``.
    :param stands_on: the facts that it stands on: (seq, in words), oldest first.
    :param inputs: what of the site it stands on beside the facts: (name, value as text).
    :param budget: for each cause that was used, or whose rule has a budget: (outcome, used, budget or ``None``).
    :param caps: the job's other limits: (name, used, limit), as text.
    :param would_change: what would change it, one line each.
    :param helper: what is amiss with the helper of the last execution, one line, or empty.
    :param nodes: what is amiss with the nodes of the present one, the same.
    """

    state: str
    decision: int | None
    what: str
    rule: str | None
    stands_on: tuple[tuple[int, str], ...] = ()
    inputs: tuple[tuple[str, str], ...] = ()
    budget: tuple[tuple[str, int, int | None], ...] = ()
    caps: tuple[tuple[str, str, str], ...] = ()
    would_change: tuple[str, ...] = field(default=())
    helper: str = ""
    nodes: str = ""


def explain(
    state: State, facts: Sequence[Fact], policy: Policy | None = None, pending_reason: str = "", *, nodes: str = ""
) -> Why:
    """Why the job is where it is.

    :param facts: those that ``state`` was made of.
    :param policy: the site's now; ``None``: no site rules and no site limits are shown.
    :param pending_reason: Slurm's, for the current object, if it was asked and the object waits.
    :param nodes: what the site remembers of the present execution's nodes, in words.
    :raises BadDataError: a rule in the record does not parse.
    """
    decision, policy = state.decision, policy or Policy()
    if decision is None:
        what = "nothing was decided yet: " + _nothing_yet(state, pending_reason)
        return Why(
            state_text(state), None, what, None, budget=_budgets(state, policy), caps=_caps(state, policy),
            would_change=_would_change(state, pending_reason), helper=silent_text(state), nodes=nodes,
        )  # fmt: skip
    by_seq = {fact.seq: fact for fact in facts}
    return Why(
        state=state_text(state),
        decision=decision.seq,
        what=fact_text(by_seq[decision.seq]),
        rule=decision.rule,
        stands_on=tuple((seq, fact_text(by_seq[seq])) for seq in _stands_on(state, facts)),
        inputs=tuple(
            (name, ", ".join(map(str, value)) if isinstance(value, list) else str(value))
            for name, value in decision.inputs.items()
            if value not in (None, [])
        ),
        budget=_budgets(state, policy),
        caps=_caps(state, policy),
        would_change=_would_change(state, pending_reason),
        helper=silent_text(state),
        nodes=nodes,
    )


def _nothing_yet(state: State, reason: str) -> str:
    if state.phase is Phase.NEW and state.spec.supersedes is not None:
        return f"it goes on once job {state.spec.supersedes} is closed and it is known what still runs of it"
    if state.phase is Phase.QUEUED and state.spec.shared and state.current is not None and state.current.ends:
        return "Slurm has queued it again, and will not be let start it: its checkpoint is shared, and it ran before"
    if state.holding is not None:
        return f"it is held, because {state.holding.reason}"
    texts = {
        Phase.NEW: "sbatch was not called",
        Phase.SUBMITTING: "its first submission has no answer",
        Phase.QUEUED: "its first submission waits in Slurm" + (f" ({reason})" if reason else ""),
        Phase.RUNNING: "its first submission runs",
    }
    return texts.get(state.phase, state_text(state))


def _stands_on(state: State, facts: Sequence[Fact]) -> list[int]:
    """What the last decision is about, what the helper said of it, and what a person did before it; and what has
    come to the same matter since."""
    decision = state.decision
    if decision is None:
        return []
    found = {decision.on}
    about = next((fact for fact in facts if fact.seq == decision.on), None)
    number = None if about is None else about.body.get("submission")
    found |= {fact.seq for fact in facts if _bears_on(fact, decision.seq, number)}
    last = [fact.seq for fact in facts if fact.kind == "progress" and fact.seq < decision.seq][-1:]
    return sorted([*found, *last])


def _bears_on(fact: Fact, decision: int, number: object) -> bool:
    """Whether the decision, which is about submission ``number``, stands on ``fact``, or it came to that since."""
    if fact.seq > decision:
        return fact.kind in {
            "hold", "release", "cessation", "suspected", "cleared", "adopted", "slurm_hold", "repointed",
        }  # fmt: skip
    if fact.kind == "ended":
        return int(fact.body["epoch"]) // 10**6 % 10**6 == number
    if fact.kind in {"intent", "submitted", "started", "refused"}:
        return bool(fact.body["submission"] == number)
    return fact.kind in {"hold", "updated"}


def _budgets(state: State, policy: Policy) -> tuple[tuple[str, int, int | None], ...]:
    found = []
    for outcome in Outcome:
        used, rule = used_of(state, outcome), rule_of(state, policy, outcome)
        recovers = rule.action in {Action.RESUBMIT, Action.REQUEUE}
        if used or (recovers and rule.budget is not None):
            found.append((outcome.value, used, rule.budget if recovers else None))
    return tuple(found)


def _caps(state: State, policy: Policy) -> tuple[tuple[str, str, str], ...]:
    spec = state.spec
    found = [("submissions", str(len(state.submissions)), str(min(spec.max_submissions, policy.max_submissions)))]
    found.append(("launch failures in a row", str(state.launch_failures), str(policy.launch_failures_max)))
    least = spec.no_progress if spec.no_progress is not None else policy.no_progress
    if least is not None and spec.root:
        found.append(("executions in a row without progress", str(state.no_progress), str(least)))
    if spec.max_node_hours is not None:
        found.append(("node-hours", f"{state.node_hours:.2f}", f"{spec.max_node_hours:g}"))
    return tuple(found)


def _would_change(state: State, reason: str) -> tuple[str, ...]:
    key, phase = state.spec.job, state.phase
    if phase is Phase.CLOSED:
        by_job = None if state.closed is None else state.closed.by_job
        return () if by_job is not None else (f"dispatch reopen {key} --reason ...",)
    if state.holding is not None:
        return (*_first(state, state.holding), f"dispatch release {key} --reason ...", *_lifts(state, state.holding))
    if phase in {Phase.QUEUED, Phase.RUNNING}:
        lines = [] if state.hold is None else [f"dispatch release {key}: a person holds what comes next"]
        if state.slurm_hold is not None and state.object is not None:
            lines.append(_released(state.object.slurm_job_id, state.slurm_hold.reason))
        if state.elder is not None and state.elder.suspected is not None:
            nodes = ", ".join(state.elder.suspected.nodes)
            lines.append(f"that {nodes} answers before the replacement runs: then the replacement is cancelled")
            if phase is Phase.QUEUED and reason:
                lines.append(_behind(state.elder, reason))
        elif phase is Phase.QUEUED and reason:
            lines.append(f"that Slurm starts it, which lets it wait ({reason})")
        return (*lines, "a durable save with a greater step: it gives the budgets back")
    return (f"dispatch hold {key} --reason ...", f"dispatch cancel {key}")


def _released(slurm_job_id: int, reason: str) -> str:
    """What lifts a hold of Slurm's, which nobody lifts here."""
    if reason == "JobHeldAdmin":
        return f"that an operator releases Slurm job {slurm_job_id}, which an operator holds"
    if reason == NEVER:
        return f"that what it depends on is changed: scontrol update JobId={slurm_job_id} Dependency=..."
    return f"scontrol release {slurm_job_id}, once what Slurm holds it for ({reason}) is gone"


def _behind(elder: Submission, reason: str) -> str:
    """What the replacement of a suspected object waits for: often for that object itself."""
    old = "its own old object" + ("" if elder.object is None else f" (Slurm job {elder.object.slurm_job_id})")
    if reason.startswith(LIMITS):
        return f"that {old} ends: the replacement waits behind its limits ({reason})"
    nodes = "its nodes" if elder.execution is None else elder.execution.nodes
    return f"that Slurm finds nodes for the replacement ({reason}); {old} still has {nodes}"


_RAISES = {
    "max_submissions": "--max-submissions N",
    "max_node_hours": "--max-node-hours HOURS",
    "until": "--until DATE",
}


def _first(state: State, holding: Holding) -> tuple[str, ...]:
    """What to do before the release, where it is held again after the next end otherwise."""
    option = _RAISES.get(holding.why)
    if option is None:
        return ()
    return (f"dispatch update {state.spec.job} {option}, before the release: else the next end holds it again",)


def _lifts(state: State, holding: Holding) -> tuple[str, ...]:
    if holding.why in {"breaker", "limit"} and not state.spec.shared:
        return ("that the site's breaker closes, or its limit has room",)
    if holding.ceased:
        waiting = not_ceased(state)
        return tuple(f"that attempt {it.attempt} on {it.nodes} has ceased" for it in waiting)
    if holding.why == "shared" and state.unseen:
        return ("nothing else: it may have started once unseen, and nobody can be asked about that start",)
    return ()


__all__ = ["Why", "explain"]
