"""Signals as things to read: each arrives as one byte, in order, where the loop waits for everything else."""

from __future__ import annotations

import os
import signal

STOP = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
"""They end the command, by the rules of :mod:`slurm_dispatch.watch.stopping`."""
FORWARDED = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGWINCH)
"""They are the user's: passed on as they are, and nothing else is done. srun passes them to its tasks."""


class Hearing:
    """Hears every signal of :data:`STOP` and :data:`FORWARDED` but those that were ignored before (``nohup``)."""

    def __init__(self) -> None:
        self.descriptor, self._writing = os.pipe()
        for end in (self.descriptor, self._writing):
            os.set_blocking(end, False)
        numbers = (*STOP, *FORWARDED, signal.SIGCHLD)
        self.ignored = frozenset(
            int(number) for number in (*STOP, *FORWARDED) if signal.getsignal(number) is signal.SIG_IGN
        )
        self.handled = tuple(int(number) for number in numbers if int(number) not in self.ignored)
        self._before = {number: signal.getsignal(number) for number in self.handled}
        signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)
        for number in self.handled:
            signal.signal(number, _nothing)

    def read(self) -> list[int]:
        """The signals that have come since, without SIGCHLD."""
        try:
            return [number for number in os.read(self.descriptor, 4096) if number != signal.SIGCHLD]
        except BlockingIOError:
            return []

    def close(self) -> None:
        """Put back what was there before."""
        signal.set_wakeup_fd(-1)
        for number, handler in self._before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
        os.close(self.descriptor)
        os.close(self._writing)


def _nothing(_number: int, _frame: object) -> None:
    """The byte in the pipe says it all."""
