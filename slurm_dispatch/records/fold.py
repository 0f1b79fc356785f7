"""The fold: from the facts of a record to its state. Pure, deterministic, linear in the number of facts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurm_dispatch.errors import BadDataError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from slurm_dispatch.records.facts import Fact
    from slurm_dispatch.records.state import State


def fold(facts: Iterable[Fact]) -> State:
    """The state that ``facts`` make, from fact 1 on and in order.

    :raises BadDataError: no fact 1, a gap, or a fact that the law does not allow there; the message names
        the fact's number and kind.
    """
    raise BadDataError("no facts")
