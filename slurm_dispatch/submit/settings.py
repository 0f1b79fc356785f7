"""What the user asked of us: command line first, then ``#DISPATCH`` lines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurm_dispatch.errors import UsageError
from slurm_dispatch.rules.rule import Rule, parse_rules

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


def gather(own: Sequence[tuple[str, str]], directives: Sequence[tuple[str, str, str]]) -> Settings:
    """Put both together; what the command line says beats the script, and rules add up.

    :raises UsageError: a single-valued option twice in one place, or a rule that does not parse.
    """
    typed: dict[str, list[str]] = {}
    written: dict[str, list[str]] = {}
    for name, value in own:
        typed.setdefault(name, []).append(value)
    for name, value, _ in directives:
        written.setdefault(name, []).append(value)
    for place, where in ((typed, "the command line"), (written, "the script's #DISPATCH lines")):
        for name in ("checkpoint", "start-from"):
            if len(place.get(name, [])) > 1:
                raise UsageError(f"--{name} stands twice in {where}")
    both = {**written, **typed}
    return Settings(
        checkpoint=both["checkpoint"][0] if "checkpoint" in both else None,
        rules=parse_rules([*typed.get("on", []), *written.get("on", [])]),
        start_from=both["start-from"][0] if "start-from" in both else None,
        adopt_root="adopt-root" in both,
        unprotected="unprotected" in both,
        no_plan="no-plan" in both,
    )
