"""Run one command of Slurm with a deadline.

The law of this module: *when the call returns, the command is over and its answer is what it printed; when the
caller dies, the command dies with it.* So an sbatch never outlives the deadline that its intent states.
"""

from __future__ import annotations

import ctypes
import os
import resource
import selectors
import signal
import subprocess
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

ANSWER_LIMIT = 64 << 20
"""Bytes of stdout: 100,000 jobs at 300 bytes each are half of it."""
ERROR_LIMIT = 1 << 20
"""Bytes of stderr that are kept; more is still relayed."""
ALARM_AFTER_S = 5
"""How long after the deadline a command whose caller hangs ends by its own alarm clock."""
DRAIN_S = 1.0
"""How long a pipe is read on that a descendant of the ended command still holds."""
REAP_S = 5.0
"""How long the end of a killed command is waited for."""
_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class Finished:
    """How a command ended.

    :param status: exit status; negative: the signal that ended it; ``None``: it could not be started
        (``failure`` says why).
    :param timed_out: this process killed it at the deadline.
    :param truncated: it printed more than the limit and was killed for it.
    """

    status: int | None
    stdout: bytes
    stderr: bytes
    timed_out: bool = False
    truncated: bool = False
    failure: str = ""

    @property
    def trouble(self) -> str:
        """One line that says why there is no answer, or ``""`` if the command ended with 0."""
        if self.failure:
            return self.failure
        if self.timed_out:
            return "no answer before the deadline"
        if self.truncated:
            return "the answer is longer than the limit"
        if self.status == 0:
            return ""
        said = self.stderr.decode("utf-8", "backslashreplace").strip().splitlines()
        how = f"signal {-self.status}" if self.status is not None and self.status < 0 else f"status {self.status}"
        return f"{how}: {said[-1]}" if said else how


@dataclass(frozen=True, slots=True)
class Setting:
    """What a command starts with.

    :param stdin: the bytes that it reads; it never reads ours.
    :param files: descriptors that it inherits under their own numbers.
    :param limits: soft resource limits, as (name of :mod:`resource`, value); never above the hard limit.
    :param program: the file to run; otherwise it is looked for on ``environment``'s ``PATH``. The command is told
        ``argv[0]`` as its name either way, and says it in its messages.
    :param alarm: the command carries an alarm clock of its own, for the case that this process is stopped.
    """

    environment: Mapping[str, str]
    stdin: bytes = b""
    workdir: str | None = None
    umask: int | None = None
    files: Sequence[int] = ()
    limits: Sequence[tuple[str, int]] = ()
    program: str | None = None
    alarm: bool = True


def run(
    argv: Sequence[str],
    setting: Setting,
    *,
    deadline_s: float,
    limit: int = ANSWER_LIMIT,
    relay: bool = False,
    lift: Callable[[bytes], bool] | None = None,
) -> Finished:
    """Run ``argv``, never in a shell; its whole session is killed at the deadline.

    :param limit: bytes of stdout that are kept; a command that prints more is killed (``truncated``).
    :param relay: what it prints is written on to our stdout and stderr as it comes.
    :param lift: called with all of stdout so far whenever there is more; true lifts the deadline for good.
    """
    try:
        process = _start(argv, setting, deadline_s)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return Finished(None, b"", b"", failure=f"cannot run {argv[0]}: {reason}")
    return _Watch(process, time.monotonic() + deadline_s, limit, relay, lift).wait()


