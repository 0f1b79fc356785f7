"""``dispatch plan``: what would be done about each outcome, before anything starts."""

from __future__ import annotations

import os

import click

from slurm_dispatch.cli.sbatch import Untouched

HELP = """\
Usage: dispatch plan [--json] [OUR OPTIONS] [SBATCH'S OPTIONS] SCRIPT

  Show what dispatch sbatch with the same words would do about each outcome: action, budget, what the next
  submission changes, and whose rule says so. Nothing is submitted and nothing is written.

  --json     one JSON object instead of the table

Example:
  dispatch plan --checkpoint /scratch/me/run7 --on failed:stop train.sh

Exit codes: 0, 64 usage, 66 there is no job to plan for, 77 not allowed, 78 bad
configuration.
"""

CONFIG_TIMEOUT_S = 10.0
"""A plan is shown also without Slurm's answer, and somebody waits for it."""


class Plan(Untouched):
    """The command of ``dispatch plan``."""

    def get_help(self, ctx: click.Context) -> str:
        """The help, as it is written above."""
        return HELP.rstrip()


@click.command(cls=Plan, add_help_option=False)
@click.pass_context
def command(ctx: click.Context) -> int:
    """Show what will be done about each outcome."""
    from slurm_dispatch.config.site import load_site
    from slurm_dispatch.errors import NothingThereError
    from slurm_dispatch.slurm.commands import SlurmCommands, commands_environment
    from slurm_dispatch.slurm.port import Unknown
    from slurm_dispatch.submit.first import all_options
    from slurm_dispatch.submit.open_jobs import dependency_notes, older_scripts
    from slurm_dispatch.submit.plan import make_plan
    from slurm_dispatch.submit.plan_text import as_json, report
    from slurm_dispatch.submit.request import Plain, prepare

    if ctx.args and ctx.args[0] in {"-h", "--help"}:
        click.echo(HELP, nl=False)
        return 0
    json_wanted = ctx.args[:1] == ["--json"]
    words = ctx.args[1:] if json_wanted else ctx.args
    site = load_site()
    environment = dict(os.environ)
    asking = commands_environment(site.slurm_bin or "", inherited=environment)
    request = prepare(words, environment=environment, site=site, more=all_options(asking), need_root=False)
    if isinstance(request, Plain):
        raise NothingThereError(f"there is no job to plan for: {request.why}")
    config = SlurmCommands(asking, timeout_s=min(CONFIG_TIMEOUT_S, site.query_timeout_s)).config()
    plan = make_plan(request, site, None if isinstance(config, Unknown) else config)
    more = [*dependency_notes(request, site), *older_scripts(request, site)]
    click.echo(as_json(plan, more) if json_wanted else "\n".join(report(plan, more)))
    return 0
