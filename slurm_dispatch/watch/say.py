"""What the helper says: one line on standard error for each publication and each trouble, nothing anywhere else."""

from __future__ import annotations

import os
import select

from slurm_dispatch.errors import one_line

PREFIX = "dispatch: "
LINE_MAX = 2000
"""Bytes of one line: below the 4096 bytes that a pipe takes whole, so that lines of many ranks do not mix."""
FULL_S = 1.0
"""For a reader of standard error that is slow; a line that nobody takes is lost, since the command's signals and its
end must not wait for it."""


def say(message: str) -> None:
    """Write one line to standard error; a reader that has gone or stands still, or a full disk behind it, is nobody's
    trouble."""
    text = f"{PREFIX}{one_line(message)}".encode("utf-8", "backslashreplace")
    if len(text) > LINE_MAX:
        text = text[: LINE_MAX - 3].decode("utf-8", "ignore").encode("utf-8") + b"..."
    try:
        waiting = select.poll()
        waiting.register(2, select.POLLOUT)
        if waiting.poll(FULL_S * 1000):
            os.write(2, text + b"\n")
    except OSError:
        pass  # the log is full or closed; the training must not end for that


class SaidOnce:
    """Says each thing once, for troubles that stay."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def __call__(self, message: str, *, key: str | None = None) -> bool:
        """Say ``message`` unless one of the same ``key`` (itself, if none) was said.

        :returns: whether it was said now.
        """
        key = message if key is None else key
        if key in self._said:
            return False
        self._said.add(key)
        say(message)
        return True

    def forget(self, key: str) -> None:
        """The trouble is over: say it again when it comes back."""
        self._said.discard(key)
