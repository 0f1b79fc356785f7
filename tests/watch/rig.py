"""A scene for the helper: a root, real processes, what they said, and what was published."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from slurm_dispatch.store.root import open_root

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from slurm_dispatch.model.publication import Publication

DEADLINE_S = 60.0
REPOSITORY = Path(__file__).resolve().parents[2]
TRAINER = str(Path(__file__).with_name("trainer.py"))
JOB = "thejob"


def until(condition: Callable[[], object], what: str) -> None:
    """Wait for a condition; an assertion names what did not come."""
    ends_at = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < ends_at, f"{what} did not come in {DEADLINE_S:g} s"
        time.sleep(0.01)


def session(leader: int) -> list[int]:
    """The processes of a session."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError):
                fields = Path(f"/proc/{name}/stat").read_bytes().rpartition(b")")[2].split()
                if int(fields[3]) == leader and fields[0] != b"Z":
                    found.append(int(name))
    return found


class Helper:
    """A running ``dispatch-watch``."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        self.lines.extend(line.rstrip("\n") for line in iter(self.process.stderr.readline, ""))

    def has_said(self, text: str) -> bool:
        return any(text in line for line in self.lines)

    def until_said(self, text: str) -> None:
        until(lambda: self.has_said(text), f"{text!r} among {self.lines}")

    def end(self) -> int:
        """Its exit status; every line of ours has the prefix."""
        try:
            status = self.process.wait(2 * DEADLINE_S)
            self._reader.join(DEADLINE_S)
        finally:
            self.kill()
        return status

    def kill(self) -> None:
        """End it and everything that it started: all that is in its session."""
        for pid in session(self.process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(DEADLINE_S)
        self._reader.join(DEADLINE_S)
        for stream in (self.process.stderr, self.process.stdout):
            if stream is not None:
                stream.close()

    @property
    def said(self) -> str:
        return "\n".join(self.lines)


class Scene:
    """One root in a test's folder, and executions of one job in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "root"
        self.root.mkdir()
        self.gates = folder / "gates"
        self.gates.mkdir()
        self.helpers: list[Helper] = []
        self.sessions: list[int] = []

    def environment(self, number: int = 1, **more: str) -> dict[str, str]:
        """The variables of execution ``number`` of the job."""
        base = {name: value for name, value in os.environ.items() if not name.startswith(("DISPATCH_", "SLURM_"))}
        return {
            **base,
            "PYTHONPATH": str(REPOSITORY),
            "PYTHONWARNINGS": "error",
            "DISPATCH_JOB": JOB,
            "DISPATCH_EPOCH": str(number * 10**6),
            "DISPATCH_ATTEMPT": f"attempt{number}",
            "DISPATCH_CHECKPOINT": str(self.root),
            **more,
        }

    def helper(self, *words: str, number: int = 1, environment: Mapping[str, str] | None = None) -> Helper:
        """Start the helper with fast scans."""
        fast = () if "--interval" in words or "--finish" in words else ("--interval", "0.05")
        process = subprocess.Popen(
            [sys.executable, "-m", "slurm_dispatch.watch.main", *fast, *words],
            env=self.environment(number) if environment is None else environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            cwd=self.folder,
            text=True,
            errors="backslashreplace",
            start_new_session=True,
        )
        self.helpers.append(Helper(process))
        return self.helpers[-1]

    def train(
        self, script: str, *options: str, number: int = 1, environment: Mapping[str, str] | None = None
    ) -> Helper:
        """Start the helper with the trainer as its command, proved by ``done``."""
        command = [sys.executable, TRAINER, str(self.gates), "{dir}", *script.split()]
        options = options or ("--done", "done")
        return self.helper(*options, "--", *command, number=number, environment=environment)

    def open(self, gate: str) -> None:
        (self.gates / gate).touch()

    def passed(self, gate: str) -> bool:
        return (self.gates / gate).exists()

    def publications(self) -> list[Publication]:
        return open_root(str(self.root)).listing()

    def published(self) -> list[tuple[int, int]]:
        """(number of the execution, step) of each publication, latest first."""
        return [(one.epoch // 10**6, one.step) for one in self.publications()]

    def latest(self) -> Path:
        save = open_root(str(self.root)).latest()
        assert save is not None
        return Path(save.path)

    def execution(self, number: int = 1) -> Path:
        return self.root / "exec" / f"attempt{number}"

    def close(self) -> None:
        for helper in self.helpers:
            helper.kill()
        for leader in self.sessions:
            for pid in session(leader):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
