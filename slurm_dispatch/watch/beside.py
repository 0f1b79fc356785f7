"""The helper beside a training that was started otherwise: ``--beside`` and ``--finish``."""

from __future__ import annotations

import os
import select
import signal
import time
from typing import TYPE_CHECKING

from slurm_dispatch.errors import (
    AbsentError,
    NothingThereError,
    NotResumedError,
    ServiceAwayError,
    StalledError,
    StoreError,
)
from slurm_dispatch.model.outcome import Outcome
from slurm_dispatch.watch import slurmconf
from slurm_dispatch.watch.apart import apart
from slurm_dispatch.watch.hearing import STOP, Hearing
from slurm_dispatch.watch.local import is_remote
from slurm_dispatch.watch.say import say
from slurm_dispatch.watch.session import Session, open_to_look, silent
from slurm_dispatch.watch.turn import ask_finish, last_run, read_end

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurm_dispatch.watch.options import Options
    from slurm_dispatch.watch.place import Place
    from slurm_dispatch.watch.prepare import Prepared

PARENT_S = 1.0
"""Between two looks whether the script that started the helper still runs."""
ORPHAN_S = 5.0
"""For the last scan after that script has gone."""
STEPS_S = 20.0
"""Between two questions for the job's steps: shorter than --settle, so that a save that its killed writer left
half-way is not assumed whole before the end of the step is seen."""
ANSWER_S_MAX = 60.0
"""Without an answer of Slurm's for so long, nothing is assumed whole any more."""
POLL_S = 0.5
REMOTE_POLL_S_MAX = 5.0
"""The same, where each look loads a client and asks a store in S3; from look to look a fifth longer."""


class Beside:
    """Publishing without a command, until the training is over."""

    def __init__(
        self,
        place: Place,
        options: Options,
        prepared: Prepared,
        environment: Mapping[str, str],
        *,
        steps_s: float = STEPS_S,
    ) -> None:
        self._place = place
        self._options = options
        self._parent = os.getppid()
        self._hearing = Hearing()
        self._session = Session(place, options, prepared, environment)
        self._asking = place.slurm_job is not None
        self._steps_s = min(steps_s, max(5.0, options.settle_s / 3))
        self._steps_seen = False
        self._answered_at = time.monotonic()
        self._next_question = time.monotonic() + self._steps_s
        self._assuming = True
        self._give_up_at: float | None = None
        self._patient = False
        """Whether the last scan may take as long as an upload in it goes on: who asked for it waits for it."""
        self._linger_until: float | None = None
        self._status = 0

    def run(self) -> int:
        """Until something ends it; the exit status: 0, 74 or 80."""
        session = self._session
        try:
            while not session.over:
                self._wait()
                if self._give_up_at is not None:
                    if time.monotonic() >= self._last_until(self._give_up_at) and not session.over:
                        session.give_up("it took too long")
                    continue
                self._look_for_end()
            return self._finish()
        finally:
            self._hearing.close()

    def _wait(self) -> None:
        now = time.monotonic()
        due = min(self._session.due(), now + PARENT_S)
        if self._give_up_at is not None:
            due = min(due, self._last_until(self._give_up_at))
        watched = [self._hearing.descriptor, *self._session.descriptors()]
        readable = select.select(watched, [], [], max(0.0, due - now))[0]
        if self._hearing.descriptor in readable:
            for number in self._hearing.read():
                if number in STOP:
                    self._stop(number)
        self._session.handle(readable)

    def _last_until(self, given: float) -> float:
        return max(given, self._session.moving_until) if self._patient else given

    def _stop(self, number: int) -> None:
        if self._give_up_at is not None or self._linger_until is not None:
            return
        name = signal.Signals(number).name
        if self._asking and slurmconf.state(self._place.slurm_job or "") not in {None, "RUNNING"}:
            # Slurm is ending the job: the training may be writing its last save at this moment.
            say(f"{name}: the job ends; scanning until it has")
            self._session.tell("hurry")
            self._session.no_stall()
            self._linger_until = time.monotonic() + self._options.grace_s
            return
        self._last(f"{name}: the last scan", assume=False, wait_s=self._options.timeout_s)

    def _look_for_end(self) -> None:
        session, now = self._session, time.monotonic()
        if session.finish is not None:
            self._patient = True
            self._last(None, assume=session.finish == 0, wait_s=self._options.timeout_s + self._options.settle_s)
        elif session.not_resumed is not None:
            self._not_resumed()
        elif session.stalls():
            self._end_steps(silent(self._place, self._options))
        elif session.error is not None:
            say("ending because of the store error")
            session.give_up(session.error)
        elif os.getppid() != self._parent:
            self._last("what started the helper has gone: the last scan", assume=False, wait_s=ORPHAN_S)
        elif self._linger_until is not None and now >= self._linger_until:
            self._last(None, assume=False, wait_s=ORPHAN_S)
        elif self._asking and now >= self._next_question:
            self._ask_for_steps()

    def _ask_for_steps(self) -> None:
        found = slurmconf.steps(self._place.slurm_job or "", self._place.slurm_step)
        now = time.monotonic()
        self._next_question = now + self._steps_s
        if found is not None:
            self._answered_at = now
            if found:
                self._steps_seen = True
            elif self._steps_seen:
                self._last(
                    "no other step of the job is left: the last scan", assume=False, wait_s=self._options.timeout_s
                )
                return
        known = not self._steps_seen or now - self._answered_at < ANSWER_S_MAX
        if known != self._assuming:
            self._assuming = known
            self._session.tell("assume" if known else "prove")

    def _last(self, message: str | None, *, assume: bool, wait_s: float) -> None:
        if message is not None:
            say(message)
        self._session.no_stall()
        self._session.tell("assume" if assume else "prove")
        self._session.tell("last")
        self._give_up_at = time.monotonic() + wait_s

    def _not_resumed(self) -> None:
        session = self._session
        self._end_steps(
            f"did not resume: the training was given step {session.prepared.step} and its first save is of step "
            f"{session.not_resumed}; that is not published, and the job's steps are ended (--allow-step-back "
            "lifts this)"
        )

    def _end_steps(self, message: str) -> None:
        """End the training, which is not ours to signal, by the job's steps."""
        say(message)
        place = self._place
        if place.slurm_job is not None:
            for name, pause_s in (("TERM", self._options.grace_s), ("KILL", 0.0)):
                left = slurmconf.steps(place.slurm_job, place.slurm_step) or []
                for step in left:
                    slurmconf.signal_step(step, name)
                ends_at = time.monotonic() + (pause_s if left else 0.0)
                while time.monotonic() < ends_at and slurmconf.steps(place.slurm_job, place.slurm_step) != []:
                    time.sleep(POLL_S)
        self._last(None, assume=False, wait_s=ORPHAN_S)

    def _finish(self) -> int:
        session = self._session
        outcome: Outcome | None = None
        if session.not_resumed is not None:
            outcome, status = Outcome.NOT_RESUMED, NotResumedError.exit_code
        elif session.stalled:
            outcome, status = Outcome.STALLED, StalledError.exit_code
        elif session.error is not None:
            outcome, status = Outcome.STORE_ERROR, StoreError.exit_code
        else:
            status = 0
        session.end(status)
        if session.again and outcome is None:
            outcome = Outcome.UNFINISHED
        said = session.finish if session.finish is not None and session.finish >= 0 else None
        session.handing.ended(
            status=said, signal=None, outcome=None if outcome is None else outcome.value, step=session.step
        )
        return status


