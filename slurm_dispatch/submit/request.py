"""From a command line to what will be submitted: script, settings, specification, and what sbatch is called with.

Nothing is written and nothing is asked of Slurm here, save for a long option that the table does not have.
"""

from __future__ import annotations

import hashlib
import os
import re
import socket
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from slurm_dispatch.errors import BadDataError, NotAllowedError, UsageError, show
from slurm_dispatch.model.identity import new_key, strip_words
from slurm_dispatch.model.outcome import Action
from slurm_dispatch.records.facts import Fact, render
from slurm_dispatch.records.spec import Spec
from slurm_dispatch.s3.place import SCHEME, is_place, parse_place, parse_save
from slurm_dispatch.slurm.directives import foreign_options, sbatch_options
from slurm_dispatch.slurm.options import as_argument, from_variables, without_options
from slurm_dispatch.slurm.resubmit import NOT_REPEATED
from slurm_dispatch.state.users import own_name
from slurm_dispatch.submit.command_line import (
    NOT_A_SUBMISSION,
    CommandLine,
    heterogeneous,
    read_command_line,
)
from slurm_dispatch.submit.directives import own_directives
from slurm_dispatch.submit.environment import cleaned
from slurm_dispatch.submit.expand import expand
from slurm_dispatch.submit.limits import bounds_of, check_limits, longest_hold_s
from slurm_dispatch.submit.script import Script, read_script
from slurm_dispatch.submit.settings import Settings, gather

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from slurm_dispatch.config.site import Site
    from slurm_dispatch.rules.rule import Rule
    from slurm_dispatch.slurm.options import Option, Parsed

COMMENT_MAX = 1024
"""Characters that slurmctld takes for a comment (``_validate_job_create_req``, 22.05 to 26.05)."""
CLUSTERS_MAX = 300
"""Characters of the names that ``-M`` gives: the tick's index remembers them for each job."""
# What makes an output's name a different one for every submission: %j, %J and %A (for a job that is no array).
_HAS_ID = re.compile(r"%[0-9]*[jJA]")


@dataclass(frozen=True, slots=True)
class Plain:
    """Nothing of ours: sbatch with this argv and environment, in our place.

    :param why: why, in words for a person.
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    why: str


@dataclass(frozen=True, slots=True)
class Request:
    """A job to be submitted for the first time.

    :param spec: as it will be recorded; its ``cluster`` is filled in by who asks Slurm.
    :param added: sbatch options of ours but the comment.
    """

    spec: Spec
    settings: Settings
    script: Script
    line: CommandLine
    added: tuple[str, ...]
    quiet: bool
    parsable: bool
    waits: bool

    def argv(self, comment: str) -> tuple[str, ...]:
        """sbatch's argv with ours in it, without the script where sbatch gets that from us."""
        added = (*self.added, f"--comment={comment}")
        # With --wrap a script is sbatch's to refuse.
        return self.line.with_added(added, script=self.script.path is not None or self.script.wrap)


@dataclass(frozen=True, slots=True)
class Options:
    """The options that count for the job, with sbatch's precedence: command line, variables, directives."""

    line: Parsed
    variables: tuple[tuple[str, str], ...]
    script: Parsed
    foreign: Mapping[str, str]

    def value(self, name: str) -> str | None:
        """The value that counts, ``""`` for an option without one, ``None`` if it is not set anywhere."""
        typed = self.line.last(name)
        if typed is not None:
            return typed.value or ""
        for other, value in reversed(self.variables):
            if other == name:
                return value if as_argument(name, value) is not None else None
        written = self.script.last(name)
        if written is not None:
            return written.value or ""
        return self.foreign.get(name)

    def requeue(self) -> bool | None:
        """Whether the user wants Slurm's own requeue: the last word of the strongest place, or ``None``."""
        places = (
            [word.name for word in self.line.options],
            [name for name, value in self.variables if as_argument(name, value) is not None],
            [word.name for word in self.script.options],
        )
        for names in places:
            said = [name for name in names if name in {"requeue", "no-requeue"}]
            if said:
                return said[-1] == "requeue"
        return None


