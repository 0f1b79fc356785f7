"""The record and the Slurm of the model: every look, append and call is a step of :class:`SiteWorld`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from slurm_dispatch.model.identity import Word, find_word
from slurm_dispatch.records.facts import Fact, parse_fact, render
from slurm_dispatch.slurm.port import (
    Accepted,
    Ambiguous,
    CancelAnswer,
    ChangeAnswer,
    Nodes,
    Rejected,
    SbatchCall,
    Unknown,
)
from tests.controller.fake_slurm import OVER
from tests.controller.memory_slurm import MemorySlurm
from tests.records.life import UID

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from slurm_dispatch.slurm.port import Queue, SubmitAnswer
    from tests.controller.site_owned import Owned
    from tests.controller.site_world import SiteWorld

MESSAGE_S = 10.0
MUTATIONS = frozenset({"submit", "cancel", "requeue", "update"})
SLURMCTLD = "slurmctld"
VERY_LATE_S = 300.0


class Killed(BaseException):
    """The process is gone."""


@dataclass(frozen=True)
class Cut:
    """What happens before step ``step`` of a tick and of what comes between: ``die``, or an act of the world.

    :param at: only steps of this name are counted; empty: all.
    """

    step: int
    what: str
    at: str = ""


@dataclass
class Record:
    """The record of a job, with the verbs of :class:`~slurm_dispatch.state.jobs.Record`."""

    owned: Owned
    folder: str
    facts: list[Fact] = field(default_factory=list)

    def stamp(self) -> int:
        return len(self.facts)

    def read(self) -> list[Fact]:
        self.owned.world.step("read")
        return list(self.facts)

    def append(
        self, expected_seq: int, kind: str, by: str, body: Mapping[str, Any], *, at: float | None = None
    ) -> bool:
        world = self.owned.world
        world.step(f"append {kind}")
        if expected_seq <= len(self.facts):
            world.saw("a number of the record was lost to somebody else")
            return False
        assert expected_seq == len(self.facts) + 1, "a gap"
        if by.startswith("tick@") and (self.facts[-1].kind, dict(self.facts[-1].body)) == (kind, dict(body)):
            raise AssertionError(f"the fact {kind} changed nothing, and is said again")
        self.owned.check(kind, body)
        self.put(kind, by, body, at=at)
        return True

    def put(self, kind: str, by: str, body: Mapping[str, Any], *, at: float | None = None) -> None:
        """The next fact, whatever its number."""
        world, seq = self.owned.world, len(self.facts) + 1
        text = render(Fact(seq, world.wall if at is None else at, kind, by, body))
        world.trace(text.decode("ascii"))
        self.facts.append(parse_fact(seq, text))
        self.owned.appended(kind, body)

    def script(self, sha256: str = "") -> bytes:
        return b"#!/bin/sh\n"

    def script_path(self, sha256: str = "") -> str:
        return f"{self.folder}/script"

    def environment(self) -> bytes:
        return b""


class Port(MemorySlurm):
    """Slurm as the controllers reach it: each call is a step, and slurmctld has a clock of its own.

    :ivar reply: how the next calls of sbatch end; ``failing``: by verb, how those that change an object end.
    """

    def __init__(self, world: SiteWorld) -> None:
        super().__init__(UID)
        self.world = world
        self.reply = "answer"
        self.failing: dict[str, str] = {}
        self.hidden: frozenset[str] = frozenset()

    # What slurmctld dates by its own clock.

    def plain(self, *, comment: str, uid: int | None = None, slurm_job_id: int | None = None) -> int:
        with self.world.on(SLURMCTLD):
            return super().plain(comment=comment, uid=uid, slurm_job_id=slurm_job_id)

    def start(self, slurm_job_id: int, *, nodes: str = "c1") -> int:
        with self.world.on(SLURMCTLD):
            return super().start(slurm_job_id, nodes=nodes)

    def end(self, slurm_job_id: int, *states: str, **fields: Any) -> None:
        with self.world.on(SLURMCTLD):
            super().end(slurm_job_id, *states, **fields)

    def restart(self, slurm_job_id: int, state: str = "REQUEUED") -> None:
        with self.world.on(SLURMCTLD):
            super().restart(slurm_job_id, state)

    # The port.

    def submit(self, call: SbatchCall, accepted: Callable[[Accepted], None] | None = None) -> SubmitAnswer:
        self._called("submit")
        word = find_word(next(text for text in call.argv if text.startswith("--comment=")).partition("=")[2])
        assert word is not None
        world = self.world
        world.owned[word.job].sbatch(word)
        until = world.now + call.deadline_s
        # What hangs for longer than anybody waits is a stray: its number is burnt by then, or left to a person.
        late = (until + 2 * MESSAGE_S + (VERY_LATE_S if self.reply == "very late" else -1), word, call.argv)
        try:
            world.step("submit")
        except Killed:
            if self.reply != "answer" and self.reply != "reject":  # its sbatch goes on without it
                world.saw("sbatch goes on without its caller")
                world.late.append(late)
            raise
        if self.reply == "reject":
            return Rejected(1, "sbatch: error: Invalid partition name specified")
        if self.reply in {"late", "very late"} or world.now > until:
            world.saw("sbatch hangs until it is killed")
            world.late.append(late)
            world.now = max(world.now, until)
            return Ambiguous("killed at its deadline")
        number = world.arrive(word, call.argv)
        world.step("sbatch has arrived")
        if self.reply == "lost":
            world.saw("sbatch's reply is lost")
            return Ambiguous("Socket timed out on send/recv operation", 1)
        answer = Accepted(number, None)
        if accepted is not None:
            accepted(answer)
        return answer

    def queue(self) -> Queue | Unknown:
        self.world.step("queue")
        return Unknown("hidden") if "queue" in self.hidden else super().queue()

    def detail(self, slurm_job_ids: Sequence[int]) -> dict[int, Any]:
        self.world.step("detail")
        if "detail" in self.hidden:
            return {number: Unknown("hidden") for number in slurm_job_ids}
        return super().detail(slurm_job_ids)

    def accounting(self, slurm_job_ids: Sequence[int], *, since: int | None = None) -> dict[int, Any]:
        self.world.step("accounting")
        if "accounting" in self.hidden:
            return {number: Unknown("hidden") for number in slurm_job_ids}
        self._lags(slurm_job_ids)
        return super().accounting(slurm_job_ids, since=since)

    def accounting_by_word(self, word: Word, uid: int, *, since: int) -> Any:
        self.world.step("accounting by word")
        if "accounting" in self.hidden:
            return Unknown("hidden")
        self._lags([number for number in self.ids() if self.world.made.get(number) == word])
        return super().accounting_by_word(word, uid, since=since)

    def _lags(self, asked: Sequence[int]) -> None:
        if self._frozen is not None and any(
            self._frozen.get(number) != super(MemorySlurm, self)._rows(number) for number in asked
        ):
            self.world.saw("accounting is asked while it lags behind")

    def cancel(self, slurm_job_id: int, cluster: str | None) -> CancelAnswer:
        self.world.step("cancel")
        self.world.may_touch(slurm_job_id, "cancel")
        how = self._fails("cancel")
        if how in {"away", "refused"}:
            return CancelAnswer(done=False, why="scancel: Unable to contact slurm controller")
        before = self.job(slurm_job_id)["states"]
        answer = super().cancel(slurm_job_id, cluster)
        if answer.done and not OVER & set(before):
            self.world.over(slurm_job_id)
        return answer if how == "ok" else CancelAnswer(done=False, why="scancel: Socket timed out on send/recv")

    def requeue(self, slurm_job_id: int, cluster: str | None) -> ChangeAnswer:
        self.world.step("requeue")
        self.world.may_touch(slurm_job_id, "requeue")
        return self._changes("requeue", lambda: super(Port, self).requeue(slurm_job_id, cluster), slurm_job_id)

    def update(self, slurm_job_id: int, cluster: str | None, fields: Mapping[str, str]) -> ChangeAnswer:
        self.world.step("update")
        self.world.may_touch(slurm_job_id, "update")
        return self._changes("update", lambda: super(Port, self).update(slurm_job_id, cluster, fields), None)

    def _changes(self, verb: str, change: Callable[[], ChangeAnswer], leaves: int | None) -> ChangeAnswer:
        """Do it, or not, as :attr:`failing` says; the processes of ``leaves`` end where it is done."""
        how = self._fails(verb)
        if how == "away":
            return ChangeAnswer(done=False, why="scontrol: Unable to contact slurm controller (connect failure)")
        if how == "refused":
            return ChangeAnswer(False, True, "scontrol: Requested operation is presently disabled")
        answer = change()
        if answer.done and leaves is not None:
            self.world.leave(leaves)
        return answer if how == "ok" else ChangeAnswer(done=False, why="scontrol: Socket timed out on send/recv")

    def _fails(self, verb: str) -> str:
        how = self.failing.get(verb, "ok")
        if how != "ok":
            self.world.saw(f"{verb} fails: {how}")
        return how

    def nodes(self) -> Nodes | Unknown:
        return Unknown("hidden") if "nodes" in self.hidden else self.world.nodes()


__all__ = ["MESSAGE_S", "MUTATIONS", "SLURMCTLD", "Cut", "Killed", "Port", "Record"]
