"""A helper that is measured: started as a job starts it, its processor time, and what it says when."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from typing_extensions import Self

ATTEMPT = "bench"
DEADLINE_S = 120.0
_TICKS = os.sysconf("SC_CLK_TCK")


def environment(root: str) -> dict[str, str]:
    """The variables of a job whose checkpoint root is ``root``."""
    base = {name: value for name, value in os.environ.items() if not name.startswith(("DISPATCH_", "SLURM_"))}
    identity = {"DISPATCH_JOB": "bench", "DISPATCH_EPOCH": "1000000", "DISPATCH_ATTEMPT": ATTEMPT}
    return base | identity | {"DISPATCH_CHECKPOINT": root}


class Helper:
    """``dispatch-watch WORDS``; a context that ends it.

    :param more: variables beside those of :func:`environment`.
    :ivar lines: when each line came (``time.perf_counter``), and the line.
    """

    def __init__(self, root: str, words: Sequence[str], more: Mapping[str, str] | None = None) -> None:
        command = [sys.executable, "-m", "slurm_dispatch.watch.main", *words]
        self.lines: list[tuple[float, str]] = []
        self.process = subprocess.Popen(
            command, env=environment(root) | dict(more or {}), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL,
            text=True,
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def __enter__(self) -> Self:
        self.until("a first start")
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(DEADLINE_S)
        self._reader.join(DEADLINE_S)

    def _read(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as stream:
            for line in stream:
                self.lines.append((time.perf_counter(), line))

    def until(self, text: str) -> float:
        """When a line with ``text`` came.

        :raises AssertionError: none came.
        """
        ends_at = time.monotonic() + DEADLINE_S
        while time.monotonic() < ends_at:
            for at, line in list(self.lines):
                if text in line:
                    return at
            time.sleep(0.01)
        raise AssertionError(f"{text!r} is not among {self.lines}")

    def pids(self) -> list[int]:
        """The supervisor and the scanning process, a fork of it.

        :raises AssertionError: there is none.
        """
        pid = self.process.pid
        ends_at = time.monotonic() + DEADLINE_S
        while time.monotonic() < ends_at:
            with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
                children = [int(word) for word in file.read().split()]
            forks = [child for child in children if _words(child) == _words(pid)]
            if len(children) > len(forks) == 1:  # the command is there too, and no fork that becomes it
                return [pid, *forks]
            time.sleep(0.01)
        raise AssertionError(self.lines)


def used(pids: Sequence[int]) -> float:
    """Seconds on a processor of these processes with all their threads, also of those that have ended.

    :raises FileNotFoundError: one of them has ended.
    """
    return sum(map(_used, pids))


def _words(pid: int) -> bytes:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def _used(pid: int) -> float:
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS
