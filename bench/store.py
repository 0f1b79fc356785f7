"""The checkpoint root: publishing, finding the latest, keeping a save."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from typing import TYPE_CHECKING

from bench.row import Row, medians
from slurm_dispatch.model.publication import Publication
from slurm_dispatch.store.keep import keep
from slurm_dispatch.store.root import CheckpointRoot, open_root
from slurm_dispatch.store.whole import Proof

if TYPE_CHECKING:
    from collections.abc import Iterator

EPOCH = 10**6
ATTEMPT = "abcdefghij0123456789"
FILES = 1000


def rows() -> Iterator[Row]:
    """All figures of this part."""
    folder = tempfile.mkdtemp(prefix="bench-store-")
    try:
        yield publishing(_root(folder, "publishing"))
        for count in (1_000, 10_000, 100_000):
            yield finding(_root(folder, f"finding{count}"), count)
        yield from keeping(_root(folder, "small"), "files of 4 KiB", 4096, copied=True)
        yield from keeping(_root(folder, "large"), "files of 1 MiB", 1 << 20, copied=False)
    finally:
        shutil.rmtree(folder)


def _root(folder: str, name: str) -> CheckpointRoot:
    path = os.path.join(folder, name)
    os.mkdir(path)
    root = open_root(path)
    root.make_execution(ATTEMPT)
    return root


def publishing(root: CheckpointRoot) -> Row:
    """One publication, against the three calls without which there is none.

    The floor opens both folders each time, as a publication does; it checks nothing, neither path nor save.
    """
    save = os.path.join(root.execution(ATTEMPT), "checkpoint")
    os.mkdir(save)
    with open(os.path.join(save, "weights"), "wb") as file:
        file.write(b"x" * 4096)
    root.publish(EPOCH, 0, save, attempt=ATTEMPT)
    steps = iter(range(1, 10**6))
    bare = os.path.join(root.path, "bare")
    os.mkdir(bare)

    def floor() -> None:
        name = f"{next(steps):0110d}"  # as long as a publication's
        os.close(os.open(os.path.join(bare, name), os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        for path in (bare, root.path):
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
            os.fsync(descriptor)
            os.close(descriptor)

    ours_s, floor_s = medians(200, lambda: root.publish(EPOCH, next(steps), save, attempt=ATTEMPT), floor)
    return Row("publish", ours_s, "create, fsync, fsync", floor_s, 1.2)


def finding(root: CheckpointRoot, count: int) -> Row:
    """Latest among many, every name checked, against scandir and max."""
    pub = os.path.join(root.path, "pub")
    os.mkdir(pub)
    save = os.path.join(root.execution(ATTEMPT), "kept", "checkpoint-0")
    os.makedirs(save)
    with open(os.path.join(save, "weights"), "wb") as file:
        file.write(b"x")
    spare = os.path.join(root.path, "spare")
    for number in range(count):
        if number % 50_000 == 0:  # links to an empty file are made faster than files, and list the same
            with contextlib.suppress(FileNotFoundError):
                os.unlink(spare)
            open(spare, "wb").close()
        path = b"exec/%020d/kept/checkpoint-%d" % (number // 200, number * 50)
        if number == count - 1:
            path = os.fsencode(os.path.relpath(save, root.path))
        name = Publication((number // 200 + 1) * EPOCH, number * 50, path).name
        os.link(spare, os.path.join(pub, name))

    def floor() -> str:
        with os.scandir(pub) as entries:
            return max(entry.name for entry in entries)

    ours_s, floor_s = medians(max(15, 50_000 // count), root.latest, floor, clock=time.process_time)
    return Row(f"latest of {count:,}", ours_s, "scandir and max", floor_s, 3)


def keeping(root: CheckpointRoot, what: str, size: int, *, copied: bool) -> Iterator[Row]:
    """Keeping a save of many files, against linking each; and, where small ones are copied, against copying each.

    A copy must be on disk before it is published, so its floor has an fsync for each file.
    """
    names = iter(range(10**6))
    content = b"x" * size
    source = os.path.join(root.execution(ATTEMPT), "checkpoint-0")
    os.mkdir(source)
    for number in range(FILES):
        with open(os.path.join(source, f"shard{number}"), "wb") as file:
            file.write(content)
    os.sync()
    links = os.path.join(root.path, "links")
    os.mkdir(links)

    def ours() -> None:
        nonlocal source
        # A name that is kept already would be returned as it is.
        fresh = os.path.join(root.execution(ATTEMPT), f"checkpoint-{next(names)}x")
        os.rename(source, fresh)
        source = fresh
        if keep(root, ATTEMPT, source, proof=Proof.PROVED) is None:
            raise RuntimeError("the source did not change")

    def floor() -> None:
        target = os.path.join(links, str(next(names)))
        os.mkdir(target)
        for number in range(FILES):
            os.link(os.path.join(source, f"shard{number}"), os.path.join(target, f"shard{number}"))
        for path in (target, links):
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
            os.fsync(descriptor)
            os.close(descriptor)

    def copies() -> None:
        target = os.path.join(links, str(next(names)))
        os.mkdir(target)
        for number in range(FILES):
            with open(os.path.join(source, f"shard{number}"), "rb", buffering=0) as file:
                inside = file.read(size)
            with open(os.path.join(target, f"shard{number}"), "xb", buffering=0) as file:
                file.write(inside)
                os.fsync(file.fileno())

    linked = "link each, fsync, fsync"
    if copied:
        ours_s, linking_s, copying_s = medians(9, ours, floor, copies)
        yield Row(f"keep {FILES:,} {what}", ours_s, "copy and fsync each", copying_s, 1.2)
        yield Row("  the same, for comparison", ours_s, linked, linking_s)
    else:
        ours_s, linking_s = medians(15, ours, floor)
        yield Row(f"keep {FILES:,} {what}", ours_s, linked, linking_s, 2)
