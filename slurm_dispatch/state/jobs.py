"""One record on disk: facts that are only ever added, and the script and environment beside them.

The law: *fact k+1 is made whole and exclusive by somebody who has read facts 1 to k.*
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurm_dispatch.records.facts import Fact

FACTS_MAX = 1_000_000
RECORD_SIZE_MAX = 64 * 1024 * 1024
"""Bytes of all facts of a record together."""
SCRIPT_MAX = 4 * 1024 * 1024
"""Slurm's own limit for a script (``max_script_size``) unless the site raises it."""
ENVIRONMENT_MAX = 16 * 1024 * 1024


class Record:
    """The record in ``<state>/jobs/<key>``.

    To be used with the owner's rights: by the owner, or within :func:`slurm_dispatch.state.as_user.in_child`.

    :param folder: ``<state>/jobs/<key>``; its last component is the job's key.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def read(self) -> list[Fact]:
        """All facts in order, from 1 on without a gap.

        :raises NothingThereError: there is no such job, or it has no fact 1 (its making was cut short).
        :raises BadDataError: a gap, a name that does not parse, a file that is no regular file or too
            large, or a fact that does not parse; the message names the file.
        :raises ServiceAwayError: the state folder does not answer.
        """
        raise NotImplementedError

    def append(self, expected_seq: int, kind: str, by: str, body: Mapping[str, Any], *, at: float | None = None) -> bool:
        """Make fact number ``expected_seq``, durable, unless somebody else has made it.

        :param expected_seq: one more than the last fact that the caller has read.
        :param at: Unix seconds; now, unless told otherwise.
        :returns: false if the number was taken: read again and decide again.
        :raises BadDataError: the body is not what the kind must have.
        :raises ServiceAwayError: the state folder is full, read-only or away; the fact may have been made.
        """
        raise NotImplementedError

    def script(self) -> bytes:
        """The script as sbatch got it (for ``--wrap`` jobs: empty)."""
        raise NotImplementedError

    def environment(self) -> bytes:
        """The environment at submission: ``NAME=value`` texts, each ended by a NUL byte."""
        raise NotImplementedError
