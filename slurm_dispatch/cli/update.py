"""``dispatch update``: change what the next submission of a job is."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from slurm_dispatch.cli.wishes import Bench
    from slurm_dispatch.records import people
    from slurm_dispatch.records.spec import Spec
    from slurm_dispatch.records.state import State
    from slurm_dispatch.slurm.options import Option
    from slurm_dispatch.state.jobs import Record
    from slurm_dispatch.submit.update import Update


# -h is no help here: -phigh would be read as it.
@click.command("update", context_settings={"ignore_unknown_options": True, "help_option_names": ["--help"]})
@click.argument("job")
@click.option("--script", metavar="FILE", help="The next submission runs this script; its #DISPATCH lines count.")
@click.option("--reason", default="", help="Why, for the record.")
@click.argument("options", metavar="[OPTIONS OF dispatch sbatch]...", nargs=-1, type=click.UNPROCESSED)
def command(*, job: str, script: str | None, reason: str, options: tuple[str, ...]) -> int:
    """Change what the next submission of JOB is. What runs or waits in Slurm now is not touched.

    Options of sbatch take the place of those of the same name. Rules (--on) take the place of all the job's rules.
    What is not named stays as it was.

    \b
    Examples:
      dispatch update 4711 --time=2-00:00:00 --mem=64G
      dispatch update my-training --script train.sh --on failed:hold

    Exit codes: 0 done, 64 usage (also a job that is closed), 66 no such job, 69 the state folder does not answer,
    77 the site does not allow it.
    """
    from slurm_dispatch.cli.wishes import bench
    from slurm_dispatch.errors import UsageError, one_line
    from slurm_dispatch.submit.first import all_options
    from slurm_dispatch.submit.script import read_file

    if job.startswith("-"):
        raise UsageError("the job comes first", hint="dispatch update JOB --time=...")
    here = bench()
    key = here.key(job)
    path = None if script is None else os.path.normpath(os.path.join(os.getcwd(), script))
    asked = _Asked(options, reason, os.getcwd(), all_options(here.means.site_environment), path)
    if here.is_mine(key):
        # Root's own rights and environment go into nobody's job; a user's pipe can be read here alone.
        asked.content = None if script is None else read_file(script, os.getcwd())
        asked.environment = dict(os.environ)

    def work(record: Record) -> dict[str, Any]:
        return {"text": _update(here, record, asked)}

    click.echo(f"job {key}: {one_line(here.as_owner(key, work)['text'])}")
    return 0


@dataclass(slots=True)
class _Asked:
    """What was typed.

    :param script: absolute, or ``None``.
    :param content: of the script; ``None``: to be read with the owner's rights.
    :param environment: for the paths of options.
    """

    options: tuple[str, ...]
    reason: str
    folder: str
    more: Callable[[], Mapping[str, Option]]
    script: str | None
    content: bytes | None = None
    environment: Mapping[str, str] = field(default_factory=dict)

    def path(self, spec: Spec, record: Record, what: str, text: str) -> str:
        """The path that ``text`` means for our option ``what``: a job file is the person's, all else the job's."""
        from slurm_dispatch.slurm.resubmit import recorded_variables
        from slurm_dispatch.submit.expand import expand

        typed = what == "--job-file"
        variables = self.environment if typed else recorded_variables(record.environment())
        folder = self.folder if typed else spec.workdir
        return expand(
            text, what=what, key=spec.job, name=spec.name, user=spec.user, variables=variables, folder=folder
        )


def _update(here: Bench, record: Record, asked: _Asked) -> str:
    from slurm_dispatch.controller import wish
    from slurm_dispatch.records import people
    from slurm_dispatch.records.fold import fold
    from slurm_dispatch.submit.script import read_file
    from slurm_dispatch.submit.update import read_update

    before = fold(record.read())
    spec, content = before.spec, asked.content
    if content is None and asked.script is not None:
        content = read_file(asked.script, "/")
    found = read_update(
        spec,
        asked.options,
        content,
        site=here.site,
        path_of=lambda what, text: asked.path(spec, record, what, text),
        more=asked.more,
    )

    def updated(state: State) -> people.Facts:
        return people.update(
            state,
            asked.reason,
            argv=found.argv,
            script_sha256=found.script_sha256,
            script_name=asked.script,
            rules=found.rules,
            settings=found.settings,
            given=found.given,
        )

    updated(before)  # what is refused is refused before anything is kept
    if found.script is not None:
        record.add_script(found.script)
    state = wish.write(record, here.means.by, updated)
    due = state.next_number if state.due is None else state.due.submission
    return f"submission {due} will have {_what(found, asked)}; what is in Slurm now stays as it is"


def _what(found: Update, asked: _Asked) -> str:
    """What changes, in a few words."""
    from slurm_dispatch.config.settings import JOB_SETTINGS
    from slurm_dispatch.slurm.options import parse
    from slurm_dispatch.submit.update import canonical

    parts = [f"the script {asked.script}"] if found.script is not None else []
    words = parse(found.argv or ()).options
    parts += [
        f"--{word.name}" if word.value is None else f"--{word.name}={word.value}"
        for word in words
        if canonical(word) in found.given
    ]
    parts += [] if found.rules is None else [f"the rules {'; '.join(found.rules)}"]
    parts += [
        f"--no-{setting.name}"
        if found.settings[setting.field] is None
        else f"--{setting.name}={_shown(setting.kind, found.settings[setting.field])}"
        for setting in JOB_SETTINGS
        if setting.field in found.settings
    ]
    return ", ".join(parts)


def _shown(kind: str, value: Any) -> str:
    from slurm_dispatch.cli.layout import clock
    from slurm_dispatch.model.quantity import duration

    if kind == "date":
        return clock(value)
    return duration(value) if kind == "seconds" else str(value)
