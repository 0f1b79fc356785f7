"""The kinds of store that the conformance suite runs over, and the hands that a framework has on each.

A kind is a line in :data:`KINDS`: from a test's request it makes an empty store with the methods of :class:`Store`.
Those on NFS are in :data:`ON_NFS`: a second kernel runs the suite over them (:mod:`tests.nfs`).
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from slurm_dispatch.anyroot import open_store
from slurm_dispatch.s3.root import S3Root
from slurm_dispatch.store.root import CheckpointRoot
from tests.s3.shelf import Shelf
from tests.s3.stub import BUCKET
from tests.store.scene import fresh
from tests.store.scene import save as lay_save

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pytest

    from slurm_dispatch.store.roots import Root

IMAGE_BYTES = 64 << 20
NFS_MOUNTS = "NFS_MOUNTS"
"""The variable with the folders of two mounts of one NFS, joined with a colon: set only in the second kernel."""


class Store(Protocol):
    """A root, and the hands that a framework has on it."""

    @property
    def root(self) -> Root:
        """The root, open."""

    @property
    def no_saves(self) -> tuple[str, ...]:
        """What may stand where a save was, in words for :meth:`become`."""

    def again(self) -> Root:
        """The same root, opened as by another process, or on another host."""

    def there(self, path: str) -> str:
        """What a path in the root is called where :meth:`again` opens it."""

    def save(self, attempt: str, name: str, content: bytes = b"weights") -> str:
        """What a framework writes into its execution's folder. Returns the path to publish."""

    def save_file(self, attempt: str, name: str) -> str:
        """A save that is one file."""

    def remove(self, path: str) -> None:
        """What a rotation does."""

    def become(self, path: str, now: str) -> None:
        """Something else stands where a save was."""

    def plant(self, name: str) -> None:
        """Somebody puts a name among the publications."""

    def plant_owner(self, name: str, target: str) -> None:
        """Somebody claims a generation."""


class Folder:
    """A root on a POSIX filesystem."""

    no_saves = ("emptied", "a link", "a FIFO")

    def __init__(self, folder: Path) -> None:
        self.root: CheckpointRoot = fresh(folder)

    def again(self) -> CheckpointRoot:
        """See :class:`Store`, here and below."""
        root = open_store(self.root.path)
        assert isinstance(root, CheckpointRoot)
        return root

    def there(self, path: str) -> str:
        return path

    def save(self, attempt: str, name: str, content: bytes = b"weights") -> str:
        return lay_save(self.root, attempt, name, content)

    def save_file(self, attempt: str, name: str) -> str:
        path = os.path.join(self.root.make_execution(attempt), name)
        Path(path).write_bytes(b"weights")
        return path

    def remove(self, path: str) -> None:
        shutil.rmtree(path)

    def become(self, path: str, now: str) -> None:
        if os.path.islink(path):
            os.unlink(path)
        else:
            shutil.rmtree(path)
        if now == "emptied":
            os.mkdir(path)
        elif now == "a link":
            os.symlink("checkpoint-5", path)
        else:
            os.mkfifo(path)

    def plant(self, name: str) -> None:
        pub = Path(self.root.path) / "pub"
        pub.mkdir(exist_ok=True)
        (pub / name).touch()

    def plant_owner(self, name: str, target: str) -> None:
        own = Path(self.root.path) / "own"
        own.mkdir(exist_ok=True)
        (own / name).symlink_to(target)


class TwoMounts(Folder):
    """A root on a filesystem that two hosts have mounted; :meth:`again` is on the other one.

    :param folder: on the one host.
    :param other: the same folder on the other.
    """

    def __init__(self, folder: Path, other: Path) -> None:
        super().__init__(folder)
        self._folders = str(folder), str(other)

    def again(self) -> CheckpointRoot:
        """See :class:`Store`, here and below."""
        root = open_store(self.there(self.root.path))
        assert isinstance(root, CheckpointRoot)
        return root

    def there(self, path: str) -> str:
        here, there = self._folders
        assert path.startswith(here)
        return there + path[len(here) :]


