"""What Slurm's configuration (``scontrol show config``, as names and values) says, as values."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def lines_of(config: Mapping[str, str], name: str) -> list[str]:
    """The values of a name that slurm.conf can have several lines of: 24.05 and later write ``Prolog[0]``."""
    return [value for key, value in config.items() if key == name or key.startswith(f"{name}[")]


def is_set(value: str) -> bool:
    """Whether a value that is shown is one."""
    return value not in {"", "(null)"}


def seconds_of(config: Mapping[str, str], name: str) -> float | None:
    """A number of seconds (``300 sec``, or a time in Unix seconds); ``None`` if it does not say."""
    word = config.get(name, "").split(" ", maxsplit=1)[0]
    return float(word) if word.isascii() and word.isdigit() else None


def has_accounting(config: Mapping[str, str]) -> bool:
    """Whether jobs are accounted in slurmdbd, which sacct asks."""
    return "slurmdbd" in config.get("AccountingStorageType", "")


def tells_starts(config: Mapping[str, str]) -> bool:
    """Whether its hooks are told when an execution started: before 23.02 they are not. Unsaid, they are."""
    release = re.match(r"([0-9]{1,3})\.([0-9]{1,3})", config.get("SLURM_VERSION", ""))
    return release is None or (int(release[1]), int(release[2])) >= (23, 2)


__all__ = ["has_accounting", "is_set", "lines_of", "seconds_of", "tells_starts"]
