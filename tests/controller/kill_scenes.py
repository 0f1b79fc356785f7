"""The passes that are killed at every call: what stands before each, and how the world goes on after it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING
from unittest import mock

from slurm_dispatch.controller import maintenance, sitefolder, tick
from slurm_dispatch.controller.breaker import Bounds
from slurm_dispatch.controller.children import Children, Ended
from slurm_dispatch.controller.keeper import Keeper
from slurm_dispatch.controller.siterules import SiteRules
from slurm_dispatch.controller.tickfile import write_file
from slurm_dispatch.errors import DispatchError, ServiceAwayError
from slurm_dispatch.records import people
from slurm_dispatch.records.observation import CessationAnswer
from slurm_dispatch.records.state import Phase
from tests.controller.site_rig import SiteRig

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from slurm_dispatch.controller.view import View

A, B = "a" * 12, "b" * 12


@dataclass(frozen=True, slots=True)
class Scene:
    """One pass.

    :param make: everything that is there before it.
    :param ends: by key, the phase in which the job must be in the end.
    :param acts: what the pass must do to Slurm, so that nobody believes that a pass was killed which did nothing.
    :param at_s: how far the pass's clock is ahead of the real one.
    :param ceased: the site's cessation command says of every execution that it has ceased.
    :param whole: the pass is that of the controller itself, which reads and writes the index and ``last`` too.
    :param passes: so many passes in a row are killed at every call, each after whole ones.
    :param least: fewer calls to kill at mean that the trace saw nothing.
    """

    name: str
    make: Callable[[SiteRig], None]
    ends: Mapping[str, Phase]
    acts: tuple[str, ...] = ("submit",)
    rules: SiteRules = field(default_factory=SiteRules)
    at_s: float = 0.0
    ceased: bool = False
    whole: bool = False
    passes: int = 1
    least: int = 15

    def rig(self, folder: Path, later_s: float = 0.0) -> SiteRig:
        """The site as another process sees it, ``later_s`` after the pass."""
        rig = SiteRig(folder, self.rules)
        rig.later_s = self.at_s + later_s
        return rig

    def tick(self, rig: SiteRig) -> None:
        """One pass, by a process that remembers nothing."""
        if self.whole and rig.later_s == 0.0:
            whole_tick(rig)
            return
        rig.anew()
        rig.tick(view=self._view(rig))

    def _view(self, rig: SiteRig) -> View:
        view = rig.view()
        if self.ceased:
            found = {
                (job.key, execution.attempt): CessationAnswer("ceased", "a command", "", view.at)
                for job in rig.folder.jobs()
                for submission in rig.state(job.key).submissions
                for execution in submission.executions
                if execution.started
            }
            view.site = replace(view.site, answers=found, cessation=True)
        return view


class AtOnce(Children):
    """Children that do their work in this process, one after the other, each when it is started."""

    def __init__(self) -> None:
        super().__init__()
        self._ended: list[Ended] = []

    def start(self, name: str, work: Callable[[], bytes], deadline_s: float) -> None:
        try:
            self._ended.append(Ended(name, work()))
        except DispatchError as error:
            self._ended.append(Ended(name, None, error.line(), hung=isinstance(error, ServiceAwayError)))

    def wait(self, timeout_s: float) -> list[Ended]:
        found, self._ended = self._ended, []
        return found

    def busy(self, name: str) -> bool:
        return False

    def idle(self) -> bool:
        return not self._ended


def _here(_uid: int, _gid: int, _groups: object, work: Callable[[], bytes], *_: object, **__: object) -> bytes:
    return work()


def whole_tick(rig: SiteRig) -> None:
    """The controller's own full tick, in this process alone, so that each of its calls has one place in one order."""
    settings = tick.Settings(state=rig.path, user_mode=True, slurm_user="", host="ctl")
    with (
        mock.patch.object(tick, "in_child", _here),
        mock.patch.object(sitefolder, "in_child", _here),
        mock.patch.object(sitefolder, "Children", side_effect=lambda *_: AtOnce()),
    ):
        keeper = Keeper(rig.rules, rig.port, None, rig.log.append)
        controller = tick.Controller(settings, rig.means(), rig.log.append, AtOnce(), keeper)
        controller.tick(full=True)


def ended(rig: SiteRig, key: str, *rules: str, states: tuple[str, ...] = ("PREEMPTED", "COMPLETING")) -> None:
    """A job whose execution has just ended in these states."""
    rig.job(*rules, key=key)
    rig.start(key)
    rig.ends(key, *states)


def add(rig: SiteRig, key: str, facts: people.Facts) -> None:
    """What a person writes."""
    seq = rig.state(key).seq
    for position, (kind, body) in enumerate(facts, start=1):
        assert rig.record(key).append(seq + position, kind, "user:ada@login", body)


def preempted(rig: SiteRig) -> None:
    ended(rig, A)


def beside_another(rig: SiteRig) -> None:
    """One that runs is known to the index already; the other has just ended."""
    rig.job(key=B)
    rig.start(B)
    whole_tick(rig)
    whole_tick(rig)
    preempted(rig)


def held(rig: SiteRig) -> None:
    ended(rig, A, "preempted:hold,for=1h")
    rig.settle()
    assert rig.state(A).phase is Phase.HELD


def released(rig: SiteRig) -> None:
    held(rig)
    add(rig, A, people.release(rig.state(A), "it may go on", time.time()))


