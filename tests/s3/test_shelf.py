"""The store in memory that the model stands on does what the servers do: the same requests, the same answers."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from slurm_dispatch.anyroot import open_store
from slurm_dispatch.errors import CorruptError
from slurm_dispatch.s3 import bucket as buckets
from slurm_dispatch.s3.bucket import Bucket, Made
from slurm_dispatch.s3.root import S3Root
from tests.s3.shelf import Shelf
from tests.s3.stub import BUCKET

if TYPE_CHECKING:
    from pathlib import Path

MiB = 1 << 20


@pytest.fixture(params=["shelf", "stub", "seaweed"])
def bucket(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, no_aws_files: None, tmp_path: Path
) -> Bucket:
    """The same calls on each kind."""
    running = request.getfixturevalue(request.param)
    if not isinstance(running, Shelf):
        for name, value in running.environment().items():
            monkeypatch.setenv(name, value)
    root = open_store(f"s3://{BUCKET}/{tmp_path.name}")
    assert isinstance(root, S3Root)
    return root.bucket


def keys(bucket: Bucket, folder: str, *, first: int | None = None) -> list[str]:
    """What is below a folder of the test's own, without its name."""
    above = bucket.place.key(folder)
    return [meta.key[len(above) + 1 :] for meta in bucket.below(above, bucket.deadline(), first=first)]


def test_one_name_is_made_once(bucket: Bucket) -> None:
    key = bucket.place.key("a")
    assert bucket.create(key, b"one", bucket.deadline()) is Made.NEW
    assert bucket.create(key, b"one", bucket.deadline()) is Made.FOUND
    with pytest.raises(CorruptError):
        bucket.create(key, b"two", bucket.deadline())
    assert bucket.read(key, bucket.deadline(), length=10) == b"one"


def test_what_is_written_over_has_another_tag_and_the_same_content_the_same(bucket: Bucket) -> None:
    tags = []
    for body in (b"one", b"two", b"one"):
        bucket.replace(bucket.place.key("a"), body, bucket.deadline())
        meta = bucket.look(bucket.place.key("a"), bucket.deadline())
        assert meta is not None
        assert meta.size == 3
        tags.append(meta.tag)
    assert tags[0] == tags[2] != tags[1]
    (listed,) = bucket.below(bucket.place.prefix, bucket.deadline())
    assert listed.tag == tags[2]


def test_what_is_not_there(bucket: Bucket) -> None:
    key, deadline = bucket.place.key("a"), bucket.deadline()
    assert bucket.look(key, deadline) is None
    assert bucket.read(key, deadline, length=1) is None
    assert bucket.part(key, 0, 1, deadline) is None
    assert bucket.sent(key, deadline) is None
    bucket.remove(key, deadline)
    assert bucket.below(key, deadline) == []


def test_a_listing_is_of_one_folder_in_the_order_of_its_keys(bucket: Bucket) -> None:
    for name in ("f/10", "f/9", "f/b/c", "f-/x", "f", "fg/x"):
        bucket.replace(bucket.place.key(name), b"x", bucket.deadline())
    assert keys(bucket, "f") == ["10", "9", "b/c"]
    assert keys(bucket, "f", first=2) == ["10", "9"]
    bucket.remove(bucket.place.key("f/9"), bucket.deadline())
    assert keys(bucket, "f") == ["10", "b/c"]


def test_all_pages_are_read(bucket: Bucket, request: pytest.FixtureRequest) -> None:
    """One more than two pages of a page of three; on a server, whose page is 1,000, a few."""
    names = [f"{number:03}" for number in range(7)]
    for name in reversed(names):
        bucket.replace(bucket.place.key("f", name), b"", bucket.deadline())
    assert keys(bucket, "f") == names


def test_ranges(bucket: Bucket) -> None:
    key = bucket.place.key("a")
    bucket.replace(key, b"0123456789", bucket.deadline())
    assert bucket.part(key, 3, 4, bucket.deadline()) == b"3456"
    assert bucket.read(key, bucket.deadline(), offset=8, length=10) == b"89"


@pytest.mark.parametrize("size", [10, 5 * MiB + 1])
def test_a_file_in_one_piece_and_in_parts(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, size: int
) -> None:
    """With what was said of it; an object that was there is replaced, and what was said of that goes."""
    monkeypatch.setattr(buckets, "PART_BYTES", 5 * MiB)
    key, file = bucket.place.key("a"), tmp_path / "file"
    file.write_bytes(os.urandom(size))
    bucket.replace(key, b"before", bucket.deadline())
    assert bucket.sent(key, bucket.deadline()) == (6, "")
    bucket.send(key, str(file), size, "token", bucket.deadline())
    assert bucket.sent(key, bucket.deadline()) == (size, "token")
    assert bucket.part(key, size - 5, 5, bucket.deadline()) == file.read_bytes()[-5:]
    bucket.replace(key, b"after", bucket.deadline())
    assert bucket.sent(key, bucket.deadline()) == (5, "")
