"""Handing on through the node: ``<run>/<job id>.<start time>.d``, where the helper leaves what it saw.

Where the job's record cannot be reached from the node, ``dispatch-watch`` leaves ``progress`` and ``ended`` there,
and Epilog makes a note of them. The folder is the user's, so it is a small filesystem of its own, as
``/run/user/<uid>`` is: a user who fills it fills nothing else. What is in it is read by a child with the user's own
rights, two names of at most :data:`LIMIT` bytes, and counts only if it is of the execution that the node's own file
names.
"""

import os
import time

from dispatch_hooks import child, files, flat_json, notes

SUFFIX = ".d"
NAMES = ("progress", "ended")
LIMIT = 1024
INODES = 32
MOUNTS_MAX = 2000
"""A user can put mounts of his own (FUSE) on the folder, one on another; fusermount lets all users have 1000."""
STEP_MAX = 2**63 - 1
OUTCOMES = ("unfinished", "stalled", "not_resumed", "store_error")
"""The helper's own words."""
_NOSUID_NODEV_NOEXEC = 2 | 4 | 8
_DETACH_NOFOLLOW = 2 | 8


def make(site, name, uid):
    """Make the folder of the execution file ``name`` for user ``uid``; none for root, or where the site wants none.

    :raises OSError, ImportError: it cannot be made; then there is none.
    """
    if not uid or not site.hand_kib:
        return
    path = os.path.join(site.run, name + SUFFIX)
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        found = os.lstat(path)
        if found.st_uid == uid and found.st_dev != os.lstat(site.run).st_dev:
            return  # this Prolog runs for the second time
        remove(path)
        os.mkdir(path, 0o700)
    options = "size=%dk,nr_inodes=%d,mode=0700,uid=%d,gid=0" % (site.hand_kib, INODES, uid)
    try:
        _call("mount", b"slurm-dispatch", os.fsencode(path), b"tmpfs", _NOSUID_NODEV_NOEXEC, options.encode("ascii"))
    except (OSError, ImportError, AttributeError):
        os.rmdir(path)  # never a folder of the user's in /run itself
        raise


def remove(path):
    """Unmount the folder, whatever is mounted there, and remove it."""
    for _ in range(MOUNTS_MAX):
        try:
            _call("umount2", os.fsencode(path), _DETACH_NOFOLLOW)
        except OSError:
            break  # nothing is mounted there any more
    os.rmdir(path)


def read(site, ended, deadline):
    """What the helper left for the execution ``ended``.

    :param deadline: by ``time.monotonic()``; a filesystem that the user put there can hang.
    :returns: (pairs for the note or ``None``, whether a later look could find more: this one was cut off).
    """
    if not ended.uid:
        return None, False
    name = ended.common + SUFFIX
    answer, done = child.watch(lambda tell: tell(_collect(site.run, name, ended.uid)), deadline)
    if not done:
        child.say("epilog", "%s/%s: what the helper left there could not be read" % (site.run, name))
        return None, time.monotonic() < deadline
    progress, _, last = answer.partition(b"\n")
    return _pairs(_said(progress, ended, _PROGRESS), _said(last, ended, _ENDED)), False


def _collect(run, folder_name, uid):
    """The content of both files, each in one line, as that user."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    above = os.open(run, flags)  # root's own, so opened before root is given up
    child.become(str(uid))
    try:
        folder = os.open(folder_name, flags, dir_fd=above)
    except OSError:
        return b"\n"  # not the user's folder: a Prolog that was killed had not mounted it yet
    parts = []
    for name in NAMES:
        try:
            parts.append(files.read_regular(name, LIMIT, folder).replace(b"\n", b" "))
        except (OSError, ValueError):
            parts.append(b"")  # nothing was left under this name
    return b"\n".join(parts)


def _said(content, ended, forms):
    """The fields of ``forms`` in one file; ``None`` if it is not this execution's, or not what a helper writes."""
    if not content.strip():
        return None
    try:
        fields = flat_json.read(content)
    except ValueError:
        return None
    if [fields.get(name) for name in ("v", "attempt", "epoch")] != [1, ended.attempt, ended.epoch]:
        return None
    if not all(form(fields.get(name)) for name, form in forms.items()):
        return None
    return fields


def _whole(least, greatest):
    def form(value):
        return value is None or (type(value) is int and least <= value <= greatest)

    return form


_STEP = _whole(0, STEP_MAX)
_PROGRESS = {"step": lambda value: value is not None and _STEP(value), "resumed_from": _STEP}
_ENDED = {
    "status": _whole(0, 255),
    "signal": _whole(1, 255),
    "outcome": lambda value: value is None or value in OUTCOMES,
    "step": _STEP,
}


def _pairs(progress, last):
    if progress is None and last is None:
        return None
    before, after = progress or {}, last or {}
    return [
        ("progress", before.get("step")),
        ("resumed_from", before.get("resumed_from")),
        ("ended", last is not None),
        ("status", after.get("status")),
        ("signal", after.get("signal")),
        ("outcome", after.get("outcome")),
        ("last", after.get("step")),
    ]


def note(ended, cluster, job_id, node, *, verified, pairs):
    """(name, content) of the note."""
    at, at_ns = notes.now()
    name = "handed.%s.%d.%s.%s.%d" % (ended.word.name, job_id, ended.attempt, node, at_ns)
    common = [
        ("attempt", ended.attempt),
        ("epoch", ended.epoch),
        ("node", node),
        ("uid", ended.uid),
        ("start_time", ended.start_time or None),
        ("verified", verified),
    ]
    return name, flat_json.render(notes.opening(ended.word, cluster, job_id, at) + common + pairs)


def _call(function, *arguments):
    """A system call that ``os`` does not have. Loaded only where it is used: it costs as much as a hook's start."""
    import ctypes

    library = ctypes.CDLL(None, use_errno=True)
    if getattr(library, function)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