def prepare(
    argv: Sequence[str],
    *,
    environment: Mapping[str, str],
    site: Site,
    stdin: int = 0,
    more: Callable[[], Mapping[str, Option]] | None = None,
    need_root: bool = True,
) -> Request | Plain:
    """Read everything that the user said, and put the specification together.

    :param argv: what stands after ``dispatch sbatch``.
    :param more: every option of the sbatch at hand, for a long option that the table does not have.
    :param need_root: refuse a job without a checkpoint root (``dispatch plan`` shows one all the same).
    :returns: :class:`Plain` where sbatch submits nothing, or will refuse, or was asked for by ``--unprotected``.
    :raises UsageError: something of ours is wrong; one line that says where.
    """
    folder = os.getcwd()
    line = read_command_line(argv, more)

    def plain(why: str) -> Plain:
        return Plain(line.with_added(()), cleaned(environment), why)

    for name in NOT_A_SUBMISSION:
        if line.has(name):
            return plain(f"with --{name} sbatch submits nothing")
    if ("unprotected", "") in line.own:
        return plain("--unprotected leaves it to sbatch alone")
    script = read_script(line, environment, folder, stdin)
    if script is None:
        return plain(f"the script {show(line.script)} cannot be read")
    given, _, hetjob = sbatch_options(script.content, more)
    options = Options(line.parsed, from_variables(environment), given, foreign_options(script.content))
    # sbatch takes an empty name for none, and the script's for it.
    paths = _Paths(new_key(), options.value("job-name") or script.name, environment, folder)
    settings = gather(line.own, *own_directives(script.content), site=site, now=time.time(), path_of=paths.expand)
    if settings.flag("unprotected") or given.last("test-only") is not None:
        if script.path is None and not script.wrap:
            raise UsageError("--unprotected and --test-only belong on the command line if the script is no file")
        word = "--unprotected" if settings.flag("unprotected") else "--test-only"
        return plain(f"the script's {word} leaves it to sbatch alone")
    _refuse(options, hetjob=hetjob)
    clusters = clusters_of(options.value("clusters") or "")
    root = _root(settings, paths, need_root=need_root)
    spec = replace(_spec(line, script, settings, options, paths=paths, site=site, root=root), clusters=clusters)
    bounded = bounds_of(spec, site)
    check_limits(settings, site, bounded)
    spec = replace(spec, shared_hold_for_s=min(spec.shared_hold_for_s, longest_hold_s(bounded, site)))
    _fits(spec)
    return Request(
        spec=spec,
        settings=settings,
        script=script,
        line=line,
        added=_added(options, script, shared=spec.shared, keeps_id=_keeps_id((*settings.rules, *site.rules))),
        quiet=options.value("quiet") is not None,
        parsable=options.value("parsable") is not None,
        waits=options.value("wait") is not None,
    )


def _refuse(options: Options, *, hetjob: bool) -> None:
    if os.geteuid() == 0:
        raise NotAllowedError(
            "jobs of root are not managed",
            hint="submit it as the user whose job it is, or without recovery: dispatch sbatch --unprotected",
        )
    if hetjob:
        raise heterogeneous("the script has a hetjob line")
    if options.value("array") is not None:
        raise UsageError(
            "job arrays are not managed in this version",
            hint="submit one job for each index, or the array with sbatch or dispatch sbatch --unprotected",
        )


def clusters_of(text: str) -> tuple[str, ...]:
    """The clusters that ``-M`` names: on each of them the job is looked for, and nowhere else."""
    # Slurm keeps their names in small letters.
    names = tuple(dict.fromkeys(name.strip().lower() for name in text.split(",") if name.strip()))
    if "all" in names:
        raise UsageError("-M all does not say where the job can be", hint="name the clusters")
    for name in names:
        if not re.fullmatch(r"[a-z0-9_.-]+", name):
            raise UsageError(f"-M {show(name)}: that is no cluster's name")
    if sum(len(name) + 1 for name in names) > CLUSTERS_MAX:
        raise UsageError(f"-M names more clusters than can be followed ({CLUSTERS_MAX} characters)")
    return names


def _fits(spec: Spec) -> None:
    """Refuse in time what the job's record could not hold."""
    try:
        render(Fact(1, time.time(), "spec", f"user:{spec.user}@{spec.host}", spec.body()))
    except BadDataError as error:
        raise UsageError(
            f"the job's settings do not fit into its record: {error}", hint="give fewer rules or options"
        ) from error


def _keeps_id(rules: Iterable[Rule]) -> bool:
    """A rule asks Slurm to start the object again."""
    return any(rule.action is Action.REQUEUE for rule in rules)


def _added(options: Options, script: Script, *, shared: bool, keeps_id: bool) -> tuple[str, ...]:
    """What we add to sbatch's options, never against what the user set; but Slurm must never start a job with a
    shared checkpoint again by itself, and starts one again for a rule only if it is told at the submission."""
    added = []
    wanted = options.requeue()
    if keeps_id and wanted is None and not shared:
        added.append("--requeue")
    elif shared or not wanted:
        added.append("--no-requeue")
    outputs = [options.value("output"), options.value("error")]
    fixed = [name for name in outputs if name and name != os.devnull and not _HAS_ID.search(name)]
    if fixed and options.value("open-mode") is None:
        added.append("--open-mode=append")
    if script.path is None and not script.wrap and script.name != "sbatch" and options.value("job-name") is None:
        added.append(f"--job-name={script.name}")
    return tuple(added)


