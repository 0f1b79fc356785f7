"""The state folder: which jobs there are and whose, and how one is made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slurm_dispatch.records.spec import Spec
    from slurm_dispatch.state.jobs import Record
    from slurm_dispatch.state.notes import NotesFolder


@dataclass(frozen=True, slots=True)
class JobFolder:
    """A job as the listing shows it: its key, and the owner of its folder, whose job it is."""

    key: str
    uid: int


class StateFolder:
    """The state folder at ``path``.

    :raises ServiceAwayError: it is not there or does not answer.
    :raises NotAllowedError: ``jobs/`` belongs to somebody else than root, the Slurm user or the caller, or
        anybody may remove others' jobs in it (no sticky bit).
    """

    def __init__(self, path: str, *, slurm_uid: int | None = None) -> None:
        self.path = path
        self.slurm_uid = slurm_uid

    def jobs(self) -> list[JobFolder]:
        """Every job's folder, by key. Looks at names and owners only, and opens nothing of anybody's.

        Anything in ``jobs/`` that is not a real directory with a key's name is passed over.
        """
        raise NotImplementedError

    def record(self, key: str) -> Record:
        """The record of job ``key``, whether it is there or not."""
        raise NotImplementedError

    def create_job(
        self, spec: Spec, script: bytes, environment: bytes, *, by: str, at: float | None = None
    ) -> Record:
        """Make the record of a new job: folder, script, environment, and ``spec`` as fact 1, durable.

        The job exists once fact 1 is there; before that a crash leaves a folder that no one takes for a job.

        :raises CannotCreateError: a job with this key is there.
        :raises ServiceAwayError: the state folder is full, read-only or away.
        """
        raise NotImplementedError

    def sweep_unfinished(self, uid: int, *, age_s: float = 3600.0) -> int:
        """Remove the caller's own folders of jobs whose making was cut short at least ``age_s`` ago."""
        raise NotImplementedError

    def notes(self) -> NotesFolder:
        """The notes: for the Slurm user only."""
        raise NotImplementedError

    def tick_done(self, at: float | None = None) -> None:
        """Say that a tick has ended now."""
        raise NotImplementedError

    def last_tick(self) -> float | None:
        """When the last tick ended (Unix seconds), or ``None`` if there was none."""
        raise NotImplementedError
