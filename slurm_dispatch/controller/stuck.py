"""Ticks of before that the kernel does not let go of.

A file server that is away leaves each tick of cron with children that cannot be killed. A weekend of them would
take the host, so a tick that finds too many of the site's own does nothing, and one that finds several of one
owner leaves that owner's jobs alone. They are counted apart because anybody can run a process that looks like
ours: a user can stop his own jobs so, and nothing else.
"""

from __future__ import annotations

import os
from collections import Counter

STUCK_MAX = 32
"""Processes of ticks in uninterruptible sleep: a healthy tick has fewer at any moment."""
STUCK_OWNER_MAX = 4
"""The same of one owner: each tick has one child an owner."""


def stuck(proc: str = "/proc") -> Counter[int]:
    """How many processes with this one's command line are in uninterruptible sleep (state ``D``), by real uid.

    :param proc: where procfs is; a process that ends meanwhile is none.
    """
    with open(os.path.join(proc, "self", "cmdline"), "rb") as stream:
        own = stream.read()
    found: Counter[int] = Counter()
    for name in os.listdir(proc):
        if not name.isdigit():
            continue
        try:
            with open(os.path.join(proc, name, "stat"), "rb") as stream:
                state = stream.read().rpartition(b")")[2].split()[:1]
            if state != [b"D"]:
                continue
            with open(os.path.join(proc, name, "cmdline"), "rb") as stream:
                if stream.read() != own:
                    continue
            # Not the owner of the folder, which is root where a process changed its user.
            with open(os.path.join(proc, name, "status"), "rb") as stream:
                found[_uid(stream.read())] += 1
        except (OSError, ValueError):
            continue
    return found


def _uid(status: bytes) -> int:
    """The real uid in a ``status`` file of procfs."""
    for line in status.splitlines():
        if line.startswith(b"Uid:"):
            return int(line.split()[1])
    raise ValueError("a status without a uid")


__all__ = ["STUCK_MAX", "STUCK_OWNER_MAX", "stuck"]
