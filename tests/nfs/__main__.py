"""``python -m tests.nfs``: the window between a publication on one host and ``latest`` on another, as a table."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.nfs.boot import HEAD, LATE, OPTIONS, boot, row

LATE_PUBLICATIONS = 3


def main() -> int:
    """Measure with each of the options; 1 if one was not seen at the first look that should have been."""
    parser = argparse.ArgumentParser(prog="python -m tests.nfs")
    parser.add_argument("--publications", type=int, default=500)
    publications = parser.parse_args().publications
    print(HEAD, flush=True)
    late = [name for name, options in OPTIONS.items() if _measured(name, options, publications) > 1]
    _measured(LATE, LATE, LATE_PUBLICATIONS)
    return 1 if late else 0


def _measured(name: str, options: str, publications: int) -> int:
    """Print the line of these options; returns the most looks that one took."""
    with tempfile.TemporaryDirectory(prefix="nfs-") as folder:
        window = boot(Path(folder), [options] * 2, [], publications).window
    print(row(name, window), flush=True)
    return max(window["looks"])


if __name__ == "__main__":
    sys.exit(main())
