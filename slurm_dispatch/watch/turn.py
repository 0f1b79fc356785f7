"""Runs of the helper in one execution: which process publishes, and when the save to resume from is chosen anew.

``exec/<attempt>/.dispatch/run-<k>`` is made by the process that publishes (exclusive: one of many who try), and
``run-<k>.end`` when it has ended; for a helper beside a training ``run-<k>.finish`` asks it to. The files say who
the process is, so that one that was killed is not waited for.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from slurm_dispatch.errors import BadDataError

if TYPE_CHECKING:
    from slurm_dispatch.store.roots import Root

_RUN = re.compile(r"run-([1-9][0-9]{0,5})\Z")
SIZE_MAX = 4096


@dataclass(frozen=True, slots=True)
class Runner:
    """The process that publishes: by host, boot and start time, since process ids come again."""

    host: str
    boot: str
    pid: int
    started: str
    beside: bool = False


@dataclass(frozen=True, slots=True)
class Run:
    """One run. ``runner`` is ``None`` if its file is not to be read as one."""

    number: int
    runner: Runner | None
    ended: bool

    @property
    def over(self) -> bool:
        """Whether it is known that it publishes nothing more: it said so, or its process is gone from this host."""
        return self.ended or (self.runner is not None and is_gone(self.runner))


def this_process(pid: int, *, beside: bool = False) -> Runner:
    """Who ``pid``, a process of this host, is."""
    return Runner(os.uname().nodename, _boot(), pid, _start_time(pid) or "", beside)


def is_gone(runner: Runner) -> bool:
    """True only if that is certain: the process was on this host, in this boot or an earlier one, and is not here."""
    if runner.host != os.uname().nodename:
        return False
    if runner.boot != _boot():
        return True
    return _start_time(runner.pid) != runner.started


def last_run(root: Root, attempt: str) -> Run | None:
    """The newest run of the execution, ``None`` if there was none."""
    notes = root.notes(attempt)
    names = set(notes.names())
    number = max((int(match[1]) for name in names if (match := _RUN.match(name))), default=0)
    if number == 0:
        return None
    try:
        runner: Runner | None = parse_runner(notes.read(f"run-{number}", SIZE_MAX) or b"")
    except BadDataError:
        runner = None
    return Run(number, runner, f"run-{number}.end" in names)


def claim_run(root: Root, attempt: str, number: int, runner: Runner) -> bool:
    """Become run ``number``; false if another process did."""
    content = json.dumps(asdict(runner)).encode() + b"\n"
    return root.notes(attempt).leave(f"run-{number}", content)


def end_run(root: Root, attempt: str, number: int, status: int) -> None:
    """Say that run ``number`` has ended and with which exit status; nothing is published after this."""
    content = json.dumps({"status": status}).encode() + b"\n"
    root.notes(attempt).leave(f"run-{number}.end", content)


def ask_finish(root: Root, attempt: str, number: int, status: int | None) -> None:
    """Ask run ``number`` for a last scan; ``status`` is how the training ended, if it is known."""
    content = json.dumps({"status": status}).encode() + b"\n"
    root.notes(attempt).leave(f"run-{number}.finish", content)


def read_finish(root: Root, attempt: str, number: int) -> tuple[bool, int | None]:
    """Whether run ``number`` was asked to finish, and the status that was said."""
    return _status(root, attempt, f"run-{number}.finish")


def read_end(root: Root, attempt: str, number: int) -> tuple[bool, int | None]:
    """Whether run ``number`` has ended, and its exit status."""
    return _status(root, attempt, f"run-{number}.end")


def say_again(root: Root, attempt: str) -> bool:
    """Leave the mark of ``dispatch again`` for the run that goes on in this execution, or for the next one.

    :returns: whether a run goes on that reads it: one that ended meanwhile may have looked before the mark was there.
    """
    run = last_run(root, attempt)
    number = 1 if run is None else run.number + 1 if run.over else run.number
    root.notes(attempt).leave(f"run-{number}.again", b"{}\n")
    if run is None or run.over:
        return False
    return not read_end(root, attempt, number)[0]


def read_again(root: Root, attempt: str, number: int) -> bool:
    """Whether ``dispatch again`` was said in run ``number`` or before it; none is missed after :func:`end_run`."""
    return root.notes(attempt).read(f"run-{number}.again", SIZE_MAX) is not None


def _status(root: Root, attempt: str, name: str) -> tuple[bool, int | None]:
    text = root.notes(attempt).read(name, SIZE_MAX)
    if text is None:
        return False, None
    try:
        status = json.loads(text)["status"]
    except (ValueError, KeyError, TypeError):
        return True, None
    return True, status if isinstance(status, int) else None


def parse_runner(text: bytes) -> Runner:
    """The process that a note names.

    :raises BadDataError: it names none.
    """
    try:
        found = json.loads(text)
        return Runner(
            str(found["host"]), str(found["boot"]), int(found["pid"]), str(found["started"]), found["beside"] is True
        )
    except (ValueError, KeyError, TypeError) as error:
        raise BadDataError(f"a file run-<n> of the execution does not parse: {error}") from error


def _boot() -> str:
    """Boot id, and the start time of process 1: containers of one host share the first."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip()
    except OSError:
        boot = ""
    return f"{boot}.{_start_time(1) or ''}"


def _start_time(pid: int) -> str | None:
    """Field 22 of ``/proc/<pid>/stat``; ``None`` if there is no such process (a zombie is none)."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in {b"Z", b"X"} else fields[19].decode("ascii")
