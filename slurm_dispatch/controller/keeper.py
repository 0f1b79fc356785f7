"""What the tick itself keeps and does for the whole site, beside the owners' jobs.

At the begin of a pass it makes the :class:`~slurm_dispatch.controller.siteview.SiteView` of the tick's own files and
of one call for Slurm's nodes; in between it hears what the owners' children report; at the end it says which files
must be written. Owners are told, and cessation is asked, by children that have given their rights up; their answers
go into a later pass, as data.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from slurm_dispatch.controller import breaker, clock, hints, memory, recent, silence
from slurm_dispatch.controller.children import Children
from slurm_dispatch.controller.hints import Hints
from slurm_dispatch.controller.notify import notify
from slurm_dispatch.controller.silence import Suspects
from slurm_dispatch.controller.siteview import SiteView
from slurm_dispatch.records.cessation import UNKNOWN, answered
from slurm_dispatch.slurm.port import Nodes, SlurmPort, Unknown
from slurm_dispatch.state.as_user import in_child
from slurm_dispatch.state.users import identity_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from slurm_dispatch.controller.cessation import Asker, Question
    from slurm_dispatch.controller.hearsay import Hearsay, Message
    from slurm_dispatch.controller.siterules import SiteRules
    from slurm_dispatch.records.cessation import AskedExecution
    from slurm_dispatch.records.observation import CessationAnswer

NODES_AGE_S = 60.0
"""A pass between full ones takes the nodes of the last full one, if they are no older than this."""
SILENT_AGE_S = 2.0
"""While one is silent, passes between full ones ask too, no more often than this."""
ENDS_MATTER_S = 3600.0
"""The nodes are asked for as long as an execution has failed within this time: one may be drained because of it."""
TELL_AT_ONCE = 4
TELLING_MAX = 1_000
"""Messages that wait; more come again with the next ticks."""
RESERVE_S = 5.0
READY_S = 60.0
"""A job is looked at again and again for what came for it, so long; after that with the full passes."""
KEPT_S = 3600.0
"""What came for a job that did not take it goes after this."""
LAST_S = 5.0
"""A hold that runs out has its executions asked again after so short a time, and not in each pass."""
ASKED_MAX = 100_000
VIEWS_MAX = 64
"""Views that are kept, for children that end many passes after they began."""
SAID_MAX = 100
"""Different troubles with the command that are said."""
_LOOK_S = 0.01
"""A wait of nothing reads nothing."""


@dataclass(frozen=True, slots=True)
class _Heard:
    """What one job's child reported."""

    key: str
    uid: int
    user: str
    said: Hearsay


