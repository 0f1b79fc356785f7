"""One job that a person names, with its facts, for the commands that only look."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurm_dispatch.config.site import Site, load_site
from slurm_dispatch.errors import DispatchError, NothingThereError
from slurm_dispatch.state.folder import StateFolder
from slurm_dispatch.state.read import read_jobs
from slurm_dispatch.submit.job import find_job

if TYPE_CHECKING:
    from slurm_dispatch.records.facts import Fact


def one_job(job: str) -> tuple[Site, str, list[Fact]]:
    """The site, the job's key and its facts.

    :raises NothingThereError: there is no such job.
    :raises DispatchError: its record cannot be read.
    """
    site = load_site()
    folder = StateFolder(site.state)
    key = find_job(job, folder, owner_timeout_s=site.owner_timeout_s)
    found = [it for it in folder.jobs() if it.key == key]
    facts = read_jobs(folder, found, deadline_s=site.owner_timeout_s).get(key)
    if facts is None:
        raise NothingThereError(f"job {key} has just been removed")
    if isinstance(facts, DispatchError):
        raise facts
    return site, key, facts


__all__ = ["one_job"]
