"""A root with executions that publish and thin, people who remove and adopt, and what must hold after every call.

The code is the product's own, on a real filesystem; only the training, and the answer whether an execution runs, are
the world's. What must hold:

* after every call that changes something, the save that the greatest name in ``pub/`` says is there and whole;
* a command that starts has a whole save to resume from; one that is outranked already may have none, never half;
* gc renames nothing away that is latest, or has the greatest step, and nothing of an execution that runs;
* a publication never goes, nor ``best/``, nor what is no save.
"""

from __future__ import annotations

import os
import random
import shutil
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from slurm_dispatch.errors import DispatchError, TransientError
from slurm_dispatch.model.publication import Publication, parse_name
from slurm_dispatch.store import gc as collecting
from slurm_dispatch.store import outranked
from slurm_dispatch.store.choice import choose
from slurm_dispatch.store.fsck import fsck
from slurm_dispatch.store.gc import Known, Rules, Standing
from slurm_dispatch.store.keep import bring, keep
from slurm_dispatch.store.root import CheckpointRoot, open_root
from slurm_dispatch.store.thin import thin
from slurm_dispatch.store.tree import LEFTOVER
from slurm_dispatch.store.whole import Proof
from tests.store.gc_stage import KILL, REAL, Stage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from slurm_dispatch.store.choice import Choice

FILES = ("model", "index", "done")
"""Of a save: one that is linked, one that is copied, and the marker."""
EPOCH = 10 * 10**6
"""Between the epochs of two executions, so that adoptions fit between."""
HOT = 0.6
"""The chance at a hot call."""
SAVE = b"checkpoint-"


@dataclass(frozen=True)
class Helper:
    """An execution: how many saves each of its turns publishes; ``pause``: calls before it begins."""

    turns: tuple[int, ...]
    keep_own: int = 1
    keep_root: int = 1
    rotates: bool = True
    jump: int = 0
    """How much further its training is than that of others: a ghost's steps are greater."""


@dataclass(frozen=True)
class Hand:
    """A person who removes: so many passes; ``lag``: publications that the listing does not show yet."""

    passes: int = 1
    last: int = 1
    every: int | None = None
    lag: int = 0


@dataclass(frozen=True)
class Plan:
    """One run.

    :param adoptions: so many people who adopt the oldest save that is there.
    :param seed: of the order of the calls.
    :param switch: the chance that somebody else goes on at a call.
    :param kills: how many are killed.
    :param hot: a call at which somebody else goes on very often: what is under way there is seen half done.
    """

    helpers: tuple[Helper, ...]
    hands: tuple[Hand, ...]
    adoptions: int
    seed: int
    switch: float
    kills: int
    hot: str = ""


