"""A root in S3 and a folder of this host: where the command saves, and where what it resumes from is brought.

With ``--from DIR`` the command's folder is ``DIR/<attempt>``, and the save to resume from is
``DIR/<attempt>/resume/<digest of its publication>/<its name>``. It has that name only when all of it is there, so
whoever finds it needs no other sign. Of the tasks of a host the first one brings it and the others wait for it.
Without it the command itself reads and writes in S3, below ``s3://.../exec/<attempt>``.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from dataclasses import replace
from typing import TYPE_CHECKING

from slurm_dispatch.errors import (
    AbsentError,
    CannotCreateError,
    StoreError,
    TransientError,
    show,
    store_error,
)
from slurm_dispatch.model.publication import parse_name
from slurm_dispatch.s3.place import is_place, parse_place
from slurm_dispatch.s3.take import TAKES, take_latest
from slurm_dispatch.store.best import read_best, within
from slurm_dispatch.store.choice import Choice, begun_here, choose_by, is_there, wish
from slurm_dispatch.store.folders import list_fresh
from slurm_dispatch.store.remove import remove_quietly
from slurm_dispatch.watch.say import say

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from slurm_dispatch.s3.foreign import Foreign
    from slurm_dispatch.s3.root import S3Root
    from slurm_dispatch.store.best import Best
    from slurm_dispatch.store.keep import Taken
    from slurm_dispatch.store.root import Save
    from slurm_dispatch.watch.place import Place

DIGEST = re.compile(rb"[0-9a-f]{12}\Z")
"""The name of a folder in ``resume/``."""


def open_remote(place: Place, *, timeout_s: float | None = None) -> S3Root:
    """The root in S3. Only in a process that forks no more: the client's threads do not outlive a fork."""
    from slurm_dispatch.s3.root import open_s3_root

    return open_s3_root(place.root, say=say, timeout_s=timeout_s)


def claim_remote(place: Place, *, timeout_s: float | None = None) -> S3Root:
    """The same, proved to make one name once, and claimed for the execution's job.

    :raises CannotCreateError: the store does not keep what the protocol needs, or the root is another job's.
    """
    root = open_remote(place, timeout_s=timeout_s)
    root.prove(place.attempt)  # first: a claim on a store that ignores the condition says nothing
    if place.job is not None:
        root.claim(place.job, place.generation)
    return root


def directory(place: Place) -> str:
    """What ``DISPATCH_DIR`` is: ``DIR/<attempt>``, or the execution's place in S3 itself."""
    if place.local is not None:
        return os.path.join(place.local, place.attempt)
    remote = parse_place(place.root)
    return remote.address(remote.key("exec", place.attempt))


def make_local(place: Place) -> str:
    """Make ``DIR/<attempt>``; DIR too, if the folder that it lies in is there: a missing mount is never papered over.

    :raises StoreError: it cannot be made, or what is there is another user's.
    """
    folder = directory(place)
    for path in (os.path.dirname(folder), folder):
        try:
            os.mkdir(path)
        except FileExistsError:
            continue
        except FileNotFoundError as error:
            raise AbsentError(
                f"--from {show(place.local or '')}: the folder that it lies in is not there on this host",
                hint="name a folder of each host's own disk",
            ) from error
        except OSError as error:
            raise store_error(error, "making the folder of --from", path) from error
    try:
        found = os.lstat(folder)
    except OSError as error:
        raise store_error(error, "looking at the folder of --from", folder) from error
    if not stat.S_ISDIR(found.st_mode):
        raise StoreError(f"{show(folder)} is no folder, and the command would save there")
    if found.st_uid != os.geteuid():
        # What lies there is taken for a save that was brought, and a save can be a program.
        raise StoreError(f"{show(folder)} is another user's", hint="give a folder that only you can write to")
    return folder


def _resume(place: Place) -> str:
    return os.path.join(directory(place), "resume")


def local_path(place: Place, source: str) -> str:
    """Where this host has, or will have, the save of the publication ``source``."""
    return host_path(_resume(place), source, os.fsdecode(parse_name(source).path))


def _digest(which: str) -> str:
    return hashlib.sha256(which.encode("utf-8", "surrogateescape")).hexdigest()[:12]


def forget_brought(place: Place, choice: Choice) -> None:
    """Remove from this host what was brought for earlier turns of the command, which have ended: whole saves.

    What cannot be removed now goes in the next turn.
    """
    top = os.fsencode(_resume(place))
    which = choice.source or choice.resume
    stays = None if which is None else _digest(which).encode("ascii")
    for name in names_here(top):
        if DIGEST.match(name) and name != stays:
            remove_quietly(os.path.join(top, name))


def names_here(folder: bytes) -> list[bytes]:
    """The names in a folder of this host; none where it is not there, or cannot be listed now."""
    try:
        return list_fresh(folder)
    except StoreError:
        return []


