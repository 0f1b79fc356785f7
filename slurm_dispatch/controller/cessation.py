"""Asking about many executions side by side, within a bound and a deadline, as the configured user."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from slurm_dispatch.records.cessation import AskedExecution, CessationAnswer
    from slurm_dispatch.slurm.cessation import CessationSignal

AT_ONCE = 8
"""Commands that run side by side."""


class Asker:
    """Asks a :class:`~slurm_dispatch.slurm.cessation.CessationSignal`, in children of the tick.

    :param signal: ``None``: nobody answers, and :meth:`start` does nothing.
    :param user: as whom the site's command runs (a name or a number).
    :param timeout_s: the deadline of one command.
    """

    def __init__(
        self, signal: CessationSignal | None, *, user: str, timeout_s: float = 30.0, at_once: int = AT_ONCE
    ) -> None:
        raise NotImplementedError

    @property
    def answers(self) -> bool:
        """Somebody answers at all (the policy's ``cessation``)."""
        raise NotImplementedError

    def start(self, executions: Sequence[AskedExecution]) -> None:
        """Begin to ask about those that are not being asked about already. Returns at once."""

    def collect(self, patience_s: float) -> dict[str, CessationAnswer]:
        """The answers that have come since, by attempt, after at most ``patience_s``; sooner once all have come."""
        raise NotImplementedError

    def ask(self, executions: Sequence[AskedExecution], deadline_s: float) -> Mapping[str, CessationAnswer]:
        """Start, and collect until the deadline. One that did not come by then is missing: ask again."""
        raise NotImplementedError

    def stop(self) -> None:
        """End what still runs."""
