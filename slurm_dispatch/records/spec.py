"""The specification of a job: what fact 1 says, and what every submission repeats."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from slurm_dispatch.errors import BadDataError, show
from slurm_dispatch.model.identity import Word
from slurm_dispatch.records.facts import KINDS, OPTIONAL
from slurm_dispatch.records.forms import check_form

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurm_dispatch.records.facts import Fact

MAX_SUBMISSIONS = 100
"""The cap on submissions of a job that names none."""
FIXED = frozenset({"elders_shared", "keep", "dependency", "clusters"})
CHANGEABLE = {
    "max_submissions": KINDS["spec"]["max_submissions"],
    **{name: form for name, (form, _) in OPTIONAL["spec"].items() if name not in FIXED},
}
"""Settings that a fact ``updated`` may change, with the form of each."""


@dataclass(frozen=True, slots=True)
class Spec:
    """What was submitted. Every field is in the table of facts in ``ARCHITECTURE.md``.

    :param argv: sbatch's options as they are repeated, without script and identity word.
    :param groups: the owner's supplementary groups at submission.
    :param root: the checkpoint root, absolute; empty if the job has none.
    :param rules: the user's rule texts, in order.
    :param host: where it was submitted.
    :param supersedes: the key of the job that this one takes over from.
    :param shared_hold_for_s: how long a shared checkpoint waits for a person.
    :param stall_s: the helper ends the command after so long without a publication; ``None``: never.
    :param suspect_s: a node that is silent for so long is taken for lost; ``None``: Slurm decides that.
    :param max_node_hours: of all executions together; ``None``: no cap.
    :param until: Unix seconds after which nothing more is submitted; ``None``: no such date.
    :param no_progress: executions in a row without durable progress after which it is held; ``None``: the site's.
    :param account: Slurm's, for the site's limits; empty where it is not known. So ``partition``.
    :param origins: name of a setting: where its value comes from, for a person.
    :param elders_shared: the job that it supersedes had a shared checkpoint.
    :param keep: the Slurm job of the superseded job that is left running; ``None``: none.
    :param dependency: what it depends on, as sbatch takes it; repeated only while it was never met.
    :param clusters: those that ``-M`` names, one of which gets each submission; empty: ``cluster``.
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
    shared_hold_for_s: float = 86400.0
    stall_s: float | None = None
    suspect_s: float | None = None
    max_node_hours: float | None = None
    until: float | None = None
    no_progress: int | None = None
    account: str = ""
    partition: str = ""
    origins: Mapping[str, str] = field(default_factory=dict)
    elders_shared: bool = False
    keep: int | None = None
    dependency: str = ""
    clusters: tuple[str, ...] = ()

    def word(self, submission: int) -> Word:
        """The identity word of submission ``submission``."""
        return Word(self.job, self.generation, submission, self.shared)

    @property
    def partitions(self) -> tuple[str, ...]:
        """The names in ``partition``."""
        return tuple(name for name in self.partition.split(",") if name)

    def changed(self, body: Mapping[str, Any]) -> Spec:
        """The specification after a fact ``updated`` with this body.

        :raises BadDataError: a setting that cannot be changed, or whose value is not of its form.
        """
        changes: dict[str, Any] = {}
        for name, value in body["settings"].items():
            if name not in CHANGEABLE:
                raise BadDataError(f"'{show(name)}' is not a setting that can be changed")
            check_form(f"settings: {name}", CHANGEABLE[name], value)
            changes[name] = value
        for name in ("argv", "script_sha256", "script_name", "script_args", "rules"):
            if body[name] is not None:
                changes[name] = tuple(body[name]) if isinstance(body[name], list) else body[name]
        return replace(self, **changes)

    def body(self) -> dict[str, Any]:
        """The fields of fact 1."""
        return {
            it.name: list(value) if isinstance(value := getattr(self, it.name), tuple) else value
            for it in fields(self)
        }

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> Spec:
        """The specification in the body of a parsed ``spec`` fact; unknown fields are passed over."""
        values: dict[str, Any] = {it.name: body[it.name] for it in fields(cls)}
        values.update({name: tuple(value) for name, value in values.items() if isinstance(value, list)})
        return cls(**values)

    @classmethod
    def from_fact(cls, fact: Fact) -> Spec:
        """The specification of fact 1."""
        return cls.from_body(fact.body)