class Keeper:
    """The site's side of the passes of one process.

    :param asker: who asks about cessation; ``None``: nobody does.
    :param log: takes one line for each thing that an operator should know, once.
    """

    def __init__(self, rules: SiteRules, port: SlurmPort, asker: Asker | None, log: Callable[[str], None]) -> None:
        self._rules = rules
        self._port = port
        self._asker = asker
        self._log = log
        self._telling = Children(TELL_AT_ONCE, 1 << 10)
        self._before = Hints()
        self._now = Hints()
        self._nodes: Nodes | Unknown = Unknown("not asked")
        self._nodes_at = -NODES_AGE_S
        self._names: frozenset[str] | Unknown = Unknown("not asked")
        self._names_at = -NODES_AGE_S
        self._heard: list[_Heard] = []
        self._said_why = ""
        self._said: set[str] = set()
        self._told: dict[tuple[str, int, str], int | None] = {}
        self._under_way: dict[str, tuple[str, int, str]] = {}
        self._done: dict[tuple[str, int, str], tuple[int | None, float]] = {}  # and when (monotonic)
        self._asked: dict[Question, float] = {}  # when (monotonic)
        self._answers: dict[Question, CessationAnswer] = {}
        self._came: dict[str, float] = {}  # by key: when (monotonic) something for it came
        self._views: dict[int, SiteView] = {}
        self._number = 0

    def begin(self, content: Mapping[str, Any], at: float, *, full: bool) -> SiteView:
        """What the pass knows of the site.

        :param content: what :func:`~slurm_dispatch.controller.hints.read` read.
        :param at: Unix seconds, before anything was asked.
        :param full: Slurm is asked for its nodes, if anything depends on them; otherwise only while one is silent.
        """
        self._collect()
        self._before = before = hints.unpack(content)
        reading = clock.advance(before.clock, at, self._rules.gap_s, last=before.last)
        suspects = Suspects(why="not asked")
        seen = before.silence
        if (full and self._nodes_matter(before, at)) or self._is_waited_for(before):
            self._nodes, self._nodes_at = self._port.nodes(), time.monotonic()
            seen = silence.look(before.silence, self._nodes, at, self._rules.gap_s)
            if self._rules.suspicion:
                suspects = silence.suspects(
                    seen,
                    self._nodes,
                    self._port.config,
                    at,
                    share=self._rules.suspect_share,
                    count=self._rules.suspect_count,
                )
                self._say_why(suspects.why)
                seen = replace(seen, why=suspects.why)
        elif full or time.monotonic() - self._nodes_at > NODES_AGE_S:
            self._nodes = Unknown("not asked")
        opened = breaker.judge(before.breaker, before.recent, seen.drained, self._rules.bounds, at)
        self._now = replace(before, clock=reading, silence=seen, breaker=opened)
        self._number += 1
        view = self._views[self._number] = SiteView(
            rules=self._rules,
            hints=self._now,
            nodes=self._nodes,
            suspects=suspects,
            answers=dict(self._answers),
            told=dict(self._told),
            cessation=self._asker is not None and self._asker.answers,
            known=True,
            number=self._number,
        )
        self._views.pop(self._number - VIEWS_MAX, None)
        return view

    def _is_waited_for(self, before: Hints) -> bool:
        """A node is silent, and a job may be waiting for the moment from which that counts."""
        late = time.monotonic() - self._nodes_at > SILENT_AGE_S
        return self._rules.suspicion and bool(before.silence.silent) and late

    def _nodes_matter(self, before: Hints, at: float) -> bool:
        ends = before.recent.ends
        return bool(
            self._rules.suspicion
            or before.memory
            or before.recent.overlaps
            or before.breaker.open
            or (ends and at - ends[-1].at < ENDS_MATTER_S)
        )

    def hear(self, key: str, uid: int, user: str, said: Hearsay) -> None:
        """Take what the child of ``uid``, called ``user`` here, reported about one of its jobs."""
        self._heard.append(_Heard(key, uid, user, said))
        view = self._views.get(said.view)
        if view is not None:  # its own one: a child can end passes after it began
            for question, answer in view.answers.items():
                if question[0] == key and self._answers.get(question) is answer:
                    del self._answers[question]
            for about in view.told:
                if about[0] == key:
                    self._told.pop(about, None)
        self._ask(key, said)
        for message in said.tell:
            self._tell(key, uid, user, message)

    def overlaps_free(self, view: SiteView) -> int:
        """How many more executions may be suspected, with what was heard since ``view`` was made."""
        known = {it.job for it in view.hints.recent.overlaps}
        heard = {it.key for it in self._heard if it.said.overlap is not None}
        return view.overlaps_free() - len(heard - known)

    def end(self, now: float) -> dict[str, dict[str, Any]]:
        """The files that must be written, by name; says what an operator should know of the breaker."""
        after = self._now
        failures = [
            memory.Failure(end.at, it.key, end.submission, it.uid, end.outcome, it.said.partition,
                           self._to_blame(end.nodes))
            for it in self._heard for end in it.said.ended
        ]  # fmt: skip
        happened = recent.updated(
            after.recent,
            now,
            resubmissions=[
                recent.Resubmission(min(at, now), it.key, submission, it.uid, it.user, it.said.account,
                                    it.said.partition)
                for it in self._heard for submission, at in it.said.resubmitted
            ],
            ends=[
                recent.End(min(end.at, now), it.key, end.submission, it.uid, end.outcome, end.nodes)
                for it in self._heard for end in it.said.ended
            ],
            overlaps=[
                recent.Overlap(it.said.overlap, it.key, it.uid, it.user, it.said.account, it.said.partition)
                for it in self._heard if it.said.overlap is not None
            ],
            over=[it.key for it in self._heard if it.said.overlap is None],
        )  # fmt: skip
        remembered = memory.remember(after.memory, failures, self._rules.fading, now)
        opened = breaker.judge(after.breaker, happened, after.silence.drained, self._rules.bounds, now)
        reading = after.clock
        if reading is not None and any(it.said.clock for it in self._heard):
            reading = clock.wanted(reading, now)
        self._now = replace(after, clock=reading, memory=remembered, recent=happened, breaker=opened)
        self._heard.clear()
        for line in breaker.said(self._before.breaker, opened):
            self._log(line)
        return hints.changes(self._before, self._now)

    def _to_blame(self, nodes: tuple[str, ...]) -> tuple[str, ...]:
        """Of an execution's nodes those that are in trouble now; all where none is, or nothing is known."""
        if isinstance(self._nodes, Unknown):
            return nodes
        bad = {node.name for node in self._nodes.nodes if node.in_trouble}
        return tuple(name for name in nodes if name in bad) or nodes

    # What children do meanwhile.

    def ready(self) -> set[str]:
        """The keys of jobs for which something has just come: they are to be looked at."""
        self._collect()
        now = time.monotonic()
        waiting = {about[0] for about in self._told} | {key for key, _ in self._answers}
        return {key for key in waiting if now - self._came.get(key, now) < READY_S}

    def busy(self) -> bool:
        """A command still runs, whose answer will be wanted."""
        return not self._telling.idle() or (self._asker is not None and self._asker.busy())

    def stop(self) -> None:
        """End what still runs: at the end of the program only."""
        self._telling.stop()
        if self._asker is not None:
            self._asker.stop()

    def _collect(self) -> None:
        now = time.monotonic()
        if self._asker is not None:
            came = self._asker.collect(_LOOK_S)
            self._answers.update(came)
            self._came.update((key, now) for key, _ in came)
        for ended in self._telling.wait(_LOOK_S):
            about = self._under_way.pop(ended.name, None)
            if about is not None:
                status = None if ended.answer is None else json.loads(ended.answer)
                self._told[about] = status
                self._done[about] = status, now
                self._came[about[0]] = now
                if status != 0:
                    why = ended.why or (
                        "it could not be run, or not to its end" if status is None else f"status {status}"
                    )
                    self._say_once(f"the notify command fails: {why}")

        # A record that takes nothing any more must not keep what came for it.
        for key in [key for key, at in self._came.items() if now - at > KEPT_S]:
            del self._came[key]
            self._answers = {question: answer for question, answer in self._answers.items() if question[0] != key}
            self._told = {about: status for about, status in self._told.items() if about[0] != key}
        self._done = {about: it for about, it in self._done.items() if now - it[1] < KEPT_S}
        if len(self._asked) > ASKED_MAX:
            self._asked = {question: at for question, at in self._asked.items() if now - at < KEPT_S}

    def _ask(self, key: str, said: Hearsay) -> None:
        if self._asker is None or not said.ask:
            return
        now, interval_s = time.monotonic(), self._rules.cessation_interval_s
        if said.last:
            interval_s = min(LAST_S, interval_s)
        fresh: list[AskedExecution] = []
        for execution in said.ask:
            at = self._asked.get((key, execution.attempt), -interval_s)
            if now - at >= interval_s:
                fresh.append(execution)
                self._asked[key, execution.attempt] = now
        self._asker.start(key, self._vetted(self._asker, key, fresh))

    def _vetted(self, asker: Asker, key: str, executions: list[AskedExecution]) -> list[AskedExecution]:
        """Those on nodes that Slurm has; of the others nothing is known.

        The names come from the owner's record, and a command with the site's keys or passwords goes where they say.
        """
        if not executions or not asker.goes_there:
            return executions
        now = time.monotonic()
        if now - self._names_at > NODES_AGE_S or isinstance(self._names, Unknown):
            nodes = self._port.nodes()
            self._names = nodes if isinstance(nodes, Unknown) else frozenset(node.name for node in nodes.nodes)
            self._names_at = now
        found: list[AskedExecution] = []
        for it in executions:
            if isinstance(self._names, Unknown):
                why = f"Slurm does not tell which nodes it has ({self._names.why})"
            elif strange := sorted(set(it.nodes) - self._names):
                why = f"Slurm has no node {', '.join(strange[:4])}"
            else:
                found.append(it)
                continue
            self._answers[key, it.attempt] = answered(UNKNOWN, asker.source, why, time.time())
            self._came[key] = now
        return found

    def _tell(self, key: str, uid: int, user: str, message: Message) -> None:
        about = (key, message.on, message.what)
        name = f"{key}.{message.on}.{message.what}"
        if about in self._done:  # a record that has not taken it yet: nobody gets it twice for that
            self._told[about] = self._done[about][0]
            self._came[key] = time.monotonic()
            return
        if name in self._under_way or len(self._under_way) >= TELLING_MAX:
            return
        self._under_way[name] = about
        body = {
            "v": 1, "job": key, "name": message.name, "user": user, "uid": uid, "what": message.what,
            "why": message.why, "reason": message.reason, "hold": message.on,
            "left_s": round(message.left_s),
        }  # fmt: skip
        rules = self._rules

        def run() -> bytes:
            def work() -> bytes:
                return json.dumps(notify(rules.notify, body, deadline_s=rules.notify_timeout_s)).encode("ascii")

            who = identity_of(rules.notify_user, "notify_user")
            return in_child(*who, work, rules.notify_timeout_s + RESERVE_S, site_files=True)

        self._telling.start(name, run, rules.notify_timeout_s + 2 * RESERVE_S)

    def _say_once(self, line: str) -> None:
        if line not in self._said and len(self._said) < SAID_MAX:
            self._said.add(line)
            self._log(line)

    def _say_why(self, why: str) -> None:
        """Why no suspicion acts, once until it is another reason or none."""
        if why and why.split(" ", maxsplit=1)[-1] != self._said_why:
            self._log(f"no suspicion of a node acts: {why}")
        self._said_why = why.split(" ", maxsplit=1)[-1] if why else ""


__all__ = ["Keeper"]
