"""The call of sbatch for a job's next submission, from what was recorded of its first.

The law of this module: *the job gets the environment, the script, the folder and the options that it had, and
sbatch itself gets nothing of the user's.*
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from slurm_dispatch.errors import BadDataError
from slurm_dispatch.model.hostlist import expand
from slurm_dispatch.slurm.directives import sbatch_options, without
from slurm_dispatch.slurm.limits import NAMES, PREFIX, as_resource, propagated
from slurm_dispatch.slurm.options import MEMORY, parse, without_options
from slurm_dispatch.slurm.port import SbatchCall

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from slurm_dispatch.model.identity import Word
    from slurm_dispatch.records.spec import Spec
    from slurm_dispatch.slurm.options import Word as OptionWord

NOT_REPEATED = frozenset({
    "wait", "hold", "begin", "test-only", "parsable", "quiet", "verbose", "dependency", "comment",
})  # fmt: skip
"""Options of the first submission that a later one must not have, on the command line or in the script: the
dependencies were met when it started, or are given anew, and the comment is put together anew."""
_CARRIED = frozenset({"SLURM_DISPATCH_SHARED", "SLURM_DISPATCH_STALL"})
_SITE = ("PATH", "SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT")
# Plugins' options can come as variables; sbatch looks for them in its own environment.
_PLUGIN = ("SPANK_", "_SLURM_SPANK_OPTION_", "SLURM_SPANK_")
# What makes a program load or trust something else: never in sbatch's own environment, whoever names it.
_LOADS = ("LD_", "GCONV_", "GLIBC_", "LOCPATH", "NLSPATH", "MALLOC_", "PATH", "SLURM_CONF", "SLURM_JWT", "SLURM_SACK")
_SET_BY_SBATCH = {
    "open-mode": "SLURM_OPEN_MODE", "profile": "SLURM_PROFILE", "acctg-freq": "SLURM_ACCTG_FREQ",
    "container": "SLURM_CONTAINER", "container-id": "SLURM_CONTAINER_ID",
}  # fmt: skip
_PLAIN_VALUE = re.compile(r"[^,'\"\\\s]*\Z")


def carried(spec: Spec) -> dict[str, str]:
    """The variables through which a job's settings reach the helper (ARCHITECTURE.md)."""
    found = {}
    if spec.shared:
        found["SLURM_DISPATCH_SHARED"] = "1"
    if spec.stall_s is not None:
        found["SLURM_DISPATCH_STALL"] = f"{spec.stall_s:.0f}"
    return found


def comment_with(comment: str, word: Word) -> str:
    """The user's comment with the identity word as its last."""
    return f"{comment} {word}" if comment else str(word)


def resubmission(
    spec: Spec,
    word: Word,
    *,
    script_path: str,
    script: bytes,
    environment: bytes,
    site_environment: Mapping[str, str],
    deadline_s: float,
    changes: Sequence[str] = (),
    config: Mapping[str, str] | None = None,
    dependency: str = "",
    cluster: str = "",
) -> SbatchCall:
    """The call for submission ``word.submission`` (2 and later) of a job, to be made as its owner.

    :param script_path: the recorded copy of the script, and ``script`` its content (empty with ``--wrap``).
    :param environment: the recorded environment, NUL-separated ``NAME=value``.
    :param site_environment: what the commands need on this host (``SLURM_CONF``, ``PATH``).
    :param changes: sbatch options that the rule adds, each as ``--name=value``.
    :param config: ``scontrol show config``, for the limits that the site propagates.
    :param dependency: what it still depends on; the one that was recorded is not repeated.
    :param cluster: where it goes, if that is not the cluster of this host; empty: where its options say.
    """
    given, _, _ = sbatch_options(script)
    recorded = parse(spec.argv)

    def last(name: str) -> OptionWord | None:
        return recorded.last(name) or given.last(name)

    gone = set(NOT_REPEATED)
    added = [f"--dependency={dependency}"] if dependency else []
    added += [_merged(change, last("exclude")) for change in changes]
    if _collide(changes, last("nodelist")):
        gone.add("nodelist")  # the two together ask for nodes that are not to be had
    # sbatch takes one way to ask for memory, and counts the script's directives and the command line together.
    grown = MEMORY if any(change.startswith("--mem=") for change in changes) else frozenset[str]()
    kept = without_options(spec.argv, gone | grown)
    variables = {name: value for name, value in recorded_variables(environment).items() if name not in _CARRIED}
    variables.update(carried(spec))  # as the specification says it now: an update may have changed a setting since
    asked = last("propagate")
    marks = propagated(config or {}, (asked.value or "") if asked is not None else None)
    export = last("export")
    forgotten = _set_by_sbatch(spec, last, variables)
    own, handed = _split_environment(variables, export.value if export is not None else None, marks, forgotten)
    if export is not None and handed is None:
        added += _by_value(export.value or "", variables)
    named = {name for name in MEMORY if parse([*kept, *changes]).last(name) is not None}
    repeated = script if spec.wrap else without(script, gone | (MEMORY - named if named else set()))
    where_to = (f"--clusters={cluster}",) if cluster else ()
    options = (*kept, *where_to, *added, f"--comment={comment_with(spec.comment, word)}")
    changed = repeated != script
    where = () if spec.wrap else spec.script_args if changed else (script_path, *spec.script_args)
    return SbatchCall(
        argv=(*options, *where),
        environment={**own, **{name: site_environment[name] for name in _SITE if name in site_environment}},
        deadline_s=deadline_s,
        job_environment=handed,
        script=repeated if changed else b"",
        script_at=len(options) if changed else None,
        workdir=spec.workdir,
        umask=spec.umask,
        limits=as_resource(variables) if handed is None else (),
    )


