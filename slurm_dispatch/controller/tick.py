"""``dispatch tick``: one pass over all open jobs.

The law of this module: *the tick itself touches no file.* The state folder is read and written by children, as
SlurmUser and as each job's owner, so that a filesystem that hangs and an owner who means ill can stop their own
work only. A fixed number of Slurm calls are made here (the queue; once a process, the configuration), whatever
the number of jobs; what changed is asked for by the owners' children.
"""

from __future__ import annotations

import os
import pwd
import stat
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from slurm_dispatch.controller import hearsay, hints, owner
from slurm_dispatch.controller.children import Children, Ended
from slurm_dispatch.controller.job import SOON_S, Means, Report
from slurm_dispatch.controller.keeper import Keeper
from slurm_dispatch.controller.kick import TIMELY, URGENT
from slurm_dispatch.controller.siterules import SiteRules
from slurm_dispatch.controller.view import Folder, View, key_in, notes_by_key, pack_folder, unpack_folder
from slurm_dispatch.errors import BadDataError, ConfigurationError, DispatchError, NotAllowedError
from slurm_dispatch.model.identity import check_key, parse_word
from slurm_dispatch.slurm.port import SlurmPort, Unknown
from slurm_dispatch.state.as_user import groups_of, in_child
from slurm_dispatch.state.folder import JobFolder, StateFolder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from slurm_dispatch.controller.siteview import SiteView
    from slurm_dispatch.state.notes import Note

PATIENCE_S = 5.0
"""How long a pass of the loop waits for owners' children; one that takes longer is collected by a later pass."""
PUT_OFF_S = (30.0, 600.0)
"""An owner whose child hung is put off for the first, doubled each time up to the second."""
REPEAT_S = 3600.0
"""The same trouble of the same job is said again after this."""
ORPHAN_AFTER_S = 30 * 86400.0
"""A note goes after this if its job has no record: its owner has removed it, or it never was one."""
SAID_MAX = 10_000
"""Troubles that are remembered as said."""
OWNER_ANSWER_MAX = 16 << 20
"""Bytes that one owner's child may answer: the reports of 20,000 jobs with all their notes."""
OWNER_LINES_MAX = 200
"""Lines of the log from one owner's jobs in one pass."""
DUE_LEAST_S = 1.0
"""A job that asks to be looked at again is, no sooner than this: each such look asks for the queue."""
ANSWER_S = 0.5
"""How often one looks whether a command of the site's (notify, cessation) has answered."""
SITE_TIMEOUT_S = 20.0
"""Deadline of the children that read and write the site's own folder."""


@dataclass(slots=True)
class Memory:
    """What a loop remembers between passes. Nothing of it is needed for correctness; cron begins with none."""

    put_off: dict[int, tuple[float, float]] = field(default_factory=dict)  # uid: until (monotonic), length
    closed: set[str] = field(default_factory=set)
    notes: set[str] = field(default_factory=set)  # names that an owner's child has seen
    asked: dict[str, int] = field(default_factory=dict)  # key: how often it was not clear yet
    due: dict[str, float] = field(default_factory=dict)  # key: Unix seconds
    said: dict[tuple[str, str], float] = field(default_factory=dict)
    config: Mapping[str, str] | None = None


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


@dataclass(frozen=True, slots=True)
class _Work:
    """What an owner's child was given."""

    uid: int
    keys: tuple[str, ...]
    notes: frozenset[str]


