"""The fold: from the facts of a record to its state. Pure, deterministic, linear in the number of facts.

The builders in :mod:`slurm_dispatch.records.building` are the only place where a job's state changes; what comes
out of them is frozen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from slurm_dispatch.errors import BadDataError
from slurm_dispatch.model.identity import parse_word
from slurm_dispatch.model.outcome import Action, Outcome
from slurm_dispatch.records.building import BuildingExecution, BuildingSubmission
from slurm_dispatch.records.facts import node_key
from slurm_dispatch.records.fold_holds import BY_THE_SITE, HoldFacts
from slurm_dispatch.records.law import Event, Phase
from slurm_dispatch.records.spec import Spec
from slurm_dispatch.records.state import (
    Decision,
    Due,
    End,
    Ended,
    Over,
    Refusal,
    Repointed,
    Settled,
    SlurmHold,
    SlurmObject,
    State,
    Suspected,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from slurm_dispatch.records.facts import Fact


def fold(facts: Iterable[Fact]) -> State:
    """The state that ``facts`` make, from fact 1 on and in order.

    :raises BadDataError: no fact 1, a gap, or a fact that the law does not allow there; the message names
        the fact's number and kind.
    """
    folding: Folding | None = None
    for fact in facts:
        folding = _step(folding, fact)
    if folding is None:
        raise BadDataError("the record has no facts")
    return folding.state()


def states_before(facts: Iterable[Fact], kind: str) -> Iterator[tuple[State, Fact]]:
    """The state before each fact of this kind, with the fact. Errors as for :func:`fold`."""
    folding: Folding | None = None
    for fact in facts:
        before = folding.state() if folding is not None and fact.kind == kind else None
        folding = _step(folding, fact)
        if before is not None:
            yield before, fact


def _step(folding: Folding | None, fact: Fact) -> Folding:
    try:
        if folding is None:
            return Folding(fact)
        folding.add(fact)
    except BadDataError as error:
        raise BadDataError(f"fact {fact.seq} ({fact.kind}): {error}", hint=error.hint) from error
    return folding


class Folding(HoldFacts):
    """A state in the making, fact by fact."""

    def __init__(self, first: Fact) -> None:
        if first.kind != "spec" or first.seq != 1:
            raise BadDataError("a record begins with fact 1, the specification")
        super().__init__(Spec.from_fact(first), first.at)

    def add(self, fact: Fact) -> None:
        """Take the next fact in."""
        if fact.seq != self.seq + 1:
            raise BadDataError(f"it follows fact {self.seq}: there is a gap")
        if fact.kind == "spec":
            raise BadDataError("a record has one specification, its first fact")
        getattr(self, f"_{fact.kind}")(fact, fact.body)
        self.seq = fact.seq
        self.changed = fact.at

    # One method a kind of fact, named after it; those about waiting are in HoldFacts.

    def _intent(self, fact: Fact, body: Any) -> None:
        number = self.next_number(body["submission"])
        if self.phase is Phase.NEW and self.spec.supersedes is not None:
            raise BadDataError(f"it has not taken over from job {self.spec.supersedes}")
        if self.due is None:
            if body["decision"] is not None:
                raise BadDataError("it carries out a decision that is not there")
        elif body["decision"] != self.due.seq or number != self.due.submission:
            raise BadDataError(f"it does not carry out the decision in fact {self.due.seq}")
        if parse_word(body["word"]) != self.spec.word(number):
            raise BadDataError(f"its word is not that of submission {number}")
        self.move(Event.INTENT)
        self.numbers_used = number
        self.current = self.submissions[number] = BuildingSubmission(fact)
        self.requeued = False
        self.given.clear()

    def _submitted(self, fact: Fact, body: Any) -> None:
        submission = self._open(body["submission"])
        self.move(Event.SUBMITTED)
        submission.settle(Settled.SUBMITTED, fact)
        submission.object = SlurmObject(body["cluster"], body["slurm_job_id"])
        submission.how = body["how"]
        self.look(submission)
        self.follow()
        # A note may have told of its start before anybody knew its id.
        for execution in list(submission.executions.values()):
            if execution.started:
                self._runs(submission, execution)

    def _rejected(self, fact: Fact, body: Any) -> None:
        submission = self._open(body["submission"])
        self.move(Event.REJECTED)
        submission.settle(Settled.REJECTED, fact, body["message"])
        self._is_over(fact, Outcome.LAUNCH_FAILED)

    def _burnt(self, fact: Fact, body: Any) -> None:
        submission = self._open(body["submission"])
        if self.spec.shared and self.phase is not Phase.CLOSED:
            raise BadDataError("a number of a job with a shared checkpoint is never burnt")
        self.move(Event.BURNT)
        submission.settle(Settled.BURNT, fact, body["evidence"])
        self._is_over(fact, Outcome.LAUNCH_FAILED)

    def _open(self, number: int) -> BuildingSubmission:
        submission = self.is_current(number)
        if submission.settled is not Settled.OPEN:
            raise BadDataError(f"it cannot follow: submission {number} is settled already")
        return submission

    def _is_over(self, fact: Fact, outcome: Outcome) -> None:
        if self.phase is Phase.ENDED:
            self.over = Over(fact.seq, fact.at, fact.kind, outcome)

    def _watched(self, _: Fact, body: Any) -> None:
        # The last one counts: a host whose clock was set back begins anew.
        self.known(body["submission"]).watched[body["host"]] = body["first_seen"]

    def _started(self, fact: Fact, body: Any) -> None:
        found = self.execution(body["epoch"], body["attempt"])
        number, restart = body["submission"], body["restart"]
        if found is None or (number, restart) != (found[1].epoch.submission, found[1].epoch.restart):
            raise BadDataError(f"epoch {body['epoch']} is not of submission {number}, restart count {restart}")
        submission, execution = found
        execution.started = True
        execution.slurm_job_id = body["slurm_job_id"]
        execution.started_at, execution.start_time, execution.nodes = fact.at, body["start_time"], body["nodes"]
        submission.begin(execution)
        self.attempts.add(execution.attempt)
        known = self.cessation.get(execution.attempt)
        if known is None or known.answer != "ceased":
            self.waits_for.add(execution.attempt)
        self.look(submission)
        if submission is self.current and self.phase in {Phase.QUEUED, Phase.RUNNING}:
            self._runs(submission, execution)

    def _runs(self, submission: BuildingSubmission, execution: BuildingExecution) -> None:
        """Move on if this execution is of the current object and has not ended already."""
        ours = submission.object is not None and submission.object.slurm_job_id == execution.slurm_job_id
        if ours and execution.epoch.restart > submission.over and self.phase in {Phase.QUEUED, Phase.RUNNING}:
            self.move(Event.STARTED)
            self.requeued = False

    def _refused(self, _: Fact, body: Any) -> None:
        submission = self.known(body["submission"])
        submission.refusals.append(
            Refusal(body["slurm_job_id"], body["restart"], body["start_time"], body["why"])
        )
        submission.told.add((body["slurm_job_id"], body["restart"]))
        self.look(submission)

    def _progress(self, fact: Fact, body: Any) -> None:
        found = self.execution(body["epoch"], body["attempt"])
        if found is None:
            return
        submission, execution = found
        step, resumed_from = body["step"], body["resumed_from"]
        newer = step > max((mark for mark in (resumed_from, execution.step) if mark is not None), default=-1)
        execution.resumed_from = resumed_from
        execution.progress_at = fact.at
        execution.step = step if execution.step is None else max(step, execution.step)
        if self.latest is None or execution.epoch >= self.latest.epoch:
            self.latest = execution
            if newer and submission is self.current:  # a ghost's steps count for nothing
                execution.progressed = True
                self.forget()

    def _ended(self, _: Fact, body: Any) -> None:
        found = self.execution(body["epoch"], body["attempt"])
        if found is not None:
            outcome = None if body["outcome"] is None else Outcome(body["outcome"])
            found[1].ended = Ended(body["status"], body["signal"], outcome, body["step"])

    def _node(self, _: Fact, body: Any) -> None:
        self.nodes.add(node_key(body))

    def _end(self, fact: Fact, body: Any) -> None:
        submission = self.known(body["submission"])
        end = End(
            fact.seq,
            fact.at,
            body["submission"],
            body["restart"],
            Outcome(body["outcome"]),
            dict(body["evidence"]),
            body["final"],
        )
        if submission is self.elder:
            if end.final:
                self.elder = submission.suspected = None
        else:
            self.is_current(submission.number)
            self.move(Event.END if end.final else Event.RESTARTS)
            self._is_over(fact, end.outcome)
        submission.ends.append(end)
        if end.restart is not None:
            submission.over = max(submission.over, end.restart)
        self.look(submission)
        execution = submission.last_started(end.restart)
        if execution is not None:
            self.node_hours += execution.node_hours(fact.at)
            # A script that never ran could not save: launches that fail have a limit of their own.
            if submission is self.current and end.outcome is not Outcome.LAUNCH_FAILED:
                self.no_progress = 0 if execution.progressed else self.no_progress + 1

    def _suspected(self, fact: Fact, body: Any) -> None:
        submission = self.is_current(body["submission"])
        self.its_object(submission, body["slurm_job_id"])
        if self.spec.shared:
            raise BadDataError("an execution of a job with a shared checkpoint is never replaced on suspicion")
        if self.elder is not None:
            raise BadDataError(f"submission {self.elder.number} is suspected already, and has not ended")
        self.move(Event.SUSPECTED)
        submission.suspected = Suspected(fact.seq, fact.at, body["restart"], tuple(body["nodes"]), body["since"])
        self.elder = submission
        self._is_over(fact, Outcome.SUSPECT)

    def _cleared(self, _: Fact, body: Any) -> None:
        elder, current = self.elder, self.current
        if elder is None or elder.suspected is None or elder.number != body["submission"] or current is None:
            raise BadDataError(f"submission {body['submission']} is not suspected")
        for number, submission in self.submissions.items():
            if number > elder.number and submission.latest is not None:
                raise BadDataError(f"its replacement, submission {number}, has started")
        self.move(Event.CLEARED)
        elder.suspected = self.elder = None
        self.current = elder

    def _decision(self, fact: Fact, body: Any) -> None:
        outcome, action, number = Outcome(body["outcome"]), Action(body["action"]), body["submission"]
        self._check_decision(body, action)
        count = not body["free"] and (
            action in {Action.RESUBMIT, Action.REQUEUE}
            or (action is Action.HOLD and (body["why"] == "shared" or body["why"] in BY_THE_SITE))
        )
        after_end = self.over is not None and self.over.kind == "end"
        if action is Action.REQUEUE:
            if number is not None or self.current is None or self.current.object is None or not after_end:
                raise BadDataError("there is no object that could be requeued")
            self.move(Event.REQUEUE)
        elif action is Action.STOP:
            self.move(Event.STOP)
        else:
            number = self.next_number(number)
            self.move(Event.RESUBMIT if action is Action.RESUBMIT else Event.HELD)
            self.due = Due(fact.seq, number, tuple(body["changes"]), body["not_before"])
        if action is Action.HOLD:
            ceased = body["why"] == "shared"
            self._holds(fact, body["why"], body["reason"], body["hold_for_s"], ceased=ceased)
        if count and outcome is Outcome.LAUNCH_FAILED:
            self.launch_failures += 1
        elif count:
            self.launch_failures = 0
            self.used[outcome] = self.used.get(outcome, 0) + 1
        self.decision = Decision(
            seq=fact.seq,
            at=fact.at,
            on=body["on"],
            outcome=outcome,
            action=action,
            rule=body["rule"],
            budget_used=body["budget_used"],
            budget=body["budget"],
            reason=body["reason"],
            submission=number,
            not_before=body["not_before"],
            close=body["close"],
            why=body["why"],
            changes=tuple(body["changes"]),
            hold_for_s=body["hold_for_s"],
            then=None if body["then"] is None else Action(body["then"]),
            free=body["free"],
            inputs=body["inputs"],
        )

    def _check_decision(self, body: Any, action: Action) -> None:
        """That it is about what waits for one, and that nobody's hold and no shared checkpoint forbid it."""
        on, current = body["on"], self.current
        if self.phase is Phase.SUBMITTING and current is not None and action is Action.HOLD:
            if not self.spec.shared or on != current.fact.seq:
                raise BadDataError("only an intent of a job with a shared checkpoint is left to a person")
            current.settle(Settled.LEFT, current.fact)
            self.look(current)
        elif self.over is None or on != self.over.seq:
            raise BadDataError(f"it cannot follow: fact {on} does not wait for a decision")
        if action in {Action.RESUBMIT, Action.REQUEUE}:
            if self.spec.shared:
                raise BadDataError("a job with a shared checkpoint waits for a person, or for cessation")
            if self.hold is not None:
                raise BadDataError(f"fact {self.hold.seq} holds the job")

    def _requeued(self, _: Fact, body: Any) -> None:
        submission = self.is_current(body["submission"])
        self.its_object(submission, body["slurm_job_id"])
        self.move(Event.REQUEUED)
        submission.back = len(submission.ends)
        self.requeued = True
        for execution in list(submission.executions.values()):
            if execution.started:  # its start may have been noted before anybody saw that Slurm has it again
                self._runs(submission, execution)

    def _requeue_failed(self, fact: Fact, body: Any) -> None:
        submission = self.is_current(body["submission"])
        self.its_object(submission, body["slurm_job_id"])
        self.move(Event.REQUEUE_FAILED)
        self._is_over(fact, Outcome.LAUNCH_FAILED if self.decision is None else self.decision.outcome)

    def _stray(self, _: Fact, body: Any) -> None:
        self.strays.add((body["submission"], body["slurm_job_id"]))

    def _slurm_hold(self, fact: Fact, body: Any) -> None:
        submission = self.is_current(body["submission"])
        self.its_object(submission, body["slurm_job_id"])
        if self.phase is Phase.QUEUED:  # it may have started before anybody wrote this
            reason = body["reason"]
            self.slurm_hold = None if reason is None else SlurmHold(fact.seq, fact.at, submission.number, reason)

    def _dependents(self, _: Fact, __: Any) -> None:
        self.dependents = True

    def _repointed(self, fact: Fact, body: Any) -> None:
        left = tuple((it["slurm_job_id"], it["why"]) for it in body["left"])
        self.dependents = False
        self.repointed = Repointed(fact.seq, body["slurm_job_id"], tuple(body["moved"]), left)
        self.stranded.update(number for number, _ in left)
