"""Replay: every decision of a record once more, from the facts before it and its own inputs. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from slurm_dispatch.errors import BadDataError
from slurm_dispatch.records.fold import states_before
from slurm_dispatch.records.inputs import policy_of
from slurm_dispatch.records.law import Phase
from slurm_dispatch.records.verdict import left_to_a_person, verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from slurm_dispatch.records.facts import Fact
    from slurm_dispatch.records.state import State


@dataclass(frozen=True, slots=True)
class Replayed:
    """One decision, as it is recorded and as it comes out now.

    :param seq: of the fact.
    :param same: whether the two are the same; ``None``: it cannot be told (``trouble`` says why).
    :param recorded: the body of the fact, and ``now`` the one that comes out; empty if none does.
    :param differs: the fields that differ, sorted.
    """

    seq: int
    same: bool | None
    recorded: Mapping[str, Any]
    now: Mapping[str, Any]
    differs: tuple[str, ...] = ()
    trouble: str = ""


def replay(facts: Iterable[Fact]) -> list[Replayed]:
    """Every decision of the record again, in order.

    :raises BadDataError: the record does not fold.
    """
    return [_again(state, fact) for state, fact in states_before(facts, "decision")]


def _again(state: State, fact: Fact) -> Replayed:
    recorded = fact.body
    if not recorded["inputs"]:
        why = "it was made by a version that did not record what it stands on"
        return Replayed(fact.seq, None, recorded, {}, trouble=why)
    try:
        policy, now = policy_of(recorded["inputs"])
        decide = left_to_a_person if state.phase is Phase.SUBMITTING else verdict
        found = decide(state, policy, now).body()
    except BadDataError as error:
        return Replayed(fact.seq, None, recorded, {}, trouble=str(error))
    # What an older version did not write is as if nothing had been known of it.
    stood_on = recorded["inputs"]
    found["inputs"] = {name: it for name, it in found["inputs"].items() if it is not None or name in stood_on}
    differs = tuple(sorted(name for name, value in found.items() if recorded.get(name) != value))
    return Replayed(fact.seq, not differs, recorded, found, differs)


__all__ = ["Replayed", "replay"]
