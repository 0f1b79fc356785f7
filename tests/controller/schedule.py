"""Every order of the steps of several actors, bounded by how often one is interrupted, and each one killed anywhere.

An actor is plain code in a thread; only one thread runs at a time, and it hands over at each :meth:`Stage.step`.
A run is a list of choices at given steps, so that the same list always gives the same run.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

PATIENCE_S = 120.0
KILL = "kill"
"""The choice that ends the actor at this step, as a kill -9 would."""


class Killed(BaseException):
    """Raised in an actor that was killed: no handler of the product's may catch it."""


@dataclass
class _Actor:
    name: str
    work: Callable[[], None]
    go: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    thread: threading.Thread | None = None
    over: bool = False
    killed: bool = False
    failure: BaseException | None = None


class Stage:
    """One run.

    :param actors: name: what it does, in the order in which each comes when the one before it has ended.
    :param choices: step number: the actor that goes on there instead, or :data:`KILL`.
    :ivar steps: for each step, who stood at it and at what.
    """

    def __init__(self, actors: Mapping[str, Callable[[], None]], choices: Mapping[int, str]) -> None:
        self._actors = {name: _Actor(name, work) for name, work in actors.items()}
        self._choices = choices
        self._back = threading.Semaphore(0)
        self._current: _Actor | None = None
        self.steps: list[tuple[str, str]] = []
        self.alive: list[list[str]] = []

    def step(self, what: str) -> None:
        """Called by the actor that runs: something that others can see comes next."""
        actor = self._current
        if actor is None or threading.current_thread() is not actor.thread:
            return  # before and after the run
        self.steps.append((actor.name, what))
        self._back.release()
        actor.go.acquire()
        if actor.killed:
            raise Killed

    def run(self) -> None:
        """Run all actors to their ends; raises what one of them raised."""
        queue = list(self._actors.values())
        self._current = queue[0]
        while True:
            actor = self._current
            self._resume(actor)
            if actor.over:
                if actor.failure is not None:
                    raise actor.failure
                after = queue.index(actor)
                queue.remove(actor)
                if not queue:
                    return
                self._current = queue[after % len(queue)]
                continue
            self.alive.append([other.name for other in queue if other is not actor])
            choice = self._choices.get(len(self.steps) - 1)
            if choice == KILL:
                actor.killed = True
            elif choice is not None:
                self._current = self._actors[choice]

    def _resume(self, actor: _Actor) -> None:
        if actor.thread is None:
            actor.thread = threading.Thread(target=self._live, args=(actor,), daemon=True)
            actor.thread.start()
        else:
            actor.go.release()
        assert self._back.acquire(timeout=PATIENCE_S), f"{actor.name} neither ends nor steps: {self.steps}"

    def _live(self, actor: _Actor) -> None:
        try:
            actor.work()
        except Killed:
            pass
        except BaseException as error:
            actor.failure = error
        actor.over = True
        self._back.release()


def explore(
    make: Callable[[Mapping[int, str]], Stage], interruptions: int, *, kills: bool, alike: Mapping[str, str]
) -> Iterator[tuple[Stage, Mapping[int, str]]]:
    """Run every schedule with at most so many interruptions.

    :param make: a fresh stage for these choices.
    :param kills: an interruption can be a kill as well.
    :param alike: an actor that does the same as another: it never begins before that one.
    """
    waiting: list[dict[int, str]] = [{}]
    while waiting:
        choices = waiting.pop()
        stage = make(choices)
        stage.run()
        yield stage, choices
        if len(choices) == interruptions:
            continue
        for number in range(max(choices, default=-1) + 1, len(stage.steps)):
            begun = {name for name, _ in stage.steps[:number]}
            if stage.steps[number][0] not in begun:
                continue  # at its first step it has done nothing: that is another order of the actors
            others: Sequence[str] = [*stage.alive[number], *([KILL] if kills else [])]
            waiting += [
                {**choices, number: other}
                for other in others
                if other not in alike or alike[other] in begun or alike[other] not in others
            ]


__all__ = ["KILL", "Killed", "Stage", "explore"]
