"""Starting the command as a shell would: its own process group, default signals, the shell's words for failing."""

from __future__ import annotations

import errno
import os
import signal
from typing import TYPE_CHECKING

from slurm_dispatch.errors import show

if TYPE_CHECKING:
    from collections.abc import Mapping

NOT_FOUND = 127
NOT_RUNNABLE = 126
WRAPPERS = frozenset({"env", "exec", "nice", "ionice", "nohup", "stdbuf", "time", "timeout", "numactl", "taskset"})
"""Commands that run another one as themselves or wait for it: srun behind one of them is still ours to spare."""


class CannotStart(Exception):
    """The command could not be started. ``status`` is what a shell would end with."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


def is_srun(argv: list[str]) -> bool:
    """Whether the command is srun, which kills its tasks within milliseconds when it gets SIGTERM."""
    names = [os.path.basename(word) for word in argv]
    return names[0] == "srun" or (names[0] in WRAPPERS and "srun" in names)


def shares_terminal() -> bool:
    """Whether the command must stay in the terminal's process group, to read from it and to hear Ctrl-C."""
    try:
        return os.isatty(0) and os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return False


def start(
    argv: list[str],
    environment: Mapping[str, str],
    *,
    own_group: bool,
    handled: tuple[int, ...],
    ignored: frozenset[int],
) -> int:
    """Start the command; its process id.

    :param handled: signals that the supervisor handles: default in the command, but for those of ``ignored``,
        which were ignored when the supervisor started (``nohup``).
    :raises CannotStart: it is not there, or is not to be run.
    """
    reading, writing = os.pipe()
    held = signal.pthread_sigmask(signal.SIG_BLOCK, handled)
    try:
        try:
            pid = os.fork()
        except OSError as error:
            raise CannotStart(f"cannot run {show(argv[0])}: {error.strerror}", NOT_RUNNABLE) from error
        if pid == 0:
            _become(
                argv,
                environment,
                own_group=own_group,
                handled=handled,
                ignored=ignored,
                mask=held,
                writing=writing,
            )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, held)
    os.close(writing)
    if own_group:
        try:
            os.setpgid(pid, pid)  # both do it, so that it is done whoever comes first
        except OSError:
            pass
    try:
        number = os.read(reading, 16)
    finally:
        os.close(reading)
    if number:
        os.waitpid(pid, 0)
        code = int(number)
        raise CannotStart(
            f"cannot run {show(argv[0])}: {os.strerror(code)}", NOT_FOUND if code == errno.ENOENT else NOT_RUNNABLE
        )
    return pid


def _become(
    argv: list[str],
    environment: Mapping[str, str],
    *,
    own_group: bool,
    handled: tuple[int, ...],
    ignored: frozenset[int],
    mask: object,
    writing: int,
) -> None:
    try:
        if own_group:
            os.setpgid(0, 0)
        for number in (*handled, signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores the last two
            signal.signal(number, signal.SIG_IGN if number in ignored else signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)  # type: ignore[arg-type]
        os.execvpe(argv[0], argv, environment)
    except OSError as error:
        os.write(writing, str(error.errno or errno.EINVAL).encode("ascii"))
    except ValueError:
        os.write(writing, str(errno.EINVAL).encode("ascii"))
    finally:
        os._exit(NOT_FOUND)


def ended(pid: int) -> tuple[int, int | None] | None:
    """``(status, signal)`` if the command has ended: 128 and the number for a signal; ``None`` while it runs."""
    found, status = os.waitpid(pid, os.WNOHANG)
    if found == 0:
        return None
    if os.WIFSIGNALED(status):
        return 128 + os.WTERMSIG(status), os.WTERMSIG(status)
    return os.WEXITSTATUS(status), None


def send(pid: int, number: int, *, group: bool) -> None:
    """Send a signal to the command, or to its whole process group; one that has gone is no trouble."""
    try:
        if group:
            os.killpg(pid, number)
        else:
            os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        pass
