"""The state of a job: what its facts make. What may follow what is in :mod:`slurm_dispatch.records.law`."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from slurm_dispatch.records.law import ANY_TIME, LAW, NEXT, PHASE_TEXTS, Event, Move, Phase

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurm_dispatch.model.epoch import Epoch
    from slurm_dispatch.model.outcome import Action, Outcome
    from slurm_dispatch.records.facts import NodeKey
    from slurm_dispatch.records.spec import Spec


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
    LEFT = "left"
    """Nothing was ever heard of it, and a person was asked (shared checkpoints only)."""


@dataclass(frozen=True, slots=True)
class Submission:
    """One call of sbatch, from its intent on.

    :param replaced: its object was replaced before it ran (fact ``adopted``): it is a stray.
    :param back: how many of ``ends`` were there when we requeued it last.
    :param suspected: the fact ``suspected``, if there is one and it was not cleared.

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
    replaced: bool = False
    suspected: Suspected | None = None
    back: int = 0

    @property
    def end(self) -> End | None:
        """The end for good, if it has come and the object was not requeued since."""
        return self.ends[-1] if len(self.ends) > self.back and self.ends[-1].final else None

    @property
    def execution(self) -> Execution | None:
        """The latest execution that has started, by restart count."""
        started = [execution for execution in self.executions if execution.started]
        return started[-1] if started else None

    @property
    def was_refused(self) -> bool:
        """The last that is known of the object is that PrologSlurmctld did not let it start.

        Slurm shows it as cancelled, by root or, after the tick took it out of the queue, by its owner.
        """
        if not self.refusals:
            return False
        refused = max(refusal.restart for refusal in self.refusals)
        return all(it.epoch.restart <= refused for it in self.executions if it.started)

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
    why: str = ""
    changes: tuple[str, ...] = ()
    hold_for_s: float | None = None
    then: Action | None = None
    free: bool = False
    inputs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Over:
    """What waits for a decision while the job is ``ended``.

    :param seq: of the fact, which the decision names as ``on``.
    :param kind: of the fact: ``end``, ``rejected``, ``burnt``, ``suspected`` or ``requeue_failed``.
    """

    seq: int
    at: float
    kind: str
    outcome: Outcome


ADOPT_S = 60.0
"""After a fact ``adopted`` ticks submit nothing for so long: whoever wrote it has yet to publish what is adopted, and
submits then. An execution that began before would not resume from it. It takes a few syncs of the root."""


@dataclass(frozen=True, slots=True)
class Due:
    """The next submission while the job waits or is held.

    :param seq: of the fact that says so, which the intent names as its ``decision``.
    :param not_before: Unix seconds, or ``None``: now.
    """

    seq: int
    submission: int
    changes: tuple[str, ...] = ()
    not_before: float | None = None


@dataclass(frozen=True, slots=True)
class Hold:
    """A person's wish that nothing more is started (fact ``hold``), until it is released.

    :param for_s: how long; ``None``: as long as the site lets a hold last.
    """

    seq: int
    at: float
    by: str
    reason: str
    for_s: float | None


@dataclass(frozen=True, slots=True)
class Holding:
    """What holds the job in the phase ``held``: the latest fact that does.

    :param seq: of that fact (a decision, ``hold``, ``reopened`` or ``took_over``); ``release``, ``held`` and
        ``told`` name it as ``on``.
    :param why: as in a decision: ``shared``, ``breaker``, ``limit``, ``person``, ``budget``, ...
    :param for_s: how long; ``None``: as long as the site lets a hold last.
    :param ceased: that every older execution has ceased may lift it (never if what is known of them may lack one).
    """

    seq: int
    at: float
    why: str
    reason: str
    for_s: float | None
    ceased: bool = False


@dataclass(frozen=True, slots=True)
class Held:
    """The base of a hold's clock (fact ``held``): ``counted_s`` when the site's clock ``clock`` showed ``ran_s``."""

    seq: int
    on: int
    clock: str
    ran_s: float
    counted_s: float


@dataclass(frozen=True, slots=True)
class Cessation:
    """The latest answer about an execution (fact ``cessation``); ``ceased`` stays."""

    seq: int
    answer: str
    source: str
    detail: str
    count: int
    first: float
    last: float


@dataclass(frozen=True, slots=True)
class ElderExecution:
    """An execution whose cessation can be asked: of this job, or of the one that it superseded."""

    attempt: str
    slurm_job_id: int
    cluster: str
    nodes: str
    start_time: float | None


@dataclass(frozen=True, slots=True)
class Suspected:
    """A fact ``suspected``: nodes of a running execution that are silent."""

    seq: int
    at: float
    restart: int
    nodes: tuple[str, ...]
    since: float


@dataclass(frozen=True, slots=True)
class TookOver:
    """The fact ``took_over``: this job goes on where its elder was closed.

    :param complete: every execution that the elder can have had is among those listed.
    """

    seq: int
    elder: str
    elder_seq: int
    complete: bool


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
    by_job: str | None = None
    keep: int | None = None


@dataclass(frozen=True, slots=True)
class SlurmHold:
    """A fact ``slurm_hold``: Slurm does not start the current object before a person acts there.

    :param reason: Slurm's own word.
    """

    seq: int
    at: float
    submission: int
    reason: str


@dataclass(frozen=True, slots=True)
class Repointed:
    """The latest fact ``repointed``.

    :param slurm_job_id: what the dependents depend on since then.
    :param left: (Slurm job id, why) of those that could not be changed.
    """

    seq: int
    slurm_job_id: int
    moved: tuple[int, ...]
    left: tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True)
