"""A save on its way to S3 and back: many files at once, large ones in parts, and whole or not at all.

The law of this module: *an upload that returned is the save, object for file; one that did not is no publication, and
the next one goes on with what is not there yet; a download is under its name only when every byte of it is on disk.*

Which file an object was stands with it as metadata, a digest over the file's inode, size and times: a file that is
there already is not sent again, and of an answer that was lost the object itself tells whether it is ours.
"""

from __future__ import annotations

import functools
import hashlib
import os
import secrets
import time
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from slurm_dispatch.durable import TEMPORARY_PREFIX, sync_folder
from slurm_dispatch.errors import (
    AbsentError,
    BadDataError,
    CannotCreateError,
    StoreError,
    TransientError,
    show,
    store_error,
)
from slurm_dispatch.s3.deadline import Deadline
from slurm_dispatch.s3.manifest import check_as_recorded, read_manifest
from slurm_dispatch.s3.place import KEY_BYTES_MAX, is_plain
from slurm_dispatch.store.remove import remove_quietly
from slurm_dispatch.store.whole import look

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future

    from slurm_dispatch.s3.bucket import Bucket, Meta
    from slurm_dispatch.s3.root import S3Root
    from slurm_dispatch.store.manifest import Manifest
    from slurm_dispatch.store.whole import Entry, Look

FILES_AT_ONCE = 8
RANGE_BYTES = 16 << 20
"""What one request of a download reads."""
FILE_S = 300.0
RATE_USUAL = 4 << 20
"""Bytes a second: a file that takes longer than at this rate is taken for one that hangs by who waits for it."""
RATE_MIN = 256 << 10
"""Bytes a second: a file that takes longer than :data:`FILE_S` and its size at this rate has a store that hangs."""
SAY_EVERY_S = 10.0
_MAKE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class _File:
    """A file of a save: its path in it, empty for a save of one file."""

    path: str
    size: int
    token: str


class Meter:
    """Says now and then how far a transfer is.

    :param doing: what is under way (``"uploading checkpoint-500"``).
    :param say: gets a line.
    :param moving: is told at each step that it goes on, and for how many seconds it may say nothing now.
    """

    def __init__(
        self,
        doing: str,
        say: Callable[[str], None] | None,
        *,
        moving: Callable[[float], None] = lambda _: None,
        every_s: float = SAY_EVERY_S,
    ) -> None:
        self._doing = doing
        self._say = say
        self._moving = moving
        self._every_s = every_s
        self._begun = self._said = time.monotonic()
        self._files = self._bytes = self._of_files = self._of_bytes = 0

    def begin(self, files: int, size: int, largest: int = 0) -> None:
        """So much is to be done, and the largest step is of so many bytes."""
        self._of_files, self._of_bytes = files, size
        self._moving(largest / RATE_USUAL)

    def add(self, files: int, size: int) -> None:
        """So much more is done."""
        self._files += files
        self._bytes += size
        self._moving(0.0)
        now = time.monotonic()
        over = self._files == self._of_files and self._bytes >= self._of_bytes
        if self._say is not None and (over or now - self._said >= self._every_s):
            self._said = now
            rate = self._bytes / max(now - self._begun, 1e-3) / 2**20
            self._say(
                f"{self._doing}: {self._bytes / 2**20:,.1f} of {self._of_bytes / 2**20:,.1f} MiB, "
                f"{self._files} of {self._of_files} files, {rate:,.0f} MiB/s"
            )


