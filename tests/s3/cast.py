"""Who there is in a :class:`tests.s3.world.World`: helpers, ranks that follow, people who remove, and readers."""

from __future__ import annotations

import itertools
import os
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from slurm_dispatch.cli import fetch as fetching
from slurm_dispatch.cli import latest as looking
from slurm_dispatch.errors import (
    AbsentError,
    BadDataError,
    CorruptError,
    DispatchError,
    NothingThereError,
    StoreError,
)
from slurm_dispatch.model.publication import parse_name
from slurm_dispatch.s3.root import S3Root, open_s3_root
from slurm_dispatch.s3.take import TAKES
from slurm_dispatch.store import gc as collecting
from slurm_dispatch.store import outranked
from slurm_dispatch.store.choice import read_choice
from slurm_dispatch.store.gc import Known, Rules, Standing
from slurm_dispatch.watch import local
from slurm_dispatch.watch.keeping import Uploaded, Written
from slurm_dispatch.watch.objects import Objects
from slurm_dispatch.watch.options import parse
from slurm_dispatch.watch.place import Place
from slurm_dispatch.watch.publish import Publisher
from slurm_dispatch.watch.tree import DISK
from tests.s3.world import (
    EPOCH,
    FILES,
    PREFIX,
    ROOT,
    SAVE,
    Hand,
    Run,
    World,
    inside,
    is_save,
    lay,
    on_disk,
    said,
    unlay,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from slurm_dispatch.store.choice import Choice
    from slurm_dispatch.watch.tree import Tree

TRIES = 3
"""How often who met a trouble of the store begins anew, before it ends with 74."""


def bear(error: StoreError) -> None:
    """Go on after what a store with troubles may give; what is corrupt never comes of them."""
    if isinstance(error, CorruptError):
        raise error


def actors(world: World) -> dict[str, Callable[[], None]]:
    """All of a plan, by their names; the last character is the number of the execution, hand or reader."""
    found: dict[str, Callable[[], None]] = {}
    for number, run in enumerate(world.plan.runs):
        life = Life(world, number, run)
        found[f"run{number}"] = life.first
        if run.follows:
            found[f"rank{number}"] = life.follow
        if run.again is not None:
            found[f"next{number}"] = life.again
    for number, hand in enumerate(world.plan.hands):
        found[f"hand{number}"] = _hand(world, f"hand{number}", hand)
    for number, kind in enumerate(world.plan.readers):
        found[f"{kind}{number}"] = Reader(world, f"{kind}{number}", kind).work
    return found


class Life:
    """One execution: its helpers, its training, and the rank on another host."""

    def __init__(self, world: World, number: int, run: Run) -> None:
        self.world = world
        self.run = run
        self.attempt = f"run{number}"
        self.epoch = (number + 1) * EPOCH
        self.host = f"{world.path}/host{number}"
        here = None if run.remote else f"{self.host}/saves"
        # Of a step with several tasks the first choice stays.
        tasks = 2 if run.follows else 1
        self.place = Place(ROOT, "job", self.epoch, self.attempt, 0, tasks, local=here)
        self.source: str | None = None
        """What the first rank of the first helper's step has resumed from."""
        self.begun = self.chosen = False
        """Whether a helper has begun, and whether it has got so far that it knows what it resumes from."""
        self.step = 0
        self.version = 0
        self.over = False
        """Whether the first helper has ended or was killed."""
        world.standing[self.attempt] = Standing.RUNNING

    # Its actors

    def first(self) -> None:
        """The first helper."""
        os.makedirs(self.host, exist_ok=True)
        try:
            self._live(self.run.saves, again=False)
        finally:
            self.world.reading.pop(self.attempt, None)
            self.over = True
            self.world.standing[self.attempt] = Standing.OVER if self.run.again is None else Standing.ENDED

    def again(self) -> None:
        """The script starts another one, once that has gone."""
        while not self.over:
            self.world.wait()
        self.world.standing[self.attempt] = Standing.RUNNING
        try:
            assert self.run.again is not None
            self.world.arrive_first(self.attempt[-1], "")
            self._live(self.run.again, again=self.place.tasks == 1)
        finally:
            self.world.reading.pop(self.attempt, None)
            self.world.standing[self.attempt] = Standing.OVER

    def follow(self) -> None:
        """Another rank: it has what the first one has chosen, or nothing."""
        os.makedirs(f"{self.host}b", exist_ok=True)
        place = replace(self.place, rank=1, local=None if self.run.remote else f"{self.host}b/saves")
        if not self.run.remote:
            os.makedirs(local.directory(place), exist_ok=True)
        found = None
        for _ in range(TRIES):
            try:
                root = local.open_remote(place)
                while found is None and not self.over:
                    choice = read_choice(root, self.attempt)
                    found = None if choice is None else local.follow_choice(root, place, choice, lambda _: None)
                    self.world.wait()
            except StoreError as error:
                bear(error)
                if "went before rank" in str(error):
                    self._check_gone(str(error))
                    return
            else:
                break
        if found is not None:
            self.world.met["followed"] += 1
            if self.chosen:
                assert found.source == self.source, f"rank 1 follows {found.source}, rank 0 has {self.source}"
            try:
                self._starts(root, found)
            except StoreError as error:
                bear(error)

    # The parts of a helper's life

    def _live(self, count: int, *, again: bool) -> None:
        before, begun = self.world.newest(), len(self.world.history)
        for _ in range(TRIES):
            try:
                self.begun, begins = True, self.begun
                root = local.claim_remote(self.place)
                choice = self._choose(root, again=again)
                self.source = self.source if self.over and self.chosen else choice.source
                # What was chosen before, also by a helper that was killed then, stays, unless it is chosen anew.
                new = (choice.source or "") >= before or (begins and not again)
                assert new, f"resumes from {choice.source}; {before} was there before"
                self.chosen = True
                if choice.source is not None:
                    self.world.reading[self.attempt] = (self.epoch, parse_name(choice.source).path)
                self._starts(root, choice)
                publisher = self._publisher(root, choice)
                publisher.begin()
            except StoreError as error:
                bear(error)
                self._check_outrun(str(error), len(self.world.history) - begun)
                begun = len(self.world.history)
                continue
            self.step = max(self.step, choice.step or 0) + (0 if again else self.run.jump)
            for _ in range(count):
                self._save(root, publisher)
            return

    def _choose(self, root: S3Root, *, again: bool) -> Choice:
        if self.run.remote:
            return local.choose_remote(root, self.place, start_from=None, again=again)
        os.makedirs(local.directory(self.place), exist_ok=True)
        return local.choose_and_bring(root, self.place, start_from=None, again=again)

    def _publisher(self, root: S3Root, choice: Choice) -> Publisher:
        keep = f"{self.run.keep_own},{self.run.keep_root}"
        options = parse(["--done", "done", "--keep", keep, "--", "x"])
        directory = local.directory(self.place)
        tree: Tree = DISK
        keeping: Uploaded | Written
        if self.run.remote:
            tree = Objects(root, self.attempt)
            keeping = Written(root, self.attempt, tree)
        else:
            keeping = Uploaded(root, self.attempt, directory, say=lambda _: None)
        return Publisher(
            root, self.place, options, keeping=keeping, tree=tree, directory=directory, resumed_step=choice.step,
            resumed=choice.resume,
        )  # fmt: skip

    def _save(self, root: S3Root, publisher: Publisher) -> None:
        """The training saves; the helper scans until it is published."""
        self.step += 1
        self.version = 0
        name = SAVE.decode() + str(self.step)
        try:
            self._write(root, name)
        except StoreError as error:
            bear(error)
            return  # the training could not save
        for _ in range(TRIES):
            mind = Mind(self, name)
            if not self.run.remote:
                self.world.upsetting[self._actor] = mind.upset
            try:
                done = publisher.scan(assume=False)
            except StoreError as error:
                bear(error)
                continue
            finally:
                self.world.upsetting.pop(self._actor, None)
                mind.finish()
            if self.step in done.published:
                there = self.step in self._published()
                assert there, f"step {self.step} of {self.attempt} is said to be published, and is not"
                break
        if self.run.rotates:
            self._rotate(root, name)

    @property
    def _actor(self) -> str:
        stage = self.world.stage
        actor = None if stage is None else stage.mine()
        return "" if actor is None else actor.name

    @property
    def tag(self) -> str:
        """What is in the save that is being written."""
        return f"{self.attempt}.{self.step}.{self.version}"

    def local_path(self, name: str) -> str:
        """Where the training saves on its host."""
        return os.path.join(local.directory(self.place), name)

    def _write(self, root: S3Root, name: str) -> None:
        if not self.run.remote:
            unlay(self.local_path(name))
            lay(self.local_path(name), self.tag)
            return
        bucket = root.bucket
        with self._steady():
            for file in reversed(FILES):  # of an earlier turn, which was killed
                bucket.remove(self._key(name, file), bucket.deadline())
            for file in FILES:
                bucket.replace(self._key(name, file), inside(file, self.tag).encode(), bucket.deadline())

    def _published(self) -> list[int]:
        """Its own steps, rising."""
        known = map(parse_name, self.world.history)
        return sorted(one.step for one in known if one.attempt == self.attempt)

    @contextmanager
    def _steady(self) -> Iterator[None]:
        """The training's own requests."""
        actor = self._actor
        self.world.steady.add(actor)
        try:
            yield
        finally:
            self.world.steady.discard(actor)

    def _key(self, name: str, file: str) -> str:
        return f"{PREFIX}/exec/{self.attempt}/{name}/{file}"

    def _rotate(self, root: S3Root, name: str) -> None:
        if not self.run.remote:
            unlay(self.local_path(name))
            return
        # Published where they are: the saver leaves the last two that it knows to be published.
        own = self._published()
        try:
            with self._steady():
                for step, file in itertools.product(own[:-2], reversed(FILES)):
                    self.world.rotated.add(f"exec/{self.attempt}/{SAVE.decode()}{step}".encode())
                    root.bucket.remove(self._key(SAVE.decode() + str(step), file), root.bucket.deadline())
        except StoreError as error:
            bear(error)
            return

    # What must hold of a command that starts

    def _starts(self, root: S3Root, choice: Choice) -> None:
        if choice.source is None:
            assert choice.resume is None
            return
        assert choice.resume is not None
        publication = parse_name(choice.source)
        if self.run.remote:
            found = self._read(root, publication.path)
            if not self.world.is_of(found, publication) and (
                self._may_go() or publication.path in self.world.rotated
            ):
                return
        else:
            found = on_disk(choice.resume)
        assert self.world.is_of(found, publication), f"starts from {choice.resume}: {found}, step {choice.step}"
        self.world.met["resumed"] += 1

    def _read(self, root: S3Root, relative: bytes) -> str | None:
        """What the training itself reads in S3, object by object."""
        bucket, above = root.bucket, root.place.key(relative.decode()) + "/"
        found = {}
        for meta in bucket.below(above[:-1], bucket.deadline()):
            body = bucket.part(meta.key, 0, meta.size, bucket.deadline())
            if body is not None:
                found[meta.key[len(above) :]] = body.decode()
        return said(found)

    def _may_go(self) -> bool:
        return self.world.may_go(self.attempt, self.epoch)

    def _check_outrun(self, error: str, newer: int) -> None:
        """Only if so often something was published may it be said that each time a newer one was."""
        assert "each of" not in error or newer >= TAKES, error

    def _check_gone(self, error: str) -> None:
        # A saver's rotation of what it wrote to S3 itself is its own.
        names = [name for name in self.world.history if name in error]
        rotated = any(parse_name(name).path in self.world.rotated for name in names)
        assert self._may_go() or self.over or rotated, error


class Mind:
    """What the training does with the save that is being sent: it writes it anew, marker last, or removes it."""

    def __init__(self, life: Life, name: str) -> None:
        self._life = life
        self._path = life.local_path(name)
        self._left: list[str] | None = None

    def upset(self) -> None:
        """Do a part of it."""
        if self._left is None:
            if self._life.world.rng.random() < 0.2:
                self._left = []
                unlay(self._path)
                return
            self._left = list(FILES)
            self._life.version += 1
            if os.path.lexists(f"{self._path}/done"):
                os.unlink(f"{self._path}/done")
        elif self._left:
            lay(self._path, self._life.tag, (self._left.pop(0),))

    def finish(self) -> None:
        """Do what is left."""
        while self._left:
            self.upset()


def _hand(world: World, name: str, hand: Hand) -> Callable[[], None]:
    def standing(attempt: str) -> Known:
        world.asked[name, attempt] = world.standing[attempt]
        return Known(world.standing[attempt], "the world")

    def work() -> None:
        for _ in range(hand.passes):
            root = open_s3_root(ROOT)
            try:
                found = collecting.plan(root, Rules(hand.last, hand.every), standing, is_save)
            except StoreError as error:
                bear(error)
                continue
            outranked.remove_all(root, found.paths)

    return work


class Reader:
    """A person who asks for the latest, one way or another."""

    def __init__(self, world: World, name: str, kind: str) -> None:
        self.world = world
        self.name = name
        self.ask = {"fetch": self._fetch, "latest": self._latest, "verify": self._verify}[kind]
        self.begun = 0
        """Publications when it began to ask."""

    def work(self) -> None:
        """Ask three times."""
        root = open_s3_root(ROOT)
        for number in range(3):
            before, self.begun = self.world.newest(), len(self.world.history)
            try:
                found = self.ask(root, number)
            except AbsentError as error:
                self._check_gone(error)
                continue
            except StoreError as error:
                bear(error)
                continue
            except BadDataError as error:
                self._check_gone(error)
                continue
            assert found >= before, f"{self.name} is given {found}; {before} was there before"
            self.world.met[self.name[:-1]] += bool(found)

    def _fetch(self, root: S3Root, number: int) -> str:
        try:
            publication, path = fetching.fetch(root, f"{self.world.path}/{self.name}-{number}")
        except NothingThereError:
            return ""
        found = on_disk(path)
        assert self.world.is_of(found, publication), f"{self.name} has {found} of {publication}"
        return publication.name

    def _latest(self, root: S3Root, number: int) -> str:
        save = root.latest()
        return "" if save is None else save.publication.name

    def _verify(self, root: S3Root, number: int) -> str:
        save = root.latest()
        if save is None:
            return ""
        save, _ = looking.verified(root, save, fallback=False)
        return save.publication.name

    def _check_gone(self, error: DispatchError) -> None:
        """Only to who was outrun by a newer publication each time may it be said that the latest is gone."""
        newer = len(self.world.history) - self.begun
        assert newer >= TAKES, f"{self.name}: {error}"


__all__ = ["actors"]
