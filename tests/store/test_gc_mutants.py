"""The model sees what it is there for: each of these faults of the product fails at the assertion meant for it.

A fault that the model no longer finds is a hole in the model.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from slurm_dispatch.durable import open_folder
from slurm_dispatch.errors import StoreError, store_error
from slurm_dispatch.store import gc as collecting
from slurm_dispatch.store import outranked, thin, tree
from slurm_dispatch.store import root as rooting
from slurm_dispatch.store.gc import Known, Standing
from slurm_dispatch.store.remove import remove_tree
from tests.store import gc_world
from tests.store.gc_world import Hand, Helper, Plan
from tests.store.mutants import Mutant, Patch, hunt
from tests.store.test_gc_model import Ground, ground

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable

    from slurm_dispatch.model.publication import Publication
    from slurm_dispatch.store.root import CheckpointRoot

__all__ = ["ground"]

RUNS = 6000
"""Runs in which a fault must show; where calls come in another order it may take some thousand."""


def in_place(patch: Patch) -> None:
    """A save is removed where it stands, file by file."""

    def remove(root: bytes, relative: bytes, unprove: Callable[[], None]) -> bool:
        folder, name = os.path.split(relative)
        parent = open_folder(os.path.join(root, folder))
        unprove()
        try:
            remove_tree(parent, name)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise store_error(error, "removing", relative) from error
        finally:
            os.close(parent)
        return True

    patch.setattr(rooting, "remove_in", remove)


def temporary_in_place(patch: Patch) -> None:
    """What has a temporary name already is not given another one: a living keeper makes a save of the rest."""
    real = tree.remove_in

    def remove(root: bytes, relative: bytes, unprove: Callable[[], None]) -> bool:
        folder, name = os.path.split(relative)
        if not tree.LEFTOVER.fullmatch(name):
            return real(root, relative, unprove)
        parent = tree.open_in(root, folder)
        try:
            os.lstat(name, dir_fd=parent)
            remove_tree(parent, name)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise store_error(error, "removing", relative) from error
        finally:
            os.close(parent)
        return True

    patch.setattr(rooting, "remove_in", remove)


def latest_goes(patch: Patch) -> None:
    """What stays is counted from the second on."""

    def staying(publications: Any, there: Any, rules: Any) -> set[bytes]:
        return {one.path for one in there[1 : rules.last + 1]}

    patch.setattr(collecting, "staying", staying)


def greatest_goes(patch: Patch) -> None:
    """A great step of an old run is no reason to stay."""
    patch.setattr(collecting, "greatest_step", lambda _: None)


def only_what_was_seen(patch: Patch) -> None:
    """What has been published and is not listed yet counts as not published, and goes."""
    real = collecting._of_execution

    def of(work: Any, attempt: str, epoch: Any, latest: Any, published: Any, *, over: bool) -> None:
        if epoch is not None:
            work.older(attempt, published)

    assert real
    patch.setattr(collecting, "_of_execution", of)


def unknown_is_old(patch: Patch) -> None:
    """An execution of which no epoch is known is taken for the oldest."""
    real = outranked.epochs_of

    def epochs(root: CheckpointRoot, published: Any, lent: Any = None) -> dict[str, int | None]:
        return {attempt: epoch or 0 for attempt, epoch in real(root, published).items()}

    patch.setattr(collecting, "epochs_of", epochs)


class Late:
    """What is known of an execution by the time at which it matters."""

    def __init__(self, attempt: str, standing: Callable[[str], Known]) -> None:
        self._attempt = attempt
        self._standing = standing
        self._known: Known | None = None

    @property
    def standing(self) -> Standing:
        """Asked now."""
        if self._known is None:
            self._known = self._standing(self._attempt)
        return self._known.standing


def asked_late(patch: Patch) -> None:
    """Whether an execution runs is asked after the publications were listed: it publishes and ends in between."""
    real = gc_world.collecting.plan

    def plan(root: CheckpointRoot, rules: Any, standing: Any, is_save: Any) -> Any:
        return real(root, rules, lambda attempt: Late(attempt, standing), is_save)  # type: ignore[arg-type, return-value]

    patch.setattr(gc_world.collecting, "plan", plan)


def running_is_over(patch: Patch) -> None:
    """Nobody asks whether an execution runs."""
    real = gc_world.collecting.plan
    over = Known(Standing.OVER, "")

    def plan(root: CheckpointRoot, rules: Any, standing: Any, is_save: Any) -> Any:
        def asked(attempt: str) -> Known:
            standing(attempt)
            return over

        return real(root, rules, asked, is_save)

    patch.setattr(gc_world.collecting, "plan", plan)


def ended_is_over(patch: Patch) -> None:
    """A helper that has ended is taken for the execution: the next one in it starts from what is being removed."""
    real = collecting._of_execution
    patch.setattr(collecting, "_of_execution", lambda *them, over: real(*them, over=True))


def no_epochs(patch: Patch) -> None:
    """The helper thins every other execution, its replacement's too."""
    real = thin.epochs_of

    def epochs(root: CheckpointRoot, published: Any, lent: Any = None) -> dict[str, int | None]:
        return dict.fromkeys(real(root, published), 0)

    patch.setattr(thin, "epochs_of", epochs)


