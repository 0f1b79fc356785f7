"""The site's settings, loaded: ``/etc/slurm-dispatch/dispatch.toml``, or the file that ``DISPATCH_CONFIG`` names."""

from __future__ import annotations

import os
import stat
import sys
from dataclasses import dataclass
from typing import Any

from slurm_dispatch.config.settings import REQUIRED, SETTINGS, Setting
from slurm_dispatch.durable import read_regular
from slurm_dispatch.errors import AbsentError, ConfigurationError, DispatchError, StoreError, UsageError, show
from slurm_dispatch.rules.rule import Rule, parse_rules

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DEFAULT_PATH = "/etc/slurm-dispatch/dispatch.toml"
VARIABLE = "DISPATCH_CONFIG"
SIZE_MAX = 1024 * 1024
"""Bytes of the file: it holds a few dozen lines."""


@dataclass(frozen=True, slots=True)
class Site:
    """The settings as loaded; each is explained in :data:`~slurm_dispatch.config.settings.SETTINGS`.

    :param path: the file they came from.
    """

    path: str
    state: str
    cluster: str | None
    slurm_user: str
    user_mode: bool
    slurm_bin: str | None
    submit_timeout_s: float
    message_timeout_s: float | None
    query_timeout_s: float
    owner_timeout_s: float
    tick_interval_s: float
    max_submissions: int
    launch_failures: int
    accounting: bool | None
    rules: tuple[Rule, ...]


def load_site(path: str | None = None) -> Site:
    """The settings of ``path``, or of ``DISPATCH_CONFIG``, or of :data:`DEFAULT_PATH`.

    ``DISPATCH_CONFIG`` counts for root only if root owns the file and nobody else can write it: an
    environment that was handed on must not choose where root writes.

    :raises ConfigurationError: all that is wrong, in one line, each with file and key.
    """
    chosen = path
    if chosen is None:
        chosen = os.environ.get(VARIABLE) or DEFAULT_PATH
    guarded = path is None and chosen != DEFAULT_PATH and os.geteuid() == 0
    try:
        # Through a link too: sites keep /etc under other folders, and who may write it is the site's matter.
        real = os.path.realpath(chosen)
        before = _trust(chosen, real) if guarded else None
        data = read_regular(real, SIZE_MAX)
        if before is not None and before != _trust(chosen, real):
            raise ConfigurationError(f"{VARIABLE}: {show(chosen)} changed while it was read")
    except AbsentError as error:
        raise ConfigurationError(
            f"there is no {show(chosen)}", hint=f"the site writes one, or {VARIABLE} names one"
        ) from error
    except StoreError as error:
        raise ConfigurationError(str(error)) from error
    try:
        content = tomllib.loads(data.decode("utf-8"))
    except ValueError as error:
        raise ConfigurationError(f"{show(chosen)} is not TOML: {error}") from error
    return parse_site(chosen, content)


def parse_site(path: str, content: dict[str, Any]) -> Site:
    """The settings in a parsed file.

    :raises ConfigurationError: all that is wrong, in one line.
    """
    values: dict[str, Any] = {}
    wrong: list[str] = []
    names = {setting.name for setting in SETTINGS}
    wrong += [f"{show(name)}: there is no such setting" for name in content if name not in names]
    user_mode = content.get("user_mode") is True
    for setting in SETTINGS:
        if setting.name not in content:
            if setting.default is REQUIRED:
                wrong.append(f"{setting.name}: it must be given")
            values[setting.name] = setting.default
            continue
        try:
            values[setting.name] = _value(setting, content[setting.name], user_mode=user_mode)
        except DispatchError as error:
            wrong.append(f"{setting.name}: {error.line()}")
    if wrong:
        raise ConfigurationError(f"{show(path)}: " + " | ".join(wrong))
    return Site(path=path, **values)


def _value(setting: Setting, value: Any, *, user_mode: bool) -> Any:
    if setting.kind == "bool":
        if not isinstance(value, bool):
            raise UsageError(f"{show(value)} is not true or false")
        return value
    if setting.kind in {"int", "seconds"}:
        kinds = (int,) if setting.kind == "int" else (int, float)
        if isinstance(value, bool) or not isinstance(value, kinds):
            raise UsageError(f"{show(value)} is not a number" + (" of seconds" if setting.kind == "seconds" else ""))
        if not setting.least <= value <= setting.greatest:
            raise UsageError(f"{value} is out of bounds, it is {setting.least:g} to {setting.greatest:g}")
        return value
    if setting.kind == "rules":
        if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
            raise UsageError("it is a list of texts")
        return parse_rules(value)
    if not isinstance(value, str) or not value:
        raise UsageError(f"{show(value)} is not a text" if value != "" else "it is empty")
    if setting.kind == "path":
        value = os.path.expanduser(value) if user_mode else value
        if not os.path.isabs(value) or "\0" in value:
            raise UsageError(f"{show(value)} is not an absolute path")
    return value


def _trust(path: str, real: str) -> tuple[int, int, int, int]:
    """Refuse a file that somebody else than root could have written, or put another in its place.

    :param real: ``path`` without links.
    :returns: which file it is, and in which state.
    """
    try:
        found = os.lstat(real)
        folder = os.path.dirname(real)
        above = [os.lstat(folder)]
        while folder != "/":
            folder = os.path.dirname(folder)
            above.append(os.lstat(folder))
    except OSError as error:
        raise ConfigurationError(f"{VARIABLE}: {show(path)}: {error.strerror}") from error
    if found.st_uid != 0 or stat.S_IMODE(found.st_mode) & 0o022:
        raise ConfigurationError(
            f"{VARIABLE}: {show(path)} is not root's alone, and root does not follow it",
            hint="unset it, or give the file to root with mode 0644",
        )
    if any(it.st_uid != 0 or (it.st_mode & 0o022 and not it.st_mode & stat.S_ISVTX) for it in above):
        raise ConfigurationError(
            f"{VARIABLE}: {show(path)} is in a folder that is not root's alone, and root does not follow it",
            hint="unset it, or put the file into a folder that only root can write",
        )
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
