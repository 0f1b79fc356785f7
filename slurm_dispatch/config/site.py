"""The site's settings, loaded: ``/etc/slurm-dispatch/dispatch.toml``, or the file that ``DISPATCH_CONFIG`` names."""

from __future__ import annotations

import os
import re
import stat
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from slurm_dispatch.config.kinds import REQUIRED, read_value
from slurm_dispatch.config.limits import Limit
from slurm_dispatch.config.settings import LIMIT_SETTINGS, SETTINGS, SETTINGS_BY_NAME
from slurm_dispatch.durable import read_regular
from slurm_dispatch.errors import (
    AbsentError,
    ConfigurationError,
    DeniedError,
    DispatchError,
    StoreError,
    UsageError,
    show,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurm_dispatch.rules.rule import Rule

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DEFAULT_PATH = "/etc/slurm-dispatch/dispatch.toml"
VARIABLE = "DISPATCH_CONFIG"
SIZE_MAX = 1024 * 1024
"""Bytes of the file: it holds a few dozen lines."""
LIMITS_MAX = 1000
"""``[[limit]]`` tables: each is looked at for each job."""


@dataclass(frozen=True, slots=True)
class Site:
    """The settings as loaded; each is explained in :data:`~slurm_dispatch.config.settings.SETTINGS`.

    :param path: the file they came from.
    :param given: the settings that the file has, each with its line there (0 where it could not be found);
        ``limit.2.user`` for those of the second limit.
    """

    path: str
    state: str
    cluster: str | None
    slurm_user: str
    user_mode: bool
    hooks: tuple[str, ...]
    slurm_bin: str | None
    submit_timeout_s: float
    message_timeout_s: float | None
    query_timeout_s: float
    owner_timeout_s: float
    tick_interval_s: float
    accounting: bool | None
    max_submissions: int
    most_submissions: int
    max_node_hours: float | None
    no_progress: int
    stall_s: float | None
    shared_hold_for_s: float
    longest_hold_s: float
    launch_failures: int
    cessation: tuple[str, ...]
    cessation_user: str | None
    cessation_interval_s: float
    cessation_timeout_s: float
    notify: tuple[str, ...]
    notify_user: str | None
    notify_timeout_s: float
    suspicion: bool
    suspect_share: float
    suspect_count: int
    suspect_overlaps: int
    memory_half_life_s: float
    memory_expiry_s: float
    memory_share: float
    breaker_count: int
    breaker_window_s: float
    breaker_drained: int
    breaker_store_errors: int
    maintenance_spread_s: float
    rules: tuple[Rule, ...]
    limit: tuple[Limit, ...]
    given: Mapping[str, int] = field(default_factory=dict, compare=False)

    def place(self, name: str) -> str:
        """Where the value of a setting comes from, in words."""
        if name not in self.given:
            return "built in"
        line = self.given[name]
        return f"{self.path}, line {line}" if line else self.path


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
    except DeniedError as error:
        hint = "everybody's commands read it: the site gives it mode 0644"
        raise ConfigurationError(str(error), hint=hint) from error
    except StoreError as error:
        raise ConfigurationError(str(error)) from error
    content, text = parse_toml(chosen, data)
    return parse_site(chosen, content, text)


def parse_toml(path: str, data: bytes) -> tuple[dict[str, Any], str]:
    """The content of a TOML file, and its text.

    :raises ConfigurationError: it is none.
    """
    try:
        text = data.decode("utf-8")
        return tomllib.loads(text), text
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{show(path)} is not TOML: {error}") from error


def parse_site(path: str, content: dict[str, Any], text: str = "") -> Site:
    """The settings in a parsed file.

    :param text: the file as it is, for the lines that its settings stand in.
    :raises ConfigurationError: all that is wrong, in one line.
    """
    lines = line_numbers(text)
    values: dict[str, Any] = {}
    wrong = [f"{_where(lines, name)}there is no such setting" for name in content if name not in SETTINGS_BY_NAME]
    user_mode = content.get("user_mode") is True
    for setting in SETTINGS:
        if setting.name not in content:
            if setting.default is REQUIRED:
                wrong.append(f"{setting.name}: it must be given")
            values[setting.name] = () if setting.name == "hooks" and user_mode else setting.default
            continue
        value = content[setting.name]
        try:
            if setting.kind == "limits":
                values[setting.name] = _limits(value, lines, wrong)
            else:
                values[setting.name] = read_value(setting, value, user_mode=user_mode)
        except DispatchError as error:
            wrong.append(f"{_where(lines, setting.name)}{error.line()}")
    if not wrong and values["max_submissions"] > values["most_submissions"]:
        wrong.append(f"{_where(lines, 'max_submissions')}it is more than most_submissions")
    if wrong:
        raise ConfigurationError(f"{show(path)}: " + " | ".join(wrong))
    if values["cluster"] is not None:
        values["cluster"] = values["cluster"].lower()  # as Slurm keeps it, and tells it to the hooks
    given = {name: lines.get(name, 0) for name in content}
    given.update({name: line for name, line in lines.items() if name.startswith("limit.")})
    return Site(path=path, **values, given=given)


def _limits(value: Any, lines: Mapping[str, int], wrong: list[str]) -> tuple[Limit, ...]:
    """The ``[[limit]]`` tables; what is wrong in them goes into ``wrong``."""
    if not isinstance(value, list) or not all(isinstance(table, dict) for table in value):
        raise UsageError("it is a list of tables", hint="write [[limit]] above each")
    if len(value) > LIMITS_MAX:
        raise UsageError(f"{len(value)} tables are more than {LIMITS_MAX}")
    known = {setting.name: setting for setting in LIMIT_SETTINGS}
    found = []
    for number, table in enumerate(value, 1):
        fields: dict[str, Any] = {}
        for name, item in table.items():
            where = _where(lines, f"limit.{number}.{name}", f"limit {number}: {name}")
            if name not in known:
                wrong.append(f"{where}there is no such setting of a limit")
                continue
            try:
                fields[name] = read_value(known[name], item)
            except DispatchError as error:
                wrong.append(f"{where}{error.line()}")
        if not set(table) - {"user", "account", "partition", "per"}:
            wrong.append(f"limit {number}: it limits nothing")
        found.append(Limit(number, **fields))
    return tuple(found)


def _where(lines: Mapping[str, int], key: str, name: str = "") -> str:
    """``name (line 4): ``, as errors begin."""
    shown = show(name or key)
    return f"{shown} (line {lines[key]}): " if lines.get(key) else f"{shown}: "


def line_numbers(text: str) -> dict[str, int]:
    """The line, from 1, in which each key of a TOML file stands; ``limit.2.user`` in the second ``[[limit]]``.

    A help for messages only: keys that are written in an unusual way are not found.
    """
    found: dict[str, int] = {}
    tables = 0
    for number, line in enumerate(text.splitlines(), 1):
        if re.match(r"\s*\[\[\s*limit\s*\]\]", line):
            tables += 1
            found.setdefault("limit", number)
            continue
        match = re.match(r"\s*(\"?)([A-Za-z0-9_-]+)\1\s*=", line)
        if match:
            found.setdefault(f"limit.{tables}.{match[2]}" if tables else match[2], number)
    return found


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
