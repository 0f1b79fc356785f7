"""A state in the making: what the fold changes as it reads on, and how that is frozen.

Everything here costs constant time a fact, so that the fold as a whole is linear; freezing costs what the state is
large.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING

from slurm_dispatch.errors import BadDataError
from slurm_dispatch.model.epoch import Epoch
from slurm_dispatch.model.hostlist import count
from slurm_dispatch.records.law import NEXT, Event, Phase
from slurm_dispatch.records.state import (
    Cessation,
    Closed,
    Decision,
    Due,
    ElderExecution,
    End,
    Ended,
    Execution,
    Held,
    Hold,
    Holding,
    Over,
    Refusal,
    Repointed,
    Request,
    Settled,
    SlurmHold,
    SlurmObject,
    State,
    Submission,
    Suspected,
    TookOver,
)

if TYPE_CHECKING:
    from slurm_dispatch.model.outcome import Outcome
    from slurm_dispatch.records.facts import Fact, NodeKey
    from slurm_dispatch.records.spec import Spec


@dataclass(slots=True)
class BuildingExecution:
    """An :class:`Execution` in the making.

    :ivar progressed: it published a step that counts as durable progress.
    """

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
    progressed: bool = False

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

    def node_hours(self, until: float) -> float:
        """Nodes times hours from its start to ``until``; a node list that does not parse is one node."""
        begin = self.start_time if self.start_time is not None else self.started_at
        if begin is None:
            return 0.0
        try:
            nodes = max(1, count(self.nodes))
        except BadDataError:
            nodes = 1
        return nodes * max(0.0, until - begin) / 3600


@dataclass(slots=True)
class BuildingSubmission:
    """A :class:`Submission` in the making.

    :ivar told: (Slurm job id, restart count) of which it is known whether an execution started.
    :ivar latest: the execution with the greatest restart count that has started; ``by_restart``: each.
    :ivar over: the greatest restart count that has ended, or -1.
    """

    fact: Fact
    settled: Settled = Settled.OPEN
    settled_seq: int | None = None
    object: SlurmObject | None = None
    how: str | None = None
    message: str = ""
    watched: dict[str, float] = field(default_factory=dict)
    executions: dict[tuple[int, str], BuildingExecution] = field(default_factory=dict)
    ends: list[End] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    told: set[tuple[int, int]] = field(default_factory=set)
    by_restart: dict[int, BuildingExecution] = field(default_factory=dict)
    latest: BuildingExecution | None = None
    replaced: bool = False
    suspected: Suspected | None = None
    back: int = 0
    over: int = -1

    @property
    def number(self) -> int:
        number: int = self.fact.body["submission"]
        return number

    def settle(self, how: Settled, fact: Fact, message: str = "") -> None:
        self.settled, self.settled_seq, self.message = how, fact.seq, message

    def begin(self, execution: BuildingExecution) -> None:
        """It is known to have started."""
        restart = execution.epoch.restart
        self.by_restart[restart] = execution
        if execution.slurm_job_id is not None:
            self.told.add((execution.slurm_job_id, restart))
        if self.latest is None or restart >= self.latest.epoch.restart:
            self.latest = execution

    def last_started(self, restart: int | None) -> BuildingExecution | None:
        """The execution of this restart count, or the latest, that has started."""
        return self.latest if restart is None else self.by_restart.get(restart)

    def unseen(self) -> bool:
        """Whether there can have been an execution of it that no fact tells of."""
        if self.settled is Settled.LEFT:
            return True
        it = self.object
        if it is None:
            return False
        if self.over >= 0:
            return (it.slurm_job_id, self.over) not in self.told
        return not any(slurm_job_id == it.slurm_job_id for slurm_job_id, _ in self.told)

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
            replaced=self.replaced,
            suspected=self.suspected,
            back=self.back,
        )


class Building:
    """What is known after some facts. The fold's methods change it, and nothing else does.

    :ivar waits_for: attempts, of this job and of its elders, that no ``ceased`` was answered for.
    :ivar unseen: numbers of submissions of which there can have been an execution that no fact tells of.
    :ivar may_cease: what holds the job may be lifted by cessation.
    :ivar elders_wait: the job was held for its elders and not released since.
    """

    def __init__(self, spec: Spec, at: float) -> None:
        self.spec = spec
        self.seq = 1
        self.phase = Phase.NEW
        self.submissions: dict[int, BuildingSubmission] = {}
        self.current: BuildingSubmission | None = None
        self.numbers_used = 0
        self.decision: Decision | None = None
        self.over: Over | None = None
        self.due: Due | None = None
        self.given: set[str] = set()
        self.hold: Hold | None = None
        self.holding: Holding | None = None
        self.may_cease = False
        self.held: Held | None = None
        self.told: set[tuple[int, str]] = set()
        self.cessation: dict[str, Cessation] = {}
        self.attempts: set[str] = set()
        self.waits_for: set[str] = set()
        self.unseen: set[int] = set()
        self.elder: BuildingSubmission | None = None
        self.elders: tuple[ElderExecution, ...] = ()
        self.elders_wait = False
        self.took_over: TookOver | None = None
        self.request: Request | None = None
        self.closed: Closed | None = None
        self.used: dict[Outcome, int] = {}
        self.launch_failures = 0
        self.no_progress = 0
        self.node_hours = 0.0
        self.requeued = False
        self.latest: BuildingExecution | None = None
        self.adopting_until: float | None = None
        self.strays: set[tuple[int, int]] = set()
        self.slurm_hold: SlurmHold | None = None
        self.dependents = False
        self.repointed: Repointed | None = None
        self.stranded: set[int] = set()
        self.nodes: set[NodeKey] = set()
        self.created = self.changed = at

    def state(self) -> State:
        """What has been taken in so far, frozen."""
        frozen = {number: submission.freeze() for number, submission in self.submissions.items()}
        holding = self.holding
        if holding is not None:
            holding = Holding(
                holding.seq, holding.at, holding.why, holding.reason, holding.for_s, self.ceasing()
            )
        return State(
            spec=self.spec,
            seq=self.seq,
            phase=self.phase,
            submissions=tuple(frozen.values()),
            current=None if self.current is None else frozen[self.current.number],
            numbers_used=self.numbers_used,
            decision=self.decision,
            over=self.over,
            due=self.due,
            adopting_until=self.adopting_until,
            given=frozenset(self.given),
            hold=self.hold,
            holding=holding,
            held=self.held,
            told=frozenset(self.told),
            cessation=dict(self.cessation),
            elder=None if self.elder is None else frozen[self.elder.number],
            elders=self.elders,
            elders_wait=self.elders_wait,
            took_over=self.took_over,
            request=self.request,
            closed=self.closed,
            used=dict(self.used),
            launch_failures=self.launch_failures,
            no_progress=self.no_progress,
            node_hours=self.node_hours,
            requeued=self.requeued,
            unseen=bool(self.unseen),
            step=None if self.latest is None else self.latest.step,
            progress_at=None if self.latest is None else self.latest.progress_at,
            strays=frozenset(self.strays),
            slurm_hold=self.slurm_hold,
            dependents=self.dependents,
            repointed=self.repointed,
            stranded=frozenset(self.stranded),
            nodes=frozenset(self.nodes),
            created=self.created,
            changed=self.changed,
        )

    def move(self, event: Event) -> None:
        """Go where the law says, or refuse."""
        after = NEXT.get((self.phase, event))
        if after is None:
            raise BadDataError(f"it cannot follow: a job that is {self.phase} has no move '{event}'")
        self.phase = after
        if after is not Phase.HELD:
            self.holding = self.held = None
            self.may_cease = False
        if after is not Phase.ENDED:
            self.over = None
        if after is not Phase.QUEUED:
            self.slurm_hold = None
        if after not in {Phase.WAITING, Phase.HELD}:
            self.due = None

    def next_number(self, number: int | None) -> int:
        """``number``, if a submission may have it."""
        least = self.numbers_used + 1
        if number is None or number < least:
            raise BadDataError(f"submission {number} is used already: the next one is {least} or later")
        return number

    def known(self, number: int) -> BuildingSubmission:
        """The submission of this number."""
        if number not in self.submissions:
            raise BadDataError(f"there is no submission {number}")
        return self.submissions[number]

    def is_current(self, number: int) -> BuildingSubmission:
        """The submission of this number, which is the current one."""
        submission = self.known(number)
        if submission is not self.current:
            raise BadDataError(f"submission {number} is not the current one")
        return submission

    def its_object(self, submission: BuildingSubmission, slurm_job_id: int) -> SlurmObject:
        """The object of ``submission``, which has this id."""
        it = submission.object
        if it is None or it.slurm_job_id != slurm_job_id:
            raise BadDataError(f"Slurm job {slurm_job_id} is not that of submission {submission.number}")
        return it

    def execution(self, text: str, attempt: str) -> tuple[BuildingSubmission, BuildingExecution] | None:
        """The execution that a fact is about, which may come before its ``started``.

        ``None`` for an epoch that is not of a submission of this job: the helper takes its epoch from the
        environment, where a user can have put another, and that must not cost him the record.
        """
        epoch = Epoch.from_int(int(text))
        if epoch.generation != self.spec.generation or epoch.submission not in self.submissions:
            return None
        submission = self.submissions[epoch.submission]
        found = submission.executions.setdefault((epoch.restart, attempt), BuildingExecution(epoch, attempt))
        return submission, found

    def look(self, submission: BuildingSubmission) -> None:
        """Whether all executions of ``submission`` are known, anew."""
        if submission.unseen():
            self.unseen.add(submission.number)
        else:
            self.unseen.discard(submission.number)

    def ceasing(self) -> bool:
        """Whether cessation may lift what holds the job, once every attempt in ``waits_for`` has ceased."""
        return self.may_cease and self.hold is None and not self.unseen

    def forget(self) -> None:
        """A person said that it may go on: budgets and counts begin anew."""
        self.used.clear()
        self.launch_failures = self.no_progress = 0
