"""``python -m tests.trials``: all trials of each design, and the table in ``docs/trials.md``."""

from __future__ import annotations

import argparse
import secrets
import sys
import tempfile

from tests.trials import pointer
from tests.trials.designs import DESIGNS, Design, Ours
from tests.trials.tally import put, rows, run_all
from tests.trials.trial import SAVE_STEPS, STEP_S, Schedule, run_trial

ROUNDS = 40
SIDE_BY_SIDE = 3

Result = tuple[Design, Schedule, str | None]


def one(design: Design, schedule: Schedule) -> str | None:
    """One trial, in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="trial-") as folder:
        return run_trial(design, folder, schedule)


def table(results: list[Result], rounds: int, base: int) -> str:
    """The page of the results."""
    lines = [
        "# Trials: an old run that writes beside its replacement",
        "",
        f"The same trial {rounds} times with each design (`make trials`, seeds {base} to {base + rounds - 1}):",
        "run 1 is told to end and goes on, stalled for a while in half of the trials; run 2 replaces it at once,",
        "and run 3 replaces run 2. A design loses a trial if a run cannot go on, or if the last save is not made",
        "of the steps of run 1 up to a save that was there when run 2 began, of run 2 up to its last save, and of",
        "run 3, or has losses other than a run without faults that does these steps (bit for bit).",
        f"A run saves every {SAVE_STEPS * STEP_S * 1000:.0f} ms; the pointer's design checks a save for",
        f"{pointer.CHECK_S * 1000:.0f} ms before it renames. `tests/trials/trial.py` says the rest.",
        "",
        *rows(DESIGNS, results),
    ]
    lines += ["", "`make test` forces a losing schedule of both rivals, which shows that a loss is seen.", ""]
    return "\n".join(lines)


def main() -> int:
    """0 if ours lost none; 1 otherwise."""
    parser = argparse.ArgumentParser(prog="python -m tests.trials")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="trials of each design")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6), help="the first seed")
    parser.add_argument("--out", default="docs/trials.md", help="where the table goes; '' prints it only")
    options = parser.parse_args()
    results = run_all(DESIGNS, options.rounds, options.seed, SIDE_BY_SIDE, one)
    page = table(results, options.rounds, options.seed)
    put(page, options.out)
    return int(any(end is not None for design, _, end in results if isinstance(design, Ours)))


if __name__ == "__main__":
    sys.exit(main())
