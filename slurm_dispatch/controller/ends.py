"""The current object of a job: alive, ended with an outcome, or unknown.

The law of this module: *only Slurm's word, or the helper's, ends an execution.* An object that is not listed has
not ended; an object whose id was given to another job is not listed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from slurm_dispatch.controller.evidence import (
    OVER,
    evidence_of,
    has_run,
    in_trouble,
    is_whole,
    limits_of,
    row_of,
    waited,
)
from slurm_dispatch.controller.rows import SKEW_S, Rows, in_time, rows_of
from slurm_dispatch.errors import BadDataError
from slurm_dispatch.model.hostlist import expand, node_names
from slurm_dispatch.model.outcome import Outcome
from slurm_dispatch.records.observation import ObjectAlive, ObjectEnded, Unknown
from slurm_dispatch.slurm import port
from slurm_dispatch.slurm.classify import HelperEnd, classify, word_comes
from slurm_dispatch.slurm.configuration import is_set, lines_of
from slurm_dispatch.slurm.holds import held_by
from slurm_dispatch.slurm.parse import KNOWN_STATES

if TYPE_CHECKING:
    from slurm_dispatch.controller.view import Details, View
    from slurm_dispatch.records.spec import Spec
    from slurm_dispatch.records.state import Execution, SlurmObject, State, Submission
    from slurm_dispatch.state.notes import Note

PROLOG_S = 60.0
"""A site's Prolog that fails has failed by then."""
REFUSED_S = 3.0
"""Slurm ends a refused start at once, and the note of PrologSlurmctld may be younger than what a pass has read."""
DRAINED_AFTER_S = 3.0
"""Slurm ends a job whose Prolog failed, and drains the node a moment later, while the job is completing."""
TWICE_S = 30.0
"""A node where the job runs already is drained, and the job cancelled, within so long of each other."""
WORD_S = (5.0, 60.0)
"""How long after an end with a status of the helper's its word may still come: once the Epilog of each node has told
that it ran, and in all. The Epilog hands it on, before it tells that, and Slurm may wait long for it."""
VIEW_AGE_S = 600.0
"""No child works so long with one view. What the record has as submitted later than that was written by a clock that
is ahead, or was: the queue can be asked about it."""
LOST_AFTER_S = 600.0
"""An end note that no source explains for this long is ``lost``; accounting is written within seconds."""
WAITING = frozenset({
    "PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD",
    "POWER_UP_NODE", "EXPEDITING",
})  # fmt: skip
ALIVE = WAITING | {"RUNNING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING", "STAGE_OUT"}
"""States of an object that has not ended. COMPLETING is none of them: it hides what the object is."""


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen of the current object.

    :param soon: it is ending, and the answer is a matter of moments: worth asking again before the next tick.
    :param running: it runs, by the queue: (restart count, start time, nodes).
    :param strange: Slurm says something of it that this version does not know, and a person should hear of it.
    """

    object: ObjectAlive | ObjectEnded | Unknown
    soon: bool = False
    running: tuple[int, int, str] | None = None
    strange: str = ""


def look(state: State, view: View, details: Details) -> Look:
    """Observe the current object of ``state``; unknown where there is none."""
    submission, current = state.current, state.object
    if submission is None or current is None:
        return Look(Unknown("no object"))
    observer = _observer(state, submission, current, view, details)
    if isinstance(observer, Unknown):
        return Look(observer)
    if view.at < submission.at <= view.at + VIEW_AGE_S:
        return Look(Unknown("submitted after the queue was asked"))
    return observer.look()


def look_elder(state: State, view: View, details: Details) -> ObjectAlive | ObjectEnded | Unknown:
    """Observe the object that is followed although it is not the current one."""
    elder = state.elder
    if elder is None or elder.object is None:
        return Unknown("no object")
    observer = _observer(state, elder, elder.object, view, details)
    return observer if isinstance(observer, Unknown) else observer.look().object


def _observer(
    state: State, submission: Submission, it: SlurmObject, view: View, details: Details
) -> _Observer | Unknown:
    """Who looks at one object; unknown where its cluster's queue is."""
    place = view.place(state.spec, it)
    there = view.of(place)
    if isinstance(there.queue, port.Unknown):
        return Unknown(there.queue.why)
    return _Observer(state, submission, it.slurm_job_id, there, details.at(place, view))


