"""The kick: a small process that looks at the notes folder and says when a note has come.

It runs as SlurmUser (the folder is 0700), so root never touches the shared filesystem, and a filesystem that
hangs stops this process and not the loop, which goes on with its full ticks.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

POLL_S = 0.1
"""How often the folder's time stamp is read: a note is seen within this, and one stat costs microseconds."""
LIST_S = 1.0
"""How often the folder is listed whatever its time stamp says: some filesystems keep whole seconds only."""
RESTART_S = 5.0
"""A watcher that ended (folder away, killed) is started again no sooner than this."""


URGENT = ("end.", "refused.")
"""Notes that a tick must see at once; a start note and a node note can wait for the next full tick."""


class Kick:
    """A watcher process and the pipe that it writes one byte to for each change.

    :param folder: the notes folder.
    :param become: called in the child, once, before it touches the folder: gives up root for SlurmUser.
    """

    def __init__(self, folder: str, become: Callable[[], None]) -> None:
        self._folder = folder
        self._become = become
        self._pid = 0
        self._started = -RESTART_S
        self.descriptor: int | None = None

    def ensure(self) -> None:
        """Start the watcher if there is none, at most once in :data:`RESTART_S`."""
        if self.descriptor is not None or time.monotonic() - self._started < RESTART_S:
            return
        self._started = time.monotonic()
        reading, writing = os.pipe()
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                os.close(reading)
                signal.set_wakeup_fd(-1)
                for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                    signal.signal(number, signal.SIG_DFL)
                self._become()
                _watch(self._folder, writing, parent)
                status = 0
            except OSError:
                pass  # the folder is away: the parent sees the pipe close and starts another later
            finally:
                os._exit(status)
        os.close(writing)
        os.set_blocking(reading, False)
        self._pid, self.descriptor = pid, reading

    def drain(self) -> bool:
        """Read what the watcher wrote.

        :returns: true if a note has come since the last call. A watcher that ended is forgotten.
        """
        if self.descriptor is None:
            return False
        came = False
        while True:
            try:
                read = os.read(self.descriptor, 4096)
            except BlockingIOError:
                return came
            if not read:
                self.stop()
                return came
            came = True

    def stop(self) -> None:
        """End the watcher. One that hangs in the kernel is left behind, and ends when it can."""
        if self.descriptor is None:
            return
        os.close(self.descriptor)
        self.descriptor = None
        try:
            os.kill(self._pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        deadline = time.monotonic() + 1.0
        while time.monotonic() < deadline:
            if os.waitpid(self._pid, os.WNOHANG)[0] != 0:
                return
            time.sleep(0.01)


def _watch(folder: str, pipe: int, parent: int) -> None:
    """Write a byte for each new name that a tick must see at once; ends when the parent has gone."""
    known: set[str] = set()
    stamp = -1
    listed = -LIST_S
    while os.getppid() == parent:
        now = time.monotonic()
        found = os.stat(folder).st_mtime_ns
        if found != stamp or now - listed >= LIST_S:
            names = {name for name in os.listdir(folder) if name.startswith(URGENT)}
            if names - known:
                os.write(pipe, b"n")
            known, stamp, listed = names, found, now
        time.sleep(POLL_S)


__all__ = ["LIST_S", "POLL_S", "RESTART_S", "URGENT", "Kick"]
