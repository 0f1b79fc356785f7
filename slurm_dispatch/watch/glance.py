"""When the next scan is: at the latest after ``--interval``, and sooner where something changes.

A scan lists folders and looks into saves; it is too dear to be made four times a second for weeks. Whether anything
changed since is a few calls of ``stat``: a folder's time changes with every name that is made in it, and a save that
is not whole yet is seen to grow. That is asked by a thread of its own, since what it asks can hang: the process that
scans never does but in a scan, of which its supervisor knows.

In S3 there is nothing like it, and every question costs: there the scans come closer together once a save was seen
that is not whole, for as long as it goes on.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurm_dispatch.errors import DispatchError

if TYPE_CHECKING:
    from slurm_dispatch.store.whole import Entry
    from slurm_dispatch.watch.tree import Tree

GLANCE_S = 0.25
"""Between two glances, and the least between two scans of a folder."""
LIVELY_S = 3.0
"""After a change that was seen, scans follow each other for so long: some filesystems count time in steps of two
seconds, so what comes in the same step as a glance changes nothing that it could see."""
REMOTE_S = 1.0
"""The least between two scans where each asks a store."""
REMOTE_LIVELY_S = 60.0
"""In S3 an object is there only when all of it is: a save may look the same for as long as the next one takes."""
PACE = 10
"""Scans and glances of something great follow each other at this many times the processor time that one takes."""
RECENT_S = 60.0
PACE_LATER = 250
"""The same for glances, once nothing has changed for :data:`RECENT_S`: a torn save of thousands of files may lie
there for weeks."""


@dataclass(frozen=True, slots=True)
class Marks:
    """What a scan saw that changes when there is something new.

    :ivar folders: path and stamp (:meth:`Tree.stamp`) of each folder that was listed, from before that.
    :ivar saves: path and entries of each save that was not known to be whole; none for one that was not there.
    """

    folders: tuple[tuple[str, object], ...] = ()
    saves: tuple[tuple[str, tuple[Entry, ...]], ...] = ()

    def changed(self, tree: Tree) -> bool:
        """Whether it is not so any more. What cannot be asked is left to the next scan."""
        try:
            if any(tree.stamp(path) != stamp for path, stamp in self.folders):
                return True
            return any(self._entries(tree, path) != entries for path, entries in self.saves)
        except (OSError, DispatchError):
            return False

    @staticmethod
    def _entries(tree: Tree, path: str) -> tuple[Entry, ...]:
        seen = tree.look(path, read=False)
        return () if seen is None else seen.entries


@dataclass(frozen=True, slots=True)
class Rest:
    """What follows a scan.

    :ivar pause_s: the least until the next scan or glance.
    :ivar lively: a scan follows then, though nothing more is seen.
    :ivar pace: of the glances.
    """

    pause_s: float
    lively: bool
    pace: int


class Pace:
    """How long to wait after a scan.

    :param remote: the saves are in a store.
    """

    def __init__(self, *, remote: bool) -> None:
        self._least_s = REMOTE_S if remote else GLANCE_S
        self._lively_s = REMOTE_LIVELY_S if remote else LIVELY_S
        self._marks: Marks | None = None
        self._changed_at = float("-inf")

    def after(self, marks: Marks, now: float, *, cost_s: float) -> Rest:
        """What follows a scan that saw ``marks``.

        :param now: monotonic.
        :param cost_s: processor time of the scan.
        """
        if self._marks is not None and marks != self._marks:
            self._changed_at = now
        self._marks = marks
        ago_s = now - self._changed_at
        pace = PACE if ago_s < RECENT_S else PACE_LATER
        return Rest(max(self._least_s, PACE * cost_s), ago_s < self._lively_s, pace)


class Glances:
    """A thread that looks whether marks still hold, and says so once through a pipe.

    :ivar descriptor: readable when they do not.
    """

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self.descriptor, self._tell = os.pipe()
        os.set_blocking(self.descriptor, False)
        self._told = threading.Condition()
        self._marks: Marks | None = None
        self._thread: threading.Thread | None = None
        self._closed = False
        self._rest = Rest(GLANCE_S, False, PACE)

    def begin(self, marks: Marks, rest: Rest) -> None:
        """Look at these from now on."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, daemon=True, name="glances")
            self._thread.start()
        with self._told:
            self._marks, self._rest = marks, rest
            self._told.notify()

    def end(self) -> None:
        """Look no more, and forget what was said."""
        with self._told:
            self._marks = None
            try:
                os.read(self.descriptor, 16)
            except BlockingIOError:
                pass

    def close(self) -> None:
        """Look at nothing ever again."""
        with self._told:
            self._marks, self._closed = None, True
            self._told.notify()
        if self._thread is None:
            self._leave()

    def _leave(self) -> None:
        os.close(self.descriptor)
        os.close(self._tell)

    def _run(self) -> None:
        while True:
            with self._told:
                while self._marks is None and not self._closed:
                    self._told.wait()
                if self._marks is None:
                    self._leave()
                    return
                marks, rest = self._marks, self._rest
            pause_s = rest.pause_s
            while True:
                time.sleep(pause_s)
                if self._marks is not marks:
                    break
                used, began = time.thread_time(), time.monotonic()
                changed = marks.changed(self._tree)
                pause_s = max(GLANCE_S, rest.pace * (time.thread_time() - used), time.monotonic() - began)
                if changed:
                    self._say(marks)
                    break

    def _say(self, marks: Marks) -> None:
        with self._told:
            if self._marks is marks:
                self._marks = None
                os.write(self._tell, b"!")


__all__ = ["GLANCE_S", "Glances", "Marks", "Pace", "Rest"]
