"""The controllers of the model: passes over all jobs, and what ticks keep of the site between them.

Every job's work is the product's. What the tick does around it (which notes go, which words are refused, what is
remembered of the site) is done with the functions that :mod:`slurm_dispatch.controller.keeper` does it with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from slurm_dispatch.controller import breaker, hearsay, memory, recent
from slurm_dispatch.controller.breaker import Bounds
from slurm_dispatch.controller.clock import Clock
from slurm_dispatch.controller.hints import Hints
from slurm_dispatch.controller.job import Job, Means
from slurm_dispatch.controller.maintenance import Window
from slurm_dispatch.controller.memory import Fading
from slurm_dispatch.controller.recent import End, Recent, Resubmission
from slurm_dispatch.controller.silence import Suspects
from slurm_dispatch.controller.siterules import SiteRules
from slurm_dispatch.controller.siteview import SiteView, Tally
from slurm_dispatch.controller.view import Details, View, notes_by_key
from slurm_dispatch.model.identity import find_word
from slurm_dispatch.records.observation import CessationAnswer
from slurm_dispatch.records.policy import Policy
from slurm_dispatch.records.state import Phase
from tests.controller.site_port import MESSAGE_S, MUTATIONS
from tests.records.life import CLUSTER, UID

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slurm_dispatch.controller.hearsay import Hearsay
    from slurm_dispatch.controller.job import Report
    from slurm_dispatch.records.state import State
    from tests.controller.site_owned import Owned
    from tests.controller.site_port import Cut

SUBMIT_S = 5.0
SOURCES = ("notes", "queue", "detail", "accounting", "cessation", "nodes")
CONFIG = {
    "ClusterName": CLUSTER,
    "MessageTimeout": "10 sec",
    "AccountingStorageType": "accounting_storage/slurmdbd",
    "PrologSlurmctld": "/etc/slurm/prolog",
}
STORM = Bounds(resubmissions=3, window_s=600.0, drains=3, store_errors=2)
CALM = Bounds()
FADING = Fading()
BLIND = frozenset({Phase.SUBMITTING, Phase.QUEUED, Phase.RUNNING})
"""Phases in which a pass that sees nothing says nothing and does nothing."""


class Passes:
    """What ticks share, and their passes; the rest of the world is :class:`~tests.controller.site_world.SiteWorld`.

    :ivar bounds: what opens the site's breaker.
    :ivar mute: the site's command answers nothing about cessation.
    """

    def __init__(self) -> None:
        self.recent = Recent()
        self.memory: tuple[Any, ...] = ()
        self.breaker = breaker.Breaker()
        self.windows: tuple[Window, ...] = ()
        self.bounds = CALM
        self.mute = False
        self.answers: dict[tuple[str, str], CessationAnswer] = {}

    def tick(self: Any, host: str, hidden: frozenset[str] = frozenset(), cuts: Sequence[Cut] = ()) -> None:
        """One pass of a controller, which may see nothing, be overtaken, and die."""
        before = {key: job.state for key, job in self.owned.items()}
        calls = len(self.slurm.calls())
        if self.depth == 0:
            others = [abs(self.offsets.get(it, 0.0) - self.offsets.get(host, 0.0)) for it in ("ctl1", "ctl2")]
            self.saw(f"a pass of {host}{' with another clock' if max(others) > 300 else ''}")
        with self.on(host):
            self.live(lambda: self.visits(host, hidden), cuts)
        if hidden >= frozenset(SOURCES) and not cuts:
            self.saw("a pass that sees nothing")
            self.nothing_came(before, calls)

    def nothing_came(self: Any, before: dict[str, State], calls: int) -> None:
        """Nothing was known, so nothing was said and done."""
        if not all(state.phase in {*BLIND, Phase.CLOSED} and state.request is None for state in before.values()):
            return
        for key, state in before.items():
            done = {fact.kind for fact in self.owned[key].record.facts[state.seq :]}
            assert done <= {"watched"}, f"nothing was known, and it said {done}"
        made = set(self.slurm.calls()[calls:]) & MUTATIONS
        assert not made, f"nothing was known, and it did {made}"

    def visits(self: Any, host: str, hidden: frozenset[str]) -> None:
        """The pass: all jobs, then what the tick itself does."""
        self.slurm.hidden = hidden
        self.ran_s += 60
        at = self.wall
        view = self._view(host, hidden, at)
        means = Means(self.slurm, Policy(), f"tick@{host}", SUBMIT_S, MESSAGE_S, {"PATH": "/bin"})
        details, tally = Details(self.slurm, accounting=True), Tally()
        jobs = [
            (owned, Job(owned.record, view, details, means, user="ada", tally=tally))
            for owned in list(self.owned.values())
        ]
        for _, job in jobs:
            job.want()
        reports = [(owned, job.work()) for owned, job in jobs]
        done = {name for _, report in reports for name in report.done_notes}
        self.step("the notes go")
        self.notes = [note for note in self.notes if note.name not in done]
        self.step("words are refused")
        for _, report in reports:
            self.refused_words |= {word for text in report.refuse if (word := find_word(text)) is not None}
        self.step("the site's files are written")
        self._remembers(view.site.hints, [(owned, _said(report)) for owned, report in reports])

    def _view(self: Any, host: str, hidden: frozenset[str], at: float) -> View:
        off = self.wall - self.now
        told = {name: since + off for name, since in self.silent.items()}
        opened = breaker.judge(self.breaker, self.recent, {}, self.bounds, at)
        if opened.of(UID):
            self.saw("the breaker is open")
        if any(window.covers(at) for window in self.windows):
            self.saw("a pass in maintenance")
        site = SiteView(
            rules=SiteRules(suspicion=True, bounds=self.bounds),
            hints=Hints(
                clock=Clock("k", self.ran_s, at), memory=self.memory, recent=self.recent, breaker=opened,
                windows=self.windows,
            ),
            nodes=self.slurm.nodes(),
            suspects=Suspects(why="hidden") if "nodes" in hidden else Suspects(told),
            answers={} if "cessation" in hidden else dict(self.answers),
            cessation=True,
            known=True,
        )  # fmt: skip
        notes = notes_by_key(() if "notes" in hidden else self.notes)
        return View(
            at, host, CLUSTER, self.slurm.queue(), True, notes, "notes" not in hidden, CONFIG, frozenset(), site
        )

    def _remembers(self: Any, hints: Hints, heard: list[tuple[Owned, Hearsay]]) -> None:
        """What this tick writes; another one may have written meanwhile, and the last one wins."""
        now = self.wall
        ends = [(owned.key, it, said) for owned, said in heard for it in said.ended]
        self.recent = recent.updated(
            hints.recent, now,
            resubmissions=[
                Resubmission(min(at, now), owned.key, number, UID, "ada", said.account, said.partition)
                for owned, said in heard for number, at in said.resubmitted
            ],
            ends=[End(min(it.at, now), key, it.submission, UID, it.outcome, it.nodes) for key, it, _ in ends],
        )  # fmt: skip
        failures = [
            memory.Failure(it.at, key, it.submission, UID, it.outcome, said.partition, it.nodes)
            for key, it, said in ends
        ]
        self.memory = memory.remember(hints.memory, failures, FADING, now)
        self.breaker = breaker.judge(hints.breaker, self.recent, {}, self.bounds, now)
        self.answers = {
            (owned.key, it.attempt): self._cessation(it.attempt, now) for owned, said in heard for it in said.ask
        }

    def _cessation(self: Any, attempt: str, at: float) -> CessationAnswer:
        answer = "unknown" if self.mute else "running" if attempt in self.living else "ceased"
        return CessationAnswer(answer, "world", "", at)

    def maintenance(self: Any, *, on: bool, told: bool) -> None:
        """It begins now, with an end that was announced or not, or ends."""
        if not on:
            self.windows = tuple(Window(it.partition, it.begin, self.wall, it.by) for it in self.windows)
        else:
            self.windows = (Window("all", self.wall, self.wall + 1800 if told else None, "root"),)


def _said(report: Report) -> Hearsay:
    return hearsay.unpack(report.site, UID, "ada")


__all__ = ["CALM", "SOURCES", "STORM", "SUBMIT_S", "Passes"]
