"""The execution file ``<run>/<job id>.<start time>``, by which a node knows an execution.

A component of a heterogeneous job has a second one for its Epilog, ``<leader's id>.<start time>.<job id>``.
"""

import os

from dispatch_hooks import files, identity

LIMIT = 65536
VERSION = "1"
_KEY = frozenset("abcdefghijklmnopqrstuvwxyz0123456789")


def render(call, second=False):
    """The file's content for the execution that ``call`` (of Prolog) starts.

    :param second: an earlier start of this very submission is on the node.
    :raises ValueError: Slurm did not say enough, or said something out of bounds.
    """
    restart = call.count()
    nodes = "".join(c if " " <= c <= "~" else "?" for c in call.nodes())
    lines = [
        "DISPATCH_EXECUTION=" + VERSION,
        "DISPATCH_JOB=" + call.word.job,
        "DISPATCH_EPOCH=%d" % call.word.epoch(restart),
        "DISPATCH_ATTEMPT=" + call.attempt(),
        "WORD=" + call.word.text,
        "JOB_ID=%d" % (call.leader or call.job_id),
        "START_TIME=%d" % (call.start_time or 0),
        "RESTART=%d" % restart,
        "NODES=" + nodes,
    ]
    uid = call.uid()
    if uid is not None:
        lines.append("UID=%d" % uid)
    if call.word.shared and (restart > 0 or second):
        lines.append("REFUSE=1")
    return ("\n".join(lines) + "\n").encode("ascii")


class Execution:
    """An execution file that was read.

    ``name`` of the file, ``common`` that of the file for tasks;
    ``word`` (:class:`~dispatch_hooks.identity.Word`), ``attempt``, ``epoch`` (text),
    ``restart``, ``start_time`` (0 where Slurm gave none), ``uid`` (or ``None``).

    :raises ValueError: the content (bytes) is not an execution file's.
    """

    def __init__(self, name, content):
        fields = {}
        for line in content.decode("ascii").split("\n"):
            key, equals, value = line.partition("=")
            if equals:
                fields.setdefault(key, value)
        if not content.startswith(b"DISPATCH_EXECUTION=" + VERSION.encode("ascii") + b"\n"):
            raise ValueError("it is not an execution file of version " + VERSION)
        self.name = name
        self.common = ".".join(name.split(".")[:2])
        self.word = identity.parse_word(fields.get("WORD", "").encode("ascii"))
        self.attempt = fields.get("DISPATCH_ATTEMPT", "")
        self.epoch = fields.get("DISPATCH_EPOCH", "")
        self.restart = _number(fields, "RESTART")
        self.start_time = _number(fields, "START_TIME")
        self.uid = _number(fields, "UID") if "UID" in fields else None
        if self.word is None or not self.epoch.isdigit() or not _KEY.issuperset(self.attempt):
            raise ValueError("it is not a whole execution file")
        if not 1 <= len(self.attempt) <= 40:
            raise ValueError("it has no attempt")


def _number(fields, key):
    value = identity.number(fields.get(key, "").encode("ascii"), 2**40)
    if value is None:
        raise ValueError("%s is no number" % key)
    return value


def read(name, folder):
    """The :class:`Execution` in the file ``name`` of the folder with descriptor ``folder``."""
    return Execution(name, files.read_regular(name, LIMIT, folder))


def names(folder):
    """(job id, start time, name) of each execution file in a folder, oldest first."""
    found = []
    for name in os.listdir(folder):
        job, _, start = name.partition(".")
        if job.isdigit() and start.isdigit():
            found.append((int(job), int(start), name))
    return sorted(found)


def components(folder):
    """(job id, start time, name) of each component's own file in a folder, oldest first."""
    found = []
    for name in os.listdir(folder):
        parts = name.split(".")
        if len(parts) == 3 and all(part.isdigit() for part in parts):
            found.append((int(parts[2]), int(parts[1]), name))
    return sorted(found)
