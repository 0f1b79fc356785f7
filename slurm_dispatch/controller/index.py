"""What ticks remember of jobs that had nothing to do, so that the next tick passes them over. No I/O.

The law of this module: *no decision stands on the index.* An entry says with what the job's last pass found nothing
to do: the time stamp of its folder of facts, its lines of the queue, its notes. A job goes unvisited only while all
of these are the same; whatever is missing, torn, of another version or not understood means a visit. So a job's pass
comes later at worst, and every entry is visited once in a while even if nothing changed (:func:`turns_up`), since
time stamps can lie: an owner can set them, a backup can bring them back, and clocks step.

An attribute cache (NFS keeps a folder's attributes for up to a minute, ``acdirmax``) shows another host's fact that
much later. A time stamp that was young when it was first seen is not trusted before the record has been read again
:data:`RACY_S` later: two facts within one tick of the filesystem's clock have one stamp.
"""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from slurm_dispatch import __version__
from slurm_dispatch.controller.ends import WAITING
from slurm_dispatch.errors import BadDataError
from slurm_dispatch.model.hostlist import expand
from slurm_dispatch.records.law import Phase
from slurm_dispatch.records.places import HERE
from slurm_dispatch.slurm.holds import held_by

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from slurm_dispatch.controller.view import View
    from slurm_dispatch.slurm.port import QueueJob

FORMAT = 2
NAME = "index."
"""The file of an owner in ``<state>/tick/``: this and his uid."""
SIZE_MAX = 32 << 20
"""Bytes of all owners' files together: those of 250,000 jobs."""
RACY_S = 2.0
"""The coarsest clock of a filesystem that is in use (FAT); NFS and ext4 have milliseconds."""
OLD_S = 310.0
"""A stamp this much older than the host's own clock says cannot be young: clocks differ by less than five minutes."""
OPEN_TURN_S = 3600.0
"""An open job is visited once in this time, whatever its entry says."""
CLOSED_TURN_S = 86400.0
GROUP_LEAST = 64
"""Jobs of an owner, at least, that have their turn together: a child for a few would cost more than they do."""
DUE_SLACK_S = 5.0
"""A time to look again that moves by less than this is the same: it is not worth a write."""
WORK = "work"
"""``needs`` of a job that is visited by every tick."""
SILENT = "silent"
"""``needs`` of a job that may be replaced while a node of it is silent."""
CLOCK = "clock:"
"""``needs`` of a job whose hold is counted by the site's clock of this id."""
_NONE = "-"
_ELSEWHERE_MAX = 300
"""Characters of the places of one job; of one with more it is not remembered where they are."""
_SEQ_MAX = 10**10
_OBJECT_MAX = 2**32
_FIELDS = 10


class Entry(NamedTuple):
    """What is known of one job.

    :ivar seq: its last fact.
    :ivar phase: where that leaves it.
    :ivar object: the Slurm job id of its current object, or 0.
    :ivar due: Unix seconds when there is something to do even if nothing changes, or ``None``.
    :ivar stamp: ``st_mtime_ns`` of its folder of facts, read before the facts were.
    :ivar line: of its objects in the queue, see :func:`line_of`.
    :ivar notes: of the names of its notes, see :func:`notes_of`.
    :ivar needs: what else must be so: nothing, :data:`WORK`, :data:`SILENT` or :data:`CLOCK`.
    :ivar since: Unix seconds when ``stamp`` was first seen; 0: it can be trusted.
    :ivar places: the places of its objects, see :func:`places_of`; empty for this cluster alone.
    """

    seq: int
    phase: str
    object: int
    due: float | None
    stamp: int
    line: str
    notes: str
    needs: str
    since: float
    places: str = ""

    def all_places(self) -> tuple[str, ...]:
        """Every place that its lines are looked for at."""
        return tuple(HERE if name == _HERE else name for name in self.places.split(",")) if self.places else (HERE,)


class Pick(NamedTuple):
    """Which of an owner's jobs a tick visits.

    :ivar visit: those that something tells of.
    :ivar ask: the others, with the stamp that their folder has if nothing changed in it.
    """

    visit: list[str]
    ask: dict[str, int]


