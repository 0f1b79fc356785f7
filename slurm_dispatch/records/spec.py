"""The specification of a job: what fact 1 says, and what every submission repeats."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from slurm_dispatch.model.identity import Word

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurm_dispatch.records.facts import Fact

MAX_SUBMISSIONS = 100
"""The cap on submissions of a job that names none."""


@dataclass(frozen=True, slots=True)
class Spec:
    """What was submitted. Every field is in the table of facts in ``ARCHITECTURE.md``.

    :param argv: sbatch's options as they are repeated, without script and identity word.
    :param groups: the owner's supplementary groups at submission.
    :param root: the checkpoint root, absolute; empty if the job has none.
    :param rules: the user's rule texts, in order.
    :param host: where it was submitted.
    """

    job: str
    generation: int
    user: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    cluster: str
    name: str
    root: str
    shared: bool
    argv: tuple[str, ...]
    script_name: str | None
    script_args: tuple[str, ...]
    script_sha256: str
    wrap: bool
    workdir: str
    umask: int
    comment: str
    rules: tuple[str, ...]
    max_submissions: int
    start_from: str | None
    host: str
    supersedes: str | None = None

    def word(self, submission: int) -> Word:
        """The identity word of submission ``submission``."""
        return Word(self.job, self.generation, submission, self.shared)

    def body(self) -> dict[str, Any]:
        """The fields of fact 1."""
        return {
            field.name: list(value) if isinstance(value := getattr(self, field.name), tuple) else value
            for field in fields(self)
        }

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> Spec:
        """The specification in the body of a parsed ``spec`` fact; unknown fields are passed over."""
        values: dict[str, Any] = {field.name: body[field.name] for field in fields(cls)}
        values.update({name: tuple(value) for name, value in values.items() if isinstance(value, list)})
        return cls(**values)

    @classmethod
    def from_fact(cls, fact: Fact) -> Spec:
        """The specification of fact 1."""
        return cls.from_body(fact.body)
