"""The phases of a job and the law of what may follow what.

The law: *one submission after the other, each with a number of its own, each settled before the next, nothing
started while the job is held, and a job that is closed never runs again unless a person opens it.* :data:`LAW`
says it as a table; the table in ``docs/states.md`` is made from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Phase(str, Enum):
    """Where a job is."""

    NEW = "new"
    SUBMITTING = "submitting"
    QUEUED = "queued"
    RUNNING = "running"
    ENDED = "ended"
    WAITING = "waiting"
    HELD = "held"
    REQUEUING = "requeuing"
    STOPPING = "stopping"
    CLOSED = "closed"

    def __str__(self) -> str:
        return self.value


class Event(str, Enum):
    """What a fact does to the phase: its kind, and where that is not enough, what is in it."""

    INTENT = "intent"
    SUBMITTED = "submitted"
    REJECTED = "rejected"
    BURNT = "burnt"
    STARTED = "started"
    RESTARTS = "end, Slurm restarts it"
    END = "end, for good"
    SUSPECTED = "suspected"
    CLEARED = "cleared"
    RESUBMIT = "decision to resubmit"
    REQUEUE = "decision to requeue"
    HELD = "decision to hold"
    STOP = "decision to stop"
    REQUEUED = "requeued"
    REQUEUE_FAILED = "requeue_failed"
    HOLD = "hold"
    RELEASE = "release"
    ADOPTED = "adopted"
    TOOK_OVER = "took_over"
    TOOK_OVER_HELD = "took_over, its elder may run"
    REOPENED = "reopened"
    REOPENED_HELD = "reopened, shared checkpoint"
    SUPERSEDED = "closed, superseded"
    CLOSED = "closed"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Move:
    """One row of the law: in ``before``, ``event`` leads to ``after``; ``text`` says when."""

    before: Phase
    event: Event
    after: Phase
    text: str


LAW: tuple[Move, ...] = (
    Move(Phase.NEW, Event.INTENT, Phase.SUBMITTING, "sbatch is about to be called for the first time"),
    Move(Phase.NEW, Event.TOOK_OVER, Phase.WAITING, "the job that it supersedes is closed"),
    Move(Phase.NEW, Event.TOOK_OVER_HELD, Phase.HELD, "the same, and that one had a shared checkpoint"),
    Move(Phase.NEW, Event.CLOSED, Phase.CLOSED, "it was never submitted"),
    Move(Phase.SUBMITTING, Event.SUBMITTED, Phase.QUEUED, "sbatch answered, or evidence shows the object"),
    Move(Phase.SUBMITTING, Event.REJECTED, Phase.ENDED, "sbatch said no, for certain"),
    Move(Phase.SUBMITTING, Event.BURNT, Phase.ENDED, "all sources answer and none has the object"),
    Move(Phase.SUBMITTING, Event.HELD, Phase.HELD, "the same, and the checkpoint is shared: a person decides"),
    Move(Phase.QUEUED, Event.STARTED, Phase.RUNNING, "an execution began"),
    Move(Phase.QUEUED, Event.RESTARTS, Phase.QUEUED, "an execution ended unseen and Slurm starts the object again"),
    Move(Phase.QUEUED, Event.END, Phase.ENDED, "the object ended for good"),
    Move(Phase.QUEUED, Event.ADOPTED, Phase.WAITING, "a person gave it a later save: a later number replaces it"),
    Move(Phase.RUNNING, Event.STARTED, Phase.RUNNING, "Slurm started the object again: R has risen"),
    Move(Phase.RUNNING, Event.RESTARTS, Phase.QUEUED, "the execution ended and Slurm starts the object again"),
    Move(Phase.RUNNING, Event.END, Phase.ENDED, "the object ended for good"),
    Move(Phase.RUNNING, Event.SUSPECTED, Phase.ENDED, "a node of it is silent: it is replaced before Slurm ends it"),
    Move(Phase.ENDED, Event.RESUBMIT, Phase.WAITING, "the rule says resubmit, and there is budget"),
    Move(Phase.ENDED, Event.REQUEUE, Phase.REQUEUING, "the rule says requeue, and there is budget"),
    Move(Phase.ENDED, Event.HELD, Phase.HELD, "the rule says hold, or something forbids what it says"),
    Move(Phase.ENDED, Event.STOP, Phase.STOPPING, "the rule says stop"),
    Move(Phase.ENDED, Event.CLEARED, Phase.RUNNING, "the suspected nodes answered, and no replacement started"),
    Move(Phase.ENDED, Event.ADOPTED, Phase.ENDED, "a person gave it a later save"),
    Move(Phase.ENDED, Event.CLOSED, Phase.CLOSED, "a person asked for it, or the first sbatch made nothing"),
    Move(Phase.WAITING, Event.INTENT, Phase.SUBMITTING, "sbatch is about to be called with the next number"),
    Move(Phase.WAITING, Event.HOLD, Phase.HELD, "a person holds it"),
    Move(Phase.WAITING, Event.CLEARED, Phase.RUNNING, "the suspected nodes answered before the replacement was made"),
    Move(Phase.WAITING, Event.ADOPTED, Phase.WAITING, "a person gave it a later save: the number after it is next"),
    Move(Phase.WAITING, Event.CLOSED, Phase.CLOSED, "a person asked for it"),
    Move(Phase.HELD, Event.HOLD, Phase.HELD, "a person holds it, too"),
    Move(Phase.HELD, Event.RELEASE, Phase.WAITING, "a person let it go, or what held it is over"),
    Move(Phase.HELD, Event.CLEARED, Phase.RUNNING, "the suspected nodes answered before the replacement was made"),
    Move(Phase.HELD, Event.ADOPTED, Phase.HELD, "a person gave it a later save: the number after it is next"),
    Move(Phase.HELD, Event.CLOSED, Phase.CLOSED, "a person asked for it, or the hold ran out"),
    Move(Phase.REQUEUING, Event.REQUEUED, Phase.QUEUED, "Slurm has the object again"),
    Move(Phase.REQUEUING, Event.REQUEUE_FAILED, Phase.ENDED, "Slurm will not requeue it: it is resubmitted instead"),
    Move(Phase.REQUEUING, Event.CLOSED, Phase.CLOSED, "a person asked for it"),
    Move(Phase.STOPPING, Event.ADOPTED, Phase.STOPPING, "a person gave it a later save"),
    Move(Phase.STOPPING, Event.CLOSED, Phase.CLOSED, "what was decided is carried out"),
    *(
        Move(phase, Event.SUPERSEDED, Phase.CLOSED, "another job goes on in its place")
        for phase in Phase
        if phase is not Phase.CLOSED
    ),
    Move(Phase.CLOSED, Event.SUBMITTED, Phase.CLOSED, "the answer to an intent that was open when it was superseded"),
    Move(Phase.CLOSED, Event.REJECTED, Phase.CLOSED, "the same"),
    Move(Phase.CLOSED, Event.BURNT, Phase.CLOSED, "the same"),
    Move(Phase.CLOSED, Event.ADOPTED, Phase.CLOSED, "a person gave it a later save"),
    Move(Phase.CLOSED, Event.REOPENED, Phase.WAITING, "a person opened it again"),
    Move(Phase.CLOSED, Event.REOPENED_HELD, Phase.HELD, "the same, and the checkpoint is shared"),
)
"""Every move that there is. A fact that would move the job otherwise makes the record bad data."""

ANY_TIME: dict[str, str] = {
    "watched": "somebody began to watch an unsettled intent",
    "started": "of an object that is not current: known, and changes nothing",
    "refused": "PrologSlurmctld did not let an execution start",
    "progress": "the helper published a save",
    "ended": "the helper saw the command's end",
    "node": "a node's Epilog reported",
    "end": "of a suspected object, or of one of a job that was superseded: known, and moves nothing",
    "hold": "a person's, before the job waits: the next decision holds it",
    "release": "of such a hold before it has held anything",
    "held": "where the clock of a hold stands",
    "told": "the owner was told of a hold, or of another fact, also after the end",
    "cessation": "an answer about the processes of an execution",
    "updated": "what the next submission is (not once the job is closed)",
    "request": "a person's wish",
    "stray": "an object that is not the current one was seen, and is cancelled next",
    "slurm_hold": "Slurm holds the object that waits, or does so no more",
    "dependents": "other jobs of the owner depend on an object that is about to be replaced or requeued",
    "removed": "a person removes saves that are outranked (dispatch gc)",
    "repointed": "they depend on the current object now, as far as that could be done",
}
"""Kinds of facts that may come in any phase, after the end too, and do not move the job."""

PHASE_TEXTS: dict[Phase, str] = {
    Phase.NEW: "the record is there, sbatch was not called yet",
    Phase.SUBMITTING: "sbatch was called, or is about to be, and its answer is not recorded yet",
    Phase.QUEUED: "Slurm has the current object, and no execution of it runs",
    Phase.RUNNING: "an execution of the current object runs",
    Phase.ENDED: "the submission is over, and what follows is not decided yet",
    Phase.WAITING: "the next submission is decided and not made yet",
    Phase.HELD: "nothing is started until a person, cessation or the site lets it go",
    Phase.REQUEUING: "Slurm is asked to take the object again",
    Phase.STOPPING: "the end is decided and not recorded yet",
    Phase.CLOSED: "it is over for good",
}
"""What each phase means, for a person."""

NEXT: dict[tuple[Phase, Event], Phase] = {(move.before, move.event): move.after for move in LAW}
