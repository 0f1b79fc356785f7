"""The files that ticks keep for themselves in ``<state>/tick/``: small JSON objects, each written whole and renamed.

The law of this module: *none of these files is needed for correctness.* Each is a hint or a bounded count; one that
is missing, torn, too large or from another version is taken for missing, and the next tick makes it anew. Two
ticks may write at once: the last one wins.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from slurm_dispatch.durable import read_regular, replace_whole
from slurm_dispatch.errors import StoreError
from slurm_dispatch.state.trouble import state_trouble

if TYPE_CHECKING:
    from collections.abc import Mapping

FORMAT = 1
SIZE_MAX = 8 << 20
"""Bytes of one file: the bounds of what is in it keep it well below."""


def read_file(folder: str, name: str) -> dict[str, Any] | None:
    """The object in ``folder/name``, or ``None`` where there is none that can be read."""
    try:
        content = json.loads(read_regular(os.path.join(folder, name), SIZE_MAX))
    except (StoreError, ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) and content.get("v") == FORMAT else None


def write_file(folder: str, name: str, content: Mapping[str, Any], *, sync: bool = False) -> None:
    """Put ``content`` in place of what is there, whole.

    :param sync: a person wrote it, and it must be there after a power loss; what a tick writes is made anew.
    :raises ServiceAwayError: the folder is full, read-only or away.
    """
    write_bytes(folder, name, json.dumps({"v": FORMAT, **content}, sort_keys=True).encode("ascii") + b"\n", sync=sync)


def write_bytes(folder: str, name: str, data: bytes, *, sync: bool = False) -> None:
    """The same with bytes.

    :raises ServiceAwayError: the folder is full, read-only or away.
    """
    with state_trouble("writing", os.path.join(folder, name)):
        replace_whole(folder, name, data, mode=0o644, sync=sync)


def number(value: object, default: float = 0.0) -> float:
    """``value`` if it is a finite number, else ``default``."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not -1e15 < value < 1e15:
        return default
    return float(value)


def text(value: object, most: int = 256) -> str:
    """``value`` if it is a text of at most ``most`` characters, else an empty one."""
    return value if isinstance(value, str) and len(value) <= most else ""


def rows(value: object, most: int) -> list[list[Any]]:
    """``value`` as a list of lists, the newest ``most`` of it; what is none is left out."""
    return [row for row in value[-most:] if isinstance(row, list)] if isinstance(value, list) else []


__all__ = ["FORMAT", "SIZE_MAX", "number", "read_file", "rows", "text", "write_bytes", "write_file"]
