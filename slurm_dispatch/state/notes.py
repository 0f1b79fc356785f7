"""Notes: what the hooks leave in the site's own folder, parsed strictly.

A note that does not parse is reported and stays where it is: it may be of a newer version.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from slurm_dispatch.model.identity import Word

NOTES_MAX = 100_000
"""Notes read at once; the rest wait for the next tick."""


@dataclass(frozen=True, slots=True)
class Note:
    """One note of a hook.

    :param name: the file's name in ``notes/``.
    :param kind: ``start``, ``refused``, ``end``, ``node`` or ``refuse``.
    :param at: Unix seconds by the hook's host; 0 for ``refuse``.
    :param slurm_job_id: 0 for ``refuse``, whose name is all there is.
    :param body: the further fields of its kind, read only, as ``ARCHITECTURE.md`` lists them.
    """

    name: str
    kind: str
    word: Word
    cluster: str
    slurm_job_id: int
    at: float
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class NotesRead:
    """What was in ``notes/``: the notes by name, those that could not be read with the reason, and whether
    more are there than were read."""

    notes: tuple[Note, ...]
    bad: tuple[tuple[str, str], ...]
    more: bool


def parse_note(name: str, data: bytes) -> Note:
    """The note that file ``name`` holds.

    :raises BadDataError: the name or a field does not parse, or the two disagree; the message names the file.
    """
    raise NotImplementedError


class NotesFolder:
    """``<state>/notes``, to be used as the Slurm user."""

    def __init__(self, path: str) -> None:
        self.path = path

    def read(self) -> NotesRead:
        """All notes, by name.

        :raises ServiceAwayError: the folder does not answer.
        """
        raise NotImplementedError

    def remove(self, names: Iterable[str]) -> None:
        """Remove these notes, which have become facts; one that is gone already is success."""
        raise NotImplementedError

    def write_refuse(self, word: Word) -> bool:
        """Leave a ``refuse`` note for this submission: PrologSlurmctld will not let it start.

        :returns: true if this call made it.
        """
        raise NotImplementedError
