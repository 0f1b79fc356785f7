"""A root in S3: executions that upload, publish, resume and thin, people who remove, readers, and what must hold.

The code is the product's own; the store is :class:`tests.s3.shelf.Shelf`, and every request to it is a step at which
anybody else may go on or who asks is killed. Answers are lost before the act and after it, come when nobody waits any
more, and requests are done late, also those of a process that was killed. Local files are each host's own. What must
hold:

* after every request that changes something, the save that the greatest name in ``pub/`` says is there and whole;
* a command that starts, a rank that follows, ``fetch`` and ``latest --verify`` have the whole save with its own
  bytes, and none that was outranked when they began to ask; who is outranked may have none;
* nothing of an execution that runs goes by hand, nor what is the greatest step, ``best/``, what is no save, a
  publication, or anything of a newer execution;
* whatever was killed or failed, one more pass gives all space back, and a second one finds nothing.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from obstore.exceptions import AlreadyExistsError, GenericError

from slurm_dispatch.model.publication import parse_name
from slurm_dispatch.s3.deadline import Late
from slurm_dispatch.store import outranked
from slurm_dispatch.store.gc import Standing
from slurm_dispatch.store.manifest import PREFIX as MANIFEST
from tests.controller.schedule import KILL, Killed
from tests.s3.shelf import CHANGES, Shelf
from tests.store.gc_stage import Stage

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurm_dispatch.model.publication import Publication

BUCKET, PREFIX = "bucket", "run"
ROOT = f"s3://{BUCKET}/{PREFIX}"
FILES = ("model", "index", "done")
"""Of a save: one that is sent in parts, a small one, and the marker."""
PART = 24
"""Bytes of a part in this world."""
EPOCH = 10 * 10**6
HOT = 0.6
"""The chance at a hot request."""
SAVE = b"checkpoint-"


class Broken(BaseException):
    """Something did not hold: no handler of the product's may catch it."""


@dataclass(frozen=True)
class Run:
    """An execution.

    :ivar saves: how many its helper publishes; ``again``: how many a second helper in it, after the first has ended
        or was killed; ``None``: there is no second one.
    :ivar remote: the command writes to S3 itself.
    :ivar follows: there is another rank, on another host.
    :ivar jump: how much further its training is than that of others: a ghost's steps are greater.
    :ivar rotates: the saver removes its older saves.
    """

    saves: int
    again: int | None = None
    remote: bool = False
    follows: bool = False
    keep_own: int = 1
    keep_root: int = 1
    jump: int = 0
    rotates: bool = True


@dataclass(frozen=True)
class Hand:
    """A person who removes: so many passes."""

    passes: int = 1
    last: int = 1
    every: int | None = None


@dataclass(frozen=True)
class Plan:
    """One run of the world.

    :ivar readers: ``fetch``, ``latest``, ``verify``: each asks three times.
    :ivar seed: of the order of the requests.
    :ivar switch: the chance that somebody else goes on at a request.
    :ivar kills: how many are killed.
    :ivar faults: the chance that something is wrong with a request.
    :ivar upset: the chance at a request that the training writes the save again, or removes it, which is being sent.
    :ivar hot: a request at which somebody else goes on very often.
    :ivar page: keys in a page.
    """

    runs: tuple[Run, ...]
    hands: tuple[Hand, ...]
    readers: tuple[str, ...]
    seed: int
    switch: float
    kills: int
    faults: float
    upset: float = 0.0
    hot: str = ""
    page: int = 3


