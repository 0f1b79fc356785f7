"""Which names are saves, and of which step: a glob with ``{step}``.

The step is a whole run of ASCII digits. A name in which more than one run of digits could be the step, and a
pattern that could split one run of digits in two, are refused: a wrong step would decide which save is latest.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurm_dispatch.errors import UsageError
from slurm_dispatch.model.publication import STEP_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

DEFAULT = "checkpoint-{step}"
STEP = "{step}"
RESERVED = frozenset({".dispatch", "best", "kept", "resume"})
"""The helper's own folders in ``exec/<attempt>/``."""
DEPTH_MAX = 8
"""Components of a pattern: each level is a folder to list at every scan."""

_DIGITS = re.compile(r"[0-9]+")
# What the libraries call a save that is not finished: Hugging Face (tmp-checkpoint-10, checkpoint-is-incomplete.txt),
# Orbax (0.orbax-checkpoint-tmp-1703334121930256), Lightning and fsspec (.tmp, .part), DeepSpeed and Megatron (*.tmp),
# rsync (.name.XXXXXX), ours (.tmp-...), and whatever begins with a dot.
_TEMPORARY = re.compile(
    r"""\.                          # hidden
      | tmp | temp(?![a-z])         # tmp-checkpoint-10, tmp_save, temp.10
      | .*[._-](tmp|temp|part|partial|incomplete|unfinished|crswap|swp)(?![A-Za-z]).*
      | .*\.orbax-checkpoint-tmp.*
      | .*is[-_]incomplete.*
      | .*~\Z
    """,
    re.VERBOSE | re.IGNORECASE,
)


def is_temporary(name: str) -> bool:
    """Whether a name says that its save is not finished. Such a name is never a save."""
    return _TEMPORARY.match(name) is not None


@dataclass(frozen=True, slots=True)
class Match:
    """A name that one component of a pattern takes. ``step`` is ``None`` in a component without ``{step}``."""

    step: int | None = None
    trouble: str | None = None
    """Why the name is not published though it matches; ``None`` if nothing is wrong with it."""


@dataclass(frozen=True, slots=True)
class Component:
    """One component of a pattern: either a plain glob, or what stands before and behind ``{step}``."""

    text: str
    before: re.Pattern[str]
    behind: re.Pattern[str] | None

    def match(self, name: str) -> Match | None:
        """How ``name`` matches, or ``None`` if it does not."""
        if self.behind is None:
            return Match() if self.before.fullmatch(name) else None
        found = [
            run.group()
            for run in _DIGITS.finditer(name)
            if self.before.fullmatch(name, 0, run.start()) and self.behind.fullmatch(name, run.end())
        ]
        if not found:
            return None
        if len(found) > 1:
            return Match(None, f"its step could be {found[0][:20]} or {found[1][:20]}; say more in --pattern")
        step = int(found[0]) if len(found[0]) <= 40 else STEP_MAX + 1
        if step > STEP_MAX:
            return Match(None, f"its step is greater than {STEP_MAX}")
        return Match(step)


@dataclass(frozen=True, slots=True)
class Pattern:
    """A parsed ``--pattern``. ``components`` go from the execution's folder down; the last has the step."""

    text: str
    components: tuple[Component, ...]


def saves_of(patterns: Iterable[Pattern]) -> Callable[[bytes], bool] | None:
    """Whether a name at the top of an execution's folder is a save, for removing; ``None``: the saves are deeper."""
    firsts = [pattern.components[0] for pattern in patterns if len(pattern.components) == 1]
    if not firsts:
        return None

    def is_save(name: bytes) -> bool:
        text = os.fsdecode(name)
        matches = [] if is_temporary(text) else [one.match(text) for one in firsts]
        return any(match is not None and match.trouble is None for match in matches)  # never published: no save

    return is_save


def parse_pattern(text: str) -> Pattern:
    """Parse ``--pattern``.

    :param text: a glob relative to ``DISPATCH_DIR`` with ``*``, ``?``, ``[...]`` and exactly one ``{step}``.
    :raises UsageError: no or two ``{step}``, absolute, ``..``, or a step that would not be one whole run of digits.
    """
    hint = f"an example is {DEFAULT!r}"
    if text.count(STEP) != 1:
        raise UsageError(f"--pattern {text!r} must have {STEP} exactly once", hint=hint)
    parts = text.split("/")
    if any(part in {"", ".", ".."} for part in parts):
        raise UsageError(f"--pattern {text!r} is not a plain path below the execution's folder", hint=hint)
    if STEP not in parts[-1]:
        # The save is kept under its own name, and two steps must not have one name.
        raise UsageError(
            f"--pattern {text!r} has {STEP} before its last part", hint="name the folder that has the step"
        )
    if len(parts) > DEPTH_MAX:
        raise UsageError(f"--pattern {text!r} has more than {DEPTH_MAX} levels")
    return Pattern(text, tuple(_component(part, text) for part in parts))


def _component(part: str, whole: str) -> Component:
    if STEP not in part:
        return Component(part, re.compile(_translate(part, whole), re.DOTALL), None)
    before, behind = part.split(STEP)
    if before[-1:].isdigit() or behind[:1].isdigit():
        raise UsageError(f"--pattern {whole!r} has a digit beside {STEP}, so the step would not be a whole number")
    return Component(
        part,
        re.compile(_translate(before, whole), re.DOTALL),
        re.compile(_translate(behind, whole), re.DOTALL),
    )


def _translate(glob: str, whole: str) -> str:
    """A glob as a regular expression (``fnmatch`` would take 3 ms to import and knows no error)."""
    out: list[str] = []
    at = 0
    while at < len(glob):
        sign = glob[at]
        at += 1
        if sign == "*":
            out.append(".*")
        elif sign == "?":
            out.append(".")
        elif sign == "[":
            end = glob.find("]", at + 2 if glob[at : at + 1] == "!" else at + 1)
            if end < 0:
                raise UsageError(f"--pattern {whole!r} has a '[' without its ']'")
            inside = glob[at:end].replace("\\", "\\\\")
            out.append("[^" + inside[1:] + "]" if inside.startswith("!") else "[" + inside.replace("^", "\\^") + "]")
            at = end + 1
        elif sign in "{}":
            raise UsageError(f"--pattern {whole!r} has a brace that is not part of {STEP}")
        else:
            out.append(re.escape(sign))
    try:
        re.compile("".join(out))
    except re.error as error:
        raise UsageError(f"--pattern {whole!r} is not a glob: {error}") from error
    return "".join(out)
