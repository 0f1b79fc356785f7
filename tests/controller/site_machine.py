"""The state machine of the model: everything that can happen to a site, in any order."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from slurm_dispatch.records import people
from slurm_dispatch.records.replay import replay
from slurm_dispatch.records.state import Phase
from tests.controller.fake_slurm import OVER
from tests.controller.site_draws import (
    CUTS,
    ENDS,
    ENDS_OF_WAITING,
    HIDDEN,
    HOSTS,
    HOWS,
    LOST,
    OFTEN,
    REPLIES,
    REQUEUED,
    SAID,
    SILENT,
    SPECS,
    STEPS,
)
from tests.controller.site_passes import CALM, STORM
from tests.controller.site_port import SLURMCTLD, Cut
from tests.controller.site_world import RESTARTS_MAX, SUSPECT_S, TRACE, WAIT_S, SiteWorld

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurm_dispatch.records.state import State
    from tests.controller.site_owned import Owned, Ran

RESTING = {Phase.QUEUED, Phase.RUNNING, Phase.HELD, Phase.CLOSED, Phase.NEW}
LADDER_MAX = 60
"""More steps than a pass has that comes to its end."""
LIVE = ("PENDING", "RUNNING")
WISHES = ("hold", "release", "release", "reopen", "adopt", "update", "cancel")


class Asked:
    """The cache of counted answers beside the record, in memory."""

    kept: ClassVar[dict[str, Any]] = {}


CLOCK: list[SiteWorld] = []
"""The world whose time it is."""


class Site(RuleBasedStateMachine):
    """A site.

    :cvar kind: of the job, a name in :data:`SPECS`.
    :cvar taken: rules that were carried out, in all examples; ``inner``: looks, calls, appends and facts in them.
    :cvar digest: of all that happened.
    """

    kind = "plain"
    taken = inner = examples = 0
    digest = hashlib.sha256()

    def __init__(self) -> None:
        super().__init__()
        self.world = SiteWorld(**SPECS[self.kind])
        self._lay()

    @initialize(
        reply=st.just("answer") | st.sampled_from(REPLIES), cuts=CUTS,
        storm=st.booleans(),
    )  # fmt: skip
    def begin(self, reply: str, cuts: list[Cut], storm: bool) -> None:
        """The record of a job, and the wrapper's own call."""
        self.world = SiteWorld(**SPECS[self.kind])
        self.world.bounds = STORM if storm else CALM
        self._lay()
        self.world.slurm.reply = reply
        self.world.wrapper(cuts)

    def _lay(self) -> None:
        Asked.kept = {}
        CLOCK[:] = [self.world]
        self.world.acts = {
            "other tick": lambda: self.world.tick("ctl2" if self.world.acting != "ctl2" else "ctl1"),
            "starts": self._starts,
            "ends": lambda: self._ends("preempted", lingers=False),
            "time": lambda: self.world.passes(WAIT_S - 2),
            "cancel": lambda: self._wish("cancel"),
            "hold": lambda: self._wish("hold"),
            "release": lambda: self._wish("release"),
            "requeue": self._restarts,
            "helper": lambda: self._helper(30, None, by_node=False),
            "supersede": lambda: self._supersede(keep=False, cut_short=True),
            "clock": lambda: self.world.set_clock("ctl1", 1000.0),
        }

    # The controllers.

    @rule(host=st.sampled_from(HOSTS), hidden=HIDDEN, cuts=CUTS)
    def tick(self, host: str, hidden: frozenset[str], cuts: list[Cut]) -> None:
        """One pass, that may see nothing, be overtaken, and die."""
        self.world.tick(host, hidden, cuts)

    @rule(reply=st.just("answer") | st.sampled_from(REPLIES))
    def sbatch(self, reply: str) -> None:
        """The way in which the next calls end."""
        self.world.slurm.reply = reply

    @rule(seconds=st.sampled_from([1.0, 20.0, WAIT_S, 200.0, 2000.0]))
    def time_passes(self, seconds: float) -> None:
        """For everybody."""
        self.world.passes(seconds)

    @rule(host=st.sampled_from([*HOSTS, SLURMCTLD, "login", "node"]),
          seconds=st.sampled_from([-3600.0, -100.0, 100.0, 3600.0]))  # fmt: skip
    def a_clock_steps(self, host: str, seconds: float) -> None:
        """That of one host, or of slurmctld's."""
        self.world.set_clock(host, seconds)

    @rule(hows=HOWS, cuts=CUTS, lingers=st.booleans(), step=STEPS, by_node=st.booleans())
    def rounds(self, hows: list[str], cuts: list[Cut], lingers: bool, step: int | None, by_node: bool) -> None:
        """The current object runs and ends, and what follows is done, a few times: what happens most."""
        if self.world.state.closed is not None:
            self._wish("reopen")
        for how in hows:
            for host in ("ctl2", "ctl1"):
                if self.world.state.object is None:
                    self.world.passes(WAIT_S + 1)
                    self.world.tick(host)
            self._starts()
            if step is not None:
                self.world.tick("ctl2")  # it knows the execution before that speaks through its node
                self._helper(step, None, by_node=by_node)
                step += 10
            if how == REQUEUED:
                self._restarts()
            elif how == SILENT:
                self._falls_silent(("never", "before", "after")[len(self.world.ran) % 3], cuts)
            elif how == LOST:
                self._forgotten()
            else:
                self._ends(how, lingers=lingers, by_node=by_node)
            self.world.tick("ctl1", cuts=cuts)
            if lingers and step is not None and self.world.state.phase is Phase.HELD:
                self._wish("release")

    @rule(
        how=st.sampled_from([*OFTEN, *OFTEN, *ENDS, *SAID, REQUEUED, REQUEUED, SILENT, SILENT]),
        first=st.sampled_from(HOSTS),
        reply=st.sampled_from(("answer", "answer", "lost", "very late")),
    )  # fmt: skip
    def an_end_that_no_pass_survives(self, how: str, first: str, reply: str) -> None:
        """Passes die one after the other, each one step later than the one before, until one comes to its end; and
        the same once more after a while."""
        self.world.tick(first)
        self._starts()
        current = self.world.state.object
        if how == REQUEUED:
            self._restarts()
        elif how != SILENT:
            self._ends(how, lingers=False)
        elif current is not None:
            self.world.silent[f"n{current.slurm_job_id}"] = self.world.now - 2 * SUSPECT_S
        self.world.slurm.reply = reply
        for _ in range(4):
            for step in range(1, LADDER_MAX):
                self.world.tick(first, cuts=[Cut(step, "die")])
                if not self.world.died:
                    break
            self.world.slurm.reply = "answer"
            self.world.silent.clear()
            self.world.passes(WAIT_S + 1)

    @rule(hows=HOWS, cuts=CUTS, reply=st.sampled_from(REPLIES))
    def rounds_with_trouble(self, hows: list[str], cuts: list[Cut], reply: str) -> None:
        """The same while sbatch's answers get lost."""
        self.world.slurm.reply = reply
        self.rounds(hows, cuts, lingers=False, step=None, by_node=False)
        self.world.slurm.reply = "answer"

    # Slurm.

    @rule()
    def starts(self) -> None:
        """Every waiting object starts, as far as its hook lets it."""
        self._starts()

    @rule(how=st.sampled_from([*ENDS, *SAID]), lingers=st.booleans(), by_node=st.booleans())
    def ends(self, how: str, lingers: bool, by_node: bool) -> None:
        """The newest living object ends."""
        self._ends(how, lingers=lingers, by_node=by_node)

    @rule(number=st.integers(0, 3), held=st.booleans())
    def slurm_or_somebody_requeues(self, number: int, held: bool) -> None:
        """What runs, or what has ended."""
        self._restarts(number, held=held)

    @rule()
    def one_count_starts_twice(self) -> None:
        """slurmctld forgets a start."""
        for number in self.world.objects("RUNNING"):
            self.world.start_again(number)
            return

    @rule(again=st.booleans(), stranger=st.booleans())
    def ended_jobs_are_purged(self, again: bool, stranger: bool) -> None:
        """MinJobAge is over; ids may begin again, and a stranger gets the first that is free."""
        self.world.slurm.lag(on=False)
        for number in self.world.objects():
            if OVER & set(self.world.slurm.job(number)["states"]):
                self.world.slurm.forget(number)
                self.world.saw("an object is purged")
                current = self.world.state.object
                if current is not None and current.slurm_job_id == number:
                    self.world.saw("an object is purged before its end was seen")
        if again:
            self.world.slurm.begin_ids_again()
        if stranger:
            self.world.stranger()

    @rule(on=st.booleans())
    def accounting_lags(self, on: bool) -> None:
        """Or has everything again."""
        self.world.slurm.lag(on=on)

    @rule()
    def what_completes_is_done(self) -> None:
        """COMPLETING goes."""
        for number in self.world.objects("COMPLETING"):
            words = [word for word in self.world.slurm.job(number)["states"] if word != "COMPLETING"]
            self.world.slurm.set(number, states=words)

    @rule()
    def processes_die(self) -> None:
        """Those that were left behind."""
        running = set(self.world.objects("RUNNING"))
        self.world.living = {it.attempt for it in self.world.ran if it.slurm_job_id in running} & self.world.living

    @rule(answers=st.sampled_from(["never", "before", "after"]), cuts=CUTS)
    @precondition(lambda self: self.world.state.object is not None and self.world.job.spec.suspect_s is not None)
    def a_node_goes_silent(self, answers: str, cuts: list[Cut]) -> None:
        """For long enough, while ticks see it; it may answer before or after the replacement runs."""
        self._starts()
        self.world.tick("ctl2")
        self._falls_silent(answers, cuts)

    @rule(
        verb=st.sampled_from(["cancel", "requeue", "update"]), how=st.sampled_from(["ok", "away", "lost", "refused"])
    )
    def the_commands_fail(self, verb: str, how: str) -> None:
        """Those that change an object: not done, done without an answer, or refused."""
        self.world.slurm.failing[verb] = how

    @rule(cuts=CUTS, person=st.booleans())
    @precondition(lambda self: self.world.state.phase is Phase.HELD and self.world.job.beside())
    def what_was_left_behind_is_asked_about(self, cuts: list[Cut], person: bool) -> None:
        """A shared job waits, its old processes end, and ticks hear of it; or a person takes them upon himself."""
        if person:
            self._wish("release")
            self.world.tick("ctl2", cuts=cuts)
            self._starts()
            return
        self.world.tick("ctl1")
        self.world.tick("ctl1", cuts=cuts)
        self.processes_die()
        for _ in range(3):
            self.world.passes(61.0)
            self.world.tick("ctl1")

    @rule()
    def the_nodes_answer(self) -> None:
        """All of them."""
        self.world.silent.clear()

    # The site.

    @rule(on=st.booleans(), told=st.booleans())
    def maintenance(self, on: bool, told: bool) -> None:
        """Begins or ends."""
        self.world.maintenance(on=on, told=told)

    @rule(mute=st.booleans())
    def nobody_knows_what_has_ceased(self, mute: bool) -> None:
        """The site's command about cessation fails, or answers again."""
        self.world.mute = mute

    # Persons and the job itself.

    @rule(wish=st.sampled_from(WISHES))
    @precondition(lambda self: len(self.world.job.record.facts) > 6)
    def a_person(self, wish: str) -> None:
        """Somebody at the command line, who is refused where it cannot be."""
        if wish != "cancel" or len(self.world.job.record.facts) > 20:
            self._wish(wish)

    @rule(keep=st.booleans(), cut_short=st.booleans(), twice=st.booleans())
    @precondition(lambda self: len(self.world.job.record.facts) > 15)
    def somebody_supersedes_it(self, keep: bool, cut_short: bool, twice: bool) -> None:
        """Once, or two at once."""
        if keep:
            self._starts()
            self.world.tick("ctl2")
        elder = self.world.job
        self._supersede(keep=keep, cut_short=cut_short or twice)
        if twice and elder.state.closed is None and elder is not self.world.job:
            self.world.saw("two supersede one job")
            self.world.supersede_beside(elder)

    @rule(verb=st.sampled_from(["hold", "release", "comment"]))
    def the_owner_edits(self, verb: str) -> None:
        """What scontrol lets him: hold, release, and the comment of what is recorded and runs."""
        current, shared = self.world.state.object, self.world.job.spec.shared
        for number in self.world.objects(*LIVE):
            body = self.world.slurm.job(number)
            if verb == "hold" and "PENDING" in body["states"]:
                self.world.saw("scontrol hold")
                self.world.slurm.set(number, reason="JobHeldUser")
            elif verb == "release" and body["reason"] == "JobHeldUser":
                self.world.saw("scontrol release")
                self.world.slurm.set(number, reason="None", states=["PENDING"])
            elif verb == "comment" and current is not None and current.slurm_job_id == number and not shared:
                self.world.saw("the comment is edited")
                self.world.slurm.set(number, comment="mine")
                self.world.edited.add(number)

    @rule(step=STEPS, which=st.integers(0, 3), by_node=st.booleans())
    @precondition(lambda self: self.world.ran)
    def a_helper_publishes(self, step: int | None, which: int, by_node: bool) -> None:
        """That of the newest execution, or of one that was replaced."""
        self._helper(step, None, by_node=by_node, which=which)

    # How it is done.

    def _wish(self, wish: str) -> None:
        world, job = self.world, self.world.job
        make: dict[str, Callable[[State], people.Facts]] = {
            "hold": lambda state: people.hold(state, "x"),
            "release": lambda state: people.release(state, "x", world.wall),
            "reopen": lambda state: people.reopen(state, "x"),
            "adopt": lambda state: people.adopt(state, "old", "new", "x"),
            "update": lambda state: people.update(state, "x", argv=["--time=5", *job.spec.argv]),
            "cancel": lambda state: (("request", {"what": "cancel", "reason": ""}),)
            if state.closed is None and state.request is None
            else (),
        }
        try:
            job.person(make[wish])
        except people.UsageError:
            return

    def _supersede(self, *, keep: bool, cut_short: bool) -> None:
        if len(self.world.job.record.facts) > 15:
            self.world.supersede(keep=keep, cut_short=cut_short)

    def _starts(self) -> None:
        for number in self.world.objects("PENDING"):
            if "RUNNING" not in self.world.slurm.job(number)["states"]:
                self.world.start(number)

    def _newest(self, number: int) -> Ran | None:
        found = [it for it in self.world.ran if it.slurm_job_id == number]
        return found[-1] if found else None

    def _ends(self, how: str, *, lingers: bool, by_node: bool = False) -> None:
        living = self.world.objects(*LIVE)
        if not living:
            return
        number = living[-1]
        states = self.world.slurm.job(number)["states"]
        if "RUNNING" not in states:
            words, more = ENDS[ENDS_OF_WAITING[len(self.world.ran) % 4] if how not in ENDS_OF_WAITING else how]
        elif how in SAID:
            words, more, said = SAID[how]
            it = self._newest(number)
            if it is not None and it.attempt in self.world.living:
                self.world.hands(it, None, said, by_node=by_node)
        else:
            words, more = ENDS[how]
        self.world.end(number, *words, lingers=lingers, **more)

    def _falls_silent(self, answers: str, cuts: list[Cut]) -> None:
        current = self.world.state.object
        if current is None:
            return
        self.world.saw("a node falls silent")
        self.world.silent[f"n{current.slurm_job_id}"] = self.world.now - 2 * SUSPECT_S
        self.world.tick("ctl2", cuts=cuts)
        if answers == "after":
            self._starts()
            self.world.tick("ctl1", cuts=cuts)
        if answers != "never":
            self.world.silent.clear()
            self.world.tick("ctl1")

    def _forgotten(self) -> None:
        """slurmctld begins again with nothing: no object is there any more, and ids begin again, for a stranger."""
        for number in self.world.objects():
            self.world.slurm.forget(number)
        self.world.saw("slurmctld forgets what runs")
        self.world.slurm.begin_ids_again()
        current = self.world.state.object
        while current is not None and current.slurm_job_id in self.world.made and self.world.stranger():
            pass

    def _restarts(self, which: int = 0, *, held: bool = False) -> None:
        found = [it for it in self.world.objects() if self.world.slurm.job(it)["restart"] < RESTARTS_MAX]
        found = [it for it in found if "PENDING" not in self.world.slurm.job(it)["states"]]
        if found:
            self.world.restart(found[which % len(found)], held=held)

    def _helper(self, step: int | None, end: dict[str, Any] | None, *, by_node: bool, which: int = 0) -> None:
        alive = [it for it in self.world.ran if it.attempt in self.world.living]
        if alive:
            self.world.hands(alive[-1 - which % len(alive)], step, end, by_node=by_node)

    # What holds at every moment, and at the end.

    @invariant()
    def holds(self) -> None:
        """No number without its intent; and what was done goes into the digest."""
        cls, world = type(self), self.world
        for job in world.owned.values():
            state = job.state
            assert set(job.called) <= {submission.number for submission in state.submissions}
            assert state.numbers_used >= max(job.called, default=0)
        cls.taken += 1
        self._write_down()

    def _write_down(self) -> None:
        cls, world = type(self), self.world
        objects = [world.slurm.job(it)["states"] for it in world.slurm.ids()]
        TRACE.append(f"{world.now} {sorted(world.living)} {objects}")
        cls.inner += len(TRACE) - 1
        cls.digest.update("\n".join(TRACE).encode())
        TRACE.clear()

    def teardown(self) -> None:
        """With everything visible and time, one object at most lives: the current one; none if it is closed."""
        world = self.world
        world.slurm.reply, world.silent, world.mute, world.bounds, world.windows = "answer", {}, False, CALM, ()
        world.offsets.clear()
        world.slurm.failing.clear()
        world.slurm.lag(on=False)
        for _ in range(14):
            self.what_completes_is_done()
            world.passes(3000)
            world.tick("ctl1")
        for job in world.owned.values():
            self._rests(job)
        self._write_down()
        type(self).examples += 1

    def _rests(self, job: Owned) -> None:
        world, state = self.world, job.state
        # What slurmctld has forgotten, and accounting never sees end, is unknown for good, requeued or not (P5).
        assert state.phase in RESTING or _is_forgotten(world, state), f"not at rest: {state.phase}"
        current = state.object
        kept = None if state.closed is None else state.closed.keep
        alive = [it for it in world.objects(*LIVE) if world.made[it].job == job.key and it != kept]
        # Nobody knows any more whose an object is that is not the current one and whose comment has no word.
        alive = [it for it in alive if it not in world.edited or (current is not None and it == current.slurm_job_id)]
        ours = [] if current is None else [current.slurm_job_id]
        assert alive in ([], ours), f"left alive: {alive}, where {ours} is current and the job is {state.phase}"
        assert all(it.same for it in replay(job.record.facts)), "a decision does not come out again"
        world.saw(f"at rest: {state.phase}")


def _is_forgotten(world: SiteWorld, state: State) -> bool:
    """It is being requeued, and slurmctld has no object of its any more: the id is nobody's, or a stranger's."""
    it = state.object
    if it is None or state.phase is not Phase.REQUEUING:
        return False
    return it.slurm_job_id not in world.made or not world.slurm.job(it.slurm_job_id)["in_memory"]


__all__ = ["CLOCK", "ENDS", "SAID", "SPECS", "Asked", "Site"]
