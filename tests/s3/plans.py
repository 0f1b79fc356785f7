"""Plans of :class:`tests.s3.world.World` as Hypothesis draws them, but faster, and with more happening."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.s3.world import Hand, Plan, Run

if TYPE_CHECKING:
    import random

HOT = ("", "", "delete", "put", "create", "list", "get", "head")


def plan_of(rng: random.Random) -> Plan:
    """One plan."""
    runs = tuple(
        Run(
            saves=rng.randint(0, 4),
            again=rng.choice([None, None, 0, 1, 2]),
            remote=rng.random() < 0.4,
            follows=rng.random() < 0.3,
            keep_own=rng.randint(1, 2),
            keep_root=rng.randint(1, 2),
            jump=rng.choice([0, 0, 100]),
            rotates=rng.random() < 0.5,
        )
        for _ in range(rng.randint(1, 3))
    )
    hands = tuple(
        Hand(rng.randint(1, 3), rng.randint(1, 2), rng.choice([None, None, 2])) for _ in range(rng.randint(0, 2))
    )
    readers = tuple(rng.choice(["fetch", "latest", "verify"]) for _ in range(rng.randint(0, 2)))
    return Plan(
        runs,
        hands,
        readers,
        seed=rng.getrandbits(32),
        switch=rng.choice([0.01, 0.03, 0.1, 0.5]),
        kills=rng.randint(0, 2),
        faults=rng.choice([0.0, 0.0, 0.01, 0.05]),
        upset=rng.choice([0.0, 0.0, 0.1]),
        hot=rng.choice(HOT),
        page=rng.choice([2, 3, 7, 1000]),
    )


__all__ = ["HOT", "plan_of"]
