"""``dispatch tick``: one pass over all open jobs.

The law of this module: *the tick itself touches no file.* The state folder is read and written by children, as
SlurmUser and as each job's owner, so that a filesystem that hangs and an owner who means ill can stop their own
work only. A fixed number of Slurm calls are made here (the queue; the nodes where something hangs on them; once a
process the configuration, when there is something to do), whatever the number of jobs, and the queue of each other
cluster that has open jobs; what changed is asked for by the owners' children.

A full pass goes in steps: the jobs and the names of the notes are listed; the queue is asked; the index
(:mod:`slurm_dispatch.controller.index`) picks the jobs that something tells of; each owner's child looks whether the
others' records have changed; only then the notes of those that are visited are read, and their owners' children do
the work. Where nothing changed this ends after the third step, and nothing is written but the time of the tick.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from slurm_dispatch.controller import hearsay, index, owner
from slurm_dispatch.controller.children import Children, Ended
from slurm_dispatch.controller.elsewhere import Elsewhere
from slurm_dispatch.controller.job import SOON_S, Means, Report
from slurm_dispatch.controller.keeper import Keeper
from slurm_dispatch.controller.sitefolder import (
    ORPHAN_AFTER_S,
    Settings,
    SiteFolder,
    orphan_names,
    orphans,
)
from slurm_dispatch.controller.siterules import SiteRules
from slurm_dispatch.controller.view import Folder, View, key_in, notes_by_key
from slurm_dispatch.errors import DispatchError
from slurm_dispatch.slurm.configuration import has_accounting
from slurm_dispatch.slurm.port import SlurmPort, Unknown
from slurm_dispatch.state.as_user import in_child
from slurm_dispatch.state.notes import NotesRead
from slurm_dispatch.state.users import identity, user_name

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from slurm_dispatch.controller.index import Entry, Index
    from slurm_dispatch.controller.siteview import SiteView
    from slurm_dispatch.state.folder import JobFolder

PATIENCE_S = 5.0
"""How long a pass of the loop waits for owners' children; one that takes longer is collected by a later pass."""
PUT_OFF_S = (30.0, 600.0)
"""An owner whose child hung is put off for the first, doubled each time up to the second."""
REPEAT_S = 3600.0
"""The same trouble of the same job is said again after this."""
SAID_MAX = 10_000
"""Troubles that are remembered as said."""
OWNER_ANSWER_MAX = 16 << 20
"""Bytes that one owner's child may answer: the reports of :data:`OWNER_JOBS_MAX` jobs with all their notes."""
OWNER_JOBS_MAX = 10_000
"""Jobs that one owner's child works on; the next child takes the next ones."""
OWNER_LINES_MAX = 200
"""Lines of the log from one owner's jobs in one pass."""
RESERVE_S = 5.0
"""An owner's child begins nothing this long before its deadline: it has its report to hand over."""
DUE_LEAST_S = 1.0
"""A job that asks to be looked at again is, no sooner than this: each such look asks for the queue."""
ANSWER_S = 0.5
"""How often one looks whether a command of the site's (notify, cessation) has answered."""


@dataclass(slots=True)
class Memory:
    """What a loop remembers between passes. Nothing of it is needed for correctness; cron begins with none."""

    put_off: dict[int, tuple[float, float]] = field(default_factory=dict)  # uid: until (monotonic), length
    indexes: dict[int, Index] = field(default_factory=dict)  # by uid
    notes: set[str] = field(default_factory=set)  # names that an owner's child has seen
    asked: dict[str, int] = field(default_factory=dict)  # key: how often it was not clear yet
    due: dict[str, float] = field(default_factory=dict)  # key: Unix seconds
    said: dict[tuple[str, str], float] = field(default_factory=dict)
    config: Mapping[str, str] | None = None