def finish(place: Place, *, status: int | None, timeout_s: float) -> int:
    """``--finish``: ask the helper beside for its last scan, wait for it, and give back its status.

    :raises NothingThereError: there is no helper beside in this execution.
    :raises ServiceAwayError: it was killed, or does not end.
    """

    def ask() -> bytes:
        root = open_to_look(place)
        try:
            run = last_run(root, place.attempt)
        except AbsentError:
            run = None
        if run is None or (run.runner is not None and not run.runner.beside):
            raise NothingThereError("there is no dispatch-watch --beside in this execution")
        if not run.ended:
            ask_finish(root, place.attempt, run.number, status)
        return str(run.number).encode("ascii")

    number = int(apart(ask, timeout_s, "the checkpoint root"))

    def answer() -> bytes:
        root = open_to_look(place)
        over, found = read_end(root, place.attempt, number)
        if over:
            return str(found or 0).encode("ascii")
        run = last_run(root, place.attempt)
        gone = run is not None and run.number == number and run.over
        # Its mark may have come between the two looks.
        if gone and not read_end(root, place.attempt, number)[0]:
            raise ServiceAwayError(
                "dispatch-watch --beside was killed; saves since its last line are not published",
                hint="look at dispatch ls, and publish the last save by hand with dispatch publish",
            )
        return b""

    ends_at = time.monotonic() + timeout_s
    pause_s = POLL_S
    while time.monotonic() < ends_at:
        text = apart(answer, timeout_s, "the checkpoint root")
        if text:
            return int(text)
        time.sleep(pause_s)
        if is_remote(place):
            pause_s = min(pause_s * 1.2, REMOTE_POLL_S_MAX)
    raise ServiceAwayError(f"dispatch-watch --beside did not end in {timeout_s:g} s")
