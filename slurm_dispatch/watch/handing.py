"""Handing on: ``progress`` and ``ended`` facts for the job's record, where the state folder can be reached.

Each is written by a process apart, with a deadline: a state folder that hangs costs nothing but the facts.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Any

from slurm_dispatch.errors import AbsentError, DeniedError, NotAllowedError, TransientError, store_error
from slurm_dispatch.model.identity import check_key
from slurm_dispatch.watch.apart import Apart
from slurm_dispatch.watch.say import SaidOnce

if TYPE_CHECKING:
    from collections.abc import Mapping

DEADLINE_S = 10.0
PROGRESS_S = 900.0
"""At most one ``progress`` in so long, and one at the end."""
TRIES = 50
"""How often a sequence number may be taken by another writer."""


def append(folder: str, job: str, kind: str, body: Mapping[str, Any]) -> None:
    """Append one fact to the record in ``folder``, unless the record is closed.

    :raises DispatchError: it is not there, not this user's, or does not take the fact.
    """
    from slurm_dispatch.state.jobs import Record

    check_folder(folder, job)
    record = Record(folder)
    by = f"watch@{os.uname().nodename}"
    for _ in range(TRIES):
        facts = record.read()
        if any(fact.kind == "closed" for fact in facts):
            return
        if record.append(facts[-1].seq + 1, kind, by, body):
            return
    raise TransientError(f"the record {folder} is written by too many at once")


def check_folder(folder: str, job: str) -> None:
    """Refuse a folder that is not the record of ``job`` or not this user's own (0700)."""
    if not os.path.isabs(folder) or os.path.basename(folder) != check_key(job):
        raise NotAllowedError(f"SLURM_DISPATCH_RECORD {folder} is not the record of job {job}")
    try:
        found = os.lstat(folder)
    except FileNotFoundError as error:
        raise AbsentError(f"the record {folder} is not there on this node") from error
    except OSError as error:
        raise store_error(error, "reading", folder) from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise DeniedError(f"the record {folder} is not a folder of this user's alone")


class HandingOn:
    """Hands facts on, one at a time, without ever making its caller wait but at the end."""

    def __init__(
        self, folder: str | None, job: str | None, attempt: str, epoch: int, resumed_from: int | None
    ) -> None:
        self._folder = folder
        self._job = job
        self._common: dict[str, Any] = {"attempt": attempt, "epoch": str(epoch)}
        self._resumed_from = resumed_from
        self._last: float | None = None
        self._handed: int | None = None
        self._once = SaidOnce()
        self.running: Apart | None = None

    @property
    def possible(self) -> bool:
        """Whether there is a record to hand on to."""
        return bool(self._folder and self._job)

    def progress(self, step: int, now: float) -> None:
        """A step was published; handed on if the last was long enough ago and nothing is under way."""
        if self._last is not None and now - self._last < PROGRESS_S:
            return
        if self.running is None and self.possible:
            self._last = now
            self._handed = step
            try:
                self.running = self._start("progress", {"step": step, "resumed_from": self._resumed_from})
            except TransientError as error:
                self._trouble(str(error))

    def poll(self, now: float) -> None:
        """Take the answer of what is under way, or give it up at its deadline."""
        if self.running is None:
            return
        if not self.running.done and now >= self.running.ends_at:
            self.running.abandon()
            self.running = None
            self._trouble("no answer in time")
        elif self.running.done:
            self._take(self.running)

    def ended(self, *, status: int | None, signal: int | None, outcome: str | None, step: int | None) -> None:
        """The command has ended: hand on the last step and how it ended; waits, within the deadlines."""
        if not self.possible:
            return
        if self.running is not None:
            self._wait(self.running)
        try:
            if step is not None and step != self._handed:
                self._wait(self._start("progress", {"step": step, "resumed_from": self._resumed_from}))
            self._wait(self._start("ended", {"status": status, "signal": signal, "outcome": outcome, "step": step}))
        except TransientError as error:
            self._trouble(str(error))

    def _start(self, kind: str, body: dict[str, Any]) -> Apart:
        folder, job = self._folder or "", self._job or ""

        def work() -> bytes:
            append(folder, job, kind, {**self._common, **body})
            return b""

        return Apart(work, DEADLINE_S)

    def _wait(self, child: Apart) -> None:
        from slurm_dispatch.errors import DispatchError

        try:
            child.wait("the job's record")
        except DispatchError as error:
            self._trouble(str(error))
        self.running = None

    def _take(self, child: Apart) -> None:
        from slurm_dispatch.errors import DispatchError

        child.close()
        self.running = None
        try:
            child.answer()
        except DispatchError as error:
            self._trouble(str(error))

    def _trouble(self, why: str) -> None:
        self._once(f"progress is not handed on to the job's record: {why}; publishing goes on", key="record")
