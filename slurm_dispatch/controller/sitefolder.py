"""The state folder as the tick uses it: every look and every write is a child's, with a deadline.

The law of this module: *the tick itself touches no file.* ``notes/`` is read and written as SlurmUser, the tick's own
files as who ticks.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurm_dispatch.controller import hints, index
from slurm_dispatch.controller.children import Children
from slurm_dispatch.controller.kick import TIMELY, URGENT
from slurm_dispatch.controller.tickfile import write_bytes
from slurm_dispatch.controller.view import Folder, key_in, pack_folder, unpack_folder
from slurm_dispatch.durable import read_regular
from slurm_dispatch.errors import DispatchError, StoreError
from slurm_dispatch.model.identity import parse_word
from slurm_dispatch.state.as_user import in_child
from slurm_dispatch.state.folder import StateFolder
from slurm_dispatch.state.notes import NotesFolder, NotesRead, first_names
from slurm_dispatch.state.users import identity_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

TIMEOUT_S = 20.0
"""Deadline of the children that read and write the site's own folder."""
ORPHAN_AFTER_S = 30 * 86400.0
"""A note goes after this if its job has no record: its owner has removed it, or it never was one."""
BAD_MAX = 20
"""Notes that cannot be read which one tick names; thousands of them are one trouble."""
NAMES_MAX = 300_000
"""Names of notes that one tick knows: three for each of the most jobs that it is made for."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What the tick needs of the site's configuration.

    :param state: the state folder.
    :param user_mode: everything is the caller's: only his jobs, and the notes as himself.
    :param slurm_user: whose ``notes/`` is.
    :param accounting: the site has it; ``None``: Slurm's configuration tells.
    :param owner_timeout_s: how long an owner's child may take beside the sbatch that it waits for.
    """

    state: str
    user_mode: bool
    slurm_user: str
    host: str
    cluster: str = ""
    accounting: bool | None = None
    owner_timeout_s: float = 20.0


