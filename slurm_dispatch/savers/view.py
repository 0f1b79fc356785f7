"""One save as a layout sees it: names and sizes as they were listed once, and a bounded reader.

Who has a save makes a view of it: :mod:`slurm_dispatch.store.view` for a folder or a file, the S3 root for objects.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

JSON_MAX = 64 << 20
"""Bytes of a JSON file that is read. The state of a trainer after a million steps has some twenty MiB."""


class SaveView(Protocol):
    """A save. Nothing in it is read but by :meth:`read`, and no link is followed."""

    @property
    def name(self) -> str:
        """The save's own name: the last component of its path."""

    @property
    def single(self) -> bool:
        """The save is one file; its path in :attr:`sizes` is ``""``."""

    @property
    def sizes(self) -> Mapping[str, int]:
        """Bytes of each regular file, by its path in the save, with ``/`` between folders (surrogateescape)."""

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """Bytes of a file from ``offset`` on; fewer than ``length`` only at its end.

        :raises OSError: of the store; ``FileNotFoundError`` if it went meanwhile.
        """


def read_json(view: SaveView, path: str) -> Any:
    """A JSON file of the save.

    :returns: what it says; ``None`` if it is not there, is longer than :data:`JSON_MAX`, or does not parse: its
        writer was killed, or is not done yet.
    :raises OSError: of the store.
    """
    if view.sizes.get(path, JSON_MAX + 1) > JSON_MAX:
        return None
    try:
        return json.loads(view.read(path, 0, JSON_MAX))
    except (ValueError, RecursionError):
        return None
