"""The fold: from the facts of a record to its state. Pure, deterministic, linear in the number of facts.

The builders below are the only place where a job's state changes; what comes out of them is frozen.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from slurm_dispatch.errors import BadDataError
from slurm_dispatch.model.epoch import Epoch
from slurm_dispatch.model.identity import parse_word
from slurm_dispatch.model.outcome import Action, Outcome
from slurm_dispatch.records.spec import Spec
from slurm_dispatch.records.state import (
    NEXT,
    Closed,
    Decision,
    End,
    Ended,
    Event,
    Execution,
    Phase,
    Refusal,
    Request,
    Settled,
    SlurmObject,
    State,
    Submission,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from slurm_dispatch.records.facts import Fact


def fold(facts: Iterable[Fact]) -> State:
    """The state that ``facts`` make, from fact 1 on and in order.

    :raises BadDataError: no fact 1, a gap, or a fact that the law does not allow there; the message names
        the fact's number and kind.
    """
    folding: _Folding | None = None
    for fact in facts:
        try:
            if folding is None:
                folding = _Folding(fact)
            else:
                folding.add(fact)
        except BadDataError as error:
            raise BadDataError(f"fact {fact.seq} ({fact.kind}): {error}", hint=error.hint) from error
    if folding is None:
        raise BadDataError("the record has no facts")
    return folding.state()


@dataclass(slots=True)
class _Execution:
    epoch: Epoch
    attempt: str
    slurm_job_id: int | None = None
    started: bool = False
    started_at: float | None = None
    start_time: float | None = None
    nodes: str = ""
    step: int | None = None
    progress_at: float | None = None
    resumed_from: int | None = None
    ended: Ended | None = None

    def freeze(self) -> Execution:
        return Execution(
            self.epoch,
            self.attempt,
            self.slurm_job_id,
            self.started,
            self.started_at,
            self.start_time,
            self.nodes,
            self.step,
            self.progress_at,
            self.resumed_from,
            self.ended,
        )


@dataclass(slots=True)
class _Submission:
    fact: Fact
    settled: Settled = Settled.OPEN
    settled_seq: int | None = None
    object: SlurmObject | None = None
    how: str | None = None
    message: str = ""
    watched: dict[str, float] = field(default_factory=dict)
    executions: dict[tuple[int, str], _Execution] = field(default_factory=dict)
    ends: list[End] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)

    def settle(self, how: Settled, fact: Fact, message: str = "") -> None:
        self.settled, self.settled_seq, self.message = how, fact.seq, message

    def freeze(self) -> Submission:
        body = self.fact.body
        return Submission(
            number=body["submission"],
            seq=self.fact.seq,
            at=self.fact.at,
            host=body["host"],
            deadline=body["deadline"],
            wait_s=body["wait_s"],
            changes=tuple(body["changes"]),
            decision=body["decision"],
            settled=self.settled,
            settled_seq=self.settled_seq,
            object=self.object,
            how=self.how,
            message=self.message,
            watched=dict(self.watched),
            # By restart count; the sort is stable, so that of two with one count the later known is later.
            executions=tuple(self.executions[key].freeze() for key in sorted(self.executions, key=itemgetter(0))),
            ends=tuple(self.ends),
            refusals=tuple(self.refusals),
        )


class _Folding:
    """A state in the making."""

    def __init__(self, first: Fact) -> None:
        if first.kind != "spec" or first.seq != 1:
            raise BadDataError("a record begins with fact 1, the specification")
        self.spec = Spec.from_fact(first)
        self.seq = 1
        self.phase = Phase.NEW
        self.submissions: dict[int, _Submission] = {}
        self.decision: Decision | None = None
        self.request: Request | None = None
        self.closed: Closed | None = None
        self.used: dict[Outcome, int] = {}
        self.launch_failures = 0
        self.latest: _Execution | None = None
        self.strays: set[tuple[int, int]] = set()
        self.nodes: set[tuple[str, str, bool | None]] = set()
        self.created = self.changed = first.at

    def add(self, fact: Fact) -> None:
        """Take the next fact in."""
        if fact.seq != self.seq + 1:
            raise BadDataError(f"it follows fact {self.seq}: there is a gap")
        if fact.kind == "spec":
            raise BadDataError("a record has one specification, its first fact")
        getattr(self, f"_{fact.kind}")(fact, fact.body)
        self.seq = fact.seq
        self.changed = fact.at

    def state(self) -> State:
        """What has been taken in so far, frozen."""
        return State(
            spec=self.spec,
            seq=self.seq,
            phase=self.phase,
            submissions=tuple(submission.freeze() for submission in self.submissions.values()),
            current=None if self._last() is None else [it.freeze() for it in self.submissions.values()][-1],
            numbers_used=max(self.submissions, default=0),
            decision=self.decision,
            over=None,
            due=None,
            hold=None,
            holding=None,
            held=None,
            told=frozenset(),
            cessation={},
            elder=None,
            elders=(),
            took_over=None,
            no_progress=0,
            node_hours=0.0,
            requeued=False,
            request=self.request,
            closed=self.closed,
            used=dict(self.used),
            launch_failures=self.launch_failures,
            step=None if self.latest is None else self.latest.step,
            progress_at=None if self.latest is None else self.latest.progress_at,
            strays=frozenset(self.strays),
            nodes=frozenset(self.nodes),
            created=self.created,
            changed=self.changed,
        )

    def _move(self, event: Event) -> None:
        after = NEXT.get((self.phase, event))
        if after is None:
            raise BadDataError(f"it cannot follow: a job that is {self.phase} has no move '{event}'")
        self.phase = after

    def _last(self) -> _Submission | None:
        return next(reversed(self.submissions.values())) if self.submissions else None

    def _known(self, number: int) -> _Submission:
        if number not in self.submissions:
            raise BadDataError(f"there is no submission {number}")
        return self.submissions[number]

    def _current(self, number: int) -> _Submission:
        submission = self._known(number)
        if submission is not self._last():
            raise BadDataError(f"submission {number} is not the current one")
        return submission

    def _execution(self, text: str, attempt: str) -> tuple[_Submission, _Execution] | None:
        """The execution that a fact is about, which may come before its ``started``.

        ``None`` for an epoch that is not of a submission of this job: the helper takes its epoch from the
        environment, where a user can have put another, and that must not cost him the record.
        """
        epoch = Epoch.from_int(int(text))
        if epoch.generation != self.spec.generation or epoch.submission not in self.submissions:
            return None
        submission = self.submissions[epoch.submission]
        return submission, submission.executions.setdefault((epoch.restart, attempt), _Execution(epoch, attempt))

    # One method a kind of fact, named after it.

    def _intent(self, fact: Fact, body: Any) -> None:
        number = body["submission"]
        least = next(reversed(self.submissions)) + 1 if self.submissions else 1
        if number < least:
            raise BadDataError(f"submission {number} is used already: the next one is {least} or later")
        if self.decision is None:
            if body["decision"] is not None:
                raise BadDataError("it carries out a decision that is not there")
        elif body["decision"] != self.decision.seq or number != self.decision.submission:
            raise BadDataError(f"it does not carry out the decision in fact {self.decision.seq}")
        if parse_word(body["word"]) != self.spec.word(number):
            raise BadDataError(f"its word is not that of submission {number}")
        self._move(Event.INTENT)
        self.submissions[number] = _Submission(fact)

    def _submitted(self, fact: Fact, body: Any) -> None:
        submission = self._current(body["submission"])
        self._move(Event.SUBMITTED)
        submission.settle(Settled.SUBMITTED, fact)
        submission.object = SlurmObject(body["cluster"], body["slurm_job_id"])
        submission.how = body["how"]
        # A note may have told of its start before anybody knew its id.
        for execution in list(submission.executions.values()):
            if execution.started:
                self._runs(submission, execution)

    def _rejected(self, fact: Fact, body: Any) -> None:
        submission = self._current(body["submission"])
        self._move(Event.REJECTED)
        submission.settle(Settled.REJECTED, fact, body["message"])

    def _burnt(self, fact: Fact, body: Any) -> None:
        submission = self._current(body["submission"])
        if self.spec.shared:
            raise BadDataError("a number of a job with a shared checkpoint is never burnt")
        self._move(Event.BURNT)
        submission.settle(Settled.BURNT, fact, body["evidence"])

    def _watched(self, _: Fact, body: Any) -> None:
        # The last one counts: a host whose clock was set back begins anew.
        self._known(body["submission"]).watched[body["host"]] = body["first_seen"]

    def _started(self, fact: Fact, body: Any) -> None:
        found = self._execution(body["epoch"], body["attempt"])
        number, restart = body["submission"], body["restart"]
        if found is None or (number, restart) != (found[1].epoch.submission, found[1].epoch.restart):
            raise BadDataError(f"epoch {body['epoch']} is not of submission {number}, restart count {restart}")
        submission, execution = found
        execution.started = True
        execution.slurm_job_id = body["slurm_job_id"]
        execution.started_at, execution.start_time, execution.nodes = fact.at, body["start_time"], body["nodes"]
        if submission is self._last() and self.phase in {Phase.QUEUED, Phase.RUNNING}:
            self._runs(submission, execution)

    def _runs(self, submission: _Submission, execution: _Execution) -> None:
        """Move on if this execution is of the current object and has not ended already."""
        ours = submission.object is not None and submission.object.slurm_job_id == execution.slurm_job_id
        over = max((end.restart for end in submission.ends if end.restart is not None), default=-1)
        if ours and execution.epoch.restart > over:
            self._move(Event.STARTED)

    def _refused(self, _: Fact, body: Any) -> None:
        refusal = Refusal(body["slurm_job_id"], body["restart"], body["start_time"], body["why"])
        self._known(body["submission"]).refusals.append(refusal)

    def _progress(self, fact: Fact, body: Any) -> None:
        found = self._execution(body["epoch"], body["attempt"])
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
            if newer and submission is self._last():  # a ghost's steps count for nothing
                self.used.clear()
                self.launch_failures = 0

    def _ended(self, _: Fact, body: Any) -> None:
        found = self._execution(body["epoch"], body["attempt"])
        if found is not None:
            outcome = None if body["outcome"] is None else Outcome(body["outcome"])
            found[1].ended = Ended(body["status"], body["signal"], outcome, body["step"])

    def _node(self, _: Fact, body: Any) -> None:
        self.nodes.add((body["attempt"], body["node"], body["clean"]))

    def _end(self, fact: Fact, body: Any) -> None:
        submission = self._current(body["submission"])
        end = End(
            fact.seq,
            fact.at,
            body["submission"],
            body["restart"],
            Outcome(body["outcome"]),
            dict(body["evidence"]),
            body["final"],
        )
        self._move(Event.END if end.final else Event.RESTARTS)
        submission.ends.append(end)

    def _decision(self, fact: Fact, body: Any) -> None:
        last = self._last()
        due = None
        if last is not None and self.phase is Phase.ENDED:
            due = last.ends[-1].seq if last.ends else last.settled_seq
        if due is None or body["on"] != due:
            raise BadDataError(f"it cannot follow: fact {body['on']} does not wait for a decision")
        outcome, action, number = Outcome(body["outcome"]), Action(body["action"]), body["submission"]
        if action is Action.RESUBMIT:
            if number is None or last is None or number <= last.fact.body["submission"]:
                raise BadDataError("it names no number of its own for the next submission")
            self._move(Event.RESUBMIT)
            if outcome is Outcome.LAUNCH_FAILED:
                self.launch_failures += 1
            else:
                self.launch_failures = 0
                self.used[outcome] = self.used.get(outcome, 0) + 1
        elif action is Action.STOP:
            self._move(Event.STOP)
        else:
            raise BadDataError(f"the action {action} is not one of this version")
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
        )

    def _request(self, fact: Fact, body: Any) -> None:
        if self.request is None:
            self.request = Request(fact.seq, fact.at, fact.by, body["what"], body["reason"])

    def _stray(self, _: Fact, body: Any) -> None:
        self.strays.add((body["submission"], body["slurm_job_id"]))

    def _closed(self, fact: Fact, body: Any) -> None:
        self._move(Event.CLOSED)
        self.closed = Closed(fact.seq, fact.at, body["why"], body["reason"])
