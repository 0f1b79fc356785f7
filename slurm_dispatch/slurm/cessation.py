"""The optional part of the port that says whether an execution's processes are gone.

The law: *ceased is said only of what was proved; a command that fails, hangs, prints too much or is not there,
and a node of which nothing is known, are unknown.*
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from slurm_dispatch.records.cessation import AskedExecution, CessationAnswer


class CessationSignal(Protocol):
    """Who can say it. An adapter or a site without one leaves the job to a person."""

    together: bool
    """One call answers about many executions at the cost of one; otherwise each is asked alone, side by side."""

    def ask(self, executions: Sequence[AskedExecution], deadline_s: float) -> Mapping[str, CessationAnswer]:
        """An answer for each execution, by attempt. Never raises for what goes wrong: that is ``unknown``."""
        ...