@dataclass(frozen=True, slots=True)
class _Paths:
    """What is put into the paths of our options."""

    key: str
    name: str
    environment: Mapping[str, str]
    folder: str

    def expand(self, what: str, text: str) -> str:
        """The absolute path that ``text`` means, written for the option ``what``."""
        return expand(
            text,
            what=what,
            key=self.key,
            name=self.name,
            user=own_name(),
            variables=self.environment,
            folder=self.folder,
        )


def _root(settings: Settings, paths: _Paths, *, need_root: bool) -> str:
    typed = settings.text("checkpoint")
    if typed is not None:
        if is_place(typed):
            return _place(typed, paths, shared=settings.flag("shared-checkpoint"))
        if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", typed):
            raise UsageError(f"--checkpoint {show(typed)}: a root is a folder, or s3://BUCKET/PREFIX")
        return paths.expand("--checkpoint", typed)
    if need_root:
        raise UsageError(
            "no checkpoint root",
            hint="give --checkpoint ROOT, a folder for this job, before the script or in a #DISPATCH line",
        )
    return ""


def _place(typed: str, paths: _Paths, *, shared: bool) -> str:
    """The place in S3 that ``typed`` means, with what is put into it as into a path."""
    if shared:
        raise UsageError(
            f"--checkpoint {show(typed)} is in S3, and --shared-checkpoint is for a folder",
            hint="leave --shared-checkpoint out: dispatch-watch --from DIR uploads what the command saves",
        )
    return str(parse_place(_address(typed, paths, "--checkpoint", "s3://BUCKET/PREFIX")))


def _begin(typed: str, paths: _Paths) -> str:
    """The save that ``--start-from`` means: a path, or one in S3."""
    if is_place(typed):
        return str(parse_save(_address(typed, paths, "--start-from", "s3://BUCKET/KEY"), "--start-from"))
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", typed):
        raise UsageError(f"--start-from {show(typed)}: a save is a path, or s3://BUCKET/KEY")
    return paths.expand("--start-from", typed)


def _address(typed: str, paths: _Paths, what: str, form: str) -> str:
    rest = typed[len(SCHEME) :].removesuffix("/")
    if {"", ".", ".."} & set(rest.split("/")):
        raise UsageError(f"{what} {show(typed)} is not plain", hint=f"it is {form}")
    return SCHEME + paths.expand(what, f"/{rest}")[1:]


def _spec(
    line: CommandLine,
    script: Script,
    settings: Settings,
    options: Options,
    *,
    paths: _Paths,
    site: Site,
    root: str,
) -> Spec:
    comment = strip_words(options.value("comment") or "")
    if len(os.fsencode(comment)) + 64 > COMMENT_MAX:
        raise UsageError(
            f"the comment is longer than {COMMENT_MAX - 64} bytes", hint="the identity word needs the rest"
        )
    values = settings.values
    start_from = settings.text("start-from")
    return Spec(
        job=paths.key,
        generation=0,
        user=own_name(),
        uid=os.geteuid(),
        gid=os.getegid(),
        groups=tuple(os.getgroups()),
        cluster=site.cluster or "",
        name=paths.name,
        root=root,
        shared=settings.flag("shared-checkpoint"),
        argv=_repeated(
            line,
            options,
            script,
            shared=settings.flag("shared-checkpoint"),
            keeps_id=_keeps_id((*settings.rules, *site.rules)),
        ),
        script_name=line.script,
        script_args=line.arguments,
        script_sha256=hashlib.sha256(script.content).hexdigest(),
        wrap=script.wrap,
        workdir=paths.folder,
        umask=_umask(),
        comment=comment,
        rules=tuple(rule.text for rule in settings.rules),
        max_submissions=values["max-submissions"],
        start_from=None if start_from is None else _begin(start_from, paths),
        host=socket.gethostname(),
        supersedes=None,
        shared_hold_for_s=values["shared-hold-for"],
        stall_s=values["stall"],
        suspect_s=values["suspect"],
        max_node_hours=values["max-node-hours"],
        until=values["until"],
        no_progress=values["no-progress-limit"],
        account=options.value("account") or "",
        partition=options.value("partition") or "",
        origins=settings.origins,
        dependency=options.value("dependency") or "",
    )


def _repeated(
    line: CommandLine, options: Options, script: Script, *, shared: bool, keeps_id: bool
) -> tuple[str, ...]:
    """The options that a later submission repeats, each in one word, so that they can be read without asking
    which of them take a value. Variables become options and come first: the command line is stronger."""
    words = [argument for name, value in options.variables if (argument := as_argument(name, value)) is not None]
    typed = line.parsed.options
    words += [f"--{word.name}" if word.value is None else f"--{word.name}={word.value}" for word in typed]
    words += _added(options, script, shared=shared, keeps_id=keeps_id)
    # The copy in the record has another name than the script.
    if options.value("job-name") is None and not script.wrap and not any(w.startswith("--job-name=") for w in words):
        words.append(f"--job-name={script.name}")
    return without_options(words, NOT_REPEATED)


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
