"""Work in a process apart, with a deadline: a filesystem that hangs, or a command of Slurm's that does not
answer, costs the supervisor a wait and never its life.

The child that cannot be killed (it sits in the kernel) is left behind; it holds nothing of ours.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import time
from typing import TYPE_CHECKING, NoReturn

from slurm_dispatch.errors import DispatchError, TransientError

if TYPE_CHECKING:
    from collections.abc import Callable

ANSWER_MAX = 4 << 20
"""Bytes. The greatest answers are those of squeue for the steps of one job."""
KEPT_SIGNALS = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGALRM,
)


GOES_ON = b"~"
"""What a child writes before its answer to say that it goes on: its deadline begins anew."""


_left: set[int] = set()
"""Children that could not be reaped when they were given up."""


class Apart:
    """A running child and what it has answered so far."""

    def __init__(self, work: Callable[[], bytes], deadline_s: float) -> None:
        """Fork and do ``work`` in the child; it is killed ``deadline_s`` seconds from now, or from the last time that
        it called :func:`goes_on`.

        :raises TransientError: there is no process to be had.
        """
        self._deadline_s = deadline_s
        self.ends_at = time.monotonic() + deadline_s
        reading, writing = pipe()
        try:
            self.pid = fork_deaf()
        except TransientError:
            os.close(reading)
            os.close(writing)
            raise
        if self.pid == 0:
            os.close(reading)
            _child(work, writing)
        os.close(writing)
        self.descriptor = reading
        self._parts: list[bytes] = []
        self.done = False

    def step(self) -> None:
        """Take what the child has written; call it when :attr:`descriptor` is readable."""
        part = os.read(self.descriptor, 1 << 16)
        if not part:
            self.done = True
            return
        rest = part if self._parts else part.lstrip(GOES_ON)
        if rest != part:
            self.ends_at = time.monotonic() + self._deadline_s
        if rest:
            self._parts.append(rest)

    def abandon(self) -> None:
        """Kill the child, do not wait for it longer than a moment, and forget it."""
        try:
            os.kill(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.close()

    def close(self) -> None:
        """Close the pipe and reap the child if it has ended."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1
        leave(self.pid, 0.1)

    def answer(self) -> bytes:
        """What the child returned.

        :raises DispatchError: of the class, with the words, that the child raised.
        """
        text = b"".join(self._parts)
        if text[:1] == b"+":
            return text[1:]
        raise _error(text)

    def wait(self, what: str) -> bytes:
        """Wait for the answer until the deadline.

        :raises TransientError: it did not come, or the child died.
        """
        while not self.done:
            left = self.ends_at - time.monotonic()
            if left <= 0 or not select.select([self.descriptor], [], [], left)[0]:
                self.abandon()
                raise TransientError(f"{what}: no answer in time")
            self.step()
        self.close()
        return self.answer()


def apart(work: Callable[[], bytes], deadline_s: float, what: str) -> bytes:
    """Do ``work`` in a child and wait for it. See :meth:`Apart.wait`."""
    return Apart(work, deadline_s).wait(what)


def leave(pid: int, wait_s: float) -> None:
    """Wait a moment for a child to end. One that does not, since it sits in the kernel, is reaped at a later fork."""
    ends_at = time.monotonic() + wait_s
    while not reaped(pid):
        if time.monotonic() >= ends_at:
            _left.add(pid)
            return
        time.sleep(0.005)


