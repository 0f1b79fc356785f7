"""The caller's own open jobs, for what is said or refused when he submits another."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from slurm_dispatch.errors import DispatchError, NotAllowedError, show
from slurm_dispatch.records.fold import fold
from slurm_dispatch.slurm.dependency import mentioned
from slurm_dispatch.state.folder import StateFolder
from slurm_dispatch.state.read import own_jobs, read_jobs
from slurm_dispatch.submit.depends import earlier, notes

if TYPE_CHECKING:
    from slurm_dispatch.config.site import Site
    from slurm_dispatch.records.spec import Spec
    from slurm_dispatch.submit.request import Request


def open_specs(folder: StateFolder, site: Site) -> list[Spec]:
    """The specifications of the open jobs, as updated; a record that is broken or still in the making is none."""
    found = []
    for facts in read_jobs(folder, own_jobs(folder, os.geteuid()), deadline_s=site.owner_timeout_s).values():
        if isinstance(facts, DispatchError):
            continue
        try:
            state = fold(facts)
        except DispatchError:
            continue
        if state.closed is None:
            found.append(state.spec)
    return found


def check_open_jobs(folder: StateFolder, spec: Spec, site: Site) -> None:
    """Refuse one more job than a limit lets its user have open at a time.

    :raises NotAllowedError: names the limit.
    """
    counted = [limit for limit in site.limit if limit.open_jobs is not None]
    counted = [limit for limit in counted if limit.names(spec.user, spec.account, spec.partition)]
    if not counted:
        return
    others = open_specs(folder, site)
    for limit in counted:
        here = sum(1 for other in others if limit.names(other.user, other.account, other.partition))
        if limit.open_jobs is not None and here >= limit.open_jobs:
            raise NotAllowedError(
                f"you have {here} open jobs, and {limit} allows {limit.open_jobs}",
                hint="wait until one has ended, or close one with dispatch cancel",
            )


def dependency_notes(request: Request, site: Site) -> list[str]:
    """What a person should know of a dependency on jobs of his own (C084). Records are read only if there is one."""
    text = request.spec.dependency
    ids = mentioned(text)
    if not ids:
        return []
    try:
        found = earlier(StateFolder(site.state), ids, deadline_s=site.owner_timeout_s)
    except DispatchError:
        return []  # the notes say that it does not answer
    return notes(text, found)


def older_scripts(request: Request, site: Site) -> list[str]:
    """A note for each open job that was submitted from the same script and whose copy of it is another."""
    if request.script.path is None:
        return []
    here = os.path.realpath(request.script.path)
    try:
        specs = open_specs(StateFolder(site.state), site)
    except DispatchError:
        return []  # the notes say that it does not answer
    found = []
    for spec in sorted(specs, key=lambda it: it.job):
        if spec.script_name is None or spec.script_sha256 == request.spec.script_sha256:
            continue
        if os.path.realpath(os.path.join(spec.workdir, spec.script_name)) == here:
            name = show(request.line.script)
            text = f"the open job {spec.job} ({show(spec.name)}) goes on with the {name} that it was submitted with"
            found.append(f"{text}, which is another: dispatch update {spec.job} --script {name} gives it this one")
    return found
