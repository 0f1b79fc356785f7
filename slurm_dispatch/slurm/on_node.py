"""What the hooks keep on a node about executions: the execution files, and what outlives a reboot in the spool."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurm_dispatch.durable import read_regular
from slurm_dispatch.errors import BadDataError, StoreError
from slurm_dispatch.model.identity import check_attempt

if TYPE_CHECKING:
    from collections.abc import Callable

RUN = "/run/slurm-dispatch"
"""The folder of the execution files."""
SETTINGS = "/etc/slurm-dispatch/node.conf"
SPOOL = "/var/spool/slurm-dispatch"
"""The spool, unless the node's settings name another."""
SIZE_MAX = 65536
BEGUN = "begun."
"""Prefix of what is kept over a reboot, as ``dispatch_hooks.boots`` writes it."""


@dataclass(frozen=True, slots=True)
class OnNode:
    """An execution as a node knows it; ``boot``: of what is kept over a reboot, otherwise empty."""

    attempt: str
    slurm_job_id: int
    uid: int | None
    boot: str = ""


def executions(folder: str = RUN) -> list[OnNode]:
    """The executions whose files are there; empty where the folder is not there or is not the site's own."""
    return _in(folder, lambda name: name.replace(".", "").isdigit())


def begun(folder: str) -> list[OnNode]:
    """The executions of shared jobs that the spool keeps, for root only."""
    return _in(folder, lambda name: name.startswith(BEGUN))


def spool_of(settings: str = SETTINGS) -> str:
    """The folder that the hooks' settings name, or their default."""
    try:
        text = read_regular(settings, SIZE_MAX).decode("utf-8", "replace")
    except StoreError:
        return SPOOL
    for line in text.split("\n"):
        name, equals, value = line.partition("=")
        if equals and name.strip() == "spool" and value.strip().startswith("/"):
            return value.strip()
    return SPOOL


def _in(folder: str, wanted: Callable[[str], bool]) -> list[OnNode]:
    try:
        found = os.lstat(folder)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid not in {0, os.geteuid()} or found.st_mode & 0o022:
            return []
        names = sorted(name for name in os.listdir(folder) if wanted(name))
    except OSError:
        return []
    result = []
    for name in names:
        try:
            result.append(_parse(read_regular(os.path.join(folder, name), SIZE_MAX)))
        except (StoreError, ValueError, BadDataError):
            continue  # it is gone, or none of the hooks'
    return result


def _parse(data: bytes) -> OnNode:
    fields: dict[str, str] = {}
    for line in data.decode("ascii").split("\n"):
        name, equals, value = line.partition("=")
        if equals:
            fields.setdefault(name, value)
    if fields.get("DISPATCH_EXECUTION") != "1":
        raise ValueError("another version")
    if fields.get("HOST", os.uname().nodename) != os.uname().nodename:
        raise ValueError("of another host: a copy of its disk")
    attempt = fields.get("DISPATCH_ATTEMPT", "")
    check_attempt(attempt)
    uid = int(fields["UID"]) if "UID" in fields else None
    return OnNode(attempt, int(fields.get("JOB_ID", "")), uid, fields.get("BOOT", ""))


__all__ = ["RUN", "SETTINGS", "OnNode", "begun", "executions", "spool_of"]
