"""Keeping a save that is far larger than any disk, and removing many: what counts is names, not bytes."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from typing import TYPE_CHECKING

from bench.row import Row, medians
from slurm_dispatch.model.publication import Publication
from slurm_dispatch.store.fsck import fsck
from slurm_dispatch.store.gc import Known, Rules, Standing, plan
from slurm_dispatch.store.keep import keep
from slurm_dispatch.store.manifest import manifest_of, write_manifest
from slurm_dispatch.store.outranked import remove_all
from slurm_dispatch.store.root import CheckpointRoot, open_root
from slurm_dispatch.store.space import space
from slurm_dispatch.store.whole import Proof, look

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

EPOCH = 10**6
SHARDS, SHARD = 2000, 50 * 10**6
"""100 GB, sparse."""
SAVES, FILES = 10_000, 3


def rows() -> Iterator[Row]:
    """All figures of this part."""
    folder = tempfile.mkdtemp(prefix="bench-gc-")
    try:
        yield large(_root(folder, "large"))
        yield from many(folder)
    finally:
        shutil.rmtree(folder)


def _root(folder: str, name: str) -> CheckpointRoot:
    path = os.path.join(folder, name)
    os.mkdir(path)
    return open_root(path)


def _timed(act: Callable[[], object]) -> float:
    os.sync()
    start = time.perf_counter()
    act()
    return time.perf_counter() - start


def large(root: CheckpointRoot) -> Row:
    """Keeping it, against linking each file and two fsyncs."""
    source = os.path.join(root.make_execution("run"), "checkpoint-1")
    os.mkdir(source)
    for number in range(SHARDS):
        with open(os.path.join(source, f"shard{number}"), "wb") as file:
            file.truncate(SHARD)
    names = iter(range(10**6))

    def ours() -> None:
        if keep(root, "run", source, proof=Proof.PROVED, name=b"kept-%d" % next(names)) is None:
            raise RuntimeError("the source did not change")

    def floor() -> None:
        links = os.path.join(root.path, f"links-{next(names)}")
        os.mkdir(links)
        for number in range(SHARDS):
            os.link(os.path.join(source, f"shard{number}"), os.path.join(links, f"shard{number}"))
        for path in (links, root.path):
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
            os.fsync(descriptor)
            os.close(descriptor)

    ours_s, floor_s = medians(5, ours, floor)
    what = f"keep {SHARDS * SHARD // 10**9} GB in {SHARDS:,} files (sparse)"
    return Row(what, ours_s, "link each, fsync, fsync", floor_s, goal_s=5.0)


def many(folder: str) -> Iterator[Row]:
    """Removing all but one of many saves, against ``rm -r`` of the same; and looking at all of them."""
    root = _root(folder, "many")
    _fill(root)
    twin = os.path.join(folder, "twin")
    shutil.copytree(root.path, twin)
    over = Known(Standing.OVER, "the bench")

    def ours() -> None:
        found = plan(root, Rules(1), lambda _: over)
        removed, trouble = remove_all(root, found.paths)
        if trouble or len(removed) != SAVES - 1:
            raise RuntimeError(f"{len(removed)} went, {trouble[:1]}")

    looked_s, space_s = _timed(lambda: fsck(root)), _timed(lambda: space(root))
    walked_s = _timed(lambda: subprocess.run(["du", "-s", twin], check=True, stdout=subprocess.DEVNULL))
    yield Row(f"fsck of {SAVES:,} saves", looked_s, "du -s", walked_s)
    yield Row(f"du of {SAVES:,} saves", space_s, "du -s", walked_s)
    removed_s = _timed(ours)
    bare_s = _timed(lambda: subprocess.run(["rm", "-r", os.path.join(twin, "exec")], check=True))
    yield Row(f"gc of {SAVES:,} saves of {FILES} files", removed_s, "rm -r", bare_s, 4)


def _fill(root: CheckpointRoot) -> None:
    attempts = [f"run{number}" for number in range(10)]
    os.mkdir(os.path.join(root.path, "pub"))
    for number in range(SAVES):
        attempt = attempts[number * len(attempts) // SAVES]
        path = os.path.join(root.path, "exec", attempt, "kept", f"checkpoint-{number}")
        if not os.path.isdir(os.path.dirname(path)):
            root.make_execution(attempt)
        os.makedirs(path)
        for file in range(FILES):
            with open(os.path.join(path, f"shard{file}"), "wb") as stream:
                stream.write(b"x")
        relative = os.fsencode(os.path.relpath(path, root.path))
        seen = look(path, read=False)
        if seen is not None and number % 100 == 0:  # each is synced: a part of them shows what they cost
            write_manifest(root, relative, manifest_of(seen, Proof.PROVED))
        epoch = EPOCH * (1 + attempts.index(attempt))
        open(os.path.join(root.path, "pub", Publication(epoch, number, relative).name), "wb").close()
