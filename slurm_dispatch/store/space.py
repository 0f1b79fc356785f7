"""Bytes and inodes of a root, by execution; what has several names counts once.

A kept save shares its large files with the training's own (hard links), so adding up folders would count them twice.
Each file is counted in the first place in which it is met: executions from the greatest epoch down, and in each
``kept/``, ``resume/``, ``best/``, then the rest. What only one execution has is said too: that is what removing its
folder would give back. Blocks that files share without being links (reflinks) cannot be told and count for each.
"""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from slurm_dispatch.errors import AbsentError, StoreError, show
from slurm_dispatch.store.outranked import by_attempt, epochs_of
from slurm_dispatch.store.remove import DEPTH_MAX
from slurm_dispatch.store.tree import open_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from slurm_dispatch.store.root import CheckpointRoot

PARTS = ("kept", "resume", "best", "rest")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW


@dataclass(slots=True)
class Usage:
    """What one folder takes.

    :ivar name: the attempt; ``pub`` for the publications, ``own`` for the claims.
    :ivar parts: bytes on disk by :data:`PARTS`; their sum is :attr:`size`.
    :ivar content: bytes in the files, holes included.
    :ivar inodes: files, folders and all else.
    :ivar alone: bytes on disk that nothing outside this folder shares.
    """

    name: str
    epoch: int | None = None
    parts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(PARTS, 0))
    content: int = 0
    inodes: int = 0
    alone: int = 0

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum(self.parts.values())


@dataclass(slots=True)
class Space:
    """The whole report; ``troubles``: what could not be looked at, one line each."""

    rows: list[Usage] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)


def space(root: CheckpointRoot) -> Space:
    """Look at every name below the root, never through a link, and at nothing of a file but its status.

    :raises StoreError: the root could not be listed.
    :raises BadDataError: a publication's name does not parse.
    """
    report = Space()
    epochs = epochs_of(root, by_attempt(root.listing()))
    seen: set[tuple[int, int]] = set()
    for attempt in sorted(epochs, key=lambda one: (epochs[one] or -1, one), reverse=True):
        usage = Usage(attempt, epochs[attempt])
        _add(root, b"exec/" + attempt.encode("ascii"), usage, seen, report.troubles)
        report.rows.append(usage)
    for name in ("pub", "own"):
        usage = Usage(name)
        _add(root, name.encode(), usage, seen, report.troubles)
        report.rows.append(usage)
    return report


def freed(root: CheckpointRoot, paths: Iterable[bytes]) -> tuple[int, int]:
    """(bytes on disk, inodes) that removing these would give back: files that have no name anywhere else.

    What cannot be looked at is not counted.
    """
    size = inodes = 0
    links: dict[tuple[int, int], tuple[int, int, int]] = {}
    for path in paths:
        folder, name = os.path.split(path)
        try:
            descriptor = open_in(root.raw, folder)
        except StoreError:
            continue
        try:
            for status in _one(descriptor, name, folder, [], 0):
                blocks = status.st_blocks * 512
                if stat.S_ISDIR(status.st_mode) or status.st_nlink < 2:
                    size, inodes = size + blocks, inodes + 1
                else:
                    which = (status.st_dev, status.st_ino)
                    links[which] = (links.get(which, (0, 0, 0))[0] + 1, status.st_nlink, blocks)
        finally:
            os.close(descriptor)
    alone = [blocks for met, names, blocks in links.values() if met == names]
    return size + sum(alone), inodes + len(alone)


def _add(root: CheckpointRoot, folder: bytes, usage: Usage, seen: set[tuple[int, int]], troubles: list[str]) -> None:
    try:
        descriptor = open_in(root.raw, folder)
    except AbsentError:
        return
    except StoreError as error:
        troubles.append(str(error))
        return
    links: dict[tuple[int, int], tuple[int, int, int]] = {}
    """Of files with several names: names met here, names that there are, bytes."""
    try:
        _count(os.fstat(descriptor), "rest", usage, seen, links)
        for part, status in _walk(descriptor, folder, troubles):
            _count(status, part, usage, seen, links)
    finally:
        os.close(descriptor)
    usage.alone += sum(size for met, names, size in links.values() if met == names)


def _count(
    status: os.stat_result,
    part: str,
    usage: Usage,
    seen: set[tuple[int, int]],
    links: dict[tuple[int, int], tuple[int, int, int]],
) -> None:
    size = status.st_blocks * 512
    if stat.S_ISDIR(status.st_mode) or status.st_nlink < 2:
        usage.alone += size
    else:
        which = (status.st_dev, status.st_ino)
        met = links.get(which, (0, 0, 0))[0]
        links[which] = (met + 1, status.st_nlink, size)
        if which in seen:
            return
        seen.add(which)
    usage.parts[part] += size
    usage.inodes += 1
    if stat.S_ISREG(status.st_mode):
        usage.content += status.st_size


def _walk(descriptor: int, shown: bytes, troubles: list[str]) -> Iterator[tuple[str, os.stat_result]]:
    """Everything in an execution's folder with the part that it is in, ``kept/`` first."""
    order = {name.encode(): place for place, name in enumerate(PARTS)}
    for name in sorted(_names(descriptor, shown, troubles), key=lambda one: (order.get(one, len(PARTS)), one)):
        part = name.decode() if name in order and name != b"rest" else "rest"
        for status in _one(descriptor, name, shown, troubles, 0):
            yield part, status


def _one(parent: int, name: bytes, shown: bytes, troubles: list[str], depth: int) -> Iterator[os.stat_result]:
    path = os.path.join(shown, name)
    try:
        status = os.lstat(name, dir_fd=parent)
        yield status
        if not stat.S_ISDIR(status.st_mode):
            return
        if depth > DEPTH_MAX:
            raise OSError(errno.ENAMETOOLONG, "folders too deep")
        descriptor = os.open(name, _FOLDER, dir_fd=parent)
    except FileNotFoundError:
        return  # it went meanwhile
    except OSError as error:
        troubles.append(f"looking at {show(path)}: {error.strerror}")
        return
    try:
        for inner in _names(descriptor, path, troubles):
            yield from _one(descriptor, inner, path, troubles, depth + 1)
    finally:
        os.close(descriptor)


def _names(descriptor: int, shown: bytes, troubles: list[str]) -> list[bytes]:
    try:
        return [os.fsencode(name) for name in os.listdir(descriptor)]
    except FileNotFoundError:
        return []
    except OSError as error:
        troubles.append(f"listing {show(shown)}: {error.strerror}")
        return []


__all__ = ["PARTS", "Space", "Usage", "freed", "space"]