def _set_by_sbatch(
    spec: Spec, last: Callable[[str], OptionWord | None], variables: Mapping[str, str]
) -> dict[str, str]:
    """What sbatch sets for the job in its own environment, from the options, before it takes the file instead.

    From 24.05 on slurmctld sets most of them again when the job starts.
    """
    nameless = spec.script_name is None and not spec.wrap and spec.name == "sbatch"  # from standard input
    found = {} if nameless else {"SLURM_JOB_NAME": spec.name}
    for name, variable in _SET_BY_SBATCH.items():
        word = last(name)
        if word is None or not word.value or (name.startswith("container") and variable in variables):
            continue
        found[variable] = word.value[0].lower() if name == "open-mode" else word.value
    return found


def _collide(changes: Sequence[str], user: object) -> bool:
    """The changes exclude a node that the user's own ``--nodelist`` names, as far as one can tell."""
    value = getattr(user, "value", None)
    excluded = [change.removeprefix("--exclude=") for change in changes if change.startswith("--exclude=")]
    if not excluded or not value:
        return False
    if "/" in value:
        return True  # a file's name
    try:
        return bool(set(expand(value)) & {name for text in excluded for name in expand(text)})
    except BadDataError:
        return True  # a form that only sbatch reads


def _merged(change: str, user: object) -> str:
    """``--exclude`` of a rule beside the user's own: sbatch would take the last one only."""
    value = getattr(user, "value", None)
    if change.startswith("--exclude=") and value:
        return f"--exclude={value},{change.removeprefix('--exclude=')}"
    return change


def recorded_variables(environment: bytes) -> dict[str, str]:
    """The variables of a recorded environment, NUL-separated ``NAME=value``."""
    found: dict[str, str] = {}
    for entry in environment.split(b"\0"):
        name, equals, value = entry.decode("utf-8", "surrogateescape").partition("=")
        if equals and name:
            found[name] = value
    return found


def _split_environment(
    variables: Mapping[str, str], export: str | None, marks: Mapping[str, str], forgotten: Mapping[str, str]
) -> tuple[dict[str, str], bytes | None]:
    """What goes into sbatch's own environment, and what by ``--export-file`` (``None``: nothing).

    :param forgotten: what sbatch sets for the job, and forgets beside the file (as it does ``SLURM_EXPORT_ENV``).

    ``--export=NONE``, ``NIL`` and a list without ``ALL`` throw the file away or would let all of it through.
    They look for what they export in sbatch's own environment: there they find only what they name, and what
    they export anyway.
    """
    plugin = {name: value for name, value in variables.items() if name.startswith(_PLUGIN)}
    words = [] if export is None else export.split(",")
    if export is None or any(word.upper() == "ALL" for word in words):
        passed = {name: value for name, value in variables.items() if not name.startswith(PREFIX)}
        for name in NAMES:
            if name in marks and PREFIX + name in variables:
                passed[PREFIX + name] = marks[name] + variables[PREFIX + name]
        if export is not None:
            passed["SLURM_EXPORT_ENV"] = export
        passed.update(forgotten)
        text = "".join(f"{name}={value}\0" for name, value in passed.items())
        return plugin, text.encode("utf-8", "surrogateescape")
    named = {word for word in words if "=" not in word}
    own = {
        name: value
        for name, value in variables.items()
        if (name in named or name.startswith(("SLURM_", "SPANK_"))) and not name.startswith(PREFIX)
    }
    return {name: value for name, value in {**plugin, **own}.items() if not name.startswith(_LOADS)}, None


def _by_value(export: str, variables: Mapping[str, str]) -> list[str]:
    """``--export`` anew where it names a variable that sbatch itself must not have: with its value instead.

    A value that sbatch's list cannot hold is left out.
    """
    words = [word for word in export.split(",") if word]
    if not any(word.startswith(_LOADS) and "=" not in word for word in words):
        return []
    found = []
    for word in words:
        if not word.startswith(_LOADS) or "=" in word:
            found.append(word)
        elif word in variables and _PLAIN_VALUE.match(variables[word]):
            found.append(f"{word}={variables[word]}")
    return [f"--export={','.join(found) or 'NIL'}"]