@dataclass
class World:
    """The store, and what is known of everybody who asks it; :mod:`tests.s3.cast` has who there is."""

    path: str
    plan: Plan
    shelf: Shelf = field(default_factory=Shelf)
    stage: Stage | None = None
    standing: dict[str, Standing] = field(default_factory=dict)
    asked: dict[tuple[str, str], Standing] = field(default_factory=dict)
    """What each hand was told of each execution."""
    history: list[str] = field(default_factory=list)
    """All names of publications, in the order in which they were made."""
    shown: dict[str, list[Publication]] = field(default_factory=dict)
    """By actor: what was published when it began to list the publications last."""
    deleted: set[str] = field(default_factory=set)
    """Keys that went once."""
    met: Counter[str] = field(default_factory=Counter)
    late: list[tuple[str, str, str, Callable[[], Any]]] = field(default_factory=list)
    """Requests that are on their way though nobody waits for them: actor, verb, key and act."""
    rotated: set[bytes] = field(default_factory=set)
    """Saves that their saver has begun to remove from S3 itself: that is its own."""
    reading: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    """By attempt: its epoch, and the save that it resumes from."""
    steady: set[str] = field(default_factory=set)
    """Actors whose requests are the training's own: none of those is done late."""
    upsetting: dict[str, Callable[[], None]] = field(default_factory=dict)
    """By actor: what its training may do to the save that is being sent."""

    broken: AssertionError | None = None
    """The first thing that did not hold."""

    def __post_init__(self) -> None:
        self.rng = random.Random(self.plan.seed)
        self.kills = self.plan.kills
        self.shelf.page = self.plan.page
        self.shelf.gate = self._gate

    def play(self, actors: dict[str, Callable[[], None]]) -> None:
        """Everybody at once, until the last one has ended and every request has arrived."""
        self.stage = Stage(actors, self._chosen, self._changed)
        try:
            self.stage.run()
        except Broken as error:
            assert self.broken is not None
            raise self.broken from error
        finally:
            self.stage = None
        while self.late:
            self._arrive()

    # Steps

    def _chosen(self, actor: str, call: str, alive: list[str]) -> str | None:
        others = [name for name in alive if name != actor]
        if call == "wait":
            return self.rng.choice(others) if others else None
        if self.rng.random() >= (HOT if call == self.plan.hot else self.plan.switch):
            return None
        if self.kills and self.rng.random() < 0.05:
            self.kills -= 1
            self.met["killed"] += 1
            return KILL
        return self.rng.choice(alive)

    def wait(self) -> None:
        """In an actor: nothing to do until somebody else has done something."""
        assert self.stage is not None
        actor = self.stage.mine()
        assert actor is not None
        self.stage.step(actor, "wait")

    def _gate(self, verb: str, key: str, act: Callable[[], Any]) -> Any:
        actor = None if self.stage is None else self.stage.mine()
        if self.stage is None or actor is None:
            return act()
        dead = actor.killed
        try:
            self.stage.step(actor, verb)
        except Killed:
            if not dead and verb in CHANGES and actor.name not in self.steady and self.rng.random() < 0.3:
                self.late.append((actor.name, verb, key, act))  # it was sent, and the sender is no more
            raise
        if self.late and self.rng.random() < 0.1:
            self._arrive()
        if verb == "head":
            self.arrive_first(actor.name[-1], key)
        if verb in {"put", "complete"}:
            for one in [one for one in self.late if one[1:3] == ("delete", key)]:
                self._arrive(one)  # no delete is done after a put that was sent so much later
        if actor.name in self.upsetting and self.rng.random() < self.plan.upset:
            self.met["upset"] += 1
            self.upsetting[actor.name]()
        if verb == "list" and key == f"{PREFIX}/pub":
            self.shown[actor.name] = [parse_name(name) for name in self.history]
        if self.rng.random() < self.plan.faults:
            return self._fault(actor.name, verb, key, act)
        return self._act(actor.name, verb, key, act)

    def _act(self, actor: str, verb: str, key: str, act: Callable[[], Any]) -> Any:
        result = act()
        if verb in CHANGES:
            self._changed(actor, verb, key.encode(), b"")
        return result

    def _fault(self, actor: str, verb: str, key: str, act: Callable[[], Any]) -> Any:
        kinds = ["before", "hangs"]
        if verb in CHANGES:
            kinds += ["after", "after and hangs"]
            kinds += ["late", "late and hangs"] if actor not in self.steady else []
        if verb == "create":
            kinds += ["conflict"]
        kind = self.rng.choice(kinds)
        self.met[kind] += 1
        if kind == "conflict":
            raise AlreadyExistsError("409 conflict")
        if kind.startswith("after"):
            try:
                self._act(actor, verb, key, act)
            except AlreadyExistsError:
                pass
        if kind.startswith("late"):
            self.late.append((actor, verb, key, act))
        if kind.endswith("hangs"):
            raise Late
        raise GenericError("error sending request: connection closed")

    def arrive_first(self, number: str, part: str) -> None:
        """What an execution has put and got no answer for is done before it sees, after more puts of the key, what is
        there; and before a second helper of it begins. Of what is done even later nobody could know."""
        for one in [one for one in self.late if one[0][-1] == number and one[1] != "delete" and part in one[2]]:
            self._arrive(one)

    def _arrive(self, one: tuple[str, str, str, Callable[[], Any]] | None = None) -> None:
        """One of the requests that nobody waits for is done."""
        one = self.rng.choice(self.late) if one is None else one
        self.late.remove(one)
        actor, verb, key, act = one
        self.met["arrived late"] += 1
        try:
            act()
        except AlreadyExistsError:
            return
        self._changed(actor, f"late {verb}", key.encode(), b"")

    # What must hold after every change

    def _changed(self, actor: str, call: str, raw: bytes, _: bytes) -> None:
        try:
            self._look(actor, call, raw)
        except AssertionError as error:
            self.broken = self.broken or error
            raise Broken from error

    def _look(self, actor: str, call: str, raw: bytes) -> None:
        key = raw.decode().removeprefix(f"{PREFIX}/")
        top, _, rest = key.partition("/")
        gone = call.endswith("delete")
        if top == "pub":
            assert not gone, f"publication {rest} went by {actor}"
            assert not self.shelf.objects[raw.decode()].body, f"publication {rest} is not empty"
            if rest not in self.history:
                self.history.append(rest)
        elif top == "exec":
            self._changed_inside(actor, key, gone=gone, late=call.startswith("late"))
        else:
            assert not gone, f"{key} went by {actor}"
        if self.history:
            latest = parse_name(max(self.history))
            if top == "pub" or key.startswith(latest.path.decode()):
                found = self.content(latest.path)
                assert self.is_of(found, latest), f"after {call} {key} by {actor}: latest {latest} is {found}"

    def _changed_inside(self, actor: str, key: str, *, gone: bool, late: bool) -> None:
        _, attempt, *parts = key.split("/")
        if not gone:
            assert not actor.startswith("hand"), f"a hand makes {key}"
            assert attempt == f"run{actor[-1]}", f"{actor} writes {key}, which is another execution's"
            return
        assert parts[0] not in {"best", "logs"}, f"{key}, which is no save, went by {actor}"
        if actor.startswith("hand"):
            self.met["removed by hand"] += 1
            known = self.asked.get((actor, attempt))
            assert known in {Standing.OVER, Standing.ENDED}, f"{key} of a run that goes on went by {actor}"
        elif attempt != f"run{actor[-1]}":
            self.met["thinned"] += 1
            assert int(attempt[3:]) < int(actor[-1]), f"{key} of a newer execution went by {actor}"
        self.deleted.add(key)
        if actor in self.steady or late:
            return  # a saver's own rotation; or of what its sender knew long ago
        for reader, (epoch, path) in self.reading.items():
            if path not in self.rotated and key.startswith(f"{path.decode()}/"):
                needed = not self.may_go(reader, epoch)
                assert not needed, f"{key}, which {reader} resumes from, went by {actor}"
        shown = self.shown.get(actor, [])
        save, _, file = key.rpartition("/")
        # What was that when it began to list, and still is: its listing may have shown a greater one in between.
        greatest = outranked.greatest_step(shown)
        still = greatest is not None and greatest == outranked.greatest_step(map(parse_name, self.history))
        assert greatest is None or not still or save != greatest.path.decode(), (
            f"{key}, of the greatest step, went by {actor}"
        )
        if any(one.path.decode() == save for one in shown):
            first = [f"exec/{attempt}/.dispatch/{MANIFEST}{save.rpartition('/')[2]}"]
            first += [f"{save}/done"] if file == "model" else []
            assert self.deleted.issuperset(first), f"{key} went by {actor} before what proves it whole, {first}"

    # What there is

    def content(self, relative: bytes) -> str | None:
        """What a whole save in the store says; ``None`` where nothing is; else what is wrong with it."""
        above = f"{PREFIX}/{relative.decode()}/"
        found = {key[len(above) :]: one.body for key, one in self.shelf.objects.items() if key.startswith(above)}
        return said({name: body.decode() for name, body in found.items()})

    def is_of(self, content: str | None, publication: Publication) -> bool:
        """Whether what a save says is what was written into the save of this publication."""
        return content is not None and content.startswith(f"{publication.attempt}.{publication.step}.")

    def outranked(self, epoch: int) -> bool:
        """Whether a newer execution has published."""
        return any(parse_name(name).epoch > epoch for name in self.history)

    def published(self, attempt: str) -> int:
        """How often an execution has published."""
        return sum(parse_name(name).attempt == attempt for name in self.history)

    def may_go(self, attempt: str, epoch: int) -> bool:
        """Whether what an execution resumes from is needed no more: it is outranked, or has saves of its own."""
        return self.outranked(epoch) or self.published(attempt) >= outranked.OWN_AT_LEAST

    def newest(self) -> str:
        """The greatest name, empty where there is none."""
        return max(self.history, default="")


