"""``python -m tests.power``: 50 power losses, and their table. ``SEED=N`` repeats the choices of a run."""

from __future__ import annotations

import argparse
import os
import secrets
import sys
import tempfile
from pathlib import Path

from tests.power.cycles import run, table


def main() -> int:
    """Run them; 1 if anything was lost."""
    parser = argparse.ArgumentParser(prog="python -m tests.power")
    parser.add_argument("--cycles", type=int, default=50)
    cycles = parser.parse_args().cycles
    seed = os.environ.get("SEED") or str(secrets.randbelow(2**32))
    print(f"SEED={seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="power-") as folder:
        result = run(Path(folder), cycles, seed, lambda line: print(line, file=sys.stderr, flush=True))
    print(table(result, seed))
    return 1 if result.lost else 0


if __name__ == "__main__":
    sys.exit(main())
