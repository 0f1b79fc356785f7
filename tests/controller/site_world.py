"""A site in memory for the model: records, the stand-in Slurm, the hooks, clocks, and controllers that die.

The product's own code runs between: :class:`~slurm_dispatch.controller.job.Job` and ``submit_once``. Each append,
each call of Slurm and each look is a step, before which the one who takes it may die, or another may come between;
see :class:`Cut`. What must hold whenever something is done is asserted where it is done.
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from slurm_dispatch.model.epoch import Epoch
from slurm_dispatch.model.identity import Word, attempt_of, find_word
from slurm_dispatch.records import people
from slurm_dispatch.records.fold import fold
from slurm_dispatch.records.state import Phase, State
from slurm_dispatch.slurm.port import Node, Nodes, SbatchCall
from slurm_dispatch.state.notes import Note
from slurm_dispatch.submit.run import Intent, submit_once, wait_s
from slurm_dispatch.submit.supersede import _after as spec_of_successor
from tests.controller.fake_slurm import OVER
from tests.controller.site_owned import Owned, Ran
from tests.controller.site_passes import SUBMIT_S, Passes
from tests.controller.site_port import MESSAGE_S, SLURMCTLD, Cut, Killed, Port
from tests.records.life import CLUSTER, UID, make_spec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from slurm_dispatch.records.facts import Fact

START = 1_700_000_000.0
WAIT_S = wait_s(SUBMIT_S, MESSAGE_S)
SUSPECT_S = 30.0
STRANGER = 4321
RESTARTS_MAX = 4
GENERATIONS_MAX = 2
CLOCK_MOST_S = 7200.0
"""How far a host's clock may be off before somebody sets it right."""
SEEN: dict[str, int] = {}
"""How often each thing happened in all worlds since this was last cleared."""
TRACE: list[str] = []
"""What happened since it was last cleared, line by line."""


