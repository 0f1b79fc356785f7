"""The time and memory that a submission asked for, to tell whether somebody changed them on its object since.

The law of this module: *what cannot be compared was not changed*: where nothing was asked for, the partition's
default counts, and where Slurm may choose (``--time-min``), it did.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from slurm_dispatch.slurm.directives import sbatch_options
from slurm_dispatch.slurm.options import parse

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_TIME = re.compile(r"(?:([0-9]{1,5})-)?([0-9]{1,8})(?::([0-9]{1,6}))?(?::([0-9]{1,6}))?\Z")
_SIZE = re.compile(r"([0-9]{1,12})([KMGT]?)B?\Z", re.IGNORECASE)
_MB = {"K": 1 / 1024, "": 1.0, "M": 1.0, "G": 1024.0, "T": 1024.0**2}


def changed_limits(
    argv: Sequence[str], script: bytes, changes: Sequence[str], limits: Mapping[str, float]
) -> tuple[str, ...]:
    """The options with which the next submission has the limits that somebody gave the object.

    :param argv: sbatch's options as they are repeated, ``changes`` those that this submission had beside them.
    :param limits: the object's ``time_s`` and ``mem_mb``, as far as Slurm says them.
    """
    given, _, _ = sbatch_options(script)
    typed = parse([*argv, *changes])
    found: list[str] = []

    def asked(name: str) -> str | None:
        word = typed.last(name) or given.last(name)
        return None if word is None else word.value

    time_s, mem_mb = limits.get("time_s"), limits.get("mem_mb")
    before_s = time_of(asked("time") or "")
    if time_s and before_s and asked("time-min") is None and math.ceil(before_s / 60) != math.ceil(time_s / 60):
        found.append(f"--time={math.ceil(time_s / 60)}")
    before_mb = memory_of(asked("mem") or "")
    if mem_mb and before_mb and asked("mem-per-cpu") is None and math.floor(before_mb) != math.floor(mem_mb):
        found.append(f"--mem={math.floor(mem_mb)}M")
    return tuple(found)


def time_of(text: str) -> float | None:
    """Seconds of a time limit as sbatch takes it (``90``, ``90:00``, ``1:30:00``, ``2-0``), or ``None``."""
    match = _TIME.match(text)
    if match is None:
        return None
    days, first, second, third = (None if part is None else int(part) for part in match.groups())
    if days is not None:
        return float(days * 86400 + (first or 0) * 3600 + (second or 0) * 60 + (third or 0))
    if third is not None:
        return float((first or 0) * 3600 + (second or 0) * 60 + third)
    return float((first or 0) * 60 + (second or 0))


def memory_of(text: str) -> float | None:
    """MiB of ``--mem`` (a bare number is MiB); ``None``: another form, and 0, which means all of the node."""
    match = _SIZE.match(text)
    size = None if match is None else int(match[1]) * _MB[match[2].upper()]
    return size or None


__all__ = ["changed_limits", "memory_of", "time_of"]
