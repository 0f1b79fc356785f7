"""What the next submission of a job is to be: options, script and settings that a person changes."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from slurm_dispatch.config.settings import JOB_SETTINGS
from slurm_dispatch.errors import UsageError, show
from slurm_dispatch.records.spec import CHANGEABLE
from slurm_dispatch.slurm.directives import sbatch_options
from slurm_dispatch.slurm.options import MEMORY, OPTIONS, SAME, VALUE, parse, without_options
from slurm_dispatch.slurm.resubmit import NOT_REPEATED
from slurm_dispatch.submit.command_line import NOT_A_SUBMISSION, read_command_line
from slurm_dispatch.submit.directives import own_directives
from slurm_dispatch.submit.limits import bounds_of, check_limits
from slurm_dispatch.submit.request import clusters_of
from slurm_dispatch.submit.settings import COMMAND_LINE, gather

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from slurm_dispatch.config.site import Site
    from slurm_dispatch.records.spec import Spec
    from slurm_dispatch.slurm.options import Option, Word
    from slurm_dispatch.submit.settings import Settings

_ANOTHER = frozenset({"array", "wrap", "chdir", "uid", "gid", "clusters", "job-name"})
NEVER = NOT_REPEATED | _ANOTHER | frozenset(NOT_A_SUBMISSION)
"""sbatch's options that cannot be changed: those that no later submission has, and those that make it another job."""
_ALONE = (frozenset({"requeue", "no-requeue"}), MEMORY)
"""Of each of these sbatch takes one."""
_IN_SCRIPT = {"checkpoint": "root", "shared-checkpoint": "shared"}
"""Settings that make it another job, where a script says them otherwise."""


@dataclass(frozen=True, slots=True)
class Update:
    """The changes, for :func:`slurm_dispatch.records.people.update`.

    :param script: the new script's content; ``None``: the same script.
    :param given: names of the options of sbatch that are new in ``argv``.
    """

    argv: tuple[str, ...] | None = None
    rules: tuple[str, ...] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    script: bytes | None = None
    script_sha256: str | None = None
    given: tuple[str, ...] = ()


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
    changed = _settings(spec, settings, path_of)
    argv = _argv(spec, line.parsed.options, more)
    if script is not None or argv is not None:
        changed.update(_whose(spec, spec.argv if argv is None else argv, script))
    whose = {name: changed[name] for name in ("account", "partition") if name in changed}
    check_limits(settings, site, bounds_of(replace(spec, **whose), site))
    return Update(
        argv=argv,
        rules=tuple(rule.text for rule in settings.rules) or None,
        settings=changed,
        script=script,
        script_sha256=None if script is None else hashlib.sha256(script).hexdigest(),
        given=tuple(sorted({canonical(word) for word in line.parsed.options})),
    )


def _settings(spec: Spec, settings: Settings, path_of: Callable[[str, str], str]) -> dict[str, Any]:
    """The settings that change, by the field of the specification, and where each was said."""
    changed: dict[str, Any] = {}
    origins = dict(spec.origins)
    for setting in JOB_SETTINGS:
        name = setting.name
        if not settings.said(name) or name in {"on", "job-file", "no-plan"}:
            continue
        value, place = settings.values[name], settings.origins[name]
        if setting.field in CHANGEABLE:
            changed[setting.field] = value
            origins[name] = f"dispatch update: {place}"
            continue
        same = None if name not in _IN_SCRIPT else getattr(spec, _IN_SCRIPT[name])
        another = name in _IN_SCRIPT and same not in {value, path_of(f"--{name}", str(value))}
        if place == COMMAND_LINE or another:
            raise UsageError(
                f"{place}: --{name} cannot be changed", hint=f"dispatch supersede {spec.job} makes another job of it"
            )
    if spec.shared and changed.get("suspect_s") is not None:
        raise UsageError("--suspect is not for a shared checkpoint, whose executions must not overlap")
    if settings.rules:
        origins = {name: place for name, place in origins.items() if not name.startswith("on ")}
        places = {name: place for name, place in settings.origins.items() if name.startswith("on ")}
        origins.update({name: f"dispatch update: {place}" for name, place in places.items()})
    return {**changed, "origins": origins} if changed or settings.rules else {}


def _whose(spec: Spec, argv: Sequence[str], script: bytes | None) -> dict[str, str]:
    """Account and partition, for the site's limits, where they are others now."""
    line, written = parse(argv), parse(())
    if script is not None:
        written, _, hetjob = sbatch_options(script)
        if hetjob or written.last("array") is not None:
            raise UsageError("the script describes an array or a heterogeneous job, and these are not managed")
        goes = written.last("clusters")
        if goes is not None and clusters_of(goes.value or "") != spec.clusters and line.last("clusters") is None:
            raise UsageError(
                f"the script goes to another cluster (-M {show(goes.value or '')})",
                hint=f"dispatch supersede {spec.job} makes another job of it",
            )
    found = {}
    for name in ("account", "partition"):
        word = line.last(name) or written.last(name)
        before = getattr(spec, name)
        value = before if word is None and script is None else "" if word is None else word.value or ""
        if value != before:
            found[name] = value
    return found


def _argv(
    spec: Spec, options: Sequence[Word], more: Callable[[], Mapping[str, Option]] | None
) -> tuple[str, ...] | None:
    """sbatch's options with those that were given in place of the ones of the same name."""
    if not options:
        return None
    _check(spec, options, more)
    gone = {canonical(word) for word in options}
    for group in _ALONE:
        if gone & group:
            gone |= group
    given = [f"--{word.name}" if word.value is None else f"--{word.name}={word.value}" for word in options]
    return (*without_options(spec.argv, gone), *given)


def _check(spec: Spec, options: Sequence[Word], more: Callable[[], Mapping[str, Option]] | None) -> None:
    """Refuse what sbatch would refuse only once it is too late, and what cannot be changed."""
    known: Mapping[str, Option] = OPTIONS
    if more is not None and any(word.name not in known for word in options):
        known = {**OPTIONS, **more()}
    for word in options:
        if word.name not in known:
            raise UsageError(f"sbatch has no option {'--' if len(word.name) > 1 else '-'}{show(word.name)}")
        if known[word.name].takes == VALUE and not word.value:
            raise UsageError(f"--{word.name} needs a value")
    names = {canonical(word) for word in options}
    if names & NOT_REPEATED:
        name = min(names & NOT_REPEATED)
        raise UsageError(f"--{name} cannot be changed", hint="it is of one submission, and later ones never have it")
    if names & NEVER:
        name = min(names & NEVER)
        raise UsageError(f"--{name} cannot be changed", hint=f"dispatch supersede {spec.job} makes another job of it")
    if spec.shared and "requeue" in names:
        raise UsageError("--requeue is not for a shared checkpoint: Slurm must never start it again by itself")


def canonical(word: Word) -> str:
    """The name of an option that may have two."""
    return SAME.get(word.name, word.name)


__all__ = ["NEVER", "Update", "canonical", "read_update"]
