"""What every checkpoint root promises, whatever it is made of: the methods of a POSIX folder and an S3 prefix.

Whoever needs only these takes a :class:`Root`; ``slurm_dispatch.anyroot.open_store`` opens one by its scheme. One
conformance suite, ``tests/store/test_conformance.py``, holds every kind to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from slurm_dispatch.model.publication import Publication
    from slurm_dispatch.store.notes import Notes
    from slurm_dispatch.store.root import Highest, Save


class Root(Protocol):
    """One checkpoint root."""

    @property
    def path(self) -> str:
        """How it is called: an absolute path, or ``s3://bucket/prefix``."""

    @property
    def takes_links(self) -> bool:
        """Whether who resumes from a save has links of its own, so that the save may go meanwhile."""

    def claim(self, job: str, generation: int) -> None:
        """Make the generation the job's, exclusive and durable; the same job may claim again.

        :raises CannotCreateError: another job has this generation, or a higher one is there.
        """

    def highest(self) -> Highest:
        """The greatest generation and epoch."""

    def owners(self) -> dict[int, str]:
        """The job of each generation that was claimed here, rising."""

    def path_of(self, relative: bytes) -> str:
        """The absolute path, or the ``s3://...``, of what stands at a path in the root."""

    def notes(self, attempt: str) -> Notes:
        """The execution's notes; on a folder its own must be made before one is left."""

    def executions(self) -> list[str]:
        """The attempts of which something is there, sorted."""

    def entries(self, relative: bytes) -> list[bytes]:
        """The names in a folder of an execution, sorted; none where it is not there."""

    def remove(self, relative: bytes) -> bool:
        """Remove a save below ``exec/``; what proves it whole goes first. Returns whether it was there."""

    def names(self) -> list[str]:
        """The names of publications as they are, parsed or not, in no order."""

    def check_published(self, name: str) -> None:
        """Refuse a publication that is not empty. :raises CorruptError: it is not."""

    def execution(self, attempt: str) -> str:
        """What the execution's folder is called, made or not."""

    def make_execution(self, attempt: str) -> str:
        """Make the execution's folder where folders are made; returns what it is called."""

    def publish(self, epoch: int, step: int, path: str | bytes, *, attempt: str, sync: bool = False) -> Publication:
        """Publish a save (P2): when this returns it is durable. Publishing the same again is success."""

    def listing(self) -> list[Publication]:
        """All publications, latest first. :raises BadDataError: naming a name that does not parse."""

    def latest(self, *, fallback: bool = False) -> Save | None:
        """The save to resume from, or ``None`` if there is no publication at all."""

    def name_max(self) -> int:
        """The longest name of a publication here, in bytes, 255 at most."""

    def say(self, message: str) -> None:
        """Pass a line to whoever opened the root, each only once."""


class Answer(str, Enum):
    """What a store was found to do."""

    PROVED = "proved"
    REFUSED = "refused"
    """It does not, and the protocol needs it: no root there."""
    LACKING = "lacking"
    """It does not, and it is gone without."""
    ASSUMED = "assumed"
    """It was not tried."""

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a store was asked for, and what it did.

    :ivar what: a few words.
    :ivar text: what was seen, one line.
    """

    what: str
    answer: Answer
    text: str