@dataclass
class World:
    """One run of a plan."""

    path: str
    plan: Plan
    stage: Stage | None = None
    standing: dict[str, Standing] = field(default_factory=dict)
    asked: dict[str, Standing] = field(default_factory=dict)
    history: list[str] = field(default_factory=list)
    lag: dict[str, int] = field(default_factory=dict)
    laid: set[str] = field(default_factory=set)
    taken: int = 0
    removed: int = 0

    def run(self) -> None:
        """Everybody at once; then the end, in peace."""
        rng = random.Random(self.plan.seed)
        actors: dict[str, Callable[[], None]] = {}
        for number, helper in enumerate(self.plan.helpers):
            actors[f"run{number}"] = self._helper(f"run{number}", (number + 1) * EPOCH, helper)
        for number, hand in enumerate(self.plan.hands):
            actors[f"hand{number}"] = self._hand(f"hand{number}", hand)
        for number in range(self.plan.adoptions):
            actors[f"adopt{number}"] = self._adopt(f"adopt{number}0adopted")
        kills = self.plan.kills

        def chosen(actor: str, call: str, alive: list[str]) -> str | None:
            nonlocal kills
            if rng.random() >= (HOT if call == self.plan.hot else self.plan.switch):
                return None
            if kills and rng.random() < 0.05:
                kills -= 1
                self.standing[actor] = Standing.OVER
                return KILL
            return rng.choice(alive)

        self.stage = Stage(actors, chosen, self._changed)
        try:
            self.stage.run()
        finally:
            self.stage = None
        self._end()

    # Who there is

    def _helper(self, attempt: str, epoch: int, helper: Helper) -> Callable[[], None]:
        def work() -> None:
            self.standing[attempt] = Standing.RUNNING
            root = open_root(self.path)
            try:
                root.make_execution(attempt)
                self._lay(attempt, b"best/checkpoint-1", "best")
                self._lay(attempt, b"logs", "logs")
                self.laid.add(attempt)
                for turn, count in enumerate(helper.turns):
                    self.standing[attempt] = Standing.RUNNING
                    self._turn(root, attempt, epoch, helper, turn, count)
                    self.standing[attempt] = Standing.ENDED
                    os.lstat(self.path)  # here others may go on
            except TransientError:
                pass  # the save that it wanted went again and again: it ends, as a helper does
            except DispatchError:
                if not self._outranked(epoch):
                    raise
            finally:
                self.standing[attempt] = Standing.OVER

        return work

    def _turn(
        self, root: CheckpointRoot, attempt: str, epoch: int, helper: Helper, turn: int, count: int
    ) -> None:
        choice = choose(root, attempt, epoch=epoch, again=turn > 0)
        self._starts(epoch, choice)
        step = (choice.step or 0) + (helper.jump if turn == 0 else 0)
        for _ in range(count):
            step += 1
            name = SAVE + b"%d" % step
            self._lay(attempt, name, str(step))
            kept = keep(root, attempt, os.path.join(self._folder(attempt), name), proof=Proof.PROVED)
            if kept is None:
                continue
            root.publish(epoch, step, kept, attempt=attempt)
            thin(root, attempt, epoch=epoch, keep_own=helper.keep_own, keep_root=helper.keep_root, is_save=is_save)
            if helper.rotates:
                with self._quietly():
                    shutil.rmtree(os.path.join(self._folder(attempt), name), ignore_errors=True)

    def _hand(self, actor: str, hand: Hand) -> Callable[[], None]:
        self.lag[actor] = hand.lag

        def standing(attempt: str) -> Known:
            self.asked[attempt] = self.standing.get(attempt, Standing.ENDED)
            return Known(self.asked[attempt], "the world")

        def work() -> None:
            for _ in range(hand.passes):
                root = open_root(self.path)
                if hand.lag:
                    root._names = list(self.history[: -hand.lag]).copy  # type: ignore[method-assign]
                found = collecting.plan(root, Rules(hand.last, hand.every), standing, is_save)
                _, trouble = outranked.remove_all(root, found.paths)
                assert not trouble, trouble
                assert not found.trouble, found.trouble

        return work

    def _adopt(self, attempt: str) -> Callable[[], None]:
        def work() -> None:
            root = open_root(self.path)
            listing = root.listing()
            for old in reversed(listing[1:]):
                if os.path.lexists(os.path.join(root.raw, old.path)):
                    try:
                        made = bring(root, old, attempt)
                        owner = parse_name(Publication(0, 0, made).name).attempt
                        assert owner is not None
                        root.publish(root.listing()[0].epoch + 10**6, old.step, made, attempt=owner)
                    except DispatchError:
                        pass  # it went: the person is told
                    return

        return work

    # What must hold

    def _starts(self, epoch: int, choice: Choice) -> None:
        """A command is about to start."""
        with self._quietly():
            if choice.resume is None:
                return
            found = self._content(os.fsencode(choice.resume))
            if found is None and not os.path.lexists(choice.resume) and self._outranked(epoch):
                return
            assert found == str(choice.step), f"starts from {choice.resume}: {found}, step {choice.step}"
            self.taken += 1

    def _changed(self, actor: str, call: str, path: bytes, target: bytes) -> None:
        """Something has changed: look at what latest names, and at what a person's hand does."""
        names = set(os.listdir(self._pub)) if os.path.isdir(self._pub) else set()
        assert names >= set(self.history), "a publication went"
        self.history += sorted(names - set(self.history))
        if not names:
            return
        latest = parse_name(max(names))
        found = self._content(os.path.join(os.fsencode(self.path), latest.path))
        assert found == str(latest.step), f"after {call} {path!r} by {actor}: latest {latest} is {found}"
        if actor.startswith("hand") and call == "rename" and LEFTOVER.fullmatch(os.path.basename(target)):
            self._check_hand(actor, os.path.relpath(path, os.fsencode(self.path)), names)

    def _check_hand(self, actor: str, path: bytes, names: set[str]) -> None:
        self.removed += 1
        attempt = os.fsdecode(path.split(b"/")[1])
        assert self.asked[attempt] in {Standing.OVER, Standing.ENDED}, f"{path!r} is of a run that goes on"
        assert b"/best" not in path
        greatest = outranked.greatest_step([parse_name(name) for name in names])
        assert greatest is not None
        if not self.lag[actor]:
            assert path != greatest.path, f"{path!r} has the greatest step"

    def _end(self) -> None:
        """After everybody: one more pass by hand gives the space back, and a second one finds nothing."""
        root = open_root(self.path)
        publications = root.listing()
        over = Known(Standing.OVER, "the world")
        for turn in range(2):
            found = collecting.plan(root, Rules(1), lambda _: over, is_save)
            there = [one for one in publications if os.path.lexists(os.path.join(root.raw, one.path))]
            removed, trouble = outranked.remove_all(root, found.paths)
            assert not trouble
            assert turn == 0 or not removed, f"a second pass removes {removed}"
            for latest in publications[:1]:
                assert self._content(os.path.join(root.raw, latest.path)) == str(latest.step), "the latest went"
        assert root.listing() == publications
        greatest = outranked.greatest_step(publications)
        # The very greatest may be a ghost's, and gone; then the greatest of those that are there stays.
        stay = {one.path for one in (*publications[:1], greatest, outranked.greatest_step(there)) if one is not None}
        newest = {one.attempt for one in publications if one.epoch == publications[0].epoch}
        named = {one.path for one in publications}
        for attempt in root.executions():
            own = b"exec/" + attempt.encode()
            for folder in (own, own + b"/kept", own + b"/resume"):
                assert not [name for name in root.entries(folder) if LEFTOVER.fullmatch(name)], "a leftover stays"
            kept = {own + b"/kept/" + name for name in root.entries(own + b"/kept")}
            loose = kept - named
            assert kept - loose <= stay, f"not given back: {kept - loose - stay}"
            epochs = outranked.epochs_of(root, outranked.by_attempt(publications))
            assert not loose or attempt in newest or epochs[attempt] is None or not publications or (
                (epochs[attempt] or 0) >= publications[0].epoch
            ), loose
            if attempt.startswith("run"):
                self._check_rest(attempt)
        if greatest is not None and not any(hand.lag for hand in self.plan.hands):
            self._greatest_is_there(root, greatest)
        report = fsck(root)
        # Whoever keeps a name for the second time, and does not come to its end (it is killed, or a ghost that is
        # thinned meanwhile), can leave its manifest where the first one went.
        twice = {f"run{number}" for number, helper in enumerate(self.plan.helpers) if len(helper.turns) > 1}
        odd = [
            fault for fault in report.faults
            if not ("is gone: it had" in fault and ", the latest," not in fault and fault.split("/")[1] in twice)
        ]  # fmt: skip
        assert not odd, odd
        assert not report.troubles

    def _check_rest(self, attempt: str) -> None:
        """What was laid before anything else, if the run came so far."""
        for name in (b"best/checkpoint-1", b"logs"):
            found = self._content(os.path.join(self._folder(attempt), name))
            assert found is None or found in {"best", "logs"}, f"{name!r}, which is no save, is {found}"
            assert found is not None or attempt not in self.laid, f"{name!r}, which is no save, went"

    def _greatest_is_there(self, root: CheckpointRoot, greatest: Publication) -> None:
        """Unless it is a ghost's, which the helper's own thinning may outrun."""
        if greatest.attempt in {one.attempt for one in root.listing()[:1]}:
            assert os.path.lexists(os.path.join(root.raw, greatest.path))

    # The rest

    @property
    def _pub(self) -> str:
        return os.path.join(self.path, "pub")

    def _folder(self, attempt: str) -> bytes:
        return os.path.join(os.fsencode(self.path), b"exec", attempt.encode())

    def _outranked(self, epoch: int) -> bool:
        return any(parse_name(name).epoch > epoch for name in self.history)

    def _lay(self, attempt: str, name: bytes, content: str) -> None:
        with self._quietly():
            folder = os.path.join(self._folder(attempt), name)
            shutil.rmtree(folder, ignore_errors=True)  # a saver that writes in place changes what is kept (C169)
            os.makedirs(folder)
            for file in FILES:
                with open(os.path.join(os.fsdecode(folder), file), "w", encoding="ascii") as stream:
                    stream.write(_inside(file, content))

    def _content(self, path: bytes) -> str | None:
        """What a whole save says; ``None`` for one that is not there; ``half`` for one that is not whole."""
        texts = []
        try:
            REAL["lstat"](path)
        except FileNotFoundError:
            return None
        for file in FILES:
            try:
                with open(os.path.join(os.fsdecode(path), file), encoding="ascii") as stream:
                    texts.append(stream.read())
            except FileNotFoundError:
                return "half"
        said = texts[1]
        return said if texts == [_inside(file, said) for file in FILES] else "mixed"

    @contextmanager
    def _quietly(self) -> Iterator[None]:
        """Calls of the world's own are no steps."""
        stage = self.stage
        if stage is not None:
            stage.free += 1
        try:
            yield
        finally:
            if stage is not None:
                stage.free -= 1


def _inside(file: str, content: str) -> str:
    return "model " * 4 + content if file == "model" else content


def is_save(name: bytes) -> bool:
    """The pattern of the job."""
    return name.startswith(SAVE)


__all__ = ["Hand", "Helper", "Plan", "World"]
