"""The seed's example: the real transformers Trainer traps SIGTERM and goes on saving beside its replacement.

``tests/trials/transformers_trial.py`` says what a trial is; ``make trials`` does 40 of each design.
"""

from __future__ import annotations

import os
import secrets
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.trials.transformers_trial import OneFolder, Ours, Trial, judge, load, run_trial
from tests.trials.trial import Lost, Schedule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from docker.rig import Cluster

pytestmark = [pytest.mark.cluster, pytest.mark.savers, pytest.mark.sample]
ROUNDS = 5


@pytest.fixture(scope="module")
def loaded(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster, whose nodes have loaded the libraries."""
    venv = Path(__file__).resolve().parent.parent.parent / ".venv-savers" / "on-node"
    assert venv.exists(), "run tools/make-venv-savers first"
    load(cluster)
    yield cluster
    cluster.reset()


def forced_loss(cluster: Cluster) -> None:
    """The replacement is gone before the old run saves once more, and by that deletes what the replacement saved.

    :raises Lost: always, if a loss is seen at all.
    """
    design = OneFolder(cluster)
    trial = Trial(design)
    try:
        design.start()
        trial.wait_made(1, 2)
        old = trial.the(1)
        bounds = [design.made(design.known(), old)[-1]]
        design.replace(old)
        trial.wait("run 2 to train", trial.began, needs=2)
        trial.wait_made(2, 1)
        new = trial.the(2)
        design.signal(new, "KILL")
        bounds.append(design.made(design.known(), new)[-1])
        saved = len(design.made(design.known(), old))
        trial.wait("later saves of run 1", lambda known: len(trial.made(known, 1)) >= saved + 2, needs=1)
        design.signal(old, "KILL")
        judge(design.last(), [str(old.epoch), str(new.epoch)], bounds)
    finally:
        design.end()


def test_five_trials_lose_nothing_and_the_harness_sees_a_loss(loaded: Cluster) -> None:
    base = int(os.environ.get("TRIAL_SEED", secrets.randbelow(10**6)))
    print(f"TRIAL_SEED={base}")
    with ThreadPoolExecutor(ROUNDS + 1) as pool:
        loss = pool.submit(forced_loss, loaded)
        ours = [pool.submit(run_trial, Ours(loaded), Schedule.of(base + number)) for number in range(ROUNDS)]
        assert [one.result() for one in ours] == [None] * ROUNDS
        with pytest.raises(Lost, match=r"the work of a replacement is gone|could not go on|cannot be read"):
            loss.result()
