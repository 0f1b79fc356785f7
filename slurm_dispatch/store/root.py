"""The checkpoint root on a POSIX filesystem: whose it is, where executions write, publishing and latest.

The law of this module: *an execution writes only below ``exec/<its attempt>/``; a publication that was
returned is durable and is never touched again; latest is the greatest name in ``pub/``; whatever does not
parse or is not there is an error that names it.*
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slurm_dispatch.model.publication import Publication


@dataclass(frozen=True, slots=True)
class Highest:
    """The greatest generation (from ``own/`` and ``pub/``, -1 if none) and epoch (from ``pub/``, 0 if none)."""

    generation: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Save:
    """A publication and the absolute path of its save, which was there a moment ago."""

    publication: Publication
    path: str


class CheckpointRoot:
    """One checkpoint root. Holds no open file and no state but its path; make it with :func:`open_root`."""

    path: str

    def claim(self, job: str, generation: int) -> None:
        """Make ``own/<generation>`` say ``job``, exclusive and durable; the same job may claim again.

        :raises CannotCreateError: another job has this generation, or a higher one is there.
        """
        raise NotImplementedError

    def highest(self) -> Highest:
        """What is the greatest here, for ``--adopt-root``."""
        raise NotImplementedError

    def execution(self, attempt: str) -> str:
        """The absolute path of ``exec/<attempt>``, made or not."""
        raise NotImplementedError

    def make_execution(self, attempt: str) -> str:
        """Make ``exec/<attempt>/`` and ``.dispatch/`` in it, durable; what is there already stays. Returns its path."""
        raise NotImplementedError

    def publish(
        self, epoch: int, step: int, path: str | bytes, *, attempt: str, sync: bool = False
    ) -> Publication:
        """Publish a save (P2): when this returns, a power loss does not take it away.

        :param path: relative to the root, or absolute; inside ``exec/<attempt>/``.
        :param sync: fsync the files and folders of the save first.
        :raises BadDataError: outside the execution, missing, empty, too long, or with links that lead out.
        :raises StoreError: it is not known to be there; publishing the same again is safe.
        """
        raise NotImplementedError

    def listing(self) -> list[Publication]:
        """All publications, latest first.

        :raises BadDataError: naming a name that does not parse.
        """
        raise NotImplementedError

    def latest(self, *, fallback: bool = False) -> Save | None:
        """The save to resume from, or ``None`` if there is no publication at all.

        :param fallback: go on to the next publication where a save is gone.
        :raises BadDataError: a name does not parse, or the save is gone (after fresh listings).
        :raises StoreError: it could not be looked; never the same as ``None``.
        """
        raise NotImplementedError


def open_root(path: str) -> CheckpointRoot:
    """The root at ``path``, which must be a directory that is there.

    :raises StoreError: it is not there, or is not a directory.
    """
    raise NotImplementedError