def shared(rig: SiteRig) -> None:
    rig.job(key=A, shared=True)
    rig.start(A)
    rig.ends(A, "PREEMPTED", "COMPLETING")
    rig.settle()
    assert rig.state(A).phase is Phase.HELD


def expired(rig: SiteRig) -> None:
    held(rig)
    clock = rig.hints().clock
    assert clock is not None
    body = {"id": clock.id, "ran_s": clock.ran_s + 3700.0, "at": clock.at, "wanted": clock.wanted}
    write_file(rig.tick_folder, "clock", body)


def completed(rig: SiteRig) -> None:
    ended(rig, A, states=("COMPLETED",))


def cancelled(rig: SiteRig) -> None:
    rig.job(key=A)
    rig.start(A)
    rig.settle()
    add(rig, A, (("request", {"what": "cancel", "reason": "enough"}),))


def superseded(rig: SiteRig) -> None:
    """Another job goes on in the place of one that runs; its record is made, and nothing more."""
    rig.job(key=A)
    rig.start(A)
    rig.settle()
    rig.folder.create_job(rig.spec(key=B, supersedes=A, generation=1), b"#!/bin/sh\n", b"", by="user:ada@login")


def requeued(rig: SiteRig) -> None:
    ended(rig, A, "failed:requeue", states=("FAILED",))
    rig.slurm.set(rig.object(A), exit_status=1)


SUSPICIOUS = SiteRules(suspicion=True)


def silent(rig: SiteRig) -> None:
    """It runs on a node that has been silent for 29 seconds."""
    rig.tick()
    rig.runs_on_a_silent_node(key=A)


def suspected(rig: SiteRig) -> int:
    """Its replacement waits in Slurm; the replacement's object."""
    silent(rig)
    rig.later_s += 2.0
    rig.settle()
    assert rig.state(A).phase is Phase.QUEUED
    return rig.object(A)


def replaced(rig: SiteRig) -> None:
    """The replacement runs."""
    second = suspected(rig)
    start = rig.slurm.start(second, nodes="c2")
    rig.start_note(A, second, start, nodes="c2")


def answering(rig: SiteRig) -> None:
    """The silent node has answered before the replacement ran."""
    suspected(rig)
    rig.slurm.node("c1", "ALLOCATED")


def strays(rig: SiteRig) -> None:
    """Slurm has an object of an earlier number of a job that waits, and one of a job that is closed."""
    ended(rig, A)
    rig.settle()
    completed_b = rig.job(key=B)
    rig.start(completed_b)
    rig.ends(B, "COMPLETED")
    rig.settle()
    for key in (A, B):
        rig.slurm.plain(comment=f"mine {rig.state(key).spec.word(1)}", uid=rig.uid)


STORM = SiteRules(bounds=Bounds(resubmissions=1, drains=0))


def storm(rig: SiteRig) -> None:
    """Another job came back a moment ago; with this one, whose node is drained, the breaker opens."""
    rig.tick()
    rig.slurm.node("c1", "IDLE", "DRAIN")
    whose = (B, 2, rig.uid, "ada", "ml", "low")
    before = {"resubmissions": [[time.time() - 5.0, *whose]],
              "ends": [[time.time() - 5.0, *whose[:3], "node_fail", ["c2"]]], "overlaps": []}  # fmt: skip
    write_file(rig.tick_folder, "recent", before)
    ended(rig, A, states=("NODE_FAIL",))


def in_maintenance(rig: SiteRig) -> None:
    now = time.time()
    window = maintenance.Window("low", now - 5.0, now + 3600.0, "user:root@ctl")
    write_file(rig.tick_folder, maintenance.name_of("low"), maintenance.content(window))
    ended(rig, A, "failed:resubmit,budget=0", states=("FAILED",))
    rig.slurm.set(rig.object(A), exit_status=1)


QUEUED, CLOSED, RUNNING = Phase.QUEUED, Phase.CLOSED, Phase.RUNNING
SCENES = (
    Scene("resubmits", preempted, {A: QUEUED}, least=30),
    Scene("releases by a person's word", released, {A: QUEUED}),
    Scene("releases by cessation", shared, {A: QUEUED}, ceased=True),
    Scene("closes an expired hold", expired, {A: CLOSED}, (), at_s=4000.0),
    Scene("closes what completed", completed, {A: CLOSED}, ()),
    Scene("cancels and closes", cancelled, {A: CLOSED}, ("cancel",), passes=2),
    Scene("takes over and closes the superseded", superseded, {A: CLOSED, B: QUEUED}, ("cancel", "submit"), passes=2),
    Scene("requeues", requeued, {A: QUEUED}, ("requeue", "update"), passes=3),
    Scene("suspects", silent, {A: QUEUED}, rules=SUSPICIOUS, at_s=31.0),
    Scene("cancels the elder", replaced, {A: RUNNING}, ("cancel",), SUSPICIOUS, 31.0, least=6),
    Scene("cancels the replacement", answering, {A: RUNNING}, ("cancel",), SUSPICIOUS, 31.0, passes=2),
    Scene("cancels strays", strays, {A: QUEUED, B: CLOSED}, ("cancel",), least=10),
    Scene("opens the breaker", storm, {A: QUEUED}, rules=STORM, least=30),
    Scene("ends in maintenance", in_maintenance, {A: QUEUED}),
    Scene("resubmits with all site files", beside_another, {A: QUEUED, B: RUNNING}, whole=True, passes=2, least=50),
)

__all__ = ["SCENES", "Scene"]
