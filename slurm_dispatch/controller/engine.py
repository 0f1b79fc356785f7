"""What a job's pass does beside submitting and cancelling: requeue, update, tell, ask, close the elder; and what it
sees and says of the site while it does.

Runs with the owner's rights. What needs another's (the site's commands) is asked of the tick by the report, and comes
back in a later pass as data.

The law of this module: *before an object is changed, Slurm is asked whose it is.* An id can belong to another job by
now, and an object that was requeued already must not be requeued again.
"""

from __future__ import annotations

import random
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from slurm_dispatch.config.limits import Recent as Counted
from slurm_dispatch.controller import elders, memory
from slurm_dispatch.controller.ends import look_elder
from slurm_dispatch.controller.hearsay import FAILURES_MAX, NODES_MAX, Ended, Hearsay, Message
from slurm_dispatch.controller.siteview import Tally, Whose
from slurm_dispatch.errors import BadDataError
from slurm_dispatch.model.hostlist import node_names
from slurm_dispatch.model.outcome import Action, Outcome
from slurm_dispatch.records import cessation
from slurm_dispatch.records.actions import UpdateObject
from slurm_dispatch.records.changes import requeued_fields
from slurm_dispatch.records.describe import notice
from slurm_dispatch.records.elders import not_ceased
from slurm_dispatch.records.observation import CessationAnswer, ObjectAlive, ObjectEnded, Unknown
from slurm_dispatch.records.places import HERE, landing
from slurm_dispatch.records.state import Phase
from slurm_dispatch.records.verdict import rule_of
from slurm_dispatch.slurm import port
from slurm_dispatch.slurm.asked import changed_limits
from slurm_dispatch.slurm.directives import sbatch_options
from slurm_dispatch.slurm.options import parse
from slurm_dispatch.state.asked import read_asked, write_asked

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from slurm_dispatch.controller.view import Details, View
    from slurm_dispatch.records.actions import AskCessation, Requeue, Tell
    from slurm_dispatch.records.cessation import AskedExecution
    from slurm_dispatch.records.facts import Fact
    from slurm_dispatch.records.observation import Observation
    from slurm_dispatch.records.policy import Policy
    from slurm_dispatch.records.state import SlurmObject, State
    from slurm_dispatch.state.jobs import Record

BEGIN_DELAY_S = 150.0
"""Slurm lets an object that starts again wait for two minutes; a begin time farther away is a person's."""
REVOKED_S = 3
"""A node refuses what was allowed to start in the second in which the old run ended ("Job credential revoked"), and
Slurm then takes the job for failed. So "now" is this much later."""
_BRINGS_BACK = frozenset({Action.RESUBMIT.value, Action.REQUEUE.value})


