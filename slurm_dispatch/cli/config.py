"""``dispatch config show``: the settings that count here, and where each comes from."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from slurm_dispatch.cli.sbatch import Untouched

if TYPE_CHECKING:
    from slurm_dispatch.config.site import Site
    from slurm_dispatch.submit.request import Request

HELP = """\
Usage: dispatch config show [--json] [[OUR OPTIONS] [SBATCH'S OPTIONS] SCRIPT]

  Show every setting of the site, its value and its origin: the line of the file, or built in. With a script,
  or any words that dispatch sbatch takes, show those of that job too: command line, line of the script, job
  file or site; and which of the site's limits are about it. Nothing is submitted and nothing is written.

  --json     one JSON object instead of the tables

Examples:
  dispatch config show
  dispatch config show --job-file run.toml train.sh

Exit codes: 0, 64 usage, 66 there is no job to show settings of, 77 not allowed, 78 bad configuration: all that
is wrong is said at once, each with its line.
"""


class Config(Untouched):
    """The command of ``dispatch config``."""

    def get_help(self, ctx: click.Context) -> str:
        """The help, as it is written above."""
        return HELP.rstrip()


@click.command(cls=Config, add_help_option=False)
@click.pass_context
def command(ctx: click.Context) -> int:
    """Show the settings that count, and where each comes from."""
    from slurm_dispatch.config.site import load_site
    from slurm_dispatch.errors import UsageError
    from slurm_dispatch.submit.config_text import as_json

    if not ctx.args or ctx.args[0] in {"-h", "--help"}:
        click.echo(HELP, nl=False)
        return 0
    if ctx.args[0] != "show":
        raise UsageError("dispatch config does one thing", hint="dispatch config show")
    words = ctx.args[1:]
    if words[:1] in (["-h"], ["--help"]):
        click.echo(HELP, nl=False)
        return 0
    json_wanted = words[:1] == ["--json"]
    words = words[1:] if json_wanted else words
    site = load_site()
    request = _request(words, site) if words else None
    click.echo(as_json(site, request) if json_wanted else _tables(site, request))
    return 0


def _request(words: list[str], site: Site) -> Request:
    from slurm_dispatch.errors import NothingThereError
    from slurm_dispatch.slurm.commands import commands_environment
    from slurm_dispatch.submit.first import all_options
    from slurm_dispatch.submit.request import Plain, prepare

    environment = dict(os.environ)
    asking = commands_environment(site.slurm_bin or "", inherited=environment)
    request = prepare(words, environment=environment, site=site, more=all_options(asking), need_root=False)
    if isinstance(request, Plain):
        raise NothingThereError(f"there is no job to show settings of: {request.why}")
    return request


def _tables(site: Site, request: Request | None) -> str:
    from slurm_dispatch.errors import show
    from slurm_dispatch.submit.config_text import job_rows, limit_rows, site_rows, table

    parts = []
    if request is not None:
        parts += [table(("JOB'S SETTING", "VALUE", "FROM"), job_rows(request))]
        limits = limit_rows(request, site)
        if limits:
            parts += [table(("LIMIT OF THE SITE", "VALUE", "FROM"), limits)]
    parts += [f"Site: {show(site.path)}\n" + table(("SITE'S SETTING", "VALUE", "FROM"), site_rows(site))]
    return "\n\n".join(parts)
