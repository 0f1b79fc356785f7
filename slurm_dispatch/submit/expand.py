"""Paths as users write them in our options, made absolute when the job is submitted."""

from __future__ import annotations

import os
import pwd
import re
from typing import TYPE_CHECKING

from slurm_dispatch.errors import UsageError, show

if TYPE_CHECKING:
    from collections.abc import Mapping

PATH_MAX = 4096
_VARIABLE = re.compile(r"\$(?:([A-Za-z_][A-Za-z0-9_]*)|\{([A-Za-z_][A-Za-z0-9_]*)\}|)")
_PERCENT = re.compile(r"%(.?)")


def expand(text: str, *, what: str, key: str, name: str, user: str, variables: Mapping[str, str], folder: str) -> str:
    """``text`` with ``~``, ``$NAME`` and ``%x %u %A %%`` put in, absolute, without ``.``, ``..`` and double slashes.

    Nothing that was put in is expanded again. ``%A`` is the job's key: its first Slurm job id is not known yet,
    and a later one has another. Links are left alone.

    :param what: the option, for messages.
    :param folder: what a relative path is relative to.
    :raises UsageError: an unset variable, another ``%`` letter, a user that is not there, an empty path, one
        that is too long, or one with control characters (it travels in lines of text).
    """
    patterns = {"x": name.replace("/", "_"), "u": user, "A": key, "%": "%"}

    def put_percent(match: re.Match[str]) -> str:
        if match[1] not in patterns:
            raise UsageError(
                f"{what} {show(text)!r}: {show(match[0])} is not known",
                hint="known are %x, %u, %A, and %% for a percent sign",
            )
        return patterns[match[1]]

    def put_variable(match: re.Match[str]) -> str:
        wanted = match[1] or match[2]
        if wanted is None:
            raise UsageError(f"{what} {show(text)!r}: a $ without a variable's name")
        if wanted not in variables:
            raise UsageError(f"{what} {show(text)!r}: the variable {wanted} is not set")
        return variables[wanted]

    home, rest = _home(text, what, variables)
    parts: list[str] = []
    at = 0
    for match in re.finditer(r"\$(?:[A-Za-z_][A-Za-z0-9_]*|\{[A-Za-z_][A-Za-z0-9_]*\}|)|%(?:.|\Z)", rest):
        parts.append(rest[at : match.start()])
        piece = match[0]
        parts.append(_VARIABLE.sub(put_variable, piece) if piece[0] == "$" else _PERCENT.sub(put_percent, piece))
        at = match.end()
    path = home + "".join(parts) + rest[at:]
    if not path:
        raise UsageError(f"{what} {show(text)!r} is empty")
    path = os.path.normpath(os.path.join(folder, path))
    path = "/" + path.lstrip("/")  # POSIX lets two slashes at the beginning mean something else
    if any(ord(char) < 32 or ord(char) == 127 for char in path):
        raise UsageError(f"{what} {show(path)!r} has a control character")
    if len(os.fsencode(path)) > PATH_MAX:
        raise UsageError(f"{what} {show(path)!r} is longer than {PATH_MAX} bytes")
    return path


def _home(text: str, what: str, variables: Mapping[str, str]) -> tuple[str, str]:
    """The home that a leading ``~`` or ``~user`` stands for, and the rest."""
    if not text.startswith("~"):
        return "", text
    user, slash, rest = text[1:].partition("/")
    if not user and variables.get("HOME"):
        return variables["HOME"], slash + rest
    try:
        home = pwd.getpwnam(user).pw_dir if user else pwd.getpwuid(os.getuid()).pw_dir
    except KeyError as error:
        raise UsageError(f"{what} {show(text)!r}: there is no user {show(user)!r}") from error
    return home, slash + rest
