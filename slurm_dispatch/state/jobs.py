"""One record on disk: facts that are only ever added, and the script and environment beside them.

The law: *fact k+1 is made whole and exclusive by somebody who has read facts 1 to k.*
"""

from __future__ import annotations

import hashlib
import os
import time
from typing import TYPE_CHECKING, Any

from slurm_dispatch.durable import TEMPORARY_PREFIX, create_whole, open_folder, read_regular, sweep
from slurm_dispatch.errors import AbsentError, BadDataError, DispatchError, NothingThereError, show
from slurm_dispatch.records.facts import SEQ_MAX, Fact, fact_name, parse_fact, render
from slurm_dispatch.records.forms import JSON_SIZE_MAX
from slurm_dispatch.state.trouble import state_trouble

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FACTS_MAX = 1_000_000
"""Files in the folder of one record."""
RECORD_SIZE_MAX = 64 * 1024 * 1024
"""Bytes of all facts of a record together."""
SCRIPT_MAX = 4 * 1024 * 1024
"""Slurm's own limit for a script (``max_script_size``) unless the site raises it."""
ENVIRONMENT_MAX = 16 * 1024 * 1024
FACTS = "facts"
SCRIPT = "script"
ENVIRONMENT = "environment"


class Record:
    """The record in ``<state>/jobs/<key>``.

    To be used with the owner's rights: by the owner, or within :func:`slurm_dispatch.state.as_user.in_child`.

    :param folder: ``<state>/jobs/<key>``; its last component is the job's key.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.key = os.path.basename(folder)
        self.facts_folder = os.path.join(folder, FACTS)

    def read(self) -> list[Fact]:
        """All facts in order, from 1 on without a gap.

        :raises NothingThereError: there is no such job, or it has no fact 1 (its making was cut short).
        :raises BadDataError: a gap, a name that does not parse, a file that is no regular file or too
            large, or a fact that does not parse; the message names the file.
        :raises ServiceAwayError: the state folder does not answer.
        """
        return self.parse(self.read_bytes())

    def stamp(self) -> int:
        """The time stamp (``st_mtime_ns``) of the folder of facts, which every new fact changes; 0 without one.

        :raises ServiceAwayError: the state folder does not answer.
        """
        with state_trouble("reading record", self.facts_folder):
            try:
                return os.lstat(self.facts_folder).st_mtime_ns
            except FileNotFoundError:
                return 0

    def read_bytes(self) -> list[bytes]:
        """The facts as bytes, in order, not parsed: what a child that reads as the owner hands over.

        Errors as for :meth:`read`, save those of parsing.
        """
        with state_trouble("reading record", self.facts_folder):
            try:
                descriptor = open_folder(self.facts_folder, follow=False)
            except AbsentError as error:
                if os.path.lexists(self.facts_folder):
                    raise BadDataError(f"{self.facts_folder} is not a real folder") from error
                raise NothingThereError(f"there is no job {self.key} in {os.path.dirname(self.folder)}") from error
            try:
                return self._read_all(descriptor)
            finally:
                os.close(descriptor)

    def parse(self, parts: Sequence[bytes]) -> list[Fact]:
        """The facts that :meth:`read_bytes` gave."""
        facts = []
        for seq, data in enumerate(parts, start=1):
            try:
                facts.append(parse_fact(seq, data))
            except BadDataError as error:
                raise BadDataError(f"{self._path(seq)}: {error}", hint=error.hint) from error
        if facts[0].kind != "spec" or facts[0].body["job"] != self.key:
            raise BadDataError(f"{self._path(1)} is not the specification of job {self.key}")
        return facts

    def append(
        self, expected_seq: int, kind: str, by: str, body: Mapping[str, Any], *, at: float | None = None
    ) -> bool:
        """Make fact number ``expected_seq``, durable, unless somebody else has made it.

        :param expected_seq: one more than the last fact that the caller has read.
        :param at: Unix seconds; now, unless told otherwise.
        :returns: false if the number was taken: read again and decide again.
        :raises BadDataError: the body is not what the kind must have, or the number would leave a gap.
        :raises ServiceAwayError: the state folder is full, read-only or away; the fact may have been made.
        """
        data = render(Fact(expected_seq, time.time() if at is None else at, kind, by, body))
        with state_trouble("adding to record", self.facts_folder):
            if expected_seq > 1 and not os.path.lexists(self._path(expected_seq - 1)):
                raise BadDataError(f"{self._path(expected_seq)} would leave a gap in the record")
            return create_whole(self.facts_folder, fact_name(expected_seq), data)

    def script(self, sha256: str = "") -> bytes:
        """The script as sbatch gets it (for ``--wrap`` jobs: empty); see :meth:`script_path`."""
        return self._beside(os.path.basename(self.script_path(sha256)), SCRIPT_MAX)

    def script_path(self, sha256: str = "") -> str:
        """Where the script of this digest is: that of the first submission, unless a fact ``updated`` brought one."""
        updated = os.path.join(self.folder, f"{SCRIPT}-{sha256}")
        if len(sha256) == 64 and sha256.isalnum() and os.path.lexists(updated):
            return updated
        return os.path.join(self.folder, SCRIPT)

    def add_script(self, content: bytes) -> str:
        """Keep another script beside the facts, durable, before a fact ``updated`` names it; returns its digest.

        :raises BadDataError: it is larger than :data:`SCRIPT_MAX`.
        """
        if len(content) > SCRIPT_MAX:
            raise BadDataError(f"the script has {len(content)} bytes, more than the limit of {SCRIPT_MAX}")
        sha256 = hashlib.sha256(content).hexdigest()
        with state_trouble("adding a script to", self.folder):
            create_whole(self.folder, f"{SCRIPT}-{sha256}", content)
        return sha256

    def environment(self) -> bytes:
        """The environment at submission: ``NAME=value`` texts, each ended by a NUL byte."""
        return self._beside(ENVIRONMENT, ENVIRONMENT_MAX)

    def sweep(self) -> int:
        """Remove temporary files that killed processes left; returns how many."""
        return sweep(self.facts_folder) + sweep(self.folder)

    def _beside(self, name: str, limit: int) -> bytes:
        path = os.path.join(self.folder, name)
        with state_trouble("reading", path):
            return read_regular(path, limit)

    def _path(self, seq: int) -> str:
        return os.path.join(self.facts_folder, fact_name(seq))

    def _read_all(self, descriptor: int) -> list[bytes]:
        last = self._last(descriptor)
        parts: list[bytes] = []
        size = 0
        # By number, not from the listing: a listing beside a writer may show fact 9 and not fact 8.
        for seq in range(1, last + 1):
            try:
                data = read_regular(fact_name(seq), JSON_SIZE_MAX, dir_fd=descriptor)
            except AbsentError as error:
                raise BadDataError(f"{self._path(seq)} is missing, and later facts are there") from error
            except DispatchError as error:
                raise type(error)(f"{self.facts_folder}: {error}") from error
            size += len(data)
            if size > RECORD_SIZE_MAX:
                raise BadDataError(f"{self.facts_folder} is larger than the limit of {RECORD_SIZE_MAX} bytes")
            parts.append(data)
        return parts

    def _last(self, descriptor: int) -> int:
        """The greatest number in the folder; a name that is neither a fact's nor temporary is refused."""
        last = 0
        with os.scandir(descriptor) as entries:
            for count, entry in enumerate(entries):
                name = entry.name
                if count >= FACTS_MAX:
                    raise BadDataError(f"{self.facts_folder} has more than {FACTS_MAX} entries")
                if name.startswith(TEMPORARY_PREFIX):
                    continue
                if len(name) != 10 or not (name.isascii() and name.isdigit()) or not 1 <= int(name) <= SEQ_MAX:
                    raise BadDataError(f"{self.facts_folder}: {show(name)!r} is not the name of a fact")
                last = max(last, int(name))
        if last == 0:
            raise NothingThereError(
                f"job {self.key} has no facts", hint="its submission was cut short before sbatch was called"
            )
        if last > FACTS_MAX:
            raise BadDataError(f"{self._path(last)} is over the limit of {FACTS_MAX} facts")
        return last
