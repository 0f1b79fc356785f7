"""The command line of ``dispatch sbatch``: ours taken out, everything else left as it was.

The law of this module: *sbatch gets the user's words, untouched and in their order; ours come after the user's
options and before the script.*
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurm_dispatch.config.settings import JOB_SETTINGS
from slurm_dispatch.errors import UsageError, show
from slurm_dispatch.slurm.options import NO_VALUE, VALUE, Option, Parsed, parse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

OWN: dict[str, Option] = {
    **{it.name: Option(it.name, "", VALUE if it.metavar else NO_VALUE) for it in JOB_SETTINGS},
    **{f"no-{it.name}": Option(f"no-{it.name}", "", NO_VALUE) for it in JOB_SETTINGS if it.negatable},
}
"""Our options. None equals one of sbatch's or a beginning of one; they are spelled whole."""
NOT_A_SUBMISSION = ("help", "usage", "version", "autocomplete", "test-only")
"""With one of these sbatch submits nothing, and it gets the command line as it is."""


@dataclass(frozen=True, slots=True)
class CommandLine:
    """What was typed.

    :param own: our options in their order, as (name, value); a flag's value is ``""``.
    :param options: sbatch's, as typed.
    :param parsed: the same, read.
    :param dashes: ``--`` stood between options and script.
    :param script: the script's name as typed; ``None``: standard input or ``--wrap``.
    """

    own: tuple[tuple[str, str], ...]
    options: tuple[str, ...]
    parsed: Parsed
    dashes: bool
    script: str | None
    arguments: tuple[str, ...]

    def has(self, name: str) -> bool:
        """Whether sbatch's option ``name`` was typed."""
        return self.parsed.last(name) is not None

    def with_added(self, added: Sequence[str], *, script: bool = True) -> tuple[str, ...]:
        """sbatch's argv with ours put in; without the script and its arguments if not ``script``."""
        end = ["--"] if self.dashes else []
        if script and self.script is not None:
            end.append(self.script)
        return (*self.options, *added, *end, *self.arguments)


def read_command_line(argv: Sequence[str], more: Callable[[], Mapping[str, Option]] | None = None) -> CommandLine:
    """Read what stands after ``dispatch sbatch``.

    :param more: every option of the sbatch at hand; asked only for a long option that the table does not have.
    :raises UsageError: an option of ours without its value or with one that it does not take, or a
        heterogeneous job on the command line.
    """
    whole = parse(argv, more, OWN)
    own: list[tuple[str, str]] = []
    ours: set[int] = set()
    for word in whole.options:
        if word.name in OWN:
            own.append((word.name, own_value(word.name, word.value, "the command line")))
            ours.update(range(word.first, word.last + 1))
    before = whole.end - 1 if whole.dashes else whole.end
    options = tuple(text for index, text in enumerate(argv[:before]) if index not in ours)
    rest = tuple(argv[whole.end :])
    if rest[:1] == (":",):
        raise heterogeneous("the command line has ':'")
    return CommandLine(
        own=tuple(own),
        options=options,
        parsed=parse(options, more),
        dashes=whole.dashes,
        script=rest[0] if rest else None,
        arguments=rest[1:],
    )


def own_value(name: str, value: str | None, where: str) -> str:
    """The value of an option of ours, checked to be there exactly where it takes one."""
    if OWN[name].takes == VALUE:
        if not value:
            raise UsageError(f"{where}: --{name} needs a value")
        return value
    if value is not None:
        raise UsageError(f"{where}: --{name} takes no value, and has {show(value)!r}")
    return ""


def heterogeneous(where: str) -> UsageError:
    """The refusal of a heterogeneous job."""
    return UsageError(
        f"heterogeneous jobs are not managed in this version ({where})",
        hint="submit it with sbatch, or with dispatch sbatch --unprotected",
    )
