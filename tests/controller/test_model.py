"""The model: record, decide, the controllers' pass and a simulated Slurm, in any order.

``make nightly`` takes at least a million steps, drawn by ``SEED``; ``make test`` takes the same few thousand each
time. The simulated Slurm is the one that ``test_conformance.py`` holds against the real one.
"""

from __future__ import annotations

import hashlib
import os
import random
import time
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from slurm_dispatch.controller import elders, engine, job
from slurm_dispatch.submit import run as submit_run
from tests.controller.site_machine import CLOCK, Asked, Site
from tests.controller.site_world import SEEN, TRACE, SiteWorld

EXAMPLES = {"plain": 80, "once": 80, "rules": 100, "budgets": 80, "shared": 120, "suspects": 120}
"""Of each kind of job, in every run."""
STEPS_EACH = 40
NIGHTLY_STEPS = int(os.environ.get("MODEL_STEPS", "0"))
"""0: the few examples of every run. ``make nightly`` sets it."""
BATCH = 500
"""Examples of the nightly between two of its lines."""
SHOWN = (Phase.generate, Phase.shrink)


@pytest.fixture(autouse=True)
def _time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time, chance, hosts and the other records are the world's own."""
    CLOCK[:] = [SiteWorld()]
    TRACE.clear()
    monkeypatch.setattr(time, "time", lambda: CLOCK[0].wall)
    monkeypatch.setattr(time, "clock_gettime", lambda clock: CLOCK[0].now)
    monkeypatch.setattr(job, "fold", lambda facts: CLOCK[0].folded(facts))
    monkeypatch.setattr(submit_run, "fold", lambda facts: CLOCK[0].folded(facts))
    monkeypatch.setattr(submit_run, "socket", SimpleNamespace(gethostname=lambda: CLOCK[0].acting))
    monkeypatch.setattr(elders, "fold", lambda facts: CLOCK[0].folded(facts))
    monkeypatch.setattr(elders, "record_of", lambda record, key: CLOCK[0].owned[key].record)
    monkeypatch.setattr(engine, "random", SimpleNamespace(SystemRandom=lambda: random.Random(1)))
    monkeypatch.setattr(engine, "read_asked", lambda folder: Asked.kept.get(folder, {}))
    monkeypatch.setattr(engine, "write_asked", lambda folder, counts: Asked.kept.update({folder: dict(counts)}))


def begin() -> None:
    """Count anew."""
    Site.taken = Site.inner = Site.examples = 0
    Site.digest = hashlib.sha256()
    SEEN.clear()


def counted() -> str:
    """What was done since :func:`begin`."""
    return f"{Site.taken} steps, {Site.inner} inner ones, {Site.examples} examples, digest {Site.digest.hexdigest()[:16]}"


def run(kind: str, seed: int | None, examples: int, *, phases: tuple[Phase, ...] = SHOWN) -> None:
    """So many examples of one kind of job, drawn by this seed; the same ones each time without one."""
    Site.kind = kind
    Site._hypothesis_internal_use_seed = seed  # type: ignore[attr-defined]  # what hypothesis.seed sets
    chosen = settings(
        max_examples=examples, stateful_step_count=STEPS_EACH, deadline=None, database=None, phases=phases,
        derandomize=seed is None,
        suppress_health_check=list(HealthCheck), print_blob=True,
    )  # fmt: skip
    run_state_machine_as_test(Site, settings=chosen)


def test_in_any_order() -> None:
    """The same examples each time, so that a change and nothing else makes this fail."""
    begin()
    for kind, examples in EXAMPLES.items():
        run(kind, None, examples)
    print(counted())
    for name, count in sorted(SEEN.items()):
        print(f"{count:7} {name}")


@pytest.mark.skipif(not NIGHTLY_STEPS, reason="make nightly")
@pytest.mark.parametrize("part", range(2))
def test_in_a_million_orders(part: int) -> None:
    """Others each time: ``SEED`` repeats them."""
    begin()
    batch = 0
    while Site.taken < NIGHTLY_STEPS // 2:
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
