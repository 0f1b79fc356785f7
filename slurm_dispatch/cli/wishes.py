"""What the commands that change a job have in common: find it, and work on its record with its owner's rights."""

from __future__ import annotations

import json
import os
import socket
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from slurm_dispatch.config.site import Site, load_site
from slurm_dispatch.controller import wish
from slurm_dispatch.controller.job import Means, means_of
from slurm_dispatch.errors import BadDataError, NothingThereError
from slurm_dispatch.state.as_user import in_child
from slurm_dispatch.state.folder import StateFolder
from slurm_dispatch.state.users import identity, own_name, user_name
from slurm_dispatch.submit.job import find_job

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurm_dispatch.controller.view import View
    from slurm_dispatch.state.folder import JobFolder
    from slurm_dispatch.state.jobs import Record

QUESTIONS = 3
"""How many questions to Slurm one command may wait for."""


@dataclass(slots=True)
class Bench:
    """What a command works with, made once."""

    site: Site
    folder: StateFolder
    means: Means
    host: str
    _view: View | None = field(default=None, init=False)

    def view(self) -> View:
        """What Slurm says, asked once: also where many jobs are worked on, each in a child of its own."""
        if self._view is None:
            self._view = wish.see(self.means, host=self.host, cluster=self.site.cluster or "")
        return self._view

    def submitted(self, record: Record, *, adopted: bool = False) -> str:
        """See :func:`slurm_dispatch.controller.wish.submitted`."""
        return wish.submitted(record, self.means, self.view(), adopted=adopted)

    def key(self, job: str) -> str:
        """The key of the job that the person means."""
        return find_job(job, self.folder, owner_timeout_s=self.site.owner_timeout_s)

    def is_mine(self, key: str) -> bool:
        """Whether the caller is the job's owner; root acts for others, and of his nothing goes into their jobs."""
        return self._folder_of(key).uid == os.geteuid()

    def owner(self, key: str) -> str:
        """The owner's name."""
        return user_name(self._folder_of(key).uid)

    def as_owner(
        self,
        key: str,
        work: Callable[[Record], dict[str, Any]],
        *,
        submits: bool = False,
        more_s: float = 0.0,
    ) -> dict[str, Any]:
        """``work`` on the record in a child with its owner's rights, and with a deadline.

        :param submits: it may call sbatch, and uses :meth:`view`.
        :param more_s: what it may take beside that.
        :returns: what ``work`` gave, by way of JSON.
        :raises NothingThereError: the job has just been removed.
        """
        found = self._folder_of(key)
        record = self.folder.record(key)
        site = self.site
        deadline_s = site.owner_timeout_s + QUESTIONS * site.query_timeout_s + more_s
        if submits:
            deadline_s += site.submit_timeout_s
            self.view()  # before the child is made, which has a deadline and hands nothing of it on
        answer = in_child(
            found.uid, *identity(found.uid), lambda: json.dumps(work(record)).encode("ascii"), deadline_s
        )
        try:
            content = json.loads(answer)
        except ValueError as error:
            raise BadDataError(f"the owner's child answered nonsense: {error}") from error
        if not isinstance(content, dict):
            raise BadDataError("the owner's child answered nonsense: no object")
        return content

    def _folder_of(self, key: str) -> JobFolder:
        found = self.folder.job(key)
        if found is None:
            raise NothingThereError(f"job {key} has just been removed")
        return found


def bench() -> Bench:
    """The site as it is configured here, and facts by the person who calls."""
    site = load_site()
    host = socket.gethostname()
    means = means_of(site, f"user:{own_name()}@{host}")
    return Bench(site, StateFolder(site.state), means, host)


__all__ = ["Bench", "bench"]
