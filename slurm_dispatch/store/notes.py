"""Small notes of an execution, ``exec/<attempt>/.dispatch/<name>``: made once and whole, then read by everyone.

What was chosen, which run publishes and that it has ended are such notes. Every kind of root keeps them in its own
way; whoever reads or leaves one takes a :class:`Notes` from ``root.notes(attempt)``.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Protocol

from slurm_dispatch.durable import create_whole, read_regular, replace_whole
from slurm_dispatch.errors import AbsentError, store_error
from slurm_dispatch.store.folders import is_listed, list_fresh

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurm_dispatch.store.folders import Modes


class Notes(Protocol):
    """The notes of one execution."""

    def leave(self, name: str, content: bytes) -> bool:
        """Make the note, durable and whole. Returns false if another one of that name is there.

        :raises StoreError: it is not known to be there; the same again is safe.
        """

    def read(self, name: str, limit: int) -> bytes | None:
        """The note, ``None`` if it is not there.

        :raises CorruptError: it is longer than ``limit`` bytes, or no note.
        """

    def replace(self, name: str, content: bytes) -> None:
        """Leave the note in place of one of that name, durable: whoever reads it finds the one or the other, whole.

        For what decides nothing: of two who replace one note nobody knows who was first.

        :raises StoreError: it is not known to be there; the same again is safe.
        """

    def names(self) -> list[str]:
        """The names of all notes, in no order.

        :raises AbsentError: where folders are made, the execution's is not there.
        """

    def shown(self, name: str) -> str:
        """How the note is called, for messages."""


class FolderNotes:
    """Notes that are files in a folder.

    :param modes: asked when a note is made.
    """

    def __init__(self, folder: str, modes: Callable[[], Modes]) -> None:
        self._folder = folder
        self._modes = modes

    def leave(self, name: str, content: bytes) -> bool:
        """See :meth:`Notes.leave`."""
        return create_whole(self._folder, name, content, mode=self._modes().file)

    def read(self, name: str, limit: int) -> bytes | None:
        """See :meth:`Notes.read`."""
        path = self.shown(name)
        # Who asks again and again is told of an absence that the client remembers; opening the folder ends it (C110).
        if not is_listed(os.fsencode(path)):
            return None
        try:
            return read_regular(path, limit)
        except AbsentError:
            return None

    def replace(self, name: str, content: bytes) -> None:
        """See :meth:`Notes.replace`."""
        try:
            replace_whole(self._folder, name, content, mode=self._modes().file, sync=True)
        except OSError as error:
            raise store_error(error, "writing", self.shown(name)) from error

    def names(self) -> list[str]:
        """See :meth:`Notes.names`."""
        return [os.fsdecode(name) for name in list_fresh(os.fsencode(self._folder))]

    def shown(self, name: str) -> str:
        """See :meth:`Notes.shown`."""
        return os.path.join(self._folder, name)


__all__ = ["FolderNotes", "Notes"]
