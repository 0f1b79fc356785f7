"""Which execution this is: from the environment that the hooks made, or none.

Nothing here touches a filesystem.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurm_dispatch.errors import BadDataError, ConfigurationError, NotAllowedError, UsageError, show
from slurm_dispatch.model.epoch import UNMANAGED, Epoch, parse_epoch
from slurm_dispatch.model.identity import ATTEMPT_LENGTH, check_attempt, check_key, new_attempt
from slurm_dispatch.s3.place import is_place, parse_place

if TYPE_CHECKING:
    from collections.abc import Mapping

SHARED = "SLURM_DISPATCH_SHARED"
"""``1`` for a shared checkpoint: from TaskProlog, which knows the word, and from the wrapper."""
KEEP = "SLURM_DISPATCH_KEEP"
"""What ``--keep`` and ``--no-thin`` said, for a training that publishes itself: ``2,3``, or ``all``."""
FROM = "SLURM_DISPATCH_FROM"
"""What ``--from`` said, for ``dispatch env`` in the command."""
IDENTITY = ("DISPATCH_JOB", "DISPATCH_EPOCH", "DISPATCH_ATTEMPT")
_BASE32 = "abcdefghijklmnopqrstuvwxyz234567"


@dataclass(frozen=True, slots=True)
class Place:
    """One execution as this process sees it.

    :ivar root: absolute path of the checkpoint root.
    :ivar job: the job's key, ``None`` if the run is not managed.
    :ivar epoch: 0 if the run is not managed.
    :ivar rank: of this process in its step, 0 if it is the only one.
    :ivar tasks: processes in the step, 1 outside one.
    :ivar slurm_job: the job's id as Slurm's commands take it, ``None`` outside Slurm.
    :ivar slurm_step: the step that this process is in, ``None`` in a batch script and outside Slurm.
    :ivar shared: the job has a shared checkpoint: the command works in the root itself, and nothing is published.
    :ivar local: for a root in S3: the folder of this host below which the command saves, absolute (``--from``).
    :ivar local_rank: of this process among those of its step on this host.
    """

    root: str
    job: str | None
    epoch: int
    attempt: str
    rank: int = 0
    tasks: int = 1
    slurm_job: str | None = None
    slurm_step: str | None = None
    shared: bool = False
    local: str | None = None
    local_rank: int = 0

    @property
    def generation(self) -> int:
        """The job's generation; only of a managed run."""
        return Epoch.from_int(self.epoch).generation

    @property
    def first(self) -> bool:
        """Whether this process may publish: the first one of its step."""
        return self.rank == 0


def find_place(
    environment: Mapping[str, str],
    *,
    root: str | None,
    require_managed: bool = False,
    local: str | None = None,
    remote: bool = False,
) -> Place:
    """The execution that ``environment`` speaks of.

    :param root: what ``--root`` said; it goes before ``DISPATCH_CHECKPOINT``.
    :param local: what ``--from`` said.
    :param remote: the caller can do its work on a root in S3.
    :raises ConfigurationError: a part of the identity is there and another is not, or one does not parse; or
        the run must be managed, is in a Slurm job, and is not.
    :raises NotAllowedError: the run must be managed, and is not in a Slurm job.
    :raises UsageError: no root.
    """
    slurm_job = _number(environment.get("SLURM_JOB_ID"))
    there = [name for name in IDENTITY if environment.get(name)]
    if there == list(IDENTITY[1:]) and environment["DISPATCH_EPOCH"] == str(UNMANAGED):
        there = []  # `dispatch env` of a run that is not managed
    if there and len(there) < len(IDENTITY):
        missing = ", ".join(name for name in IDENTITY if name not in there)
        raise ConfigurationError(
            f"{there[0]} is set and {missing} is not, so it is unknown which execution this is",
            hint="start the job with dispatch sbatch, or unset all DISPATCH_ variables",
        )
    if not there and require_managed:
        if slurm_job is not None:
            raise ConfigurationError(
                f"Slurm job {slurm_job} has no DISPATCH_ variables and --require-managed is given",
                hint="submit with dispatch sbatch, and see that the site's TaskProlog is installed",
            )
        raise NotAllowedError("not in a Slurm job and --require-managed is given", hint="submit with dispatch sbatch")
    path = root or environment.get("DISPATCH_CHECKPOINT") or ""
    if not path:
        raise UsageError(
            "there is no checkpoint root", hint="give --root PATH, or submit with dispatch sbatch --checkpoint"
        )
    shared = environment.get(SHARED) == "1"
    path = _checked_root(path, absolute=root is None, remote=remote, shared=shared, local=local)
    step = _number(environment.get("SLURM_STEP_ID")) if slurm_job is not None else None
    tasks = int(_number(environment.get("SLURM_STEP_NUM_TASKS")) or "1") if step is not None else 1
    rank = int(_number(environment.get("SLURM_PROCID")) or "0") if slurm_job is not None else 0
    job: str | None = None
    if there:
        job, epoch, attempt = _identity(environment)
    else:
        epoch, attempt = UNMANAGED, _unmanaged_attempt(environment, slurm_job)
    local_rank = int(_number(environment.get("SLURM_LOCALID")) or "0") if step is not None else 0
    local = None if local is None else os.path.abspath(local)
    return Place(path, job, epoch, attempt, rank, max(tasks, 1), slurm_job, step, shared, local, local_rank)


