"""The state of a job: what its facts make, and the law of what may follow what.

The law: *one submission after the other, each with a number of its own, each settled before anything else
happens, and a job that is closed never runs again.* :data:`LAW` says it as a table; the table in
``docs/states.md`` is made from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurm_dispatch.model.epoch import Epoch
    from slurm_dispatch.model.outcome import Action, Outcome
    from slurm_dispatch.records.spec import Spec


class Phase(str, Enum):
    """Where a job is."""

    NEW = "new"
    SUBMITTING = "submitting"
    QUEUED = "queued"
    RUNNING = "running"
    ENDED = "ended"
    WAITING = "waiting"
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
    RESUBMIT = "decision to resubmit"
    STOP = "decision to stop"
    CLOSED = "closed"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class SlurmObject:
    """The Slurm job that a submission made."""

    cluster: str
    slurm_job_id: int


@dataclass(frozen=True, slots=True)
class Ended:
    """What the helper said of the command's own end (fact ``ended``)."""

    status: int | None
    signal: int | None
    outcome: Outcome | None
    step: int | None


@dataclass(frozen=True, slots=True)
class Execution:
    """One start of an object. Epoch and attempt together name it: a crash of slurmctld can start one restart
    count twice where no PrologSlurmctld refuses that.

    :param started: there is a ``started`` fact (otherwise only the helper spoke of it so far).
    :param step: the greatest step that it published, as far as it was handed on.
    """

    epoch: Epoch
    attempt: str
    slurm_job_id: int | None
    started: bool
    started_at: float | None
    start_time: float | None
    nodes: str
    step: int | None
    progress_at: float | None
    resumed_from: int | None
    ended: Ended | None


@dataclass(frozen=True, slots=True)
class End:
    """A fact ``end``. ``evidence`` is as the fact has it."""

    seq: int
    at: float
    submission: int
    restart: int | None
    outcome: Outcome
    evidence: Mapping[str, object]
    final: bool


class Settled(str, Enum):
    """What became of an intent."""

    OPEN = "open"
    SUBMITTED = "submitted"
    REJECTED = "rejected"
    BURNT = "burnt"


@dataclass(frozen=True, slots=True)
class Submission:
    """One call of sbatch, from its intent on.

    :param seq: of the intent.
    :param watched: host: when somebody there first saw this intent unsettled (that host's Unix seconds).
    :param settled_seq: of the fact that settled it.
    :param message: sbatch's, if it was rejected; the evidence, if it was burnt.
    """

    number: int
    seq: int
    at: float
    host: str
    deadline: float
    wait_s: float
    changes: tuple[str, ...]
    decision: int | None
    settled: Settled
    settled_seq: int | None
    object: SlurmObject | None
    how: str | None
    message: str
    watched: Mapping[str, float]
    executions: tuple[Execution, ...]
    ends: tuple[End, ...]
    refusals: tuple[Refusal, ...]

    @property
    def end(self) -> End | None:
        """The end for good, if it has come."""
        return self.ends[-1] if self.ends and self.ends[-1].final else None

    @property
    def execution(self) -> Execution | None:
        """The latest execution that has started, by restart count."""
        started = [execution for execution in self.executions if execution.started]
        return started[-1] if started else None

    @property
    def words(self) -> Ended | None:
        """What the helper said of the end of the latest execution; ``None`` if it has said nothing."""
        return self.executions[-1].ended if self.executions else None


@dataclass(frozen=True, slots=True)
class Refusal:
    """A fact ``refused``: PrologSlurmctld did not let an execution start."""

    slurm_job_id: int
    restart: int
    start_time: float | None
    why: str


@dataclass(frozen=True, slots=True)
class Decision:
    """A fact ``decision``."""

    seq: int
    at: float
    on: int
    outcome: Outcome
    action: Action
    rule: str
    budget_used: int
    budget: int | None
    reason: str
    submission: int | None
    not_before: float | None
    close: str | None


@dataclass(frozen=True, slots=True)
class Request:
    """A person's wish (fact ``request``)."""

    seq: int
    at: float
    by: str
    what: str
    reason: str


@dataclass(frozen=True, slots=True)
class Closed:
    """The fact ``closed``."""

    seq: int
    at: float
    why: str
    reason: str


