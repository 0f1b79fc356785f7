"""A site in the guest: real ticks over records and notes, and a Slurm in memory that tells of each call of sbatch."""

from __future__ import annotations

import hashlib
import json
import os
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dispatch_hooks.files import create_whole as hook_create_whole

from slurm_dispatch.durable import make_folder
from slurm_dispatch.model.identity import find_word
from tests.controller.memory_slurm import MemorySlurm
from tests.controller.rig import Rig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from slurm_dispatch.model.identity import Word
    from slurm_dispatch.slurm.port import Accepted, SbatchCall, SubmitAnswer

PREEMPTED_MAX = 12
"""Then the next job comes."""


class _Slurm(MemorySlurm):
    def __init__(self, tell: Callable[..., None]) -> None:
        super().__init__(os.getuid())
        self._tell = tell

    def submit(self, call: SbatchCall, accepted: Callable[[Accepted], None] | None = None) -> SubmitAnswer:
        (comment,) = (word.partition("=")[2] for word in call.argv if word.startswith("--comment"))
        word = find_word(comment)
        self._tell("sbatch", word=str(word))
        return super().submit(call, accepted)


class Site(Rig):
    """The records and notes are on the disk that loses its power; Slurm is not.

    Unlike a :class:`Rig` it makes jobs in their place, and its notes by the hooks' own code.
    """

    def __init__(self, folder: str, prefix: str, tell: Callable[..., None]) -> None:
        make_folder(folder)
        super().__init__(Path(folder), slurm=(slurm := _Slurm(tell)))
        self.slurm = slurm
        self._aside = self.folder
        self._prefix, self._tell = prefix, tell
        self._site = os.path.basename(folder)
        self._jobs = self._turns = 0
        self._key = ""

    @contextmanager
    def at_once(self) -> Iterator[None]:
        yield

    def note(self, name: str, word: Word, number: int, fields: dict[str, Any]) -> None:
        body = {"v": 1, "job": word.job, "generation": word.generation, "submission": word.submission,
                "shared": word.shared, "cluster": "fake", "slurm_job_id": number, "at": time.time(),
                **fields}  # fmt: skip
        hook_create_whole(os.path.join(self.path, "notes"), name, json.dumps(body).encode())
        self._tell("note", site=self._site, name=name)

    def step(self) -> None:
        """The next thing that happens to the job, and a tick."""
        if not self._key or self._turns > PREEMPTED_MAX:
            self._jobs += 1
            self._turns = 0
            self._key = self.job("preempted:resubmit", key=f"{self._prefix}j{self._jobs}")
            self._tell_facts()
        number = self.object(self._key)
        if self.slurm.job(number)["start_time"]:
            self._turns += 1
            self.slurm.end(number, "PREEMPTED")
            self.end_note(self._key)
        else:
            self.start(self._key)
        self.tick()
        self._tell_facts()

    def _tell_facts(self) -> None:
        facts = self.record(self._key).read_bytes()
        digest = hashlib.sha256(b"".join(facts)).hexdigest()
        self._tell("tick", site=self._site, key=self._key, count=len(facts), facts=digest)
