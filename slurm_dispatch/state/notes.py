"""Notes: what the hooks leave in the site's own folder, parsed strictly.

A note that does not parse is reported and stays where it is: it may be of a newer version.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from slurm_dispatch.durable import TEMPORARY_PREFIX, create_whole, open_folder, read_regular
from slurm_dispatch.errors import BadDataError, DispatchError, show
from slurm_dispatch.model.epoch import GENERATION_MAX, SUBMISSION_MAX
from slurm_dispatch.model.identity import Word
from slurm_dispatch.records import forms as f
from slurm_dispatch.records.facts import NODE, NODE_OPTIONAL
from slurm_dispatch.state.trouble import state_trouble

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

NOTES_MAX = 50_000
"""Notes read at once; the rest wait for the next tick."""
NOTES_SIZE_MAX = 48 * 1024 * 1024
"""Bytes read at once: with their names they fit into a child's answer."""

_REFUSE = "refuse."
_NUMBER = r"(?:0|[1-9][0-9]{0,18})"
_HEAD = rf"(?P<job>[a-z0-9]{{1,32}})\.(?P<generation>{_NUMBER})\.(?P<submission>{_NUMBER})"
_NAMES = {
    "start": re.compile(rf"start\.{_HEAD}\.(?P<slurm_job_id>{_NUMBER})\.(?P<restart>{_NUMBER})\Z"),
    "refused": re.compile(
        rf"refused\.{_HEAD}\.(?P<slurm_job_id>{_NUMBER})\.(?P<restart>{_NUMBER})\.(?P<start_time>{_NUMBER})\Z"
    ),
    "end": re.compile(rf"end\.{_HEAD}\.(?P<slurm_job_id>{_NUMBER})\.(?P<start_time>{_NUMBER})\.{_NUMBER}\Z"),
    "node": re.compile(
        rf"node\.{_HEAD}\.(?P<slurm_job_id>{_NUMBER})\.(?P<attempt>[a-z0-9]{{1,40}})\.(?P<node>.+)\.{_NUMBER}\Z"
    ),
    "handed": re.compile(
        rf"handed\.{_HEAD}\.(?P<slurm_job_id>{_NUMBER})\.(?P<attempt>[a-z0-9]{{1,40}})\.(?P<node>.+)\.{_NUMBER}\Z"
    ),
    "refuse": re.compile(rf"refuse\.{_HEAD}\Z"),
}
_COMMON: dict[str, f.Form] = {
    "job": f.key,
    "generation": f.generation,
    "submission": f.submission,
    "shared": f.flag,
    "cluster": f.text,
    "slurm_job_id": f.job_id,
    "at": f.moment,
}
FIELDS: dict[str, dict[str, f.Form]] = {
    "start": {
        "restart": f.restart,
        "start_time": f.null_or(f.moment),
        "attempt": f.attempt,
        "epoch": f.epoch,
        "nodes": f.text,
        "uid": f.unsigned,
        "user": f.text,
        "partition": f.text,
        "account": f.text,
        "array": f.null_or(f.text),
        "het_leader": f.null_or(f.job_id),
        "sluid": f.null_or(f.text),
    },
    "refused": {
        "restart": f.restart,
        "start_time": f.null_or(f.moment),
        "why": f.one_of("double_start", "shared", "refuse"),
    },
    "end": {
        "start_time": f.null_or(f.moment),
        "restart_seen": f.null_or(f.restart),
        "exit_code": f.null_or(f.text),
        "nodes": f.text,
        "uid": f.unsigned,
    },
    "node": NODE,
    "handed": {
        "attempt": f.attempt,
        "epoch": f.epoch,
        "node": f.text,
        "uid": f.unsigned,
        "start_time": f.null_or(f.moment),
        "verified": f.flag,
        "progress": f.null_or(f.step),
        "resumed_from": f.null_or(f.step),
        "ended": f.flag,
        "status": f.null_or(f.integer(0, 255)),
        "signal": f.null_or(f.integer(1, 255)),
        "outcome": f.null_or(f.outcome),
        "last": f.null_or(f.step),
    },
}
"""The further fields of each kind of note that is read."""


