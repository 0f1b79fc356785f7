"""What the helper says: one line on standard error for each publication and each trouble, nothing anywhere else."""

from __future__ import annotations

import os

from slurm_dispatch.errors import one_line

PREFIX = "dispatch: "
LINE_MAX = 2000
"""Characters of one line: below the 4096 bytes that a pipe takes whole, so that lines of many ranks do not mix."""


def say(message: str) -> None:
    """Write one line to standard error; a reader that has gone or a full disk behind it is nobody's trouble."""
    text = one_line(message)
    if len(text) > LINE_MAX:
        text = text[: LINE_MAX - 3] + "..."
    try:
        os.write(2, f"{PREFIX}{text}\n".encode("utf-8", "backslashreplace"))
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
