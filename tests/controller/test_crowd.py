"""An answer of Slurm's with thousands of jobs in it that nobody asked for."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from slurm_dispatch.model.identity import Word
from slurm_dispatch.slurm.parse import QUEUE_FIELDS, parse_queue
from slurm_dispatch.slurm.port import Queue
from tests.controller.rig import Rig

if TYPE_CHECKING:
    from pathlib import Path

ENDED = 5_000
BOUND_S = 60.0
"""Far from what it takes, which is below a second: it must not grow with what has ended."""
NONCE = "<0123456789abcdef>"
STATES = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "COMPLETING")


def test_five_thousand_ended_jobs_in_the_answer(tmp_path: Path) -> None:
    """C069: the filter is ours: nothing is alive because it is listed, nothing of the ended ones is asked or done,
    and the tick ends in its time. They carry words of our open jobs, of a foreign job, and none."""
    rig = Rig(tmp_path)
    keys = [rig.job("failed:stop") for _ in range(20)]
    for key in keys:
        rig.start(key)
    rig.settle()
    over = set(keys[:5])
    for key in over:
        rig.slurm.end(rig.object(key), "FAILED", exit_status=1)
    words = [None, *(rig.word(key) for key in keys), Word("another00000", 0, 1)]
    view, began = rig.view(), time.monotonic()
    assert isinstance(view.queue, Queue)
    rows = [
        [str(10_000 + each), str(rig.uid), STATES[each % 6], "1700000000", "1700000001", str(10_000 + each), "None",
         "c1", f"mine {words[each % len(words)] or ''}"]
        for each in range(ENDED)
    ]  # fmt: skip
    assert len(rows[0]) == len(QUEUE_FIELDS)
    listed = parse_queue("".join(f"{NONCE}{NONCE.join(row)}\n" for row in rows), NONCE)
    assert isinstance(listed, Queue)
    before = len(rig.slurm.calls())
    rig.tick(view=replace(view, queue=Queue((*listed.jobs, *view.queue.jobs))))
    assert time.monotonic() - began < BOUND_S
    calls = rig.slurm.calls()[before:]
    assert not {"cancel", "submit", "requeue", "update"} & set(calls)
    assert len(calls) <= 3 * len(over)
    assert {key for key in keys if rig.state(key).closed is not None} == over
    assert not any("stray" in rig.kinds(key) for key in keys)
