"""A site in memory for the model: the record, the stand-in Slurm, the hooks, clocks, and controllers that die.

The product's own code runs between: :class:`~slurm_dispatch.controller.job.Job` and ``submit_once``. Each append,
each call of Slurm and each look is a step, before which the one who takes it may die, or another may come between;
see :class:`Cut`. What must hold whenever something is done is asserted where it is done.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from slurm_dispatch.controller import hearsay
from slurm_dispatch.controller.clock import Clock
from slurm_dispatch.controller.hints import Hints
from slurm_dispatch.controller.job import Job, Means
from slurm_dispatch.controller.silence import Suspects
from slurm_dispatch.controller.siterules import SiteRules
from slurm_dispatch.controller.siteview import SiteView
from slurm_dispatch.controller.view import Details, View, notes_by_key
from slurm_dispatch.model.epoch import Epoch
from slurm_dispatch.model.identity import Word, attempt_of, find_word
from slurm_dispatch.records.facts import Fact, parse_fact, render
from slurm_dispatch.records.fold import fold
from slurm_dispatch.records.observation import CessationAnswer
from slurm_dispatch.records.policy import Policy
from slurm_dispatch.slurm.port import Node, Nodes, SbatchCall
from slurm_dispatch.state.notes import Note
from slurm_dispatch.submit.run import Intent, submit_once, wait_s
from tests.controller.site_port import MESSAGE_S, Cut, Killed, Port, Record
from tests.records.life import CLUSTER, KEY, UID, make_spec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from slurm_dispatch.records import people
    from slurm_dispatch.records.state import State

START = 1_700_000_000.0
SUBMIT_S = 5.0
WAIT_S = wait_s(SUBMIT_S, MESSAGE_S)
SUSPECT_S = 30.0
STRANGER = 4321
SOURCES = ("notes", "queue", "detail", "accounting", "cessation", "nodes")
RESTARTS_MAX = 4
CONFIG = {
    "ClusterName": CLUSTER,
    "MessageTimeout": "10 sec",
    "AccountingStorageType": "accounting_storage/slurmdbd",
    "PrologSlurmctld": "/etc/slurm/prolog",
}


@dataclass(frozen=True)
class Ran:
    """An execution that the gate let in.

    :ivar submission: of its word.
    """

    submission: int
    slurm_job_id: int
    attempt: str
    epoch: Epoch


class SiteWorld:
    """What really is.

    :ivar now: the time that never steps; ``wall`` is what clocks show.
    :ivar called: submissions for which sbatch was called, in order.
    :ivar ran: executions that the gate let in, in order; ``living``: attempts whose processes live.
    :ivar covered: attempts that a person took upon himself when he released the job.
    """

    def __init__(self, **spec: Any) -> None:
        self.spec = make_spec(**spec)
        self.now = START
        self.stepped = 0.0
        self.ran_s = 0.0
        self.record = Record(self)
        self.slurm = Port(self)
        self.notes: list[Note] = []
        self.refused_words: set[Word] = set()
        self.called: list[int] = []
        self.ran: list[Ran] = []
        self.living: set[str] = set()
        self.covered: set[str] = set()
        self.were_over: set[tuple[int, Word]] = set()
        self.late: list[tuple[float, Word, tuple[str, ...]]] = []
        self.silent: dict[str, float] = {}
        self.answers: dict[tuple[str, str], CessationAnswer] = {}
        self.cuts: list[Cut] = []
        self.steps = 0
        self.depth = 0
        self.acts: Mapping[str, Callable[[], None]] = {}
        self.said: list[str] = []
        assert self.record.append(1, "spec", "user:ada@login", self.spec.body())

    @property
    def wall(self) -> float:
        return self.now + self.stepped

    @property
    def state(self) -> State:
        return fold(self.record.facts)

    def step(self, what: str) -> None:
        """One process takes its next step; before it, what was laid out for this moment happens."""
        if self.depth == 0:
            return
        self.steps += 1
        while self.cuts and self.cuts[0].step <= self.steps:
            cut = self.cuts.pop(0)
            self.said.append(f"{cut.what} before {what}")
            if cut.what == "die":
                raise Killed
            self.acts[cut.what]()

    # Who acts.

    def wrapper(self, cuts: Sequence[Cut] = ()) -> None:
        """``dispatch sbatch`` once the record is made."""

        def work() -> None:
            word = self.spec.word(1)
            call = SbatchCall((*self.spec.argv, f"--comment=mine {word}", "/s"), {}, SUBMIT_S)
            submit_once(
                self.record, self.slurm, Intent(word), call, seq=1, by="user:ada@login",  # type: ignore[arg-type]
                cluster=CLUSTER, settle_after_s=WAIT_S,
            )  # fmt: skip

        self._live(work, cuts)

    def tick(self, host: str, hidden: frozenset[str] = frozenset(), cuts: Sequence[Cut] = ()) -> None:
        """One pass of a controller."""
        self._live(lambda: self._pass(host, hidden), cuts)

    def _live(self, work: Callable[[], None], cuts: Sequence[Cut]) -> None:
        """Do ``work``, which may die; nobody's death is another's."""
        if self.depth == 0:
            self.steps, self.cuts = 0, sorted(cuts, key=lambda cut: cut.step)
        self.depth += 1
        before = self.slurm.hidden
        try:
            work()
        except Killed:
            pass
        finally:
            self.depth -= 1
            self.slurm.hidden = before
            if self.depth == 0:
                self.cuts = []

    def _pass(self, host: str, hidden: frozenset[str]) -> None:
        self.slurm.hidden = hidden
        self.ran_s += 60
        at = self.wall
        notes = notes_by_key(() if "notes" in hidden else self.notes)
        answers = {} if "cessation" in hidden else self.answers
        told = [] if "nodes" in hidden else list(self.silent)
        suspects = Suspects({name: self.silent[name] + self.stepped for name in told})
        site = SiteView(
            rules=SiteRules(suspicion=True),
            hints=Hints(clock=Clock("k", self.ran_s, at)),
            nodes=self.slurm.nodes(),
            suspects=Suspects(why="hidden") if "nodes" in hidden else suspects,
            answers=answers,
            cessation=True,
            known=True,
        )
        view = View(
            at, host, CLUSTER, self.slurm.queue(), True, notes, "notes" not in hidden, CONFIG, frozenset(), site
        )
        means = Means(self.slurm, Policy(), f"tick@{host}", SUBMIT_S, MESSAGE_S, {"PATH": "/bin"})
        job = Job(self.record, view, Details(self.slurm, accounting=True), means, user="ada")  # type: ignore[arg-type]
        job.want()
        report = job.work()
        self.step("the notes go")
        self.notes = [note for note in self.notes if note.name not in report.done_notes]
        self.step("words are refused")
        self.refused_words |= {word for text in report.refuse if (word := find_word(text)) is not None}
        heard = hearsay.unpack(report.site, UID, "ada")
        self.answers = {(KEY, it.attempt): self._cessation(it.attempt, at) for it in heard.ask}

    def _cessation(self, attempt: str, at: float) -> CessationAnswer:
        return CessationAnswer("running" if attempt in self.living else "ceased", "world", "", at)

    def person(self, facts: people.Facts) -> None:
        """What somebody does at the command line."""
        for kind, body in facts:
            seq = len(self.record.facts) + 1
            self.record.facts.append(parse_fact(seq, render(Fact(seq, self.wall, kind, "user:ada@login", body))))
            if kind == "release":
                self.covered |= {it.attempt for it in self.ran}
        self.appended()

    # Slurm, its hooks and its nodes.

    def sbatch(self, word: Word) -> None:
        """sbatch is called."""
        number = word.submission
        assert number not in self.called, f"submission {number} was used twice"
        assert number > max(self.called, default=0), "numbers only rise"
        closed = self.state.closed
        assert closed is None or closed.why == "superseded", "a closed job was submitted"
        self.called.append(number)

    def arrive(self, word: Word, argv: Sequence[str]) -> int:
        """slurmctld has the object of an sbatch."""
        number = self.slurm.plain(comment=f"mine {word}")
        self.slurm.set(number, argv=list(argv))
        return number

    def passes(self, seconds: float) -> None:
        """Time goes on, and what was under way arrives."""
        self.now += seconds
        self.ran_s += seconds
        due = [it for it in self.late if it[0] <= self.now]
        self.late = [it for it in self.late if it[0] > self.now]
        for _, word, argv in due:
            self.arrive(word, argv)

    def word(self, slurm_job_id: int) -> Word | None:
        """The identity word of an object, if it is one of this job's."""
        body = self.slurm.job(slurm_job_id)
        word = find_word(body["comment"])
        return word if word is not None and word.job == KEY and body["uid"] == UID else None

    def objects(self, *states: str) -> list[int]:
        """The job's objects that slurmctld remembers and that are in one of the states; all without one."""
        return [
            number
            for number in self.slurm.ids()
            if self.slurm.job(number)["in_memory"]
            and self.word(number) is not None
            and (not states or set(states) & set(self.slurm.job(number)["states"]))
        ]

    def start(self, number: int) -> None:
        """Slurm starts a waiting object, and PrologSlurmctld decides."""
        word = self.word(number)
        assert word is not None
        start = self.slurm.start(number, nodes=f"n{number}")
        body = self.slurm.job(number)
        restart = body["restart"]
        why = self._refusal(word, number, restart, start)
        if why is not None:
            self._note("refused", word, number, {"restart": restart, "start_time": start, "why": why})
            if "--no-requeue" in body["argv"] or restart >= RESTARTS_MAX:
                self.slurm.end(number, "CANCELLED", by_uid=0)
                self.over(number)
            else:
                self.slurm.restart(number)
                self.slurm.set(number, reason="None")
            return
        epoch = Epoch(word.generation, word.submission, restart)
        attempt = attempt_of(CLUSTER, number, word, restart, start)
        self._enters(Ran(word.submission, number, attempt, epoch))
        more = {"user": "ada", "partition": "low", "account": "ml", "array": None, "het_leader": None, "sluid": None}
        told = {"restart": restart, "start_time": start, "attempt": attempt, "epoch": str(epoch)}
        self._note("start", word, number, {**told, "nodes": f"n{number}", **more})

    def _refusal(self, word: Word, number: int, restart: int, start: int) -> str | None:
        if word in self.refused_words:
            return "refuse"
        if word.shared and restart:
            return "shared"
        for note in self.notes:
            same = (note.kind, note.word, note.slurm_job_id) == ("start", word, number)
            if same and note.body["restart"] == restart and note.body["start_time"] != start:
                return "double_start"
        return None

    def _enters(self, it: Ran) -> None:
        assert all(it.epoch != other.epoch for other in self.ran), f"two executions share epoch {it.epoch}"
        current = self.state.object
        if current is not None and current.slurm_job_id == it.slurm_job_id and self.state.elder is None:
            older = [other.epoch for other in self.ran]
            assert all(epoch < it.epoch for epoch in older), "the epoch of the current object does not rise"
        if self.spec.shared:
            beside = self.living - self.covered
            assert not beside, f"an execution of a shared job beside {sorted(beside)}, which nobody released"
        self.ran.append(it)
        self.living.add(it.attempt)

    def end(self, number: int, *states: str, lingers: bool = False, **more: Any) -> None:
        """An object ends for good; its processes perhaps not."""
        word = self.word(number)
        assert word is not None
        start = self.slurm.job(number)["start_time"]
        self.slurm.end(number, *states, **more)
        self.over(number, lingers=lingers)
        fields = {"start_time": start, "restart_seen": 0, "exit_code": "0:0", "nodes": f"n{number}"}
        if start is not None:
            self._note("end", word, number, fields)

    def over(self, number: int, *, lingers: bool = False) -> None:
        """It is known that the object ended once."""
        word = self.word(number)
        if word is not None:
            self.were_over.add((number, word))
        if not lingers:
            self.leave(number)

    def leave(self, number: int) -> None:
        """The processes of the object end."""
        self.living -= {it.attempt for it in self.ran if it.slurm_job_id == number}

    def start_again(self, number: int) -> None:
        """slurmctld was killed just after the start and knows nothing of it: it starts the same count again.

        The processes of the first start live on.
        """
        self.slurm.set(number, states=["PENDING"])
        self.passes(2.0)
        self.start(number)

    def restart(self, number: int) -> None:
        """Slurm, or somebody else, requeues what runs or has ended."""
        self.slurm.restart(number)
        self.leave(number)

    def nodes(self) -> Nodes:
        """Each object has a node of its own."""
        found = []
        for number in self.slurm.ids():
            name = f"n{number}"
            flags = frozenset({"NOT_RESPONDING"} if name in self.silent else ())
            found.append(Node(name, "ALLOCATED", flags, ("low",), int(START)))
        return Nodes(tuple(found))

    def _note(self, kind: str, word: Word, number: int, fields: Mapping[str, Any]) -> None:
        body = {"v": 1, "job": word.job, "generation": word.generation, "submission": word.submission}
        body |= {"shared": word.shared, "cluster": CLUSTER, "slurm_job_id": number, "at": self.wall, "uid": UID}
        name = f"{kind}.{word}.{number}.{len(self.notes)}.{int(self.now)}"
        self.notes.append(Note(name, kind, word, CLUSTER, number, self.wall, {**body, **fields}))

    # What must hold whenever something is done.

    def may_touch(self, number: int, verb: str) -> None:
        """Nobody else's object is ever changed, and the current one is cancelled only where something asks for it."""
        word = self.word(number)
        assert word is not None, f"{verb} of Slurm job {number}, which is another's"
        state = self.state
        current = state.object
        if verb == "cancel" and current is not None and current.slurm_job_id == number and state.closed is None:
            refused = state.current is not None and state.current.refusals
            asked = state.request is not None or state.hold is not None or state.elder is not None
            assert asked or refused or self.spec.shared, "the current object was cancelled, and nobody asked for it"

    def check(self, kind: str, body: Mapping[str, Any]) -> None:
        """What a fact says of the world is so."""
        if kind == "end":
            number, word = body["slurm_job_id"], self.spec.word(body["submission"])
            if body["final"]:
                assert (number, word) in self.were_over, f"Slurm job {number} is said to have ended, and never did"
            else:
                ran = max((it.epoch.restart for it in self.ran if it.slurm_job_id == number), default=0)
                count = max(ran, self.slurm.job(number)["restart"])
                assert self.word(number) != word or count > body["restart"], "a restart that never was"
        elif kind == "burnt" and not self.stepped and self.state.request is None and self.state.closed is None:
            there = [it for it in self.slurm.ids() if self.word(it) == self.spec.word(body["submission"])]
            assert not there, f"submission {body['submission']} was burnt, and it is Slurm job {there}"
        elif kind == "release" and body["how"] == "ceased":
            assert not self.living, f"called ceased, and {sorted(self.living)} live"
        elif kind == "suspected":
            assert set(body["nodes"]) <= set(self.silent), "a node was suspected that answers"

    def appended(self) -> None:
        """The law allows the record as it is now."""
        state = self.state
        numbers = [submission.number for submission in state.submissions]
        assert numbers == sorted(set(numbers))
        assert sum(submission.settled.value == "open" for submission in state.submissions) <= 1
        decided = [fact.body["on"] for fact in self.record.facts if fact.kind == "decision"]
        assert len(decided) == len(set(decided)), "two decisions about one end"


__all__ = [
    "RESTARTS_MAX", "SOURCES", "START", "STRANGER", "SUSPECT_S", "WAIT_S", "SiteWorld",
]  # fmt: skip
