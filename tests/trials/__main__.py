"""``python -m tests.trials``: all trials of each design, and the table in ``docs/trials.md``."""

from __future__ import annotations

import argparse
import os
import random
import secrets
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from tests.trials import pointer
from tests.trials.designs import DESIGNS, Design, Ours
from tests.trials.trial import SAVE_STEPS, STEP_S, Schedule, run_trial

ROUNDS = 40
SIDE_BY_SIDE = 3
KINDS = (
    ("could not go on", "a run died of the other's rotation"),
    ("the work of a replacement", "the work of a replacement was gone"),
    ("began at step", "a run began before a save that was there"),
    ("saves were mixed", "saves of two runs were mixed"),
    ("", "the last save could not be read"),
)

Result = tuple[Design, Schedule, str | None]


def run_all(rounds: int, base: int) -> list[Result]:
    """``rounds`` trials of each design, in an order that the seed decides, several side by side."""
    jobs = [(design, Schedule.of(base + number)) for number in range(rounds) for design in DESIGNS]
    random.Random(base).shuffle(jobs)
    done = 0

    def one(job: tuple[Design, Schedule]) -> Result:
        nonlocal done
        with tempfile.TemporaryDirectory(prefix="trial-") as folder:
            end = run_trial(job[0], folder, job[1])
        done += 1
        print(f"{done}/{len(jobs)} {job[0].name}, seed {job[1].seed}: {end or 'kept everything'}", file=sys.stderr)
        return job[0], job[1], end

    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        return list(pool.map(one, jobs))


def kind_of(end: str) -> str:
    return next(words for part, words in KINDS if part in end)


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
        "| design | trials | lost | how |",
        "|---|---|---|---|",
    ]
    for design in DESIGNS:
        ends = [end for found, _, end in results if found is design]
        kinds = Counter(kind_of(end) for end in ends if end is not None)
        how = "; ".join(f"{words}: {count}" for words, count in kinds.most_common()) or "-"
        lines.append(f"| {design.words} | {len(ends)} | {sum(kinds.values())} | {how} |")
    lines += ["", "`make test` forces a losing schedule of both rivals, which shows that a loss is seen.", ""]
    return "\n".join(lines)


def main() -> int:
    """0 if ours lost none; 1 otherwise."""
    parser = argparse.ArgumentParser(prog="python -m tests.trials")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="trials of each design")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6), help="the first seed")
    parser.add_argument("--out", default="docs/trials.md", help="where the table goes; '' prints it only")
    options = parser.parse_args()
    results = run_all(options.rounds, options.seed)
    page = table(results, options.rounds, options.seed)
    if options.out:
        os.makedirs(os.path.dirname(options.out) or ".", exist_ok=True)
        with open(options.out, "w", encoding="utf-8") as file:
            file.write(page)
    print(page)
    return int(any(end is not None for design, _, end in results if isinstance(design, Ours)))


if __name__ == "__main__":
    sys.exit(main())
