"""A world for the engine without Slurm: objects, their processes and nodes, sources that lie, ticks that die.

The world starts, ends and restarts objects, loses replies of sbatch, lets a slow sbatch arrive late, hides what
its sources know, lets processes outlive their object and nodes go silent, and lets ticks die after any action.
It checks what must hold whenever something is done; see :meth:`World.check` and where it is called.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from slurm_dispatch.model.outcome import Outcome
from slurm_dispatch.records.actions import (
    Action,
    AppendFact,
    AskCessation,
    Cancel,
    LookUp,
    Nothing,
    Requeue,
    Submit,
    Tell,
    UpdateObject,
)
from slurm_dispatch.records.decide import decide
from slurm_dispatch.records.facts import Fact, parse_fact, render
from slurm_dispatch.records.fold import fold
from slurm_dispatch.records.observation import (
    Absent,
    CessationAnswer,
    Found,
    Lookups,
    ObjectAlive,
    ObjectEnded,
    Observation,
    Seen,
    SilentNode,
    SiteClock,
    Unknown,
)
from slurm_dispatch.records.policy import Policy
from tests.records.life import CLUSTER, UID, make_spec, start_body

if TYPE_CHECKING:
    from slurm_dispatch.records import people
    from slurm_dispatch.records.state import State

WAIT_S = 170.0
SOURCES = ("notes", "queue", "accounting", "object", "cessation", "nodes")
SUSPECT_S = 30.0
POLICY = Policy(cessation=True, no_progress=30)


@dataclass
class Thing:
    """An object of the world.

    :param processes: (restart count, attempt) of executions whose processes live, also after the object's end.
    :param silent: since when its node has been silent, or ``None``.
    """

    number: int
    slurm_job_id: int
    state: str = "PENDING"
    restart: int = 0
    outcome: str | None = None
    arrives: float = 0.0
    processes: set[int] = field(default_factory=set)
    begun: set[int] = field(default_factory=set)
    silent: float | None = None


@dataclass
class World:
    """What really is, and the record.

    :param covered: (number, restart) of executions that a person took upon himself when he released the job.
    """

    spec: Any = field(default_factory=make_spec)
    facts: list[Fact] = field(default_factory=list)
    things: list[Thing] = field(default_factory=list)
    calls: list[int] = field(default_factory=list)
    covered: set[tuple[int, int]] = field(default_factory=set)
    now: float = 1000.0
    ran_s: float = 0.0
    reply: str = "answer"
    breaker: str | None = None

    def append(self, seq: int, kind: str, body: Any) -> bool:
        """Put if absent."""
        if seq != len(self.facts) + 1:
            assert seq <= len(self.facts), "a gap"
            return False
        self.facts.append(parse_fact(seq, render(Fact(seq, self.now, kind, "tick@x", body))))
        return True

    def person(self, wish: people.Facts) -> None:
        """What somebody does at the command line."""
        for kind, body in wish:
            assert self.append(len(self.facts) + 1, kind, body)
            if kind == "release":
                self.covered = {(it.number, restart) for it in self.things for restart in it.begun}

    @property
    def state(self) -> State:
        return fold(self.facts)

    def submit(self, seq: int, number: int, decision: int | None, changes: tuple[str, ...] = ()) -> None:
        """Intent, sbatch, and what came of it; dies where ``reply`` says."""
        body = {
            "submission": number,
            "word": str(self.spec.word(number)),
            "host": "x",
            "deadline": self.now + WAIT_S - 20,
            "wait_s": WAIT_S,
            "changes": list(changes),
            "decision": decision,
        }
        if not self.append(seq, "intent", body) or self.reply == "dies before":
            return
        assert number not in self.calls, f"submission {number} was used twice"
        assert number > max(self.calls, default=0), "numbers only rise"
        assert self.state.closed is None, "a closed job ran again"
        self.calls.append(number)
        if self.reply == "rejected":
            self.append(len(self.facts) + 1, "rejected", {"submission": number, "status": 1, "message": "no"})
            return
        thing = Thing(number, 100 + len(self.things))
        if self.reply == "late":
            thing.arrives = self.now + WAIT_S - 20
        self.things.append(thing)
        if self.reply in {"lost", "late", "dies after"}:
            return
        answer = {"submission": number, "cluster": CLUSTER, "slurm_job_id": thing.slurm_job_id, "how": "answer"}
        self.append(len(self.facts) + 1, "submitted", answer)

    def visible(self) -> list[Thing]:
        return [thing for thing in self.things if thing.arrives <= self.now]

    def thing(self, slurm_job_id: int) -> Thing:
        return next(thing for thing in self.things if thing.slurm_job_id == slurm_job_id)

    # What happens by itself

    def start(self, thing: Thing) -> None:
        """Slurm starts the object; the gate refuses a second execution of a shared job's object."""
        if thing.outcome is not None or thing.state != "PENDING" or (self.spec.shared and thing.restart):
            return
        if self.spec.shared:
            older = {(it.number, restart) for it in self.things for restart in it.processes}
            assert older <= self.covered, f"an execution beside {older - self.covered}, which nobody released"
        thing.state = "RUNNING"
        thing.processes.add(thing.restart)
        thing.begun.add(thing.restart)

    def end(self, thing: Thing, outcome: str, *, lingers: bool = False) -> None:
        """The object ends for good; its processes may go on."""
        thing.outcome = outcome
        if not lingers:
            thing.processes.clear()

    # What a tick sees

    def observe(
        self, state: State, host: str, hidden: frozenset[str], *, look_up: bool = False, asked: Any = None
    ) -> Observation:
        """What ``host`` sees, where ``hidden`` sources do not answer."""
        seen: Any = Unknown("hidden")
        if "queue" not in hidden:
            seen = tuple(
                Seen(0, thing.number, CLUSTER, thing.slurm_job_id, UID, thing.outcome is None)
                for thing in self.visible()
            )
        lookups = self._lookups(state, hidden) if look_up and state.current is not None else None
        current, elder = state.object, None if state.elder is None else state.elder.object
        silent: Any = Unknown("hidden")
        answers = None
        if "nodes" not in hidden:
            since = None if current is None else self.thing(current.slurm_job_id).silent
            silent = () if since is None else (SilentNode("c1", since),)
            answers = None if elder is None else self.thing(elder.slurm_job_id).silent is None
        return Observation(
            host,
            self._starts(hidden),
            self._object(current, hidden),
            lookups=lookups,
            seen=seen,
            clock_ran=SiteClock("k", self.ran_s),
            cessation=self._cessation(asked, hidden),
            silent=silent,
            elder=self._object(elder, hidden),
            elder_answers=answers,
        )

    def _lookups(self, state: State, hidden: frozenset[str]) -> Lookups:
        assert state.current is not None
        number = state.current.number
        match = next((thing for thing in self.visible() if thing.number == number), None)

        def answer(source: str, *, has: bool) -> Any:
            if source in hidden:
                return Unknown("hidden")
            return Found(CLUSTER, match.slurm_job_id) if match is not None and has else Absent()

        started = match is not None and bool(match.begun)
        return Lookups(
            number, answer("notes", has=started), answer("queue", has=True), answer("accounting", has=True)
        )

    def _starts(self, hidden: frozenset[str]) -> Any:
        if "notes" in hidden:
            return ()
        return tuple(
            ("started", start_body(self.spec, thing.number, restart, thing.slurm_job_id))
            for thing in self.things
            for restart in sorted(thing.begun)
        )

    def _object(self, it: Any, hidden: frozenset[str]) -> Any:
        if it is None or "object" in hidden:
            return Unknown("hidden")
        thing = self.thing(it.slurm_job_id)
        if thing.outcome is not None:
            evidence = {"state": "X", "by_uid": UID if thing.outcome == "cancelled" else None}
            return ObjectEnded(
                thing.number, thing.slurm_job_id, Outcome(thing.outcome), evidence, restart=thing.restart
            )
        previous = None
        if thing.restart and thing.restart - 1 in thing.begun:
            previous = ObjectEnded(
                thing.number, thing.slurm_job_id, Outcome.NODE_FAIL, {}, restart=thing.restart - 1, final=False
            )
        return ObjectAlive(thing.number, thing.slurm_job_id, thing.restart, thing.state == "PENDING", previous)

    def _cessation(self, asked: AskCessation | None, hidden: frozenset[str]) -> dict[str, CessationAnswer]:
        """The truth, or unknown."""
        if asked is None:
            return {}
        living = {
            start_body(self.spec, thing.number, restart, thing.slurm_job_id)["attempt"]
            for thing in self.things
            for restart in thing.processes
        }
        found = {}
        for it in asked.executions:
            answer = "unknown" if "cessation" in hidden else "running" if it.attempt in living else "ceased"
            found[it.attempt] = CessationAnswer(answer, "world", "", self.now)
        return found

    # What a tick does

    def tick(self, host: str, hidden: frozenset[str] = frozenset(), dies_after: int = 10_000) -> int:
        """One tick; dies after so many actions. Returns how many it did."""
        self.ran_s += 60
        done = 0
        # Slurm is asked once, as a tick does: what was seen outlives what is decided from it.
        first = self.observe(self.state, host, hidden)
        for _ in range(200):
            state = self.state
            actions = self._decide(state, first, host, hidden)
            seq = state.seq
            for action in actions:
                if done >= dies_after:
                    return done
                done += 1
                seq = self._perform(action, state, seq, hidden)
            if seq == state.seq:
                return done
        raise AssertionError("a tick does not come to its end")

    def _decide(self, state: State, first: Observation, host: str, hidden: frozenset[str]) -> list[Action]:
        policy = Policy(cessation=True, no_progress=30, breaker=self.breaker)
        seen = first
        if (state.elder is None) != isinstance(first.elder, Unknown) or state.elder is not None:
            seen = self.observe(state, host, hidden)  # the elder of this state, which came since
        actions = decide(state, seen, policy, self.now)
        assert actions
        if any(isinstance(action, LookUp) for action in actions):
            actions = decide(state, self.observe(state, host, hidden, look_up=True), policy, self.now)
            assert not any(isinstance(action, LookUp) for action in actions)
        asked = next((action for action in actions if isinstance(action, AskCessation)), None)
        if asked is not None:
            actions = decide(state, self.observe(state, host, hidden, asked=asked), policy, self.now)
            assert not any(isinstance(action, AskCessation) for action in actions)
        return actions

    def _perform(self, action: Action, state: State, seq: int, hidden: frozenset[str]) -> int:
        """Returns the number of the last fact that the tick knows of."""
        if isinstance(action, AppendFact):
            self.check(action, state, hidden)
            assert self.append(seq + 1, action.kind, action.body)
            return seq + 1
        if isinstance(action, Submit):
            self.submit(seq + 1, action.submission, action.decision, action.changes)
            return seq + 1
        if isinstance(action, Tell):
            assert self.append(seq + 1, "told", {"on": action.on, "what": action.what, "status": None})
            return seq + 1
        if isinstance(action, Cancel):
            self._cancel(action, state)
        elif isinstance(action, Requeue):
            thing = self.thing(action.object.slurm_job_id)
            if self.reply == "rejected":
                body = {"submission": thing.number, "slurm_job_id": thing.slurm_job_id, "why": "no such job"}
                assert self.append(seq + 1, "requeue_failed", body)
                return seq + 1
            if thing.outcome is not None and thing.restart < 50:
                thing.outcome, thing.state, thing.restart = None, "PENDING", thing.restart + 1
        else:
            assert isinstance(action, Nothing | UpdateObject)
        return seq

    def _cancel(self, action: Cancel, state: State) -> None:
        if action.stray:
            assert action.object != state.object
        thing = self.thing(action.object.slurm_job_id)
        if state.elder is not None and state.elder.object == action.object and state.closed is None:
            # Never before there is something better, unless Slurm itself starts it again.
            runs = state.current is not None and state.current.execution is not None
            assert (runs and state.current is not state.elder) or thing.restart > 0
        if thing.outcome is None:
            self.end(thing, "cancelled")

    def check(self, action: AppendFact, state: State, hidden: frozenset[str]) -> None:
        """Unknown changes nothing, and what is said of the world is so."""
        kind, body = action.kind, action.body
        if kind == "burnt":
            assert not hidden & {"notes", "queue", "accounting"} or state.request is not None or state.closed
            there = [it for it in self.things if it.number == body["submission"]]
            assert not there or "accounting" in hidden, "burnt, and it is there"
        if kind in {"end", "requeued"}:
            assert "object" not in hidden
        if kind in {"suspected", "cleared"}:
            assert "nodes" not in hidden or "object" not in hidden
        if kind == "suspected":
            since = self.thing(body["slurm_job_id"]).silent
            assert since is not None
            assert self.now - since >= SUSPECT_S
        if kind == "release" and body["how"] == "ceased":
            assert not any(thing.processes for thing in self.things), "called ceased, and it lives"
        if kind == "decision" and body["outcome"] == "completed":
            assert body["close"] == "completed"
