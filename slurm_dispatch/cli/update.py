"""``dispatch update``: change what the next submission of a job is."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from slurm_dispatch.cli.wishes import Bench
    from slurm_dispatch.state.jobs import Record


@click.command("update", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": True})
@click.argument("job")
@click.option("--script", metavar="FILE", help="The next submission runs this script; its #DISPATCH lines count.")
@click.option("--reason", default="", help="Why, for the record.")
@click.argument("options", metavar="[OPTIONS OF dispatch sbatch]...", nargs=-1, type=click.UNPROCESSED)
def command(*, job: str, script: str | None, reason: str, options: tuple[str, ...]) -> int:
    """Change what the next submission of JOB is. What runs or waits in Slurm now is not touched.

    Options of sbatch take the place of those of the same name; rules (--on) take the place of all the job's rules.

    \b
    Examples:
      dispatch update 4711 --time=2-00:00:00 --mem=64G
      dispatch update my-training --script train.sh --on failed:hold

    Exit codes: 0 done, 64 usage (also a job that is closed), 66 no such job, 69 the state folder does not answer,
    77 the site does not allow it.
    """
    from slurm_dispatch.cli.wishes import bench
    from slurm_dispatch.submit.script import read_file

    here = bench()
    key = here.key(job)
    asked = _Asked(options, script, None if script is None else read_file(script, os.getcwd()), reason)

    def work(record: Record) -> dict[str, Any]:
        return {"text": _update(here, record, asked)}

    click.echo(f"job {key}: {here.as_owner(key, work)['text']}")
    return 0


@dataclass(frozen=True, slots=True)
class _Asked:
    """What was typed, and the script that was read with the caller's own rights."""

    options: tuple[str, ...]
    script: str | None
    content: bytes | None
    reason: str


def _update(here: Bench, record: Record, asked: _Asked) -> str:
    from slurm_dispatch.controller import wish
    from slurm_dispatch.records import people
    from slurm_dispatch.records.fold import fold
    from slurm_dispatch.submit.expand import expand
    from slurm_dispatch.submit.first import all_options
    from slurm_dispatch.submit.update import read_update

    spec = fold(record.read()).spec
    folder, environment = os.getcwd(), dict(os.environ)

    def path_of(what: str, text: str) -> str:
        return expand(
            text, what=what, key=spec.job, name=spec.name, user=spec.user, variables=environment, folder=folder
        )

    more = all_options(here.means.site_environment)
    found = read_update(spec, asked.options, asked.content, site=here.site, path_of=path_of, more=more)
    if found.script is not None:
        record.add_script(found.script)
    state = wish.write(
        record,
        here.means.by,
        lambda state: people.update(
            state,
            asked.reason,
            argv=found.argv,
            script_sha256=found.script_sha256,
            script_name=asked.script,
            rules=found.rules,
            settings=found.settings,
        ),
    )
    number = state.next_number
    return f"submission {number} will be so; what is in Slurm now stays as it is"
