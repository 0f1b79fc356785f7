"""Maintenance that the site announces: ends in it cost no budget, and what they end comes back spread after it.

``dispatch site maintenance begin|end`` writes ``maintenance.<partition>`` or ``maintenance.all`` beside the tick's
own files.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from slurm_dispatch.controller.tickfile import number, read_file, text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

PREFIX = "maintenance."
ALL = "all"
"""The word in the file's name for the whole cluster. A partition of this name is the whole cluster too."""
PARTITION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}\Z")
OPEN_S = 3600.0
"""An end that was not announced is thought to be this far away, again and again until it is told."""
GRACE_S = 120.0
"""An end that a tick sees so long after the maintenance was in it: the tick came later."""
KEPT_S = 7 * 86400.0
HOLDS_S = 86400.0
"""No hold runs out so soon after a maintenance: a person has a working day to see it."""
FILES_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Window:
    """One announced maintenance.

    :param partition: the partition's name, or :data:`ALL`.
    :param end: Unix seconds, or ``None`` where it was not told.
    :param by: who announced it.
    """

    partition: str
    begin: float
    end: float | None
    by: str

    def covers(self, moment: float) -> bool:
        """What a tick sees at ``moment`` ended in it."""
        return self.begin <= moment and (self.end is None or moment < self.end + GRACE_S)


def name_of(partition: str | None) -> str:
    """The file's name."""
    return PREFIX + (partition or ALL)


def read_windows(folder: str) -> tuple[Window, ...]:
    """Every maintenance whose file can be read."""
    try:
        names = sorted(name for name in os.listdir(folder) if name.startswith(PREFIX))[:FILES_MAX]
    except OSError:
        return ()
    found = (from_content(name.removeprefix(PREFIX), read_file(folder, name)) for name in names)
    return tuple(window for window in found if window is not None)


def from_content(partition: str, content: Mapping[str, Any] | None) -> Window | None:
    """What the file of this partition says; ``None`` where it says nothing that can be used."""
    if content is None or not PARTITION.match(partition):
        return None
    begin, end = number(content.get("begin"), -1.0), content.get("end")
    if begin < 0.0 or not (end is None or number(end, -1.0) >= 0.0):
        return None
    return Window(partition, begin, None if end is None else number(end), text(content.get("by")))


def content(window: Window) -> dict[str, Any]:
    """The opposite of :func:`from_content`."""
    return {"partition": window.partition, "begin": window.begin, "end": window.end, "by": window.by}


def holds_until(windows: Iterable[Window], partitions: Iterable[str], now: float) -> float | None:
    """Until when no hold of a job of these partitions runs out: :data:`HOLDS_S` after a maintenance of any of them.
    It may be over by ``now``: a hold that it kept ran out then, and not when its own time was over.

    Nobody looks at a hold while the cluster is away, and no node answers about cessation. An end that nobody told is
    not waited for longer than :data:`KEPT_S`: it was forgotten.
    """
    wanted = {ALL, *partitions}
    ends = [
        window.begin + KEPT_S if window.end is None else window.end + HOLDS_S
        for window in windows
        if window.partition in wanted and window.begin <= now
    ]
    return max(ends, default=None)


def back_at(
    windows: Iterable[Window], partitions: Iterable[str], now: float, *, spread_s: float, jitter: float
) -> float | None:
    """When what ends now should come back, or ``None`` where no maintenance covers it.

    :param partitions: where the job runs or may run; all of them must be in maintenance, or the whole cluster.
    :param spread_s: the time after the end over which the jobs are spread.
    :param jitter: 0 to 1, of this job.
    """
    current = {window.partition: window for window in windows if window.covers(now)}
    wanted = list(dict.fromkeys(partitions))
    if ALL in current:
        covering = [current[ALL]]
    elif wanted and all(partition in current for partition in wanted):
        covering = [current[partition] for partition in wanted]
    else:
        return None
    # The first of several partitions to be there again is where it can run.
    ends = [now + OPEN_S if window.end is None else max(window.end, now) for window in covering]
    return min(ends) + spread_s * jitter


__all__ = [
    "ALL", "GRACE_S", "HOLDS_S", "KEPT_S", "OPEN_S", "PARTITION", "PREFIX", "Window", "back_at", "content",
    "from_content", "holds_until", "name_of", "read_windows",
]  # fmt: skip
