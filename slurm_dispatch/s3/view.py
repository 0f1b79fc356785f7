"""One save in S3 as it was listed once, and read in ranges: what the checks of a saver's layout look at."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from slurm_dispatch.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from slurm_dispatch.s3.bucket import Bucket, Meta
    from slurm_dispatch.s3.root import S3Root

READ_BYTES_MAX = 64 << 20
"""The most that one call reads; structures of files are in their heads and tails."""


class S3SaveView:
    """A save; make it with :func:`view_of`.

    :ivar name: the last component of its key.
    :ivar single: it is one object (whose path in ``sizes`` is empty).
    :ivar sizes: bytes by path in the save.
    """

    def __init__(self, bucket: Bucket, key: str, sizes: Mapping[str, int]) -> None:
        self.name = key.rpartition("/")[2]
        self.sizes = sizes
        self.single = list(sizes) == [""]
        self._bucket = bucket
        self._key = key

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """Bytes of one object, from ``offset`` on; fewer than ``length`` only at its end.

        :raises OSError: it is not there, the store failed, or more than :data:`READ_BYTES_MAX` would be read.
        """
        if path not in self.sizes:
            raise FileNotFoundError(errno.ENOENT, "no such object in the save", path)
        rest = max(0, self.sizes[path] - offset)
        wanted = rest if length is None else min(rest, length)
        if wanted > READ_BYTES_MAX:
            raise OSError(errno.EFBIG, f"more than {READ_BYTES_MAX} bytes at once", path)
        key = f"{self._key}/{path}" if path else self._key
        try:
            found = self._bucket.part(key, offset, wanted, self._bucket.deadline())
        except StoreError as error:
            raise OSError(errno.EIO, str(error), path) from error
        if found is None:
            raise FileNotFoundError(errno.ENOENT, "the object is gone", path)
        return found


def view_of(root: S3Root, relative: bytes) -> S3SaveView | None:
    """The save at ``relative`` to the root, or ``None`` if there is none.

    :raises StoreError: it could not be listed.
    """
    objects = root.save_objects(relative, root.bucket.deadline())
    key = root.place.key(relative.decode("utf-8"))
    if not objects:
        return None
    return S3SaveView(root.bucket, key, sizes_of(objects, key))


def sizes_of(objects: Iterable[Meta], key: str) -> dict[str, int]:
    """Bytes of each object of the save at ``key``, by its path in the save."""
    return {one.key[len(key) + 1 :]: one.size for one in objects}
