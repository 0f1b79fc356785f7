"""The scanning process: it alone touches the checkpoint root while the command runs.

It is a child of the supervisor, hears it through one pipe and answers through another, both in lines. When the
filesystem hangs only this process hangs; the supervisor kills it, goes on with the command, and starts another.
"""

from __future__ import annotations

import json
import os
import select
import signal
import time
from typing import TYPE_CHECKING, Any

from slurm_dispatch.errors import DispatchError, StoreError, TransientError
from slurm_dispatch.watch.apart import fork_deaf, leave, pipe
from slurm_dispatch.watch.glance import Glances, Pace
from slurm_dispatch.watch.publish import Publisher, Result
from slurm_dispatch.watch.say import say

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurm_dispatch.watch.shared import SharedSaves
    from slurm_dispatch.watch.tree import Tree

RETRY_S = 60.0
"""After a store error a new scan is tried so much later."""
HURRY_S = 1.0
"""The interval once the command was told to stop: the time until the kill may be short."""
FINISH_S = 2.0
"""Between two looks for the request of ``--finish``."""
LAST_TRIES = 3
LAST_PAUSE_S = 2.0
LAST_LOOKS = 4
"""The last scan looks at least so often at a save that is to settle, however slow the filesystem is: at the second
and the third look half of --settle counts each, if so long has passed."""
LINE_MAX = 1 << 16


class Serving:
    """The loop of the scanning process."""

    def __init__(
        self,
        publisher: Publisher | SharedSaves,
        control: int,
        events: int,
        *,
        retry_s: float = RETRY_S,
        finish_asked: Callable[[], tuple[bool, int | None]] | None = None,
        tree: Tree | None = None,
    ) -> None:
        """
        :param control: where the supervisor's words come from: ``assume``, ``prove``, ``hurry``, ``last``.
        :param events: where the answers go: one JSON object a line, each with ``e``.
        :param finish_asked: for a helper beside a training: whether ``--finish`` was called, and its status.
        :param tree: where glances between the scans show that something changed; ``None``: they would cost as much.
        """
        self._publisher = publisher
        self._control = control
        self._events = events
        self._retry_s = retry_s
        self._finish_asked = finish_asked
        self._interval_s = publisher.options.interval_s
        self._assume = True
        self._last = False
        self._begun = False
        self._changed = False
        self._buffer = b""
        self._error: str | None = None
        self._pace = Pace(remote=tree is None)
        self._glances = None if tree is None else Glances(tree)

    def run(self) -> None:
        """Scan until told to do the last scan, or until the supervisor has gone."""
        next_scan = time.monotonic()
        next_look = next_scan + FINISH_S
        while not self._last:
            if not self._publisher.alive():
                return  # another child of the supervisor that was killed, one that hangs, can hold the pipes open
            now = time.monotonic()
            if now >= next_scan:
                # Counted from the end of the scan: a slow filesystem is not asked without a pause.
                pause = self._scan()
                next_scan = time.monotonic() + pause
                continue
            if self._finish_asked is not None and now >= next_look:
                self._look_for_finish()
                next_look = now + FINISH_S
            until = next_scan if self._finish_asked is None else min(next_scan, next_look)
            if self._hear(max(0.0, until - time.monotonic())):
                next_scan = min(next_scan, time.monotonic() + self._interval_s)
            if self._changed:
                next_scan = time.monotonic()
        self._last_scan()
        if self._glances is not None:
            self._glances.close()

    def _look_for_finish(self) -> None:
        if self._finish_asked is None:
            return
        try:
            asked, status = self._finish_asked()
        except DispatchError:
            return  # the scan meets the same trouble and says it
        if asked:
            self._finish_asked = None
            self._tell(e="finish", status=status)

    def _last_scan(self) -> None:
        """Scan until nothing waits; a settled save may need time to be one, if it may count at all."""
        options = self._publisher.options
        ends_at = time.monotonic() + options.settle_s + LAST_PAUSE_S
        said = False
        tries = looks = 0
        while True:
            failed, result = self._scan_once()
            looks += 1
            if result.published:  # what another save took is not taken from this one's time
                ends_at = time.monotonic() + options.settle_s + LAST_PAUSE_S
            tries = tries + 1 if failed else 0
            if failed and tries >= LAST_TRIES:
                break
            in_time = time.monotonic() < ends_at or looks < LAST_LOOKS
            waits = result.settling > 0 and self._assume and in_time
            if not failed and not waits:
                break
            if waits and not said and options.settle_s > 5:
                said = True
                say(
                    f"waiting up to {options.settle_s:g} s to see that the last save does not change; --done "
                    "would save this time"
                )
            self._hear(LAST_PAUSE_S if failed else min(HURRY_S, max(0.05, options.settle_s / 4)))
        self._tell(e="last", error=self._error, waiting=result.waiting)

    def _scan(self) -> float:
        """One scan; for how long there is none then, unless a glance shows something."""
        used, began = time.process_time(), time.monotonic()
        failed, result = self._scan_once()
        if failed:
            return max(self._retry_s, self._interval_s)
        now = time.monotonic()
        marks = self._publisher.marks
        # What it took to keep a save says nothing of the next scan.
        cost_s = 0.0 if result.published else time.process_time() - used
        rest = self._pace.after(marks, now, cost_s=cost_s)
        if rest.lively:
            slow_s = 0.0 if result.published else now - began
            return min(self._interval_s, max(rest.pause_s, slow_s))
        if self._glances is not None:
            self._glances.begin(marks, rest)
        return self._interval_s

    def _scan_once(self) -> tuple[bool, Result]:
        """One scan, told before and after. Returns whether it failed, and its result."""
        if self._glances is not None:
            self._glances.end()
        self._changed = False
        self._tell(e="begin")
        result = Result()
        code = 0
        error: str | None = None
        try:
            if not self._begun:
                self._publisher.begin()
                self._begun = True
            result = self._publisher.scan(assume=self._assume)
        except DispatchError as trouble:
            error, code = trouble.line(), StoreError.exit_code
        if error is not None and error != self._error:
            say(f"nothing is published: {error}; tried again")
        if error is None and self._error is not None:
            say("publishing works again")
        self._error = error
        self._tell(
            e="end", error=error, code=code, published=result.published, not_resumed=result.not_resumed,
            waiting=result.waiting, active=result.active, removed=result.removed,
        )  # fmt: skip
        return error is not None, result

    def _hear(self, timeout_s: float) -> bool:
        """Take the supervisor's words; true if one asks for a scan sooner. Without a supervisor this process ends."""
        glances = [] if self._glances is None else [self._glances.descriptor]
        readable = select.select([self._control, *glances], [], [], timeout_s)[0]
        self._changed = bool(glances) and glances[0] in readable
        if self._control not in readable:
            return False
        part = os.read(self._control, 4096)
        if not part:
            os._exit(0)
        *words, self._buffer = (self._buffer + part).split(b"\n")
        for word in words:
            if word == b"assume":
                self._assume = True
            elif word == b"prove":
                self._assume = False
            elif word == b"hurry":
                self._assume = False
                self._publisher.hurried = True
                self._interval_s = min(self._interval_s, HURRY_S)
                self._retry_s = min(self._retry_s, HURRY_S)
            elif word == b"last":
                self._last = True
        return True

    def _tell(self, **event: Any) -> None:
        try:
            os.write(self._events, json.dumps(event).encode("utf-8") + b"\n")
        except BrokenPipeError:
            os._exit(0)  # the supervisor was killed: nothing is published after it