def reaped(pid: int) -> bool:
    """Whether the child is gone (and reaped now, if it was not)."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


def pipe() -> tuple[int, int]:
    """A pipe; its two ends.

    :raises TransientError: there are no descriptors to be had.
    """
    try:
        return os.pipe()
    except OSError as error:
        raise TransientError(f"no pipe could be made: {error.strerror}") from error


def deaf() -> None:
    """Ignore what Slurm and people send to the job: the supervisor hears it and says what to do."""
    for number in KEPT_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def fork_deaf() -> int:
    """Fork; the child ignores the signals of :data:`KEPT_SIGNALS` from its first instruction on.

    They are held back over the fork: a handler of the parent that ran in the child would wake the parent.

    :raises TransientError: there is no process to be had: the training may have used up the job's limit, and must
        not end for that.
    """
    _left.difference_update([left for left in _left if reaped(left)])
    held = signal.pthread_sigmask(signal.SIG_BLOCK, {*KEPT_SIGNALS, signal.SIGCHLD})
    try:
        try:
            pid = os.fork()
        except OSError as error:
            raise TransientError(f"no process could be started: {error.strerror}") from error
        if pid == 0:
            deaf()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, held)
    return pid


_writing: list[int] = []
"""In a child of :class:`Apart`: where it writes."""


def goes_on(_: float = 0.0) -> None:
    """In a child: say that the work goes on. Elsewhere nothing happens."""
    for descriptor in _writing:
        os.write(descriptor, GOES_ON)


def _child(work: Callable[[], bytes], writing: int) -> NoReturn:
    _writing[:] = [writing]
    try:
        try:
            answer = b"+" + work()
        except DispatchError as error:
            answer = f"-{type(error).__name__}\n{error}\n{error.hint}".encode("utf-8", "backslashreplace")
        except Exception as error:  # noqa: BLE001 - the outermost frame of this process
            answer = f"-DispatchError\n{type(error).__name__}: {error}\n".encode("utf-8", "backslashreplace")
        view = memoryview(answer)
        while view:
            view = view[os.write(writing, view) :]
    except OSError as error:
        if error.errno != errno.EPIPE:
            os._exit(1)
    finally:
        os._exit(0)  # nothing of the parent's (buffers, exit handlers) may run twice


def _error(text: bytes) -> DispatchError:
    import slurm_dispatch.errors as tree

    if not text:
        return TransientError("the process that did the work was killed")
    kind, _, rest = text[1:].decode("utf-8", "replace").partition("\n")
    message, _, hint = rest.partition("\n")
    found = getattr(tree, kind, None)
    if isinstance(found, type) and issubclass(found, DispatchError):
        return found(message, hint=hint or None)
    return DispatchError(message)


def run_command(argv: list[str], deadline_s: float) -> tuple[int, str] | None:
    """Run a command of Slurm's, with ``LC_ALL=C`` and a deadline, never in a shell.

    :returns: its exit status and what it printed; ``None`` if it is not there, was killed, or did not answer.
    """
    try:
        reading, writing = pipe()
    except TransientError:
        return None
    try:
        pid = fork_deaf()
    except TransientError:
        os.close(reading)
        os.close(writing)
        return None
    if pid == 0:
        try:
            for number in (*KEPT_SIGNALS, signal.SIGPIPE):
                signal.signal(number, signal.SIG_DFL)
            os.setpgid(0, 0)
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, 0)
            os.dup2(writing, 1)
            os.dup2(null, 2)
            os.execvpe(argv[0], argv, {**os.environ, "LC_ALL": "C"})
        finally:
            os._exit(127)
    os.close(writing)
    ends_at = time.monotonic() + deadline_s
    parts: list[bytes] = []
    size = 0
    try:
        while size <= ANSWER_MAX:
            left = ends_at - time.monotonic()
            if left <= 0 or not select.select([reading], [], [], left)[0]:
                break
            part = os.read(reading, 1 << 16)
            if not part:
                status = _end(pid, ends_at)
                return None if status is None else (status, b"".join(parts).decode("utf-8", "replace"))
            parts.append(part)
            size += len(part)
    finally:
        os.close(reading)
    try:
        os.killpg(pid, signal.SIGKILL)
    except OSError:
        pass
    _end(pid, time.monotonic() + 1)
    return None


def _end(pid: int, ends_at: float) -> int | None:
    """The exit status of a child that has closed its output; ``None`` if it was killed or does not end."""
    while True:
        try:
            found, status = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            return None
        if found == pid:
            code = os.waitstatus_to_exitcode(status)
            return None if code < 0 or code == 127 else code
        if time.monotonic() > ends_at:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
            return None
        time.sleep(0.005)