def host_path(folder: str, which: str, path: str) -> str:
    """Where in ``folder`` the save at ``path`` has its place: another one for each save that it can be.

    :param which: says which save it is.
    """
    return os.path.join(folder, _digest(which), os.path.basename(path))


def fetched(path: str, fetch: Callable[[str], None]) -> str:
    """``path``, which ``fetch`` makes whole or not at all, unless it is there.

    :raises AbsentError: the save has gone.
    :raises StoreError: the store, or the disk; nothing but a ``.tmp-`` name is left.
    """
    if os.path.lexists(path):
        return path
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
    except OSError as error:
        raise store_error(error, "making folder", os.path.dirname(path)) from error
    try:
        fetch(path)
    except (CannotCreateError, StoreError):
        if not os.path.lexists(path):
            raise
        # Another process of this host has brought it meanwhile.
    return path


def begin_below(folder: str, start_from: str, moving: Callable[[float], None] = lambda _: None) -> str:
    """What ``--start-from`` names as a path of this host: one in S3 is brought below ``folder``.

    :raises BadDataError: it is not there, or is not whole.
    """
    if not is_place(start_from):
        return begun_here(start_from)
    foreign = _foreign(start_from)
    return fetched(
        host_path(folder, foreign.path, foreign.path), lambda path: foreign.bring(path, say=say, moving=moving)
    )


def _foreign(start_from: str) -> Foreign:
    from slurm_dispatch.s3.foreign import Foreign

    return Foreign(start_from, what="the save to start from,")


def bring(root: S3Root, place: Place, source: str, moving: Callable[[float], None] = lambda _: None) -> str:
    """Bring the save of the publication ``source`` to this host, whole or not at all; returns its path here.

    :raises AbsentError: it has gone.
    :raises StoreError: the store, or the disk; nothing but a ``.tmp-`` name is left.
    """
    return _bring(root, _resume(place), source, moving)


def _bring(root: S3Root, folder: str, source: str, moving: Callable[[float], None]) -> str:
    from slurm_dispatch.s3.transfer import download

    relative = parse_name(source).path

    def fetch(path: str) -> None:
        download(root, relative, path, say=say, moving=moving)

    return fetched(host_path(folder, source, os.fsdecode(relative)), fetch)


def bring_latest(root: S3Root, folder: str, *, fallback: bool = False) -> Taken | None:
    """The latest save, with its path below ``folder`` on this host; ``None`` if there is no publication.

    One that goes while it is brought has been outranked: the latest is asked for anew.

    :raises BadDataError: a part of it is gone, and it is the latest still.
    :raises TransientError: each save that was latest went while it was brought.
    """
    return take_latest(
        root, lambda save: _bring(root, folder, save.publication.name, lambda _: None), fallback=fallback
    )


def bring_best(root: S3Root, folder: str, best: Best) -> str:
    """The path of a best save below ``folder`` on this host, brought if it is not there.

    :raises AbsentError: it has gone: its execution has a better one now, or a later one has it.
    """
    from slurm_dispatch.s3.transfer import download

    relative = within(root, best.path)
    attempt = relative.split(b"/")[1].decode("ascii")

    def fetch(path: str) -> None:
        download(root, relative, path, say=say, still=lambda: read_best(root, attempt) == best)

    which = f"{best.path} {best.epoch} {best.step} {best.score!r}"
    return fetched(host_path(folder, which, best.path), fetch)


def choose_and_bring(
    root: S3Root,
    place: Place,
    *,
    start_from: str | None,
    again: bool = False,
    moving: Callable[[float], None] = lambda _: None,
) -> Choice:
    """The execution's choice, made if there is none, with the path that the save has on this host.

    What is chosen is here before the choice is made, so a save that goes meanwhile is never one that others wait for.

    :raises TransientError: each save that was latest went while it was brought.
    """

    def take(save: Save) -> str:
        bring(root, place, save.publication.name, moving)
        return save.path

    def still(choice: Choice) -> bool:
        here = choice.source is not None and os.path.lexists(local_path(place, choice.source))
        return here or _is_there(root, choice)

    def begin(start_from: str) -> str:
        begin_below(_resume(place), start_from, moving)
        return _foreign(start_from).path if is_place(start_from) else start_from

    for _ in range(TAKES):
        choice = choose_by(
            root,
            place.attempt,
            lambda: _taken(root, place, take),
            epoch=place.epoch,
            start_from=start_from,
            again=again,
            look=still,
            begin=begin,
        )
        try:
            return brought(root, place, choice, moving)
        except AbsentError:
            continue  # another process chose it, and it went before it was here
    raise TransientError(f"what this execution resumes from went each of {TAKES} times that it was chosen")


