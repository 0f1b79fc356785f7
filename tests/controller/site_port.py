"""The record and the Slurm of the model: every look, append and call is a step of :class:`SiteWorld`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from slurm_dispatch.model.identity import Word, find_word
from slurm_dispatch.records.facts import Fact, parse_fact, render
from slurm_dispatch.slurm.port import Accepted, Ambiguous, Nodes, Rejected, SbatchCall, Unknown
from tests.controller.fake_slurm import OVER
from tests.controller.memory_slurm import MemorySlurm
from tests.records.life import KEY, UID

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from slurm_dispatch.slurm.port import CancelAnswer, ChangeAnswer, Queue, SubmitAnswer
    from tests.controller.site_world import SiteWorld

MESSAGE_S = 10.0
MUTATIONS = frozenset({"submit", "cancel", "requeue", "update"})


class Killed(BaseException):
    """The process is gone."""


@dataclass(frozen=True)
class Cut:
    """What happens before step ``step`` of a tick and of what comes between: ``die``, or an act of the world."""

    step: int
    what: str


@dataclass
class Record:
    """The record of the job, with the verbs of :class:`~slurm_dispatch.state.jobs.Record`."""

    world: SiteWorld
    folder: str = f"/state/jobs/{KEY}"
    facts: list[Fact] = field(default_factory=list)

    def stamp(self) -> int:
        return len(self.facts)

    def read(self) -> list[Fact]:
        self.world.step("read")
        return list(self.facts)

    def append(
        self, expected_seq: int, kind: str, by: str, body: Mapping[str, Any], *, at: float | None = None
    ) -> bool:
        self.world.step(f"append {kind}")
        if expected_seq <= len(self.facts):
            return False
        assert expected_seq == len(self.facts) + 1, "a gap"
        self.world.check(kind, body)
        fact = Fact(expected_seq, self.world.wall if at is None else at, kind, by, body)
        self.facts.append(parse_fact(expected_seq, render(fact)))
        self.world.appended()
        return True

    def script(self, sha256: str = "") -> bytes:
        return b"#!/bin/sh\n"

    def script_path(self, sha256: str = "") -> str:
        return f"{self.folder}/script"

    def environment(self) -> bytes:
        return b""


class Port(MemorySlurm):
    """Slurm as the controllers reach it: each call is a step.

    :ivar reply: how the next calls of sbatch end.
    """

    def __init__(self, world: SiteWorld) -> None:
        super().__init__(UID)
        self.world = world
        self.reply = "answer"
        self.hidden: frozenset[str] = frozenset()

    def submit(self, call: SbatchCall, accepted: Callable[[Accepted], None] | None = None) -> SubmitAnswer:
        word = find_word(next(text for text in call.argv if text.startswith("--comment=")).partition("=")[2])
        assert word is not None
        self.world.sbatch(word)
        until = self.world.now + call.deadline_s
        try:
            self.world.step("submit")
        except Killed:
            if self.reply in {"late", "lost"}:  # its sbatch goes on without it
                self.world.late.append((until + 2 * MESSAGE_S - 1, word, call.argv))
            raise
        if self.reply == "reject":
            return Rejected(1, "sbatch: error: Invalid partition name specified")
        if self.reply == "late" or self.world.now > until:
            self.world.late.append((until + 2 * MESSAGE_S - 1, word, call.argv))
            self.world.now = max(self.world.now, until)
            return Ambiguous("killed at its deadline")
        number = self.world.arrive(word, call.argv)
        self.world.step("sbatch has arrived")
        if self.reply == "lost":
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
        return super().accounting(slurm_job_ids, since=since)

    def accounting_by_word(self, word: Word, uid: int, *, since: int) -> Any:
        self.world.step("accounting")
        if "accounting" in self.hidden:
            return Unknown("hidden")
        return super().accounting_by_word(word, uid, since=since)

    def cancel(self, slurm_job_id: int, cluster: str | None) -> CancelAnswer:
        self.world.step("cancel")
        self.world.may_touch(slurm_job_id, "cancel")
        before = self.job(slurm_job_id)["states"]
        answer = super().cancel(slurm_job_id, cluster)
        if answer.done and not OVER & set(before):
            self.world.over(slurm_job_id)
        return answer

    def requeue(self, slurm_job_id: int, cluster: str | None) -> ChangeAnswer:
        self.world.step("requeue")
        self.world.may_touch(slurm_job_id, "requeue")
        answer = super().requeue(slurm_job_id, cluster)
        if answer.done:
            self.world.leave(slurm_job_id)
        return answer

    def update(self, slurm_job_id: int, cluster: str | None, fields: Mapping[str, str]) -> ChangeAnswer:
        self.world.step("update")
        self.world.may_touch(slurm_job_id, "update")
        return super().update(slurm_job_id, cluster, fields)

    def nodes(self) -> Nodes | Unknown:
        return Unknown("hidden") if "nodes" in self.hidden else self.world.nodes()


__all__ = ["MESSAGE_S", "MUTATIONS", "Cut", "Killed", "Port", "Record"]
