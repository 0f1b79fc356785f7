"""``dispatch sbatch``: parse and print; the work is in :mod:`slurm_dispatch.submit`."""

from __future__ import annotations

import os

import click

HELP = """\
Usage: dispatch sbatch [OUR OPTIONS] [SBATCH'S OPTIONS] [SCRIPT [ARGUMENTS]]

  Submit a job that is replaced when it ends too early. Every option of sbatch is passed on as it is, and what
  sbatch prints and returns is what you get; our own lines go to stderr.

  Ours stand before the script, or in the script as #DISPATCH lines beside the #SBATCH lines:

  --checkpoint ROOT        the job's checkpoint root, a folder or s3://BUCKET/PREFIX for this job alone (needed).
                           ~, $NAME, %x (name), %u (user) and %A (the job's key) are put in.
  --on OUTCOMES:ACTION[,OPTION...]
                           what to do about outcomes, such as preempted,node_fail:resubmit,budget=20 or
                           out_of_memory:resubmit,mem=2x..512G; the first that matches counts.
  --stall TIME             no publication for so long: the command is ended, outcome stalled.
  --suspect TIME           a node is silent for so long: start the replacement elsewhere (if the site allows it).
  --shared-checkpoint      executions write into the root itself: nothing comes back without a word.
  --shared-hold-for TIME   how long it waits for that word (24h).
  --max-submissions N, --max-node-hours H, --until DATE, --no-progress-limit K
                           caps: then the job is held.
  --job-file FILE          these settings from a TOML file; dispatch config show tells where each comes from.
  --start-from PATH        begin from this save, s3://BUCKET/KEY too, while the root has no publication.
  --adopt-root             the root was another job's: go on from what is in it.
  --no-plan                do not print the plan and the notes.
  --unprotected            call sbatch plainly: no record, no recovery.
  --no-NAME                take away what the script or the job file says, such as --no-stall (docs/settings.md).

  sbatch's --wait waits for the job with its replacements.

Examples:
  dispatch sbatch --checkpoint /scratch/%u/%x train.sh
  dispatch sbatch --checkpoint /scratch/me/run7 --on preempted:resubmit,budget=50 -N 2 train.sh --epochs 10

Exit codes: sbatch's own; 64 usage, 69 the state folder is away (nothing was submitted), 73 the root is another
job's, 75 nobody knows yet whether Slurm has the job (do not submit it again), 77 not allowed.
sbatch's options: sbatch --help
"""


class Untouched(click.Command):
    """A command whose words nobody reads before it does: click would take ``--`` and ``-h`` away."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep every word."""
        ctx.args = list(args)
        return []

    def get_help(self, ctx: click.Context) -> str:
        """The help, as it is written above."""
        return HELP.rstrip()


@click.command(cls=Untouched, add_help_option=False)
@click.pass_context
def command(ctx: click.Context) -> int:
    """Submit a job that is replaced when it ends too early."""
    from slurm_dispatch.cli.main import say
    from slurm_dispatch.config.site import load_site
    from slurm_dispatch.slurm.commands import SlurmCommands, commands_environment
    from slurm_dispatch.submit.first import all_options, replace_process, submit_first
    from slurm_dispatch.submit.request import Plain, prepare

    if ctx.args and ctx.args[0] in {"-h", "--help"}:
        click.echo(HELP, nl=False)
        return 0
    inherited = dict(os.environ)
    site = load_site()
    asking = commands_environment(site.slurm_bin or "", inherited=inherited)
    request = prepare(ctx.args, environment=inherited, site=site, more=all_options(asking))
    if isinstance(request, Plain):
        return replace_process(request, asking)
    port = SlurmCommands(asking, timeout_s=site.query_timeout_s)
    return submit_first(request, environment=inherited, site=site, port=port, say=say)
