"""Publishing as the supervisor sees it: the scanning process, what it told, and what is handed on."""

from __future__ import annotations

import functools
import os
import time
from typing import TYPE_CHECKING, Any

from slurm_dispatch.errors import DispatchError, TransientError
from slurm_dispatch.store.root import CheckpointRoot, open_root
from slurm_dispatch.watch.apart import apart
from slurm_dispatch.watch.handing import NODE_FOLDER, RECORD, HandingOn
from slurm_dispatch.watch.keeping import Linked, Uploaded, Written
from slurm_dispatch.watch.local import is_remote, open_remote
from slurm_dispatch.watch.publish import Publisher
from slurm_dispatch.watch.say import say
from slurm_dispatch.watch.scanner import RETRY_S, Scanner, Serving, tell_moving
from slurm_dispatch.watch.shared import SharedSaves
from slurm_dispatch.watch.single import SinglePublisher
from slurm_dispatch.watch.stall import Silence
from slurm_dispatch.watch.tree import DISK
from slurm_dispatch.watch.turn import end_run, read_again, read_finish

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from slurm_dispatch.s3.root import S3Root
    from slurm_dispatch.watch.keeping import Keeping
    from slurm_dispatch.watch.options import Options
    from slurm_dispatch.watch.place import Place
    from slurm_dispatch.watch.prepare import Prepared
    from slurm_dispatch.watch.tree import Tree

RESTART_S = 5.0
"""After the scanning process was killed a new one starts so much later, and after :data:`RETRY_S` if it hung."""
RESTARTS_MAX = 1000
END_S = 5.0
"""For leaving the mark of a run that has ended."""
REMOTE_END_S = 30.0
"""The same in S3, where the client is loaded first."""
SLOW_S = 60.0
"""A scan that takes longer sees nothing meanwhile: for ``--stall`` the rest of its time does not count."""


