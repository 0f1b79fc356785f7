"""Whether anything of an execution runs on this node: what ``dispatch ps`` looks at, by psutil.

The rule is that of the Epilog (``hooks/python/dispatch_hooks/processes.py``), and the same tests hold both to it: a
process is left if it carries the execution's attempt in its environment, if it is in the job's cgroup, or if it is
the owner's and not of another live job: that job's attempt or cgroup says so. Threads of the kernel, dead processes,
process 1 and the caller are not counted.
"""

from __future__ import annotations

import errno
import os
import re
import time
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Iterable

LEFT_MAX = 32
"""Processes that are named."""
ROUNDS_MAX = 4
"""How often the list of processes is read at most: again while it has new ones, since a process that forks and ends
could hide from one reading."""
ENVIRONMENT_MAX = 16 << 20
"""Bytes of an environment that are read."""
EXEC_S = 0.05
"""A process that begins a program shows no environment until that is loaded."""
_NAMES = (b"DISPATCH_ATTEMPT=", b"SLURM_DISPATCH_ATTEMPT=")
_KERNEL_THREAD = 0x00200000
_GONE = frozenset({errno.ENOENT, errno.ESRCH})
_BY_JOB_ID = re.compile(rb"job_[0-9]+\Z")

CARRIES = "carries the attempt"
IN_CGROUP = "is in the job's cgroup"
OWNERS = "is the owner's, of no other live job"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to look for.

    :param uid: the owner's, or ``None``: then nothing found is no proof.
    :param jobs: the Slurm job ids whose cgroups are the job's.
    :param sluid: the name of its cgroup from Slurm 26.05 on, if it is known.
    :param living: attempts of the owner's other executions on the node.
    :param again: those of them that have the same Slurm job id.
    :param booted: the node has booted since the execution began: what is only the owner's is not of it.
    """

    attempt: str
    uid: int | None
    jobs: frozenset[int] = frozenset()
    sluid: str = ""
    living: frozenset[str] = frozenset()
    again: frozenset[str] = frozenset()
    booted: bool = False

    @property
    def cgroups(self) -> frozenset[bytes]:
        """The names that the job's cgroup can have."""
        names = [f"job_{job}" for job in self.jobs]
        return frozenset(name.encode() for name in (*names, self.sluid) if name)


@dataclass(frozen=True, slots=True)
class Left:
    """A process that is left, and why it counts."""

    pid: int
    uid: int
    why: str


@dataclass(slots=True)
class Scan:
    """What was found.

    :param left: at most :data:`LEFT_MAX`, by number.
    :param troubles: why nothing found would be no proof; empty if everything was seen.
    """

    left: list[Left] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)

    @property
    def answer(self) -> str:
        """``clean``, ``left``, or ``unknown`` where nothing was found and not everything was seen."""
        if self.left:
            return "left"
        return "unknown" if self.troubles else "clean"


def scan(
    wanted: Wanted, proc: str = "/proc", *, deadline: float = float("inf"), besides: int | None = None
) -> Scan:
    """Look at every process of the node.

    :param besides: one more process that is not counted: the caller's parent, where it searches in a child.
    :param deadline: by ``time.monotonic()``; what was not looked at by then is a trouble.
    """
    found = Scan()
    if os.geteuid() != 0:
        found.troubles.append("only root sees the environments of others")
    if wanted.uid is None and not wanted.booted:
        found.troubles.append("nothing tells who its owner is (--uid)")
    elif wanted.uid == 0 and not wanted.booted:
        found.troubles.append("nothing tells the owner's processes from the node's own")
    seen = {1, os.getpid()} | ({besides} if besides is not None else set())
    psutil.PROCFS_PATH = proc
    try:
        if _enclosed(proc):
            found.troubles.append("this runs in a namespace of a job and does not see the node's processes")
        for _ in range(ROUNDS_MAX):
            new = [pid for pid in psutil.pids() if pid not in seen]
            if not new:
                break
            seen.update(new)
            for pid in new:
                if time.monotonic() > deadline:
                    found.troubles.append("not all processes were looked at in time")
                    break
                _look(found, wanted, pid, f"{proc}/{pid}")
    finally:
        psutil.PROCFS_PATH = "/proc"
    found.left = sorted(found.left, key=lambda it: it.pid)[:LEFT_MAX]
    return found


def _look(found: Scan, wanted: Wanted, pid: int, path: str) -> None:
    try:
        uid = os.stat(path).st_uid  # the effective user, even of a process that cannot be traced
        why = _why(wanted, uid, path)
    except OSError as error:
        if error.errno not in _GONE and (os.geteuid() == 0 or error.errno not in {errno.EACCES, errno.EPERM}):
            found.troubles.append(f"process {pid}: {error.strerror}")
        return
    if why == "?":
        found.troubles.append(f"process {pid} is in a cgroup of which nobody told whose it is")
    elif why:
        found.left.append(Left(pid, uid, why))


