"""What the programs here share: executions in one process, ranks by fork, and results as JSON lines.

They run under the interpreter of ``tools/make-venv-savers``, once for many tests: loading a library takes seconds.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import traceback
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def become(root: str, number: int) -> None:
    """This process is the ``number``-th execution of the job from here on, as TaskProlog would say it."""
    for name in [name for name in os.environ if name.startswith(("DISPATCH_", "SLURM_"))]:
        del os.environ[name]
    os.environ.update(
        DISPATCH_JOB="job", DISPATCH_EPOCH=str(number * 10**6), DISPATCH_ATTEMPT=attempt(number),
        DISPATCH_CHECKPOINT=root,
    )


def from_dir() -> str | None:
    """Where a root in S3 is saved to first: what the test says."""
    return os.environ.get("FROM_DIR")


def attempt(number: int) -> str:
    return f"execution{number}".ljust(20, "0")


def tell(what: str, **fields: Any) -> None:
    os.write(1, json.dumps({"what": what, **fields}).encode() + b"\n")


def port() -> int:
    """A port that nobody has at this moment."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def on_ranks(count: int, work: Callable[[int], None]) -> None:
    """``work(rank)`` in so many forks, with the variables of torchrun. An error in one is an error here."""
    shared = {"WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port())}
    children = []
    for rank in range(count):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                os.environ.update(shared, RANK=str(rank), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(count))
                work(rank)
                status = 0
            except BaseException:  # the outermost frame of a process
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(status)
        children.append(child)
    statuses = [os.waitpid(child, 0)[1] for child in children]
    if any(statuses):
        raise SystemExit(f"ranks ended with {statuses}")