@dataclass(frozen=True, slots=True)
class State:
    """Everything that the facts of a record say.

    :param seq: of the last fact.
    :param submissions: by number, which only rises; burnt and rejected ones too.
    :param used: resubmissions decided for each cause since the last durable progress.
    :param launch_failures: submissions in a row that never started their script.
    :param step: the greatest step that was published under the latest epoch that published anything.
    :param strays: (submission, Slurm job id) of objects that were cancelled as not current.
    :param nodes: (attempt, node, clean) of the node facts.
    :param created: when fact 1 was written; ``changed``: the latest fact.
    """

    spec: Spec
    seq: int
    phase: Phase
    submissions: tuple[Submission, ...]
    decision: Decision | None
    request: Request | None
    closed: Closed | None
    used: Mapping[Outcome, int]
    launch_failures: int
    step: int | None
    progress_at: float | None
    strays: frozenset[tuple[int, int]]
    nodes: frozenset[tuple[str, str, bool | None]]
    created: float
    changed: float

    @property
    def current(self) -> Submission | None:
        """The latest submission: the only one whose object may be the job's."""
        return self.submissions[-1] if self.submissions else None

    @property
    def object(self) -> SlurmObject | None:
        """The current object: at most one, and none while the job waits or is closed."""
        if self.phase in {Phase.QUEUED, Phase.RUNNING} and self.current is not None:
            return self.current.object
        return None


@dataclass(frozen=True, slots=True)
class Move:
    """One row of the law: in ``before``, ``event`` leads to ``after``; ``text`` says when."""

    before: Phase
    event: Event
    after: Phase
    text: str


LAW: tuple[Move, ...] = (
    Move(Phase.NEW, Event.INTENT, Phase.SUBMITTING, "sbatch is about to be called for the first time"),
    Move(Phase.NEW, Event.CLOSED, Phase.CLOSED, "it was never submitted"),
    Move(Phase.SUBMITTING, Event.SUBMITTED, Phase.QUEUED, "sbatch answered, or evidence shows the object"),
    Move(Phase.SUBMITTING, Event.REJECTED, Phase.ENDED, "sbatch said no, for certain"),
    Move(Phase.SUBMITTING, Event.BURNT, Phase.ENDED, "all sources answer and none has the object"),
    Move(Phase.QUEUED, Event.STARTED, Phase.RUNNING, "an execution began"),
    Move(Phase.QUEUED, Event.RESTARTS, Phase.QUEUED, "an execution ended unseen and Slurm starts the object again"),
    Move(Phase.QUEUED, Event.END, Phase.ENDED, "the object ended for good"),
    Move(Phase.RUNNING, Event.STARTED, Phase.RUNNING, "Slurm started the object again: R has risen"),
    Move(Phase.RUNNING, Event.RESTARTS, Phase.QUEUED, "the execution ended and Slurm starts the object again"),
    Move(Phase.RUNNING, Event.END, Phase.ENDED, "the object ended for good"),
    Move(Phase.ENDED, Event.RESUBMIT, Phase.WAITING, "the rule says resubmit, and there is budget"),
    Move(Phase.ENDED, Event.STOP, Phase.STOPPING, "the rule says stop, or there is no budget"),
    Move(Phase.ENDED, Event.CLOSED, Phase.CLOSED, "a person asked for it, or the first sbatch made nothing"),
    Move(Phase.WAITING, Event.INTENT, Phase.SUBMITTING, "sbatch is about to be called with the next number"),
    Move(Phase.WAITING, Event.CLOSED, Phase.CLOSED, "a person asked for it"),
    Move(Phase.STOPPING, Event.CLOSED, Phase.CLOSED, "what was decided is carried out"),
)
"""Every move that there is. A fact that would move the job otherwise makes the record bad data."""

ANY_TIME: dict[str, str] = {
    "watched": "somebody began to watch an unsettled intent",
    "started": "of an object that is not current: known, and changes nothing",
    "refused": "PrologSlurmctld did not let an execution start",
    "progress": "the helper published a save",
    "ended": "the helper saw the command's end",
    "node": "a node's Epilog reported",
    "request": "a person's wish",
    "stray": "an object that is not the current one was seen and cancelled",
}
"""Kinds of facts that may come in any phase, after the end too, and do not move the job."""

PHASE_TEXTS: dict[Phase, str] = {
    Phase.NEW: "the record is there, sbatch was not called yet",
    Phase.SUBMITTING: "sbatch was called, or is about to be, and its answer is not recorded yet",
    Phase.QUEUED: "Slurm has the current object, and no execution of it runs",
    Phase.RUNNING: "an execution of the current object runs",
    Phase.ENDED: "the submission is over, and what follows is not decided yet",
    Phase.WAITING: "the next submission is decided and not made yet",
    Phase.STOPPING: "the end is decided and not recorded yet",
    Phase.CLOSED: "it is over for good",
}
"""What each phase means, for a person."""

NEXT: dict[tuple[Phase, Event], Phase] = {(move.before, move.event): move.after for move in LAW}
