"""The identity word, the epoch and the attempt: the same as ``slurm_dispatch.model``, in a few lines.

``tests/hooks/test_identity.py`` holds the two against each other.
"""

try:  # hashlib loads OpenSSL, which costs as much as the whole start of Python
    from _sha2 import sha256  # Python 3.12 and newer
except ImportError:
    try:
        from _sha256 import sha256
    except ImportError:  # a build without them
        from hashlib import sha256

GENERATION_MAX = 9223371
SUBMISSION_MAX = 999999
RESTART_MAX = 999999
ATTEMPT_LENGTH = 20
_KEY = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789")
_BASE32 = "abcdefghijklmnopqrstuvwxyz234567"


class Word:
    """``dispatch:<job>:<G>:<N>``, with ``:s`` at its end for a shared checkpoint."""

    __slots__ = ("generation", "job", "shared", "submission", "text")

    def __init__(self, text, job, generation, submission, shared):
        self.text = text
        self.job = job
        self.generation = generation
        self.submission = submission
        self.shared = shared

    @property
    def name(self):
        """The word as it stands in the names of notes: ``<job>.<G>.<N>``."""
        return "%s.%d.%d" % (self.job, self.generation, self.submission)

    def epoch(self, restart):
        """``G*10^12 + N*10^6 + R``; ``ValueError`` for a restart count out of its bounds."""
        if not 0 <= restart <= RESTART_MAX:
            raise ValueError("restart count %d is out of bounds" % restart)
        return self.generation * 10**12 + self.submission * 10**6 + restart


def number(text, greatest):
    """A decimal number of 0 to ``greatest`` in its one canonical form, from bytes; otherwise ``None``."""
    if not text or len(text) > 20 or not text.isdigit() or (len(text) > 1 and text[:1] == b"0"):
        return None
    value = int(text)
    return value if value <= greatest else None


def parse_word(text):
    """The :class:`Word` that ``text`` (bytes) is exactly, otherwise ``None``: then it is somebody else's."""
    parts = text.split(b":", 5)
    shared = len(parts) == 5 and parts[4] == b"s"
    if parts[0] != b"dispatch" or not (len(parts) == 4 or shared):
        return None
    generation, submission = number(parts[2], GENERATION_MAX), number(parts[3], SUBMISSION_MAX)
    if not 1 <= len(parts[1]) <= 32 or not _KEY.issuperset(parts[1]) or generation is None or not submission:
        return None
    return Word(text.decode("ascii"), parts[1].decode("ascii"), generation, submission, shared)


def find_word(comment):
    """The last of the space-separated words of a comment (bytes) that is an identity word, or ``None``."""
    for text in reversed(comment.split(b" ")):
        if text.startswith(b"dispatch:") and len(text) <= 64:
            word = parse_word(text)
            if word is not None:
                return word
    return None


def attempt_of(cluster, job_id, word, restart, start_time):
    """The attempt of an execution.

    :param cluster: the cluster's name, bytes.
    :param job_id: the Slurm job id, the leader's in a heterogeneous job.
    :param start_time: seconds, or ``None`` where Slurm gives none and in heterogeneous jobs.
    """
    start = "" if start_time is None else str(start_time)
    rest = "\0".join((str(job_id), word.text, str(restart), start))
    digest = sha256(cluster + b"\0" + rest.encode("ascii")).digest()
    bits = int(digest[:13].hex(), 16) >> 4
    return "".join(_BASE32[(bits >> (5 * i)) & 31] for i in reversed(range(ATTEMPT_LENGTH)))
