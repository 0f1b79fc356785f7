"""From candidates to publications: whole, kept, published, thinned; and whether the training resumed at all.

The law of this module: *a save is published only when it is whole, under a step that is certain, greater than
what this execution has published, and only once the execution has shown that it resumed.*
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from slurm_dispatch.errors import AbsentError, BadDataError, LateError, StoreError, TransientError, show
from slurm_dispatch.savers.layout import State
from slurm_dispatch.store.manifest import manifest_of
from slurm_dispatch.store.root import CheckpointRoot
from slurm_dispatch.store.thin import thin
from slurm_dispatch.store.whole import Proof, Settling
from slurm_dispatch.watch.glance import Marks
from slurm_dispatch.watch.judge import Judge, Opinion
from slurm_dispatch.watch.keeping import Linked
from slurm_dispatch.watch.say import SaidOnce, say
from slurm_dispatch.watch.scanning import Candidate
from slurm_dispatch.watch.tree import DISK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from slurm_dispatch.store.roots import Root
    from slurm_dispatch.store.whole import Entry, Look
    from slurm_dispatch.watch.keeping import Keeping
    from slurm_dispatch.watch.options import Options
    from slurm_dispatch.watch.place import Place
    from slurm_dispatch.watch.scanning import Listing
    from slurm_dispatch.watch.tree import Tree

NOTHING_S = 1800.0
"""After so long without a save the names that are there are said, once."""
LOOKS_MAX = 64
"""Saves that are not whole yet and are looked at in one scan: the newest."""
LEFT_LOOKS_MAX = 4
"""Saves of an earlier turn that are looked at in one scan until the training has resumed: the oldest."""
TRIES = 3
"""A scan that meets ESTALE or the like is tried so often at once; then it is a failed scan."""
PAUSE_S = 0.2
GLANCED_MAX = 8
"""Saves that are not whole yet and are glanced at between two scans: the newest."""


_Whole = tuple[Candidate, Opinion, Proof]


@dataclass(slots=True)
class Result:
    """What one scan did.

    :ivar published: steps, rising; those too that an earlier scan published before it failed.
    :ivar not_resumed: the step of a first save that is smaller than the one resumed from.
    :ivar waiting: how many saves are there that are not known to be whole.
    :ivar settling: how many of them may yet be assumed whole.
    :ivar removed: outranked saves that were removed, relative to the root, printable.
    :ivar active: in a shared checkpoint: a save is new or was written again, whatever its step.
    """

    published: list[int] = field(default_factory=list)
    not_resumed: int | None = None
    waiting: int = 0
    settling: int = 0
    removed: list[str] = field(default_factory=list)
    active: bool = False


class Publisher:
    """Publishes for one execution. Lives in the scanning process; :meth:`scan` is all that it does.

    :ivar marks: what the last scan saw that changes when there is something new.
    """

    def __init__(
        self,
        root: Root,
        place: Place,
        options: Options,
        *,
        keeping: Keeping | None = None,
        directory: str | None = None,
        tree: Tree = DISK,
        resumed_step: int | None,
        resumed: str | None = None,
        known: Mapping[str, str] | Iterable[str] = (),
        left_settles: bool = False,
        links: bool = True,
        clock: Callable[[], float] = time.monotonic,
        alive: Callable[[], bool] = lambda: True,
        nothing_s: float = NOTHING_S,
    ) -> None:
        """
        :param keeping: how a save is made the execution's own; links in a root that is a folder, unless given.
        :param directory: where the command saves; unless given, the execution's folder in the root.
        :param tree: where that is looked at.
        :param resumed_step: the step that the command was given, ``None`` on a first start.
        :param resumed: the save that it was given.
        :param known: saves that were there before this run, see :attr:`Prepared.known`: as long as they are what
            they were, they do not show that it resumed, and are published only if they are proved. Paths without
            digests are taken to be what they were.
        :param left_settles: see :attr:`Prepared.left_settles`.
        :param links: whether saves can be kept by links; otherwise the saver's own path is published.
        :param alive: whether the supervisor still lives: nothing is published after it.
        """
        self.root = root
        self.place = place
        self.options = options
        self.resumed_step = resumed_step
        self.directory = root.execution(place.attempt) if directory is None else directory
        if keeping is None:
            assert isinstance(root, CheckpointRoot)
            keeping = Linked(root, place.attempt, links=links)
        self.keeping = keeping
        self._clock = clock
        self.alive = alive
        self.marks = Marks()
        self._nothing_s = nothing_s
        self._began = clock()
        self._settling = Settling(options.settle_s)
        self._judge = Judge(options, resumed=resumed, say=say, tree=tree)
        self._once = SaidOnce()
        self._known = known if isinstance(known, dict) else dict.fromkeys(known, "")
        self._left_settles = left_settles
        self._proved_resume = resumed_step is None or options.allow_step_back
        self._own: list[tuple[int, str]] = []
        """What this execution has published: step, and the name of the save."""
        self._seen_any = False
        self._unreported: list[int] = []
        self._removed: list[str] = []
        self._unthinned = False
        self.hurried = False
        """The command was told to stop, and this may be killed soon: where thinning takes long there is none."""

    def begin(self) -> None:
        """Look at what this execution has published already.

        :raises StoreError, BadDataError: the root could not be read.
        """
        self.keeping.begin()
        self._own = [
            (one.step, os.fsdecode(os.path.basename(one.path)))
            for one in self.root.listing()
            if one.epoch == self.place.epoch and one.attempt == self.place.attempt
        ]

    @property
    def _step(self) -> int | None:
        """The greatest number of a save that this execution has published: its step, unless names only count."""
        if not self._judge.counted:
            return max((step for step, _ in self._own), default=None)
        numbers = [self._judge.number_of(name) for _, name in self._own]
        return max((number for number in numbers if number is not None), default=None)

    def _next_step(self) -> int:
        """The step of the next save where its name has none: above all that the root has."""
        steps = [one.step for one in self.root.listing()]
        return 1 + max([*steps, *(step for step, _ in self._own), self.resumed_step or 0], default=0)

    def scan(self, *, assume: bool) -> Result:
        """One scan.

        :param assume: whether a save that is only settled counts.
        :raises StoreError: the store failed; the next scan does what this one did not.
        """
        for left in reversed(range(TRIES)):
            try:
                result = self._scan(assume)
            except (AbsentError, TransientError) as error:
                if left == 0 or isinstance(error, LateError):
                    raise
                time.sleep(PAUSE_S)
                continue
            if self._unthinned and not self.hurried:
                self._unthinned = False
                self._thin()
            result.published, self._unreported = self._unreported, []
            result.removed, self._removed = self._removed, []
            return result
        raise AssertionError

    def _scan(self, assume: bool) -> Result:
        listing = self._judge.listing(self.directory)
        for path, trouble in listing.troubles:
            name = show(path if path == self.directory else os.path.relpath(path, self.directory))
            self._once(f"{name} is not published: {trouble}")
        result = Result()
        whole: list[_Whole] = []
        waiting: dict[str, tuple[Entry, ...]] = {}
        looked_at = self._worth_a_look(listing)
        self._settling.retain(one.path for one in looked_at)
        for candidate in looked_at:
            opinion = self._judge.opinion(candidate)
            if opinion is None:
                continue
            self._seen_any = True
            left = self._is_left(candidate, opinion.seen)
            proof = self._proof(candidate, opinion, assume and (self._left_settles or not left))
            if proof is None:
                waiting[candidate.path] = opinion.seen.entries
            if proof is None and left and not self._left_settles:
                continue
            if proof is None:
                result.waiting += 1
                result.settling += self._may_settle(opinion)
            else:
                whole.append((candidate, opinion, proof))
        self._say_nothing(listing)
        if self._check_resumed(whole, result):
            for candidate, opinion, proof in [one for one in whole if self._may(one[0])][-self.options.keep_own :]:
                if not self.alive():
                    return result
                if not self._publish(candidate, opinion, proof):
                    waiting[candidate.path] = opinion.seen.entries
                    result.waiting += 1
                    result.settling += 1
        self.marks = Marks(tuple(self._judge.stamps.items()), tuple(waiting.items())[-GLANCED_MAX:])
        return result

    def _may(self, candidate: Candidate) -> bool:
        """Whether its step may be published: above this execution's own, and never below the one resumed from."""
        step = self._step
        if step is not None and candidate.step <= step:
            return False
        floor = self.resumed_step
        return floor is None or self._judge.counted or self.options.allow_step_back or candidate.step >= floor

    def _worth_a_look(self, listing: Listing) -> list[Candidate]:
        """Those of a greater step; and those that may be the first of this turn, which must show that it resumed."""
        proved, step = self._proved_resume or self._judge.counted, self._step
        new = [
            one
            for one in listing.found
            if step is None or one.step > step or (not proved and one.path not in self._known)
        ]
        # A turn that did not resume writes the names of the turn before again, from the smallest step on.
        fresh = set(new)
        left = [] if proved else [one for one in listing.found if one not in fresh]
        return sorted([*left[:LEFT_LOOKS_MAX], *new[-LOOKS_MAX:]])

    def _is_left(self, candidate: Candidate, seen: Look) -> bool:
        """Whether it is what an earlier turn left: a saver that was killed leaves a torn save that never changes."""
        digest = self._known.get(candidate.path)
        return digest is not None and digest in {"", manifest_of(seen, Proof.ASSUMED).digest}

    def _proof(self, candidate: Candidate, opinion: Opinion, assume: bool) -> Proof | None:
        name = show(os.path.basename(candidate.path))
        if opinion.wrong is not None and opinion.state is State.WHOLE:
            self._once(f"{name} is not published: {opinion.wrong}")
            return None
        if opinion.state is State.WHOLE:
            return Proof.PROVED
        # Always asked, so that the time counts from the first look even while it would not count.
        settled = self._settling.settled(candidate.path, opinion.seen, self._clock())
        if not settled:
            return None
        if opinion.state is State.TORN:
            self._once(f"{name} does not change and is not published: {opinion.why}")
            return None
        if not opinion.may_settle and not self.options.done:
            self._once(f"{name} does not change and is not published: {opinion.why}")
            return None
        if self.options.done:
            self._once(f"{name} does not change and has no {self.options.done[0]}: not published without it")
            return None
        return Proof.ASSUMED if assume and opinion.wrong is None else None

    def _may_settle(self, opinion: Opinion) -> bool:
        """Whether it may be assumed whole later. Without a layout what is torn may, too: nobody knows its end."""
        if self.options.done or opinion.wrong is not None or not opinion.may_settle:
            return False
        return opinion.state is not State.TORN or self._judge.layout is None

    def _check_resumed(self, whole: list[_Whole], result: Result) -> bool:
        """False if the training did not resume, or has not shown yet that it did."""
        if self._proved_resume or self.resumed_step is None or self._judge.counted:
            return True
        first = next((one for one, opinion, _ in whole if not self._is_left(one, opinion.seen)), None)
        if first is None:
            return True  # nothing new yet; of what an earlier turn left, what resumed may be published
        if first.step < self.resumed_step:
            result.not_resumed = first.step
            return False
        self._proved_resume = True
        return True

    def _publish(self, candidate: Candidate, opinion: Opinion, proof: Proof) -> bool:
        options, attempt, seen = self.options, self.place.attempt, opinion.seen
        name = show(os.path.relpath(candidate.path, self.directory))
        try:
            copy = options.copy or (lambda path: opinion.copied(os.fsdecode(path)))
            path = self.keeping.keep(candidate.path, seen, proof, copy=copy)
            if path is None:
                return False
            step = self._count() if self._judge.counted else candidate.step
            if not self.alive():
                return False
            self.root.publish(self.place.epoch, step, path, attempt=attempt, sync=options.sync)
        except BadDataError as error:
            self._once(f"{name} is not published: {error.line()}")
            return False
        self._settling.forget(candidate.path)
        assumed = "" if proof is Proof.PROVED else f", assumed whole after {options.settle_s:g} s without a change"
        self._published(step, os.path.basename(candidate.path), f"{name}{assumed}")
        return True

    def _count(self) -> int:
        self._once(
            "the numbers in the saves' names begin anew in each run: the steps that are published are a count, and "
            "whether the command resumed cannot be seen"
        )
        return self._next_step()

    def _published(self, step: int, name: str, text: str) -> None:
        self._own.append((step, name))
        self._unreported.append(step)
        say(f"published step {step}: {text}")
        if self.root.takes_links:
            self._thin()  # at once: a disk has room for so many saves
        else:
            self._unthinned = True  # once all is published that can be: in S3 it takes its time

    def _thin(self) -> None:
        if not self.options.thin:
            return
        try:
            done = thin(
                self.root,
                self.place.attempt,
                epoch=self.place.epoch,
                keep_own=self.options.keep_own,
                keep_root=self.options.keep_root,
                is_save=self._is_save(),
            )
        except (BadDataError, StoreError) as error:
            self._once(f"thinning: {error}")  # it is never needed, and the save is published
            return
        self._removed += map(show, done.removed)
        for trouble in done.trouble:
            self._once(f"thinning: {trouble}")

    def _is_save(self) -> Callable[[bytes], bool] | None:
        return self._judge.is_save()

    def _say_nothing(self, listing: Listing) -> None:
        if self._clock() - self._began < self._nothing_s:
            return
        minutes = f"{self._nothing_s / 60:g} minutes"
        if not self._seen_any and not listing.found:
            names = ", ".join(show(name) for name in listing.names) or "nothing"
            self._once(
                f"no name matched {self._judge.text} in {minutes}; seen in {show(self.directory)}: {names}",
                key="nothing",
            )
        elif not self._own:
            self._once(
                f"saves are there and none was known to be whole in {minutes}; name the file that the saver "
                "writes last with --done, or lower --settle",
                key="nothing",
            )
