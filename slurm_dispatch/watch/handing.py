"""Handing on: ``progress`` and ``ended`` facts for the job's record, where the state folder can be reached.

Each is written by a process apart, with a deadline: a state folder that hangs costs nothing but the facts. What the
record does not take stays in the folder that Prolog made for it on this node, and the node's Epilog hands it on.
"""

from __future__ import annotations

import json
import os
import secrets
import stat
from typing import TYPE_CHECKING, Any

from slurm_dispatch.durable import TEMPORARY_PREFIX, open_folder, write_all
from slurm_dispatch.errors import (
    AbsentError,
    DeniedError,
    DispatchError,
    NotAllowedError,
    TransientError,
    store_error,
)
from slurm_dispatch.model.identity import check_key
from slurm_dispatch.watch.apart import Apart
from slurm_dispatch.watch.say import SaidOnce

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

RECORD = "SLURM_DISPATCH_RECORD"
"""The variable that names the job's record."""
NODE_FOLDER = "SLURM_DISPATCH_HAND"
"""The variable that names the folder for handing on through this node; TaskProlog sets it."""
NODE_VERSION = 1
DEADLINE_S = 10.0
PROGRESS_S = 900.0
"""At most one ``progress`` in so long, and one at the end."""
PATHS_MAX = 32
"""Removed saves that a ``progress`` names: the last ones."""
RECORD_ONLY = frozenset({"removed", "paths"})
"""What a node's Epilog does not pass on: it reads 1 KiB."""
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


def leave_on_node(folder: str, kind: str, body: Mapping[str, Any]) -> None:
    """Leave one fact for the node's Epilog, in place of an earlier one of its kind. It goes with the boot.

    :raises StoreError: there is no such folder, or it is full.
    :raises DeniedError: it is not this user's alone.
    """
    descriptor = open_folder(folder, follow=False)
    temporary = f"{TEMPORARY_PREFIX}{secrets.token_hex(8)}"
    try:
        found = os.fstat(descriptor)
        if found.st_uid != os.geteuid() or found.st_mode & 0o077:
            raise DeniedError(f"{folder} is not a folder of this user's alone")
        made = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=descriptor)
        try:
            write_all(made, json.dumps({"v": NODE_VERSION, **body}).encode("ascii") + b"\n")
            os.rename(temporary, kind, src_dir_fd=descriptor, dst_dir_fd=descriptor)
        except OSError:
            os.unlink(temporary, dir_fd=descriptor)
            raise
        finally:
            os.close(made)
    except OSError as error:
        raise store_error(error, "writing", os.path.join(folder, kind)) from error
    finally:
        os.close(descriptor)


def hand_on(record: str | None, job: str, node_folder: str | None, kind: str, body: Mapping[str, Any]) -> str:
    """Hand one fact on: into the record, else through this node.

    It is left on the node first: this process may be killed while the state folder hangs.

    :param record: the record's folder.
    :param node_folder: the folder for handing on through this node; where there is none, only the record can be.
    :returns: why it did not come into the record, though it waits on the node; empty if it is in the record.
    :raises DispatchError: neither took it.
    """
    left = False
    if node_folder:
        try:
            leave_on_node(node_folder, kind, {name: value for name, value in body.items() if name not in RECORD_ONLY})
            left = True
        except DispatchError:
            pass  # the record decides, and says what is wrong
    try:
        if not record:
            raise AbsentError("SLURM_DISPATCH_RECORD does not name the job's record")
        append(record, job, kind, body)
    except DispatchError as error:
        if not left:
            raise
        return str(error)
    if left:
        try:
            os.unlink(os.path.join(node_folder or "", kind))
        except OSError:
            pass  # handed on twice then, which is once in the record
    return ""


class HandingOn:
    """Hands facts on, one at a time, without ever making its caller wait but at the end."""

    def __init__(
        self,
        folder: str | None,
        job: str | None,
        attempt: str,
        epoch: int,
        resumed_from: int | None,
        *,
        node_folder: str | None = None,
    ) -> None:
        """
        :param folder: the job's record, ``None`` where nothing is handed on.
        :param node_folder: what Prolog made for handing on through this node.
        """
        self._folder = folder
        self._node_folder = node_folder
        self._job = job
        self._common: dict[str, Any] = {"attempt": attempt, "epoch": str(epoch)}
        self._resumed_from = resumed_from
        self._last: float | None = None
        self._handed: int | None = None
        self._removed = 0
        self._paths: list[str] = []
        self._once = SaidOnce()
        self.running: Apart | None = None

    @property
    def possible(self) -> bool:
        """Whether there is anything to hand on to."""
        return bool((self._folder or self._node_folder) and self._job)

    def thinned(self, paths: Sequence[str]) -> None:
        """Outranked saves were removed: the next ``progress`` says so."""
        self._removed += len(paths)
        self._paths = [*self._paths, *paths][-PATHS_MAX:]

    def _progress(self, step: int) -> dict[str, Any]:
        body = {"step": step, "resumed_from": self._resumed_from, "removed": self._removed, "paths": self._paths}
        self._removed, self._paths = 0, []
        return body

    def progress(self, step: int, now: float) -> None:
        """A step was published; handed on if the last was long enough ago and nothing is under way."""
        if self._last is not None and now - self._last < PROGRESS_S:
            return
        if self.running is None and self.possible:
            self._last = now
            self._handed = step
            try:
                self.running = self._start("progress", self._progress(step))
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

    def ended(self, *, status: int | None, signal: int | None, outcome: str | None, step: int | None) -> bool:
        """The command has ended: hand on the last step and how it ended; waits, within the deadlines.

        :returns: whether the record has it now: what waits for the node's Epilog can come after the decision.
        """
        if not self.possible:
            return False
        if self.running is not None:
            self._wait(self.running)
        try:
            if step is not None and step != self._handed:
                self._wait(self._start("progress", self._progress(step)))
            ended = {"status": status, "signal": signal, "outcome": outcome, "step": step}
            return self._wait(self._start("ended", ended))
        except TransientError as error:
            self._trouble(str(error))
            return False

    def _start(self, kind: str, body: dict[str, Any]) -> Apart:
        folder, job, node_folder = self._folder, self._job or "", self._node_folder

        def work() -> bytes:
            return hand_on(folder, job, node_folder, kind, {**self._common, **body}).encode("utf-8", "replace")

        return Apart(work, DEADLINE_S)

    def _wait(self, child: Apart) -> bool:
        self.running = None
        try:
            why = child.wait("the job's record")
        except DispatchError as error:
            self._trouble(str(error))
            return False
        self._on_node(why)
        return not why

    def _take(self, child: Apart) -> None:
        child.close()
        self.running = None
        try:
            self._on_node(child.answer())
        except DispatchError as error:
            self._trouble(str(error))

    def _on_node(self, why: bytes) -> None:
        if why:
            said = why.decode("utf-8", "replace")
            self._once(f"progress is handed on by this node's Epilog, after the end: {said}", key="record")

    def _trouble(self, why: str) -> None:
        self._once(f"progress is not handed on to the job's record: {why}; publishing goes on", key="record")