class Prefix:
    """A root in S3; the variables that say where stand in the environment."""

    no_saves = ("emptied",)
    """The placeholder that some programs leave for a folder; S3 has neither links nor FIFOs."""

    def __init__(self, prefix: str) -> None:
        self.path = f"s3://{BUCKET}/{prefix}"
        self.root: S3Root = self.again()

    def again(self) -> S3Root:
        """See :class:`Store`, here and below."""
        root = open_store(self.path)
        assert isinstance(root, S3Root)
        return root

    def there(self, path: str) -> str:
        return path

    def put(self, path: str, body: bytes) -> str:
        """Store an object at ``s3://bucket/key``, as a framework does."""
        bucket = self.root.bucket
        bucket.replace(path.removeprefix(f"s3://{BUCKET}/"), body, bucket.deadline())
        return path

    def save(self, attempt: str, name: str, content: bytes = b"weights") -> str:
        path = f"{self.root.make_execution(attempt)}/{name}"
        self.put(f"{path}/weights", content)
        return path

    def save_file(self, attempt: str, name: str) -> str:
        return self.put(f"{self.root.make_execution(attempt)}/{name}", b"weights")

    def remove(self, path: str) -> None:
        bucket, deadline = self.root.bucket, self.root.bucket.deadline()
        for meta in bucket.below(path.removeprefix(f"s3://{BUCKET}/"), deadline):
            bucket.remove(meta.key, deadline)

    def become(self, path: str, now: str) -> None:
        assert now == "emptied"
        self.remove(path)

    def plant(self, name: str) -> None:
        self.put(f"{self.path}/pub/{name}", b"")

    def plant_owner(self, name: str, target: str) -> None:
        self.put(f"{self.path}/own/{name}", target.encode())


def mounted(folder: Path, *words: str) -> Iterator[Path]:
    """A filesystem of its own at ``folder``/mounted, until the generator is closed."""
    at = folder / "mounted"
    at.mkdir()
    subprocess.run(["mount", *words, str(at)], check=True, capture_output=True, timeout=60)
    try:
        yield at
    finally:
        subprocess.run(["umount", "-l", str(at)], check=True, capture_output=True, timeout=60)


def ext4(folder: Path) -> Iterator[Path]:
    """An ext4 in a file, whatever the machine's own folders are on."""
    image = folder / "image"
    with open(image, "wb") as file:
        file.truncate(IMAGE_BYTES)
    subprocess.run(["mkfs.ext4", "-q", str(image)], check=True, capture_output=True, timeout=60)
    yield from mounted(folder, "-o", "loop", str(image))


def tmpfs(folder: Path) -> Iterator[Path]:
    """A tmpfs."""
    yield from mounted(folder, "-t", "tmpfs", "-o", f"size={IMAGE_BYTES}", "none")


def in_s3(request: pytest.FixtureRequest, server: str) -> Store:
    """A prefix of its own on a server that a fixture of that name has started."""
    running = request.getfixturevalue(server)
    if isinstance(running, Shelf):
        return Prefix(request.getfixturevalue("tmp_path").name)
    environment = request.getfixturevalue("monkeypatch")
    for name, value in running.environment().items():
        environment.setenv(name, value)
    request.getfixturevalue("no_aws_files")
    return Prefix(request.getfixturevalue("tmp_path").name)


def on(request: pytest.FixtureRequest, filesystem: str) -> Store:
    """A folder of its own on a filesystem that a fixture of that name has mounted."""
    folder = request.getfixturevalue(filesystem) / request.getfixturevalue("tmp_path").name
    folder.mkdir()
    return Folder(folder)


def on_nfs(request: pytest.FixtureRequest, *, two: bool) -> Store:
    """A folder of its own on NFS: through the one mount, or with :meth:`Store.again` through the other."""
    name = request.getfixturevalue("tmp_path").name
    folders = [Path(mount) / name for mount in os.environ[NFS_MOUNTS].split(":")]
    folders[0].mkdir()
    return TwoMounts(folders[0], folders[1]) if two else Folder(folders[0])


KINDS: dict[str, Callable[[pytest.FixtureRequest], Store]] = {
    "ext4": lambda request: on(request, "ext4_folder"),
    "tmpfs": lambda request: on(request, "tmpfs_folder"),
    "s3-stub": lambda request: in_s3(request, "stub"),
    "s3-shelf": lambda request: in_s3(request, "shelf"),
    "s3-seaweedfs": lambda request: in_s3(request, "seaweed"),
}
ON_NFS: dict[str, Callable[[pytest.FixtureRequest], Store]] = {
    "nfs-one-mount": lambda request: on_nfs(request, two=False),
    "nfs-two-mounts": lambda request: on_nfs(request, two=True),
}


def here() -> dict[str, Callable[[pytest.FixtureRequest], Store]]:
    """The kinds of this kernel."""
    return ON_NFS if NFS_MOUNTS in os.environ else KINDS