class Controller:
    """Passes over the jobs, with what is remembered between them.

    :param log: takes one line for each decision and trouble.
    :param keeper: the site's side of the passes; ``None``: one of a site without rules of its own.
    """

    def __init__(
        self,
        settings: Settings,
        means: Means,
        log: Callable[[str], None],
        children: Children | None = None,
        keeper: Keeper | None = None,
    ) -> None:
        self._keeper = Keeper(SiteRules(), means.port, None, log) if keeper is None else keeper
        self._settings = settings
        self._means = means
        self._port: SlurmPort = means.port
        self._log = log
        self._children = Children(answer_max=OWNER_ANSWER_MAX) if children is None else children
        self._memory = Memory()
        self._site: Children = Children(2)
        self._under_way: dict[str, _Work] = {}
        self._to_write: tuple[dict[str, None], dict[str, None]] = ({}, {})  # in order, each once

    def tick(self, *, full: bool, patience_s: float | None = None) -> float | None:
        """One pass.

        :param full: all open jobs; otherwise those with a note that is new, and those that were not clear yet.
        :param patience_s: how long to wait for owners' children; ``None``: until each has ended or been killed.
        :returns: in how many seconds a job that is not clear yet should be looked at again, or ``None``.
        """
        at = time.time()
        folder = self._read_folder(full=full)
        if folder is None:
            return None
        by_key = notes_by_key(folder.notes)
        site = self._keeper.begin(folder.site, at, full=full)
        jobs = self._chosen(folder.jobs, by_key, full=full, now=at)
        view: View | None = None
        if jobs or full:
            view = self._view(at, folder, by_key, site)
            if full:
                jobs = self._with_strays(jobs, folder.jobs, view)
            self._start(jobs, view)
        self._collect(patience_s)
        if full:
            self._memory.notes &= {note.name for note in folder.notes}
        self._write_folder(ended=full)
        return self._again()

    def put_off(self, uids: Iterable[int]) -> None:
        """Leave the jobs of these owners alone for a while, and say so."""
        first, _ = PUT_OFF_S
        for uid in uids:
            self._trouble(f"uid {uid}", f"the jobs of uid {uid}: children of earlier ticks hang there")
            self._memory.put_off[uid] = (time.monotonic() + first, first)

    def as_slurm_user(self, work: Callable[[], bytes], deadline_s: float) -> bytes:
        """Do ``work`` as SlurmUser, or as the caller in user mode. Blocks; see :func:`in_child`."""
        if self._settings.user_mode or os.geteuid() != 0:
            return in_child(os.geteuid(), os.getegid(), os.getgroups(), work, deadline_s, site_files=True)
        try:
            user = pwd.getpwnam(self._settings.slurm_user)
        except KeyError as error:
            raise ConfigurationError(
                f"there is no user {self._settings.slurm_user} on this host", hint="slurm_user must name SlurmUser"
            ) from error
        return in_child(
            user.pw_uid, user.pw_gid, groups_of(user.pw_name, user.pw_gid), work, deadline_s, site_files=True
        )

    def stop(self) -> None:
        """End what still runs."""
        self._children.stop()
        self._site.stop()
        self._keeper.stop()

    # The site's folder.

    def _read_folder(self, *, full: bool) -> Folder | None:
        state, memory, now = self._settings.state, self._memory, time.time()
        also = self._unclear() | {key for key, moment in memory.due.items() if moment <= now}

        def read() -> bytes:
            folder = StateFolder(state, slurm_uid=os.geteuid())
            if full:
                jobs = tuple(folder.jobs())
                notes = folder.notes().read(first=frozenset(job.key for job in jobs))
            else:  # few jobs of many: neither a stat nor a read of the others
                kinds = URGENT + TIMELY
                names = [
                    name for name in folder.notes().names() if name.startswith(kinds) and name not in memory.notes
                ]
                keys = also | {key_in(name) for name in names}
                notes = folder.notes().read(lambda name: key_in(name) in keys)
                jobs = tuple(job for key in sorted(keys) if (job := job_folder(folder, key)) is not None)
            site = hints.read(hints.tick_folder(state))
            return pack_folder(Folder(jobs, notes.notes, notes.bad, notes.unread, site))

        answer = self._in_site("read", lambda: self.as_slurm_user(read, SITE_TIMEOUT_S))
        if answer is None:
            return None
        try:
            folder = unpack_folder(answer)
        except DispatchError as error:
            self._trouble("", error.line())
            return None
        for name, why in folder.bad:
            self._trouble(name, f"note {name}: {why}")
        if full:
            self._to_write[0].update(dict.fromkeys(orphans(folder, now)))
        if self._settings.user_mode:
            mine = tuple(job for job in folder.jobs if job.uid == os.geteuid())
            return Folder(mine, folder.notes, folder.bad, folder.unread, folder.site)
        return folder

    def _write_folder(self, *, ended: bool) -> None:
        remove, refuse = self._to_write

        def write() -> bytes:
            notes = StateFolder(self._settings.state, slurm_uid=os.geteuid()).notes()
            for text in refuse:
                word = parse_word(text)
                if word is not None:
                    notes.write_refuse(word)
            notes.remove(remove)
            return b""

        files = self._keeper.end(time.time())

        def last() -> bytes:
            hints.write(hints.tick_folder(self._settings.state), files)
            if ended:
                StateFolder(self._settings.state).tick_done()
            return b""

        if (remove or refuse) and self._in_site(
            "write", lambda: self.as_slurm_user(write, SITE_TIMEOUT_S)
        ) is not None:
            self._to_write = ({}, {})
        if ended or files:
            own = (os.geteuid(), os.getegid(), os.getgroups())
            self._in_site("last", lambda: in_child(*own, last, SITE_TIMEOUT_S, site_files=True))

    def _in_site(self, name: str, work: Callable[[], bytes]) -> bytes | None:
        """Work in the site's folder, waited for; ``None`` where it failed (said) or an older one still hangs."""
        if self._site.busy(name):
            self._trouble("", f"the state folder {self._settings.state} does not answer")
            return None
        self._site.start(name, work, SITE_TIMEOUT_S + 5.0)
        while True:
            for ended in self._site.wait(SITE_TIMEOUT_S + 10.0):
                if ended.name == name:
                    if ended.answer is None:
                        self._trouble("", f"the state folder {self._settings.state}: {ended.why}")
                    return ended.answer
            if not self._site.busy(name):
                return None

    # Slurm.

    def _view(self, at: float, folder: Folder, by_key: dict[str, list[Note]], site: SiteView) -> View:
        memory, settings = self._memory, self._settings
        queue = self._port.queue()
        if isinstance(queue, Unknown):
            self._trouble("", f"Slurm does not tell its queue: {queue.why}")
        elif memory.config is None:
            config = self._port.config()
            memory.config = None if isinstance(config, Unknown) else config
        accounting, cluster = settings.accounting, settings.cluster
        if memory.config is not None:
            if accounting is None:
                accounting = "slurmdbd" in memory.config.get("AccountingStorageType", "")
            cluster = cluster or memory.config.get("ClusterName", "")
        bad = frozenset(key_in(name) for name, _ in folder.bad) | folder.unread
        return View(at, settings.host, cluster, queue, accounting, by_key, True, memory.config, bad, site)

    # The owners.

    def _chosen(
        self, jobs: Sequence[JobFolder], by_key: Mapping[str, Sequence[Note]], *, full: bool, now: float
    ) -> list[JobFolder]:
        memory = self._memory
        fresh = {
            key
            for key, notes in by_key.items()
            if any(note.name not in memory.notes and note.kind != "refuse" for note in notes)
        }
        if full:
            return [job for job in jobs if job.key not in memory.closed or job.key in fresh]
        due, unclear = {key for key, moment in memory.due.items() if moment <= now}, self._unclear()
        return [job for job in jobs if job.key in fresh or job.key in unclear or job.key in due]

    def _with_strays(self, jobs: list[JobFolder], every: Iterable[JobFolder], view: View) -> list[JobFolder]:
        """The jobs, and those closed ones of which the queue still has something."""
        chosen = {job.key for job in jobs}
        return jobs + [job for job in every if job.key not in chosen and view.of_key(job.key)]

    def _start(self, jobs: Iterable[JobFolder], view: View) -> None:
        by_uid: dict[int, list[str]] = {}
        for job in jobs:
            by_uid.setdefault(job.uid, []).append(job.key)
        for uid, keys in by_uid.items():
            until, _ = self._memory.put_off.get(uid, (0.0, 0.0))
            name = f"uid {uid}"
            if until > time.monotonic() or self._children.busy(name):
                for key in keys:  # the next full tick asks again
                    self._memory.asked.pop(key, None)
                    self._memory.due.pop(key, None)
                continue
            deadline_s = self._settings.owner_timeout_s + 2 * self._means.submit_timeout_s
            notes = frozenset(note.name for key in keys for note in view.notes_of(key))
            self._under_way[name] = _Work(uid, tuple(keys), notes)
            self._children.start(name, self._owners_work(uid, tuple(keys), view, deadline_s), deadline_s + 10.0)

    def _owners_work(self, uid: int, keys: tuple[str, ...], view: View, deadline_s: float) -> Callable[[], bytes]:
        jobs_folder = os.path.join(self._settings.state, "jobs")

        def work() -> bytes:
            # Reserve of five seconds: to hand the report over.
            means = self._means.until(time.monotonic() + deadline_s - 5.0)
            gid, groups = identity(uid)
            return in_child(uid, gid, groups, lambda: owner.work(jobs_folder, uid, keys, view, means), deadline_s)

        return work

    def _collect(self, patience_s: float | None) -> None:
        until = None if patience_s is None else time.monotonic() + patience_s
        while True:
            left = 3600.0 if until is None else max(0.0, until - time.monotonic())
            for ended in self._children.wait(left):
                self._take(ended)
            if self._children.idle() or (until is not None and time.monotonic() >= until):
                return

    def _take(self, ended: Ended) -> None:
        work = self._under_way.pop(ended.name)
        uid, memory = work.uid, self._memory
        if ended.answer is None:
            self._trouble(ended.name, f"the jobs of {ended.name}: {ended.why}")
            if ended.hung:
                first, longest = PUT_OFF_S
                length = min(longest, 2 * memory.put_off.get(uid, (0.0, first / 2))[1])
                memory.put_off[uid] = (time.monotonic() + length, length)
            return
        memory.put_off.pop(uid, None)
        try:
            reports = owner.unpack(ended.answer, work.keys, work.notes)
            user = owner.user_name(uid)
            heard = [hearsay.unpack(report.site, uid, user) for report in reports]
        except DispatchError as error:
            self._trouble(ended.name, f"the jobs of {ended.name}: {error.line()}")
            return
        memory.notes |= work.notes
        lines = [line for report in reports for line in _lines(report)]
        for about, line, trouble in lines[:OWNER_LINES_MAX]:
            if trouble:
                self._trouble(about, line)
            else:
                self._log(line)
        if len(lines) > OWNER_LINES_MAX:
            self._log(f"the jobs of {ended.name}: {len(lines) - OWNER_LINES_MAX} more lines are left out")
        for report, said in zip(reports, heard, strict=True):
            self._report(report)
            self._keeper.hear(report.key, uid, user, said)

    def _report(self, report: Report) -> None:
        memory = self._memory
        (memory.closed.add if report.closed else memory.closed.discard)(report.key)
        if report.soon:
            memory.asked[report.key] = memory.asked.get(report.key, -1) + 1
        else:
            memory.asked.pop(report.key, None)
        if report.due is None:
            memory.due.pop(report.key, None)
        else:
            memory.due[report.key] = max(report.due, time.time() + DUE_LEAST_S)
        remove, refuse = self._to_write
        remove.update(dict.fromkeys(report.done_notes))
        refuse.update(dict.fromkeys(report.refuse))

    def _unclear(self) -> set[str]:
        """The jobs that are asked about between the full ticks."""
        asked = {key for key, count in self._memory.asked.items() if count < len(SOON_S)}
        return asked | self._keeper.ready()

    def _again(self) -> float | None:
        """When to come back for jobs that are not clear yet; after the last of :data:`SOON_S` the full ticks do."""
        waits = [SOON_S[count] for count in self._memory.asked.values() if count < len(SOON_S)]
        now = time.time()
        waits += [max(SOON_S[0], moment - now) for moment in self._memory.due.values()]
        if self._keeper.busy() or self._keeper.ready():
            waits.append(ANSWER_S)
        return min(waits, default=None)

    def busy(self) -> bool:
        """A command of the site's still runs, whose answer a later pass takes."""
        return self._keeper.busy() or bool(self._keeper.ready())

    def _trouble(self, about: str, line: str) -> None:
        now = time.monotonic()
        if now - self._memory.said.get((about, line), -REPEAT_S) >= REPEAT_S:
            if len(self._memory.said) >= SAID_MAX:
                self._memory.said.clear()
            self._memory.said[(about, line)] = now
            self._log(line)


