"""The checkpoint root in S3: whose it is, publishing and latest, with the promises of ``store.root``.

The law of this module: *a publication is one empty object, created and never touched again; latest is the greatest
name that any listing ever showed; before an execution publishes for the first time the store has proved that it
creates one name once.*

There are no folders to make and nothing to sync: an object that the store has acknowledged is durable. Names of saves
must be UTF-8 here, since keys are.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from slurm_dispatch.errors import (
    BadDataError,
    CorruptError,
    StoreError,
    show,
)
from slurm_dispatch.model.bulk import check_names
from slurm_dispatch.model.epoch import GENERATION_MAX, check, parse_count
from slurm_dispatch.model.identity import check_attempt, check_key, is_attempt
from slurm_dispatch.model.publication import NAME_MAX, Publication, check_path, parse_name
from slurm_dispatch.s3.bucket import Bucket, check_installed
from slurm_dispatch.s3.manifest import forget_manifest
from slurm_dispatch.s3.notes import S3Notes
from slurm_dispatch.s3.place import KEY_BYTES_MAX, Place, is_plain, parse_place
from slurm_dispatch.s3.proof import prove
from slurm_dispatch.s3.settings import settings
from slurm_dispatch.store.best import begin_removing
from slurm_dispatch.store.claims import anothers, foreign, outranked
from slurm_dispatch.store.folders import tries
from slurm_dispatch.store.outranked import BEST
from slurm_dispatch.store.published import first_there, latest_gone, named
from slurm_dispatch.store.root import FRESH_WAITS_S, Highest, Save
from slurm_dispatch.store.saves import check_length

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurm_dispatch.s3.bucket import Meta
    from slurm_dispatch.s3.deadline import Deadline

TIMEOUT_S = 60.0
"""For one call, with all its requests and tries, unless told otherwise."""
REMOVERS = 16
"""Objects that are removed at once: a save can have ten thousand, and each removal waits for the store."""
JOB_KEY_BYTES_MAX = 256
"""An object in ``own/`` that is longer is no job's key."""


