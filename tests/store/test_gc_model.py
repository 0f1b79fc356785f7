"""Executions that publish, keep, thin and resume, people who remove and adopt, kills: any order of their calls.

:class:`tests.store.gc_world.World` says what must hold after every one of them.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slurm_dispatch.store import transfer
from tests.store.gc_stage import memory, on_stage
from tests.store.gc_world import Hand, Helper, Plan, World

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

EXAMPLES = int(os.environ.get("DISPATCH_GC_EXAMPLES", "60"))
"""How many runs; a night's work takes 20,000."""

HELPERS = st.builds(
    Helper,
    turns=st.lists(st.integers(0, 4), min_size=1, max_size=2).map(tuple),
    keep_own=st.integers(1, 2),
    keep_root=st.integers(1, 2),
    rotates=st.booleans(),
    jump=st.sampled_from([0, 0, 100]),
)
HANDS = st.builds(
    Hand,
    passes=st.integers(1, 3),
    last=st.integers(1, 2),
    every=st.sampled_from([None, None, 2]),
    lag=st.sampled_from([0, 0, 0, 1, 2]),
)
PLANS = st.builds(
    Plan,
    helpers=st.lists(HELPERS, min_size=1, max_size=3).map(tuple),
    hands=st.lists(HANDS, min_size=1, max_size=2).map(tuple),
    adoptions=st.integers(0, 1),
    seed=st.integers(0, 2**32),
    switch=st.sampled_from([0.01, 0.03, 0.1, 0.5]),
    kills=st.integers(0, 2),
    hot=st.sampled_from(["", "unlink", "rename", "link", "open", "scandir", "listdir", "lstat"]),
)


class Ground:
    """Where worlds are run: one after the other, each in an empty root."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.world: World | None = None

    def run(self, plan: Plan) -> World:
        """One run of a plan; raises what did not hold."""
        path = tempfile.mkdtemp(dir=self.folder)
        world = self.world = World(path, plan)
        try:
            world.run()
        finally:
            self.world = None
            shutil.rmtree(path, ignore_errors=True)
        return world


@pytest.fixture
def ground(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, quick: None) -> Iterator[Ground]:
    """Worlds, with the product's calls gated while one runs."""
    folder = memory(tmp_path)
    ground = Ground(folder)
    monkeypatch.setattr(transfer, "COPY_BELOW", 20)
    on_stage(monkeypatch, lambda: None if ground.world is None else ground.world.stage)
    yield ground
    shutil.rmtree(folder)


@settings(
    max_examples=EXAMPLES, deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip
@given(plan=PLANS)
def test_no_order_of_calls_takes_the_latest_away(ground: Ground, plan: Plan) -> None:
    ground.run(plan)