def upload(
    root: S3Root,
    attempt: str,
    source: str,
    *,
    name: str | None = None,
    known_as: Look | None = None,
    say: Callable[[str], None] | None = None,
    moving: Callable[[float], None] = lambda _: None,
    listed: Callable[[list[Meta]], None] = lambda _: None,
) -> bytes:
    """Bring the save at ``source``, a folder or a file, to ``exec/<attempt>/<name>`` of the root.

    Called again after it was broken off, it sends only what is not there. What else is below that name, left by an
    earlier save of it, goes. Empty folders have no place in S3.

    :param name: the source's own unless given; may have several components.
    :param known_as: the save of which the source has links and copies: its files are those that were sent.
    :param listed: gets the objects of the save as they are then.
    :returns: the path to publish; nothing is sent if this very save is published already.
    :raises BadDataError: it is not there, is empty, changed meanwhile, or has what S3 has not: links, special files,
        names that are not UTF-8 or too long.
    :raises CannotCreateError: another save of that path is published already; nothing of it is touched.
    :raises StoreError: it is not there whole; the same again is safe.
    """
    relative = root.relative_save(attempt, f"exec/{attempt}/{name or os.path.basename(source.rstrip('/'))}")
    files = _files(source)
    sent = files if known_as is None else _known_as(files, known_as)
    root.settle(relative)
    key = root.place.key(relative.decode("utf-8"))
    _check_keys(source, key, files)
    if any(one.path == relative for one in root.listing()):
        if not _is_sent(root, relative, key, sent):
            raise CannotCreateError(f"save {show(relative)} is published already", hint="publish another step's")
        listed(root.save_objects(relative, root.bucket.deadline()))
        return relative  # the answer to that was lost: the same may be published again
    there = {meta.key: meta.size for meta in root.save_objects(relative, root.bucket.deadline())}
    meter = Meter(f"uploading {show(relative)}", say, moving=moving)
    meter.begin(len(files), sum(one.size for one in files), files[0].size)

    def send(one: _File) -> tuple[int, int]:
        target = _below(key, one.path)
        known = there.get(target) == one.size and root.bucket.sent(target, root.bucket.deadline())
        if known != (one.size, one.token):
            root.bucket.send(target, _below(source, one.path), one.size, one.token, _for(one.size))
        return 1, one.size

    _all([functools.partial(send, one) for one in sent], meter)
    if _files(source) != files:
        raise BadDataError(f"save {show(source)} changed while it was uploaded")
    objects = _settle(root, relative, {_below(key, one.path): one.size for one in sent})

    def see(one: _File) -> tuple[int, int]:
        target = _below(key, one.path)
        if root.bucket.sent(target, _for(0)) != (one.size, one.token):
            raise TransientError(f"object {show(root.place.address(target))} was put again by an earlier upload")
        return 0, 0

    # A put that got no answer can be done after the one that was sent instead, and it may be of an earlier content.
    doubtful = [one for one in sent if there or _below(key, one.path) in root.bucket.unanswered]
    _all([functools.partial(see, one) for one in doubtful], Meter("", None, moving=moving))
    listed(objects)
    return relative


def download(
    root: S3Root,
    relative: bytes,
    target: str,
    *,
    say: Callable[[str], None] | None = None,
    moving: Callable[[float], None] = lambda _: None,
    still: Callable[[], bool] = lambda: True,
) -> None:
    """Bring the save at ``relative`` to the root to the local path ``target``, durable, whole or not at all.

    :param target: absolute; nothing may be there, and the folder above it must be.
    :param still: see :class:`Source`.
    :raises AbsentError: the save went meanwhile: ask for the latest again.
    :raises BadDataError: it changed meanwhile, a part of it is gone, or it has names that cannot be files.
    :raises CannotCreateError: something is at ``target``.
    :raises StoreError: the store, or the disk.
    """
    if os.path.lexists(target):
        raise CannotCreateError(f"{show(target)} is there already", hint="remove it, or give another folder")
    source = Source(root, relative, still)
    key = root.place.key(relative.decode("utf-8"))
    meter = Meter(f"downloading {show(relative)}", say, moving=moving)
    bring(root.bucket, key, source.objects, target, meter=meter, check=source.check)


class Source:
    """A save in the root, listed before it is read, and :meth:`check` once it was.

    :param still: whether what else proves the save whole is there still, for one without a manifest.
    :raises AbsentError: it is gone. :raises BadDataError: a part of it is.
    """

    def __init__(self, root: S3Root, relative: bytes, still: Callable[[], bool]) -> None:
        self._root = root
        self._relative = relative
        self._still = still
        self._recorded: Manifest | None = read_manifest(root, relative)
        self.objects = root.save_objects(relative, root.bucket.deadline())
        if not self.objects:
            raise AbsentError(f"save {show(relative)} of {show(root.path)} is gone")
        check_as_recorded(root, relative, self._recorded, self.objects)

    def check(self) -> None:
        """See that what was read is the save, and not what a removal that had begun has left of it.

        A removal takes the manifest first: one that was there before the listing and is there now proves the listing.
        A save without one is not being removed while it is the latest, or is not published at all.

        :raises AbsentError: it went meanwhile, or may have. :raises BadDataError: it changed.
        """
        root, relative = self._root, self._relative
        now = root.save_objects(relative, root.bucket.deadline())
        if self._recorded is not None:
            stays = read_manifest(root, relative) is not None
        else:
            published = [publication.path for publication in root.listing()]
            stays = relative not in published or published[0] == relative
        if not stays or not self._still() or set(now) < set(self.objects):
            raise AbsentError(f"save {show(relative)} of {show(root.path)} went while it was read")
        if now != self.objects:
            raise BadDataError(f"save {show(relative)} of {show(root.path)} changed while it was read")