class SiteFolder:
    """The folder of one site.

    :param trouble: takes what is wrong, and what about it.
    """

    def __init__(self, settings: Settings, trouble: Callable[[str, str], None]) -> None:
        self._settings = settings
        self._trouble = trouble
        self._children = Children(2)

    def as_slurm_user(self, work: Callable[[], bytes], deadline_s: float) -> bytes:
        """Do ``work`` as SlurmUser, or as the caller in user mode. Blocks; see :func:`in_child`."""
        if self._settings.user_mode:
            who = (os.geteuid(), os.getegid(), os.getgroups())
        else:
            who = identity_of(self._settings.slurm_user, "slurm_user")
        return in_child(*who, work, deadline_s, site_files=True)

    def stop(self) -> None:
        """End what still runs."""
        self._children.stop()

    def every(self, loaded: Collection[int]) -> Folder | None:
        """All jobs and the names of all notes, none of them opened; ``None`` where it failed (said).

        :param loaded: uids whose index is not wanted.
        """
        state = self._settings.state

        def read() -> bytes:
            folder = StateFolder(state, slurm_uid=os.geteuid())
            jobs = tuple(folder.jobs())
            names, unread = first_names(folder.notes().names(), {job.key for job in jobs}, NAMES_MAX)
            tick = hints.tick_folder(state)
            texts = read_indexes(tick, {job.uid for job in jobs} - set(loaded))
            last = folder.last_tick()
            return pack_folder(Folder(jobs, (), (), unread, hints.read(tick), tuple(names), texts, last))

        return self._folder(read)

    def some(self, also: Collection[str], seen: Collection[str]) -> Folder | None:
        """Those jobs that have a note that a tick must see soon, with all notes of each; few jobs of many.

        :param also: keys of others.
        :param seen: names of notes that are none.
        """
        state, kinds = self._settings.state, URGENT + TIMELY

        def read() -> bytes:
            folder = StateFolder(state, slurm_uid=os.geteuid())
            keys = {*also, *(key_in(name) for name in folder.notes().names() if name.startswith(kinds)
                             and name not in seen)}  # fmt: skip
            notes = folder.notes().read(lambda name: key_in(name) in keys)
            jobs = tuple(job for key in sorted(keys) if (job := folder.job(key)) is not None)
            own = hints.read(hints.tick_folder(state))
            return pack_folder(Folder(jobs, notes.notes, notes.bad, notes.unread, own))

        return self._folder(read)

    def notes(self, names: Collection[str], first: Collection[str]) -> NotesRead | None:
        """The notes of these names; ``None`` where it failed (said).

        :param first: keys of jobs whose notes come before all others.
        """
        if not names:
            return NotesRead((), (), more=False)
        state = self._settings.state

        def read() -> bytes:
            return StateFolder(state, slurm_uid=os.geteuid()).notes().read_packed(lambda name: name in names, first)

        answer = self._in_child("notes", lambda: self.as_slurm_user(read, TIMEOUT_S))
        if answer is None:
            return None
        found = NotesFolder.unpack(answer)
        self._say_bad(found.bad)
        return found

    def write_notes(self, remove: Collection[str], refuse: Collection[str]) -> bool:
        """Remove notes, and have submissions refused, by their words; false where it failed (said)."""
        state = self._settings.state

        def write() -> bytes:
            notes = StateFolder(state, slurm_uid=os.geteuid()).notes()
            for text in refuse:
                word = parse_word(text)
                if word is not None:
                    notes.write_refuse(word)
            notes.remove(remove)
            return b""

        return self._in_child("write", lambda: self.as_slurm_user(write, TIMEOUT_S)) is not None

    def write_own(
        self, files: Mapping[str, Mapping[str, object]], indexes: Mapping[int, bytes], *, ended: bool
    ) -> bool:
        """Write the tick's own files; false where it failed (said).

        :param ended: the time of ``last`` says so.
        """
        state = self._settings.state

        def write() -> bytes:
            tick = hints.tick_folder(state)
            for uid, data in indexes.items():
                write_bytes(tick, f"{index.NAME}{uid}", data)
            if files or indexes:
                hints.write(tick, files)
            if ended:
                StateFolder(state).tick_done()
            return b""

        own = (os.geteuid(), os.getegid(), os.getgroups())
        answer = self._in_child("last", lambda: in_child(*own, write, TIMEOUT_S, site_files=True))
        return answer is not None

    def _folder(self, read: Callable[[], bytes]) -> Folder | None:
        answer = self._in_child("read", lambda: self.as_slurm_user(read, TIMEOUT_S))
        if answer is None:
            return None
        try:
            folder = unpack_folder(answer)
        except DispatchError as error:
            self._trouble("", error.line())
            return None
        self._say_bad(folder.bad)
        return folder

    def _say_bad(self, bad: Collection[tuple[str, str]]) -> None:
        told = list(bad)
        for name, why in told[:BAD_MAX]:
            self._trouble(name, f"note {name}: {why}")
        if len(told) > BAD_MAX:
            self._trouble("notes", "more notes cannot be read than are named here: look into notes/")

    def _in_child(self, name: str, work: Callable[[], bytes]) -> bytes | None:
        """Work in the site's folder, waited for; ``None`` where it failed (said) or an older one still hangs."""
        if self._children.busy(name):
            self._trouble("", f"the state folder {self._settings.state} does not answer")
            return None
        self._children.start(name, work, TIMEOUT_S + 5.0)
        while True:
            for ended in self._children.wait(TIMEOUT_S + 10.0):
                if ended.name == name:
                    if ended.answer is None:
                        self._trouble("", f"the state folder {self._settings.state}: {ended.why}")
                    return ended.answer
            if not self._children.busy(name):
                return None


def read_indexes(folder: str, uids: Collection[int]) -> dict[int, str]:
    """The indexes of these owners as they are on disk; one that cannot be read is left out."""
    found: dict[int, str] = {}
    left = index.SIZE_MAX
    for uid in sorted(uids):
        try:
            data = read_regular(os.path.join(folder, f"{index.NAME}{uid}"), left)
            found[uid] = data.decode("ascii")
        except (StoreError, ValueError):
            continue
        left -= len(data)
    return found


def orphans(folder: Folder, now: float) -> list[str]:
    """The names of old notes of jobs that are not there."""
    known = {job.key for job in folder.jobs}
    return [note.name for note in folder.notes
            if note.word.job not in known and note.kind != "refuse" and now - note.at > ORPHAN_AFTER_S]  # fmt: skip


def orphan_names(folder: Folder, now: float) -> list[str]:
    """The names of notes of jobs that are not there, each once a day."""
    known = {job.key for job in folder.jobs}
    named = ((name, key_in(name)) for name in folder.names)
    return [name for name, key in named if key not in known
            and index.turns_up(key, folder.last, now, index.CLOSED_TURN_S)]  # fmt: skip


__all__ = ["ORPHAN_AFTER_S", "TIMEOUT_S", "Settings", "SiteFolder", "orphan_names", "orphans"]