def choose_remote(root: S3Root, place: Place, *, start_from: str | None, again: bool = False) -> Choice:
    """The execution's choice, made if there is none, where the command reads saves in S3 itself.

    :raises BadDataError: a part of the save is gone.
    """
    from slurm_dispatch.s3.manifest import check_whole

    def take(save: Save) -> str:
        check_whole(root, save.publication.path)
        return save.path

    def begin(start_from: str) -> str:
        if not is_place(start_from):
            return begun_here(start_from)
        foreign = _foreign(start_from)
        foreign.check()
        return foreign.path

    return choose_by(
        root,
        place.attempt,
        lambda: _taken(root, place, take),
        epoch=place.epoch,
        start_from=start_from,
        again=again,
        look=lambda choice: _is_there(root, choice),
        begin=begin,
    )


def _taken(root: S3Root, place: Place, take: Callable[[Save], str]) -> Taken | None:
    """The latest save; the execution says before it reads one that it will resume from it."""
    return take_latest(root, take, wish=lambda publication: wish(root, place.attempt, place.epoch, publication))


def _is_there(root: S3Root, choice: Choice) -> bool:
    """Whether what was chosen can still be resumed from; that of a first start, and what a person named in S3, always
    can."""
    if choice.source is None:
        return (choice.resume is not None and is_place(choice.resume)) or is_there(choice)
    return bool(root.save_objects(parse_name(choice.source).path, root.bucket.deadline(), first=1))


def brought(root: S3Root, place: Place, choice: Choice, moving: Callable[[float], None]) -> Choice:
    """The choice with the path of its save on this host, brought if it is not there.

    :raises AbsentError: the save has gone.
    """
    if choice.source is not None:
        return replace(choice, resume=bring(root, place, choice.source, moving))
    if choice.resume is None or not is_place(choice.resume):
        return choice
    return replace(choice, resume=begin_below(_resume(place), choice.resume, moving))


def follow_choice(root: S3Root, place: Place, choice: Choice, moving: Callable[[float], None]) -> Choice | None:
    """What another rank than the first makes of the choice: the path on its host, or ``None``: not yet.

    :raises TransientError: the save went before this host had it: ranks must not resume from different saves.
    """
    if place.local is None and choice.resume is not None and is_place(choice.resume):
        return choice if _is_there(root, choice) else None  # of an earlier step: the first rank chooses anew
    path = _path_here(place, choice)
    if path is None or (choice.resume is not None and not is_place(choice.resume)):
        return choice if path is None or os.path.lexists(path) else None
    if os.path.lexists(path):
        return replace(choice, resume=path)
    if place.local_rank:
        return None
    try:
        return brought(root, place, choice, moving)
    except AbsentError as error:
        which = choice.source or choice.resume
        raise TransientError(
            f"the save {which}, which this execution resumes from, went before rank {place.rank} had it",
            hint="a newer one was published meanwhile: start again",
        ) from error


def read_local(place: Place, choice: Choice) -> Choice:
    """The choice as this host has it: without a path where the save is not here."""
    if place.local is None:
        return choice
    path = _path_here(place, choice)
    if path is None:
        return choice
    return replace(choice, resume=path) if os.path.lexists(path) else replace(choice, resume=None, step=None)


def _path_here(place: Place, choice: Choice) -> str | None:
    """Where this host has, or will have, what was chosen; ``None`` on a first start."""
    if choice.source is not None:
        return local_path(place, choice.source)
    if choice.resume is None or not is_place(choice.resume):
        return choice.resume
    return host_path(_resume(place), choice.resume, choice.resume)


def of_other_hosts(place: Place, environment: Mapping[str, str]) -> str | None:
    """One line where more hosts than this one belong to the training, and what that means for ``--from``."""
    names = ("SLURM_JOB_NUM_NODES",) if place.slurm_step is None else ("SLURM_STEP_NUM_NODES", "SLURM_JOB_NUM_NODES")
    hosts = next((environment[name] for name in names if environment.get(name)), "1")
    if place.local is None or place.slurm_job is None or not hosts.isdigit() or int(hosts) < 2:
        return None
    if place.slurm_step is None:
        return (
            f"--from on {hosts} hosts: only this one has its folder and the save to resume from; start a helper on "
            "each with srun dispatch-watch --from DIR -- COMMAND"
        )
    return (
        f"--from on {hosts} hosts: only what is saved on the host of rank 0 is uploaded; a saver of which each host "
        "writes a part must write to S3 itself, or to a shared filesystem"
    )


def is_remote(place: Place) -> bool:
    """Whether the root is in S3."""
    return is_place(place.root)


__all__ = [
    "DIGEST", "begin_below", "bring", "bring_best", "bring_latest", "brought",
    "choose_and_bring", "choose_remote", "claim_remote", "directory", "fetched",
    "follow_choice", "forget_brought", "host_path", "is_remote", "local_path", "make_local", "names_here",
    "of_other_hosts", "open_remote", "read_local",
]  # fmt: skip
