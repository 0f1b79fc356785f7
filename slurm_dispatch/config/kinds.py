"""The kinds of values that settings have: how each is checked, and how it is written.

A value comes from TOML (a number, a text, a list) or, on command lines and in ``#DISPATCH`` lines, as a text.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any

from slurm_dispatch.errors import BadDataError, UsageError, show
from slurm_dispatch.model.quantity import duration, parse_duration
from slurm_dispatch.rules.rule import Rule, parse_rules

if TYPE_CHECKING:
    from collections.abc import Callable

REQUIRED = object()
"""The default of a setting that must be given."""
LIST_MAX = 1000
"""Items of a list: a command, names of users."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting.

    :param kind: a name of :data:`KINDS`.
    :param default: what counts where it is not given; ``None`` means what ``text`` says.
    :param least: lower bound of a number, ``greatest`` the upper one, both inclusive.
    :param example: what samples show for a setting without a default, as it is written.
    :param choices: of a list of words, those that it may have.
    :param field: of a job's setting, the field of its specification.
    :param site: of a job's setting, the site's setting that says what counts where the job does not.
    :param metavar: how its value is called on a command line; ``""``: it takes none.
    :param negatable: ``--no-NAME`` takes away what a weaker place says of it.
    :param typed_only: it belongs on the command line (or into a script), not into a job file.
    """

    name: str
    kind: str
    default: Any
    text: str
    least: float = 0
    greatest: float = 0
    example: str = ""
    choices: tuple[str, ...] = ()
    field: str = ""
    site: str = ""
    metavar: str = ""
    typed_only: bool = False
    negatable: bool = False

    @property
    def bounds(self) -> str:
        """The bounds of a number in words, or nothing."""
        if not self.greatest:
            return ", ".join(self.choices)
        if self.kind == "seconds" and self.greatest > 3600:
            return f"{duration(self.least)} to {duration(self.greatest)}"
        return f"{plain(self.least)} to {plain(self.greatest)}"


def plain(number: float) -> str:
    """A number without exponent and without needless zeros."""
    return str(int(number)) if number == int(number) else str(number)


def read_value(setting: Setting, value: Any, *, user_mode: bool = False) -> Any:
    """A value of TOML, checked.

    :param user_mode: paths may begin with ``~``.
    :raises UsageError: it is not one for this setting; the message does not name the setting.
    """
    try:
        found = KINDS[setting.kind](setting, value)
    except BadDataError as error:
        raise UsageError(str(error), hint=error.hint) from error
    if setting.kind == "path":
        found = os.path.expanduser(found) if user_mode else found
        if not os.path.isabs(found) or "\0" in found:
            raise UsageError(f"{show(found)} is not an absolute path")
    return found


def read_text(setting: Setting, text: str) -> Any:
    """A value that was typed: numbers and ``true`` are taken out of the text first.

    :raises UsageError: as :func:`read_value`.
    """
    value: Any = text
    if setting.kind == "bool":
        value = {"": True, "true": True, "false": False}.get(text, text)
    elif setting.kind in {"int", "number"}:
        value = _number(text, whole=setting.kind == "int")
    elif setting.kind == "rules":
        value = [text]
    return read_value(setting, value)


def _number(text: str, *, whole: bool) -> Any:
    digits = text.removeprefix("-").replace(".", "", 0 if whole else 1)
    if not (digits.isascii() and digits.isdigit()) or len(text) > 1000:
        return text
    return float(text) if "." in text else int(text)


def _bool(_setting: Setting, value: Any) -> bool:
    if not isinstance(value, bool):
        raise UsageError(f"{show(value)} is not true or false")
    return value


def _bounded(setting: Setting, value: Any, what: str, *, whole: bool = False) -> int | float:
    # A whole number of TOML can be too large for isfinite.
    if isinstance(value, bool) or not isinstance(value, int | float) or not -math.inf < value < math.inf:
        raise UsageError(f"{show(value)} is not {what}")
    if whole and not isinstance(value, int):
        raise UsageError(f"{show(value)} is not a number without a fraction")
    if not setting.least <= value <= setting.greatest:
        shown = duration(value) if setting.kind == "seconds" and setting.greatest > 3600 else plain(value)
        raise UsageError(f"{show(shown)} is out of bounds, it is {setting.bounds}")
    return value


def _int(setting: Setting, value: Any) -> int | float:
    return _bounded(setting, value, "a number", whole=True)


def _float(setting: Setting, value: Any) -> int | float:
    return _bounded(setting, value, "a number")


def _seconds(setting: Setting, value: Any) -> int | float:
    if isinstance(value, str):
        value = parse_duration(value)
    return _bounded(setting, value, "a number of seconds")


def _rules(_setting: Setting, value: Any) -> tuple[Rule, ...]:
    return parse_rules(_texts(value))


def _texts(value: Any) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise UsageError("it is a list of texts")
    if len(value) > LIST_MAX:
        raise UsageError(f"it has more than {LIST_MAX} items")
    return value


def _words(setting: Setting, value: Any) -> tuple[str, ...]:
    words = _texts(value)
    for word in words:
        if not word or not word.isprintable():
            raise UsageError(f"'{show(word)}' is not a name")
        if setting.choices and word not in setting.choices:
            raise UsageError(f"'{show(word)}' is not one of {', '.join(setting.choices)}")
        if words.count(word) > 1:
            raise UsageError(f"{show(word)} stands twice")
    return tuple(words)


def _argv(setting: Setting, value: Any) -> tuple[str, ...]:
    words = _texts(value)
    if tuple(words) == setting.default or (setting.choices and words and words[0] in setting.choices):
        return tuple(words)
    if words and not os.path.isabs(words[0]):
        raise UsageError(f"{show(words[0])} is not an absolute path", hint="it is started as it is, without a shell")
    if any("\0" in word for word in words):
        raise UsageError("it has a NUL character")
    return tuple(words)


def _choice(setting: Setting, value: Any) -> str:
    text = _text(setting, value)
    if text not in setting.choices:
        raise UsageError(f"'{show(text)}' is not one of {', '.join(setting.choices)}")
    return text


def _date(setting: Setting, value: Any) -> str:
    return value.isoformat() if isinstance(value, date) else _text(setting, value)  # TOML has dates of its own


def _text(_setting: Setting, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise UsageError(f"{show(value)} is not a text" if value != "" else "it is empty")
    return value


KINDS: dict[str, Callable[[Setting, Any], Any]] = {
    "argv": _argv,
    "bool": _bool,
    "choice": _choice,
    "date": _date,
    "int": _int,
    "names": _words,
    "number": _float,
    "path": _text,
    "rules": _rules,
    "seconds": _seconds,
    "text": _text,
}
"""Each kind with its check. A ``date`` is read later, when the time of the submission is known."""


def toml(value: Any) -> str:
    """A value as TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return "[" + ", ".join(toml(item) for item in value) + "]"
    if isinstance(value, Rule):
        return toml(value.text)
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return plain(value) if isinstance(value, int | float) else str(value)


def written(setting: Setting, value: Any) -> str:
    """A value of this setting as a file would have it; long times as durations."""
    if setting.kind == "seconds" and isinstance(value, int | float) and value > 600:
        return toml(duration(value))
    return toml(value)


__all__ = ["KINDS", "REQUIRED", "Setting", "read_text", "read_value", "toml", "written"]
