"""What happened to one job, put together from what its trainings, its checkpoint root and its record say.

Nothing here asks the product's code: the trainings' own logs and the names in ``pub/`` are the evidence.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from slurm_dispatch.model.publication import Publication, parse_name

Line = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Published:
    """A publication, and when its file was made (Unix seconds)."""

    at: float
    publication: Publication


@dataclass(slots=True)
class Execution:
    """One execution of the training, from the logs of its ranks. Times are Unix seconds."""

    attempt: str
    epoch: int
    ranks: dict[int, list[Line]] = field(default_factory=lambda: defaultdict(list))

    @property
    def lines(self) -> list[Line]:
        """Rank 0's log."""
        return self.ranks[0]

    @property
    def start(self) -> Line:
        """The start line: ``step`` it went on from, ``resume`` path, ``lineage`` with its own branch last."""
        return self.of("start")[0]

    @property
    def host(self) -> str:
        return str(self.start["host"])

    @property
    def slurm_id(self) -> str:
        """The Slurm job that it ran in, which it knows before whoever submitted that has written it down."""
        return str(self.start["slurm_job_id"])

    @property
    def resumed(self) -> tuple[int, int] | None:
        """(epoch, step) of the save that it went on from; ``None`` for a first start."""
        lineage = self.start["lineage"]
        return (int(lineage[-2][0]), int(self.start["step"])) if len(lineage) > 1 else None

    def of(self, *kinds: str) -> list[Line]:
        return [line for line in self.lines if line["what"] in kinds]

    def wrote_after(self, moment: float) -> list[Line]:
        """Its steps and saves after ``moment``, and its death in the middle of one (its replacement thins)."""
        return [line for line in self.of("step", "saved", "died") if line["at"] > moment]

    def losses(self, rank: int = 0) -> dict[int, str]:
        return {line["step"]: line["loss"] for line in self.ranks[rank] if line["what"] == "step"}


@dataclass(frozen=True, slots=True)
class Account:
    """Everything that is known. Executions in the order of their epochs, publications the latest last."""

    executions: list[Execution]
    published: list[Published]

    def execution(self, epoch: int) -> Execution | None:
        return next((found for found in self.executions if found.epoch == epoch), None)

    def published_by(self, epoch: int) -> list[Published]:
        return [found for found in self.published if found.publication.epoch == epoch]


def account(logs: str, listing: str) -> Account:
    """Read an account.

    :param logs: the logs of the job in any order, with a NUL byte after each; what stands after the last newline
        of one is a line that is being written, and is left out.
    :param listing: a line ``<seconds> <name>`` for each file in ``pub/``.
    """
    executions: dict[str, Execution] = {}
    for text in [line for log in logs.split("\0") for line in log.split("\n")[:-1]]:
        line = json.loads(text)
        execution = executions.setdefault(line["attempt"], Execution(line["attempt"], int(line["epoch"])))
        execution.ranks[line["rank"]].append(line)
    begun = [found for found in executions.values() if found.of("start")]
    named = [line.split(" ", 1) for line in listing.splitlines()]
    published = [Published(float(at), parse_name(name)) for at, name in named]
    return Account(
        sorted(begun, key=lambda found: found.epoch),
        sorted(published, key=lambda found: found.publication),
    )
