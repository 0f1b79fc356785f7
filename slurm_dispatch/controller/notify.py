"""Tell a job's owner: the site's command, with what there is to say as a JSON object on its standard input.

The command runs as the configured user, with a deadline, never in a shell, and its words go nowhere. What it is
given is data: names and reasons are a user's own text.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from slurm_dispatch.slurm.run import Setting, run

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

DEADLINE_S = 30.0
OUTPUT_MAX = 1 << 16
TEXT_MAX = 2_000
"""Characters of one text."""


def notify(argv: Sequence[str], message: Mapping[str, Any], *, deadline_s: float = DEADLINE_S) -> int | None:
    """Run the command once.

    :returns: its exit status; ``None`` where it could not be started, was ended at its deadline, or by a signal.
    """
    cut = {name: value[:TEXT_MAX] if isinstance(value, str) else value for name, value in message.items()}
    body = json.dumps(cut, sort_keys=True).encode("ascii") + b"\n"
    environment = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"}
    try:
        finished = run(
            list(argv), Setting(environment, stdin=body, workdir="/"), deadline_s=deadline_s, limit=OUTPUT_MAX
        )
    except (OSError, ValueError):
        return None
    if finished.trouble and (finished.timed_out or finished.failure):
        return None
    return finished.status if finished.status is not None and finished.status >= 0 else None


__all__ = ["DEADLINE_S", "notify"]