@dataclass(frozen=True, slots=True)
class Note:
    """One note of a hook.

    :param name: the file's name in ``notes/``.
    :param kind: ``start``, ``refused``, ``end``, ``node``, ``handed`` or ``refuse``.
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
    """What was in ``notes/``.

    :param notes: in the order in which they were read; those of one job by name.
    :param bad: names that could not be read, each with the reason.
    :param more: more are there than were read.
    :param unread: the keys in the names of those, ``refuse`` notes aside, of which nothing is read: what these jobs'
        notes do not say is not known.
    """

    notes: tuple[Note, ...]
    bad: tuple[tuple[str, str], ...]
    more: bool
    unread: frozenset[str] = frozenset()


def parse_note(name: str, data: bytes) -> Note:
    """The note that file ``name`` holds.

    :raises BadDataError: the name or a field does not parse, or the two disagree; the message names the file.
    """
    where = f"note {show(name)}"
    kind = name.partition(".")[0]
    match = _NAMES[kind].match(name) if kind in _NAMES and len(name) <= 255 else None
    if match is None:
        raise BadDataError(f"{where}: the name is not that of a note")
    named = match.groupdict()
    if int(named["generation"]) > GENERATION_MAX or not 1 <= int(named["submission"]) <= SUBMISSION_MAX:
        raise BadDataError(f"{where}: generation or submission is out of bounds")
    if kind == "refuse":
        word = Word(named["job"], int(named["generation"]), int(named["submission"]))
        return Note(name, kind, word, "", 0, 0.0, MappingProxyType({}))
    content = f.parse_object(data, where)
    for field, form in (*_COMMON.items(), *FIELDS[kind].items()):
        if field not in content:
            raise BadDataError(f"{where}: no field {field}")
        f.check_form(f"{where}: {field}", form, content[field])
    if kind == "node" and "how" in content:
        f.check_form(f"{where}: how", NODE_OPTIONAL["how"][0], content["how"])
    for field, text in named.items():
        value = content[field]
        if str(0 if value is None else int(value) if isinstance(value, float) else value) != text:
            raise BadDataError(f"{where}: {field} is {show(value)}, and the name says {show(text)}")
    word = Word(content["job"], content["generation"], content["submission"], content["shared"])
    body = MappingProxyType({field: value for field, value in content.items() if field not in _COMMON})
    return Note(name, kind, word, content["cluster"], content["slurm_job_id"], content["at"], body)


class NotesFolder:
    """``<state>/notes``, to be used as the Slurm user."""

    def __init__(self, path: str) -> None:
        self.path = path

    def read(
        self, wanted: Callable[[str], bool] | None = None, first: Collection[str] = frozenset()
    ) -> NotesRead:
        """All notes, up to :data:`NOTES_MAX` and :data:`NOTES_SIZE_MAX`.

        Where there are more, each job has its turn: the first note of each is read, then the second, and so on.
        So a user who leaves tens of thousands (one for each task of an array) holds up nobody else's.

        :param wanted: says of a name whether its note is to be read; the others are as if they were not there.
        :param first: keys of jobs whose notes come before all others.
        :raises ServiceAwayError: the folder does not answer.
        """
        return self.unpack(self.read_packed(wanted, first))

    def names(self) -> list[str]:
        """The names of all notes, none of them opened."""
        with state_trouble("listing notes", self.path):
            return sorted(name for name in os.listdir(self.path) if not name.startswith(TEMPORARY_PREFIX))

    def read_packed(
        self, wanted: Callable[[str], bool] | None = None, first: Collection[str] = frozenset()
    ) -> bytes:
        """What :meth:`read` reads, as bytes for :meth:`unpack`: so that a child can read it as the Slurm user."""
        read: list[tuple[str, str | None, str]] = []
        size = 0
        with state_trouble("reading notes", self.path):
            descriptor = open_folder(self.path, follow=False)
            try:
                names = _in_turn(
                    (
                        name
                        for name in os.listdir(descriptor)
                        if not name.startswith(TEMPORARY_PREFIX) and (wanted is None or wanted(name))
                    ),
                    first,
                )
                for name in names[:NOTES_MAX]:
                    if size > NOTES_SIZE_MAX:
                        break
                    try:
                        data = b"" if name.startswith(_REFUSE) else _read(name, descriptor)
                        read.append((name, data.decode("latin-1"), ""))
                        size += len(data) + len(name)
                    except DispatchError as error:
                        read.append((name, None, str(error)))
            finally:
                os.close(descriptor)
        unread = sorted({key_in(name) for name in names[len(read) :] if not name.startswith(_REFUSE)})
        return json.dumps({"read": read, "more": len(read) < len(names), "unread": unread}).encode()

    @staticmethod
    def unpack(packed: bytes) -> NotesRead:
        """The notes that :meth:`read_packed` gave."""
        notes: list[Note] = []
        bad: list[tuple[str, str]] = []
        content = json.loads(packed)
        for name, data, trouble in content["read"]:
            if data is None:
                bad.append((name, trouble))
                continue
            try:
                notes.append(parse_note(name, data.encode("latin-1")))
            except BadDataError as error:
                bad.append((name, error.line()))
        return NotesRead(tuple(notes), tuple(bad), content["more"], frozenset(content["unread"]))

    def remove(self, names: Iterable[str]) -> None:
        """Remove these notes, which have become facts; one that is gone already is success."""
        with state_trouble("removing notes", self.path):
            for name in names:
                try:
                    os.unlink(os.path.join(self.path, os.path.basename(name)))
                except FileNotFoundError:
                    continue

    def write_refuse(self, word: Word) -> bool:
        """Leave a ``refuse`` note for this submission: PrologSlurmctld will not let it start.

        :returns: true if this call made it.
        """
        name = f"refuse.{word.job}.{word.generation}.{word.submission}"
        with state_trouble("writing note", self.path):
            return create_whole(self.path, name, b'{"v":1}\n')


def key_in(name: str) -> str:
    """The key in the name of a note, also of one that does not parse; empty if there is none."""
    parts = name.split(".")
    return parts[1] if len(parts) > 1 else ""


def first_names(names: Collection[str], first: Collection[str], most: int) -> tuple[list[str], frozenset[str]]:
    """At most ``most`` of these names of notes, each job in its turn, and the keys of jobs that have more.

    :param first: keys of jobs whose notes come before all others.
    """
    if len(names) <= most:
        return list(names), frozenset()
    ordered = _in_turn(names, first)
    return ordered[:most], frozenset(key_in(name) for name in ordered[most:] if not name.startswith(_REFUSE))


def _in_turn(names: Iterable[str], first: Collection[str]) -> list[str]:
    """Names in the order in which they are read: every job's first one, every job's second, ...; ``refuse`` last."""
    by_key: dict[str, list[str]] = {}
    refuse: list[str] = []
    for name in sorted(names):
        (refuse if name.startswith(_REFUSE) else by_key.setdefault(key_in(name), [])).append(name)
    turns = [
        (key not in first, turn, name) for key, found in by_key.items() for turn, name in enumerate(found)
    ]
    return [name for _, _, name in sorted(turns)] + refuse


def _read(name: str, descriptor: int) -> bytes:
    return read_regular(name, f.JSON_SIZE_MAX, dir_fd=descriptor)
