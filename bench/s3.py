"""A checkpoint root in S3: publishing, finding the latest, uploading a save, on a SeaweedFS of its own.

The floors are the same library's own calls: the bare put with the condition, the bare listing read to its end, and
the fastest of its ways to put each file. ``BENCH_S3_MIB`` is another size of the save.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.row import Row, medians
from slurm_dispatch.model.publication import Publication
from slurm_dispatch.s3.bucket import Bucket
from slurm_dispatch.s3.place import Place
from slurm_dispatch.s3.root import S3Root
from slurm_dispatch.s3.settings import settings
from slurm_dispatch.s3.transfer import upload
from tests.s3.servers import BUCKET, Seaweed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Way = Callable[[S3Root, Path], None]
    """Brings the files of a folder to the store."""

EPOCH = 10**6
ATTEMPT = "abcdefghij0123456789"
COUNT = 10_000
FILES = 64
SIZE_MIB = int(os.environ.get("BENCH_S3_MIB", "4096"))
TRIED_MIB = 512
"""With so much of it the library's ways are compared."""


def rows() -> Iterator[Row]:
    """All figures of this part."""
    with tempfile.TemporaryDirectory(prefix="bench-s3-") as folder:
        server = Seaweed(Path(folder))
        server.start()
        try:
            yield from publishing(root_on(server, "publishing"))
            yield finding(root_on(server, "finding"))
        finally:
            server.stop()
        yield uploading(Path(folder))


def root_on(server: Seaweed, prefix: str) -> S3Root:
    """A root on the server, opened with its keys and nothing of the user's."""
    given = settings({**server.environment(), "HOME": "/nonexistent"})
    keys = {"access_key_id": server.environment()["AWS_ACCESS_KEY_ID"]}
    keys["secret_access_key"] = server.environment()["AWS_SECRET_ACCESS_KEY"]
    given.config.update(keys)
    return S3Root(Bucket(Place(BUCKET, prefix), given, timeout_s=300))


def publishing(root: S3Root) -> Iterator[Row]:
    """One publication, against the put without which there is none, and against what its check needs too.

    Beside the put one listing shows that the save is there and not empty. ``dispatch-watch`` has just listed what it
    publishes, and does not ask again. That the store keeps the condition was proved before, once.
    """
    import obstore

    save = f"exec/{ATTEMPT}/checkpoint"
    root.bucket.replace(root.place.key(save, "weights"), b"x" * 4096, root.bucket.deadline())
    root.publish(EPOCH, 0, save, attempt=ATTEMPT)
    steps = iter(range(1, 10**6))
    store = root.bucket._store()  # noqa: SLF001 - the floor is the very same client

    def ours() -> None:
        root.publish(EPOCH, next(steps), save, attempt=ATTEMPT)

    def seen() -> None:
        root.saw(save.encode())
        ours()

    def put() -> None:
        obstore.put(store, root.place.key("bare", f"{next(steps):0110d}"), b"", mode="create")

    def listed() -> None:
        next(iter(obstore.list(store, root.place.key(save), chunk_size=1)))
        put()

    ours_s, seen_s, put_s, listed_s = medians(200, ours, seen, put, listed)
    yield Row("publish in S3", ours_s, "put with the condition", put_s, 2.5)
    yield Row("  the same", ours_s, "listing of the save, put with the condition", listed_s, 1.3)
    yield Row("publish in S3 what was just listed", seen_s, "put with the condition", put_s, 1.3)


