"""``dispatch sbatch --wait``: sbatch waits for its own job, and this for what comes after it (C031).

sbatch's ``--wait`` covers Slurm's own requeues, which keep the id. A replacement has another, so the record is looked
at until the job is closed. Where no tick runs nothing comes after, and sbatch's own word is the last.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from slurm_dispatch.records.fold import fold

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurm_dispatch.records.state import State
    from slurm_dispatch.state.jobs import Record

LOOK_S = 2.0
"""Between two looks at the record."""
STALE_S = 600.0
"""Ticks come each minute; without one for so long there are none."""


def until_over(
    record: Record, last_tick: Callable[[], float | None], say: Callable[[str], None], *, look_s: float = LOOK_S
) -> int | None:
    """Wait until the job is closed, however often it is replaced, and say what happens meanwhile.

    :param last_tick: Unix seconds when the last tick ended, or ``None``.
    :returns: 0 if it has completed; else the status of its last script, or 1 where that has none or 0. ``None``: no
        tick runs, and nobody will close it.
    """
    told: set[tuple[str, int]] = {("submission", 1)}
    while True:
        state = fold(record.read())
        if state.closed is not None:
            if state.closed.why != "completed":
                say(f"job {state.spec.job} is over: {state.closed.why} {state.closed.reason}".rstrip())
            return _status(state)
        at = last_tick()
        if at is None or time.time() - at > STALE_S:
            say("no tick runs here, so nothing is submitted again: --wait ends with the first submission")
            return None
        for mark, line in _news(state):
            if mark not in told:
                told.add(mark)
                say(line)
        time.sleep(look_s)


def _news(state: State) -> list[tuple[tuple[str, int], str]]:
    found = []
    current, it = state.current, state.object
    if current is not None and it is not None:
        line = f"submission {current.number} is Slurm job {it.slurm_job_id}; still waiting for job {state.spec.job}"
        found.append((("submission", current.number), line))
    if state.holding is not None:
        line = f"job {state.spec.job} is held: {state.holding.reason}; dispatch release lets it go on"
        found.append((("held", state.holding.seq), line))
    return found


def _status(state: State) -> int:
    if state.closed is not None and state.closed.why == "completed":
        return 0
    codes = [end.evidence.get("exit_code") for submission in state.submissions for end in submission.ends]
    last = codes[-1] if codes else None
    return last if isinstance(last, int) and 0 < last < 256 else 1


__all__ = ["LOOK_S", "STALE_S", "until_over"]
