"""How the command is stopped: gently, then, after ``--grace``, for good.

srun is never sent SIGTERM before the end: it kills its tasks within 10 ms of it (measured on Slurm 24.11), in the
middle of the save that they make because the job is ending. Slurm signals the tasks itself when it ends a job; when
only the batch script was signalled (``--signal=B:TERM@60``, ``scancel --batch``), the steps are signalled one by one.
"""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

from slurm_dispatch.watch import command, slurmconf
from slurm_dispatch.watch.say import say

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurm_dispatch.watch.place import Place

PAUSE_S = 5.0
"""Between the ways to kill srun: its steps first, then srun as it kills its tasks, then srun itself."""


class Stopping:
    """Stops one command: :meth:`begin`, then :meth:`due` and :meth:`step` until the command has ended."""

    def __init__(
        self,
        place: Place,
        pid: int,
        *,
        steps: bool,
        group: bool,
        grace_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        :param steps: the command starts Slurm steps: stop those.
        :param group: the command has a process group of its own.
        """
        self._place = place
        self._pid = pid
        self._steps = steps and place.slurm_job is not None
        self._group = group
        self._grace_s = grace_s
        self._clock = clock
        self._next: float | None = None
        self._stage = 0

    @property
    def begun(self) -> bool:
        """Whether the command has been told to stop."""
        return self._next is not None

    def begin(self, number: int, *, heard: bool = False) -> None:
        """Ask the command to stop.

        :param number: the signal.
        :param heard: the command has had the signal already (Ctrl-C in a terminal that it shares).
        """
        if self._next is None:
            self._next = self._clock() + self._grace_s
        elif number == signal.SIGINT:
            self._next = min(self._next, self._clock())  # asked twice by a person: now
        if self._steps:
            self._ask_steps()
        elif not heard:
            command.send(self._pid, number, group=self._group)

    def due(self) -> float:
        """When the next stage is due (monotonic)."""
        return float("inf") if self._next is None else self._next

    def step(self) -> None:
        """Do the next stage, if it is due."""
        if self._next is None or self._clock() < self._next:
            return
        self._stage += 1
        self._next = self._clock() + PAUSE_S
        if not self._steps:
            if self._stage == 1:
                say(f"the command did not end in {self._grace_s:g} s; it is killed")
            command.send(self._pid, signal.SIGKILL, group=self._group)
        elif self._stage == 1:
            say(f"the steps did not end in {self._grace_s:g} s; they are killed")
            self._signal_steps("KILL")
        elif self._stage == 2:
            command.send(self._pid, signal.SIGTERM, group=self._group)
        else:
            command.send(self._pid, signal.SIGKILL, group=self._group)

    def _ask_steps(self) -> None:
        state = slurmconf.state(self._place.slurm_job or "")
        if state is None:
            say("Slurm does not say whether it ends the job; the steps are not signalled")
        elif state == "RUNNING":
            self._signal_steps("TERM")
        # In every other state Slurm is ending the job, and has signalled the steps itself.

    def _signal_steps(self, name: str) -> None:
        place = self._place
        found = slurmconf.steps(place.slurm_job or "", place.slurm_step)
        if found is None:
            say(f"Slurm does not list the steps of job {place.slurm_job}; none was sent {name}")
            return
        for one in found:
            if not slurmconf.signal_step(one, name):
                say(f"step {one} could not be sent {name}")


def ask_for_save(place: Place, pid: int, number: int, *, steps: bool, group: bool) -> None:
    """``--before-end``: the signal that asks for a save, without stopping anything.

    TERM goes to the steps by scancel; every other signal goes to srun, which passes it on.
    """
    if steps and place.slurm_job is not None and number == signal.SIGTERM:
        found = slurmconf.steps(place.slurm_job, place.slurm_step)
        if found is None:
            say("Slurm does not list the steps; nobody was asked for a save")
        for one in found or []:
            if not slurmconf.signal_step(one, "TERM"):
                say(f"step {one} could not be asked for a save")
        return
    command.send(pid, number, group=group and not steps)