@dataclass(slots=True)
class _Work:
    """What an owner's child was given.

    :param keys: the jobs that it works on; those that wait until it has looked, if it only looks.
    :param stamps: it looks which of these records have changed, and does no more.
    :param late: nobody waits any more for what it has seen.
    :param overlaps: so many executions it may suspect.
    """

    uid: int
    keys: tuple[str, ...]
    notes: frozenset[str] = frozenset()
    stamps: Mapping[str, int] | None = None
    late: bool = False
    overlaps: int = 0


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
        self._site = SiteFolder(settings, self._trouble)
        self._elsewhere = Elsewhere(means.port, self._trouble)
        self._under_way: dict[str, list[_Work]] = {}  # by child; one after the other
        self._moved: dict[int, list[str]] = {}  # by uid: jobs whose records were seen to have changed
        self._basis = ""
        self._to_write: tuple[dict[str, None], dict[str, None]] = ({}, {})  # in order, each once

    def tick(self, *, full: bool, patience_s: float | None = None) -> float | None:
        """One pass.

        :param full: all open jobs; otherwise those with a note that is new, and those that were not clear yet.
        :param patience_s: how long to wait for owners' children; ``None``: until each has ended or been killed.
        :returns: in how many seconds a job that is not clear yet should be looked at again, or ``None``.
        """
        at = time.time()
        done = self._full(at, patience_s) if full else self._quick(at, patience_s)
        if not done:
            return None
        self._write(ended=full)
        return self._again()

    def _quick(self, at: float, patience_s: float | None) -> bool:
        """The jobs that something has come for; false where the state folder does not answer."""
        memory = self._memory
        also = self._unclear() | {key for key, moment in memory.due.items() if moment <= at}
        folder = self._site.some(also, memory.notes)
        if folder is None:
            return False
        site = self._keeper.begin(folder.site, at, full=False)
        by_key = notes_by_key(folder.notes)
        fresh = {
            key
            for key, notes in by_key.items()
            if any(note.name not in memory.notes and note.kind != "refuse" for note in notes)
        }
        jobs = [job for job in self._mine(folder) if job.key in fresh or job.key in also]
        if jobs:
            keys = [job.key for job in jobs]
            view = self._view(at, site, [it.elsewhere(keys) for it in memory.indexes.values()])
            self._complete(view, NotesRead(folder.notes, folder.bad, more=False, unread=folder.unread))
            self._start(jobs, view)
        self._collect(patience_s)
        return True

    def _full(self, at: float, patience_s: float | None) -> bool:
        """All jobs; false where the state folder does not answer."""
        memory = self._memory
        folder = self._site.every(memory.indexes.keys())
        if folder is None:
            return False
        site = self._keeper.begin(folder.site, at, full=True)
        jobs = self._mine(folder)
        names: dict[str, list[str]] = {}
        for name in folder.names:
            names.setdefault(key_in(name), []).append(name)
        self._remember({job.uid for job in jobs}, folder, site)
        view = self._view(at, site, [it.elsewhere() for it in memory.indexes.values()]) if jobs else None
        visited = [] if view is None else self._pick(jobs, folder, names, view, patience_s)
        keys = {job.key for job in visited}
        wanted = {name for key in keys for name in names.get(key, ())}
        read = self._site.notes(frozenset(wanted.union(orphan_names(folder, at))), keys)
        if read is None:
            return False
        self._to_write[0].update(dict.fromkeys(orphans(Folder(folder.jobs, read.notes, ()), at)))
        if view is not None and visited:
            self._complete(view, NotesRead(read.notes, read.bad, more=False, unread=read.unread | folder.unread))
            self._start(visited, view)
        self._collect(patience_s)
        # What was there when a job was last visited is nothing new.
        passed = {name for job in jobs if job.key not in keys for name in names.get(job.key, ())}
        memory.notes = memory.notes.intersection(folder.names) | passed
        return True

    def _mine(self, folder: Folder) -> tuple[JobFolder, ...]:
        if self._settings.user_mode:
            return tuple(job for job in folder.jobs if job.uid == os.geteuid())
        return folder.jobs

    def put_off(self, uids: Iterable[int]) -> None:
        """Leave the jobs of these owners alone for a while, and say so."""
        first, _ = PUT_OFF_S
        for uid in uids:
            self._trouble(f"uid {uid}", f"the jobs of uid {uid}: children of earlier ticks hang there")
            self._memory.put_off[uid] = (time.monotonic() + first, first)

    def as_slurm_user(self, work: Callable[[], bytes], deadline_s: float) -> bytes:
        """Do ``work`` as SlurmUser, or as the caller in user mode. Blocks; see :func:`in_child`."""
        return self._site.as_slurm_user(work, deadline_s)

    def stop(self) -> None:
        """End what still runs."""
        self._children.stop()
        self._site.stop()
        self._keeper.stop()

    def _write(self, *, ended: bool) -> None:
        """What is to be written in the site's folder, if anything is."""
        remove, refuse = self._to_write
        if (remove or refuse) and self._site.write_notes(remove, refuse):
            self._to_write = ({}, {})
        files = self._keeper.end(time.time())
        changed = {uid: it for uid, it in self._memory.indexes.items() if it.changed} if ended else {}
        texts = {uid: index.render(it, uid, self._basis) for uid, it in changed.items()}
        if (ended or files) and self._site.write_own(files, texts, ended=ended):
            for it in changed.values():
                it.changed = False

    # Slurm.

    def _view(self, at: float, site: SiteView, elsewhere: Iterable[set[str]]) -> View:
        """The queues; :meth:`_complete` adds what only those who work need.

        :param elsewhere: for each owner, the other clusters on which he has jobs.
        """
        queue = self._port.queue()
        if isinstance(queue, Unknown):
            self._trouble("", f"Slurm does not tell its queue: {queue.why}")
        settings = self._settings
        view = View(at, settings.host, settings.cluster, queue, settings.accounting, {}, True, site=site)
        self._elsewhere.ask(view, elsewhere)
        return view

    def _complete(self, view: View, notes: NotesRead) -> None:
        memory = self._memory
        if memory.config is None and view.told:
            config = self._port.config()
            memory.config = None if isinstance(config, Unknown) else config
        if memory.config is not None:
            if view.accounting is None:
                view.accounting = has_accounting(memory.config)
            view.cluster = view.cluster or memory.config.get("ClusterName", "")
        view.config = memory.config
        view.notes = notes_by_key(notes.notes)
        view.bad = frozenset(key_in(name) for name, _ in notes.bad) | notes.unread
        self._elsewhere.complete(view)

    # The owners.

    def _remember(self, uids: Iterable[int], folder: Folder, site: SiteView) -> None:
        """Read the index of each owner of whom this process has none yet."""
        self._basis = index.basis_of(self._means.policy.rules, site.rules)
        for uid in uids:
            if uid not in self._memory.indexes:
                self._memory.indexes[uid] = index.parse(folder.indexes.get(uid, ""), uid, self._basis)

    def _pick(
        self,
        jobs: Iterable[JobFolder],
        folder: Folder,
        names: Mapping[str, list[str]],
        view: View,
        patience_s: float | None,
    ) -> list[JobFolder]:
        """The jobs that something tells of: by the index, and by a look at the others' records."""
        also = self._unclear() | {key for key, moment in self._memory.due.items() if moment <= view.at}
        owned: dict[int, dict[str, JobFolder]] = {}
        for job in jobs:
            owned.setdefault(job.uid, {})[job.key] = job
        visit: dict[int, list[str]] = {}
        looks: list[str] = []
        for uid, mine in owned.items():
            found = self._memory.indexes[uid]
            found.keep(mine.keys())
            picked = found.pick(uid, mine, names, view, folder.last)
            more = [key for key in picked.ask if key in also or key in folder.unread]
            stamps = {key: stamp for key, stamp in picked.ask.items() if key not in more} if more else picked.ask
            visit[uid] = picked.visit + more
            if stamps and not self._aside(uid):
                looks.append(self._look(uid, tuple(visit[uid]), stamps))
        self._collect(patience_s, looks)
        for name in looks:
            for work in self._under_way.get(name, ()):
                work.late, visit[work.uid] = True, []
        for uid, keys in self._moved.items():
            visit[uid] += keys
        self._moved.clear()
        return [owned[uid][key] for uid, keys in visit.items() for key in keys]

    def _aside(self, uid: int) -> bool:
        """The owner's jobs are left alone: his child hung, or still works."""
        until, _ = self._memory.put_off.get(uid, (0.0, 0.0))
        return until > time.monotonic() or self._children.busy(f"uid {uid}")

    def _look(self, uid: int, keys: tuple[str, ...], stamps: Mapping[str, int]) -> str:
        """Start the child that looks which records have changed; its name."""
        name, jobs_folder = f"uid {uid}", self._jobs_folder()
        self._under_way[name] = [_Work(uid, keys, stamps=stamps)]
        self._children.start(name, *self._as_owner(uid, lambda _: owner.moved(jobs_folder, stamps)))
        return name

    def _start(self, jobs: Iterable[JobFolder], view: View) -> None:
        by_uid: dict[int, list[str]] = {}
        for job in jobs:
            by_uid.setdefault(job.uid, []).append(job.key)
        given = sum(work.overlaps for works in self._under_way.values() for work in works)
        free = self._keeper.overlaps_free(view.site) - given
        for uid, keys in by_uid.items():
            name = f"uid {uid}"
            if self._aside(uid):
                for key in keys:  # the next full tick asks again
                    self._memory.asked.pop(key, None)
                    self._memory.due.pop(key, None)
                continue
            for first in range(0, len(keys), OWNER_JOBS_MAX):
                part = tuple(keys[first : first + OWNER_JOBS_MAX])
                notes = frozenset(note.name for key in part for note in view.notes_of(key))
                overlaps = max(0, min(free, _silent(part, view)))
                free -= overlaps
                self._under_way.setdefault(name, []).append(_Work(uid, part, notes, overlaps=overlaps))
                self._children.start(name, *self._as_owner(uid, self._owners_work(uid, part, view, overlaps)))

    def _owners_work(
        self, uid: int, keys: tuple[str, ...], view: View, overlaps: int
    ) -> Callable[[float], bytes]:
        found = self._memory.indexes.get(uid)
        before: Mapping[str, Entry] = {} if found is None else found.entries

        def work(stop_at: float) -> bytes:
            means = self._means.until(stop_at)
            return owner.work(
                self._jobs_folder(), uid, keys, view, means, before=before, most_overlaps=overlaps
            )

        return work

    def _as_owner(self, uid: int, work: Callable[[float], bytes]) -> tuple[Callable[[], bytes], float]:
        """``work``, which is told when to stop (monotonic), with the owner's rights; and its deadline in seconds."""
        deadline_s = self._settings.owner_timeout_s + 2 * self._means.submit_timeout_s

        def run() -> bytes:
            gid, groups = identity(uid)
            stop_at = time.monotonic() + deadline_s - RESERVE_S
            return in_child(uid, gid, groups, lambda: work(stop_at), deadline_s)

        return run, deadline_s + 10.0

    def _jobs_folder(self) -> str:
        return os.path.join(self._settings.state, "jobs")

    def _collect(self, patience_s: float | None, names: Collection[str] | None = None) -> None:
        """Take what has ended, until these children have ended (all, unless told), or patience is over."""
        until = None if patience_s is None else time.monotonic() + patience_s
        while names is None or any(name in self._under_way for name in names):
            left = 3600.0 if until is None else max(0.0, until - time.monotonic())
            for ended in self._children.wait(left):
                self._take(ended)
            if self._children.idle() or (until is not None and time.monotonic() >= until):
                return

    def _take(self, ended: Ended) -> None:
        work = self._under_way[ended.name].pop(0)
        if not self._under_way[ended.name]:
            del self._under_way[ended.name]
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
            if work.stamps is not None:
                self._looked(work, owner.unpack_moved(ended.answer, work.stamps))
                return
            reports = owner.unpack(ended.answer, work.keys, work.notes)
            user = user_name(uid)
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
            self._report(report, uid)
            self._keeper.hear(report.key, uid, user, said)

    def _looked(self, work: _Work, changed: list[str]) -> None:
        if work.late:
            for key in (*work.keys, *changed):
                self._memory.asked.setdefault(key, 0)  # the next pass visits them
        else:
            self._moved[work.uid] = changed

    def _report(self, report: Report, uid: int) -> None:
        memory = self._memory
        if uid in memory.indexes:
            memory.indexes[uid].put(report.key, index.entry_of(report.rest))
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

    def idle(self) -> bool:
        """Nothing that a pass began is under way any more, so that another controller can go on."""
        return not self._under_way and not self.busy()

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


def _silent(keys: Iterable[str], view: View) -> int:
    """How many of these jobs run on a node whose silence may be acted on."""
    if not view.site.suspects.since:
        return 0
    return sum(any(view.site.on_suspects(job.nodes) for job in view.of_key(key)) for key in keys)


def _lines(report: Report) -> list[tuple[str, str, bool]]:
    """What a report has for the log: about what, the line, and whether it is a trouble, said once."""
    lines = [(report.key, f"job {report.key}: {line}", False) for line in report.lines]
    if report.trouble:
        lines.append((report.key, f"job {report.key}: {report.trouble}", True))
    return lines


__all__ = [
    "ORPHAN_AFTER_S", "PATIENCE_S", "PUT_OFF_S", "REPEAT_S", "Controller", "Folder", "Memory", "Settings",
    "orphans",
]
