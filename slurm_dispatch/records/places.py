"""On which clusters a job's objects are, or may come to be. Pure.

A place is the name of a cluster, or :data:`HERE` for the one whose Slurm commands are asked. The law: *an object is
asked for at its own place and nowhere else*; that another cluster does not have it says nothing, and that another
cluster has its id is a coincidence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slurm_dispatch.records.spec import Spec
    from slurm_dispatch.records.state import State

HERE = ""
"""The cluster that Slurm's commands speak to if they are not told another."""
CLOSED_S = 86400.0
"""Other clusters are asked for a closed job's strays for this long, and for what is open of it until it is known."""


def place_of(spec: Spec, cluster: str, home: str) -> str:
    """The place of an object that is on ``cluster``.

    :param cluster: as the record has it; empty: it was not known when it was written.
    :param home: the name of the cluster that is asked; empty: not known. Then a job that was sent to a cluster by
        name is asked for by that name, and every other one here.
    """
    if not cluster or cluster == home or (not home and cluster not in spec.clusters):
        return HERE
    return cluster


def landing(spec: Spec, home: str) -> tuple[str, ...]:
    """Where a submission of the job can make an object, each place once."""
    named = spec.clusters or (spec.cluster,)
    return tuple(dict.fromkeys(place_of(spec, cluster, home) for cluster in named))


def places(state: State, home: str, now: float) -> tuple[str, ...]:
    """Every place that must be asked about the job, in order, each once."""
    if state.closed is not None and state.finished and now - state.closed.at > CLOSED_S:
        return (HERE,)
    found = set(landing(state.spec, home))
    found.update(
        place_of(state.spec, submission.object.cluster, home)
        for submission in state.submissions
        if submission.object is not None
    )
    return tuple(sorted(found))


__all__ = ["CLOSED_S", "HERE", "landing", "place_of", "places"]
