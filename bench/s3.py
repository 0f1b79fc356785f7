"""A checkpoint root in S3: publishing and finding the latest, on a SeaweedFS of its own.

The floors are the same library's own calls: the bare put with the condition, and the bare listing read to its end.
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
from tests.s3.servers import BUCKET, Seaweed

if TYPE_CHECKING:
    from collections.abc import Iterator

EPOCH = 10**6
ATTEMPT = "abcdefghij0123456789"
COUNT = 10_000


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
