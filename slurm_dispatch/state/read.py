"""Reading several jobs at once, each with its owner's rights."""

from __future__ import annotations

import json
import os
import pwd
from typing import TYPE_CHECKING

from slurm_dispatch import errors
from slurm_dispatch.errors import DispatchError, NotAllowedError
from slurm_dispatch.state.as_user import OWNER_TIMEOUT_S, groups_of, in_child

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slurm_dispatch.records.facts import Fact
    from slurm_dispatch.state.folder import JobFolder, StateFolder

AT_ONCE = 100
"""Records that one child reads: a broken or hanging one puts off no more than these."""

Read = dict[str, "list[Fact] | DispatchError"]


def read_jobs(folder: StateFolder, jobs: Sequence[JobFolder], *, deadline_s: float = OWNER_TIMEOUT_S) -> Read:
    """The facts of each job, or why they cannot be read; one that is broken never stops the others.

    The caller's own are read at once; root reads those of others in a child with the owner's rights.
    """
    found: Read = {}
    for uid in sorted({job.uid for job in jobs}):
        keys = [job.key for job in jobs if job.uid == uid]
        if uid == os.geteuid():
            found.update(_unpack(folder, keys, _pack(folder, keys)))
            continue
        for first in range(0, len(keys), AT_ONCE):
            part = keys[first : first + AT_ONCE]
            try:
                found.update(_unpack(folder, part, _as_owner(folder, uid, part, deadline_s)))
            except DispatchError as error:
                found.update(dict.fromkeys(part, error))
    return found


def own_jobs(folder: StateFolder, uid: int | None) -> list[JobFolder]:
    """The jobs of ``uid``; all there are for ``None``."""
    return [job for job in folder.jobs() if uid is None or job.uid == uid]


def _as_owner(folder: StateFolder, uid: int, keys: Sequence[str], deadline_s: float) -> bytes:
    try:
        user = pwd.getpwuid(uid)
    except KeyError as error:
        raise NotAllowedError(f"uid {uid} is not known on this host") from error
    groups = groups_of(user.pw_name, user.pw_gid) if os.geteuid() == 0 else []
    return in_child(uid, user.pw_gid, groups, lambda: _pack(folder, keys), deadline_s)


def _pack(folder: StateFolder, keys: Sequence[str]) -> bytes:
    content: dict[str, object] = {}
    for key in keys:
        try:
            content[key] = [data.decode("latin-1") for data in folder.record(key).read_bytes()]
        except DispatchError as error:
            content[key] = {"class": type(error).__name__, "message": str(error), "hint": error.hint}
    return json.dumps(content).encode("ascii")


def _unpack(folder: StateFolder, keys: Sequence[str], packed: bytes) -> Read:
    """What :func:`_pack` made; it comes from a process of the owner's, so each part is checked."""
    found: Read = {}
    try:
        content = json.loads(packed)
        for key in keys:
            item = content[key]
            if isinstance(item, dict):
                kind = getattr(errors, str(item["class"]), DispatchError)
                safe = kind if isinstance(kind, type) and issubclass(kind, DispatchError) else DispatchError
                found[key] = safe(str(item["message"]), hint=str(item["hint"]))
                continue
            try:
                found[key] = folder.record(key).parse([text.encode("latin-1") for text in item])
            except DispatchError as error:
                found[key] = error
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise errors.BadDataError(f"the answer about {len(keys)} jobs does not parse: {error}") from error
    return found
