"""Actors that take turns at every call to the filesystem, and die at any of them as by kill -9.

An actor is plain code of the product in a thread. Only one thread runs at a time; at each call a chooser says who
goes on. What a killed actor does from then on (its ``finally`` blocks) comes to nothing: every call of it raises.
"""

from __future__ import annotations

import functools
import os
import tempfile
import threading
from typing import TYPE_CHECKING, Any

from tests.controller.schedule import KILL, PATIENCE_S, Killed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    import pytest

LOOKS = ("lstat", "stat", "listdir", "scandir", "readlink")
CHANGES = ("mkdir", "rename", "unlink", "rmdir", "link", "symlink", "chmod", "fchmod", "utime", "write")
"""Calls at which an actor stands; ``open`` too, and ``close`` never: it is done for a process that was killed."""
REAL: dict[str, Any] = {name: getattr(os, name) for name in (*LOOKS, *CHANGES, "open", "fsync", "copy_file_range")}


def memory(otherwise: Path) -> str:
    """A new folder, in memory where there is some: calls are tested, their order or their number, and no disk."""
    return tempfile.mkdtemp(prefix="gc-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else otherwise)


class Actor:
    """One process."""

    def __init__(self, name: str, work: Callable[[], None]) -> None:
        self.name = name
        self.work = work
        self.go = threading.Semaphore(0)
        self.thread: threading.Thread | None = None
        self.begun = self.over = self.killed = False
        self.failure: BaseException | None = None


class Stage:
    """One run.

    :param choose: of who makes which call next, and who is alive: who goes on (a name), :data:`KILL` for whoever
        stands there, or ``None``: the same.
    :param changed: called in the actor's thread after each call that changed something: (actor, call, path, target).
    """

    def __init__(
        self,
        actors: Mapping[str, Callable[[], None]],
        choose: Callable[[str, str, list[str]], str | None],
        changed: Callable[[str, str, bytes, bytes], None],
    ) -> None:
        self.actors = {name: Actor(name, work) for name, work in actors.items()}
        self._choose = choose
        self._changed = changed
        self._current: Actor | None = None
        self._end = threading.Semaphore(0)
        self.free = 0
        self.steps = 0

    def alive(self) -> list[str]:
        """Who has not ended."""
        return [name for name, actor in self.actors.items() if not actor.over]

    def run(self) -> None:
        """Run all to their ends; raises what the first one that failed raised."""
        self._switch(next(iter(self.actors.values())))
        assert self._end.acquire(timeout=PATIENCE_S), f"no one ends: {self.alive()}"
        for actor in self.actors.values():
            if actor.thread is not None:
                actor.thread.join(PATIENCE_S)
            if actor.failure is not None:
                raise actor.failure

    def mine(self) -> Actor | None:
        """The actor whose thread this is; ``None`` outside of all, and while the world looks at what there is."""
        actor = self._current
        if actor is None or self.free or threading.current_thread() is not actor.thread:
            return None
        return actor

    def step(self, actor: Actor, call: str) -> None:
        """``actor`` is about to make a call."""
        if actor.killed:
            raise Killed
        self.steps += 1
        choice = self._choose(actor.name, call, self.alive())
        if choice == KILL:
            actor.killed = True
            raise Killed
        if choice is not None and choice != actor.name:
            self._switch(self.actors[choice])
            actor.go.acquire()
        if any(other.failure is not None for other in self.actors.values()):
            actor.killed = True
            raise Killed  # the run has failed: nobody goes on

    def after(self, actor: Actor, call: str, path: bytes, target: bytes) -> None:
        """It has changed something: let the world look, with calls that are no steps."""
        self.free += 1
        try:
            self._changed(actor.name, call, path, target)
        finally:
            self.free -= 1

    def _switch(self, actor: Actor) -> None:
        self._current = actor
        actor.begun = True
        if actor.thread is None:
            actor.thread = threading.Thread(target=self._live, args=(actor,), daemon=True)
            actor.thread.start()
        else:
            actor.go.release()

    def _live(self, actor: Actor) -> None:
        try:
            actor.work()
        except Killed:
            pass
        except BaseException as error:
            actor.failure = error
        actor.over = True
        left = self.alive()
        if left:
            self._switch(self.actors[left[0]])
        else:
            self._current = None
            self._end.release()


def on_stage(patch: pytest.MonkeyPatch, stage: Callable[[], Stage | None]) -> None:
    """Let every call that an actor makes to the filesystem be a step of the stage that there is then."""
    for name in (*LOOKS, *CHANGES, "open"):
        patch.setattr(os, name, _gate(name, stage))
    patch.setattr(os, "fsync", lambda _: None)

    def no_range(*_: Any) -> int:
        raise OSError(95, "not here")

    patch.setattr(os, "copy_file_range", no_range)


def _gate(name: str, stage: Callable[[], Stage | None]) -> Callable[..., Any]:
    real = REAL[name]

    @functools.wraps(real)
    def gated(*arguments: Any, **named: Any) -> Any:
        now = stage()
        actor = None if now is None else now.mine()
        if now is None or actor is None:
            return real(*arguments, **named)
        now.step(actor, name)
        result = real(*arguments, **named)
        makes = name == "open" and len(arguments) > 1 and arguments[1] & os.O_CREAT
        if name in CHANGES or makes:
            now.after(actor, name, *_paths(arguments, named))
        return result

    return gated


def _paths(arguments: tuple[Any, ...], named: Mapping[str, Any]) -> tuple[bytes, bytes]:
    """The path, and the second one of a rename or link, both absolute; empty where it is a descriptor."""
    given = iter((named.get("dir_fd", named.get("src_dir_fd")), named.get("dst_dir_fd")))
    return tuple(_absolute(arguments[at] if at < len(arguments) else b"", next(given)) for at in (0, 1))  # type: ignore[return-value]


def _absolute(path: Any, folder: int | None) -> bytes:
    if not isinstance(path, (str, bytes)):
        return b""
    raw = os.fsencode(path)
    if folder is None or raw.startswith(b"/"):
        return raw
    return os.fsencode(REAL["readlink"](f"/proc/self/fd/{folder}")) + b"/" + raw



__all__ = ["KILL", "REAL", "Stage", "memory", "on_stage"]