def tell_moving(events: int, silent_s: float) -> None:
    """In the scanning process: an upload goes on, and may say nothing for so long."""
    try:
        os.write(events, json.dumps({"e": "moves", "s": silent_s}).encode("utf-8") + b"\n")
    except BrokenPipeError:
        os._exit(0)


class Scanner:
    """The supervisor's side of one scanning process."""

    def __init__(self, serve: Callable[[int, int], None]) -> None:
        """Start it. ``serve`` gets the descriptors of control and events and works until it returns.

        :raises TransientError: there is no process to be had.
        """
        ends: list[int] = []
        try:
            ends += pipe()
            ends += pipe()
            self.pid = fork_deaf()
        except TransientError:
            for end in ends:
                os.close(end)
            raise
        control_in, self.control, self.events, events_out = ends
        if self.pid == 0:
            _serve_and_exit(serve, control_in, events_out, (self.control, self.events))
        os.close(control_in)
        os.close(events_out)
        os.set_blocking(self.control, False)
        self._buffer = b""
        self.scan_began: float | None = time.monotonic()
        """Monotonic; ``None`` between scans."""
        self.moving_until = 0.0
        """Monotonic; until then an upload in this scan may say nothing."""
        self.began_before: float | None = None
        """When the last scan that has ended began."""

    def send(self, *words: str) -> None:
        """Tell it something; one that has gone is noticed elsewhere."""
        for word in words:
            try:
                os.write(self.control, word.encode("ascii") + b"\n")
            except OSError:
                return

    def read(self) -> list[dict[str, Any]]:
        """The events that have come; ``{"e": "gone"}`` once the process has ended."""
        part = os.read(self.events, LINE_MAX)
        if not part:
            return [{"e": "gone"}]
        *lines, self._buffer = (self._buffer + part).split(b"\n")
        found: list[dict[str, Any]] = [json.loads(line) for line in lines]
        for event in found:
            if event["e"] == "begin":
                self.scan_began = time.monotonic()
            elif event["e"] == "moves":
                self.moving_until = max(self.moving_until, time.monotonic() + event["s"])
            elif event["e"] in {"end", "last"}:
                if event["e"] == "end":
                    self.began_before = self.scan_began
                self.scan_began = None
                self.moving_until = 0.0
        return found

    def due(self, timeout_s: float) -> float:
        """When the scan that is under way is given up (monotonic): without one, never."""
        if self.scan_began is None:
            return float("inf")
        return max(self.scan_began, self.moving_until) + timeout_s

    def close(self, *, kill: bool = False) -> None:
        """Let go of it; with ``kill`` end it, without waiting for one that cannot be ended."""
        if kill:
            try:
                os.kill(self.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        os.close(self.control)
        os.close(self.events)
        leave(self.pid, 1.0)


def _serve_and_exit(serve: Callable[[int, int], None], control: int, events: int, others: tuple[int, ...]) -> None:
    status = 70
    try:
        for descriptor in others:
            os.close(descriptor)
        # The command's output must end when the command does, also if this process hangs.
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(null, 1)
        serve(control, events)
        status = 0
    except DispatchError as error:
        say(f"nothing is published: {error.line()}; tried again")
    except Exception as error:  # noqa: BLE001 - the outermost frame of this process
        say(f"bug in the scanning process: {type(error).__name__}: {error}; please report it")
    finally:
        os._exit(status)
