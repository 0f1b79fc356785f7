"""All of the tick's own files together: read at the begin of a pass, written at its end where they changed."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from slurm_dispatch.controller import breaker, clock, maintenance, memory, recent, silence
from slurm_dispatch.controller.breaker import Breaker
from slurm_dispatch.controller.recent import Recent
from slurm_dispatch.controller.silence import Silence
from slurm_dispatch.controller.tickfile import number, read_file, write_file
from slurm_dispatch.durable import sweep

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurm_dispatch.controller.clock import Clock
    from slurm_dispatch.controller.maintenance import Window
    from slurm_dispatch.controller.memory import Entry

FOLDER = "tick"
LAST = "last"
"""The file whose time is that of the last tick."""


@dataclass(frozen=True, slots=True)
class Hints:
    """What ticks remember of the site. The default is what a site has whose files were removed.

    :param last: Unix seconds when the last tick ended.
    """

    clock: Clock | None = None
    silence: Silence = field(default_factory=Silence)
    memory: tuple[Entry, ...] = ()
    recent: Recent = field(default_factory=Recent)
    breaker: Breaker = field(default_factory=Breaker)
    windows: tuple[Window, ...] = ()
    last: float | None = field(default=None, compare=False)


def read(folder: str) -> dict[str, Any]:
    """What the files in ``folder`` hold, as JSON has it, for :func:`unpack`."""
    names = (clock.NAME, silence.NAME, memory.NAME, recent.NAME, breaker.NAME)
    windows = [maintenance.content(window) for window in maintenance.read_windows(folder)]
    try:
        last = os.lstat(os.path.join(folder, LAST)).st_mtime
    except OSError:
        last = None
    return {**{name: read_file(folder, name) for name in names}, "maintenance": windows, LAST: last}


def unpack(content: Mapping[str, Any]) -> Hints:
    """The hints in what :func:`read` made; whatever of it makes no sense is as if it were not there."""

    def part(name: str) -> Mapping[str, Any] | None:
        found = content.get(name)
        return found if isinstance(found, dict) else None

    told = content.get("maintenance")
    windows = [
        maintenance.from_content(str(item.get("partition")), item)
        for item in (told if isinstance(told, list) else [])
        if isinstance(item, dict)
    ]
    return Hints(
        clock.from_content(part(clock.NAME)),
        silence.from_content(part(silence.NAME)),
        memory.from_content(part(memory.NAME)),
        recent.from_content(part(recent.NAME)),
        breaker.from_content(part(breaker.NAME)),
        tuple(window for window in windows if window is not None),
        number(content.get(LAST)) or None,
    )


def load(folder: str) -> Hints:
    """The hints in ``folder``, for those who only look."""
    return unpack(read(folder))


def changes(before: Hints, after: Hints) -> dict[str, dict[str, Any]]:
    """The files that must be written, by name: nothing at all where nothing changed."""
    found: dict[str, dict[str, Any]] = {}
    if after.clock is not None and after.clock.wanted > 0.0 and clock.is_news(before.clock, after.clock, before.last):
        found[clock.NAME] = clock.content(after.clock)
    if after.silence != before.silence and (_told(after.silence) or _told(before.silence)):
        found[silence.NAME] = silence.content(after.silence)
    if after.memory != before.memory:
        found[memory.NAME] = memory.content(after.memory)
    if after.recent != before.recent:
        found[recent.NAME] = recent.content(after.recent)
    if (after.breaker.open, set(after.breaker.owners)) != (before.breaker.open, set(before.breaker.owners)):
        found[breaker.NAME] = breaker.content(after.breaker)
    return found


def write(folder: str, files: Mapping[str, Mapping[str, Any]]) -> None:
    """Write what :func:`changes` found.

    :raises ServiceAwayError: the folder is full, read-only or away.
    """
    for name, content in files.items():
        write_file(folder, name, content)
    sweep(folder)


def tick_folder(state: str) -> str:
    """Where the files are."""
    return os.path.join(state, FOLDER)


def _told(seen: Silence) -> bool:
    return bool(seen.silent or seen.drained)


__all__ = ["Hints", "changes", "load", "read", "tick_folder", "unpack", "write"]
