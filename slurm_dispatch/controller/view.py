"""What one pass knows: the site's folder as SlurmUser read it, and Slurm's queue, at one moment.

The law: *the notes are listed before the queue is asked, and nothing counts as later than* :attr:`View.at`, which
is taken before both. So a wait that is over at that time was over when every source was asked.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from slurm_dispatch.controller.siteview import SiteView
from slurm_dispatch.errors import BadDataError
from slurm_dispatch.model.identity import Word, parse_word
from slurm_dispatch.records.places import HERE, place_of
from slurm_dispatch.slurm.configuration import has_accounting
from slurm_dispatch.slurm.port import (
    Absent,
    Dependent,
    JobDetail,
    Nodes,
    Present,
    Queue,
    QueueJob,
    SlurmPort,
    Unknown,
)
from slurm_dispatch.state.folder import JobFolder
from slurm_dispatch.state.notes import Note, key_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from slurm_dispatch.records.spec import Spec
    from slurm_dispatch.records.state import SlurmObject


@dataclass(frozen=True, slots=True)
class Folder:
    """The state folder as it was read: whose job is which, and the notes.

    :param unread: keys of jobs that have more notes than were read, so that their silence says nothing.
    :param site: the tick's own files, as :func:`slurm_dispatch.controller.hints.read` read them.
    :param names: of all notes, where only names were read.
    :param indexes: by uid, what the owner's file of the index holds.
    :param last: Unix seconds when the last tick ended.
    """

    jobs: tuple[JobFolder, ...]
    notes: tuple[Note, ...]
    bad: tuple[tuple[str, str], ...]
    unread: frozenset[str] = frozenset()
    site: Mapping[str, Any] = field(default_factory=dict)
    names: tuple[str, ...] = ()
    indexes: Mapping[int, str] = field(default_factory=dict)
    last: float | None = None


def pack_folder(folder: Folder) -> bytes:
    """``folder`` as a child hands it to its parent."""
    owned: dict[int, list[str]] = {}
    for job in folder.jobs:
        owned.setdefault(job.uid, []).append(job.key)
    return json.dumps(
        {
            "jobs": owned,
            "notes": [
                [note.name, note.kind, str(note.word), note.cluster, note.slurm_job_id, note.at, dict(note.body)]
                for note in folder.notes
            ],
            "bad": folder.bad,
            "unread": sorted(folder.unread),
            "site": dict(folder.site),
            "names": folder.names,
            "indexes": dict(folder.indexes),
            "last": folder.last,
        }
    ).encode("ascii")


def unpack_folder(data: bytes) -> Folder:
    """The opposite of :func:`pack_folder`.

    :raises BadDataError: it is not what :func:`pack_folder` made.
    """
    try:
        content = json.loads(data)
        return Folder(
            tuple(JobFolder(key, int(uid)) for uid, keys in content["jobs"].items() for key in keys),
            tuple(_note(parts) for parts in content["notes"]),
            tuple((str(name), str(why)) for name, why in content["bad"]),
            frozenset(str(key) for key in content["unread"]),
            dict(content["site"]),
            tuple(content["names"]),
            {int(uid): str(text) for uid, text in content["indexes"].items()},
            None if content["last"] is None else float(content["last"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BadDataError(f"the child that read the state folder answered nonsense: {error}") from error


def _note(parts: list[Any]) -> Note:
    name, kind, word, cluster, slurm_job_id, at, body = parts
    parsed = parse_word(word)
    if parsed is None:
        raise BadDataError(f"{word!r} is not an identity word")
    return Note(str(name), str(kind), parsed, str(cluster), int(slurm_job_id), float(at), MappingProxyType(body))


@dataclass(slots=True)
class View:
    """What a pass knows of the world outside the records.

    :param at: Unix seconds before anything was asked.
    :param cluster: the cluster that the queue is of; empty: not known, then every object is taken for its own.
    :param accounting: false where the site has none, ``None`` where that is not known.
    :param notes: by key; ``None`` where the caller may not read them.
    :param complete: no note was left unread, but those of ``bad``.
    :param bad: keys of jobs that have a note that could not be read, or was not.
    :param config: Slurm's configuration, or ``None`` where it was not told.
    :param site: what is known of the site beside jobs.
    :param others: what other clusters were asked, by their names; see :meth:`of`.
    :param more: asks another cluster when it is first wanted; ``None``: what was not asked stays unknown.
    :param unasked: the clusters of which something was wanted that were not asked.
    """

    at: float
    host: str
    cluster: str
    queue: Queue | Unknown
    accounting: bool | None
    notes: Mapping[str, Sequence[Note]] | None
    complete: bool
    config: Mapping[str, str] | None = None
    bad: frozenset[str] = frozenset()
    site: SiteView = field(default_factory=SiteView)
    others: dict[str, View] = field(default_factory=dict)
    more: Callable[[str], tuple[Queue | Unknown, Mapping[str, str] | None]] | None = None
    unasked: set[str] = field(default_factory=set)
    _by_id: dict[int, QueueJob] = field(default_factory=dict)
    _by_key: dict[str, list[QueueJob]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if isinstance(self.queue, Queue):
            for job in self.queue.jobs:
                self._by_id[job.slurm_job_id] = job
                if job.word is not None:
                    self._by_key.setdefault(job.word.job, []).append(job)

    @property
    def told(self) -> bool:
        """Slurm told its queue."""
        return isinstance(self.queue, Queue)

    def of(self, place: str) -> View:
        """What is known of the cluster of this name, the notes included; of :data:`HERE` it is this view itself.

        Nothing of this cluster's queue, nodes or configuration is in it: the same id there is another object, and
        the same node name another node.
        """
        if place == HERE:
            return self
        if place not in self.others:
            if self.more is None:
                self.unasked.add(place)
                self.add(place, Unknown(f"cluster {place} was not asked yet"), None)
            else:
                self.add(place, *self.more(place))
        return self.others[place]

    def place(self, spec: Spec, it: SlurmObject | None) -> str:
        """The place of an object of this job; without one, this cluster."""
        return HERE if it is None else place_of(spec, it.cluster, self.cluster)

    def add(self, place: str, queue: Queue | Unknown, config: Mapping[str, str] | None) -> None:
        """Take what another cluster was asked."""
        accounting = None if config is None else has_accounting(config)
        self.others[place] = View(
            self.at, self.host, place, queue, accounting, self.notes, self.complete, config, self.bad,
            self.site.elsewhere(place),
        )  # fmt: skip

    def of_key(self, key: str) -> list[QueueJob]:
        """The objects of the queue that carry a word of this job, whoever owns them."""
        return self._by_key.get(key, [])

    def of_id(self, slurm_job_id: int) -> QueueJob | None:
        """The object of this id in the queue."""
        return self._by_id.get(slurm_job_id)

    def has_all_notes_of(self, key: str) -> bool:
        """No note of this job was left unread, so that one that is not there says something."""
        return self.notes is not None and self.complete and key not in self.bad

    def notes_of(self, key: str) -> Sequence[Note]:
        """The notes of this job; empty where they cannot be read."""
        return () if self.notes is None else self.notes.get(key, ())


def notes_by_key(notes: Iterable[Note]) -> dict[str, list[Note]]:
    """The notes of each job, in the order of their names."""
    found: dict[str, list[Note]] = {}
    for note in notes:
        found.setdefault(note.word.job, []).append(note)
    return found


class Details:
    """Slurm's details, asked as the owner, each at most once a pass.

    Accounting is one call for all objects that :meth:`want` named before the first answer is needed.
    """

    def __init__(self, port: SlurmPort, *, accounting: bool | None) -> None:
        self._port = port
        self._others: dict[str, Details] = {}
        self.has_accounting = accounting
        self._wanted: set[int] = set()
        self._since: int | None = None
        self._details: dict[int, Present[JobDetail] | Absent | Unknown] = {}
        self._rows: dict[int, Present[tuple[JobDetail, ...]] | Absent | Unknown] = {}
        self._nodes: Nodes | Unknown | None = None
        self._dependents: tuple[Dependent, ...] | Unknown | None = None

    def at(self, place: str, view: View) -> Details:
        """The details of another cluster's objects, or these where the place is :data:`HERE`.

        :param view: what the pass knows, the other cluster's accounting among it.
        """
        if place == HERE:
            return self
        if place not in self._others:
            self._others[place] = Details(self._port.at(place), accounting=view.of(place).accounting)
        return self._others[place]

    def want(self, slurm_job_id: int, since: float) -> None:
        """This object's rows may be asked for; it was submitted no earlier than ``since``."""
        self._wanted.add(slurm_job_id)
        self._since = int(since) if self._since is None else min(self._since, int(since))

    def detail(self, slurm_job_id: int) -> Present[JobDetail] | Absent | Unknown:
        """What slurmctld says of the object."""
        if slurm_job_id not in self._details:
            self._details.update(self._port.detail([slurm_job_id]))
        return self._details.get(slurm_job_id, Unknown("no answer about this object"))

    def rows(self, slurm_job_id: int) -> Present[tuple[JobDetail, ...]] | Absent | Unknown:
        """The rows of accounting of the object, oldest first."""
        if self.has_accounting is False:
            return Unknown("this site has no accounting")
        if slurm_job_id not in self._rows:
            asked = sorted(self._wanted | {slurm_job_id})
            self._rows.update(self._port.accounting(asked, since=self._since))
        return self._rows.get(slurm_job_id, Unknown("no answer about this object"))

    def dependents(self, uid: int) -> tuple[Dependent, ...] | Unknown:
        """The owner's jobs that wait for others."""
        if self._dependents is None:
            self._dependents = self._port.dependents(uid)
        return self._dependents

    def nodes(self) -> Nodes | Unknown:
        """All nodes of the cluster, as they are after what was asked before."""
        if self._nodes is None:
            self._nodes = self._port.nodes()
        return self._nodes

    @property
    def port(self) -> SlurmPort:
        """Slurm itself, for what must be asked at this moment."""
        return self._port

    def refresh(self) -> None:
        """Forget what was answered: the next question is a new one."""
        for other in self._others.values():
            other.refresh()
        self._details.clear()
        self._nodes = self._dependents = None
        self._rows.clear()

    def rows_of_word(self, word: Word, uid: int, since: float) -> Present[tuple[JobDetail, ...]] | Absent | Unknown:
        """The rows of this owner whose comment has the word."""
        return self._port.accounting_by_word(word, uid, since=int(since))


__all__ = ["Details", "Folder", "View", "key_in", "notes_by_key", "pack_folder", "unpack_folder"]
