"""What Slurm's configuration (``scontrol show config``, as names and values) says, as values."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def seconds_of(config: Mapping[str, str], name: str) -> float | None:
    """A number of seconds (``300 sec``, or a time in Unix seconds); ``None`` if it does not say."""
    word = config.get(name, "").split(" ", maxsplit=1)[0]
    return float(word) if word.isascii() and word.isdigit() else None


def has_accounting(config: Mapping[str, str]) -> bool:
    """Whether jobs are accounted in slurmdbd, which sacct asks."""
    return "slurmdbd" in config.get("AccountingStorageType", "")


__all__ = ["has_accounting", "seconds_of"]
