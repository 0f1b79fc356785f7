"""One start of a second kernel with disks of its own, and its end by kill -9, which is what a power loss is to it."""

from __future__ import annotations

import functools
import os
import resource
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.uml.channel import heard

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

TOP = Path(__file__).resolve().parents[2]
PROGRAM = "linux.uml"
PACKAGES = "user-mode-linux e2fsprogs"
BOOT_S = 180.0
"""From the start to the first statement: 3 s on a quiet machine."""
KILL_S = 60.0
SILENCE_S = 180.0
"""Longest time between two statements."""
IMAGE_BYTES = 512 << 20
"""Sparse: what is not written takes no place."""
MEMORY = "320M"
TAIL = 40


class KernelError(AssertionError):
    """The second kernel does not run here, or what runs in it failed."""


def make_image(path: Path, features: str = "", size: int = IMAGE_BYTES) -> None:
    """An empty ext4 filesystem in a sparse file of ``size`` bytes.

    :param features: as for ``mkfs.ext4 -O``.
    """
    tool = shutil.which("mkfs.ext4") or "/sbin/mkfs.ext4"
    if not os.path.exists(tool):
        raise KernelError(f"mkfs.ext4 is not installed: tools/ensure-host {PACKAGES}")
    with path.open("wb") as stream:
        stream.truncate(size)
    options = ["-O", features] if features else []
    made = subprocess.run([tool, "-q", "-F", *options, str(path)], capture_output=True, text=True, check=False)
    if made.returncode:
        raise KernelError(f"mkfs.ext4 {' '.join(options)} failed: {made.stderr.strip()}")


@functools.cache
def warm(program: str) -> None:
    """Compile what the guest's program imports: it cannot write byte code, and would compile it at each start."""
    path = os.pathsep.join([str(TOP), str(TOP / "hooks" / "python")])
    argv = [sys.executable, "-c", f"import {program}"]
    done = subprocess.run(argv, cwd=TOP, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)
    if done.returncode:
        raise KernelError(f"the guest's program does not load: {done.stderr.strip()}")


class Kernel:
    """A guest. Use it as a context: at the end nothing of it is left, whatever happened.

    :param program: the module that runs in it, as root.
    :param config: a file for it, its one argument.
    :param images: its disks, ``/dev/ubda`` and so on.
    :param memory: as the kernel reads it.
    """

    def __init__(self, program: str, config: Path, images: Sequence[Path], memory: str = MEMORY) -> None:
        kernel = shutil.which(PROGRAM)
        if kernel is None:
            raise KernelError(f"{PROGRAM} is not installed: tools/ensure-host {PACKAGES}")
        for path in (tempfile.gettempdir(), TOP, sys.executable, config, *images):
            if set(str(path)) & set(" \t\n,\"'"):
                raise KernelError(f"{str(path)!r} cannot be given to a kernel: it has a space, a comma or a quote")
        # Its memory is a file here, and so is a socket, whose path must be short.
        folder = self._folder = tempfile.mkdtemp(prefix="uml-")
        os.symlink(TOP / "tests" / "uml" / "init.sh", f"{folder}/init")
        disks = [f"ubd{chr(ord('a') + number)}={image}" for number, image in enumerate(images)]
        argv = [kernel, f"mem={memory}", "root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro", "panic=1",
                "con=null", "con0=null,fd:1", "con1=null,fd:1", "umid=guest", f"uml_dir={folder}", *disks,
                f"init={folder}/init", "--", sys.executable, str(TOP), program, str(config)]  # fmt: skip
        self._lines: list[str] = []
        self._rest = ""
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={"PATH": os.environ["PATH"], "TMPDIR": folder, "HOME": folder},
            start_new_session=True,
            restore_signals=False,  # SIGXFSZ stays ignored, for fail_writes
        )
        assert self._process.stdout is not None
        self._out = self._process.stdout
        os.set_blocking(self._out.fileno(), False)
        self._began = False

    def __enter__(self) -> Kernel:  # noqa: PYI034 - Self needs Python 3.11
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> list[dict[str, Any]]:
        """Power off, at once; returns what it had said by then and nobody had heard."""
        if self._out.closed:
            return []
        try:
            os.killpg(self._process.pid, signal.SIGKILL)  # its session and group are its own
        except ProcessLookupError:
            pass
        self._process.wait()
        # The one that writes its disks is a process of its own, and must be gone before anybody else writes them.
        end = time.monotonic() + KILL_S
        while left := self._members():
            if time.monotonic() > end:
                raise KernelError(f"processes {left} of the second kernel do not die")
            time.sleep(0.01)
        shutil.rmtree(self._folder, ignore_errors=True)
        try:
            return list(self._read())
        finally:
            self._out.close()

    def fail_writes(self) -> None:
        """From now on no write to any disk succeeds: the guest sees EIO."""
        for number in self._members():
            try:
                resource.prlimit(number, resource.RLIMIT_FSIZE, (0, 0))
            except ProcessLookupError:
                continue

    def _members(self) -> list[int]:
        """The numbers of its processes that live."""
        found = []
        for process in Path("/proc").iterdir():
            if process.name.isdigit():
                try:
                    # Behind the name, which is in brackets: state, parent, group.
                    state, _, group = (process / "stat").read_text().rpartition(")")[2].split()[:3]
                except (FileNotFoundError, ProcessLookupError):
                    continue
                if int(group) == self._process.pid and state not in {"Z", "X"}:
                    found.append(int(process.name))
        return found

    def statements(self, until: float | None = None) -> Iterator[dict[str, Any]]:
        """What the guest says, as it comes; ends when it has ended by itself.

        :param until: ``time.monotonic()`` at which to stop listening.
        :raises KernelError: it did not come up, died, or was silent for too long.
        """
        with selectors.DefaultSelector() as selector:
            selector.register(self._out, selectors.EVENT_READ)
            while True:
                end = time.monotonic() + (SILENCE_S if self._began else BOOT_S)
                left = (end if until is None else min(end, until)) - time.monotonic()
                if not selector.select(max(0.0, left)):
                    if until is not None and time.monotonic() >= until:
                        return
                    if time.monotonic() >= end:
                        raise self._error("said nothing for too long")
                    continue
                ended = False
                for statement in self._read():
                    ended = ended or statement["kind"] == "end"
                    self._began = True
                    yield statement
                if ended:
                    return
                if self._process.poll() is not None:
                    raise self._error(f"ended with {self._process.returncode}")

    def _read(self) -> Iterator[dict[str, Any]]:
        while True:
            try:
                part = os.read(self._out.fileno(), 1 << 16)
            except BlockingIOError:
                return
            if not part:
                return
            self._rest += part.decode("utf-8", "replace")
            *lines, self._rest = self._rest.split("\n")
            for line in lines:
                statement = heard(line)
                if statement is None:
                    self._lines = [*self._lines[-TAIL:], line.rstrip("\r")]
                elif statement["kind"] == "failed":
                    raise self._error(f"failed: {statement['why']}")
                else:
                    yield statement

    def _error(self, what: str) -> KernelError:
        lines = [*self._lines, self._rest][-TAIL:]
        return KernelError(f"the second kernel ({PROGRAM}) {what}; its last lines:\n  " + "\n  ".join(lines))