def copy_save(
    root: S3Root,
    source: bytes,
    target: bytes,
    *,
    say: Callable[[str], None] | None = None,
    still: Callable[[], bool] = lambda: True,
) -> None:
    """Make a second save of one in the same root, within the store. What else is at ``target`` goes.

    :param source: relative to the root, and so is ``target``, of which nobody knows yet.
    :param still: see :class:`Source`.
    :raises AbsentError: it went meanwhile. :raises BadDataError: it changed.
    :raises StoreError: it is not there whole; the same again is safe.
    """
    read = Source(root, source, still)
    here, there = (root.place.key(path.decode("utf-8")) for path in (source, target))
    meter = Meter(f"copying {show(source)}", say)
    meter.begin(len(read.objects), sum(meta.size for meta in read.objects))

    def copy(meta: Meta) -> tuple[int, int]:
        root.bucket.copy(meta.key, there + meta.key[len(here) :], meta.size, _for(meta.size))
        return 1, meta.size

    _all([functools.partial(copy, meta) for meta in sorted(read.objects, key=lambda one: -one.size)], meter)
    read.check()
    _settle(root, target, {there + meta.key[len(here) :]: meta.size for meta in read.objects})


def bring(
    bucket: Bucket, key: str, objects: Sequence[Meta], target: str, *, meter: Meter, check: Callable[[], None]
) -> None:
    """Bring the objects of the save whose key is ``key`` to the local path ``target``, durable, whole or not at all.

    :param check: raises if they are not what they were when they were listed; asked once all are on disk.
    :raises AbsentError, BadDataError, CannotCreateError, StoreError: as :func:`download`.
    """
    if os.path.lexists(target):
        raise CannotCreateError(f"{show(target)} is there already", hint="remove it, or give another folder")
    paths = {meta.key: meta.key[len(key) + 1 :] for meta in objects}
    _check_names(key, list(paths.values()))
    parent = os.path.dirname(target)
    temporary = os.path.join(parent, f"{TEMPORARY_PREFIX}{secrets.token_hex(8)}")
    meter.begin(len(objects), sum(meta.size for meta in objects), RANGE_BYTES)
    try:
        folders = _make(temporary, paths)
        _all([act for meta in objects for act in _reads(bucket, meta, _below(temporary, paths[meta.key]))], meter)
        check()
        for folder in reversed(folders):
            sync_folder(folder)
        os.rename(temporary, target)
        sync_folder(parent)
    except OSError as error:
        raise store_error(error, "writing", error.filename or temporary) from error
    finally:
        remove_quietly(os.fsencode(temporary))


def _files(source: str) -> list[_File]:
    """The files of a local save.

    :raises BadDataError: as :func:`upload`.
    """
    seen = look(source, read=False)
    if seen is None:
        raise BadDataError(f"save {show(source)} is not there")
    if not seen.size:
        raise BadDataError(f"save {show(source)} is empty", hint="no file in it has a byte")
    files: list[_File] = []
    for entry in seen.entries:
        path = os.fsdecode(entry.path)
        if entry.kind in {"l", "s"}:
            raise BadDataError(f"save {show(source)} has what S3 has not, a link or special file: {show(path)}")
        if path and not is_plain(path):
            raise BadDataError(f"save {show(source)} has a name that is no plain UTF-8: {show(path)}")
        if entry.kind == "f":
            files.append(_File(path, entry.size, _token(entry)))
    # The large ones first: the last to end is then a small one.
    return sorted(files, key=lambda one: (-one.size, one.path))


def is_sent(root: S3Root, relative: bytes, source: str) -> bool:
    """Whether the save at ``relative`` is there, object for file, as :func:`upload` would make it of ``source``."""
    return _is_sent(root, relative, root.place.key(relative.decode("utf-8")), _files(source))


def _known_as(files: Sequence[_File], seen: Look) -> list[_File]:
    tokens = {os.fsdecode(entry.path): _token(entry) for entry in seen.entries}
    return [replace(one, token=tokens.get(one.path, one.token)) for one in files]


def _check_keys(source: str, key: str, files: Sequence[_File]) -> None:
    for one in files:
        if len(_below(key, one.path).encode("utf-8")) > KEY_BYTES_MAX:
            raise BadDataError(
                f"save {show(source)} has a file whose key in S3 would be longer than {KEY_BYTES_MAX} bytes: "
                f"{show(one.path)}"
            )


