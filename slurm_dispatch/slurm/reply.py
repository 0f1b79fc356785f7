"""What sbatch's answer says: accepted, rejected for certain, or neither.

The law of this module: *a number is an id only on the line that sbatch writes for it, and a failure is a
rejection only if sbatch said so itself and no word of it is about the way to the controller.* Every other end
of sbatch is ambiguous: the job may be in Slurm.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from slurm_dispatch.slurm.port import Accepted, Ambiguous, Rejected, SubmitAnswer

if TYPE_CHECKING:
    from slurm_dispatch.slurm.run import Finished

_SENTENCE = re.compile(rb"Submitted batch job ([0-9]{1,10})(?: on cluster ([^\s;]{1,256}))?\r?\Z")
_PARSABLE = re.compile(rb"([0-9]{1,10})(?:;([^\s;]{1,256}))?\r?\Z")
_FAILED = "Batch job submission failed: "
JOB_ID_MAX = 2**32 - 1

# What Slurm's library says of the way to the controller and back (slurm_errno.c, 22.05 to 26.05). The request
# may have arrived before any of these; an authentication or version error can be about the answer.
_ON_THE_WAY = (
    "Unspecified error",
    "Unexpected message received",
    "Communication connection failure",
    "Message send failure",
    "Message receive failure",
    "Communication shutdown failure",
    "Incompatible versions of client and server code",
    "Protocol authentication error",
    "Insane message length",
    "Unexpected missing socket error",
    "Unable to process incoming file descriptor",
    "Unable to process outgoing file descriptor",
    "Unable to process incoming and outgoing file descriptors",
    "Unable to contact slurm controller",
    "Zero Bytes were transmitted or received",
    "Socket timed out on send/recv operation",
    "Slurm backup controller in standby mode",
    "Invalid authentication credential",
    "Header lengths are longer than data received",
    "Unable to resolve",
    "No error",
)
_SYSTEM = frozenset(os.strerror(number) for number in range(1, 134))
# Words that no refusal of sbatch's own has, wherever they stand: sites put scripts of theirs in sbatch's place.
_SUSPECT = re.compile(r"timed? ?out|unable to contact|connection|transmitted|munge|try again later", re.IGNORECASE)


def find_id(stdout: bytes, *, parsable: bool, ended: bool = True) -> Accepted | None:
    """The id in what sbatch printed: the last whole line that is the one sbatch writes.

    :param parsable: a line that is only ``N`` or ``N;cluster`` counts too.
    :param ended: false while more may come: then a line without its newline does not count yet.
    """
    lines = stdout.split(b"\n")
    if not ended:
        lines.pop()
    for line in reversed(lines):
        match = _SENTENCE.match(line) or (_PARSABLE.match(line) if parsable else None)
        if match is not None and 0 < int(match[1]) <= JOB_ID_MAX:
            return Accepted(int(match[1]), match[2].decode("utf-8", "surrogateescape") if match[2] else None)
    return None


def read_reply(finished: Finished, *, parsable: bool) -> SubmitAnswer:
    """Class the end of an sbatch."""
    found = find_id(finished.stdout, parsable=parsable)
    if found is not None:
        return Accepted(found.slurm_job_id, found.cluster, _as_exit_status(finished))
    if finished.failure:  # it never ran
        return Rejected(127, finished.failure)
    if finished.timed_out or finished.truncated:
        return Ambiguous(f"sbatch: {finished.trouble}")
    status = finished.status
    if status is None or status < 0:
        return Ambiguous(f"sbatch: {finished.trouble}")
    if status == 0:
        return Ambiguous("sbatch ended with 0 and printed no job id", 0)
    said = finished.stderr.decode("utf-8", "backslashreplace")
    doubt = _doubt(said)
    if doubt:
        return Ambiguous(f"sbatch ended with {status}: {doubt}", status)
    return Rejected(status, _last_line(said))


def _as_exit_status(finished: Finished) -> int:
    if finished.status is None:
        return 137
    return finished.status if finished.status >= 0 else 128 - finished.status


def _doubt(said: str) -> str:
    """Why this stderr is no certain refusal, or ``""`` if it is one."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    if not lines:
        return "no word of why"
    for line in lines:
        _, failed, reason = line.partition(_FAILED)
        text = reason.strip() if failed else line
        if failed and text in _SYSTEM:
            return text
        if any(phrase in text for phrase in _ON_THE_WAY) or _SUSPECT.search(text):
            return text
    return ""


def _last_line(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    for line in lines:
        if _FAILED in line:
            return line
    return lines[-1] if lines else ""