def _checked_root(path: str, *, absolute: bool, remote: bool, shared: bool, local: str | None) -> str:
    """The root's path, absolute, or ``s3://bucket/prefix``.

    :param absolute: it must be given as an absolute path.
    """
    if is_place(path):
        if shared:
            raise UsageError(
                f"checkpoint root {show(path)}: a shared checkpoint is a folder",
                hint="leave --shared-checkpoint out, or give a folder",
            )
        if not remote:
            raise UsageError(
                f"checkpoint root {show(path)}: this is for roots that are folders",
                hint="use a folder, or dispatch-watch --from DIR",
            )
        return str(parse_place(path))
    if local is not None:
        raise UsageError(f"--from is for a root in S3, and {show(path)} is a folder: the command saves into it")
    if "\0" in path or (absolute and not os.path.isabs(path)):
        raise ConfigurationError(f"DISPATCH_CHECKPOINT {show(path)!r} is not an absolute path")
    return os.path.abspath(path)


def _identity(environment: Mapping[str, str]) -> tuple[str, int, str]:
    try:
        job = check_key(environment["DISPATCH_JOB"])
        epoch = parse_epoch(environment["DISPATCH_EPOCH"])
        attempt = check_attempt(environment["DISPATCH_ATTEMPT"])
        Epoch.from_int(epoch)
    except BadDataError as error:
        raise ConfigurationError(
            f"the DISPATCH_ variables are wrong: {error}",
            hint="they are the TaskProlog's to set; do not set them yourself",
        ) from error
    return job, epoch, attempt


def _unmanaged_attempt(environment: Mapping[str, str], slurm_job: str | None) -> str:
    """A fresh attempt, or that of ``dispatch env``; in a Slurm job one that all its ranks and steps compute alike.

    In a Slurm job an inherited one can be that of the job that submitted it, and is not looked at.
    """
    if slurm_job is None:
        given = environment.get("DISPATCH_ATTEMPT")
        try:
            return check_attempt(given) if given else new_attempt()
        except BadDataError as error:
            raise ConfigurationError(f"DISPATCH_ATTEMPT is wrong: {error}", hint="unset it") from error
    names = ("SLURM_CLUSTER_NAME", "SLURM_JOB_ID", "SLURM_RESTART_COUNT", "SLURM_JOB_START_TIME")
    text = "\0".join(["unmanaged", *(environment.get(name, "") for name in names)])
    number = int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest(), "big")
    return "".join(_BASE32[(number >> (5 * i)) & 31] for i in range(ATTEMPT_LENGTH))


def _number(text: str | None) -> str | None:
    """A decimal number of the environment, ``None`` for anything else: others set these names too."""
    return text if text and text.isascii() and text.isdigit() and len(text) <= 10 else None


INHERITED = (
    "DISPATCH_DIR", "DISPATCH_RESUME", "DISPATCH_RESUME_STEP",
    "SLURM_DISPATCH_ATTEMPT", "SLURM_DISPATCH_DIR", "SLURM_DISPATCH_RESUME", "SLURM_DISPATCH_RESUME_STEP", KEEP,
    FROM,
)  # fmt: skip
"""What is taken away before it is set: an outer job's values must not reach this one's command."""


def variables(place: Place, directory: str, resume: str | None, step: int | None) -> dict[str, str]:
    """What the command's environment gets; every name of :data:`INHERITED` that is not in it is unset there."""
    values = {
        "DISPATCH_CHECKPOINT": place.root,
        "DISPATCH_DIR": directory,
        "SLURM_DISPATCH_ATTEMPT": place.attempt,
        "SLURM_DISPATCH_DIR": directory,
    }
    if place.local is not None:
        values[FROM] = place.local
    if resume is not None:
        values["DISPATCH_RESUME"] = values["SLURM_DISPATCH_RESUME"] = resume
        if step is not None:
            values["DISPATCH_RESUME_STEP"] = values["SLURM_DISPATCH_RESUME_STEP"] = str(step)
    return values


def keep_text(own: int, root: int, *, thin: bool) -> str:
    """The value of :data:`KEEP`."""
    return f"{own},{root}" if thin else "all"


def parse_keep(text: str) -> tuple[int, int] | None:
    """The inverse of :func:`keep_text`; ``None``: nothing is removed.

    :raises ConfigurationError: it is neither.
    """
    own, _, root = text.partition(",")
    if text == "all":
        return None
    if _number(own) is None or _number(root) is None or 0 in {int(own), int(root)}:
        raise ConfigurationError(f"{KEEP} {show(text)!r} is wrong", hint="it is dispatch-watch's to set")
    return int(own), int(root)