class State:
    """Everything that the facts of a record say.

    :param spec: as the facts ``updated`` have made it.
    :param seq: of the last fact.
    :param submissions: by number, which only rises; burnt and rejected ones too.
    :param current: the only submission whose object may be the job's: the latest, or a suspected one that was
        cleared.
    :param numbers_used: the greatest submission number that was ever used, also by ``adopted``.
    :param over: what waits for a decision; only while the job is ``ended``.
    :param due: the next submission; only while the job waits or is held.
    :param given: options of sbatch that a person has changed since the current submission was made.
    :param hold: a person's, until it is released, in whatever phase.
    :param holding: what holds the job; only in the phase ``held``.
    :param held: the base of the clock of ``holding``, once there is one.
    :param told: (seq of what holds, what the owner was told).
    :param cessation: attempt: the latest answer.
    :param elder: the submission whose object is followed although it is not current: a suspected one, or that
        of a job which was superseded; until its end is known.
    :param elders: executions of the superseded job; ``elders_wait``: it was held for them, and not released since.
    :param used: resubmissions and requeues decided for each cause since the last durable progress.
    :param launch_failures: submissions in a row that never started their script.
    :param no_progress: executions in a row that ended without durable progress.
    :param node_hours: of all executions that ended.
    :param requeued: the current object was requeued by us, and has not started since.
    :param unseen: there can have been an execution that no fact tells of.
    :param step: the greatest step that was published under the latest epoch that published anything.
    :param adopting_until: Unix seconds until which nothing is submitted, since a person's adoption is under way.
    :param strays: (submission, Slurm job id) of objects that were cancelled as not current.
    :param slurm_hold: Slurm holds the current object; only in the phase ``queued``.
    :param dependents: jobs of the owner depend on an object that was replaced or requeued, or may do (not known), and
        were not re-pointed since.
    :param repointed: what was re-pointed last; ``stranded``: every Slurm job that was left, for good.
    :param nodes: see :data:`~slurm_dispatch.records.facts.NodeKey`.
    :param created: when fact 1 was written; ``changed``: the latest fact.
    """

    spec: Spec
    seq: int
    phase: Phase
    submissions: tuple[Submission, ...]
    current: Submission | None
    numbers_used: int
    decision: Decision | None
    over: Over | None
    due: Due | None
    adopting_until: float | None
    given: frozenset[str]
    hold: Hold | None
    holding: Holding | None
    held: Held | None
    told: frozenset[tuple[int, str]]
    cessation: Mapping[str, Cessation]
    elder: Submission | None
    elders: tuple[ElderExecution, ...]
    elders_wait: bool
    took_over: TookOver | None
    request: Request | None
    closed: Closed | None
    used: Mapping[Outcome, int]
    launch_failures: int
    no_progress: int
    node_hours: float
    requeued: bool
    unseen: bool
    step: int | None
    progress_at: float | None
    strays: frozenset[tuple[int, int]]
    slurm_hold: SlurmHold | None
    dependents: bool
    repointed: Repointed | None
    stranded: frozenset[int]
    nodes: frozenset[NodeKey]
    created: float
    changed: float

    @property
    def object(self) -> SlurmObject | None:
        """The current object: at most one, and none while the job waits, is held or is closed."""
        if self.phase in {Phase.QUEUED, Phase.RUNNING, Phase.REQUEUING} and self.current is not None:
            return self.current.object
        return None

    @property
    def must_repoint(self) -> bool:
        """Dependents wait for an object that is no longer the one that counts."""
        it = None if self.current is None else self.current.object
        if it is None or self.phase not in {Phase.QUEUED, Phase.RUNNING, Phase.ENDED}:
            return False
        last = self.repointed
        return self.dependents or (last is not None and bool(last.moved) and last.slurm_job_id != it.slurm_job_id)

    @property
    def script_sha256(self) -> str:
        """Of the script that the next submission uses."""
        return self.spec.script_sha256

    @property
    def next_number(self) -> int:
        """The least number that a submission may still have."""
        return self.numbers_used + 1

    @property
    def never_start(self) -> tuple[int, ...]:
        """Numbers of submissions of which no execution may begin any more, whatever turns up of them, by number.

        Those that were burnt, left to a person or replaced, and that of a job which was superseded before it ran.
        """
        closed, it = self.closed, None if self.current is None else self.current.object
        over = closed is not None and closed.by_job is not None and (it is None or closed.keep != it.slurm_job_id)
        return tuple(
            submission.number
            for submission in self.submissions
            if submission.settled in {Settled.BURNT, Settled.LEFT}
            or submission.replaced
            or (over and submission.number == self._last and submission.execution is None)
        )

    @property
    def _last(self) -> int | None:
        return None if self.current is None else self.current.number

    @property
    def finished(self) -> bool:
        """Closed, with no intent without an answer and no object that is followed: only strays can come."""
        open_ = self.current is not None and self.current.settled is Settled.OPEN
        return self.phase is Phase.CLOSED and self.elder is None and not open_


__all__ = [
    "ADOPT_S", "ANY_TIME", "LAW", "NEXT", "PHASE_TEXTS", "Cessation", "Closed", "Decision", "Due", "ElderExecution",
    "End", "Ended", "Event", "Execution", "Held", "Hold", "Holding", "Move", "Over", "Phase", "Refusal", "Repointed",
    "Request", "Settled", "SlurmHold", "SlurmObject", "State", "Submission", "Suspected", "TookOver",
]
