"""For programs that save with a real library: import and prepare once, fork for each save that is to be killed.

A program prepares, calls :func:`serve` where the save begins, goes on in each child with the folder that it returns,
and ends the child with :func:`done`. Standard library only, and nothing of the package that is tested.

Input, one line a child: a JSON list of the folder and of a fifo. The child begins when a byte comes through the fifo,
so that a tracer can be attached before. Between the fork and that byte it makes no call that a tracer counts: how far
it is when the tracer comes is not known. Output: the child's process id, then ``ended STATUS`` (as of
``os.wait``).
"""

from __future__ import annotations

import json
import os
import select
import sys

ANSWERS = os.dup(1)
os.dup2(2, 1)  # the libraries print


def serve() -> str:
    """Returns in each child, never in the parent.

    :returns: the folder that the child saves into.
    """
    os.write(ANSWERS, b"ready\n")
    for line in sys.stdin:
        folder, gate = json.loads(line)
        opened = os.open(gate, os.O_RDONLY | os.O_NONBLOCK)
        pid = os.fork()
        if pid == 0:
            select.select([opened], [], [])
            return str(folder)
        os.close(opened)
        os.write(ANSWERS, b"%d\n" % pid)
        _, status = os.waitpid(pid, 0)
        os.write(ANSWERS, b"ended %d\n" % status)
    os._exit(0)


def done() -> None:
    """The child has saved."""
    sys.stderr.flush()
    os._exit(0)
