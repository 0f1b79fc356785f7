"""The state folder: which jobs there are and whose, and how one is made."""

from __future__ import annotations

import os
import stat
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurm_dispatch.durable import TEMPORARY_PREFIX, create_whole, make_folder, sync_folder
from slurm_dispatch.errors import (
    BadDataError,
    CannotCreateError,
    NotAllowedError,
    NothingThereError,
    ServiceAwayError,
)
from slurm_dispatch.model.identity import check_key
from slurm_dispatch.records.facts import fact_name
from slurm_dispatch.state.jobs import ENVIRONMENT, ENVIRONMENT_MAX, SCRIPT, SCRIPT_MAX, Record
from slurm_dispatch.state.notes import NotesFolder
from slurm_dispatch.state.trouble import state_trouble

if TYPE_CHECKING:
    from slurm_dispatch.records.spec import Spec

UNFINISHED_AGE_S = 3600.0
"""A job whose making has not come to fact 1 in this time was cut short: it takes well under a second."""


@dataclass(frozen=True, slots=True)
class JobFolder:
    """A job as the listing shows it: its key, and the owner of its folder, whose job it is."""

    key: str
    uid: int


def make_state(path: str, *, slurm_uid: int, slurm_gid: int) -> None:
    """Make a state folder, or what is missing of one: ``jobs/`` 1777, ``notes/`` 0700, ``tick/`` 0755.

    :param slurm_uid: who owns ``jobs/`` and ``notes/``: the Slurm user, or the caller in user mode.
    """
    with state_trouble("making state folder", path):
        make_folder(path)
        own = (os.geteuid(), os.getegid())
        for name, mode, owner in (
            ("jobs", 0o1777, (slurm_uid, slurm_gid)),
            ("notes", 0o700, (slurm_uid, slurm_gid)),
            ("tick", 0o755, own),
        ):
            folder = os.path.join(path, name)
            if make_folder(folder, mode=0o700):
                os.chown(folder, *owner)
                os.chmod(folder, mode)


