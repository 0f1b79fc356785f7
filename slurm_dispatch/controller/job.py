"""One job in one pass: observe, decide, record, act, until there is nothing more to do.

Runs with the owner's rights. Facts come first and acts after, one step at a time, so that a pass that dies
anywhere is finished by the next one, and two passes at once decide each state once.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from slurm_dispatch.controller import elders, hearsay, index, rest, settle
from slurm_dispatch.controller.dependents import Dependents
from slurm_dispatch.controller.ends import look
from slurm_dispatch.controller.engine import Engine
from slurm_dispatch.controller.siteview import Tally
from slurm_dispatch.records.actions import (
    Action,
    AppendFact,
    AskCessation,
    Cancel,
    CloseElder,
    LookUp,
    Nothing,
    Repoint,
    Requeue,
    Submit,
    Tell,
    UpdateObject,
)
from slurm_dispatch.records.decide import decide
from slurm_dispatch.records.describe import body_text
from slurm_dispatch.records.fold import fold
from slurm_dispatch.records.observation import Observation
from slurm_dispatch.records.places import HERE, landing, places
from slurm_dispatch.records.policy import Policy
from slurm_dispatch.records.state import Phase, Settled, SlurmObject, State
from slurm_dispatch.slurm.commands import SlurmCommands, commands_environment
from slurm_dispatch.slurm.configuration import seconds_of, tells_starts
from slurm_dispatch.slurm.port import Accepted, Ambiguous, Rejected, SlurmPort
from slurm_dispatch.slurm.resubmit import resubmission
from slurm_dispatch.submit.run import Intent, Overtaken, submit_once, wait_s

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from slurm_dispatch.config.site import Site
    from slurm_dispatch.controller.view import Details, View
    from slurm_dispatch.records.facts import Fact
    from slurm_dispatch.state.jobs import Record

ROUNDS_MAX = 64
"""Steps of one job in one pass: a whole replacement takes about ten, and the next pass goes on."""
REFUSE_MAX = 100
"""Submissions of one job that PrologSlurmctld is told to refuse, the newest: each is a file of the site's."""
SOON_S = (0.2, 0.5, 1.0, 2.0, 5.0)
"""When to ask again about an object that is ending, by how often it was asked."""


@dataclass(slots=True)
class Report:
    """What one job's pass came to; goes from the owner's child to the tick as JSON.

    :param seq: the last fact that was read; 0 if the record could not be read.
    :param soon: the object is ending and its outcome was not told yet.
    :param due: Unix seconds when it is worth looking again even if nothing changes, or ``None``.
    :param lines: what was decided and done, for the log.
    :param trouble: why it could not be finished, one line, or empty.
    :param done_notes: notes that are facts now.
    :param refuse: identity words of submissions that must not start any more.
    :param site: what it has to say for the whole site, as :mod:`slurm_dispatch.controller.hearsay` packs it.
    :param rest: its entry of the index, as :func:`slurm_dispatch.controller.index.pack` packs it; empty: none.
    """

    key: str
    seq: int = 0
    closed: bool = False
    soon: bool = False
    due: float | None = None
    lines: list[str] = field(default_factory=list)
    trouble: str = ""
    done_notes: list[str] = field(default_factory=list)
    refuse: list[str] = field(default_factory=list)
    site: dict[str, Any] = field(default_factory=dict)
    rest: str = ""


@dataclass(frozen=True, slots=True)
class Means:
    """What a pass works with.

    :param by: who the facts are by (``tick@<host>``, ``user:<name>@<host>``).
    :param submit_timeout_s: the deadline of one sbatch.
    :param message_timeout_s: Slurm's MessageTimeout; ``None``: its configuration tells.
    :param site_environment: what Slurm's commands need on this host.
    :param accounting: the site has it; ``None``: Slurm's configuration tells. For persons: a tick's view knows it.
    :param stop_at: ``time.monotonic()`` after which nothing more is begun.
    """

    port: SlurmPort
    policy: Policy
    by: str
    submit_timeout_s: float
    message_timeout_s: float | None
    site_environment: Mapping[str, str]
    stop_at: float = float("inf")
    accounting: bool | None = None

    def until(self, stop_at: float) -> Means:
        """The same, with another end."""
        return replace(self, stop_at=stop_at)