def old_path(patch: Patch) -> None:
    """What is adopted is published by the path that it had."""
    patch.setattr(gc_world, "bring", lambda root, old, attempt: old.path)


def unpublished_of_its_own(patch: Patch) -> None:
    """The helper removes everything in kept/ that was not published among the last."""
    real = outranked.Candidates.published

    def published(self: Any, publications: Iterable[Publication]) -> None:
        listed = list(publications)
        real(self, listed)
        for one in listed[:1]:
            self._all(os.path.dirname(one.path))

    patch.setattr(outranked.Candidates, "published", published)


def everything_goes(patch: Patch) -> None:
    """Of an older execution all goes, not only saves."""
    patch.setattr(outranked.Candidates, "_written_save", lambda self, name: name != b".dispatch")


def leftovers_stay(patch: Patch) -> None:
    """What a killed gc left is never removed."""

    def fails(root: bytes, relative: bytes, unprove: Callable[[], None]) -> bool:
        if tree.LEFTOVER.fullmatch(os.path.basename(relative)):
            return False
        return real(root, relative, unprove)

    real = tree.remove_in
    patch.setattr(rooting, "remove_in", fails)


PEACE = {"hands": (Hand(3),), "adoptions": 0, "kills": 0}
"""One person who removes, and no other trouble."""
MUTANTS = [
    Mutant(in_place, ("half",), 1_493, {"hot": "unlink"}),
    Mutant(temporary_in_place, ("half", "is changed: it had", "is gone: it had"), 20_000_500),
    Mutant(latest_goes, ("latest",)),
    Mutant(greatest_goes, ("has the greatest step",), 20),
    Mutant(only_what_was_seen, ("latest", "starts from"), 23),
    Mutant(unknown_is_old, ("latest",), 181),
    Mutant(asked_late, ("has the greatest step",), 371, {**PEACE, "helpers": (Helper((3,), jump=100), Helper((2,)))}),
    Mutant(running_is_over, ("is of a run that goes on", "AbsentError")),
    Mutant(ended_is_over, ("starts from",), 148, {**PEACE, "helpers": (Helper((1,)), Helper((0, 0, 0)))}),
    Mutant(no_epochs, ("latest", "starts from", "AbsentError"), 6),
    Mutant(old_path, ("latest",), 181),
    Mutant(unpublished_of_its_own, ("latest",), 220),
    Mutant(everything_goes, ("is no save",)),
    Mutant(leftovers_stay, ("leftover",), 19),
]


def plan_of(rng: random.Random) -> Plan:
    """A plan as Hypothesis draws them, but faster, and with more happening."""
    helpers = tuple(
        Helper(
            turns=tuple(rng.randint(0, 4) for _ in range(rng.choice([1, 1, 2]))),
            keep_own=rng.randint(1, 2),
            keep_root=rng.randint(1, 2),
            rotates=rng.random() < 0.5,
            jump=rng.choice([0, 0, 100]),
        )
        for _ in range(rng.randint(1, 3))
    )
    hands = tuple(
        Hand(rng.randint(1, 3), rng.randint(1, 2), rng.choice([None, 2]), rng.choice([0, 0, 1, 2]))
        for _ in range(rng.randint(1, 2))
    )
    switch, kills = rng.choice([0.01, 0.03, 0.1, 0.5]), rng.randint(0, 2)
    hot = rng.choice(["", "unlink", "rename", "link", "open", "scandir", "listdir"])
    return Plan(helpers, hands, rng.randint(0, 1), rng.getrandbits(32), switch, kills, hot)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.fault.__name__)
def test_a_fault_is_found(ground: Ground, monkeypatch: pytest.MonkeyPatch, mutant: Mutant) -> None:
    def run(rng: random.Random) -> None:
        ground.run(replace(plan_of(rng), **mutant.shape))

    hunt(mutant, monkeypatch, run, runs=RUNS, troubles=StoreError)
