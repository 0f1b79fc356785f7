"""Who an execution is: the job's key, the word in Slurm's comment, and the attempt.

The hooks compute the same things in their own few lines, since they import nothing of this package;
``tests/test_identity.py`` holds the two against each other.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from dataclasses import dataclass

from slurm_dispatch.errors import BadDataError
from slurm_dispatch.model.epoch import GENERATION_MAX, SUBMISSION_MAX, check

KEY_CHARACTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
KEY_LENGTH = 12
"""62 bits: two of a million jobs get one key with a chance below 10^-6, and making its folder is exclusive."""
ATTEMPT_LENGTH = 20
"""Characters of base32: 100 bits of SHA-256."""
_KEY = re.compile(r"[a-z0-9]{1,32}\Z")
_ATTEMPT = re.compile(r"[a-z0-9]{1,40}\Z")
_WORD = re.compile(r"dispatch:([a-z0-9]{1,32}):(0|[1-9][0-9]{0,6}):([1-9][0-9]{0,5})(:s)?\Z")
_BASE32 = b"abcdefghijklmnopqrstuvwxyz234567"


def new_key() -> str:
    """A random job key."""
    return "".join(secrets.choice(KEY_CHARACTERS) for _ in range(KEY_LENGTH))


def new_attempt() -> str:
    """A fresh attempt for a run without identity."""
    return "".join(secrets.choice(KEY_CHARACTERS) for _ in range(ATTEMPT_LENGTH))


def check_key(text: str) -> str:
    """``text``, if it can be a job's key."""
    if not _KEY.match(text):
        raise BadDataError(f"job key {text!r} does not parse", hint="it is 1 to 32 of a-z and 0-9")
    return text


def check_attempt(text: str) -> str:
    """``text``, if it can be an attempt (a folder's name: no dot, no slash)."""
    if not _ATTEMPT.match(text):
        raise BadDataError(f"attempt {text!r} does not parse", hint="it is 1 to 40 of a-z and 0-9")
    return text


def is_attempt(text: str) -> bool:
    """Whether ``text`` can be an attempt."""
    return _ATTEMPT.match(text) is not None


@dataclass(frozen=True, slots=True)
class Word:
    """The identity word ``dispatch:<job>:<G>:<N>`` with ``:s`` for a shared checkpoint."""

    job: str
    generation: int
    submission: int
    shared: bool = False

    def __post_init__(self) -> None:
        check_key(self.job)
        check("generation", self.generation, 0, GENERATION_MAX)
        check("submission", self.submission, 1, SUBMISSION_MAX)

    def __str__(self) -> str:
        return f"dispatch:{self.job}:{self.generation}:{self.submission}{':s' if self.shared else ''}"


def parse_word(text: str) -> Word | None:
    """The word, or ``None`` for text that is not exactly one: that is somebody else's."""
    match = _WORD.match(text)
    if match is None or int(match[2]) > GENERATION_MAX:
        return None
    return Word(match[1], int(match[2]), int(match[3]), match[4] is not None)


def find_word(comment: str) -> Word | None:
    """The identity word of a Slurm comment: the last of its space-separated words that is one.

    The last, because ``dispatch sbatch`` adds it at the end, so that a word that a user typed or copied
    from another job's comment never comes before ours.
    """
    for text in reversed(comment.split(" ")):
        word = parse_word(text)
        if word is not None:
            return word
    return None


def strip_words(comment: str) -> str:
    """The comment without any identity word; the rest stays byte for byte."""
    return " ".join(text for text in comment.split(" ") if parse_word(text) is None)


def attempt_of(cluster: str, slurm_job_id: int, word: Word, restart: int, start_time: int | None) -> str:
    """The attempt of an execution: the same on every node, different for every execution.

    :param slurm_job_id: the leader's in a heterogeneous job.
    :param start_time: Unix seconds of ``SLURM_JOB_START_TIME``; ``None`` where Slurm gives none (22.05)
        or where components may differ (heterogeneous jobs).
    """
    parts = (cluster, str(slurm_job_id), str(word), str(restart), "" if start_time is None else str(start_time))
    digest = hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).digest()
    bits = int.from_bytes(digest[:13], "big") >> 4
    return bytes(_BASE32[(bits >> (5 * i)) & 31] for i in reversed(range(ATTEMPT_LENGTH))).decode("ascii")
