"""Whether anything of an execution still runs on this node.

A process is left if it carries the execution's attempt in its environment, if it is in the job's cgroup, or
if it is the owner's and not of another live job: that job's attempt or cgroup says so. The cgroup is read
from the process (``/proc/<pid>/cgroup``), so that one rule serves version 1 (``slurm/uid_<u>/job_<id>``),
version 2 (``slurmstepd.scope/job_<id>``) and Slurm 26.05 (``slurmstepd.scope/<SLUID>``). The hook itself and
the processes above it are not counted, and process 1.
"""

import errno
import os

LEFT_MAX = 32
ROUNDS_MAX = 4
"""How often the list of processes is read at most. It is read again while it has new ones, since a process
that forks and ends could hide from one reading; a busy node has new ones always."""
ENVIRONMENT_MAX = 16 << 20
PIECE = 16384
"""Bytes of one read: a buffer of 128 KiB and more is mapped anew for each, which costs more than the reading."""
_NAMES = (b"DISPATCH_ATTEMPT=", b"SLURM_DISPATCH_ATTEMPT=")
_KERNEL_THREAD = 0x00200000
_GONE = (errno.ENOENT, errno.ESRCH)


class Wanted:
    """What to look for.

    ``attempt``; ``uid`` of the owner or ``None``; ``cgroups``: names of the job's own; ``living``: attempts
    of the owner's other executions on the node, ``again`` those of them that have the same Slurm job id.
    """

    def __init__(self, attempt, uid, cgroups, living, again):
        self.marks = tuple(name + attempt.encode("ascii") for name in _NAMES)
        self.uid = uid
        self.cgroups = cgroups
        self.living = _carried(living)
        self.again = _carried(again)


def _carried(attempts):
    return frozenset(_NAMES[0] + attempt.encode("ascii") for attempt in attempts)


def scan(wanted, proc="/proc"):
    """``b"clean"``, ``b"left <pid> ..."``, or ``b"unknown"`` if it found nothing and could not see everything.

    For an owner who is root nothing found is unknown too: the node's own daemons cannot be told apart.
    """
    seen = _above(proc)
    left = []
    whole = wanted.uid not in (None, 0) and not enclosed(proc)
    for _ in range(ROUNDS_MAX):
        new = [pid for pid in map(int, filter(str.isdigit, os.listdir(proc))) if pid not in seen]
        if not new:
            break
        seen.update(new)
        for pid in new:
            try:
                if _is_left(wanted, "%s/%d" % (proc, pid)):
                    left.append(pid)
            except OSError as error:
                if error.errno not in _GONE:
                    whole = False
    if left:
        return b"left " + b" ".join(b"%d" % pid for pid in sorted(left)[:LEFT_MAX])
    return b"clean" if whole else b"unknown"


def _is_left(wanted, path):
    uid = os.stat(path).st_uid  # the effective user, even of a process that cannot be traced
    environment = _environment(path)
    if not environment and _has_no_program(path):
        return False
    variables = frozenset(environment.split(b"\0"))
    if not variables.isdisjoint(wanted.marks):
        return True
    job = cgroup_job(_read(path + "/cgroup"))
    if job in wanted.cgroups:
        return variables.isdisjoint(wanted.again)
    return uid == wanted.uid and uid != 0 and job is None and variables.isdisjoint(wanted.living)


def cgroup_job(text):
    """The name of the job's cgroup (``job_<id>`` or a SLUID) in ``/proc/<pid>/cgroup``, or ``None``."""
    if b"slurmstepd.scope/" not in text and b"/job_" not in text:
        return None  # what most processes of a node have, told at once
    for line in text.split(b"\n"):
        parts = line.split(b"/")
        for above, name in zip(parts, parts[1:]):
            ours = above.endswith(b"slurmstepd.scope") or (above.startswith(b"uid_") and name.startswith(b"job_"))
            if ours and name not in (b"system", b""):  # slurmstepd.scope/system is Slurm's own
                return name
    return None


def _environment(path):
    try:
        return _read(path + "/environ")
    except OSError as error:
        if error.errno != errno.ESRCH:  # what newer kernels say for a process without memory of its own
            raise
        return b""


def _has_no_program(path):
    """Whether it is a thread of the kernel, or a dead process (one whose first thread alone has ended is not)."""
    fields = _stat(path)
    return bool(int(fields[6]) & _KERNEL_THREAD) or (fields[0] in (b"Z", b"X") and int(fields[17]) <= 1)


def _stat(path):
    """The fields of ``stat`` from the third on: state, parent, ..."""
    return _read(path + "/stat").rpartition(b")")[2].split()


def _read(path):
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        content = part = os.read(descriptor, PIECE)
        while len(part) == PIECE and len(content) < ENVIRONMENT_MAX:  # in /proc a short answer is the last one
            part = os.read(descriptor, PIECE)
            content += part
        return content
    finally:
        os.close(descriptor)


def _above(proc):
    """This process and those above it, process 1 always: it is the node's own."""
    seen = {1}
    pid = os.getpid()
    while pid > 1 and pid not in seen:
        seen.add(pid)
        try:
            pid = int(_stat("%s/%d" % (proc, pid))[1])
        except OSError:
            break
    return seen


def enclosed(proc="/proc"):
    """Whether process 1 is Slurm's own, of a namespace that it made for a job: then this sees the job only, and
    neither the node's other processes nor its boot."""
    return _read(proc + "/1/stat").partition(b"(")[2].startswith(b"slurmstepd")


def boot():
    """Which boot of the node this is: ``<boot_id>:<start of process 1, in ticks>``, or ``None``.

    Containers of one host share the boot id; the start time of their process 1 tells them apart.
    """
    try:
        if enclosed():
            return None
        start = _stat("/proc/1")[19].decode("ascii")
        return _read("/proc/sys/kernel/random/boot_id").decode("ascii").strip() + ":" + start
    except (OSError, IndexError):
        return None
