"""In the guest: how long after a publication through one mount ``latest`` through the other shows it.

Beside it what other ways to look would show: a stat of the name that is awaited, which the client has remembered as
absent, and a listing of ``pub/`` through a descriptor that stays open.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from slurm_dispatch.model.publication import Publication
from slurm_dispatch.store.root import open_root
from tests.store.scene import FIRST, OLD, save
from tests.uml.channel import tell

if TYPE_CHECKING:
    from collections.abc import Callable

LOOKS_WITHOUT_REST = 100
GIVE_UP_S = 90.0
"""More than any client remembers anything by itself (``acdirmax`` is 60 s)."""


def measure(here: str, there: str, publications: int) -> dict[str, Any]:
    """Publish ``publications`` times through ``here``, and look through ``there`` until each is seen.

    :returns: ``latest`` (seconds from the return of ``publish`` to that of the ``latest`` that has it, in order of
        publication), ``looks`` (how many it took), ``stat`` and ``held`` (seconds, of one publication each).
    """
    os.mkdir(f"{here}/window")
    writer, reader = open_root(f"{here}/window"), open_root(f"{there}/window")
    taken: list[float] = []
    looks: list[int] = []

    def publish(step: int, before: Callable[[str], object]) -> tuple[str, float]:
        """The name, and when ``publish`` had returned; ``before`` is what the reader asks for just before."""
        path = save(writer, OLD, f"checkpoint-{step}")
        name = Publication(FIRST, step, os.path.relpath(path, writer.path).encode()).name
        before(name)
        writer.publish(FIRST, step, path, attempt=OLD)
        return name, time.monotonic()

    for step in range(1, publications + 1):
        # What the reader's client could remember is that there is no such name, and no such save.
        name, began = publish(step, lambda _: reader.latest())
        number = 1
        while (latest := reader.latest()) is None or latest.publication.name != name:
            number += 1
            _check(began)
            if number > LOOKS_WITHOUT_REST:
                time.sleep(0.01)
        taken.append(time.monotonic() - began)
        looks.append(number)
        tell("seen", step=step)  # where it takes long, the host must hear that it goes on
    pub = os.path.join(reader.path, "pub")
    folder = os.open(pub, os.O_RDONLY | os.O_DIRECTORY)
    try:
        name, began = publish(publications + 1, lambda _: os.listdir(folder))
        held = _until(began, lambda: name in os.listdir(folder))
        tell("seen", step=publications + 1)
    finally:
        os.close(folder)
    name, began = publish(publications + 2, lambda name: os.path.lexists(os.path.join(pub, name)))
    stat = _until(began, lambda: os.path.lexists(os.path.join(pub, name)))
    return {"latest": taken, "looks": looks, "held": held, "stat": stat}


def _until(began: float, seen: Callable[[], bool]) -> float:
    while not seen():
        _check(began)
        time.sleep(0.05)
    return time.monotonic() - began


def _check(began: float) -> None:
    if time.monotonic() - began > GIVE_UP_S:
        raise AssertionError(f"not seen after {GIVE_UP_S:.0f} s")