class Session:
    """Publishing of one run. Touches no filesystem itself.

    :ivar step: the last step that this run published.
    :ivar error: one line, while the store fails.
    :ivar failed: whether the store ever failed in this run.
    :ivar not_resumed: the step of the first save, if the training did not resume.
    :ivar finish: the status given to ``--finish`` (``-1`` without one), once it was called.
    :ivar again: ``dispatch again`` was said in this run; known after :meth:`end`.
    :ivar stalled: the command was silent for longer than the job allows.
    :ivar over: the last scan is done, or there is no scanning at all.
    """

    def __init__(self, place: Place, options: Options, prepared: Prepared, environment: Mapping[str, str]) -> None:
        self.place = place
        self.options = options
        self.prepared = prepared
        self.step: int | None = None
        self.error: str | None = None
        self.failed = False
        self.not_resumed: int | None = None
        self.finish: int | None = None
        self.again = False
        self.stalled = False
        self.over = prepared.run is None
        self._words: list[str] = []
        self._asked_last = False
        self._restarts = 0
        self._restart_at: float | None = None
        self.handing = HandingOn(
            None if prepared.run is None else environment.get(RECORD),
            place.job,
            place.attempt,
            place.epoch,
            prepared.step,
            node_folder=None if prepared.run is None else environment.get(NODE_FOLDER),
        )
        self._looked_from: float | None = None
        self._moved_at = 0.0
        self._silence: Silence | None = None
        if options.stall_s and not self.over:
            self._silence = Silence(options.stall_s)
        self._scanner: Scanner | None = None if self.over else Scanner(self._serve(os.getpid()))

    def descriptors(self) -> list[int]:
        """What to wait for."""
        found = [] if self._scanner is None else [self._scanner.events]
        if self.handing.running is not None and not self.handing.running.done:
            found.append(self.handing.running.descriptor)
        return found

    def due(self) -> float:
        """When :meth:`handle` has something to do though nothing is readable (monotonic)."""
        times = [float("inf")]
        if self._scanner is not None:
            times.append(self._scanner.due(self.options.timeout_s))
        if self._restart_at is not None:
            times.append(self._restart_at)
        if self.handing.running is not None:
            times.append(self.handing.running.ends_at)
        if self._silence is not None:
            times.append(self._silence.due())
        return min(times)

    @property
    def moving_until(self) -> float:
        """Until when an upload that goes on may say nothing, or what comes after one that has ended (monotonic); 0
        without one."""
        scanner = self._scanner
        until = self._moved_at if scanner is None else max(self._moved_at, scanner.moving_until)
        return until + self.options.timeout_s if until else 0.0

    @property
    def uploading(self) -> bool:
        """Whether an upload goes on now."""
        return self._scanner is not None and self._scanner.moving_until > 0

    def begins(self) -> None:
        """The command starts now: from here on ``--stall`` counts."""
        if self._silence is not None:
            self._silence.broken()

    def stalls(self) -> bool:
        """Whether ``--stall`` is over; true once."""
        if self._silence is None:
            return False
        scanner = self._scanner
        slow = scanner is None or (scanner.scan_began is not None and time.monotonic() > scanner.scan_began + SLOW_S)
        if not self._silence.over(seen=self.error is None and not slow, looked_from=self._looked_from):
            return False
        self.no_stall()
        self.stalled = True
        return True

    def no_stall(self) -> None:
        """The command is told to end, or has ended: its silence says nothing any more."""
        self._silence = None

    def handle(self, readable: list[int]) -> None:
        """Take events, give up what hangs, start again what died."""
        now = time.monotonic()
        running = self.handing.running
        if running is not None and running.descriptor in readable:
            running.step()
        self.handing.poll(now)
        scanner = self._scanner
        if scanner is not None and scanner.events in readable:
            for event in scanner.read():
                self._take(event, now)
        scanner = self._scanner
        if scanner is not None and now >= scanner.due(self.options.timeout_s):
            self._fail(f"a scan of {self.prepared.directory} did not end in {self.options.timeout_s:g} s")
            say(f"nothing is published: {self.error}; tried again")
            self._drop(now, RETRY_S)
        if self._restart_at is not None and now >= self._restart_at:
            self._start_again(now)

    def _start_again(self, now: float) -> None:
        self._restart_at = None
        try:
            self._scanner = Scanner(self._serve(os.getpid()))
        except TransientError as error:
            self._restarts += 1
            if self.error != str(error):
                say(f"nothing is published: {error}; tried again")
            self._fail(str(error))
            self._drop(now, RESTART_S)
            self._end_without_restarts()
            return
        self._scanner.send(*self._words)

    def tell(self, word: str) -> None:
        """``assume``, ``prove``, ``hurry`` or ``last``; a scanning process that starts later hears it too."""
        self._words.append(word)
        if word == "last":
            self._asked_last = True
            if self._scanner is None and not self.over:
                self._restart_at = time.monotonic() if self._restarts < RESTARTS_MAX else None
                self.over = self._restart_at is None
        if self._scanner is not None:
            self._scanner.send(word)

    def give_up(self, why: str) -> None:
        """The last scan does not end: stop waiting for it."""
        self._fail(why)
        say(f"the last scan is given up: {why}")
        if self._scanner is not None:
            self._scanner.close(kill=True)
            self._scanner = None
        self.over = True

    def end(self, status: int) -> None:
        """Leave the mark that nothing is published any more, and look whether ``dispatch again`` was said."""
        place, number = self.place, self.prepared.run
        if self._scanner is not None:
            self._scanner.close(kill=True)
            self._scanner = None
        if number is None:
            return

        def work() -> bytes:
            root = open_to_look(place)
            end_run(root, place.attempt, number, status)
            return b"again" if read_again(root, place.attempt, number) else b""

        try:
            self.again = apart(work, REMOTE_END_S if is_remote(place) else END_S, "the checkpoint root") == b"again"
        except DispatchError:
            pass  # the next run sees that this process is gone

    def _serve(self, parent: int) -> Callable[[int, int], None]:
        place, options, prepared = self.place, self.options, self.prepared
        number = prepared.run

        def serve(control: int, events: int) -> None:
            root = open_to_look(place)
            if not isinstance(root, CheckpointRoot):
                root.take_as_proved(place.attempt)  # before this run was claimed

            def alive() -> bool:
                return os.getppid() == parent

            tree, keeping = _hands(root, place, prepared, functools.partial(tell_moving, events))
            publisher: Publisher | SharedSaves
            if place.shared:
                publisher = SharedSaves(root.path, options, step=prepared.step, alive=alive)
            else:
                publisher = (Publisher if options.single is None else SinglePublisher)(
                    root,
                    place,
                    options,
                    keeping=keeping,
                    tree=tree,
                    directory=prepared.directory,
                    resumed_step=prepared.step,
                    resumed=prepared.resume,
                    known=prepared.known,
                    left_settles=prepared.left_settles,
                    alive=alive,
                )
            finish = None
            if options.beside and number is not None:
                run = number

                def finish() -> tuple[bool, int | None]:
                    return read_finish(root, place.attempt, run)

            glanced = DISK if tree is DISK and not place.shared else None
            Serving(publisher, control, events, finish_asked=finish, tree=glanced).run()

        return serve

    def _take(self, event: dict[str, Any], now: float) -> None:
        kind = event["e"]
        if kind == "end":
            self._end_of_scan(event, now)
        elif kind == "moves":
            self._moved_at = now
        elif kind == "finish":
            self.finish = -1 if event["status"] is None else int(event["status"])
        elif kind == "last":
            self.over = True
            self._drop(now, None)
        elif kind == "gone":
            if self._asked_last and self.over:
                return
            self._restarts += 1
            self._fail("the scanning process was killed")
            if self._restarts <= RESTARTS_MAX:
                say(f"{self.error}; it starts again")
            self._drop(now, RESTART_S if not self._asked_last else 0.0)
            self._end_without_restarts()

    def _end_without_restarts(self) -> None:
        if self._restarts > RESTARTS_MAX or (self._asked_last and self._restarts > 3):
            self._restart_at = None
            self.over = True

    def _end_of_scan(self, event: dict[str, Any], now: float) -> None:
        if event["error"] is None:
            self.error = None
            self._looked_from = self._scanner.began_before if self._scanner is not None else None
        else:
            self._fail(event["error"])
        self.handing.thinned(event["removed"])
        for step in event["published"]:
            self.step = step
            self.handing.progress(step, now)
        if self._silence is not None and (event["published"] or event["active"]):
            self._silence.broken()
        if event["not_resumed"] is not None and self.not_resumed is None:
            self.not_resumed = event["not_resumed"]

    def _fail(self, error: str) -> None:
        self.error = error
        self.failed = True

    def _drop(self, now: float, restart_s: float | None) -> None:
        if self._scanner is not None:
            self._scanner.close(kill=restart_s is not None)
            self._scanner = None
        self._restart_at = None if restart_s is None else now + restart_s


def open_to_look(place: Place) -> CheckpointRoot | S3Root:
    """The root as it is, neither made nor claimed."""
    return open_remote(place) if is_remote(place) else open_root(place.root)


def _hands(
    root: CheckpointRoot | S3Root, place: Place, prepared: Prepared, moving: Callable[[float], None]
) -> tuple[Tree, Keeping]:
    """Where the saves are looked at, and how one is made the execution's own."""
    if isinstance(root, CheckpointRoot):
        return DISK, Linked(root, place.attempt, links=prepared.links)
    if place.local is not None:
        return DISK, Uploaded(root, place.attempt, prepared.directory, say=say, moving=moving)
    from slurm_dispatch.watch.objects import Objects

    tree = Objects(root, place.attempt)
    return tree, Written(root, place.attempt, tree)


def silent(place: Place, options: Options) -> str:
    """The line that says why the command is ended."""
    what = "no save was written" if place.shared else "nothing was published"
    return f"{what} for {options.stall_s:g} s (--stall): the command is ended"