def _why(wanted: Wanted, uid: int, path: str) -> str:
    """Why the process counts; empty: it does not; ``?``: its cgroup has a name that does not tell the job."""
    environment = _environment(path)
    if not environment and _has_no_program(path):
        return ""
    variables = frozenset(environment.split(b"\0"))
    if not variables.isdisjoint(_marks((wanted.attempt,), _NAMES)):
        return CARRIES
    job = cgroup_job(_read(path + "/cgroup"))
    if job is not None and job in wanted.cgroups:
        return IN_CGROUP if variables.isdisjoint(_marks(wanted.again)) else ""
    if uid != wanted.uid or uid == 0 or wanted.booted or not variables.isdisjoint(_marks(wanted.living)):
        return ""
    if job is None:
        return OWNERS
    return "" if _BY_JOB_ID.match(job) or wanted.sluid else "?"


def _marks(attempts: Iterable[str], names: tuple[bytes, ...] = _NAMES[:1]) -> frozenset[bytes]:
    return frozenset(name + attempt.encode("ascii") for attempt in attempts for name in names)


def cgroup_job(text: bytes) -> bytes | None:
    """The name of the job's cgroup (``job_<id>`` or a SLUID) in ``/proc/<pid>/cgroup``, or ``None``."""
    for line in text.split(b"\n"):
        parts = line.split(b"/")
        for above, name in pairwise(parts):
            ours = above.endswith(b"slurmstepd.scope") or (above.startswith(b"uid_") and name.startswith(b"job_"))
            if ours and name not in {b"system", b""}:  # slurmstepd.scope/system is Slurm's own
                return name
    return None


def _environment(path: str) -> bytes:
    try:
        return _read(path + "/environ")
    except OSError as error:
        if error.errno != errno.ESRCH:  # what newer kernels say for a process without memory of its own
            raise
        return b""


def _has_no_program(path: str) -> bool:
    """Whether it is a thread of the kernel, or a dead process (one whose first thread alone has ended is not)."""
    fields = _read(path + "/stat").rpartition(b")")[2].split()
    return bool(int(fields[6]) & _KERNEL_THREAD) or (fields[0] in {b"Z", b"X"} and int(fields[17]) <= 1)


def _enclosed(proc: str) -> bool:
    """Whether process 1 is Slurm's own, of a namespace that it made for a job."""
    return _read(proc + "/1/stat").partition(b"(")[2].startswith(b"slurmstepd")


def _read(path: str) -> bytes:
    with open(path, "rb", buffering=0) as stream:
        parts = []
        size = 0
        while size < ENVIRONMENT_MAX and (part := stream.read(1 << 16)):
            parts.append(part)
            size += len(part)
    return b"".join(parts)


def boot() -> str | None:
    """Which boot of the node this is, as node notes name it, or ``None`` where it cannot be told."""
    try:
        if _enclosed("/proc"):
            return None
        start = _read("/proc/1/stat").rpartition(b")")[2].split()[19].decode("ascii")
        return _read("/proc/sys/kernel/random/boot_id").decode("ascii").strip() + ":" + start
    except (OSError, IndexError):
        return None


def carried(proc: str = "/proc") -> frozenset[str]:
    """The attempts that processes of this node carry, of those whose environment the caller may read.

    That one is not among them proves nothing.
    """
    found: set[str] = set()
    psutil.PROCFS_PATH = proc
    try:
        pids = psutil.pids()
    finally:
        psutil.PROCFS_PATH = "/proc"
    beginning = [path for path in (f"{proc}/{pid}" for pid in pids) if not _carried_by(path, found)]
    if beginning:
        time.sleep(EXEC_S)
        for path in beginning:
            _carried_by(path, found)
    return frozenset(found)


def _carried_by(path: str, found: set[str]) -> bool:
    """Add the attempts that a process carries; false where it shows no environment, as while it begins a program."""
    try:
        environment = _environment(path)
        shown = bool(environment) or _has_no_program(path)
    except OSError:
        return True  # gone, or not for the caller to see
    for variable in environment.split(b"\0"):
        name, equals, value = variable.partition(b"=")
        if equals and name + equals in _NAMES:
            found.add(value.decode("ascii", "replace"))
    return shown


def describe(left: Left) -> tuple[str, float | None]:
    """The process's command line, for a person, and since when it runs (Unix seconds)."""
    try:
        process = psutil.Process(left.pid)
        with process.oneshot():
            words = process.cmdline() or [process.name()]
            return " ".join(words), process.create_time()
    except psutil.Error:
        return "", None


__all__ = [
    "CARRIES", "IN_CGROUP", "LEFT_MAX", "OWNERS", "Left", "Scan", "Wanted", "boot", "carried", "describe", "scan",
]
