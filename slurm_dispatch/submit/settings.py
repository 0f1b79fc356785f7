"""What the user asked of us, put together: command line, ``#DISPATCH`` lines, job file, site, in that order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from slurm_dispatch.config.job_file import Said, read_job_file
from slurm_dispatch.config.kinds import read_text, read_value
from slurm_dispatch.config.settings import JOB_BY_NAME, JOB_SETTINGS
from slurm_dispatch.errors import DispatchError, UsageError, show
from slurm_dispatch.model.quantity import parse_moment
from slurm_dispatch.rules.rule import RULES_MAX, Rule

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from slurm_dispatch.config.site import Site

COMMAND_LINE = "the command line"
SCRIPT = "the script's #DISPATCH lines"
DEFAULT = "built in"
TAKEN_AWAY = {f"no-{setting.name}": setting for setting in JOB_SETTINGS if setting.negatable}
"""By option: the setting that counts as nobody had said it, in this place and in all that are weaker."""


@dataclass(frozen=True, slots=True)
class Settings:
    """A job's settings.

    :param values: by the name of the option; ``None`` where nothing says it.
    :param origins: where each comes from, in words, and ``on 1``, ``on 2``, ... for the rules.
    :param rules: of the command line, then of the script, then of the job file: the first match wins.
    """

    values: Mapping[str, Any]
    origins: Mapping[str, str]
    rules: tuple[Rule, ...]

    def text(self, name: str) -> str | None:
        """The value of a setting whose value is a text."""
        value = self.values[name]
        return None if value is None else str(value)

    def flag(self, name: str) -> bool:
        """The value of a setting that is true or false."""
        return bool(self.values[name])

    def said(self, name: str) -> bool:
        """Whether the job itself says it, and not only the site or nobody."""
        return name in self.origins and not self.origins[name].startswith((DEFAULT, "the site's "))


def gather(
    typed: Sequence[tuple[str, str]],
    written: Sequence[tuple[str, str, str]],
    wrong: Sequence[UsageError] = (),
    *,
    site: Site,
    now: float,
    path_of: Callable[[str, str], str],
) -> Settings:
    """Put all sources together; the strongest that says a setting counts, and rules add up.

    :param typed: the command line's, as (name, value); a flag's value is ``""``.
    :param written: the script's, as (name, value, place).
    :param wrong: what is wrong with those already.
    :param now: Unix seconds, for dates.
    :param path_of: what a path that was written for an option means.
    :raises UsageError: all that is wrong anywhere, in one line, each with its place.
    """
    line = [Said(name, value, COMMAND_LINE) for name, value in typed]
    script = [Said(name, value, place) for name, value, place in written]
    errors = list(wrong) + _twice(line, COMMAND_LINE) + _twice(script, SCRIPT)
    file: list[Said] = []
    for said in [it for it in (*line, *script) if it.name in {"job-file", "no-job-file"}][:1]:
        if said.name != "job-file":
            break
        try:
            file, more = read_job_file(path_of("--job-file", said.value), said.value)
            errors += more
        except DispatchError as error:
            errors.append(UsageError(f"{said.place}: {error}", hint=error.hint))
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    rules: list[Rule] = []
    for said in (*line, *script, *file):
        taken = TAKEN_AWAY.get(said.name)
        if taken is not None:
            if taken.name not in values:
                values[taken.name] = taken.default
                origins[taken.name] = said.place
            continue
        try:
            value = _read(said, now)
        except DispatchError as error:
            errors.append(UsageError(_named(said, error), hint=error.hint))
            continue
        if said.name == "on":
            rules += value
            origins[f"on {len(rules)}"] = said.place
        elif said.name not in values:
            values[said.name] = value
            origins[said.name] = said.place
    if len(rules) > RULES_MAX:
        errors.append(UsageError(f"{len(rules)} rules are more than the {RULES_MAX} that one job can have"))
    if values.get("shared-checkpoint") and values.get("suspect") is not None:
        text = "suspect is not for a shared checkpoint, whose executions must not overlap"
        errors.append(UsageError(f"{origins['suspect']}: {text}"))
    if errors:
        raise together(errors)
    for setting in JOB_SETTINGS:
        if setting.name in values or setting.name == "on":
            continue
        if setting.site:
            values[setting.name] = getattr(site, setting.site)
            place = site.place(setting.site)
            origins[setting.name] = place if place == DEFAULT else f"the site's {setting.site} ({place})"
        else:
            values[setting.name] = setting.default
    return Settings(values, origins, tuple(rules))


def _twice(said: Sequence[Said], place: str) -> list[UsageError]:
    names = [TAKEN_AWAY[it.name].name if it.name in TAKEN_AWAY else it.name for it in said]
    away = {TAKEN_AWAY[it.name].name for it in said if it.name in TAKEN_AWAY}
    single = [it.name for it in JOB_SETTINGS if (it.metavar and it.name != "on") or it.name in away]
    return [UsageError(f"--{name} stands twice in {place}") for name in single if names.count(name) > 1]


def _read(said: Said, now: float) -> Any:
    setting = JOB_BY_NAME[said.name]
    value = read_text(setting, said.value) if said.typed else read_value(setting, said.value)
    if setting.kind == "date":
        moment = parse_moment(value, now)
        if moment <= now:
            raise UsageError(f"{show(value)} is over")
        return moment
    return value


def _named(said: Said, error: DispatchError) -> str:
    """The error with its place, and with the setting where it does not say that itself."""
    if said.name == "on":
        return f"{said.place}: {error}"
    return f"{said.place}: {'--' if said.typed else ''}{said.name}: {error}"


def together(errors: Sequence[UsageError]) -> UsageError:
    """One error that says all; a hint that several have is said once."""
    lines: list[str] = []
    hints: set[str] = set()
    for error in errors:
        lines.append(str(error) if error.hint in hints else error.line())
        hints.add(error.hint)
    return UsageError(" | ".join(lines))