class Index:
    """The entries of one owner's jobs.

    :ivar changed: they are not what the file says.
    """

    def __init__(self, entries: Mapping[str, Entry] | None = None) -> None:
        self.entries: dict[str, Entry] = dict(entries or {})
        self.changed = False

    def put(self, key: str, entry: Entry | None) -> None:
        """What a visit has found; ``None``: nothing that can be relied on."""
        before = self.entries.get(key)
        if entry == before or (entry is not None and before is not None and _same(before, entry)):
            return
        self.changed = True
        if entry is None:
            del self.entries[key]
        else:
            self.entries[key] = entry

    def keep(self, keys: Collection[str]) -> None:
        """Forget the jobs that are not there any more."""
        gone = self.entries.keys() - keys
        for key in gone:
            del self.entries[key]
        self.changed = self.changed or bool(gone)

    def elsewhere(self, keys: Iterable[str] | None = None) -> set[str]:
        """The other clusters on which these jobs, or all, have something."""
        if keys is None:
            texts = {entry.places for entry in self.entries.values()}
        else:
            texts = {self.entries[key].places for key in keys if key in self.entries}
        return {name for text in texts if text for name in text.split(",") if name != _HERE}

    def pick(
        self, uid: int, keys: Collection[str], notes: Mapping[str, Sequence[str]], view: View, last: float | None
    ) -> Pick:
        """Which of the jobs ``keys`` of ``uid`` are visited.

        :param notes: by key, the names of all notes.
        :param last: Unix seconds when the last tick ended, or ``None``: every job has its turn.
        """
        picked = Pick([], {})
        suspects = view.site.suspects.since
        reading = view.site.clock()
        clock = None if reading is None else CLOCK + reading.id
        told = view.told
        nothing, groups = notes_of(()), groups_of(len(keys))
        for key in keys:
            entry = self.entries.get(key)
            if (
                entry is None
                or entry.needs == WORK
                or entry.since
                or (entry.due is not None and entry.due <= view.at)
                or entry.notes != (notes_of(notes[key]) if key in notes else nothing)
                or (told and not entry.places and entry.line != line_of(lines(view, key, uid, entry.object)))
                or (entry.places and _is_new_elsewhere(entry, view, key, uid))
                or (entry.needs.startswith(CLOCK) and entry.needs != clock)
                or (suspects and entry.needs == SILENT and _is_on(view.of_id(entry.object), suspects))
                or turns_up(key, last, view.at, _TURNS_S.get(entry.phase, OPEN_TURN_S), groups=groups, of=uid)
            ):
                picked.visit.append(key)
            else:
                picked.ask[key] = entry.stamp
        return picked


def _is_new_elsewhere(entry: Entry, view: View, key: str, uid: int) -> bool:
    """Its lines of other clusters' queues have changed. What is not told changes nothing."""
    asked = entry.all_places()
    if not all(view.of(place).told for place in asked):
        return False
    return entry.line != line_at(view, key, uid, entry.object, asked)


def _same(before: Entry, after: Entry) -> bool:
    """They differ by a few seconds of the time to look again and by nothing else."""
    if before.due is None or after.due is None or abs(after.due - before.due) >= DUE_SLACK_S:
        return False
    return before._replace(due=None) == after._replace(due=None)


def _is_on(queued: QueueJob | None, nodes: Mapping[str, float]) -> bool:
    """It runs on one of these nodes, or nothing tells that it does not."""
    if queued is None:
        return True
    try:
        return any(name in nodes for name in expand(queued.nodes))
    except BadDataError:
        return True


def turns_up(
    key: str, last: float | None, now: float, period_s: float, *, groups: int = 1 << 16, of: int = 0
) -> bool:
    """It is the job's turn to be visited: once in ``period_s``, each group of jobs at its own moment.

    :param last: Unix seconds when the last tick ended.
    :param groups: into how many groups the jobs are put by their keys.
    :param of: the owner: each one's groups have other moments.
    """
    if last is None or now - last >= period_s:
        return True
    place = (zlib.crc32(key.encode("ascii", "replace")) % groups + zlib.crc32(b"%d" % of) / 2**32) / groups
    offset = place * period_s
    return (now - offset) // period_s != (last - offset) // period_s