def finding(root: S3Root) -> Row:
    """Latest among many, every name checked, publication and save looked at, against the bare listing."""
    import obstore

    path = b"exec/%s/checkpoint" % ATTEMPT.encode()
    root.bucket.replace(root.place.key(os.fsdecode(path), "weights"), b"x", root.bucket.deadline())
    deadline = root.bucket.deadline()

    def put(number: int) -> None:
        where = path if number == COUNT - 1 else b"exec/%020d/kept/checkpoint-%d" % (number // 200, number * 50)
        name = Publication((number // 200 + 1) * EPOCH, number * 50, where).name
        root.bucket.create(root.place.key("pub", name), b"", deadline)

    with ThreadPoolExecutor(16) as publishers:
        list(publishers.map(put, range(COUNT)))
    store = root.bucket._store()  # noqa: SLF001 - the floor is the very same client

    def floor() -> int:
        return sum(len(page) for page in obstore.list(store, root.place.key("pub"), chunk_size=1000))

    ours_s, floor_s = medians(15, root.latest, floor)
    return Row(f"latest of {COUNT:,} in S3", ours_s, "the bare listing", floor_s, 1.5)


def uploading(folder: Path) -> Row:
    """A save of many files, checked and listed at its end, against the fastest way that the library has here.

    Which that is, is tried before with a part of the save. Each round has a store of its own, so that none is full.
    """
    source = _source(folder / "checkpoint", SIZE_MIB)
    part = _source(folder / "part", min(SIZE_MIB, TRIED_MIB))
    taken = {name: min(times) for name, times in _rounds(folder, 2, WAYS, part).items()}
    best = min(taken, key=lambda name: taken[name])
    shutil.rmtree(part)
    times = _rounds(folder, 3, {"ours": _ours, best: WAYS[best]}, source)
    ours_s, best_s = (statistics.median(times[name]) for name in ("ours", best))
    what = f"upload {SIZE_MIB:,} MiB in {FILES} files"
    return Row(what, ours_s, f"the library's best here: {best}", best_s, 1 / 0.9)


def _source(folder: Path, size_mib: int) -> Path:
    folder.mkdir()
    for number in range(FILES):
        (folder / f"shard{number:03d}").write_bytes(os.urandom(1 << 16) * (size_mib * 16 // FILES))
    return folder


def _rounds(folder: Path, count: int, ways: dict[str, Way], source: Path) -> dict[str, list[float]]:
    """Seconds of each way, turn and turn about."""
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(count):
        with tempfile.TemporaryDirectory(dir=folder) as place:
            server = Seaweed(Path(place))
            server.start()
            try:
                root = root_on(server, "uploading")
                for name, way in sorted(ways.items(), reverse=number % 2 == 1):
                    begin = time.perf_counter()
                    way(root, source)
                    taken[name].append(time.perf_counter() - begin)
            finally:
                server.stop()
    return taken


def _ours(root: S3Root, source: Path) -> None:
    upload(root, ATTEMPT, str(source))


def _threads(count: int, **more: Any) -> Way:
    """The library's put of each file, from so many threads."""
    import obstore

    def way(root: S3Root, source: Path) -> None:
        store = root.bucket._store(large=True)  # noqa: SLF001 - the floor is the very same client
        below = root.place.key("bare", secrets.token_hex(8))
        with ThreadPoolExecutor(count) as workers:
            list(workers.map(lambda file: obstore.put(store, f"{below}/{file.name}", file, **more), source.iterdir()))

    return way


def _tasks(count: int) -> Way:
    """The library's put without threads of ours, so many at once."""
    import obstore

    def way(root: S3Root, source: Path) -> None:
        store = root.bucket._store(large=True)  # noqa: SLF001 - the floor is the very same client
        below = root.place.key("bare", secrets.token_hex(8))

        async def put_all() -> None:
            free = asyncio.Semaphore(count)

            async def put(file: Path) -> None:
                async with free:
                    await obstore.put_async(store, f"{below}/{file.name}", file)

            await asyncio.gather(*map(put, source.iterdir()))

        asyncio.run(put_all())

    return way


WAYS: dict[str, Way] = {
    "put, 8 threads": _threads(8),
    "put, 16 threads": _threads(16),
    "put in parts of 16 MiB, 8 threads": _threads(8, chunk_size=16 << 20, max_concurrency=4),
    "put in one part, 8 threads": _threads(8, use_multipart=False),
    "put_async, 16 at once": _tasks(16),
}
