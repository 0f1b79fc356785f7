"""A checkpoint root in S3: publishing, finding the latest, uploading a save, on a SeaweedFS of its own.

The floors are the same library's own calls: the bare put with the condition, the bare listing read to its end, the
bare put of each file. ``BENCH_S3_MIB`` is the size of the save.
"""

from __future__ import annotations

import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from bench.row import Row, medians
from slurm_dispatch.model.publication import Publication
from slurm_dispatch.s3.bucket import Bucket
from slurm_dispatch.s3.place import Place
from slurm_dispatch.s3.root import S3Root
from slurm_dispatch.s3.settings import settings
from slurm_dispatch.s3.transfer import FILES_AT_ONCE, upload
from tests.s3.servers import BUCKET, Seaweed

if TYPE_CHECKING:
    from collections.abc import Iterator

EPOCH = 10**6
ATTEMPT = "abcdefghij0123456789"
COUNT = 10_000
FILES = 64


def rows() -> Iterator[Row]:
    """All figures of this part."""
    with tempfile.TemporaryDirectory(prefix="bench-s3-") as folder:
        server = Seaweed(Path(folder))
        server.start()
        try:
            yield publishing(_root(server, "publishing"))
            yield finding(_root(server, "finding"))
            yield uploading(_root(server, "uploading"), Path(folder))
        finally:
            server.stop()


def _root(server: Seaweed, prefix: str) -> S3Root:
    given = settings({**server.environment(), "HOME": "/nonexistent"})
    keys = {"access_key_id": server.environment()["AWS_ACCESS_KEY_ID"]}
    keys["secret_access_key"] = server.environment()["AWS_SECRET_ACCESS_KEY"]
    given.config.update(keys)
    return S3Root(Bucket(Place(BUCKET, prefix), given, timeout_s=300))


def publishing(root: S3Root) -> Row:
    """One publication, against the one put without which there is none; a publication looks at its save first."""
    import obstore

    save = f"exec/{ATTEMPT}/checkpoint"
    root.bucket.replace(root.place.key(save, "weights"), b"x" * 4096, root.bucket.deadline())
    root.publish(EPOCH, 0, save, attempt=ATTEMPT)
    steps = iter(range(1, 10**6))
    store = root.bucket._store()  # noqa: SLF001 - the floor is the very same client

    def floor() -> None:
        obstore.put(store, root.place.key("bare", f"{next(steps):0110d}"), b"", mode="create")

    ours_s, floor_s = medians(200, lambda: root.publish(EPOCH, next(steps), save, attempt=ATTEMPT), floor)
    return Row("publish in S3", ours_s, "put with the condition", floor_s)


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
    return Row(f"latest of {COUNT:,} in S3", ours_s, "the bare listing", floor_s)


def uploading(root: S3Root, folder: Path) -> Row:
    """A save of many files, checked and listed at its end, against the library's put of each from as many threads."""
    import obstore

    size = int(os.environ.get("BENCH_S3_MIB", "256"))
    source = folder / "checkpoint"
    source.mkdir()
    for number in range(FILES):
        (source / f"shard{number:03d}").write_bytes(os.urandom(1 << 16) * (size * 16 // FILES))
    names = iter(range(10**6))
    store = root.bucket._store(large=True)  # noqa: SLF001 - the floor is the very same client

    def ours() -> None:
        upload(root, ATTEMPT, str(source), name=f"checkpoint-{next(names)}")

    def floor() -> None:
        below = root.place.key("bare", str(next(names)))
        with ThreadPoolExecutor(FILES_AT_ONCE) as workers:
            list(workers.map(lambda file: obstore.put(store, f"{below}/{file.name}", file), source.iterdir()))

    ours_s, floor_s = medians(3, ours, floor)
    return Row(f"upload {size:,} MiB in {FILES} files", ours_s, "the library's put of each", floor_s, 1 / 0.9)
