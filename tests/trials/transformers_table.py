"""``python -m tests.trials.transformers_table``: trials of the real Trainer; ``docs/trials-transformers.md``."""

from __future__ import annotations

import argparse
import os
import secrets
import sys

from docker.rig import Cluster
from tests.trials.tally import put, rows, run_all
from tests.trials.transformers_trial import DESIGNS, OnCluster, Ours, load, run_trial
from tests.trials.trial import Schedule

ROUNDS = 40
SIDE_BY_SIDE = 4

Result = tuple[type[OnCluster], Schedule, "str | None"]


def table(results: list[Result], rounds: int, base: int) -> str:
    """The page of the results."""
    lines = [
        "# Trials with the real Trainer: an old run that saves beside its replacement",
        "",
        f"The same trial {rounds} times with each design on the cluster (`make trials`, seeds {base} to",
        f"{base + rounds - 1}): the `Trainer` of transformers 5.24 with `save_total_limit=1` trains a tiny GPT-2 and",
        "traps SIGTERM; it is told to end and goes on saving, stalled for a while in half of the trials; its",
        "replacement is submitted at once and resumes. Then both are killed. A design loses a trial if the",
        "replacement cannot go on, or if the save that a third run would load is not whole, or is not made of the",
        "steps of run 1 up to a save that was there when it was replaced and of run 2 up to its last save.",
        "`tests/trials/transformers_trial.py` says the rest.",
        "",
        *rows(DESIGNS, results),
    ]
    lines += ["", "`make test` runs five of ours, and forces a losing schedule of the one folder.", ""]
    return "\n".join(lines)


def main() -> int:
    """0 if ours lost none; 1 otherwise."""
    parser = argparse.ArgumentParser(prog="python -m tests.trials.transformers_table")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="trials of each design")
    parser.add_argument("--side-by-side", type=int, default=SIDE_BY_SIDE, help="trials at once")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6), help="the first seed")
    parser.add_argument("--out", default="docs/trials-transformers.md", help="'' prints it only")
    options = parser.parse_args()
    keep = bool(os.environ.get("DISPATCH_KEEP"))
    cluster = Cluster()
    cluster.up()
    try:
        cluster.reset()
        load(cluster)

        def one(design: type[OnCluster], schedule: Schedule) -> str | None:
            return run_trial(design(cluster), schedule)

        results = run_all(DESIGNS, options.rounds, options.seed, options.side_by_side, one)
    finally:
        if not keep:
            cluster.down()
    page = table(results, options.rounds, options.seed)
    put(page, options.out)
    return int(any(end is not None for design, _, end in results if design is Ours))


if __name__ == "__main__":
    sys.exit(main())
