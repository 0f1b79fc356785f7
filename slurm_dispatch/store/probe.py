"""Whether a filesystem keeps what the protocol needs; asked once by an execution, in its own folder."""

from __future__ import annotations

import errno
import os
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurm_dispatch.durable import TEMPORARY_PREFIX
from slurm_dispatch.errors import CannotCreateError, show, store_error
from slurm_dispatch.store.folders import sync

if TYPE_CHECKING:
    from slurm_dispatch.store.root import CheckpointRoot

MOUNTS = "/proc/self/mountinfo"
OBJECT_STORES = frozenset(
    ["fuse.s3fs", "fuse.mount-s3", "fuse.mountpoint-s3", "fuse.gcsfuse", "fuse.goofys", "fuse.rclone", "fuse.geesefs"]
)
"""Types of mounts that show objects as files: making a name is not exclusive there (C135)."""
_NO_LINKS = frozenset(
    {errno.EPERM, errno.EXDEV, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EINVAL, errno.EACCES}
)
_EXCLUSIVE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Probe:
    """What was found.

    :ivar links: hard links between two folders work; without them saves cannot be kept, and the saver's own
        path is published.
    :ivar folder_sync: folders can be synced.
    """

    links: bool
    folder_sync: bool


def probe(root: CheckpointRoot, attempt: str) -> Probe:
    """Try it in ``exec/<attempt>/.dispatch/``, which must be there. Leaves nothing behind.

    :raises CannotCreateError: the filesystem does not honour ``O_EXCL`` (C117), folds case, is an object store
        behind FUSE (C135) or NFS 2 (C114); one line that says which.
    """
    _refuse_kind(root)
    folder = os.path.join(os.fsencode(root.execution(attempt)), b".dispatch")
    first = os.path.join(folder, f"{TEMPORARY_PREFIX}{secrets.token_hex(8)}-a".encode())
    inner = first[:-1] + b"d"
    try:
        os.close(os.open(first, _EXCLUSIVE, 0o600))
        _refuse_second(root, first)
        _refuse_folding(root, first)
        os.mkdir(inner, 0o700)
        links = _link(first, os.path.join(inner, b"link"))
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            return Probe(links, sync(descriptor, folder))
        finally:
            os.close(descriptor)
    except OSError as error:
        raise store_error(error, "trying out", folder) from error
    finally:
        _remove(os.path.join(inner, b"link"), inner, first)


def _refuse_second(root: CheckpointRoot, path: bytes) -> None:
    try:
        os.close(os.open(path, _EXCLUSIVE, 0o600))
    except FileExistsError:
        return
    raise CannotCreateError(
        f"checkpoint root {show(root.path)} is on a filesystem that makes one name twice (no O_EXCL)",
        hint="use another filesystem: on this one two runs could both believe that they published",
    )


def _refuse_folding(root: CheckpointRoot, path: bytes) -> None:
    folder, name = os.path.split(path)
    if os.path.lexists(os.path.join(folder, name.swapcase())):
        raise CannotCreateError(
            f"checkpoint root {show(root.path)} is on a filesystem that takes upper and lower case for the same",
            hint="use another filesystem: two saves could be one there",
        )


def _link(path: bytes, other: bytes) -> bool:
    try:
        os.link(path, other, follow_symlinks=False)
    except OSError as error:
        if error.errno in _NO_LINKS:
            return False
        raise
    return True


def _remove(link: bytes, folder: bytes, first: bytes) -> None:
    for path, gone in ((link, os.unlink), (folder, os.rmdir), (first, os.unlink)):
        try:
            gone(path)
        except OSError:
            pass  # it was never made, or is swept later by its name


def _refuse_kind(root: CheckpointRoot) -> None:
    kind, options = mount_of(os.path.realpath(root.raw), MOUNTS)
    if kind in OBJECT_STORES:
        raise CannotCreateError(
            f"checkpoint root {show(root.path)} is an object store behind {kind}",
            hint="files there are not made exclusively; give it as s3://BUCKET/PREFIX, or use a real filesystem",
        )
    if kind == "nfs" and "vers=2" in options:
        raise CannotCreateError(
            f"checkpoint root {show(root.path)} is on NFS 2, which cannot make a name exclusively",
            hint="mount it with NFS 3 or newer",
        )
    if kind in {"nfs", "nfs4"} and "nocto" in options:
        root.say(
            f"{show(root.path)} is mounted with nocto: what another host publishes is seen when this one's cache has "
            f"run out (acdirmax, 60 s unless it was set), and until then latest is an older save"
        )


def mount_of(path: bytes, mounts: str) -> tuple[str, frozenset[str]]:
    """Type and options of the mount that ``path`` (a real path) is on; ``("", ...)`` where that is not known."""
    try:
        with open(mounts, "rb") as file:
            lines = file.read().splitlines()
    except OSError:
        return "", frozenset()
    best: tuple[int, str, frozenset[str]] = (-1, "", frozenset())
    for line in lines:
        fields, _, rest = line.partition(b" - ")
        point = fields.split(b" ")[4:5]
        kind = rest.split(b" ")
        if not point or len(kind) < 3:
            continue
        where = point[0].replace(b"\\040", b" ").replace(b"\\011", b"\t").replace(b"\\134", b"\\")
        if (path == where or path.startswith(where.rstrip(b"/") + b"/")) and len(where) >= best[0]:
            words = frozenset(kind[2].decode("ascii", "replace").split(","))
            best = (len(where), kind[0].decode("ascii", "replace"), words)
    return best[1], best[2]