def _start(argv: Sequence[str], setting: Setting, deadline_s: float) -> subprocess.Popen[bytes]:
    program = setting.program or find(argv[0], setting.environment)
    parent = os.getpid()
    # The C library is opened before the fork; after it only calls that are safe there remain.
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    limits = [(getattr(resource, name), soft) for name, soft in setting.limits if hasattr(resource, name)]
    alarm_s = int(deadline_s) + ALARM_AFTER_S if setting.alarm else 0

    def in_child() -> None:
        prctl(_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(127)
        for kind, wanted in limits:
            hard = resource.getrlimit(kind)[1]
            too_much = hard != resource.RLIM_INFINITY and (wanted == resource.RLIM_INFINITY or wanted > hard)
            resource.setrlimit(kind, (hard if too_much else wanted, hard))
        signal.alarm(alarm_s)

    stdin = os.memfd_create("stdin", os.MFD_CLOEXEC)
    try:
        view = memoryview(setting.stdin)
        while view:
            view = view[os.write(stdin, view) :]
        os.lseek(stdin, 0, os.SEEK_SET)
        return subprocess.Popen(
            list(argv),
            executable=program,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(setting.environment),
            cwd=setting.workdir,
            umask=-1 if setting.umask is None else setting.umask,
            pass_fds=tuple(setting.files),
            start_new_session=True,
            preexec_fn=in_child,  # noqa: PLW1509 - the programs that call this have one thread
        )
    finally:
        os.close(stdin)


def find(program: str, environment: Mapping[str, str]) -> str:
    """The path of ``program`` on ``environment``'s ``PATH`` (not on ours).

    :raises FileNotFoundError: it is not there.
    """
    if "/" in program:
        return program
    for folder in environment.get("PATH", os.defpath).split(os.pathsep):
        path = os.path.join(folder or ".", program)
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    raise FileNotFoundError(2, "not found on PATH", program)


@dataclass(slots=True)
class _Stream:
    """One output of the command: what was read, and where it goes on to."""

    descriptor: int
    limit: int
    onward: int | None
    parts: bytearray = field(default_factory=bytearray)
    open: bool = True

    def read(self) -> bool:
        """Take what is there; true while it is within the limit."""
        chunk = os.read(self.descriptor, 1 << 16)
        if not chunk:
            self.open = False
            return True
        if self.onward is not None:
            self.onward = _copy(self.onward, chunk)
        room = self.limit - len(self.parts)
        self.parts += chunk[:room]
        return len(chunk) <= room


def _copy(descriptor: int, chunk: bytes) -> int | None:
    view = memoryview(chunk)
    while view:
        try:
            view = view[os.write(descriptor, view) :]
        except OSError:
            return None  # our reader has gone; the command must not fail for that
    return descriptor


class _Watch:
    """The wait of :func:`run`."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        deadline: float,
        limit: int,
        relay: bool,
        lift: Callable[[bytes], bool] | None,
    ) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        self.process = process
        self.deadline: float | None = deadline
        self.lift = lift
        self.out = _Stream(process.stdout.fileno(), limit, 1 if relay else None)
        self.err = _Stream(process.stderr.fileno(), ERROR_LIMIT, 2 if relay else None)

    def wait(self) -> Finished:
        """Read both outputs until they end, then the command's status."""
        timed_out = truncated = False
        try:
            verdict = self._read()
            timed_out, truncated = verdict == "deadline", verdict == "limit"
            if verdict == "end":
                try:
                    self.process.wait(self._left())
                except subprocess.TimeoutExpired:
                    timed_out = True
        finally:
            # Also on an interrupt: an answer that nobody reads must not come later.
            self._kill()
        return Finished(self.process.returncode, bytes(self.out.parts), bytes(self.err.parts), timed_out, truncated)

    def _left(self) -> float | None:
        return None if self.deadline is None else max(0.0, self.deadline - time.monotonic())

    def _read(self) -> str:
        ended_at: float | None = None
        with selectors.DefaultSelector() as selector:
            for stream in (self.out, self.err):
                selector.register(stream.descriptor, selectors.EVENT_READ, stream)
            while self.out.open or self.err.open:
                left = self._left()
                if left == 0.0:
                    return "deadline"
                events = selector.select(0.1 if left is None else min(left, 0.1))
                for key, _ in events:
                    stream = key.data
                    if not stream.read() and stream is self.out:
                        return "limit"
                    if not stream.open:
                        selector.unregister(stream.descriptor)
                    elif stream is self.out and self.lift is not None and self.lift(bytes(self.out.parts)):
                        self.lift, self.deadline = None, None
                if not events and self.process.poll() is not None:
                    ended_at = ended_at or time.monotonic()
                    if time.monotonic() - ended_at > DRAIN_S:
                        return "end"
        return "end"

    def _kill(self) -> None:
        if self.process.poll() is None:
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass  # it ended between the two calls
            try:
                self.process.wait(REAP_S)
            except subprocess.TimeoutExpired:
                pass  # in a system call that no signal ends; it dies when that returns
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()
