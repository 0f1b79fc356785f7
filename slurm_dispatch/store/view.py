"""A save on a POSIX root as the layouts see it."""

from __future__ import annotations

import os
import stat
from types import MappingProxyType
from typing import TYPE_CHECKING

from slurm_dispatch.errors import show
from slurm_dispatch.savers.view import JSON_MAX
from slurm_dispatch.store.structure import read_at

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurm_dispatch.store.whole import Look


class FilesView:
    """A :class:`slurm_dispatch.savers.view.SaveView` of the files that a look has listed."""

    def __init__(self, path: str | bytes, seen: Look) -> None:
        """
        :param path: of the save, absolute.
        :param seen: :func:`slurm_dispatch.store.whole.look` at it.
        """
        self._path = os.fsencode(path)
        self.name = os.fsdecode(os.path.basename(self._path))
        self.single = len(seen.entries) == 1 and seen.entries[0].kind == "f"
        self.sizes: Mapping[str, int] = MappingProxyType(
            {os.fsdecode(entry.path): entry.size for entry in seen.entries if entry.kind == "f"}
        )

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """Bytes of a file, never through a link, at most :data:`JSON_MAX` if ``length`` does not say.

        :raises OSError: it cannot be read, or is no regular file any more.
        """
        whole = os.path.join(self._path, os.fsencode(path)) if path else self._path
        descriptor = os.open(whole, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise FileNotFoundError(2, "it is no regular file any more", show(whole))
            return read_at(descriptor, offset, JSON_MAX if length is None else length)
        finally:
            os.close(descriptor)
