"""Uploading a save to S3, on a SeaweedFS of its own, against the fastest way that the library has for its files.

``BENCH_S3_MIB`` is another size of the save.
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

from bench.row import Row
from bench.s3 import ATTEMPT, root_on
from slurm_dispatch.s3.transfer import upload
from tests.s3.servers import Seaweed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from slurm_dispatch.s3.root import S3Root

    Way = Callable[[S3Root, Path], None]
    """Brings the files of a folder to the store."""

FILES = 64
SIZE_MIB = int(os.environ.get("BENCH_S3_MIB", "4096"))
TRIED_MIB = 256
"""With so much of it the library's ways are compared."""


def rows() -> Iterator[Row]:
    """All figures of this part."""
    with tempfile.TemporaryDirectory(prefix="bench-upload-") as folder:
        yield uploading(Path(folder))


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