def _is_sent(root: S3Root, relative: bytes, key: str, files: Sequence[_File]) -> bool:
    """Whether the save in the root is these very files."""
    there = {meta.key: meta.size for meta in root.save_objects(relative, root.bucket.deadline())}
    if there != {_below(key, one.path): one.size for one in files}:
        return False

    def same(one: _File) -> bool:
        return root.bucket.sent(_below(key, one.path), root.bucket.deadline()) == (one.size, one.token)

    with ThreadPoolExecutor(FILES_AT_ONCE) as workers:
        return all(workers.map(same, files))


def token_of(file: str) -> tuple[int, str]:
    """Size of one file, and what :meth:`Bucket.sent` says of an object that was made of it as it is now.

    :raises FileNotFoundError: it went.
    """
    seen = look(file, read=False)
    if seen is None:
        raise FileNotFoundError(file)
    return seen.entries[0].size, _token(seen.entries[0])


def _token(entry: Entry) -> str:
    identity = f"{entry.inode} {entry.size} {entry.mtime_ns}"
    return hashlib.sha256(identity.encode()).hexdigest()


def _settle(root: S3Root, relative: bytes, wanted: dict[str, int]) -> list[Meta]:
    """See that the save is what was sent, and take away what an earlier one of its name has left; its objects."""
    deadline = root.bucket.deadline()
    there = {meta.key: meta for meta in root.save_objects(relative, deadline)}
    for key in there.keys() - wanted.keys():
        root.bucket.remove(key, deadline)
    for key, size in wanted.items():
        if key not in there or there[key].size != size:
            raise StoreError(f"object {show(root.place.address(key))} is not there as it was sent")
    return [there[key] for key in sorted(wanted)]


def _reads(bucket: Bucket, meta: Meta, file: str) -> list[Callable[[], tuple[int, int]]]:
    """What brings one object, in ranges; the file is there, and as large as it will be."""
    starts = range(0, meta.size, RANGE_BYTES) or [0]

    def read(start: int) -> tuple[int, int]:
        length = min(RANGE_BYTES, meta.size - start)
        body = bucket.part(meta.key, start, length, _for(length), large=True)
        if body is None:
            raise AbsentError(f"object {show(bucket.place.address(meta.key))} is gone")
        if len(body) != length:
            raise BadDataError(f"object {show(bucket.place.address(meta.key))} changed while it was downloaded")
        descriptor = os.open(file, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            done = 0
            while done < length:
                done += os.pwrite(descriptor, body[done:], start + done)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        return int(start == starts[-1]), length

    return [functools.partial(read, start) for start in starts]


def _make(temporary: str, paths: dict[str, str]) -> list[str]:
    """Make the files, empty, and the folders above them; returns the folders, outer before inner."""
    folders: dict[str, None] = {}
    if list(paths.values()) != [""]:
        os.mkdir(temporary)
        folders[temporary] = None
    for path in sorted(paths.values()):
        above = temporary
        for part in path.split("/")[:-1]:
            above = os.path.join(above, part)
            if above not in folders:
                os.mkdir(above)
                folders[above] = None
        os.close(os.open(_below(temporary, path), _MAKE, 0o666))  # synced by who writes into it
    return list(folders)


def _check_names(key: str, paths: Sequence[str]) -> None:
    """Refuse keys of which no files can be made: a name that is a file and a folder, or leads elsewhere."""
    folders = {path[:at] for path in paths for at, letter in enumerate(path) if letter == "/"}
    for path in paths:
        if path in folders or (path and not is_plain(path)):
            raise BadDataError(f"save {show(key)} has an object that can be no file: {show(path)}")


def _all(acts: Sequence[Callable[[], tuple[int, int]]], meter: Meter) -> None:
    """Do all, several at once; the first error ends it, and what has not begun is not begun.

    What has begun is waited for, so that no request of this try arrives in the middle of the next one.
    """
    with ThreadPoolExecutor(FILES_AT_ONCE) as workers:
        waiting: set[Future[tuple[int, int]]] = {workers.submit(act) for act in acts}
        try:
            while waiting:
                done, waiting = wait(waiting, timeout=1.0, return_when=FIRST_EXCEPTION)
                for one in done:
                    meter.add(*one.result())
        finally:
            for one in waiting:
                one.cancel()


def _for(size: int) -> Deadline:
    return Deadline(FILE_S + size / RATE_MIN)


def _below(folder: str, path: str) -> str:
    return f"{folder}/{path}" if path else folder
