"""A new job in the place of an old one: the same checkpoint root, one generation above, from its latest on.

The law of this module: *the new record comes first and names the old job; then one fact, which only one can write,
closes the old job and names the new one.* Whatever stops in between is finished by the next tick.
"""

from __future__ import annotations

import socket
from dataclasses import replace
from typing import TYPE_CHECKING

from slurm_dispatch.errors import UsageError, show
from slurm_dispatch.model.epoch import GENERATION_MAX
from slurm_dispatch.model.identity import new_key
from slurm_dispatch.records.changes import KEPT
from slurm_dispatch.slurm.options import MEMORY, without_options
from slurm_dispatch.slurm.resubmit import recorded_variables
from slurm_dispatch.submit.depends import waits
from slurm_dispatch.submit.environment import as_recorded, for_job

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurm_dispatch.records.spec import Spec
    from slurm_dispatch.records.state import State
    from slurm_dispatch.state.folder import StateFolder
    from slurm_dispatch.state.jobs import Record
    from slurm_dispatch.submit.request import Request


def make_repeated(folder: StateFolder, elder: State, record: Record, *, keep: int | None, by: str) -> Record:
    """The record of a job that is the elder once more: its script, its environment, its settings, and the limits that
    rules have given it since.

    :param record: the elder's.
    """
    spec = _after(elder, replace(elder.spec, argv=_grown(elder), dependency=waits(elder)), keep)
    variables = recorded_variables(record.environment())
    own = for_job(variables, spec, record=folder.record(spec.job).folder)
    packed = "".join(f"{name}={value}\0" for name, value in own.items()).encode("utf-8", "surrogateescape")
    return folder.create_job(spec, record.script(elder.script_sha256), packed, by=by)


def make_new(
    folder: StateFolder,
    elder: State,
    request: Request,
    environment: Mapping[str, str],
    *,
    keep: int | None,
    by: str,
) -> Record:
    """The record of a job that was described anew, in the elder's root.

    :raises UsageError: it names another root.
    """
    given = request.spec
    if given.root and given.root != elder.spec.root:
        raise UsageError(
            f"the checkpoint root {show(given.root)} is not that of job {elder.spec.job}, {show(elder.spec.root)}",
            hint="leave --checkpoint out, or submit a job of its own with dispatch sbatch",
        )
    # Where the elder was sent by name, the new description says anew where it goes.
    cluster = given.cluster or ("" if elder.spec.clusters else elder.spec.cluster)
    spec = _after(elder, replace(given, root=elder.spec.root, cluster=cluster), keep)
    own = for_job(environment, spec, record=folder.record(spec.job).folder)
    return folder.create_job(spec, request.script.content, as_recorded(own), by=by)


def _grown(elder: State) -> tuple[str, ...]:
    """The elder's options, with what a rule has made of them for its latest submission or its next one."""
    latest = elder.current if elder.due is None else elder.due
    changes = () if latest is None else latest.changes
    names = {it: it.removeprefix("--").partition("=")[0] for it in changes if it.startswith(KEPT)}
    kept = [it for it, name in names.items() if name not in elder.given]
    gone = {names[it] for it in kept}
    if "mem" in gone:
        gone |= MEMORY
    return (*without_options(elder.spec.argv, gone), *kept)


def _after(elder: State, spec: Spec, keep: int | None) -> Spec:
    if elder.spec.generation >= GENERATION_MAX:
        raise UsageError(f"job {elder.spec.job} has generation {GENERATION_MAX}, and none is above it")
    return replace(
        spec,
        job=new_key(),
        generation=elder.spec.generation + 1,
        supersedes=elder.spec.job,
        elders_shared=elder.spec.shared or elder.spec.elders_shared,
        keep=keep,
        start_from=None,
        host=socket.gethostname(),
    )


__all__ = ["make_new", "make_repeated"]
