"""A job of eight ranks that does nothing but save, for :mod:`bench.saving`.

``python -m bench.eight FOLDER SECONDS`` writes ``checkpoint-1``, ``checkpoint-2`` and so on into FOLDER, each in
about a second: eight processes write a shard each, in pieces, and the first one writes ``done`` when all are there.
The last two saves stay.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import shutil
import sys
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from multiprocessing.synchronize import Barrier

RANKS = 8
SHARD = 1 << 20
PIECES = 8
SAVE_S = 1.0
LEFT = 2


def shard(rank: int) -> str:
    """What a rank's file is called."""
    return f"shard-{rank}"


def save(folder: str, rank: int, together: Barrier, seconds: float) -> None:
    """One rank, until the time is up."""
    content = os.urandom(SHARD // PIECES)
    ends_at = time.monotonic() + seconds
    step = 0
    while True:
        step += 1
        path = os.path.join(folder, f"checkpoint-{step}")
        if rank == 0:
            os.mkdir(path)
            shutil.rmtree(os.path.join(folder, f"checkpoint-{step - LEFT}"), ignore_errors=True)
        together.wait()
        with open(os.path.join(path, shard(rank)), "wb", buffering=0) as file:
            for _ in range(PIECES):
                time.sleep(SAVE_S / PIECES)
                file.write(content)
        together.wait()
        if rank == 0:
            open(os.path.join(path, "done"), "w", encoding="ascii").close()
            if time.monotonic() >= ends_at:
                together.abort()
        # The others learn here whether it goes on.
        together.wait()


def main(folder: str, seconds: float) -> int:
    """Run all ranks."""
    together = multiprocessing.Barrier(RANKS)
    for rank in range(RANKS):
        if os.fork() == 0:
            with contextlib.suppress(threading.BrokenBarrierError):
                save(folder, rank, together, seconds)
            os._exit(0)
    for _ in range(RANKS):
        os.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], float(sys.argv[2])))