def groups_of(count: int) -> int:
    """Into how many groups an owner's jobs are put that have their turn together: each turn is a child of his."""
    return 1 << max(0, (count // GROUP_LEAST).bit_length() - 1) if count >= GROUP_LEAST else 1


def since_of(before: Entry | None, stamp: int, now: float) -> float:
    """``since`` of an entry with this stamp, whose record is about to be read at ``now`` (Unix seconds)."""
    if now - stamp / 1e9 >= OLD_S:
        return 0.0
    if before is None or before.stamp != stamp:
        return now
    if not before.since or now - before.since >= RACY_S:
        return 0.0
    return min(before.since, now)


def lines(view: View, key: str, uid: int, slurm_job_id: int) -> list[QueueJob]:
    """The objects of the queue that count for a job: its owner's with its word, and the current one."""
    found = view.of_key(key)
    if len(found) == 1 and found[0].uid == uid and slurm_job_id in {0, found[0].slurm_job_id}:
        return found  # nearly always
    found = [job for job in found if job.uid == uid]
    if slurm_job_id and all(job.slurm_job_id != slurm_job_id for job in found):
        current = view.of_id(slurm_job_id)
        if current is not None:
            found.append(current)
    return found


def line_at(view: View, key: str, uid: int, slurm_job_id: int, asked: Sequence[str]) -> str:
    """:func:`line_of` of a job's lines at these places."""
    if list(asked) == [HERE]:
        return line_of(lines(view, key, uid, slurm_job_id))
    return _short("\n".join(f"{place} {line_of(lines(view.of(place), key, uid, slurm_job_id))}" for place in asked))


def places_of(asked: Sequence[str]) -> str:
    """Places as a short text; empty for this cluster alone, and for more than can be remembered."""
    text = ",".join(place or _HERE for place in asked)
    return "" if text == _HERE or len(text) > _ELSEWHERE_MAX else text


def line_of(jobs: Sequence[QueueJob]) -> str:
    """What of these lines can change what is decided, as a short text.

    Of one that waits neither the time at which Slurm expects it to start, nor why it waits: both change all the
    time. That it waits for its begin time counts, and what holds it.
    """
    if not jobs:
        return _NONE
    if len(jobs) == 1:
        return _short(_line(jobs[0]))
    return _short("\n".join(sorted(map(_line, jobs))))


def _line(job: QueueJob) -> str:
    word, start, reason, nodes = job.word, job.start_time, "", job.nodes
    if job.state in WAITING:
        begin = "begin" if job.reason == "BeginTime" else ""
        start, reason, nodes = None, held_by(job.state, job.reason) or begin, ""
    name = "" if word is None else f"{word.job}:{word.generation}:{word.submission}:{word.shared}"
    return f"{job.slurm_job_id} {job.uid} {job.state} {job.submit_time} {start} {reason} {nodes} {name}"


def notes_of(names: Iterable[str]) -> str:
    """These names of notes as a short text."""
    joined = "\n".join(sorted(names))
    return _short(joined) if joined else _NONE


def _short(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()


def basis_of(*parts: object) -> str:
    """What entries hang on beside the jobs: the program, and the site's rules. Another basis, no entries."""
    return _short(f"{FORMAT} {__version__} {_stable(parts)}")


def _stable(value: object) -> str:
    """``value`` as text that is the same in every process."""
    if is_dataclass(value) and not isinstance(value, type):
        return _stable([getattr(value, each.name) for each in fields(value)])
    if isinstance(value, dict):
        return _stable(sorted((_stable(name), _stable(each)) for name, each in value.items()))
    if isinstance(value, set | frozenset):
        return _stable(sorted(map(_stable, value)))
    if isinstance(value, list | tuple):
        return f"[{','.join(map(_stable, value))}]"
    return repr(value)


def render(index: Index, uid: int, basis: str) -> bytes:
    """The file's content."""
    jobs = {key: pack(entry) for key, entry in sorted(index.entries.items())}
    return json.dumps({"v": FORMAT, "uid": uid, "basis": basis, "jobs": jobs}).encode("ascii") + b"\n"


def parse(text: str, uid: int, basis: str) -> Index:
    """The index in a file's content; an empty one, which is to be written, where it makes no sense."""
    index = Index()
    index.changed = True
    try:
        content: Any = json.loads(text)
        if (content["v"], content["uid"], content["basis"]) != (FORMAT, uid, basis):
            return index
        index.entries = {key: unpack(row) for key, row in content["jobs"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return index
    index.changed = False
    return index


def pack(entry: Entry) -> str:
    """An entry as one text: a hundred thousand of them are read faster so."""
    due = _NONE if entry.due is None else f"{entry.due:.3f}"
    since = "0" if not entry.since else f"{entry.since:.3f}"
    return (
        f"{entry.seq} {entry.phase} {entry.object} {due} {entry.stamp} {entry.line} {entry.notes}"
        f" {entry.needs or _NONE} {since} {entry.places or _NONE}"
    )


def unpack(row: str) -> Entry:
    """The opposite of :func:`pack`.

    :raises ValueError: it is none.
    """
    parts = row.split(" ")
    if len(parts) != _FIELDS:
        raise ValueError("an entry of the index has too few words, or too many")
    seq, phase, number, due, stamp, line, notes, needs, since, places = parts
    if phase not in _PHASES or not (needs in _NEEDS or needs.startswith(CLOCK)) or len(row) > 700:
        raise ValueError("an entry of the index is of another version")
    entry = Entry(
        int(seq), phase, int(number), None if due == _NONE else float(due), int(stamp), line, notes,
        "" if needs == _NONE else needs, float(since), "" if places == _NONE else places,
    )  # fmt: skip
    if entry.places and not all(_PLACE.match(name) for name in entry.places.split(",")):
        raise ValueError("a place in the index is no cluster's name")
    if not (0 < entry.seq < _SEQ_MAX and 0 <= entry.object < _OBJECT_MAX and 0 <= entry.since < 1e12):
        raise ValueError("an entry of the index is out of bounds")
    if entry.due is not None and not -1e12 < entry.due < 1e12:
        raise ValueError("a time in the index is out of bounds")
    return entry


def entry_of(row: str) -> Entry | None:
    """The entry that an owner's child reported, or ``None``."""
    try:
        return unpack(row)
    except ValueError:
        return None


_HERE = "."
_PLACE = re.compile(r"[A-Za-z0-9_.-]{1,256}\Z")
_TURNS_S = {Phase.CLOSED.value: CLOSED_TURN_S}
_PHASES = frozenset(phase.value for phase in Phase)
_NEEDS = frozenset({_NONE, WORK, SILENT})

__all__ = [
    "CLOCK", "CLOSED_TURN_S", "FORMAT", "NAME", "OPEN_TURN_S", "RACY_S", "SILENT", "SIZE_MAX", "WORK", "Entry",
    "Index", "Pick", "basis_of", "entry_of", "line_at", "line_of", "lines", "notes_of", "pack", "parse", "places_of",
    "render", "since_of", "turns_up", "unpack",
]
