"""Executions that upload, publish, resume and thin, people who remove, readers, kills and lost answers: any order.

:class:`tests.s3.world.World` says what must hold after every request.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck
from hypothesis import given as given_by
from hypothesis import settings as with_settings
from hypothesis import strategies as st

from slurm_dispatch.cli import fetch as fetching
from slurm_dispatch.cli import latest as looking
from slurm_dispatch.s3 import bucket, deadline, settings, transfer
from slurm_dispatch.s3 import root as rooting
from slurm_dispatch.watch import local, publish
from tests.s3.after import REST, check_end
from tests.s3.cast import actors
from tests.s3.shelf import Object, put_in_place
from tests.s3.world import PART, PREFIX, Hand, Plan, Run, World
from tests.store.gc_stage import memory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

EXAMPLES = int(os.environ.get("DISPATCH_GC_EXAMPLES", "60"))
"""How many runs; a night's work takes 20,000."""

RUNS = st.builds(
    Run,
    saves=st.integers(0, 4),
    again=st.sampled_from([None, None, 0, 1, 2]),
    remote=st.booleans(),
    follows=st.booleans(),
    keep_own=st.integers(1, 2),
    keep_root=st.integers(1, 2),
    jump=st.sampled_from([0, 0, 100]),
    rotates=st.booleans(),
)
HANDS = st.builds(Hand, passes=st.integers(1, 3), last=st.integers(1, 2), every=st.sampled_from([None, None, 2]))
PLANS = st.builds(
    Plan,
    runs=st.lists(RUNS, min_size=1, max_size=3).map(tuple),
    hands=st.lists(HANDS, min_size=0, max_size=2).map(tuple),
    readers=st.lists(st.sampled_from(["fetch", "latest", "verify"]), max_size=2).map(tuple),
    seed=st.integers(0, 2**32),
    switch=st.sampled_from([0.01, 0.03, 0.1, 0.5]),
    kills=st.integers(0, 2),
    faults=st.sampled_from([0.0, 0.0, 0.01, 0.05]),
    upset=st.sampled_from([0.0, 0.0, 0.1]),
    hot=st.sampled_from(["", "", "delete", "put", "create", "list", "get", "head"]),
    page=st.sampled_from([2, 3, 7, 1000]),
)


class Ground:
    """Where worlds are run: one after the other, each with an empty store.

    :ivar met: what has happened in all of them.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.world: World | None = None
        self.met: Counter[str] = Counter()

    def run(self, plan: Plan) -> World:
        """One run of a plan; raises what did not hold."""
        path = tempfile.mkdtemp(dir=self.folder)
        world = self.world = World(path, plan)
        for key in REST:
            world.shelf.objects[f"{PREFIX}/{key}"] = Object(b"rest")
        try:
            world.play(actors(world))
            check_end(world)
        finally:
            self.met += world.met
            self.world = None
            shutil.rmtree(path, ignore_errors=True)
        return world


@pytest.fixture
def ground(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, no_aws_files: None) -> Iterator[Ground]:
    """Worlds, with the product's requests on their shelves."""
    folder = memory(tmp_path)
    ground = Ground(folder)

    def world() -> World:
        assert ground.world is not None
        return ground.world

    put_in_place(monkeypatch, lambda: world().shelf)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")
    given = settings.settings()
    monkeypatch.setattr(rooting, "settings", lambda: given)
    monkeypatch.setattr(bucket, "PART_BYTES", PART)
    monkeypatch.setattr(transfer, "RANGE_BYTES", PART)
    monkeypatch.setattr(publish, "PAUSE_S", 0.0)
    # One thread an actor: who goes on is the stage's to say.
    monkeypatch.setattr(deadline.Deadline, "call", lambda _, act: act())
    monkeypatch.setattr(deadline.time, "sleep", lambda _: None)

    def in_some_order(acts: Sequence[Callable[[], tuple[int, int]]], meter: transfer.Meter) -> None:
        for act in world().rng.sample(list(acts), len(acts)):
            meter.add(*act())

    monkeypatch.setattr(transfer, "_all", in_some_order)

    class OneByOne:
        """What is done together, one after the other."""

        def __init__(self, _: int) -> None: ...

        def __enter__(self) -> OneByOne:  # noqa: PYI034 - Python 3.10 has no Self
            return self

        def __exit__(self, *_: object) -> None: ...

        def map(self, act: Callable[[str], None], keys: Sequence[str]) -> list[None]:
            return [act(key) for key in keys]

    monkeypatch.setattr(rooting, "ThreadPoolExecutor", OneByOne)
    real = transfer.remove_quietly

    def unless_killed(path: bytes) -> bool:
        stage = world().stage
        actor = None if stage is None else stage.mine()
        return False if actor is not None and actor.killed else real(path)

    monkeypatch.setattr(transfer, "remove_quietly", unless_killed)
    monkeypatch.setattr(os, "fsync", lambda _: None)
    for module in (local, publish, fetching, looking):
        monkeypatch.setattr(module, "say", lambda *_, **__: None)
    yield ground
    print(dict(sorted(ground.met.items())))
    shutil.rmtree(folder)


@with_settings(
    max_examples=EXAMPLES, deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip
@given_by(plan=PLANS)
def test_no_order_of_requests_takes_the_latest_away(ground: Ground, plan: Plan) -> None:
    ground.run(plan)
