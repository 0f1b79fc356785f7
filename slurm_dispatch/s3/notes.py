"""Notes of an execution in S3: objects that are created once, with the condition that publications are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurm_dispatch.errors import CorruptError

if TYPE_CHECKING:
    from slurm_dispatch.s3.bucket import Bucket


class S3Notes:
    """The notes of one execution, see :class:`slurm_dispatch.store.notes.Notes`.

    :param folder: the key that they are below.
    """

    def __init__(self, bucket: Bucket, folder: str) -> None:
        self._bucket = bucket
        self._folder = folder

    def leave(self, name: str, content: bytes) -> bool:
        """Make the note. The same content is the same note: an answer of ours that was lost, or as good."""
        try:
            self._bucket.create(f"{self._folder}/{name}", content, self._bucket.deadline())
        except CorruptError:
            return False  # another one was first
        return True

    def read(self, name: str, limit: int) -> bytes | None:
        """The note, ``None`` if it is not there."""
        content = self._bucket.read(f"{self._folder}/{name}", self._bucket.deadline(), length=limit + 1)
        if content is not None and len(content) > limit:
            raise CorruptError(f"reading {self.shown(name)}: it is longer than {limit} bytes")
        return content

    def replace(self, name: str, content: bytes) -> None:
        """Leave the note in place of one of that name: a put of the whole object."""
        self._bucket.replace(f"{self._folder}/{name}", content, self._bucket.deadline())

    def names(self) -> list[str]:
        """The names of all notes."""
        found = self._bucket.below(self._folder, self._bucket.deadline())
        return [meta.key[len(self._folder) + 1 :] for meta in found]

    def shown(self, name: str) -> str:
        """``s3://bucket/...``."""
        return self._bucket.place.address(f"{self._folder}/{name}")


__all__ = ["S3Notes"]