class S3Root:
    """One checkpoint root. Make it with :func:`open_s3_root`, in the process that uses it (it outlives no fork).

    Each method ends within the bucket's timeout; a save that is not seen is looked for so often anew.

    :ivar path: ``s3://bucket/prefix``.
    """

    def __init__(self, bucket: Bucket, say: Callable[[str], None] | None = None) -> None:
        self.bucket = bucket
        self.place: Place = bucket.place
        self.path = str(bucket.place)
        self._say = say
        self._said: set[str] = set()
        self._known: str | None = None
        """The greatest name that this process has seen or made; no listing lowers it."""
        self._proved: set[str] = set()
        self._seen: bytes | None = None
        """A save that was seen to be there, see :meth:`saw`."""
        self._unsure: dict[bytes, str] = {}
        """By path: names of publications that got no answer: they may be there, or come to be."""

    takes_links = False

    # Whose root it is

    def claim(self, job: str, generation: int) -> None:
        """Make ``own/<generation>`` say ``job``, exclusive and durable; the same job may claim again.

        :raises CannotCreateError: another job has this generation, or a higher one is there.
        :raises BadDataError: something in ``own/`` is not a generation's object.
        """
        check_key(job)
        check("generation", generation, 0, GENERATION_MAX)
        deadline = self.bucket.deadline()
        if self._owner(generation, deadline) is None:
            self._refuse_foreign(generation, deadline)
            try:
                self.bucket.create(self.place.key("own", str(generation)), job.encode("ascii"), deadline)
            except CorruptError:
                pass  # another job was first, and is read below
        owner = self._owner(generation, deadline)
        if owner != job:
            raise anothers(self.path, generation, owner)
        highest = max(self._generations(deadline), default=-1)
        if highest > generation:
            raise outranked(self.path, generation, highest, self._owner(highest, deadline))

    def highest(self) -> Highest:
        """What is the greatest here, for ``--adopt-root``: a generation above it has nothing beside it."""
        deadline = self.bucket.deadline()
        name = self._greatest(deadline)
        epoch = 0 if name is None else parse_name(name).epoch
        generations = [epoch // 10**12] if epoch else []
        generations += self._generations(deadline)
        return Highest(max(generations, default=-1), epoch)

    def owners(self) -> dict[int, str]:
        """The job of each generation that was claimed here, rising; none in a root that no job has claimed.

        :raises BadDataError: something in ``own/`` is not a generation's object.
        """
        deadline = self.bucket.deadline()
        found = {generation: self._owner(generation, deadline) for generation in sorted(self._generations(deadline))}
        return {generation: job for generation, job in found.items() if job is not None}

    def _owner(self, generation: int, deadline: Deadline) -> str | None:
        key = self.place.key("own", str(generation))
        body = self.bucket.read(key, deadline, length=JOB_KEY_BYTES_MAX + 1)
        if body is None:
            return None
        try:
            return check_key(body.decode("utf-8", "replace")) if len(body) <= JOB_KEY_BYTES_MAX else check_key("")
        except BadDataError as error:
            raise BadDataError(f"{self._shown('own', str(generation))} names no job: {error}") from error

    def _generations(self, deadline: Deadline) -> list[int]:
        folder = self.place.key("own")
        names = [meta.key[len(folder) + 1 :] for meta in self.bucket.below(folder, deadline)]
        try:
            return [parse_count("generation", name, GENERATION_MAX) for name in names]
        except BadDataError as error:
            raise BadDataError(f"in {self._shown('own')}: {error}") from error

    def _refuse_foreign(self, generation: int, deadline: Deadline) -> None:
        """Refuse publications of this generation or a higher one that nobody has claimed: a root that was copied."""
        name = self._greatest(deadline)
        epoch = parse_name(name).epoch if name is not None else 0
        # Whoever has claimed it meanwhile may have published already; who that is, is read next.
        if epoch and epoch // 10**12 >= generation and self._owner(generation, deadline) is None:
            raise foreign(self.path, epoch // 10**12)

    # Executions

    def execution(self, attempt: str) -> str:
        """``s3://bucket/prefix/exec/<attempt>``."""
        return self.place.address(self.place.key("exec", check_attempt(attempt)))

    def make_execution(self, attempt: str) -> str:
        """The same: there are no folders to make."""
        return self.execution(attempt)

    def path_of(self, relative: bytes) -> str:
        """``s3://...`` of what stands at a path in the root."""
        return self.place.address(self._save_key(relative))

    def notes(self, attempt: str) -> S3Notes:
        """The execution's notes."""
        return S3Notes(self.bucket, self.place.key("exec", check_attempt(attempt), ".dispatch"))

    def executions(self) -> list[str]:
        """The attempts that have an object below ``exec/``, sorted; what is not called like one is passed over."""
        return [name for name in map(os.fsdecode, self.entries(b"exec")) if is_attempt(name)]

    def entries(self, relative: bytes) -> list[bytes]:
        """The names in a folder of an execution, sorted; none where nothing is below it."""
        folder = self._save_key(relative)
        found = self.bucket.below(folder, self.bucket.deadline())
        return sorted({meta.key[len(folder) + 1 :].split("/", 1)[0].encode("utf-8") for meta in found})

    def remove(self, relative: bytes) -> bool:
        """Remove a save, or a name that no one needs; what proves it whole goes first.

        That is its manifest, or what says that it is there as the best one, then its small objects: the markers and
        indexes of savers are among those. Several go at once, but none before all that have half its size or less.
        There is no name here under which the rest could be put out of sight.

        :param relative: below ``exec/``; whether it may go is the caller's to know.
        :returns: whether something of it was there.
        """
        objects = self.save_objects(relative, self.bucket.deadline())
        if objects:
            forget_manifest(self, relative)
            parts = relative.split(b"/")
            if len(parts) > 3 and parts[2] == BEST:
                begin_removing(self, parts[1].decode("ascii"), relative)
        sizes: dict[int, list[str]] = {}
        for meta in objects:
            sizes.setdefault(meta.size.bit_length(), []).append(meta.key)
        with ThreadPoolExecutor(REMOVERS) as removers:
            for _, keys in sorted(sizes.items()):
                list(removers.map(lambda key: self.bucket.remove(key, self.bucket.deadline()), keys))
        return bool(objects)

    # Publishing

    def publish(self, epoch: int, step: int, path: str | bytes, *, attempt: str, sync: bool = False) -> Publication:
        """Publish a save (P2): when this returns, the store has acknowledged it.

        :param path: ``s3://...`` or relative to the root; inside ``exec/<attempt>/``; a folder or one object.
        :param sync: nothing is to be done for it.
        :raises BadDataError: outside the execution, missing, empty or too long.
        :raises CannotCreateError: the store does not keep what the protocol needs.
        :raises StoreError: it is not known to be there; publishing the same again is safe.
        """
        relative = self.relative_save(attempt, path)
        publication = Publication(epoch, step, relative)
        deadline = self.bucket.deadline()
        seen, self._seen = self._seen, None
        if seen == relative:
            check_length(relative, self.name_max())
        else:
            self.check_save(relative, deadline)
        self._prove(attempt, deadline)
        self._unsure[relative] = publication.name
        self.settle(relative)
        return publication

    def saw(self, relative: bytes) -> None:
        """The caller has just seen that this save is there and has a byte: its publication does not list it again."""
        self._seen = relative

    def settle(self, relative: bytes) -> None:
        """See that a publication of this path that got no answer is there; nothing where there was none.

        Until then what is at the path may be the latest at any moment: nothing there may be written over.

        :raises StoreError: it is not known to be there.
        """
        name = self._unsure.get(relative)
        if name is not None:
            self.bucket.create(self.place.key("pub", name), b"", self.bucket.deadline())
            self._learn(name)
            del self._unsure[relative]

    def prove(self, attempt: str) -> None:
        """See that the store keeps what the protocol needs, once an execution.

        :raises CannotCreateError: it does not.
        """
        self._prove(check_attempt(attempt), self.bucket.deadline())

    def take_as_proved(self, attempt: str) -> None:
        """Another process of this execution has done :meth:`prove`."""
        self._proved.add(check_attempt(attempt))

    def _prove(self, attempt: str, deadline: Deadline) -> None:
        if attempt not in self._proved:
            prove(self.bucket, self.place.key("exec", attempt, ".dispatch", "proved"), deadline, root=self.path)
            self._proved.add(attempt)

    def relative_save(self, attempt: str, path: str | bytes) -> bytes:
        """The path of a save relative to the root.

        :raises BadDataError: it is not inside ``exec/<attempt>/``, or no key and no publication can be made of it.
        """
        try:
            text = path.decode("utf-8") if isinstance(path, bytes) else path
            text.encode("utf-8")
        except UnicodeError as error:
            raise BadDataError(f"save {show(path)} is not UTF-8", hint="keys in S3 are") from error
        inside = f"{self.path}/"
        relative = text.removeprefix(inside)
        relative = relative.removesuffix("/")
        own = f"exec/{check_attempt(attempt)}/"
        if not relative.startswith(own) or relative == own:
            raise BadDataError(
                f"save {show(path)} is outside {show(self.execution(attempt))}",
                hint="an execution publishes what it wrote itself",
            )
        if relative[len(own) :].split("/", 1)[0] == ".dispatch":
            raise BadDataError(f"save {show(path)} is in the helper's own folder")
        if not is_plain(relative):
            raise BadDataError(f"the save's path {show(path)} is not plain", hint="no '', '.', '..', no '/' first")
        check_path(relative.encode("utf-8"))
        return relative.encode("utf-8")

    def save_objects(self, relative: bytes, deadline: Deadline, *, first: int | None = None) -> list[Meta]:
        """The objects of the save at ``relative``, in order; one with that very key is a save of one file.

        :param first: so many at most.
        """
        return objects_at(self.bucket, self._save_key(relative), deadline, first=first)

    def check_save(self, relative: bytes, deadline: Deadline) -> None:
        """Refuse a save that is missing, has not one byte in it, or whose path is too long here."""
        check_length(relative, self.name_max())
        found = self.save_objects(relative, deadline, first=1)
        if not found:
            raise BadDataError(f"save {show(relative)} is not there")
        if not any(meta.size for meta in found) and not any(
            meta.size for meta in self.save_objects(relative, deadline)
        ):
            raise BadDataError(f"save {show(relative)} is empty", hint="no object in it has a byte")

    def check_published(self, name: str) -> None:
        """Refuse a publication, one of :meth:`names`, that is not an empty object.

        :raises CorruptError: it is not.
        """
        seen = self.bucket.look(self.place.key("pub", name), self.bucket.deadline())
        if seen is not None and seen.size:
            raise CorruptError(f"publication {self._shown('pub', name)} is not an empty object")

    # Latest

    def names(self) -> list[str]:
        """The names in ``pub/`` as they are, in no order: for who looks at each, parsed or not."""
        return self._names(self.bucket.deadline())

    def listing(self) -> list[Publication]:
        """All publications, latest first.

        :raises BadDataError: naming a name that does not parse.
        :raises StoreError: it could not be listed.
        """
        names = self._names(self.bucket.deadline())
        with named(self._shown("pub")):
            check_names(names)
        return [parse_name(name) for name in sorted(names, reverse=True)]

    def latest(self, *, fallback: bool = False) -> Save | None:
        """The save to resume from, or ``None`` if there is no publication at all.

        A publication that is listed is looked at before it is believed, and so is its save; what is not seen is
        looked for again with fresh listings.

        :param fallback: go on to the next publication where one, or its save, is gone.
        :raises BadDataError: a name does not parse, or the latest is gone.
        :raises StoreError: it could not be looked; never the same as ``None``.
        """
        name: str | None = None
        missing = ""
        for _ in tries(FRESH_WAITS_S):
            deadline = self.bucket.deadline()
            name = self._greatest(deadline)
            if name is None:
                return None
            missing = self._missing(name, deadline)
            if not missing:
                return self._save(name)
        assert name is not None
        if fallback:
            return first_there(self, self.listing(), self._there)
        raise latest_gone(self, name, missing)

    def _there(self, publication: Publication) -> Save | None:
        return None if self._missing(publication.name, self.bucket.deadline()) else self._save(publication.name)

    def _missing(self, name: str, deadline: Deadline) -> str:
        """What is not there of a publication that was listed, in words; empty if all is there."""
        seen = self.bucket.look(self.place.key("pub", name), deadline)
        path = parse_name(name).path
        if seen is None:
            return f"is listed, and the store says that it is not there; its save is {show(path)}"
        if seen.size:
            raise CorruptError(f"publication {self._shown('pub', name)} is not an empty object")
        return "" if self.save_objects(path, deadline, first=1) else f"its save {show(path)} is gone"

    def _save(self, name: str) -> Save:
        publication = parse_name(name)
        return Save(publication, self.path_of(publication.path))

    def _save_key(self, relative: bytes) -> str:
        try:
            return self.place.key(relative.decode("utf-8"))
        except UnicodeDecodeError as error:
            raise BadDataError(f"save {show(relative)} is not UTF-8", hint="keys in S3 are") from error

    def _names(self, deadline: Deadline) -> list[str]:
        """The names in ``pub/``. What was known before is among them, or there is an error: nothing removes one."""
        folder = self.place.key("pub")
        names = [meta.key[len(folder) + 1 :] for meta in self.bucket.below(folder, deadline)]
        known = self._known
        if known is not None and known not in names:
            if self.bucket.look(self.place.key("pub", known), deadline) is None:
                raise StoreError(
                    f"publication {known} of {show(self.path)} was there and is not any more",
                    hint="find out who removed it, or whether the store has lost it",
                )
            names.append(known)
        return names

    def _greatest(self, deadline: Deadline) -> str | None:
        names = self._names(deadline)
        with named(self._shown("pub")):
            check_names(names)
        if names:
            self._learn(max(names))
        return self._known

    def _learn(self, name: str) -> None:
        if self._known is None or name > self._known:
            self._known = name

    # The rest

    def name_max(self) -> int:
        """What the prefix leaves of a key for a publication's name, in bytes, 255 at most."""
        return min(NAME_MAX, KEY_BYTES_MAX - len(self.place.key("pub", "").encode("utf-8")))

    def say(self, message: str) -> None:
        """Pass a line to whoever opened the root, each only once."""
        if self._say is not None and message not in self._said:
            self._said.add(message)
            self._say(message)

    def _shown(self, *parts: str) -> str:
        return show(self.place.address(self.place.key(*parts)))


def objects_at(bucket: Bucket, key: str, deadline: Deadline, *, first: int | None = None) -> list[Meta]:
    """The objects of the save whose key is ``key``, in order; one with that very key is a save of one file.

    :param first: so many at most.
    """
    found = bucket.below(key, deadline, first=first)
    if found:
        return found
    one = bucket.look(key, deadline)
    return [] if one is None else [one]


def open_s3_root(
    root: str, *, say: Callable[[str], None] | None = None, timeout_s: float | None = None
) -> S3Root:
    """The root at ``s3://bucket/prefix``. Nothing is asked of the store yet.

    :param timeout_s: for each call of a method; :data:`TIMEOUT_S` unless given.
    :raises UsageError: it names no place in S3.
    :raises ConfigurationError: the client is not installed, or variables and files are wrong.
    """
    place = parse_place(root)
    check_installed()
    return S3Root(Bucket(place, settings(), timeout_s=TIMEOUT_S if timeout_s is None else timeout_s), say)
