"""Find the job that a person means."""

from __future__ import annotations

import json
import os
import pwd
from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurm_dispatch.config.site import load_site
from slurm_dispatch.errors import BadDataError, DispatchError, NothingThereError, UsageError, show
from slurm_dispatch.model.identity import check_key
from slurm_dispatch.state.as_user import groups_of, in_child
from slurm_dispatch.state.folder import JobFolder, StateFolder

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from slurm_dispatch.records.facts import Fact

SHOWN_MAX = 10
"""Jobs that an ambiguous name lists."""


@dataclass(frozen=True, slots=True)
class Names:
    """What a job can be called by."""

    key: str
    name: str
    slurm_job_ids: tuple[int, ...]
    closed: bool


def find_job(text: str, folder: StateFolder | None = None, *, owner_timeout_s: float = 20.0) -> str:
    """The key of the job that ``text`` names: its key, a Slurm job id that it ever had, or its unique name.

    Looks at the caller's own records; root looks at all, each in its owner's child.

    :param folder: the state folder; the site's unless given.
    :raises NothingThereError: no such job.
    :raises UsageError: more than one; all are named.
    :raises BadDataError: none is found, and some records could not be read.
    """
    if folder is None:
        site = load_site()
        folder, owner_timeout_s = StateFolder(site.state), site.owner_timeout_s
    mine = os.geteuid()
    jobs = [job for job in folder.jobs() if mine in {0, job.uid}]
    if text in {job.key for job in jobs}:
        return text
    found: list[Names] = []
    broken: list[str] = []
    for job in jobs:
        try:
            names = _names(folder, job, owner_timeout_s)
        except NothingThereError:
            continue  # its making was cut short: no job
        except DispatchError as error:
            broken.append(f"{job.key} ({error})")
            continue
        if _is_named(names, text):
            found.append(names)
    return _only_one(text, found, broken)


def _is_named(names: Names, text: str) -> bool:
    if text.isascii() and text.isdigit() and len(text) <= 10 and int(text) in names.slurm_job_ids:
        return True
    return names.name == text


def _only_one(text: str, found: Sequence[Names], broken: Sequence[str]) -> str:
    if len(found) == 1:
        return found[0].key
    if found:
        # An open job beside closed ones of its name is not taken for granted: cancelling the wrong one is final.
        words = [f"{names.key} ({'closed' if names.closed else 'open'})" for names in found[:SHOWN_MAX]]
        more = f" and {len(found) - SHOWN_MAX} more" if len(found) > SHOWN_MAX else ""
        raise UsageError(f"{show(text)!r} names {len(found)} jobs: {', '.join(words)}{more}", hint="give the key")
    if broken:
        some = ", ".join(broken[:3])
        raise BadDataError(f"no job is named {show(text)!r}, and some records cannot be read: {some}")
    raise NothingThereError(
        f"no job of yours is named {show(text)!r}",
        hint="dispatch status lists them; give a key, a Slurm job id or a name",
    )


def _names(folder: StateFolder, job: JobFolder, owner_timeout_s: float) -> Names:
    record = folder.record(check_key(job.key))
    if job.uid == os.geteuid():
        return _of_facts(job.key, record.read())
    try:
        account = pwd.getpwuid(job.uid)
    except KeyError as error:
        raise NothingThereError(f"job {job.key} belongs to uid {job.uid}, which has no name here") from error

    def work() -> bytes:
        names = _of_facts(job.key, record.read())
        return json.dumps([names.name, list(names.slurm_job_ids), names.closed]).encode()

    groups = groups_of(account.pw_name, account.pw_gid)
    name, ids, closed = json.loads(in_child(job.uid, account.pw_gid, groups, work, owner_timeout_s))
    return Names(job.key, str(name), tuple(int(number) for number in ids), bool(closed))


def _of_facts(key: str, facts: Iterable[Fact]) -> Names:
    name = ""
    ids: list[int] = []
    closed = False
    for fact in facts:
        if fact.kind == "spec":
            name = fact.body["name"]
        elif fact.kind in {"submitted", "stray"}:
            ids.append(fact.body["slurm_job_id"])
        closed = closed or fact.kind == "closed"
    return Names(key, name, tuple(ids), closed)