def _lines(report: Report) -> list[tuple[str, str, bool]]:
    """What a report has for the log: about what, the line, and whether it is a trouble, said once."""
    lines = [(report.key, f"job {report.key}: {line}", False) for line in report.lines]
    if report.trouble:
        lines.append((report.key, f"job {report.key}: {report.trouble}", True))
    return lines


def orphans(folder: Folder, now: float) -> list[str]:
    """The names of old notes of jobs that are not there."""
    known = {job.key for job in folder.jobs}
    return [note.name for note in folder.notes
            if note.word.job not in known and note.kind != "refuse" and now - note.at > ORPHAN_AFTER_S]  # fmt: skip


def job_folder(folder: StateFolder, key: str) -> JobFolder | None:
    """The job of this key and its owner; ``None`` if ``key`` is none or there is no such folder."""
    try:
        found = os.lstat(os.path.join(folder.jobs_folder, check_key(key)))
    except (BadDataError, FileNotFoundError):
        return None
    return JobFolder(key, found.st_uid) if stat.S_ISDIR(found.st_mode) else None


def identity(uid: int) -> tuple[int, list[int]]:
    """The group and the supplementary groups that this user has now.

    From the group database, never from the record: an owner could write other groups there.

    :raises NotAllowedError: nobody has this uid here.
    """
    if uid == os.geteuid() and uid != 0:
        return os.getegid(), os.getgroups()
    try:
        user = pwd.getpwuid(uid)
    except KeyError as error:
        raise NotAllowedError(f"uid {uid} has no name on this host", hint="its jobs are not looked at") from error
    return user.pw_gid, groups_of(user.pw_name, user.pw_gid)


__all__ = ["PATIENCE_S", "PUT_OFF_S", "REPEAT_S", "Controller", "Memory", "Settings", "identity"]