def means_of(site: Site, by: str) -> Means:
    """What the site's configuration gives a pass, with Slurm's commands behind it."""
    environment = commands_environment(site.slurm_bin or "")
    return Means(
        port=SlurmCommands(environment, timeout_s=site.query_timeout_s),
        policy=Policy(site.rules, site.most_submissions, site.launch_failures),
        by=by,
        submit_timeout_s=site.submit_timeout_s,
        message_timeout_s=site.message_timeout_s,
        site_environment=environment,
        accounting=site.accounting,
    )


class Job:
    """One job in one pass.

    :param details: shared by the jobs of one owner, so that accounting is asked once for all.
    :param user: the owner's name here.
    :param tally: shared by the jobs of one owner, so that one pass keeps to the site's bounds.
    :param before: what the index says of the job.
    :ivar waits: why nothing more could be done, for a person, or empty.
    """

    def __init__(
        self,
        record: Record,
        view: View,
        details: Details,
        means: Means,
        *,
        user: str = "",
        tally: Tally | None = None,
        before: index.Entry | None = None,
    ) -> None:
        self._before = before
        self._record = record
        self._view = view
        self._details = details
        self._means = means
        self._engine = Engine(record, view, details, user, Tally() if tally is None else tally)
        self._dependents = Dependents(record, view, details)
        self._cancelled: set[SlurmObject] = set()
        self.report = Report(os.path.basename(record.folder))
        self.waits = ""

    def want(self) -> State:
        """Read the record and tell :class:`Details` what will be asked.

        :raises DispatchError: the record cannot be read.
        """
        state = fold(self._record.read())
        self.report.seq = state.seq
        self.report.closed = state.phase is Phase.CLOSED
        current, submission = state.object, state.current
        if current is not None and submission is not None:
            place = self._view.place(state.spec, current)
            there = self._view.of(place)
            queued = there.of_id(current.slurm_job_id)
            if there.told and (queued is None or queued.state not in {"PENDING", "RUNNING"}):
                since = min(submission.at, self._view.at) - 3600
                self._details.at(place, self._view).want(current.slurm_job_id, since)
        return state

    def work(self) -> Report:
        """Take every step that can be taken now.

        :raises DispatchError: the record cannot be read or written, or an act failed for good.
        """
        try:
            self._steps()
        finally:  # what became a fact before the trouble is told nevertheless
            self.report.site = hearsay.pack(self._engine.finish())
        return self.report

    def begin(self) -> Report:
        """Take the steps of a job that is new or waits, up to its submission: they stand on nothing of the site's.

        :raises DispatchError: as for :meth:`work`.
        """
        try:
            self._steps(frozenset({Phase.NEW, Phase.WAITING}))
        finally:
            self.report.site = hearsay.pack(self._engine.finish())
        return self.report

    def _steps(self, only: frozenset[Phase] = frozenset(Phase)) -> None:
        """Step by step, as long as the job is in one of the phases ``only``."""
        for _ in range(ROUNDS_MAX):
            stamp, now = self._record.stamp(), time.time()
            facts = self._record.read()
            state = fold(facts)
            if state.phase not in only:
                return
            self.report.seq = state.seq
            self.report.closed = state.phase is Phase.CLOSED
            policy = self._engine.policy(self._means.policy, state)
            if time.monotonic() > self._means.stop_at:
                self.report.soon = True
                return
            seen = self._observe(state)
            actions = decide(state, seen, policy, self._view.at)
            if any(isinstance(action, LookUp) for action in actions):
                actions = decide(state, self._observe(state, look_up=True), policy, self._view.at)
            lift = self._engine.lift(state, policy)
            actions = actions if lift is None else [lift, *actions]
            if not self._perform(state, actions, facts):
                self._finish(state, facts)
                since = index.since_of(self._before, stamp, now)
                self._rest(state, rest.needs(state, seen, actions, self._view), stamp, since)
                return

    def _observe(self, state: State, *, look_up: bool = False) -> Observation:
        seen = look(state, self._view, self._details)
        self.report.soon = seen.soon
        self.report.trouble = seen.strange or self.report.trouble
        notes = self._view.notes_of(state.spec.job)
        lookups = None
        if look_up and state.current is not None and state.current.settled is Settled.OPEN:
            lookups = settle.lookups(state, state.current, self._view, self._details)
        there = self._view.of(self._view.place(state.spec, state.object))
        observed = Observation(
            host=self._view.host,
            clock=max(self._view.at, time.time()),
            incoming=settle.incoming(state, notes, seen, self._view.cluster, hashed=tells_starts(there.config or {})),
            object=seen.object,
            lookups=lookups,
            seen=settle.seen(state, self._view),
        )
        return self._engine.observe(state, observed)

    def _perform(self, state: State, actions: Sequence[Action], facts: Sequence[Fact]) -> bool:
        """Do the actions in order.

        :returns: true if the record is another one now, so that there is more to decide.
        """
        seq = state.seq
        for action in actions:
            if isinstance(action, AppendFact):
                if not self._append(state, seq, action.kind, action.body):
                    return True  # somebody else was first: read again
                seq += 1
            elif isinstance(action, Submit):
                return self._submit(state, seq, action)
            elif isinstance(action, Cancel):
                if action.object in self._cancelled:
                    continue
                place = self._view.place(state.spec, action.object)
                answer = self._means.port.cancel(action.object.slurm_job_id, place or None)
                if not answer.done:
                    self.report.trouble = f"cannot cancel Slurm job {action.object.slurm_job_id}: {answer.why}"
                    return seq > state.seq
                self._cancelled.add(action.object)
                self.report.soon = self.report.soon or not action.stray
                self._line(f"cancelled Slurm job {action.object.slurm_job_id}: {action.why}")
            elif isinstance(action, Nothing):
                self.report.due, self.waits = action.until, action.why
            elif isinstance(action, Tell):
                told = self._engine.tell(state, action)
                if told is not None:
                    self._append(state, seq, "told", told)
                    return True
            elif isinstance(action, CloseElder):
                elders.close(self._record, state, keep=action.keep, by=self._means.by)
                return True
            elif isinstance(action, AskCessation):
                self._engine.ask(state, facts, action)
            elif isinstance(action, Repoint):
                body, why = self._dependents.repoint(state, action)
                self.report.trouble = why or self.report.trouble
                if body is not None:
                    self._append(state, seq, "repointed", body)
                    return True
            elif isinstance(action, UpdateObject):
                self.report.trouble = self._engine.update(state, action) or self.report.trouble
            elif isinstance(action, Requeue) and self._requeue(state, seq, action):
                return True
        return seq > state.seq

    def _append(self, state: State, seq: int, kind: str, body: Mapping[str, Any]) -> bool:
        """Append the fact after ``seq``; false if somebody else was first."""
        if not self._record.append(seq + 1, kind, self._means.by, body):
            return False
        self._engine.appended(state, kind, body)
        self._say(kind, body)
        return True

    def _requeue(self, state: State, seq: int, action: Requeue) -> bool:
        """True if a fact was appended: something depends on it, or Slurm will not do it."""
        waiting = self._dependents.before(state)
        if waiting is not None:
            self._append(state, seq, "dependents", waiting)
            return True
        failed, why, done = self._engine.requeue(state, action)
        if failed is not None:
            self._append(state, seq, "requeue_failed", failed)
            return True
        self.report.soon = True
        self.report.trouble = why or self.report.trouble
        if done:
            self._line(f"requeued Slurm job {action.object.slurm_job_id}")
        return False

    def _submit(self, state: State, seq: int, action: Submit) -> bool:
        if time.monotonic() + self._means.submit_timeout_s > self._means.stop_at:
            self.report.soon = True  # sbatch could be cut off before its own deadline
            return False
        goals = landing(state.spec, self._view.cluster)
        told = [place for place in goals if place == HERE or self._view.of(place).told]
        if not told:  # sbatch would refuse it, and that would count against the job
            self.report.trouble = self.waits = f"submission {action.submission} waits for cluster {', '.join(goals)}"
            return False
        waiting = self._dependents.before(state)
        if waiting is not None:
            self._append(state, seq, "dependents", waiting)
            return True
        word = state.spec.word(action.submission)
        call = resubmission(
            state.spec,
            word,
            script_path=self._record.script_path(state.script_sha256),
            script=self._record.script(state.script_sha256),
            environment=self._record.environment(),
            site_environment=self._means.site_environment,
            deadline_s=self._means.submit_timeout_s,
            changes=action.changes,
            config=self._view.of(told[0]).config,
            cluster=goals[0] if not state.spec.clusters else HERE,
            dependency=self._dependents.repeated(state),
        )
        answer = submit_once(
            self._record,
            self._means.port,
            Intent(word, action.changes, action.decision),
            call,
            seq=seq,
            by=self._means.by,
            cluster=state.spec.cluster,
            settle_after_s=self._settle_after(),
        )
        if isinstance(answer, Accepted):
            self._line(f"submission {action.submission} is Slurm job {answer.slurm_job_id}")
        elif isinstance(answer, Rejected):
            self._line(f"submission {action.submission} was rejected: {answer.message}")
        elif isinstance(answer, Ambiguous):
            self._line(f"submission {action.submission} is not known to have reached Slurm: {answer.why}")
        elif isinstance(answer, Overtaken):
            self._line(f"the answer to submission {action.submission} came too late: {answer.why}")
        return True

    def _settle_after(self) -> float:
        """How long somebody else must watch an intent before he settles it (P6)."""
        found = self._means.message_timeout_s
        if found is None:
            found = seconds_of(self._view.config or {}, "MessageTimeout")
        return wait_s(self._means.submit_timeout_s, found)

    def _finish(self, state: State, facts: Sequence[Fact]) -> None:
        """Nothing more to do: which notes have become facts, and which submissions must never start."""
        notes = self._view.notes_of(state.spec.job)
        self.report.done_notes = settle.done_with(state, facts, notes, self._view.at)
        there = {str(note.word) for note in notes if note.kind == "refuse"}
        over = [str(state.spec.word(number)) for number in state.never_start]
        long_closed = state.closed is not None and self._view.at - state.closed.at > settle.KEEP_START_S
        self.report.refuse = [] if long_closed else [word for word in over[-REFUSE_MAX:] if word not in there]

    def _rest(self, state: State, needs: str, stamp: int, since: float) -> None:
        """Say with what the job has nothing to do; ``stamp`` is of the facts that made ``state``."""
        report, view, key = self.report, self._view, state.spec.job
        if view.unasked.intersection(asked := places(state, view.cluster, view.at)):
            report.soon = True  # the next pass asks them
        if report.trouble or report.soon or report.refuse or report.done_notes:
            needs = index.WORK
        current = 0 if state.object is None else state.object.slurm_job_id
        entry = index.Entry(
            state.seq,
            state.phase.value,
            current,
            rest.due(state, view, report.due),
            stamp,
            index.line_at(view, key, state.spec.uid, current, asked),
            index.notes_of(note.name for note in view.notes_of(key)),
            needs,
            since,
            index.places_of(asked),
        )
        report.rest = index.pack(entry)

    def _say(self, kind: str, body: Mapping[str, Any]) -> None:
        if kind == "end":
            text = "ended" if body["final"] else "was restarted by Slurm, its execution ended"
            self._line(f"Slurm job {body['slurm_job_id']} {text}: {body['outcome']}")
        elif kind == "decision":
            self._line(f"{body['outcome']}: {body['action']} ({body['reason'] or body['rule']})")
        elif kind == "submitted":
            self._line(f"submission {body['submission']} is Slurm job {body['slurm_job_id']}, found by {body['how']}")
        elif kind == "burnt":
            self._line(f"submission {body['submission']} never reached Slurm: {body['evidence']}")
        elif kind == "stray":
            self._line(f"Slurm job {body['slurm_job_id']} is a stray of submission {body['submission']}")
        elif kind in {"repointed", "slurm_hold"}:
            self._line(body_text(kind, body))
        elif kind == "closed":
            self._line(f"closed: {body['why']}{': ' + body['reason'] if body['reason'] else ''}")

    def _line(self, text: str) -> None:
        self.report.lines.append(text)


__all__ = ["ROUNDS_MAX", "SOON_S", "Job", "Means", "Report"]
