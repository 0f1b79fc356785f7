"""Ticks of before that the kernel does not let go of.

A file server that is away leaves each tick of cron with children that cannot be killed. A weekend of them would
take the host, so a tick that finds too many does nothing.
"""

from __future__ import annotations

import os

STUCK_MAX = 32
"""Processes of ticks in uninterruptible sleep: a healthy tick has fewer at any moment."""


def stuck(proc: str = "/proc") -> int:
    """How many processes with this one's command line are in uninterruptible sleep (state ``D``).

    :param proc: where procfs is; a process that ends meanwhile is none.
    """
    with open(os.path.join(proc, "self", "cmdline"), "rb") as stream:
        own = stream.read()
    count = 0
    for name in os.listdir(proc):
        if not name.isdigit():
            continue
        try:
            with open(os.path.join(proc, name, "stat"), "rb") as stream:
                state = stream.read().rpartition(b")")[2].split()[:1]
            if state != [b"D"]:
                continue
            with open(os.path.join(proc, name, "cmdline"), "rb") as stream:
                count += stream.read() == own
        except OSError:
            continue
    return count


__all__ = ["STUCK_MAX", "stuck"]