class SiteWorld(Passes):
    """What really is.

    :cvar settle_s: how long anybody watches an intent of somebody else before he settles it (P6).

    :ivar now: the time that never steps; ``wall`` is what the clock of ``acting`` shows, off by ``offsets``.
    :ivar stepped_at: host: when its clock was last set forward, by the time that never steps.
    :ivar owned: the jobs by key, in the order in which they were made.
    :ivar made: Slurm job id: the word of the object that has it, whatever became of its comment.
    :ivar ran: executions that the gate let in, in order; ``living``: attempts whose processes live.
    :ivar died: the last process that ran did not come to its end.
    :ivar edited: Slurm job ids of objects whose owner took the word out of the comment.
    """

    settle_s = WAIT_S

    def __init__(self, **spec: Any) -> None:
        super().__init__()
        self.now = START
        self.acting = "login"
        self.offsets: dict[str, float] = {}
        self.stepped_at: dict[str, float] = {}
        self.ran_s = 0.0
        self.slurm = Port(self)
        self.owned: dict[str, Owned] = {}
        self.notes: list[Note] = []
        self.refused_words: set[Word] = set()
        self.made: dict[int, Word] = {}
        self.edited: set[int] = set()
        self.ran: list[Ran] = []
        self.living: set[str] = set()
        self.were_over: set[tuple[int, Word]] = set()
        self.late: list[tuple[float, Word, tuple[str, ...]]] = []
        self.silent: dict[str, float] = {}
        self.cuts: list[Cut] = []
        self.steps = 0
        self.stepped: Counter[str] = Counter()
        self.depth = 0
        self.died = False
        self.acts: Mapping[str, Callable[[], None]] = {}
        self._folds: dict[int, tuple[Fact, State]] = {}
        self._takes(make_spec(**spec), None)

    def _takes(self, spec: Any, elder: Owned | None) -> Owned:
        job = self.owned[spec.job] = Owned(self, spec, elder)
        return job

    @property
    def job(self) -> Owned:
        """The newest job that came to anything."""
        jobs = list(self.owned.values())
        return next((it for it in reversed(jobs) if not _never_was(it.state)), jobs[0])

    @property
    def state(self) -> State:
        """Of that job."""
        return self.job.state

    @property
    def wall(self) -> float:
        return self.now + self.offsets.get(self.acting, 0.0)

    @contextmanager
    def on(self, host: str) -> Iterator[None]:
        """What is dated in the block is dated by this host."""
        before, self.acting = self.acting, host
        try:
            yield
        finally:
            self.acting = before

    def folded(self, facts: Sequence[Fact]) -> State:
        """What the facts make; the fold is pure, so that the same facts are folded once."""
        found = self._folds.get(id(facts[-1]))
        if found is None:
            found = self._folds[id(facts[-1])] = facts[-1], fold(facts)
        return found[1]

    @staticmethod
    def saw(what: str) -> None:
        """Count that this happened."""
        SEEN[what] = SEEN.get(what, 0) + 1

    @staticmethod
    def trace(what: str) -> None:
        """One line of what happened, for the digest of a run."""
        TRACE.append(what)

    def step(self, what: str) -> None:
        """One process takes its next step; before it, what was laid out for this moment happens."""
        if self.depth == 0:
            return
        self.trace(what)
        self.steps += 1
        self.stepped[what] += 1
        now = [it for it in self.cuts if self._is_now(it, what)]
        for cut in now:
            if cut not in self.cuts:
                continue  # what came between was cut short itself, and with it this one
            self.cuts.remove(cut)
            if cut.what == "die":
                self.saw(f"died before {what}")
                raise Killed
            self.saw(f"{cut.what} came between")
            with self.on("login"):
                self.acts[cut.what]()

    def _is_now(self, cut: Cut, what: str) -> bool:
        return cut.step <= self.steps if not cut.at else (cut.at == what and cut.step <= self.stepped[what])

    # Who acts.

    def wrapper(self, cuts: Sequence[Cut] = ()) -> None:
        """``dispatch sbatch`` once the record is made."""
        job = self.job

        def work() -> None:
            word = job.spec.word(1)
            call = SbatchCall((*job.spec.argv, f"--comment=mine {word}", "/s"), {}, SUBMIT_S)
            submit_once(
                job.record, self.slurm, Intent(word), call, seq=1, by="user:ada@login",  # type: ignore[arg-type]
                cluster=CLUSTER, settle_after_s=WAIT_S,
            )  # fmt: skip

        with self.on("login"):
            self.live(work, cuts)

    def live(self, work: Callable[[], None], cuts: Sequence[Cut]) -> None:
        """Do ``work``, which may die; nobody's death is another's."""
        if self.depth == 0:
            self.steps, self.cuts = 0, sorted(cuts, key=lambda cut: cut.step)
            self.stepped.clear()
        self.depth += 1
        before = self.slurm.hidden
        try:
            work()
            self.died = False
        except Killed:
            self.died = True
        finally:
            self.depth -= 1
            self.slurm.hidden = before
            if self.depth == 0:
                self.cuts = []

    def supersede(self, *, keep: bool, cut_short: bool) -> None:
        """``dispatch supersede``: the new record first, then the closing fact, unless it died in between."""
        elder = self.job
        state = elder.state
        if len(elder.chain()) > GENERATIONS_MAX:
            return
        runs = state.object if keep and state.phase is Phase.RUNNING else None
        kept = None if runs is None else runs.slurm_job_id
        key = f"next{len(self.owned)}"
        try:
            wish = people.supersede(state, key, "x", kept)
        except people.UsageError:
            return
        with self.on("login"):
            self._takes(replace(spec_of_successor(state, state.spec, kept), job=key), elder)
        self.saw("a supersede is cut short" if cut_short else "a supersede")
        if not cut_short:
            elder.person(lambda _: wish)
            if kept is not None:
                self.saw("what runs of a superseded job is kept")

    def supersede_beside(self, elder: Owned) -> None:
        """Somebody else has made the record of another successor of the same job at the same time."""
        spec = replace(spec_of_successor(elder.state, elder.state.spec, None), job=f"next{len(self.owned)}")
        with self.on("login"):
            self._takes(spec, elder)

    # Slurm, its hooks and its nodes.

    def arrive(self, word: Word, argv: Sequence[str]) -> int:
        """slurmctld has the object of an sbatch."""
        number = self.slurm.plain(comment=f"mine {word}")
        if number in self.made:
            self.saw("an id of the job's own is given away again")
        self.made[number] = word
        self.edited.discard(number)
        self.slurm.set(number, argv=list(argv))
        return number

    def stranger(self) -> int:
        """Somebody else's object gets the first id that is free, which is returned."""
        number = self.slurm.plain(comment="theirs", uid=STRANGER)
        if self.made.pop(number, None) is not None:
            self.saw("an id is given away to a stranger")
            state = self.state
            if state.object is not None and state.object.slurm_job_id == number:
                self.saw("the id of the current object is a stranger's")
        self.edited.discard(number)
        self.slurm.start(number)
        return number

    def passes(self, seconds: float) -> None:
        """Time goes on, and what was under way arrives."""
        self.now += seconds
        self.ran_s += seconds
        due = [it for it in self.late if it[0] <= self.now]
        self.late = [it for it in self.late if it[0] > self.now]
        for _, word, argv in due:
            self.saw("an sbatch that nobody waits for arrives")
            self.arrive(word, argv)

    def set_clock(self, host: str, seconds: float) -> None:
        """Somebody sets the clock of a host, or it is right again."""
        offset = self.offsets.get(host, 0.0) + seconds
        offset = 0.0 if abs(offset) > CLOCK_MOST_S else offset
        if offset > self.offsets.get(host, 0.0):
            self.stepped_at[host] = self.now
        self.offsets[host] = offset
        self.saw(f"the clock of {host} steps")

    def word(self, slurm_job_id: int) -> Word | None:
        """The identity word of an object, if it is one of these jobs'."""
        return self.made.get(slurm_job_id)

    def objects(self, *states: str) -> list[int]:
        """The jobs' objects that slurmctld remembers and that are in one of the states; all without one."""
        return [
            number
            for number in self.slurm.ids()
            if number in self.made
            and self.slurm.job(number)["in_memory"]
            and (not states or set(states) & set(self.slurm.job(number)["states"]))
        ]

    def start(self, number: int) -> None:
        """Slurm starts a waiting object, and PrologSlurmctld decides, if it can tell whose it is."""
        if self.slurm.job(number)["reason"] == "JobHeldUser":
            self.saw("an object that its owner holds does not start")
            return
        start = self.slurm.start(number, nodes=f"n{number}")
        body = self.slurm.job(number)
        word, restart = find_word(body["comment"]), body["restart"]
        if word is None:
            self.saw("an object without its word starts")
            return
        why = self._refusal(word, number, restart, start)
        if why is not None:
            self._note("refused", word, number, {"restart": restart, "start_time": start, "why": why})
            self.saw(f"the gate refuses: {why}")
            if "--no-requeue" in body["argv"] or restart >= RESTARTS_MAX:
                self.slurm.end(number, "CANCELLED", by_uid=0)
                self.over(number)
            else:
                self.slurm.restart(number)
                self.slurm.set(number, reason="None")
            return
        epoch = Epoch(word.generation, word.submission, restart)
        attempt = attempt_of(CLUSTER, number, word, restart, start)
        it = Ran(word, number, attempt, epoch, start)
        self.owned[word.job].enters(it)
        self.ran.append(it)
        self.living.add(attempt)
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

    def end(self, number: int, *states: str, lingers: bool = False, **more: Any) -> None:
        """An object ends for good; its processes perhaps not."""
        word = find_word(self.slurm.job(number)["comment"])
        start = self.slurm.job(number)["start_time"]
        self.slurm.end(number, *states, **more)
        self.over(number, lingers=lingers)
        fields = {"start_time": start, "restart_seen": 0, "exit_code": "0:0", "nodes": f"n{number}"}
        if start is not None and word is not None:
            self._note("end", word, number, fields)

    def over(self, number: int, *, lingers: bool = False) -> None:
        """It is known that the object ended once."""
        if number in self.made:
            self.were_over.add((number, self.made[number]))
        if not lingers:
            self.leave(number)
        elif any(it.slurm_job_id == number and it.attempt in self.living for it in self.ran):
            self.saw("processes outlive their object")

    def leave(self, number: int) -> None:
        """The processes of the object end."""
        self.living -= {it.attempt for it in self.ran if it.slurm_job_id == number}

    def start_again(self, number: int) -> None:
        """slurmctld was killed just after the start and knows nothing of it: it starts the same count again.

        The processes of the first start live on.
        """
        self.saw("one restart count starts twice")
        self.slurm.set(number, states=["PENDING"])
        self.passes(2.0)
        self.start(number)

    def restart(self, number: int, *, held: bool = False) -> None:
        """Slurm, or somebody else, requeues what runs or has ended; ``held``: scontrol requeuehold."""
        over = bool(OVER & set(self.slurm.job(number)["states"]))
        self.saw(f"somebody requeues what {'has ended' if over else 'runs'}")
        self.slurm.restart(number)
        if held:
            self.slurm.set(number, reason="JobHeldUser", states=["REQUEUE_HOLD", "PENDING"])
        self.leave(number)

    def nodes(self) -> Nodes:
        """Each object has a node of its own."""
        found = []
        for number in self.slurm.ids():
            name = f"n{number}"
            flags = frozenset({"NOT_RESPONDING"} if name in self.silent else ())
            found.append(Node(name, "ALLOCATED", flags, ("low",), int(START)))
        return Nodes(tuple(found))

    def _note(self, kind: str, word: Word, number: int, fields: Mapping[str, Any], host: str = SLURMCTLD) -> None:
        with self.on(host):
            at = self.wall
        body = {"v": 1, "job": word.job, "generation": word.generation, "submission": word.submission}
        body |= {"shared": word.shared, "cluster": CLUSTER, "slurm_job_id": number, "at": at, "uid": UID}
        name = f"{kind}.{word}.{number}.{len(self.notes)}.{int(self.now)}"
        self.notes.append(Note(name, kind, word, CLUSTER, number, at, {**body, **fields}))

    def hands(self, it: Ran, step: int | None, end: Mapping[str, Any] | None, *, by_node: bool) -> None:
        """The helper of an execution hands on how far it came and how it ended: itself, or through its node."""
        job = self.owned[it.word.job]
        resumed = max((job.published[other.attempt] for other in job.ran if other.attempt in job.published
                       and other.epoch < it.epoch), default=None)  # fmt: skip
        progress = None if step is None else job.publishes(it, step, resumed)
        ends = {"status": None, "signal": None, "outcome": None, "step": step, **(end or {})}
        self.saw(f"the helper hands on {'through its node' if by_node else 'itself'}")
        if end is not None:
            self.saw(f"the helper says {ends['outcome'] or ends['status']}")
        common = {"attempt": it.attempt, "epoch": str(it.epoch)}
        if by_node:
            more = {
                "node": f"n{it.slurm_job_id}", "start_time": it.start, "verified": True,
                "progress": None if progress is None else step, "resumed_from": resumed, "ended": end is not None,
                "status": ends["status"], "signal": ends["signal"], "outcome": ends["outcome"], "last": step,
            }  # fmt: skip
            self._note("handed", it.word, it.slurm_job_id, {**common, **more}, host="node")
            return
        if progress is not None:
            job.helper("progress", progress)
        if end is not None:
            job.helper("ended", {**common, **ends})

    # What must hold whenever something is done.

    def may_touch(self, number: int, verb: str) -> None:
        """Nobody else's object is ever changed, and the current one is cancelled only where something asks for it."""
        word = self.word(number)
        assert word is not None, f"{verb} of Slurm job {number}, which is another's"
        job = self.owned[word.job]
        state = job.state
        current = state.current
        # By its word too: a slurmctld that has forgotten all gives the id to an earlier submission that comes late.
        has_id = state.object is not None and state.object.slurm_job_id == number
        is_current = has_id and current is not None and word.submission == current.number
        if verb == "cancel" and is_current and state.closed is None:
            refused = current is not None and current.refusals
            asked = state.request is not None or state.hold is not None or state.elder is not None
            assert asked or refused or job.spec.shared, "the current object was cancelled, and nobody asked for it"
        if state.closed is not None and state.closed.keep == number and verb == "cancel":
            (its,) = [one for one in state.submissions if one.number == word.submission]
            another = its.object is not None and its.object.slurm_job_id != number
            assert another, "what a person had left running was cancelled"


def _never_was(state: State) -> bool:
    return state.closed is not None and state.closed.why == "never_submitted"


__all__ = [
    "RESTARTS_MAX", "SEEN", "START", "STRANGER", "SUSPECT_S", "TRACE", "WAIT_S", "SiteWorld",
]  # fmt: skip
