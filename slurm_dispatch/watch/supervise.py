"""Running the command: its signals, its end, the last scan, and the status that is passed on."""

from __future__ import annotations

import select
import signal
import time
from typing import TYPE_CHECKING

from slurm_dispatch.errors import NotResumedError, StalledError, StoreError
from slurm_dispatch.model.outcome import UNFINISHED_STATUS, Outcome
from slurm_dispatch.watch import command, slurmconf
from slurm_dispatch.watch.hearing import STOP, Hearing
from slurm_dispatch.watch.say import say
from slurm_dispatch.watch.session import Session, silent
from slurm_dispatch.watch.stopping import Stopping, ask_for_save

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurm_dispatch.watch.options import Options
    from slurm_dispatch.watch.place import Place
    from slurm_dispatch.watch.prepare import Prepared

WAIT_S_MAX = 3600.0
"""``select`` wakes at least so often; nothing depends on it."""
STOPPED_LAST_S = 600.0
"""For the last scan after a stop signal, where nobody else ends it: Slurm's KillWait is shorter nearly everywhere."""


class Supervision:
    """One command, from its start to the status that the helper ends with."""

    def __init__(
        self, place: Place, options: Options, prepared: Prepared, argv: list[str], environment: Mapping[str, str]
    ) -> None:
        """
        :param argv: the command with its words filled in.
        :param environment: of the command, and of the questions to Slurm.
        """
        self._place = place
        self._options = options
        self._steps = options.steps or command.is_srun(argv)
        self._shares = command.shares_terminal()
        self._hearing = Hearing()
        # Before the command: if this fails, nothing runs that nobody would wait for.
        self._session = Session(place, options, prepared, environment)
        try:
            self._pid = command.start(
                argv,
                environment,
                own_group=not self._shares,
                handled=self._hearing.handled,
                ignored=self._hearing.ignored,
            )
        except command.CannotStart as error:
            self._session.end(error.status)
            self._hearing.close()
            raise
        self._session.begins()
        self._stopping = Stopping(
            place, self._pid, steps=self._steps, group=not self._shares, grace_s=options.grace_s
        )
        self._environment = environment
        self._ask_at = self._when_to_ask()
        self._ended: tuple[int, int | None] | None = None
        self._give_up_at = float("inf")
        self._told_to_end = False

    def run(self) -> int:
        """Until the command has ended and the last scan is done; the exit status of the helper."""
        try:
            while self._ended is None or not self._session.over:
                self._wait()
                self._session_says()
                self._stopping_and_asking()
                if self._ended is None:
                    self._ended = command.ended(self._pid)
                    if self._ended is not None:
                        self._begin_last_scan()
                elif time.monotonic() >= self._last_until() and not self._session.over:
                    self._session.give_up("it took too long")
            return self._finish()
        finally:
            self._hearing.close()

    def _wait(self) -> None:
        now = time.monotonic()
        due = self._session.due()
        if self._ended is None:
            due = min(due, self._stopping.due())
            if self._ask_at is not None:
                due = min(due, now + max(0.0, self._ask_at - time.time()))
        else:
            due = min(due, self._last_until())
        timeout = min(max(0.0, due - now), WAIT_S_MAX)
        watched = [self._hearing.descriptor, *self._session.descriptors()]
        readable = select.select(watched, [], [], timeout)[0]
        if self._hearing.descriptor in readable:
            for number in self._hearing.read():
                self._hear(number)
        self._session.handle(readable)

    def _hear(self, number: int) -> None:
        if number not in STOP:
            if self._ended is None:
                command.send(self._pid, number, group=not self._shares and not self._steps)
            return
        if self._ended is not None:
            self._session.tell("prove")
            self._give_up_at = min(self._give_up_at, time.monotonic() + self._options.grace_s)
            return
        first = not self._stopping.begun
        self._session.no_stall()
        from_terminal = self._shares and number in {signal.SIGINT, signal.SIGQUIT}
        if first:
            self._session.tell("hurry")
            say(f"{signal.Signals(number).name}: the command is asked to end")
        self._stopping.begin(number, heard=from_terminal)

    def _session_says(self) -> None:
        session, options = self._session, self._options
        if self._told_to_end or self._ended is not None:
            return
        if session.not_resumed is not None:
            say(
                f"did not resume: the command was given step {session.prepared.step} and its first save is of step "
                f"{session.not_resumed}; that is not published and the command is ended (--allow-step-back lifts "
                "this)"
            )
        elif session.error is not None and options.end_on_error:
            say("the command is ended because of the store error (--on-error=end)")
        elif session.stalls():
            say(silent(self._place, options))
        else:
            return
        session.no_stall()
        self._told_to_end = True
        session.tell("hurry")
        self._stopping.begin(signal.SIGTERM)

    def _stopping_and_asking(self) -> None:
        if self._ended is not None:
            return
        self._stopping.step()
        if self._ask_at is None or time.time() < self._ask_at or self._options.before_end is None:
            return
        before_s, number = self._options.before_end
        later = slurmconf.asked_end_time(self._place.slurm_job or "")
        if later is not None and later - before_s > time.time() + 1:
            self._ask_at = later - before_s  # somebody has given the job more time
            return
        self._ask_at = None
        say(f"{before_s:g} s before the time limit: the command is asked for a save ({signal.Signals(number).name})")
        ask_for_save(self._place, self._pid, number, steps=self._steps, group=not self._shares)

    def _when_to_ask(self) -> float | None:
        """Unix time at which ``--before-end`` asks; ``None`` if it does not or cannot."""
        if self._options.before_end is None or not self._place.first:
            return None
        end: float | None = None
        if self._place.slurm_job is not None:
            end = slurmconf.environment_end_time(self._environment)
            if end is None:
                end = slurmconf.asked_end_time(self._place.slurm_job)
        if end is None:
            say("--before-end cannot ask for a save: Slurm does not say when the time limit is")
            return None
        return end - self._options.before_end[0]

    def _begin_last_scan(self) -> None:
        self._session.no_stall()
        status, _ = self._ended or (0, None)
        clean = status == 0 and not self._stopping.begun
        self._session.tell("assume" if clean else "prove")
        self._session.tell("last")
        if self._session.uploading and self._stopping.begun:
            say("an upload is under way; what Slurm's KillWait does not leave time for is not published")
        wait_s = self._options.timeout_s + self._options.settle_s if clean else self._options.timeout_s
        if self._stopping.begun:
            wait_s = min(wait_s, STOPPED_LAST_S)
        self._give_up_at = time.monotonic() + wait_s

    def _last_until(self) -> float:
        """When the last scan is given up (monotonic): after a clean end never while an upload goes on."""
        return self._give_up_at if self._stopping.begun else max(self._give_up_at, self._session.moving_until)

    def _finish(self) -> int:
        session = self._session
        status, number = self._ended or (0, None)
        outcome: Outcome | None = None
        result = status
        if session.not_resumed is not None:
            outcome, result = Outcome.NOT_RESUMED, NotResumedError.exit_code
            if not self._told_to_end:  # it was seen only by the last scan
                say(
                    f"did not resume: the command was given step {session.prepared.step} and its first save is of "
                    f"step {session.not_resumed}; that is not published"
                )
        elif session.stalled:
            outcome, result = Outcome.STALLED, StalledError.exit_code
        elif session.error is not None and (status in {0, UNFINISHED_STATUS} or self._told_to_end):
            outcome, result = Outcome.STORE_ERROR, StoreError.exit_code
        if session.error is not None:
            say(f"saves may be left unpublished: {session.error}")
        session.end(result)
        if session.again and outcome is None:
            outcome = Outcome.UNFINISHED
        told = session.handing.ended(
            status=None if number is not None else status,
            signal=number,
            outcome=None if outcome is None else outcome.value,
            step=session.step,
        )
        if outcome is Outcome.UNFINISHED and result == 0 and not told:
            say(f"dispatch again was said and the job's record could not be told: ending with {UNFINISHED_STATUS}")
            return UNFINISHED_STATUS
        return result
