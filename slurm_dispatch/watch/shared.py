"""A shared checkpoint: the command works in the root itself, as it would without us, and nothing is published.

Two executions in one folder can spoil each other's saves, so no second one is started until a person says so; what
is left for the helper is to claim the root, to tell the job's record of progress, and to see a stall. Both come from
the names of the saves.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from slurm_dispatch.errors import StoreError, show
from slurm_dispatch.store.whole import look
from slurm_dispatch.watch.glance import Marks
from slurm_dispatch.watch.judge import Judge
from slurm_dispatch.watch.pattern import RESERVED
from slurm_dispatch.watch.prepare import ROUNDS, Prepared, open_place, other_helper, wait_for_first
from slurm_dispatch.watch.publish import NOTHING_S, Result
from slurm_dispatch.watch.say import SaidOnce, say
from slurm_dispatch.watch.scanning import Candidate
from slurm_dispatch.watch.turn import Runner, claim_run, last_run

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurm_dispatch.store.root import CheckpointRoot
    from slurm_dispatch.watch.options import Options
    from slurm_dispatch.watch.place import Place
    from slurm_dispatch.watch.scanning import Listing

OURS = RESERVED | {"own", "exec", "pub"}
"""Names in a root that are never a save of the command's."""
MARKS_MAX = 1000
"""Saves of which it is seen when they are written again: the newest."""


def prepare_shared(place: Place, *, runner: Runner, judge: Judge) -> Prepared:
    """Everything of the first process before the command of a shared job: whose root it is, and which process tells.

    :returns: :attr:`Prepared.step` is the greatest of the saves that are there: what is above it is progress.
    :raises DispatchError: nothing must be started.
    """
    root = open_place(place)
    for _ in range(ROUNDS):
        before = last_run(root, place.attempt)
        if before is not None and not before.over:
            return Prepared(root.path, None, None, None, other=other_helper(before))
        step = max((one.step for one in judge.listing(root.path, reserved=OURS).found), default=None)
        number = 1 if before is None else before.number + 1
        if claim_run(root, place.attempt, number, runner):
            return Prepared(root.path, None, step, number)
    raise StoreError(
        f"{ROUNDS} other helpers began in this execution meanwhile", hint="start one dispatch-watch a step"
    )


def follow_shared(place: Place, *, supervisor: int, timeout_s: float) -> Prepared:
    """Every other rank: wait until the first one has claimed the root, since it may be another job's.

    :raises TransientError: it has not after ``timeout_s`` seconds.
    """

    def claimed(root: CheckpointRoot) -> Prepared | None:
        return None if last_run(root, place.attempt) is None else Prepared(root.path, None, None, None)

    return wait_for_first(place, claimed, "rank 0", supervisor=supervisor, timeout_s=timeout_s)


class SharedSaves:
    """Looks at the names of the saves in the root; stands where :class:`Publisher` does for an isolated job."""

    def __init__(
        self,
        directory: str,
        options: Options,
        *,
        step: int | None,
        alive: Callable[[], bool] = lambda: True,
        clock: Callable[[], float] = time.monotonic,
        nothing_s: float = NOTHING_S,
    ) -> None:
        """
        :param directory: the root.
        :param step: the greatest step that was there before the command: progress is what is above it.
        """
        self.directory = directory
        self.options = options
        self.alive = alive
        self.hurried = False
        self._clock = clock
        self._nothing_s = nothing_s
        self._began = clock()
        self._step = step
        self._marks: dict[str, tuple[int, int]] | None = None
        self.marks = Marks()
        """Always the same: progress is not in a hurry."""
        self._judge = Judge(options, say=say)
        self._once = SaidOnce()

    def begin(self) -> None:
        """Nothing is known of before."""

    def scan(self, *, assume: bool) -> Result:
        """One look. A save that is new or was written again breaks the silence; a greater step is progress.

        :param assume: without meaning here: names are all there is. With ``--done``, a save counts once it has them.
        :raises StoreError: the root could not be listed.
        """
        listing = self._judge.listing(self.directory, reserved=OURS)
        for path, trouble in listing.troubles:
            self._once(f"{show(os.path.relpath(path, self.directory))} is not counted as a save: {trouble}")
        single = self.options.single
        saves = [one for one in listing.found if self._counts(one)] if single is None else self._single(single)
        marks = {one.path: mark for one in saves[-MARKS_MAX:] if (mark := _mark(one.path)) is not None}
        marks.update((one.path, (0, 0)) for one in saves[:-MARKS_MAX])
        result = Result()
        if self._marks is not None:
            result.active = any(self._marks.get(path) != mark for path, mark in marks.items())
        self._marks = marks
        if single is not None:
            return result  # it has no step
        result.published = [one.step for one in saves if self._step is None or one.step > self._step]
        if result.published:
            self._step = result.published[-1]
        self._say_nothing(listing)
        return result

    def _single(self, name: str) -> list[Candidate]:
        path = os.path.join(self.directory, name)
        return [Candidate(0, path)] if os.path.isfile(path) else []

    def _counts(self, candidate: Candidate) -> bool:
        if not self.options.done or (self._marks is not None and candidate.path in self._marks):
            return True
        seen = look(candidate.path, self.options.done, read=False)
        return seen is not None and seen.proved

    def _say_nothing(self, listing: Listing) -> None:
        if self._step is None and not listing.found and self._clock() - self._began >= self._nothing_s:
            names = ", ".join(show(name) for name in listing.names) or "nothing"
            self._once(
                f"no name matched {self._judge.text} in {self._nothing_s / 60:g} minutes; seen in "
                f"{show(self.directory)}: {names}",
                key="nothing",
            )


def _mark(path: str) -> tuple[int, int] | None:
    """What changes when a save is written again: its inode, and when it was changed."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns
