"""The kick: a process that looks at the notes folder and says when a note has come that a tick must see at once.

The looking itself is done as SlurmUser (the folder is 0700), in children of limited life, so root never touches
the shared filesystem, and a filesystem that hangs stops this process and not the loop, which goes on with its
full ticks.
"""

from __future__ import annotations

import json
import os
import signal
import time
from typing import TYPE_CHECKING

from slurm_dispatch.errors import DispatchError

if TYPE_CHECKING:
    from collections.abc import Callable

POLL_S = 0.05
"""How often the folder's time stamp is read: a note is seen within this, and one stat costs microseconds."""
LIST_S = 1.0
"""How often the folder is listed whatever its time stamp says: some filesystems keep whole seconds only."""
LIFE_S = 300.0
"""How long one child looks before another takes over."""
RESTART_S = 5.0
"""A watcher that ended (folder away, killed) is started again no sooner than this."""
URGENT = ("end.", "refused.")
"""Notes that a tick must see at once."""
TIMELY = ("start.",)
"""Notes that a tick must see within a second or two: people ask whether their job runs."""


class Kick:
    """A watcher process, and the pipe that it writes a byte to for each change: ``n`` now, ``s`` soon.

    :param folder: the notes folder.
    :param as_slurm_user: does work as SlurmUser within a deadline in seconds; see
        :func:`slurm_dispatch.state.as_user.in_child`.
    """

    def __init__(self, folder: str, as_slurm_user: Callable[[Callable[[], bytes], float], bytes]) -> None:
        self._folder = folder
        self._as_slurm_user = as_slurm_user
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
            try:
                os.close(reading)
                signal.set_wakeup_fd(-1)
                for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                    signal.signal(number, signal.SIG_DFL)
                self._watch(writing, parent)
            except (DispatchError, OSError, ValueError):
                pass  # the folder is away: the parent sees the pipe close and starts another later
            finally:
                os._exit(0)
        os.close(writing)
        os.set_blocking(reading, False)
        self._pid, self.descriptor = pid, reading

    def _watch(self, pipe: int, parent: int) -> None:
        """Write a byte for each change; ends when the parent has gone."""
        known: list[str] | None = None
        while os.getppid() == parent:
            before = known
            known = self._look(before)
            fresh = set(known) - set(before or [])
            if fresh:
                os.write(pipe, b"n" if any(name.startswith(URGENT) for name in fresh) else b"s")

    def _look(self, known: list[str] | None) -> list[str]:
        answer = self._as_slurm_user(lambda: wait_for_note(self._folder, known), LIFE_S + 30.0)
        return [str(name) for name in json.loads(answer)]

    def drain(self) -> str:
        """Read what the watcher wrote.

        :returns: ``now``, ``soon``, or nothing, by what has come since the last call. A watcher that ended is
            forgotten.
        """
        if self.descriptor is None:
            return ""
        came = ""
        while True:
            try:
                read = os.read(self.descriptor, 4096)
            except BlockingIOError:
                return came
            if not read:
                self.stop()
                return came
            came = "now" if came == "now" or b"n" in read else "soon"

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


def wait_for_note(folder: str, known: list[str] | None) -> bytes:
    """Wait until a note is in ``folder`` that is urgent or timely and not in ``known``, or for :data:`LIFE_S`.

    :param known: what was there before; ``None``: nothing was looked at yet, so that what is there is new.
    :returns: the names of such notes that are there now, as JSON. Ends early when its own parent has gone.
    """
    parent = os.getppid()
    before = set(known or [])
    until = time.monotonic() + LIFE_S
    stamp = -1
    listed = -LIST_S
    again = False
    names: list[str] = []
    while os.getppid() == parent and time.monotonic() < until:
        now = time.monotonic()
        found = os.stat(folder).st_mtime_ns
        changed = found != stamp
        # Once more after a change: a note that came just after the listing can have left the same time stamp.
        if changed or again or now - listed >= LIST_S:
            names = [name for name in os.listdir(folder) if name.startswith(URGENT + TIMELY)]
            stamp, listed, again = found, now, changed
            if set(names) - before:
                break
        time.sleep(POLL_S)
    return json.dumps(names).encode("utf-8", "surrogateescape")


__all__ = ["LIFE_S", "LIST_S", "POLL_S", "RESTART_S", "TIMELY", "URGENT", "Kick", "wait_for_note"]