class Engine:
    """The recovery engine's side of one job in one pass.

    :param user: the owner's name here, by the user database.
    :param tally: shared by the owner's jobs of this pass.
    :ivar said: what the tick is to hear.
    """

    def __init__(self, record: Record, view: View, details: Details, user: str, tally: Tally) -> None:
        self._record = record
        self._view = view
        self._details = details
        self._user = user
        self._tally = tally
        self._jitter = random.SystemRandom().random()
        self._done: set[tuple[Any, ...]] = set()
        self._counts: Mapping[str, cessation.Counted] = read_asked(record.folder) if view.site.answers else {}
        self._kept: dict[str, tuple[CessationAnswer, cessation.Counted | None]] = {}
        self._state: State | None = None
        self._script: bytes | None = None
        self.said = Hearsay()

    # What it sees.

    def policy(self, base: Policy, state: State) -> Policy:
        """The site's policy for this job now, as ``state`` shows it."""
        self._state = state
        place, several = self._goal(state, base)
        site = self._view.of(place).site
        policy = site.policy(base, self._whose(state), self._tally, self._view.at, self._jitter)
        if site.known and _keeps_off(state, policy):
            policy = replace(policy, spare=0 if several else self._spare(state, place))
        return policy

    def _goal(self, state: State, base: Policy) -> tuple[str, bool]:
        """The cluster that what comes next is about, and whether it may be another one.

        It is the object's while there is one, or while it is to keep its id. Where the next submission lands is not
        known where it can land in two places: no node is kept off then.
        """
        it = state.object
        if it is None and state.phase is Phase.ENDED and state.current is not None and state.over is not None:
            again = rule_of(state, base, state.over.outcome).action is Action.REQUEUE
            it = state.current.object if again else None
        if it is not None:
            return self._view.place(state.spec, it), False
        goals = landing(state.spec, self._view.cluster)
        return goals[0] or goals[-1], len(goals) > 1

    def _spare(self, state: State, place: str) -> int | None:
        """How many nodes of that cluster can be excluded so that as many as the job had are left."""
        nodes = self._view.of(place).site.nodes
        nodes = self._details.at(place, self._view).nodes() if isinstance(nodes, port.Unknown) else nodes
        own = next((it.execution.nodes for it in reversed(state.submissions) if it.execution is not None), "")
        if isinstance(nodes, port.Unknown):
            return None
        return memory.spare(nodes, self._whose(state).partitions, node_names(own))

    def observe(self, state: State, observation: Observation) -> Observation:
        """``observation`` with what the site and other objects show."""
        site = self._view.site
        silent = observation.silent
        execution = None if state.current is None else state.current.execution
        if state.phase is Phase.RUNNING and state.spec.suspect_s is not None and execution is not None:
            silent = self._at(state, state.object).site.silent(node_names(execution.nodes))
        answers: bool | None = None
        elder = observation.elder
        if state.elder is not None:
            elder = look_elder(state, self._view, self._details)
            if state.elder.suspected is not None:
                answers = self._at(state, state.elder.object).site.respond(state.elder.suspected.nodes)
        return replace(
            observation,
            object=self._with_changed(state, observation.object),
            clock_ran=site.clock(),
            cessation=self._answers(state),
            silent=silent,
            elder=elder,
            elder_answers=answers,
            elder_closed=elders.closed(self._record, state) if state.phase is Phase.NEW else Unknown(),
        )

    def _at(self, state: State, it: SlurmObject | None) -> View:
        """What is known of the cluster of this object."""
        return self._view.of(self._view.place(state.spec, it))

    def _with_changed(
        self, state: State, seen: ObjectAlive | ObjectEnded | Unknown
    ) -> ObjectAlive | ObjectEnded | Unknown:
        """An end with the limits that somebody has changed on the object, as options of the next submission."""
        current = state.current
        if not isinstance(seen, ObjectEnded) or current is None or not seen.evidence.get("limits"):
            return seen
        if self._script is None:
            self._script = self._record.script(state.script_sha256)
        options = changed_limits(state.spec.argv, self._script, current.changes, seen.evidence["limits"])
        return replace(seen, evidence={**seen.evidence, "changed": list(options)}) if options else seen

    def _answers(self, state: State) -> dict[str, CessationAnswer]:
        """What has just been answered about this job's executions, with how often it was before."""
        found: dict[str, CessationAnswer] = {}
        attempts = {it.attempt for it in not_ceased(state)}
        for (key, attempt), answer in self._view.site.answers.items():
            if key == state.spec.job and attempt in attempts:
                if attempt not in self._kept:  # once a pass: an answer counts once
                    told, kept = state.cessation.get(attempt), self._counts.get(attempt)
                    self._kept[attempt] = cessation.tally(told, kept, answer)
                found[attempt] = self._kept[attempt][0]
        return found

    def _whose(self, state: State) -> Whose:
        """Whose it is and where it runs: by the hooks' word where there is one, else by the owner's."""
        account, partition = state.spec.account, state.spec.partition
        notes = [note for note in self._view.notes_of(state.spec.job) if note.kind == "start"]
        notes = [note for note in notes if note.body.get("uid") == state.spec.uid]  # anybody can write the word
        if notes:
            newest = max(notes, key=lambda note: (note.word.submission, note.at))
            account = str(newest.body.get("account") or account)
            partition = str(newest.body.get("partition") or partition)
        return Whose(state.spec.uid, self._user, account, tuple(name for name in partition.split(",") if name))

    # What it does.

    def requeue(self, state: State, action: Requeue) -> tuple[dict[str, Any] | None, str, bool]:
        """Let Slurm start the object again under its id.

        :returns: (body of the fact ``requeue_failed`` where it is certain that it will not, else ``None``; why it
            could not be done now, or empty; whether something was done).
        """
        it = action.object
        if ("requeue", it) in self._done:
            return None, "", False
        detail, why, gone = self._ours(state, it, action.submission)
        if detail is None:
            return self._failed(action, why) if gone else None, "" if gone else why, False
        if self._again(state, action.submission, detail):
            self._done.add(("requeue", it))
            return None, "", False
        answer = self._details.port.requeue(it.slurm_job_id, self._view.place(state.spec, it) or None)
        if answer.refused:
            return self._failed(action, answer.why), "", False
        if not answer.done:
            return None, f"cannot requeue Slurm job {it.slurm_job_id}: {answer.why}", False
        self._done.add(("requeue", it))
        return None, "", True

    def update(self, state: State, action: UpdateObject) -> str:
        """Change fields of the object; why it could not be done, or empty."""
        it = action.object
        fields = self._with_own(state, action.fields)
        mark = ("update", it, *sorted(fields.items()))
        if mark in self._done:
            return ""
        detail, why, _ = self._ours(state, it, action.submission)
        if detail is not None and "PENDING" not in detail.states:
            return ""  # it runs, or is over: what was to be changed is past
        if detail is not None:
            try:
                answer = self._details.port.update(it.slurm_job_id, self._view.place(state.spec, it) or None, fields)
            except ValueError as error:
                raise BadDataError(f"job {state.spec.job}: {error}") from error
            why = "" if answer.done else answer.why
        if not why:
            self._done.add(mark)
            return ""
        return f"cannot update Slurm job {it.slurm_job_id}: {why}"

    def _with_own(self, state: State, fields: Mapping[str, str]) -> Mapping[str, str]:
        """The nodes that the user excluded himself stay excluded: Slurm's field is one list."""
        if fields.get("StartTime") == "now":
            fields = {**fields, "StartTime": f"now+{REVOKED_S}"}
        if "ExcNodeList" not in fields:
            return fields
        given, _, _ = sbatch_options(self._record.script(state.script_sha256))
        own = parse(state.spec.argv).last("exclude") or given.last("exclude")
        mine = "" if own is None else own.value or ""
        if not mine or mine.startswith(("/", ".")):  # sbatch takes a file's name too
            return fields
        return {**fields, "ExcNodeList": f"{mine},{fields['ExcNodeList']}"}

    def lift(self, state: State, policy: Policy) -> UpdateObject | None:
        """What lifts Slurm's begin delay of an object that is to keep its id, once nothing of it completes any more.

        ``None`` where there is nothing to lift. A begin time that the rule gave it stays, and one that a person set
        farther away than Slurm's own delay.
        """
        current, it = state.current, state.object
        if current is None or it is None or not current.ends or state.phase not in {Phase.QUEUED, Phase.RUNNING}:
            return None
        end, queued = current.ends[-1], self._at(state, it).of_id(it.slurm_job_id)
        if queued is None or queued.state != "PENDING" or queued.reason != "BeginTime":
            return None
        begin_s = (queued.start_time or 0) - self._view.at
        if not REVOKED_S + 1 < begin_s <= BEGIN_DELAY_S:
            return None  # a person's, or what was lifted already
        if state.request is not None or state.hold is not None or state.spec.shared:
            return None
        decision = state.decision
        ours = state.requeued and decision is not None and decision.action is Action.REQUEUE
        changes = () if decision is None or not ours else decision.changes
        if any(word.startswith("--begin=") for word in changes):
            return None
        if not ours and (end.final or rule_of(state, policy, end.outcome).action is not Action.REQUEUE):
            return None
        fields = requeued_fields(state, self._spare(state, self._view.place(state.spec, it)), changes)
        return UpdateObject(it, current.number, fields)

    def tell(self, state: State, action: Tell) -> dict[str, Any] | None:
        """Have the owner told.

        :returns: the body of the fact ``told`` once that is done; ``None``: it is under way, or not this pass's.
        """
        site = self._view.site
        if not site.known:
            return None
        body = {"on": action.on, "what": action.what}
        about = (state.spec.job, action.on, action.what)
        if not site.rules.notify:
            return {**body, "status": None}
        if about in site.told:
            return {**body, "status": site.told[about]}
        message = Message(action.on, action.what, state.spec.name, *notice(state, action.on), action.left_s)
        if message not in self.said.tell:
            self.said.tell.append(message)
        return None

    def ask(self, state: State, facts: Sequence[Fact], action: AskCessation) -> None:
        """Have the executions asked about; the answers come into a later pass."""
        if not self._view.site.known:
            return
        known: dict[str, AskedExecution] = {it.attempt: it for it in self.said.ask}
        for it in elders.questions(self._record, state, facts, action.executions):
            known.setdefault(it.attempt, it)
        self.said.ask = list(known.values())
        self.said.last = self.said.last or action.last

    def _ours(self, state: State, it: SlurmObject, submission: int) -> tuple[port.JobDetail | None, str, bool]:
        """The object as Slurm has it now, if it is still the submission's; else why not, and whether for certain."""
        there = self._details.at(self._view.place(state.spec, it), self._view).port
        answer = there.detail([it.slurm_job_id]).get(it.slurm_job_id, port.Unknown("no answer"))
        if isinstance(answer, port.Unknown):
            return None, answer.why, False
        if isinstance(answer, port.Absent):
            return None, f"Slurm has no job {it.slurm_job_id} any more", True
        detail = answer.value
        if detail.array:
            return None, f"Slurm job {it.slurm_job_id} is of an array now, and so another job", True
        if detail.uid != state.spec.uid or (detail.word is not None and detail.word != state.spec.word(submission)):
            return None, f"Slurm job {it.slurm_job_id} is another job now", True
        return detail, "", False

    @staticmethod
    def _again(state: State, number: int, detail: port.JobDetail) -> bool:
        """It waits or runs again already: the count has risen past every execution and end that the record has.

        An end can be of a count that never started: cancelled while it waited, or nodes that did not boot.
        """
        if "PENDING" in detail.states:
            return True
        for submission in state.submissions:
            if submission.number == number:
                known = [execution.epoch.restart for execution in submission.executions if execution.started]
                known += [end.restart for end in submission.ends if end.restart is not None]
                return detail.restart is not None and bool(known) and detail.restart > max(known)
        return False

    @staticmethod
    def _failed(action: Requeue, why: str) -> dict[str, Any]:
        return {"submission": action.submission, "slurm_job_id": action.object.slurm_job_id, "why": why[:500]}

    # What it says.

    def appended(self, state: State, kind: str, body: Mapping[str, Any]) -> None:
        """A fact was appended to what made ``state``."""
        now = time.time()
        if kind == "end" and body["outcome"] != Outcome.COMPLETED.value:
            self._ended(state, int(body["submission"]), str(body["outcome"]), body["evidence"].get("nodes"))
        elif kind == "suspected":
            whose = self._whose(state)
            self._ended(state, int(body["submission"]), Outcome.SUSPECT.value, body["nodes"])
            self._tally.overlaps.append(Counted(now, whose.user, whose.account, whose.partition))
        elif kind == "decision" and body["action"] in _BRINGS_BACK:
            whose, current = self._whose(state), state.current
            number = body["submission"] or (1 if current is None else current.number)
            self._tally.resubmissions.append(Counted(now, whose.user, whose.account, whose.partition))
            if len(self.said.resubmitted) < FAILURES_MAX:
                self.said.resubmitted.append((int(number), now))

    def _ended(self, state: State, number: int, outcome: str, nodes: object) -> None:
        if not isinstance(nodes, list | tuple):
            found = next((it for it in state.submissions if it.number == number), None)
            execution = None if found is None or found.was_refused else found.execution  # then no node is to blame
            nodes = () if execution is None else node_names(execution.nodes)
        names = tuple(str(name) for name in nodes)
        of = next((it.object for it in state.submissions if it.number == number), None)
        if self._view.place(state.spec, of) != HERE:
            names = ()  # they would be taken for this cluster's of the same names
        if len(self.said.ended) < FAILURES_MAX:
            at = self._view.at
            self.said.ended.append(Ended(number, at, outcome, names if len(names) <= NODES_MAX else ()))

    def finish(self) -> Hearsay:
        """At the end of the pass: what the tick is to hear."""
        state = self._state
        if state is None:
            return self.said
        whose = self._whose(state)
        self.said.account, self.said.partition = whose.account[:128], whose.partition[:128]
        self.said.clock = state.phase is Phase.HELD
        site = self._view.site
        if any(it[0] == state.spec.job for it in (*site.answers, *site.told)):
            self.said.view = site.number
        elder = state.elder
        if elder is not None and elder.suspected is not None and state.phase is not Phase.CLOSED:
            self.said.overlap = elder.suspected.at
        self._keep_counts()
        return self.said

    def _keep_counts(self) -> None:
        """How often an answer came that no fact says yet."""
        after = dict(self._counts)
        for attempt, (_, kept) in self._kept.items():
            after.pop(attempt, None)
            if kept is not None:
                after[attempt] = kept
        if after != self._counts:
            write_asked(self._record.folder, after)


def _keeps_off(state: State, policy: Policy) -> bool:
    """What is decided or done next may exclude nodes."""
    if state.phase is Phase.REQUEUING:
        return True
    if state.phase is not Phase.ENDED or state.over is None:
        return False
    return bool(policy.excluded) or rule_of(state, policy, state.over.outcome).exclude_nodes


__all__ = ["Engine"]
