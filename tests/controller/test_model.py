"""The model: record, decide, the controllers' pass and a simulated Slurm, in any order.

``make nightly`` takes at least a million steps, drawn by ``SEED``; ``make test`` takes the same few thousand each
time. The simulated Slurm is the one that ``test_conformance.py`` holds against the real one.
"""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from slurm_dispatch.controller import elders, engine, job
from slurm_dispatch.submit import run as submit_run
from tests.controller.site_faults import MUST_HAPPEN
from tests.controller.site_machine import CLOCK, Asked, Site
from tests.controller.site_world import SEEN, TRACE, SiteWorld

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slurm_dispatch.records.facts import Fact
    from slurm_dispatch.records.state import State

EXAMPLES = {"plain": 90, "once": 70, "rules": 130, "budgets": 80, "shared": 160, "suspects": 110}
"""Of each kind of job, in every run."""
TURNS_MORE, EXAMPLES_MORE = 6, 40
STEPS_EACH = 40
TOP = Path(__file__).resolve().parents[2]
NIGHTLY_STEPS = int(os.environ.get("MODEL_STEPS", "0"))
"""0: the few examples of every run. ``make nightly`` sets it."""
PARTS, BATCH = 8, 250
"""Of the nightly: each part can run beside the others, and says a line before each batch of so many examples."""
SHOWN = (Phase.generate, Phase.shrink)


@pytest.fixture(autouse=True)
def _time(monkeypatch: pytest.MonkeyPatch) -> None:
    in_the_world(monkeypatch)


def in_the_world(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time, chance, hosts and the other records are the world's own."""
    CLOCK[:] = [SiteWorld()]
    monkeypatch.setattr(time, "time", lambda: CLOCK[0].wall)
    monkeypatch.setattr(time, "clock_gettime", lambda clock: CLOCK[0].now)
    for module in (job, submit_run, elders):
        monkeypatch.setattr(module, "fold", _folded)
    monkeypatch.setattr(submit_run, "socket", SimpleNamespace(gethostname=lambda: CLOCK[0].acting))
    monkeypatch.setattr(elders, "record_of", lambda record, key: CLOCK[0].owned[key].record)
    monkeypatch.setattr(engine, "random", SimpleNamespace(SystemRandom=lambda: random.Random(1)))
    monkeypatch.setattr(engine, "read_asked", lambda folder: Asked.kept.get(folder, {}))
    monkeypatch.setattr(engine, "write_asked", lambda folder, counts: Asked.kept.update({folder: dict(counts)}))


def _folded(facts: Sequence[Fact]) -> State:
    return CLOCK[0].folded(facts)


def begin() -> None:
    """Count anew."""
    Site.taken = Site.inner = Site.examples = 0
    Site.digest = hashlib.sha256()
    SEEN.clear()
    TRACE.clear()


def counted() -> str:
    """What was done since :func:`begin`."""
    digest = Site.digest.hexdigest()[:16]
    return f"{Site.taken} steps, {Site.inner} inner ones, {Site.examples} examples, digest {digest}"


def run(kind: str, seed: int | None, examples: int, *, phases: tuple[Phase, ...] = SHOWN) -> None:
    """So many examples of one kind of job, drawn by this seed; the kind's own ones each time without one."""
    Site.kind = kind
    seed = random.Random(kind).getrandbits(64) if seed is None else seed
    Site._hypothesis_internal_use_seed = seed  # type: ignore[attr-defined]  # what hypothesis.seed sets
    chosen = settings(
        max_examples=examples, stateful_step_count=STEPS_EACH, deadline=None, database=None, phases=phases,
        suppress_health_check=list(HealthCheck), print_blob=True,
    )  # fmt: skip
    run_state_machine_as_test(Site, settings=chosen)


def test_one_seed_draws_one_sequence() -> None:
    """In another process, after other work and with another order of sets too; another seed draws another one."""
    digests = []
    for seed in (5, 6):
        begin()
        run("shared", seed, 12)
        digests.append(Site.digest.hexdigest())
    assert digests[0] != digests[1]
    command = [sys.executable, "-m", "tests.controller.model_digest", "shared", "5", "12"]
    environment = {**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": str(TOP)}
    told = subprocess.run(command, check=True, env=environment, cwd=TOP, capture_output=True, text=True, timeout=300)
    assert told.stdout.split() == [digests[0]]


def test_in_any_order() -> None:
    """The same examples each time, so that a change and nothing else makes this fail; more of them while something
    that must happen has not, since a change of the product, or of what draws, moves what is rare."""
    begin()
    for kind, examples in EXAMPLES.items():
        run(kind, None, examples)
    more = [(turn, kind) for turn in range(TURNS_MORE) for kind in EXAMPLES]
    while missing() and more:
        turn, kind = more.pop(0)
        run(kind, random.Random(f"{kind} {turn}").getrandbits(64), EXAMPLES_MORE)
    print(counted())
    for name, count in sorted(SEEN.items()):
        print(f"{count:7} {name}")
    assert not missing(), f"the model no longer comes to these: {missing()}"


def missing() -> list[str]:
    """What must happen and has not."""
    return [name for name in MUST_HAPPEN if not SEEN.get(name)]


@pytest.mark.skipif(not NIGHTLY_STEPS, reason="make nightly")
@pytest.mark.parametrize("part", range(PARTS))
def test_in_a_million_orders(part: int) -> None:
    """Others each time: ``SEED`` repeats them."""
    begin()
    batch = 0
    while Site.taken < NIGHTLY_STEPS // PARTS:
        seed = random.Random(f"{os.environ['SEED']} {part} {batch}").getrandbits(64)
        kind = list(EXAMPLES)[batch % len(EXAMPLES)]
        say(f"part {part}, batch {batch}: {kind}, seed {seed}; {counted()}")
        run(kind, seed, BATCH)
        batch += 1
    say(f"part {part} is done: {counted()}")


def say(line: str) -> None:
    """For whoever waits: into ``MODEL_LOG`` too, since pytest shows it at the end only."""
    print(line, flush=True)
    if "MODEL_LOG" in os.environ:
        with open(os.environ["MODEL_LOG"], "a", encoding="utf-8") as stream:
            stream.write(f"SEED={os.environ['SEED']} {line}\n")
