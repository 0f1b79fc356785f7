"""The part of the fold that is about waiting: holds and their end, cessation, what persons change, other jobs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from slurm_dispatch.errors import BadDataError
from slurm_dispatch.records.building import Building
from slurm_dispatch.records.law import Event, Phase
from slurm_dispatch.records.state import (
    ADOPT_S,
    Cessation,
    Closed,
    Due,
    ElderExecution,
    Held,
    Hold,
    Holding,
    Request,
    Settled,
    TookOver,
)

if TYPE_CHECKING:
    from slurm_dispatch.records.facts import Fact

BY_THE_SITE = frozenset({"breaker", "limit"})
"""What holds a job for the site's reasons: it is lifted by itself once they are gone."""


class HoldFacts(Building):
    """One method a kind of fact, named after it."""

    def _hold(self, fact: Fact, body: Any) -> None:
        if self.phase is Phase.CLOSED:
            raise BadDataError("a job that is closed cannot be held")
        self.hold = Hold(fact.seq, fact.at, fact.by, body["reason"], body["for_s"])
        if self.phase in {Phase.WAITING, Phase.HELD}:
            self.move(Event.HOLD)
            self._holds(fact, "person", body["reason"], body["for_s"])

    def _holds(self, fact: Fact, why: str, reason: str, for_s: float | None, *, ceased: bool = False) -> None:
        self.holding = Holding(fact.seq, fact.at, why, reason, for_s)
        self.held = None
        self.may_cease = ceased

    def _release(self, fact: Fact, body: Any) -> None:
        how, holding = body["how"], self.holding
        if self.phase is not Phase.HELD or holding is None:
            if self.hold is None or body["on"] != self.hold.seq or how != "person":
                raise BadDataError(f"fact {body['on']} holds nothing")
            self.hold = None
            return
        if body["on"] != holding.seq:
            raise BadDataError(f"what holds the job is fact {holding.seq}, not {body['on']}")
        if how == "ceased" and (not self.ceasing() or self.waits_for):
            raise BadDataError("not every older execution is known to have ceased")
        if how == "breaker" and (holding.why not in BY_THE_SITE or self.hold is not None or self.spec.shared):
            raise BadDataError("what holds it is not the site's to lift")
        self.move(Event.RELEASE)
        self.elders_wait = False
        if how == "person":
            self.hold = None
            self.forget()
            self.adopting_until = None
            if self.due is not None:  # at once
                kept = tuple(option for option in self.due.changes if not option.startswith("--begin="))
                self.due = replace(self.due, changes=kept, not_before=None)

    def _held(self, fact: Fact, body: Any) -> None:
        if self.holding is None or body["on"] != self.holding.seq:
            raise BadDataError(f"fact {body['on']} holds nothing")
        self.held = Held(fact.seq, body["on"], body["clock"], body["ran_s"], body["counted_s"])

    def _told(self, _: Fact, body: Any) -> None:
        # Whoever told the owner may be late: that it was told stays true.
        self.told.add((body["on"], body["what"]))

    def _removed(self, _: Fact, body: Any) -> None:
        """Of saves that are outranked: nothing of the job rests on them."""

    def _cessation(self, fact: Fact, body: Any) -> None:
        attempt = body["attempt"]
        if attempt not in self.attempts:
            raise BadDataError(f"there is no execution {attempt}")
        before = self.cessation.get(attempt)
        if before is not None and before.answer == "ceased":
            return  # for good
        self.cessation[attempt] = Cessation(
            fact.seq, body["answer"], body["source"], body["detail"], body["count"], body["first"], body["last"]
        )
        if body["answer"] == "ceased":
            self.waits_for.discard(attempt)

    def _updated(self, _: Fact, body: Any) -> None:
        if self.phase is Phase.CLOSED:
            raise BadDataError("a job that is closed cannot be changed")
        self.spec = self.spec.changed(body)
        self.given.update(body["given"])
        if self.due is not None:  # what a person says counts for more than what was decided before he did
            marks = tuple(f"--{name}=" for name in body["given"])
            self.due = replace(self.due, changes=tuple(it for it in self.due.changes if not it.startswith(marks)))

    def _adopted(self, fact: Fact, body: Any) -> None:
        number = self.next_number(body["submission"])
        phase, due = self.phase, self.due
        if phase is Phase.QUEUED and self.spec.shared:
            raise BadDataError("the object of a job with a shared checkpoint is not replaced while Slurm has it")
        if self.elder is not None and phase is not Phase.CLOSED:
            raise BadDataError(f"submission {self.elder.number} is suspected and may still run")
        self.move(Event.ADOPTED)
        self.numbers_used = number
        self.adopting_until = fact.at + ADOPT_S
        if phase is Phase.QUEUED and self.current is not None:
            self.current.replaced = True
            self.due = Due(fact.seq, number + 1)
        elif due is not None:
            self.due = replace(due, submission=number + 1)

    def _took_over(self, fact: Fact, body: Any) -> None:
        if body["elder"] != self.spec.supersedes:
            raise BadDataError(f"job {body['elder']} is not the one that this job supersedes")
        number = self.next_number(body["submission"])
        self.elders = tuple(
            ElderExecution(it["attempt"], it["slurm_job_id"], it["cluster"], it["nodes"], it["start_time"])
            for it in body["executions"]
        )
        waits = bool(self.elders) or self.spec.elders_shared or not body["complete"]
        if waits or self.hold is not None:
            self.move(Event.TOOK_OVER_HELD)
            if self.hold is not None:
                self._holds(fact, "person", self.hold.reason, self.hold.for_s)
            else:
                reason = f"job {body['elder']} may still run"
                self._holds(fact, "shared", reason, self.spec.shared_hold_for_s, ceased=body["complete"])
        else:
            self.move(Event.TOOK_OVER)
        self.elders_wait = waits
        for elder in self.elders:
            self.attempts.add(elder.attempt)
            self.waits_for.add(elder.attempt)
        self.took_over = TookOver(fact.seq, body["elder"], body["elder_seq"], body["complete"])
        self.due = Due(fact.seq, number)

    def _reopened(self, fact: Fact, body: Any) -> None:
        number = self.next_number(body["submission"])
        if self.closed is not None and self.closed.by_job is not None:
            raise BadDataError(f"job {self.closed.by_job} goes on in its place")
        if self.spec.supersedes is not None and self.took_over is None:
            raise BadDataError(f"it never took over from job {self.spec.supersedes}")
        if self.spec.shared or self.elders_wait:
            self.move(Event.REOPENED_HELD)
            complete = self.took_over is None or self.took_over.complete
            why = "a person opened it again, and an older execution may still run"
            self._holds(fact, "shared", why, self.spec.shared_hold_for_s, ceased=complete)
        else:
            self.move(Event.REOPENED)
        if self.elder is not None:
            self.elder.suspected = None
            self.elder = None
        self.due = Due(fact.seq, number)
        self.adopting_until = None
        self.request = self.hold = self.closed = None
        self.forget()

    def _request(self, fact: Fact, body: Any) -> None:
        if self.request is None:
            self.request = Request(fact.seq, fact.at, fact.by, body["what"], body["reason"])

    def _closed(self, fact: Fact, body: Any) -> None:
        superseded = body["why"] == "superseded"
        if superseded != (body["by_job"] is not None):
            raise BadDataError("a job that was superseded names the one that goes on, and no other does")
        alive = self.phase in {Phase.QUEUED, Phase.RUNNING}
        self.move(Event.SUPERSEDED if superseded else Event.CLOSED)
        if alive:
            self.elder = self.current
        self.hold = None
        self.closed = Closed(fact.seq, fact.at, body["why"], body["reason"], body["by_job"], body["keep"])

    def follow(self) -> None:
        """The answer to an intent that was open when the job was superseded: its object is followed."""
        if self.phase is Phase.CLOSED and self.current is not None and self.current.settled is Settled.SUBMITTED:
            self.elder = self.current
