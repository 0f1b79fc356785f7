"""One submission as the record sees it: what another writes between the intent and sbatch's answer (P6, P7)."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import pytest

from slurm_dispatch.records.fold import fold
from slurm_dispatch.slurm.port import Accepted, Ambiguous, Rejected, SbatchCall
from slurm_dispatch.state.folder import StateFolder, make_state
from slurm_dispatch.state.jobs import Record
from slurm_dispatch.submit.first import _First
from slurm_dispatch.submit.run import Intent, Overtaken, Superseded, submit_once
from tests.records.life import make_spec

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from slurm_dispatch.slurm.port import SubmitAnswer

BY = "user:ada@login"
TICK = "tick@other"
YES = Accepted(101, None)
NO = Rejected(1, "sbatch: error: no")
WATCHED = ("watched", {"submission": 1, "host": "other", "first_seen": 5.0})
REQUEST = ("request", {"what": "cancel", "reason": "enough"})
FOUND = ("submitted", {"submission": 1, "cluster": "alpha", "slurm_job_id": 101, "how": "queue"})
OTHER = ("submitted", {"submission": 1, "cluster": "alpha", "slurm_job_id": 99, "how": "queue"})
REFUSED = ("rejected", {"submission": 1, "status": 1, "message": "no"})
BURNT = ("burnt", {"submission": 1, "evidence": "nowhere"})
Other = tuple[str, dict[str, Any]]


class Port:
    """Stands in for Slurm: somebody else writes facts while sbatch runs, and then it answers."""

    def __init__(self, record: Record, others: tuple[Other, ...], answer: SubmitAnswer) -> None:
        self.record, self.others, self.answer = record, others, answer
        self.calls = 0

    def submit(self, call: SbatchCall, accepted: Callable[[Accepted], None] | None = None) -> SubmitAnswer:
        """One call of sbatch."""
        self.calls += 1
        for kind, body in self.others:
            assert self.record.append(len(self.record.read()) + 1, kind, TICK, body)
        if isinstance(self.answer, Accepted) and accepted is not None:
            accepted(self.answer)
        return self.answer


@pytest.fixture
def record(tmp_path: Path) -> Record:
    """A job that is about to be submitted."""
    make_state(str(tmp_path / "state"), slurm_uid=os.getuid(), slurm_gid=os.getgid())
    return StateFolder(str(tmp_path / "state")).create_job(make_spec(), b"", b"", by=BY)


def submit(record: Record, *others: Other, answer: SubmitAnswer, seq: int = 1) -> tuple[object, list[Accepted], Port]:
    """Submit once; what came back, what was said to be accepted, and the port."""
    port = Port(record, others, answer)
    said: list[Accepted] = []
    came = submit_once(
        record,
        port,  # type: ignore[arg-type]
        Intent(make_spec().word(1)),
        SbatchCall((), {}, 60.0),
        seq=seq,
        by=BY,
        cluster="alpha",
        settle_after_s=100.0,
        accepted=said.append,
    )
    return came, said, port


def kinds(record: Record) -> list[str]:
    """The kinds of all facts, which must fold."""
    facts = record.read()
    fold(facts)
    return [fact.kind for fact in facts]


@pytest.mark.parametrize("others", [(), (WATCHED,), (WATCHED, REQUEST, WATCHED)], ids=["none", "one", "three"])
@pytest.mark.parametrize(("answer", "kind"), [(YES, "submitted"), (NO, "rejected")])
def test_the_answer_gets_the_next_number_that_is_free(
    record: Record, others: tuple[Other, ...], answer: SubmitAnswer, kind: str
) -> None:
    """A number that is taken by what settles nothing is no reason to leave the answer out."""
    came, said, port = submit(record, *others, answer=answer)
    assert came == answer
    assert kinds(record) == ["spec", "intent", *(other for other, _ in others), kind]
    assert [it.slurm_job_id for it in said] == ([101] if kind == "submitted" else [])
    assert port.calls == 1


@pytest.mark.parametrize(("other", "answer"), [(FOUND, YES), (REFUSED, NO)], ids=["submitted", "rejected"])
@pytest.mark.parametrize("before", [(), (WATCHED,)], ids=["alone", "watched"])
def test_an_answer_that_is_recorded_already(
    record: Record, before: tuple[Other, ...], other: Other, answer: SubmitAnswer
) -> None:
    """A tick found the same: nothing is written twice, and the caller hears of no trouble."""
    came, said, _ = submit(record, *before, other, answer=answer)
    assert came == answer
    assert kinds(record) == ["spec", "intent", *(kind for kind, _ in before), other[0]]
    assert len(said) == (1 if answer is YES else 0)


@pytest.mark.parametrize(
    ("other", "answer", "words"),
    [
        (BURNT, YES, "burnt: nowhere"),
        (OTHER, YES, "Slurm job 99"),
        (REFUSED, YES, "rejected: no"),
        (FOUND, NO, "Slurm job 101"),
        (BURNT, NO, "burnt: nowhere"),
    ],
)
def test_an_answer_that_came_too_late(record: Record, other: Other, answer: SubmitAnswer, words: str) -> None:
    """The submission is settled otherwise: the record stays as it is, and the caller is told."""
    came, said, _ = submit(record, WATCHED, other, answer=answer)
    assert isinstance(came, Overtaken)
    assert came.answer == answer
    assert words in came.why
    assert kinds(record) == ["spec", "intent", "watched", other[0]]
    assert said == []


def test_an_answer_after_the_job_went_on(record: Record) -> None:
    """A job that is closed meanwhile still says what became of submission 1."""
    closed = ("closed", {"why": "never_submitted", "reason": "nowhere"})
    came, _, _ = submit(record, BURNT, closed, answer=YES)
    assert isinstance(came, Overtaken)
    assert kinds(record) == ["spec", "intent", "burnt", "closed"]


def test_an_ambiguous_answer_is_left_open(record: Record) -> None:
    """Only a certain answer becomes a fact."""
    came, said, _ = submit(record, WATCHED, answer=Ambiguous("lost"))
    assert (came, said) == (Ambiguous("lost"), [])
    assert kinds(record) == ["spec", "intent", "watched"]


def test_sbatch_is_not_called_where_another_was_first(record: Record) -> None:
    """P6: the intent comes first, or nothing does."""
    assert record.append(2, *("closed", BY, {"why": "cancelled", "reason": ""}))
    came, _, port = submit(record, answer=YES)
    assert came == Superseded()
    assert port.calls == 0


class Slow(Record):
    """A record in which a fact takes as long as the whole submission may."""

    def append(self, seq: int, kind: str, *rest: Any, **more: Any) -> bool:
        """The process was stopped meanwhile (Ctrl-Z, a suspended host)."""
        made = super().append(seq, kind, *rest, **more)
        if kind == "intent":
            time.sleep(0.06)
        return made


def test_sbatch_is_not_called_once_its_time_is_over(record: Record) -> None:
    """P6: by then a tick may have burnt the number; what was not called is rejected for certain."""
    port = Port(record, (), YES)
    slow = Slow(record.folder)
    word = make_spec().word(1)
    came = submit_once(
        slow, port, Intent(word), SbatchCall((), {}, 0.05), seq=1, by=BY, cluster="alpha", settle_after_s=1.0  # type: ignore[arg-type]
    )
    assert isinstance(came, Rejected)
    assert "was not called" in came.message
    assert port.calls == 0
    assert kinds(record) == ["spec", "intent", "rejected"]


class Interrupted(Record):
    """A record whose writer is interrupted before the fact is there."""

    def append(self, *_: Any, **__: Any) -> bool:
        """Ctrl-C."""
        raise KeyboardInterrupt


def test_an_interrupt_before_the_intent(record: Record) -> None:
    """sbatch was not called, so there is no answer to look for: it stays an interrupt."""
    port = Port(record, (), YES)
    first = _First(
        None,  # type: ignore[arg-type]
        make_spec(),
        Interrupted(record.folder),
        port,  # type: ignore[arg-type]
        None,  # type: ignore[arg-type]
        BY,
        print,
        lambda: None,
    )
    with pytest.raises(KeyboardInterrupt):
        first.submit(SbatchCall((), {}, 60.0), 100.0)
    assert port.calls == 0