class StateFolder:
    """The state folder at ``path``.

    :param slurm_uid: the Slurm user's; ``None``: the owner of ``jobs/`` is not compared with it.
    :raises ServiceAwayError: it is not there or does not answer.
    :raises NotAllowedError: ``jobs/`` belongs to somebody else than root, the Slurm user or the caller, or
        anybody may remove others' jobs in it (no sticky bit).
    """

    def __init__(self, path: str, *, slurm_uid: int | None = None) -> None:
        self.path = path
        self.slurm_uid = slurm_uid
        self.jobs_folder = os.path.join(path, "jobs")
        found = self._stat("jobs")
        trusted = {0, os.geteuid()} | (set() if slurm_uid is None else {slurm_uid})
        if slurm_uid is not None and found.st_uid not in trusted:
            raise NotAllowedError(
                f"{self.jobs_folder} belongs to uid {found.st_uid}, not to the Slurm user",
                hint="somebody else could change every job in it",
            )
        if found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX:
            raise NotAllowedError(
                f"{self.jobs_folder} has mode {stat.S_IMODE(found.st_mode):04o}: anybody could remove others' jobs",
                hint=f"chmod 1777 {self.jobs_folder}",
            )

    def jobs(self) -> list[JobFolder]:
        """Every job's folder, by key. Looks at names and owners only, and opens nothing of anybody's.

        Anything in ``jobs/`` that is not a real directory with a key's name is passed over: it is not a
        job, and anybody can make such a thing there.

        :raises ServiceAwayError: the state folder does not answer.
        """
        found = []
        with state_trouble("listing", self.jobs_folder), os.scandir(self.jobs_folder) as entries:
            for entry in entries:
                try:
                    check_key(entry.name)
                    status = entry.stat(follow_symlinks=False)
                except (BadDataError, FileNotFoundError):
                    continue
                if stat.S_ISDIR(status.st_mode):
                    found.append(JobFolder(entry.name, status.st_uid))
        return sorted(found, key=lambda job: job.key)

    def job(self, key: str) -> JobFolder | None:
        """The job of this key and its owner; ``None`` if ``key`` is none or there is no such folder."""
        try:
            found = os.lstat(os.path.join(self.jobs_folder, check_key(key)))
        except (BadDataError, FileNotFoundError):
            return None
        return JobFolder(key, found.st_uid) if stat.S_ISDIR(found.st_mode) else None

    def record(self, key: str) -> Record:
        """The record of job ``key``, whether it is there or not."""
        return Record(os.path.join(self.jobs_folder, check_key(key)))

    def create_job(
        self, spec: Spec, script: bytes, environment: bytes, *, by: str, at: float | None = None
    ) -> Record:
        """Make the record of a new job: folder, script, environment, and ``spec`` as fact 1, durable.

        The job exists once fact 1 is there; before that a crash leaves a folder that no one takes for a job.

        :raises CannotCreateError: a job with this key is there.
        :raises BadDataError: script or environment over their limits, or a field of ``spec`` that is wrong.
        :raises ServiceAwayError: the state folder is full, read-only or away.
        """
        for what, content, limit in (("script", script, SCRIPT_MAX), ("environment", environment, ENVIRONMENT_MAX)):
            if len(content) > limit:
                raise BadDataError(f"the {what} has {len(content)} bytes, more than the limit of {limit}")
        record = self.record(spec.job)
        with state_trouble("making job", record.folder):
            try:
                os.mkdir(record.folder, 0o700)
            except FileExistsError as error:
                raise CannotCreateError(f"{record.folder} is there already") from error
            os.chmod(record.folder, 0o700)  # the caller's umask must not take the owner's own rights
            os.mkdir(record.facts_folder, 0o700)
            os.chmod(record.facts_folder, 0o700)
            create_whole(record.folder, SCRIPT, script)
            create_whole(record.folder, ENVIRONMENT, environment)
            sync_folder(self.jobs_folder)
            if not record.append(1, "spec", by, spec.body(), at=at):
                raise CannotCreateError(f"{record.folder} is there already")
        return record

    def sweep_unfinished(self, uid: int, *, age_s: float = UNFINISHED_AGE_S) -> int:
        """Remove folders of jobs of ``uid`` whose making was cut short at least ``age_s`` ago; returns how many.

        To be used with the owner's rights. Only names that :meth:`create_job` makes are removed.
        """
        gone = 0
        for job in self.jobs():
            record = self.record(job.key)
            try:
                old = time.time() - os.lstat(record.folder).st_mtime > age_s
                if job.uid != uid or not old or os.path.lexists(os.path.join(record.facts_folder, fact_name(1))):
                    continue
                _remove_unfinished(record)
                gone += 1
            except OSError:
                continue  # somebody put something else there: it stays, and is no job either way
        return gone

    def notes(self) -> NotesFolder:
        """The notes: for the Slurm user only.

        :raises NotAllowedError: ``notes/`` belongs to somebody else, or others can read or write it.
        """
        found = self._stat("notes")
        path = os.path.join(self.path, "notes")
        if self.slurm_uid is not None and found.st_uid != self.slurm_uid:
            raise NotAllowedError(f"{path} belongs to uid {found.st_uid}, not to the Slurm user")
        if found.st_mode & 0o077:
            raise NotAllowedError(
                f"{path} has mode {stat.S_IMODE(found.st_mode):04o}: others could leave false notes",
                hint=f"chmod 0700 {path}",
            )
        return NotesFolder(path)

    def tick_done(self, at: float | None = None) -> None:
        """Say that a tick has ended now (the time of ``tick/last``; nothing is written into it)."""
        path = os.path.join(self.path, "tick", "last")
        moment = time.time() if at is None else at
        with state_trouble("writing", path):
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
            try:
                os.utime(descriptor, (moment, moment))
            finally:
                os.close(descriptor)

    def last_tick(self) -> float | None:
        """When the last tick ended (Unix seconds), or ``None`` if there was none."""
        try:
            with state_trouble("reading", os.path.join(self.path, "tick", "last")):
                return os.lstat(os.path.join(self.path, "tick", "last")).st_mtime
        except NothingThereError:
            return None

    def _stat(self, name: str) -> os.stat_result:
        path = os.path.join(self.path, name)
        try:
            found = os.lstat(path)
        except OSError as error:
            raise ServiceAwayError(
                f"state folder {self.path}: {name}: {error.strerror}", hint="is the shared filesystem mounted here?"
            ) from error
        if not stat.S_ISDIR(found.st_mode):
            raise NotAllowedError(f"{path} is not a real directory")
        return found


def _remove_unfinished(record: Record) -> None:
    for folder in (record.facts_folder, record.folder):
        try:
            names = os.listdir(folder)
        except FileNotFoundError:
            continue
        for name in names:
            if name.startswith(TEMPORARY_PREFIX) or (folder == record.folder and name in {SCRIPT, ENVIRONMENT}):
                os.unlink(os.path.join(folder, name))
        os.rmdir(folder)  # refuses if anything else is there


__all__ = ["JobFolder", "StateFolder", "make_state"]
