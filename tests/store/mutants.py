"""Faults that are put into the product one at a time, to see that a model finds each."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Patch = pytest.MonkeyPatch


@dataclass(frozen=True)
class Mutant:
    """A fault, a part of what the model says of it, and the number of a run in which it did: where to begin."""

    fault: Callable[[Patch], None]
    says: tuple[str, ...]
    first: int = 0
    shape: Mapping[str, Any] = field(default_factory=dict)
    """What the plan must be, where few plans show it."""


def hunt(
    mutant: Mutant,
    patch: Patch,
    run: Callable[[random.Random], object],
    *,
    runs: int,
    troubles: type[Exception],
) -> None:
    """Run the model with the fault until it fails, at an assertion that is meant for that.

    :param run: one run, of a plan that is drawn.
    :param runs: so many at most.
    :param troubles: what the product itself may say of the fault, beside the model's assertions.
    """
    mutant.fault(patch)
    for number in range(mutant.first, mutant.first + runs):
        try:
            run(random.Random(number))
        except (AssertionError, troubles) as error:
            said = f"{type(error).__name__}: {error}"
            assert any(text in said for text in mutant.says), f"run {number}: {said}"
            print(f"found in run {number}: {said[:200]}")
            return
    raise AssertionError(f"{mutant.fault.__name__} was not found in {runs} runs")


__all__ = ["Mutant", "Patch", "hunt"]