def inside(file: str, tag: str) -> str:
    """What a file of a save says."""
    return "model " * 8 + tag if file == "model" else tag


def said(files: dict[str, str]) -> str | None:
    """The tag of a whole save; ``None`` for nothing at all; ``half`` or ``mixed`` for what is not whole."""
    if not files:
        return None
    if set(files) != set(FILES):
        return f"half: {sorted(files)}"
    tag = files["index"]
    return tag if files == {file: inside(file, tag) for file in FILES} else f"mixed: {sorted(files.values())}"


def on_disk(path: str) -> str | None:
    """The same of a save in a local folder."""
    if not os.path.lexists(path):
        return None
    found = {}
    for name in os.listdir(path):
        with open(os.path.join(path, name), encoding="ascii") as stream:
            found[name] = stream.read()
    return said(found) or "half: []"


_TICKS = itertools.count(1)


def lay(path: str, tag: str, files: tuple[str, ...] = FILES) -> None:
    """Write files of a save, each at a time of its own: a clock that stands still hides what is written again."""
    os.makedirs(path, exist_ok=True)
    for file in files:
        now = next(_TICKS) * 10**9
        with open(os.path.join(path, file), "w", encoding="ascii") as stream:
            stream.write(inside(file, tag))
        os.utime(os.path.join(path, file), ns=(now, now))


def unlay(path: str) -> None:
    """Remove a save from a local folder."""
    shutil.rmtree(path, ignore_errors=True)


def is_save(name: bytes) -> bool:
    """The pattern of the job."""
    return name.startswith(SAVE)


__all__ = [
    "BUCKET", "EPOCH", "FILES", "PART", "PREFIX", "ROOT", "SAVE", "Hand", "Plan", "Run", "World", "inside", "is_save",
    "lay", "on_disk", "said", "unlay",
]  # fmt: skip
