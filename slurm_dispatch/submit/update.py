"""What the next submission of a job is to be: options, script and settings that a person changes."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from slurm_dispatch.config.settings import JOB_SETTINGS
from slurm_dispatch.errors import UsageError, show
from slurm_dispatch.records.spec import CHANGEABLE
from slurm_dispatch.slurm.options import SAME, without_options
from slurm_dispatch.slurm.resubmit import NOT_REPEATED
from slurm_dispatch.submit.command_line import read_command_line
from slurm_dispatch.submit.directives import own_directives
from slurm_dispatch.submit.limits import bounds_of, check_limits
from slurm_dispatch.submit.settings import gather

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from slurm_dispatch.config.site import Site
    from slurm_dispatch.records.spec import Spec
    from slurm_dispatch.slurm.options import Option

NEVER = NOT_REPEATED | {"array", "wrap", "chdir", "uid", "gid", "clusters"}
"""sbatch's options that cannot be changed: those that no later submission has, and those that make it another job."""


@dataclass(frozen=True, slots=True)
class Update:
    """The changes, for :func:`slurm_dispatch.records.people.update`.

    :param script: the new script's content; ``None``: the same script.
    """

    argv: tuple[str, ...] | None = None
    rules: tuple[str, ...] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    script: bytes | None = None
    script_sha256: str | None = None


def read_update(
    spec: Spec,
    words: Sequence[str],
    script: bytes | None,
    *,
    site: Site,
    path_of: Callable[[str, str], str],
    more: Callable[[], Mapping[str, Option]] | None = None,
) -> Update:
    """The changes that a command line asks for.

    :param spec: as it is now.
    :param words: our options and sbatch's, in any order.
    :param script: the content of another script, whose ``#DISPATCH`` lines count too; ``None``: the same one.
    :param path_of: what a path that was written for an option means.
    :raises UsageError: an option that cannot be changed, or a value that is wrong; :class:`NotAllowedError`: the
        site does not allow it.
    """
    line = read_command_line(words, more)
    if line.script is not None:
        raise UsageError(f"{show(line.script)!r} is not an option", hint="another script is given with --script FILE")
    if script is not None and spec.wrap:
        raise UsageError(f"job {spec.job} was submitted with --wrap and has no script")
    written, wrong = own_directives(script or b"")
    settings = gather(line.own, written, wrong, site=site, now=time.time(), path_of=path_of)
    check_limits(settings, site, bounds_of(spec, site))
    typed = {name for name, _ in line.own}
    changed: dict[str, Any] = {}
    for setting in JOB_SETTINGS:
        if setting.name == "on" or not settings.said(setting.name):
            continue
        if setting.field in CHANGEABLE:
            changed[setting.field] = settings.values[setting.name]
        elif setting.name in typed and setting.name != "job-file":
            raise UsageError(
                f"--{setting.name} cannot be changed", hint=f"dispatch supersede {spec.job} makes another job of it"
            )
    return Update(
        argv=_argv(spec, line.parsed.options),
        rules=tuple(rule.text for rule in settings.rules) or None,
        settings=changed,
        script=script,
        script_sha256=None if script is None else hashlib.sha256(script).hexdigest(),
    )


def _argv(spec: Spec, options: Sequence[Any]) -> tuple[str, ...] | None:
    """sbatch's options with those that were given in place of the ones of the same name."""
    if not options:
        return None
    names = {SAME.get(word.name, word.name) for word in options}
    never = sorted(names & NEVER)
    if never:
        raise UsageError(f"--{never[0]} cannot be changed", hint="it says nothing of the next submission")
    if spec.shared and "requeue" in names:
        raise UsageError("--requeue is not for a shared checkpoint: Slurm must never start it again by itself")
    gone = names | ({"requeue", "no-requeue"} if names & {"requeue", "no-requeue"} else set())
    given = [f"--{word.name}" if word.value is None else f"--{word.name}={word.value}" for word in options]
    return (*without_options(spec.argv, gone), *given)


__all__ = ["NEVER", "Update", "read_update"]
