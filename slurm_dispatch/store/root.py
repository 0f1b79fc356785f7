"""The checkpoint root on a POSIX filesystem: whose it is, where executions write, publishing and latest.

The law of this module: *an execution writes only below ``exec/<its attempt>/``; a publication that was
returned is durable and is never touched again; latest is the greatest name in ``pub/``; whatever does not
parse or is not there is an error that names it.*

No lock, no pointer file, no rename, no mtime: making a name is exclusive, and that is all that is asked of the
filesystem.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurm_dispatch.durable import open_folder
from slurm_dispatch.errors import (
    AbsentError,
    BadDataError,
    CorruptError,
    StoreError,
    show,
    store_error,
)
from slurm_dispatch.model.bulk import check_names, greatest_name
from slurm_dispatch.model.epoch import GENERATION_MAX, check, parse_count
from slurm_dispatch.model.identity import check_attempt, check_key, is_attempt
from slurm_dispatch.model.publication import Publication, parse_name
from slurm_dispatch.store.claims import anothers, foreign, outranked
from slurm_dispatch.store.folders import Modes, enter, is_listed, list_fresh, make, modes_of, tries
from slurm_dispatch.store.folders import sync as sync_opened
from slurm_dispatch.store.manifest import forget_manifest
from slurm_dispatch.store.notes import FolderNotes
from slurm_dispatch.store.published import first_there, latest_gone, named
from slurm_dispatch.store.saves import check_length, check_save, find_save, sync_save
from slurm_dispatch.store.tree import names_in, remove_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FRESH_WAITS_S = (0.0, 0.1, 0.3, 0.6, 1.0)
"""Waits before each fresh look for a save that a publication names and that is not seen (P4)."""
KEY_BYTES_MAX = 256
"""A link in ``own/`` with a longer target is no job's key."""


@dataclass(frozen=True, slots=True)
class Highest:
    """The greatest generation (from ``own/`` and ``pub/``, -1 if none) and epoch (from ``pub/``, 0 if none)."""

    generation: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Save:
    """A publication and the absolute path of its save, which was there a moment ago."""

    publication: Publication
    path: str


