"""Resource limits of the submitting shell, which sbatch hands to the job as ``SLURM_RLIMIT_`` variables.

A later submission comes from another host with other limits. So those of the first are recorded in the job's
environment, and handed over again where the site propagates them.
"""

from __future__ import annotations

import resource
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

NAMES = ("CPU", "FSIZE", "DATA", "STACK", "CORE", "RSS", "NPROC", "NOFILE", "MEMLOCK", "AS")
PREFIX = "SLURM_RLIMIT_"
_INFINITE = 2**64 - 1


def current() -> dict[str, str]:
    """The soft limits of this process, as sbatch would write them."""
    found: dict[str, str] = {}
    for name in NAMES:
        soft = resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))[0]
        found[PREFIX + name] = str(_INFINITE if soft == resource.RLIM_INFINITY else soft)
    return found


def propagated(config: Mapping[str, str], asked: str | None) -> dict[str, str]:
    """The names of the limits that sbatch would hand on, each with the mark before its value.

    :param config: ``scontrol show config``; empty where it is not known: then Slurm's default, all.
    :param asked: the value of ``--propagate`` (``""`` without one), ``None`` if it was not given.
    """
    if asked is not None:
        return dict.fromkeys(_listed(asked or "ALL"), "U")
    excepted = config.get("PropagateResourceLimitsExcept", "")
    if excepted and excepted != "(null)":
        left = _listed(excepted)
        return {name: "" for name in NAMES if name not in left}
    listed = config.get("PropagateResourceLimits", "ALL")
    return dict.fromkeys(_listed("ALL" if listed == "(null)" else listed), "")


def _listed(text: str) -> tuple[str, ...]:
    words = {word.strip().upper().removeprefix("RLIMIT_") for word in text.split(",")}
    if "ALL" in words:
        return NAMES
    return tuple(name for name in NAMES if name in words)


def as_resource(values: Mapping[str, str]) -> tuple[tuple[str, int], ...]:
    """Recorded ``SLURM_RLIMIT_`` values as (name of :mod:`resource`, soft limit)."""
    found = []
    for name in NAMES:
        text = values.get(PREFIX + name, "")
        if text.isascii() and text.isdigit():
            number = int(text)
            found.append((f"RLIMIT_{name}", resource.RLIM_INFINITY if number >= _INFINITE else number))
    return tuple(found)
