"""Asking about many executions side by side, within a bound and a deadline, as the configured user.

The law: *an answer comes from a child that has given its privileges up, and one that does not come is none.*
"""

from __future__ import annotations

import json
import time
from collections import Counter
from typing import TYPE_CHECKING

from slurm_dispatch.controller.children import Children, Ended
from slurm_dispatch.errors import BadDataError
from slurm_dispatch.records.cessation import UNKNOWN, AskedExecution, answered
from slurm_dispatch.state.as_user import in_child
from slurm_dispatch.state.users import identity_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from slurm_dispatch.records.observation import CessationAnswer
    from slurm_dispatch.slurm.cessation import CessationSignal

AT_ONCE = 8
"""Commands that run side by side."""
TIMEOUT_S = 30.0
"""The deadline of one command, unless the site says otherwise."""
RESERVE_S = 5.0
"""How much later than a command its children are ended: it kills its own command first."""
ANSWER_MAX = 16 << 20
_TOGETHER = "together"

Question = tuple[str, str]
"""(the key of the job that asks, the attempt that it asks about)."""


class Asker:
    """Asks a :class:`~slurm_dispatch.slurm.cessation.CessationSignal`, in children of the tick.

    A question is of one job: its owner's record is what says that the execution is the job's, so an answer is for
    that job alone, and two jobs that ask about one attempt are two questions.

    :param signal: ``None``: nobody answers, and :meth:`start` does nothing.
    :param user: as whom the site's command runs (a name or a number); where the caller is not root: himself.
    :param timeout_s: the deadline of one command.
    :raises ConfigurationError: there is no such user here.
    """

    def __init__(
        self, signal: CessationSignal | None, *, user: str, timeout_s: float = TIMEOUT_S, at_once: int = AT_ONCE
    ) -> None:
        self._signal = signal
        self._timeout_s = timeout_s
        self._identity = identity_of(user, "cessation_user") if signal is not None else (0, 0, [])
        self._children = Children(at_once, ANSWER_MAX)
        self._asked: dict[str, dict[Question, AskedExecution]] = {}
        self._under_way: set[Question] = set()
        self._waiting: dict[Question, AskedExecution] = {}
        self._at_once = at_once
        self._begun = 0
        self._turns: dict[int, int] = {}  # by owner: when he had one last

    @property
    def answers(self) -> bool:
        """Somebody answers at all (the policy's ``cessation``)."""
        return self._signal is not None

    @property
    def goes_there(self) -> bool:
        """Who answers goes to the nodes, or to what has power over them, with the site's rights."""
        return self._signal is not None and not self._signal.together

    @property
    def source(self) -> str:
        """Its name in answers."""
        return "" if self._signal is None else self._signal.source

    def busy(self) -> bool:
        """Somebody is being asked, or is about to be."""
        return bool(self._waiting) or not self._children.idle()

    def start(self, key: str, executions: Sequence[AskedExecution]) -> None:
        """Ask for job ``key`` about those that are not being asked about for it already. Returns at once.

        What one call of the signal answers together is collected until the next :meth:`collect`.
        """
        for it in executions:
            if self._signal is not None and (key, it.attempt) not in self._under_way:
                self._waiting[key, it.attempt] = it
        if self._signal is not None and not self._signal.together:
            self._next(self._signal)

    def _next(self, signal: CessationSignal) -> None:
        if signal.together:
            if self._waiting and not self._children.busy(_TOGETHER):
                waiting, self._waiting = self._waiting, {}
                self._begin(signal, _TOGETHER, waiting)
            return
        while self._waiting and len(self._under_way) < self._at_once:
            question = self._whose_turn()
            it = self._waiting.pop(question)
            self._begun += 1
            self._turns[it.uid] = self._begun
            self._begin(signal, ".".join(question), {question: it})

    def _whose_turn(self) -> Question:
        """The oldest question of the owner who has the fewest under way, and had his turn longest ago: one whose
        nodes hang, or who asks about thousands, holds up nobody else's."""
        running = Counter(it.uid for asked in self._asked.values() for it in asked.values())
        uids = {question: it.uid for question, it in self._waiting.items()}
        return min(uids, key=lambda question: (running[uids[question]], self._turns.get(uids[question], 0)))

    def _begin(self, signal: CessationSignal, name: str, asked: dict[Question, AskedExecution]) -> None:
        if self._children.busy(name):
            return  # one that was killed and is stuck in the kernel
        self._asked[name] = asked
        self._under_way.update(asked)
        work = self._work(signal, tuple(asked.values()))
        self._children.start(name, work, self._timeout_s + 2 * RESERVE_S)

    def _work(self, signal: CessationSignal, executions: tuple[AskedExecution, ...]) -> Callable[[], bytes]:
        uid, gid, groups = self._identity
        timeout_s = self._timeout_s

        def ask() -> bytes:
            return _pack(signal.ask(executions, timeout_s))

        return lambda: in_child(uid, gid, groups, ask, timeout_s + RESERVE_S, site_files=True)

    def collect(self, patience_s: float) -> dict[Question, CessationAnswer]:
        """The answers that have come since, after at most ``patience_s``; sooner once all have come.

        A child that hung or answered nonsense is the answer ``unknown`` about what it was asked.
        """
        until = time.monotonic() + patience_s
        found: dict[Question, CessationAnswer] = {}
        while self.busy():
            if self._signal is not None:
                self._next(self._signal)
            if self._children.idle():
                break  # the child of before is stuck in the kernel
            for ended in self._children.wait(max(0.0, until - time.monotonic())):
                found.update(self._answer(ended))
            if time.monotonic() >= until:
                break
        return found

    def _answer(self, ended: Ended) -> dict[Question, CessationAnswer]:
        asked = self._asked.pop(ended.name)
        self._under_way.difference_update(asked)
        why = ended.why
        if ended.answer is not None:
            try:
                return dict(zip(asked, _unpack(ended.answer, len(asked)), strict=True))
            except BadDataError as error:
                why = str(error)
        return {question: answered(UNKNOWN, self.source, why, time.time()) for question in asked}

    def ask(self, key: str, executions: Sequence[AskedExecution], deadline_s: float) -> dict[str, CessationAnswer]:
        """Start, and collect until the deadline, for one job: by attempt. What did not come by then is missing."""
        self.start(key, executions)
        return {attempt: answer for (_, attempt), answer in self.collect(deadline_s).items()}

    def stop(self) -> None:
        """End what still runs: at the end of the program only."""
        self._children.stop()
        self._asked.clear()
        self._under_way.clear()
        self._waiting.clear()


def _pack(answers: Iterable[CessationAnswer]) -> bytes:
    return json.dumps([[it.answer, it.source, it.detail, it.at] for it in answers]).encode("ascii")


def _unpack(data: bytes, count: int) -> list[CessationAnswer]:
    try:
        rows = json.loads(data)
        found = [answered(str(word), str(source), str(detail), float(at)) for word, source, detail, at in rows]
    except (ValueError, TypeError, RecursionError) as error:
        raise BadDataError(f"the child that asked about cessation answered nonsense: {error}") from error
    if len(found) != count:
        raise BadDataError(f"the child that asked about cessation answered {len(found)} of {count} questions")
    return found


__all__ = ["AT_ONCE", "TIMEOUT_S", "Asker", "Question"]