class CheckpointRoot:
    """One checkpoint root. Holds no open file; make it with :func:`open_root`.

    :ivar path: absolute.
    """

    def __init__(self, path: str, say: Callable[[str], None] | None = None) -> None:
        self.path = path
        self.raw = os.fsencode(path)
        self._pub = os.path.join(self.raw, b"pub")
        self._say = say
        self._said: set[str] = set()
        self._name_max = 0  # not asked yet

    takes_links = True

    # Whose root it is

    def claim(self, job: str, generation: int) -> None:
        """Make ``own/<generation>`` say ``job``, exclusive and durable; the same job may claim again.

        :raises CannotCreateError: another job has this generation, or a higher one is there.
        :raises BadDataError: something in ``own/`` is not a generation's link.
        """
        check_key(job)
        check("generation", generation, 0, GENERATION_MAX)
        with self._folder() as root, self._made(root, b"own") as own:
            if self._owner(own, generation) is None:
                self._refuse_foreign(own, generation)
                try:
                    os.symlink(job, str(generation), dir_fd=own)
                except FileExistsError:
                    pass  # who was first is read below
                except OSError as error:
                    raise store_error(error, "claiming", self._shown(b"own", b"%d" % generation)) from error
            owner = self._owner(own, generation)
            if owner != job:
                raise anothers(self.path, generation, owner)
            highest = max(self._generations(own), default=-1)
            if highest > generation:
                raise outranked(self.path, generation, highest, self._owner(own, highest))
            self._sync(own, self._shown(b"own"))
            self._sync(root, self.raw)

    def highest(self) -> Highest:
        """What is the greatest here, for ``--adopt-root``: a generation above it has nothing beside it."""
        name = self._greatest()
        epoch = 0 if name is None else parse_name(name).epoch
        generations = [epoch // 10**12] if epoch else []
        with self._folder() as root:
            try:
                own = enter(root, b"own", self._shown(b"own"))
            except AbsentError:
                return Highest(max(generations, default=-1), epoch)
            try:
                generations += self._generations(own)
            finally:
                os.close(own)
        return Highest(max(generations, default=-1), epoch)

    def owners(self) -> dict[int, str]:
        """The job of each generation that was claimed here, rising; none in a root that no job has claimed.

        :raises BadDataError: something in ``own/`` is not a generation's link.
        """
        with self._folder() as root:
            try:
                own = enter(root, b"own", self._shown(b"own"))
            except AbsentError:
                return {}
            try:
                found = {generation: self._owner(own, generation) for generation in sorted(self._generations(own))}
            finally:
                os.close(own)
        return {generation: job for generation, job in found.items() if job is not None}

    def _owner(self, own: int, generation: int) -> str | None:
        name = str(generation)
        try:
            target = os.readlink(name, dir_fd=own)
            return check_key(target) if len(target) <= KEY_BYTES_MAX else check_key("")
        except FileNotFoundError:
            return None
        except BadDataError as error:
            raise BadDataError(f"{show(self._shown(b'own', name.encode()))} names no job: {error}") from error
        except OSError as error:
            if error.errno == errno.EINVAL:
                raise BadDataError(f"{show(self._shown(b'own', name.encode()))} is not a link") from error
            raise store_error(error, "reading", self._shown(b"own", name.encode())) from error

    def _generations(self, own: int) -> list[int]:
        try:
            names = os.listdir(own)
        except OSError as error:
            raise store_error(error, "listing", self._shown(b"own")) from error
        try:
            return [parse_count("generation", name, GENERATION_MAX) for name in names]
        except BadDataError as error:
            raise BadDataError(f"in {show(self._shown(b'own'))}: {error}") from error

    def _refuse_foreign(self, own: int, generation: int) -> None:
        """Refuse publications of this generation or a higher one that nobody has claimed: a root that was copied."""
        name = self._greatest()
        if name is None:
            return
        epoch = parse_name(name).epoch
        if epoch and epoch // 10**12 >= generation and self._owner(own, generation) is None:
            raise foreign(self.path, epoch // 10**12)

    # Executions

    def execution(self, attempt: str) -> str:
        """The absolute path of ``exec/<attempt>``, made or not."""
        return os.path.join(self.path, "exec", check_attempt(attempt))

    def make_execution(self, attempt: str) -> str:
        """Make ``exec/<attempt>/`` and ``.dispatch/`` in it, durable; what is there stays.

        :returns: the absolute path of ``exec/<attempt>``.
        """
        name = check_attempt(attempt).encode("ascii")
        with self._folder() as root, self._made(root, b"exec") as executions:
            with self._made(executions, name, b"exec") as execution:
                with self._made(execution, b".dispatch", b"exec", name):
                    pass
                self._sync(execution, self._shown(b"exec", name))
            self._sync(executions, self._shown(b"exec"))
            self._sync(root, self.raw)
        return self.execution(attempt)

    def path_of(self, relative: bytes) -> str:
        """The absolute path of what stands at a path in the root."""
        return os.fsdecode(self._shown(relative))

    def notes(self, attempt: str) -> FolderNotes:
        """The execution's notes. Reading one needs nothing; to leave one its folder must be made."""
        return FolderNotes(os.path.join(self.execution(attempt), ".dispatch"), self.modes)

    def executions(self) -> list[str]:
        """The attempts that have a folder in ``exec/``, sorted; what is not called like one is passed over."""
        return [os.fsdecode(name) for name in names_in(self.raw, b"exec") if is_attempt(os.fsdecode(name))]

    def entries(self, relative: bytes) -> list[bytes]:
        """The names in a folder of an execution, sorted; none where it is not there. Never through a link."""
        return names_in(self.raw, relative)

    def remove(self, relative: bytes) -> bool:
        """Remove a save, or a name that no one needs; what proves it whole goes first.

        :param relative: below ``exec/``; whether it may go is the caller's to know.
        :returns: whether this call did it; false where it was gone.
        """
        return remove_in(self.raw, relative, lambda: forget_manifest(self, relative))

    # Publishing

    def publish(self, epoch: int, step: int, path: str | bytes, *, attempt: str, sync: bool = False) -> Publication:
        """Publish a save (P2): when this returns, a power loss does not take it away.

        :param path: relative to the root, or absolute; inside ``exec/<attempt>/``.
        :param sync: fsync the files and folders of the save first.
        :raises BadDataError: outside the execution, missing, empty, too long, or with links that lead out.
        :raises StoreError: it is not known to be there; publishing the same again is safe.
        """
        relative, found = find_save(self.raw, attempt, path)
        publication = Publication(epoch, step, relative)
        check_length(relative, self.name_max())
        check_save(self.raw, relative, found)
        if sync:
            sync_save(self.raw, relative)
        # Without context managers and joined paths: after a call that waited for a disk, each line of these is felt.
        root = open_folder(self.raw)
        try:
            modes = modes_of(os.fstat(root).st_mode)
            pub = make(root, b"pub", self._pub, modes.folder)
            try:
                self._create(pub, publication.name, modes.file)
                synced = sync_opened(pub, self._pub)
            finally:
                os.close(pub)
            synced = sync_opened(root, self.raw) and synced
        finally:
            os.close(root)
        if not synced:
            self._say_unsynced()
        return publication

    def _create(self, pub: int, name: str, mode: int) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            descriptor = os.open(name, flags, mode, dir_fd=pub)
            try:
                if os.fstat(descriptor).st_mode & mode != mode:
                    os.fchmod(descriptor, mode)  # the umask does not decide who may see it
            finally:
                os.close(descriptor)
        except FileExistsError:
            self._check_publication(pub, name)
        except OSError as error:
            raise store_error(error, "publishing", self._shown(b"pub", name.encode("ascii"))) from error

    def check_published(self, name: str) -> None:
        """Refuse a publication, one of :meth:`names`, that is not an empty file.

        :raises CorruptError: it is not.
        """
        with self._folder() as root, self._entered(root, b"pub") as pub:
            self._check_publication(pub, name)

    def _check_publication(self, pub: int, name: str) -> None:
        shown = self._shown(b"pub", name.encode("ascii"))
        try:
            found = os.lstat(name, dir_fd=pub)
        except FileNotFoundError:
            return  # it exists and does not: a cached absence; the exclusive create is what is believed
        except OSError as error:
            raise store_error(error, "looking at publication", shown) from error
        if not stat.S_ISREG(found.st_mode) or found.st_size:
            raise CorruptError(f"publication {show(shown)} is not an empty file")

    # Latest

    def names(self) -> list[str]:
        """The names in ``pub/`` as they are, in no order: for who looks at each, parsed or not."""
        return self._names()

    def listing(self) -> list[Publication]:
        """All publications, latest first.

        :raises BadDataError: naming a name that does not parse.
        :raises StoreError: it could not be listed.
        """
        names = self._names()
        with named(show(self._pub)):
            check_names(names)
        return [parse_name(name) for name in sorted(names, reverse=True)]

    def latest(self, *, fallback: bool = False) -> Save | None:
        """The save to resume from, or ``None`` if there is no publication at all.

        A save that is not seen is looked for again, with fresh listings of ``pub/`` and of every folder above it.

        :param fallback: go on to the next publication where a save is gone.
        :raises BadDataError: a name does not parse, or the save is gone.
        :raises StoreError: it could not be looked; never the same as ``None``.
        """
        name: str | None = None
        for _ in tries(FRESH_WAITS_S):
            name = self._greatest()
            if name is None:
                return None
            save = self._save(parse_name(name))
            if save is not None:
                return save
            self._refresh(parse_name(name))
        assert name is not None
        if fallback:
            return first_there(self, self.listing(), self._save)
        raise latest_gone(self, name, f"its save {show(parse_name(name).path)} is gone")

    def _save(self, publication: Publication) -> Save | None:
        """The save, or ``None`` if it is not seen (``ESTALE`` is the same as not there, C111)."""
        path = os.path.join(self.raw, publication.path)
        try:
            found = os.lstat(path)
            if stat.S_ISDIR(found.st_mode):
                with os.scandir(path) as entries:
                    there = next(entries, None) is not None
            else:
                there = stat.S_ISREG(found.st_mode)
        except OSError as error:
            if error.errno in {errno.ENOENT, errno.ENOTDIR, errno.ESTALE}:
                return None
            raise store_error(error, "looking at save", path) from error
        there = there and is_listed(path)
        return Save(publication, os.fsdecode(path)) if there else None

    def _refresh(self, publication: Publication) -> None:
        """Read every folder above a save anew, so that a client's cached absence of one of them goes (C110)."""
        folder = self.raw
        for part in publication.path.split(b"/")[:-1]:
            folder = os.path.join(folder, part)
            try:
                list_fresh(folder)
            except AbsentError:
                return

    def _names(self) -> list[str]:
        """The names in ``pub/``; none where there is no ``pub/`` and the root is there."""
        for _ in tries(FRESH_WAITS_S[:3]):
            try:
                with self._folder() as root:
                    pub = enter(root, b"pub", self._pub)
                    try:
                        return os.listdir(pub)
                    finally:
                        os.close(pub)
            except AbsentError as error:
                self._check_root()
                cause = error.__cause__
                stale = isinstance(cause, OSError) and cause.errno == errno.ESTALE
                # Only a listing of the root is believed: a client may have cached the absence (C110).
                if not stale and b"pub" not in list_fresh(self.raw):
                    return []
            except OSError as error:
                if error.errno == errno.ESTALE:
                    continue
                raise store_error(error, "listing", self._pub) from error
        raise StoreError(f"listing {show(self._shown(b'pub'))}: the server calls it stale again and again")

    def _greatest(self) -> str | None:
        names = self._names()
        with named(show(self._pub)):
            return greatest_name(names)

    # The rest

    def say(self, message: str) -> None:
        """Pass a line to whoever opened the root, each only once."""
        if self._say is not None and message not in self._said:
            self._said.add(message)
            self._say(message)

    def name_max(self) -> int:
        """The longest name that this filesystem takes, in bytes, 255 at most."""
        if not self._name_max:
            try:
                self._name_max = min(255, os.pathconf(self.raw, "PC_NAME_MAX"))
            except (OSError, ValueError):
                return 255
        return self._name_max

    def modes(self) -> Modes:
        """The permission bits for what is made here."""
        return modes_of(self._check_root().st_mode)

    def make_in_execution(self, attempt: str, name: bytes) -> bytes:
        """Make the folder ``exec/<attempt>/<name>``, durable; returns its absolute path."""
        own = check_attempt(attempt).encode("ascii")
        with (
            self._folder() as root,
            self._entered(root, b"exec") as executions,
            self._entered(executions, own, b"exec") as execution,
        ):
            with self._made(execution, name, b"exec", own):
                pass
            self._sync(execution, self._shown(b"exec", own))
        return self._shown(b"exec", own, name)

    def _check_root(self) -> os.stat_result:
        try:
            found = os.stat(self.raw)
        except OSError as error:
            raise store_error(error, "opening checkpoint root", self.path) from error
        if not stat.S_ISDIR(found.st_mode):
            raise CorruptError(f"checkpoint root {show(self.path)} is not a folder")
        return found

    def _shown(self, *parts: bytes) -> bytes:
        return os.path.join(self.raw, *parts)

    def _sync(self, descriptor: int, shown: bytes) -> None:
        if not sync_opened(descriptor, shown):
            self._say_unsynced()

    def _say_unsynced(self) -> None:
        self.say(f"{show(self.path)} cannot sync folders; after a power loss a publication may be missing")

    @contextmanager
    def _folder(self) -> Iterator[int]:
        descriptor = open_folder(self.raw)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    @contextmanager
    def _made(self, parent: int, name: bytes, *above: bytes) -> Iterator[int]:
        descriptor = make(parent, name, self._shown(*above, name), self.modes().folder)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    @contextmanager
    def _entered(self, parent: int, name: bytes, *above: bytes) -> Iterator[int]:
        descriptor = enter(parent, name, self._shown(*above, name))
        try:
            yield descriptor
        finally:
            os.close(descriptor)


def open_root(path: str, *, say: Callable[[str], None] | None = None) -> CheckpointRoot:
    """The root at ``path``, which must be a directory that is there.

    :param say: gets each line that a person should know, once.
    :raises StoreError: it is not there, or is not a directory.
    """
    root = CheckpointRoot(os.path.abspath(path), say)
    root.modes()
    return root
