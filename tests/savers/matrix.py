"""A real save, killed at every file boundary.

The program (see ``programs/forking.py``) has imported its library once. A first child is traced to its end, which
says at which calls files of the save are made, written, renamed, closed and removed. Then for each such call another
child is killed just before it, under strace, and the folder that it leaves is looked at.
"""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import subprocess
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.kill import LINE, names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path
    from types import TracebackType

    from typing_extensions import Self

DEADLINE_S = 300.0
CALLS = frozenset(
    """open openat openat2 creat write pwrite64 writev pwritev close rename renameat renameat2 unlink unlinkat mkdir
    mkdirat rmdir link linkat symlink symlinkat ftruncate fsync fdatasync copy_file_range sendfile""".split()  # noqa: SIM905
)
_RANDOM = re.compile(r"(^|/)(\.tmp|[0-9a-f]{32}($|[./]))")
"""What safetensors calls a file that it has not renamed yet, and tensorstore one of data."""


@dataclass(frozen=True)
class Child:
    """How a child ended. ``status`` is negative for a signal."""

    status: int
    stdout: bytes
    stderr: bytes
    trace: list[str]


class Program:
    """A program that has prepared and waits for children to be asked for."""

    def __init__(self, python: Path, script: Path, arguments: Sequence[str], folder: Path) -> None:
        """
        :param python: the interpreter that has the libraries.
        :param folder: for fifos, traces and the program's own output.
        """
        self.folder = folder
        self._log = (folder / "program.log").open("wb")
        environment = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "PYTHONHOME"}}
        self._process = subprocess.Popen(
            [str(python), str(script), *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log,
            bufsize=0, env={**environment, "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        self._number = 0
        self._expect(b"ready")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._log.close()

    def child(self, save: Path, *options: str) -> Child:
        """One child that saves into ``save``, under strace with ``options``."""
        self._number += 1
        gate, trace = self.folder / f"gate{self._number}", self.folder / f"trace{self._number}"
        os.mkfifo(gate)
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([str(save), str(gate)]).encode() + b"\n")
        self._process.stdin.flush()
        pid = int(self._line())
        tracer = subprocess.Popen(
            ["strace", "-f", "-q", "-y", "-s", "0", "-o", str(trace), *options, "-p", str(pid)],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip
        try:
            _wait_for(lambda: _tracer(pid) != 0 or tracer.poll() is not None, "strace to be attached")
            opened = os.open(gate, os.O_WRONLY | os.O_NONBLOCK)  # the child has it open, or this is an error
            os.write(opened, b"!")
            os.close(opened)
            status = int(self._expect(b"ended "))
            _, said = tracer.communicate(timeout=DEADLINE_S)
        finally:
            if tracer.poll() is None:
                tracer.kill()
                tracer.communicate()
        lines = trace.read_text("utf-8", "backslashreplace").splitlines()
        gate.unlink()
        trace.unlink()
        return Child(os.waitstatus_to_exitcode(status), b"", said, lines)

    def plain(self, place: str, began: Callable[[int], None]) -> int:
        """One child that nobody traces, which saves into ``place``; its status, negative for a signal.

        :param began: gets its process id before it saves.
        """
        self._number += 1
        gate = self.folder / f"gate{self._number}"
        os.mkfifo(gate)
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([place, str(gate)]).encode() + b"\n")
        self._process.stdin.flush()
        began(int(self._line()))
        opened = os.open(gate, os.O_WRONLY | os.O_NONBLOCK)  # the child has it open, or this is an error
        os.write(opened, b"!")
        os.close(opened)
        status = int(self._expect(b"ended "))
        gate.unlink()
        return os.waitstatus_to_exitcode(status)

    def _line(self) -> bytes:
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], DEADLINE_S)[0]:
            self._process.kill()
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            self._log.flush()
            said = (self.folder / "program.log").read_text("utf-8", "replace")[-3000:]
            raise AssertionError(f"the program ended with {self._process.returncode}:\n{said}")
        return line

    def _expect(self, begin: bytes) -> bytes:
        line = self._line()
        assert line.startswith(begin), line
        return line[len(begin) :].strip()


@dataclass(frozen=True)
class Boundary:
    """The ``when``-th ``call`` of a child that touches ``path`` (relative to where it saves).

    Other calls do not count: how many there are may differ from child to child.
    """

    call: str
    path: str
    when: int

    def __str__(self) -> str:
        return f"{self.call} of {self.path}, the {self.when}. time"


def boundaries(program: Program, save: Path, *, several: bool = False) -> list[Boundary]:
    """The calls of one whole run of a child that touch what is in ``save``; its end is not among them.

    Files with a random name are passed over: another child calls them otherwise. What becomes of one is seen at the
    rename that gives it its name.

    :param several: more than one thread or process may save; each file must be one's own.
    """
    child = program.child(save, "-e", f"trace={names(CALLS)}")
    assert child.status == 0, (child.status, child.trace[-5:])
    found: list[Boundary] = []
    counts: Counter[tuple[str, str]] = Counter()
    named = re.compile(f'[<"]{re.escape(str(save))}/([^>"]+)[>"]')
    for line in child.trace:
        match = LINE.match(line)
        if match is None:
            continue
        assert several or "resumed>" not in line, f"more than one thread saves: {line}"
        paths = list(dict.fromkeys(named.findall(match["rest"])))
        for path in paths:
            counts[match["call"], path] += 1
        if not paths or (match["call"].startswith("open") and "O_CREAT" not in line and "O_TRUNC" not in line):
            continue
        path = next((path for path in reversed(paths) if not _RANDOM.search(path)), None)
        if path is not None:
            found.append(Boundary(match["call"], path, counts[match["call"], path]))
    return found


def kill_at_each(
    program: Program,
    folder: Path,
    points: Sequence[Boundary],
    lay_out: Callable[[Path], Path],
    *,
    full_disk: bool = False,
) -> Iterator[tuple[Boundary, Path]]:
    """Each point, and the place as the child that was killed there left it; it goes when the next is asked for.

    :param lay_out: makes a scene in an empty folder, and says where the child saves in it.
    :param full_disk: instead of a kill, this call and all later ones of the file fail for lack of space.
    """
    fault, status = (("error=ENOSPC", 1), ("signal=KILL", -9))[not full_disk]
    for number, point in enumerate(points):
        place = folder / f"point{number:04d}"
        place.mkdir()
        save = lay_out(place)
        child = program.child(
            save, "-e", f"trace={point.call}", "-P", str(save / point.path),
            "-e", f"inject={point.call}:{fault}:when={point.when}{'+' if full_disk else ''}",
        )  # fmt: skip
        assert child.status == status, f"not killed at {point}: {child.status}, {child.stderr!r}, {child.trace[-3:]}"
        yield point, place
        shutil.rmtree(place)


def _tracer(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/status", encoding="ascii") as file:
            return next((int(line.split()[1]) for line in file if line.startswith("TracerPid:")), 0)
    except FileNotFoundError:
        return -1


def _wait_for(done: Callable[[], bool], what: str) -> None:
    ends_at = time.monotonic() + DEADLINE_S
    while not done():
        if time.monotonic() > ends_at:
            raise AssertionError(f"waited {DEADLINE_S:g} s for {what}")
        time.sleep(0.002)
