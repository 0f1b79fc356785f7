"""What the user asked of us: command line first, then ``#DISPATCH`` lines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurm_dispatch.errors import UsageError
from slurm_dispatch.rules.rule import Rule, parse_rule, parse_rules

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Settings:
    """Our options, put together.

    :param checkpoint: the root as typed, or ``None``.
    :param rules: of the command line, then of the script: the first match wins.
    """

    checkpoint: str | None
    rules: tuple[Rule, ...]
    start_from: str | None
    adopt_root: bool
    unprotected: bool
    no_plan: bool


def gather(
    own: Sequence[tuple[str, str]],
    directives: Sequence[tuple[str, str, str]],
    wrong: Sequence[UsageError] = (),
) -> Settings:
    """Put both together; what the command line says beats the script, and rules add up.

    :param wrong: what is wrong with the directives already.
    :raises UsageError: a single-valued option twice in one place, or a rule that does not parse: all that is wrong,
        and ``wrong`` too, in one line, each with its place.
    """
    typed = [(name, value, "the command line") for name, value in own]
    errors = list(wrong)
    for options, place in ((typed, "the command line"), (directives, "the script's #DISPATCH lines")):
        names = [name for name, _, _ in options]
        twice = [name for name in ("checkpoint", "start-from") if names.count(name) > 1]
        errors += [UsageError(f"--{name} stands twice in {place}") for name in twice]
    rules: list[Rule] = []
    for name, value, where in (*typed, *directives):
        if name == "on":
            try:
                rules.append(parse_rule(value))
            except UsageError as error:
                errors.append(UsageError(f"{where}: {error}", hint=error.hint))
    if errors:
        raise _together(errors)
    # Of each the last, so that those that were typed win.
    values = {name: value for name, value, _ in (*directives, *typed)}
    return Settings(
        checkpoint=values.get("checkpoint"),
        rules=parse_rules([rule.text for rule in rules]),
        start_from=values.get("start-from"),
        adopt_root="adopt-root" in values,
        unprotected="unprotected" in values,
        no_plan="no-plan" in values,
    )


def _together(errors: Sequence[UsageError]) -> UsageError:
    """One error that says all; a hint that several have is said once."""
    lines: list[str] = []
    hints: set[str] = set()
    for error in errors:
        lines.append(str(error) if error.hint in hints else error.line())
        hints.add(error.hint)
    return UsageError(" | ".join(lines))
