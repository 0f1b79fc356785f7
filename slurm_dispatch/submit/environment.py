"""The environment that sbatch, and with it the job, gets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurm_dispatch.slurm.limits import current
from slurm_dispatch.slurm.resubmit import carried

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurm_dispatch.records.spec import Spec

# What a job hands on to one that is submitted from inside it, and that would be the outer job's.
_OURS = ("DISPATCH_", "SLURM_DISPATCH_")
_KEPT = frozenset({"DISPATCH_CONFIG", "DISPATCH_TRACEBACK"})
_STALE = frozenset({"SLURM_RESTART_COUNT"})


def cleaned(environment: Mapping[str, str]) -> dict[str, str]:
    """Without inherited identity: our variables, and a restart count that is another job's."""
    return {
        name: value
        for name, value in environment.items()
        if name in _KEPT or (name not in _STALE and not name.startswith(_OURS))
    }


def for_job(environment: Mapping[str, str], spec: Spec, *, record: str) -> dict[str, str]:
    """The cleaned environment with what the hooks and the helper look for. ``--export`` never stops these: their
    names begin with SLURM.

    :param record: the folder of the job's record.
    """
    found = {**cleaned(environment), **carried(spec)}
    found["SLURM_DISPATCH_CHECKPOINT"] = spec.root
    found["SLURM_DISPATCH_RECORD"] = record
    if spec.start_from is not None:
        found["SLURM_DISPATCH_START_FROM"] = spec.start_from
    return found


def as_recorded(environment: Mapping[str, str]) -> bytes:
    """The environment for later submissions, with the soft limits of this shell as sbatch would write them:
    ``NAME=value`` texts, each ended by a NUL byte."""
    whole = {**environment, **current()}
    return "".join(f"{name}={value}\0" for name, value in whole.items()).encode("utf-8", "surrogateescape")
