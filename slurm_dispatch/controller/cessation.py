"""Asking about many executions side by side, within a bound and a deadline, as the configured user.

The law: *an answer comes from a child that has given its privileges up, and one that does not come is none.*
"""

from __future__ import annotations

import json
import os
import pwd
import time
from typing import TYPE_CHECKING

from slurm_dispatch.controller.children import Children, Ended
from slurm_dispatch.errors import BadDataError, ConfigurationError
from slurm_dispatch.records.cessation import UNKNOWN, AskedExecution, answered
from slurm_dispatch.state.as_user import groups_of, in_child

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

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


class Asker:
    """Asks a :class:`~slurm_dispatch.slurm.cessation.CessationSignal`, in children of the tick.

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
        self._identity = _identity(user) if signal is not None else (0, 0, ())
        self._children = Children(at_once, ANSWER_MAX)
        self._asked: dict[str, tuple[AskedExecution, ...]] = {}

    @property
    def answers(self) -> bool:
        """Somebody answers at all (the policy's ``cessation``)."""
        return self._signal is not None

    def busy(self) -> bool:
        """Somebody is being asked."""
        return not self._children.idle()

    def start(self, executions: Sequence[AskedExecution]) -> None:
        """Begin to ask about those that are not being asked about already. Returns at once."""
        signal = self._signal
        under_way = {it.attempt for asked in self._asked.values() for it in asked}
        fresh = tuple(it for it in _once(executions) if it.attempt not in under_way)
        if signal is None or not fresh:
            return
        if not signal.together:
            for it in fresh:
                self._begin(signal, it.attempt, (it,))
        elif _TOGETHER not in self._asked:  # those of the next call wait for this one
            self._begin(signal, _TOGETHER, fresh)

    def _begin(self, signal: CessationSignal, name: str, executions: tuple[AskedExecution, ...]) -> None:
        if self._children.busy(name):
            return  # one that was killed and is stuck in the kernel
        self._asked[name] = executions
        self._children.start(name, self._work(signal, executions), self._timeout_s + 2 * RESERVE_S)

    def _work(self, signal: CessationSignal, executions: tuple[AskedExecution, ...]) -> Callable[[], bytes]:
        uid, gid, groups = self._identity
        timeout_s = self._timeout_s

        def ask() -> bytes:
            return _pack(signal.ask(executions, timeout_s))

        return lambda: in_child(uid, gid, groups, ask, timeout_s + RESERVE_S, site_files=True)

    def collect(self, patience_s: float) -> dict[str, CessationAnswer]:
        """The answers that have come since, by attempt, after at most ``patience_s``; sooner once all have come.

        A child that hung or answered nonsense is the answer ``unknown`` about what it was asked.
        """
        until = time.monotonic() + patience_s
        found: dict[str, CessationAnswer] = {}
        while not self._children.idle():
            for ended in self._children.wait(max(0.0, until - time.monotonic())):
                found.update(self._answer(ended))
            if time.monotonic() >= until:
                break
        return found

    def _answer(self, ended: Ended) -> dict[str, CessationAnswer]:
        asked = self._asked.pop(ended.name)
        why = ended.why
        if ended.answer is not None:
            try:
                return _unpack(ended.answer, [it.attempt for it in asked])
            except BadDataError as error:
                why = str(error)
        source = "" if self._signal is None else self._signal.source
        return {it.attempt: answered(UNKNOWN, source, why, time.time()) for it in asked}

    def ask(self, executions: Sequence[AskedExecution], deadline_s: float) -> Mapping[str, CessationAnswer]:
        """Start, and collect until the deadline. One that did not come by then is missing: ask again."""
        self.start(executions)
        return self.collect(deadline_s)

    def stop(self) -> None:
        """End what still runs: at the end of the program only."""
        self._children.stop()
        self._asked.clear()


def _once(executions: Iterable[AskedExecution]) -> list[AskedExecution]:
    return list({it.attempt: it for it in executions}.values())


def _identity(user: str) -> tuple[int, int, Sequence[int]]:
    if os.geteuid() != 0:
        return os.geteuid(), os.getegid(), os.getgroups()
    try:
        found = pwd.getpwuid(int(user)) if user.isdigit() else pwd.getpwnam(user)
    except (KeyError, OverflowError) as error:
        raise ConfigurationError(
            f"there is no user {user} on this host", hint="cessation_user must name one"
        ) from error
    return found.pw_uid, found.pw_gid, groups_of(found.pw_name, found.pw_gid)


def _pack(answers: Mapping[str, CessationAnswer]) -> bytes:
    return json.dumps([[key, it.answer, it.source, it.detail, it.at] for key, it in answers.items()]).encode("ascii")


def _unpack(data: bytes, attempts: Sequence[str]) -> dict[str, CessationAnswer]:
    try:
        found = {
            str(key): answered(str(answer), str(source), str(detail), float(at))
            for key, answer, source, detail, at in json.loads(data)
        }
    except (ValueError, TypeError, RecursionError) as error:
        raise BadDataError(f"the child that asked about cessation answered nonsense: {error}") from error
    if set(found) != set(attempts):
        raise BadDataError("the child that asked about cessation answered about others")
    return found


__all__ = ["AT_ONCE", "TIMEOUT_S", "Asker"]
