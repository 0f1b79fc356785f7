"""Which process of this host uploads a save just now: the helper, or a training that publishes itself.

An announcement, and no lock: what it saves is traffic. A process that was killed counts for nothing, one of another
container may not be seen, and two that upload one save all the same send the same objects under the same names.
"""

from __future__ import annotations

import json
import os
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import TYPE_CHECKING

from slurm_dispatch.durable import create_whole, read_regular
from slurm_dispatch.errors import BadDataError, StoreError
from slurm_dispatch.watch.turn import SIZE_MAX, is_gone, parse_runner, this_process

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = ".dispatch"
"""In the folder that the execution saves into on a host: what is ours."""
PREFIX = "sending-"


@contextmanager
def announced(folder: str | None, name: str) -> Iterator[bool]:
    """Say that this process uploads the save ``name``, until the block ends.

    :param folder: of this host, where the execution saves; ``None`` where there is nobody to tell.
    :returns: false if another process that lives says so.
    """
    made = folder is not None and _made(os.path.join(folder, FOLDER), PREFIX + name)
    try:
        yield made or folder is None or not _is_anothers(os.path.join(folder, FOLDER), PREFIX + name)
    finally:
        if made and folder is not None:
            with suppress(OSError):
                os.unlink(os.path.join(folder, FOLDER, PREFIX + name))


def _made(folder: str, name: str) -> bool:
    content = json.dumps(asdict(this_process(os.getpid()))).encode()
    try:
        os.makedirs(folder, exist_ok=True)
        if create_whole(folder, name, content):
            return True
        if _is_anothers(folder, name):
            return False
        os.unlink(os.path.join(folder, name))  # of a process that has gone
        return create_whole(folder, name, content)
    except (OSError, StoreError):
        return False  # a disk that is full: nothing is announced


def _is_anothers(folder: str, name: str) -> bool:
    """Whether a process of this host that lives, and is not this one, has announced it."""
    try:
        said = parse_runner(read_regular(os.path.join(folder, name), SIZE_MAX))
    except (StoreError, BadDataError):
        return False
    # Of another host nobody here can say whether it lives.
    return said.host == os.uname().nodename and said != this_process(os.getpid()) and not is_gone(said)


__all__ = ["FOLDER", "announced"]