@dataclass(frozen=True, slots=True)
class _Observer:
    """The looks at one object, ``slurm_job_id``, of one submission.

    :param view: of the object's cluster, as ``details`` are.
    """

    state: State
    submission: Submission
    slurm_job_id: int
    view: View
    details: Details

    @property
    def spec(self) -> Spec:
        """Of the job."""
        return self.state.spec

    @property
    def asked(self) -> bool:
        """A person asked for the end, so that nobody needs to know who cancelled it, or how it ended."""
        return self.state.request is not None

    def look(self) -> Look:
        queued = self.view.of_id(self.slurm_job_id)
        if queued is None or not self.is_ours(queued):
            return self.gone(queued)
        return self.held(queued, self.living(queued)) if queued.state in ALIVE else self.ending()

    @staticmethod
    def held(queued: port.QueueJob, look: Look) -> Look:
        """With what holds it, where Slurm does not start it before a person lets it."""
        seen = look.object
        reason = held_by(queued.state, queued.reason)
        if not reason or not isinstance(seen, ObjectAlive) or not seen.pending:
            return look
        return replace(look, object=replace(seen, held=reason))

    def is_ours(self, queued: port.QueueJob) -> bool:
        """The object of this id is still the one that the submission made, and not a later job of the same id.

        The word says so. Where its owner edited it away, the time of submission does; an id that began again
        at 1 after a crash of slurmctld can belong to another job of the same owner within a minute, so another
        job's word always counts against it, and so does a row of accounting for the one before.
        """
        if queued.uid != self.spec.uid or queued.in_array:
            return False  # we submit no arrays, and what is done to a task can hit its whole array
        if queued.word is not None:
            return queued.word == self.spec.word(self.submission.number)
        if in_time(queued.submit_time, self.submission) and self.is_first(queued):
            return True
        # A requeue gives an object a new time of submission, and only a requeue raises the count.
        answer = self.details.detail(self.slurm_job_id)
        return isinstance(answer, port.Present) and bool(answer.value.restart)

    def is_first(self, queued: port.QueueJob) -> bool:
        """Accounting knows of none before it under this id."""
        rows = self.rows() or Rows()
        return not rows.doubtful and {row.submit_time for row in rows.of_object} <= {None, queued.submit_time}

    def living(self, queued: port.QueueJob) -> Look:
        """Alive by the queue. The restart count is asked for only where the record shows that it can have risen."""
        pending = queued.state in WAITING
        started = [execution for execution in self.submission.executions if execution.started]
        for execution in started:
            if not pending and execution.start_time is not None and execution.start_time == queued.start_time:
                return Look(self.alive(execution.epoch.restart, pending=False))
        if pending and not started and not self.submission.refusals:
            return Look(ObjectAlive(self.submission.number, self.slurm_job_id, None, pending=True))
        answer = self.details.detail(self.slurm_job_id)
        if not isinstance(answer, port.Present) or answer.value.restart is None:
            return Look(ObjectAlive(self.submission.number, self.slurm_job_id, None, pending))
        restart = answer.value.restart
        running = None
        if (
            queued.state == "RUNNING"
            and queued.start_time is not None
            and queued.start_time == answer.value.start_time
        ):
            running = (restart, queued.start_time, queued.nodes)
        return Look(self.alive(restart, pending=pending), running=running)

    def alive(self, restart: int, *, pending: bool) -> ObjectAlive:
        """Not ended for good; an execution before the present one has ended where the count has risen."""
        over = {end.restart for end in self.submission.ends}
        before = [
            execution
            for execution in self.submission.executions
            if execution.started and execution.epoch.restart < restart and execution.epoch.restart not in over
        ]
        here = ObjectAlive(self.submission.number, self.slurm_job_id, restart, pending)
        if not before:
            return here
        execution = before[0]
        rows = self.rows() or Rows()
        row = None if rows.doubtful else row_of(rows.of_object, execution)
        if row is None or row.end_time is None:
            if self.details.has_accounting is not False:
                return here  # asked again by the next tick
            outcome, evidence = Outcome.LOST, evidence_of(None, "restart count")
        else:
            verdict = classify(row, _helper(execution), started=True)
            outcome, evidence = verdict.outcome or Outcome.LOST, self.evidence(row, execution)
        previous = ObjectEnded(
            self.submission.number,
            self.slurm_job_id,
            outcome,
            evidence,
            execution.epoch.restart,
            execution.start_time,
            final=False,
        )
        return replace(here, previous=previous)

    def ending(self) -> Look:
        """Completing, or over: the details tell what it was."""
        answer = self.details.detail(self.slurm_job_id)
        if isinstance(answer, port.Unknown):
            return Look(Unknown(answer.why), soon=True)
        if isinstance(answer, port.Absent):
            return self.gone()
        detail = answer.value
        if detail.states & ALIVE:
            pending = bool(detail.states & WAITING)
            return Look(self.alive(detail.restart or 0, pending=pending))
        if detail.states - KNOWN_STATES:
            return self.verdict(detail, None)
        row: port.JobDetail | None = None
        hidden = not detail.states & OVER  # text shows COMPLETING alone
        if hidden or ("CANCELLED" in detail.states and not self.asked):
            row, coming = self.explained(detail)
            age_s = self.view.at - (detail.end_time or self.view.at)
            rows = self.rows(detail)
            away = self.details.has_accounting is not False and (rows is None or rows.doubtful)
            if away or (row is None and (hidden or coming) and age_s < LOST_AFTER_S):
                return Look(Unknown("accounting does not tell yet how it ended"), soon=True)
            lost = self.lost() if hidden and row is None else None
            if lost is not None:
                return lost  # a node can complete for days, and nothing else will ever tell
        return self.verdict(detail, row)

    def explained(self, detail: port.JobDetail) -> tuple[port.JobDetail | None, bool]:
        """The row of accounting that says how it ended and who cancelled it; if there is none, whether one may come.

        None comes where the site has no accounting, and where the object was cancelled before it ran again
        after a requeue: the row of the requeue is its last.
        """
        if self.details.has_accounting is False:
            return None, False
        rows = (self.rows(detail) or Rows()).of_object
        row = row_of(rows, self.execution(detail)) or (rows[-1] if rows else None)
        if row is not None and is_whole(row) and not (rows and "REQUEUED" in rows[-1].states):
            return row, False
        return None, not (rows and "REQUEUED" in rows[-1].states)

    def gone(self, queued: port.QueueJob | None = None) -> Look:
        """slurmctld no longer has it: accounting decides, or an old end note that nothing explains.

        :param queued: what slurmctld has under its id.
        """
        if queued is not None and (
            queued.uid != self.spec.uid
            or queued.word is not None
            or not in_time(queued.submit_time, self.submission)
        ):
            queued = None  # another job's
        found = self.rows(queued)
        if found is None and self.details.has_accounting is not False:
            return Look(Unknown("not in the queue, and accounting does not answer"))
        rows = found.of_object if found is not None else ()
        doubtful = found is not None and found.doubtful
        if rows and is_whole(rows[-1]) and not doubtful:
            return self.verdict(rows[-1], rows[-1], known=False)
        lost = self.lost()
        if lost is not None:
            return lost
        if self.asked and isinstance(self.details.detail(self.slurm_job_id), port.Absent):
            # Slurm's own word that there is no such object, and a person's that nothing is to come after it.
            # Should it come back nevertheless, it is a stray of a closed job.
            return Look(
                ObjectEnded(self.submission.number, self.slurm_job_id, Outcome.LOST, evidence_of(None, "slurmctld"))
            )
        why = f", and {'/'.join(sorted(rows[-1].states))} in accounting" if rows else ", and not in accounting"
        if found is None:
            why = ""
        if doubtful:
            # Nothing will ever tell more, so a person hears of it and ends the job, or not.
            why = f"Slurm job {self.slurm_job_id} is not in the queue, and accounting has what can be another's"
            return Look(Unknown(why), strange=f"{why} of the same id; `dispatch cancel` ends this job")
        return Look(Unknown(f"Slurm does not know it any more: not in the queue{why}"), soon=bool(self.end_notes()))

    def lost(self) -> Look | None:
        """It ended long ago, by its end note, and no source says how."""
        ended = self.end_notes()
        if not ended or self.view.at - min(note.at for note in ended) < LOST_AFTER_S:
            return None
        evidence, start_time = evidence_of(None, "end note"), ended[-1].body.get("start_time")
        return Look(
            ObjectEnded(self.submission.number, self.slurm_job_id, Outcome.LOST, evidence, None, start_time)
        )

    def verdict(self, detail: port.JobDetail, row: port.JobDetail | None, *, known: bool = True) -> Look:
        """The outcome; ``row`` is accounting's word where it was needed.

        :param known: slurmctld has the object. One that begins without its state files has every object that was
            not over ended in accounting, as cancelled by nobody: that is nobody's wish.
        """
        execution = self.execution(detail)
        told = detail if detail.states & OVER or row is None else row
        if row is not None and row.by_uid is not None:
            told = replace(told, by_uid=row.by_uid)
        verdict = classify(told, _helper(execution), started=self.started(execution, detail))
        outcome = verdict.outcome
        if outcome is None:
            # A state that is not known stays for a while, and is not worth asking for again and again.
            strange = verdict.why if verdict.strange else ""
            return Look(Unknown(verdict.why), soon=not strange, strange=strange)
        if outcome is Outcome.CANCELLED:
            if self.was_refused(told) or self.was_not_started(told, execution):
                outcome = Outcome.LAUNCH_FAILED
            elif self.may_be_refused(told, execution):
                return Look(Unknown("whether it was refused, a note tells in a moment"), soon=True)
            elif told.by_uid is None and not known and not self.asked:
                outcome = Outcome.LOST
        ran_s = ran_without_a_sign(told, execution) if outcome is Outcome.FAILED else None
        if ran_s is not None and ran_s <= PROLOG_S:
            if self.drained(told):
                outcome = Outcome.LAUNCH_FAILED
            elif detail.completing or (ran_s <= 1 and abs(self.view.at - (told.end_time or 0)) < DRAINED_AFTER_S):
                return Look(Unknown("whether the site's Prolog failed, its node shows in a moment"), soon=True)
        waits_s = WORD_S[0 if self.nodes_told(execution) else 1] if word_comes(told, _helper(execution)) else 0.0
        if waits_s and told.end_time is not None and -SKEW_S < self.view.at - told.end_time < waits_s:
            return Look(Unknown("its helper's own word comes with the node's Epilog"), soon=True)
        restart = detail.restart if execution is None else execution.epoch.restart
        if execution is None and self.spec.shared and self.submission.was_refused and waited(detail):
            # The count is that of a start that never came: the last one that did was refused.
            restart = max(refusal.restart for refusal in self.submission.refusals)
        return Look(
            ObjectEnded(
                self.submission.number,
                self.slurm_job_id,
                outcome,
                self.evidence(told, execution, limited=detail),
                restart,
                detail.start_time,
            )
        )

    def nodes_told(self, execution: Execution | None) -> bool:
        """Every node's Epilog has run. That nothing completes does not say it: the notes were listed before."""
        if execution is None:
            return True
        told = {node for attempt, node, *_ in self.state.nodes if attempt == execution.attempt}
        try:
            return told.issuperset(expand(execution.nodes))
        except BadDataError:
            return bool(told)

    def was_refused(self, told: port.JobDetail) -> bool:
        """It was refused, and that is what ended it.

        One that Slurm started twice can wait again after it, and ticks cancel only those that must not start (as the
        owner, too): then the owner's cancel is his own. Of root's job that shows only while Slurm has its record.
        """
        if not self.submission.was_refused:
            return False
        last = max(self.submission.refusals, key=lambda refusal: refusal.restart)
        by_owner = told.by_uid == self.spec.uid and (self.spec.uid != 0 or waited(told))
        return last.why != "double_start" or not by_owner

    def was_not_started(self, detail: port.JobDetail, execution: Execution | None) -> bool:
        """slurmd had it cancelled: slurmctld had sent its node the script that ran there, or a Prolog failed.

        The first does a controller that took over with state of before the start; the second is mostly FAILED with
        1:0, and it is chance whether slurmd or slurmctld ends the job first. Nobody wanted it to end.
        """
        if detail.by_uid != 0 or detail.end_time is None:
            return False
        ran_s = detail.end_time - (detail.start_time or detail.end_time)
        brief = _helper(execution) is None and ran_s <= PROLOG_S
        times = [it.duplicate_at or (it.prolog_failed_at if brief else None) for it in self.drained(detail)]
        return any(at is not None and abs(at - detail.end_time) <= TWICE_S for at in times)

    def drained(self, detail: port.JobDetail) -> list[port.Node]:
        """Its nodes that are drained, as slurmctld does where a Prolog failed; none where that is not known."""
        nodes = self.details.nodes()
        if isinstance(nodes, port.Unknown):
            return []
        its = set(node_names(detail.nodes))
        return [node for node in nodes.nodes if node.drained and node.name in its]

    def evidence(
        self, detail: port.JobDetail, execution: Execution | None, *, limited: port.JobDetail | None = None
    ) -> dict[str, Any]:
        """What the end stands on, with the object's limits and the nodes to blame where they are known.

        :param limited: who tells the limits, where that is not ``detail``: accounting has all memory of the nodes as
            the limit of an object that was given none.
        """
        found = evidence_of(detail, detail.source)
        limits, nodes = limits_of(limited or detail), in_trouble(execution, self.view.site.nodes)
        return {**found, **({"limits": limits} if limits else {}), **({"nodes": nodes} if nodes else {})}

    @property
    def has_gate(self) -> bool:
        """The cluster is known to have a PrologSlurmctld, which notes each start."""
        return any(map(is_set, lines_of(self.view.config or {}, "PrologSlurmctld")))

    def may_be_refused(self, told: port.JobDetail, execution: Execution | None) -> bool:
        """Root cancelled it, as what is refused is, and so lately that the note can be younger than this pass."""
        if self.asked or self.view.notes is None or not self.has_gate or told.by_uid not in {None, 0}:
            return False
        # What the gate let through, by its note of this very start, and what then ran, was cancelled by an operator.
        start = told.start_time
        accepted = execution is not None and execution.started and execution.start_time == start
        if accepted and start is not None and (told.end_time or 0) - start > REFUSED_S:
            return False
        return -SKEW_S < self.view.at - (told.end_time or 0) < REFUSED_S

    def rows(self, seen: port.QueueJob | port.JobDetail | None = None) -> Rows | None:
        """The rows of this object; ``None`` where accounting does not answer."""
        answer = self.details.rows(self.slurm_job_id)
        if isinstance(answer, port.Unknown):
            return None
        return rows_of(() if isinstance(answer, port.Absent) else answer.value, self.state, self.submission, seen)

    def execution(self, detail: port.JobDetail) -> Execution | None:
        """The execution that ``detail`` is about: of its start time, else of its restart count."""
        for execution in reversed(self.submission.executions):
            if execution.start_time is not None and execution.start_time == detail.start_time:
                return execution
        for execution in reversed(self.submission.executions):
            if detail.restart is None or execution.epoch.restart == detail.restart:
                return execution
        return None

    def started(self, execution: Execution | None, detail: port.JobDetail) -> bool:
        """The batch script began: there is a start that was not refused.

        Where no hook notes the starts, what Slurm says of times is all there is: a job that never ran is given
        one time for both start and end.
        """
        if execution is None or not execution.started:
            return has_run(detail) and not self.has_gate
        return all(
            refusal.restart != execution.epoch.restart
            or (refusal.start_time is not None and refusal.start_time != detail.start_time)
            for refusal in self.submission.refusals
        )

    def end_notes(self) -> list[Note]:
        """The end notes of this object."""
        word, uid = self.spec.word(self.submission.number), self.spec.uid
        return [
            note
            for note in self.view.notes_of(self.spec.job)
            if note.kind == "end" and note.word == word and note.slurm_job_id == self.slurm_job_id
            if note.body.get("uid") == uid
        ]


def _helper(execution: Execution | None) -> HelperEnd | None:
    if execution is None or execution.ended is None:
        return None
    ended = execution.ended
    return HelperEnd(ended.status, ended.signal, ended.outcome)


def ran_without_a_sign(detail: port.JobDetail, execution: Execution | None) -> float | None:
    """How long it ran, in seconds, where nothing tells a script that failed from a site's Prolog that did.

    Slurm says 1:0 of both, and of the second drains the node. ``None``: its helper told an end, so the script ran,
    or Slurm says something else.
    """
    begin, end = detail.start_time, detail.end_time
    if _helper(execution) is not None or (detail.exit_status, detail.exit_signal) != (1, 0):
        return None
    return None if begin is None or end is None else float(end - begin)


__all__ = [
    "ALIVE", "LOST_AFTER_S", "OVER", "VIEW_AGE_S", "WAITING", "Look", "look", "look_elder",
]  # fmt: skip
