"""``dispatch``: the group of commands, loaded one at a time, and the one place where errors become exit codes."""

from __future__ import annotations

import importlib
import os
import sys

import click

from slurm_dispatch import __version__
from slurm_dispatch.durable import fill_streams
from slurm_dispatch.errors import DispatchError, one_line

# Name of the command: module below slurm_dispatch.cli that has `command`, and its line in the help
# (written here so that the help loads none of them).
COMMANDS: dict[str, tuple[str, str]] = {
    "sbatch": ("sbatch", "Submit a job that is replaced when it ends too early."),
    "plan": ("plan", "Show what will be done about each outcome, before anything starts."),
    "config": ("config", "Show the settings that count, and where each comes from."),
    "status": ("status", "List your jobs."),
    "show": ("show", "Show one job, or its facts."),
    "why": ("why", "Say why a job is where it is, and what would change it."),
    "replay": ("replay", "Make every decision about a job again, from its facts."),
    "cancel": ("cancel", "Close a job for good and cancel what it has in Slurm."),
    "hold": ("hold", "Let nothing more of a job start."),
    "release": ("release", "Let a held job go on."),
    "holds": ("holds", "List the jobs that are held, and why."),
    "reopen": ("reopen", "Open a closed job again."),
    "update": ("update", "Change what the next submission of a job is."),
    "supersede": ("supersede", "Let a new job go on in the place of an old one."),
    "adopt": ("adopt", "Give a save of a replaced run to the current lineage."),
    "nodes": ("nodes", "List the nodes that jobs keep off, and why."),
    "site": ("site", "Announce maintenance."),
    "publish": ("publish", "Publish a save by hand."),
    "latest": ("latest", "Print the path of the save to resume from."),
    "fetch": ("fetch", "Bring the save to resume from from S3 to a folder."),
    "result": ("result", "Print the folder of the execution that completed."),
    "ls": ("ls", "List the publications of a checkpoint root."),
    "doctor": ("doctor", "Show what the store of a checkpoint root is proved to do."),
    "fsck": ("fsck", "Check a checkpoint root: names, saves, executions, who is latest."),
    "du": ("du", "Say what a checkpoint root takes, by execution."),
    "gc": ("gc", "Remove saves of a checkpoint root that are outranked."),
    "ps": ("ps", "Show what of an execution still runs on this node."),
    "cessation": ("cessation", "Answer whether an execution has ceased, from what its nodes have said."),
    "env": ("env", "Print the variables of this execution."),
    "again": ("again", "Say inside a job that its work is saved and not finished."),
    "epoch": ("epoch", "Compute an epoch from its parts."),
    "tick": ("tick", "Look at all open jobs once, or in a loop; for cron and the service."),
}

BROKEN_PIPE_STATUS = 141
"""What a shell says of a program that SIGPIPE ended."""


class Commands(click.Group):
    """A group that imports a command's module only when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported now; ``None`` if there is none of that name."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"slurm_dispatch.cli.{COMMANDS[cmd_name][0]}")
        command = module.command
        if not isinstance(command, click.Command):
            raise DispatchError(f"slurm_dispatch.cli.{COMMANDS[cmd_name][0]} has no command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list in the help, from the table alone."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="dispatch")
def dispatch() -> None:
    """Replace a Slurm job at once when it ends too early, and make the overlap harmless.

    Exit codes: 0 done, 64 usage, 65 bad data, 66 nothing there, 69 a service is away, 70 a bug of ours,
    73 cannot create, 74 store error, 75 outcome unknown, 77 not allowed, 78 bad configuration.
    """


def say(message: str) -> None:
    """One line on stderr, with the prefix that all of ours have."""
    click.echo(f"dispatch: {one_line(message)}", err=True)


def main(arguments: list[str] | None = None) -> int:
    """Run a command line and return its exit code; prints one line for each error."""
    try:
        status = dispatch.main(args=arguments, prog_name="dispatch", standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        where = f"; see {context.command_path} --help" if context is not None else ""
        say(error.format_message() + where)
        return 64
    except click.Abort:
        say("interrupted")
        return 130
    except DispatchError as error:
        say(error.line())
        return error.exit_code
    except BrokenPipeError:
        # The reader has gone (`dispatch ls | head`): nothing to say, and nothing to flush at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return BROKEN_PIPE_STATUS
    except Exception as error:
        if os.environ.get("DISPATCH_TRACEBACK"):
            raise
        say(f"bug: {type(error).__name__}: {error}; set DISPATCH_TRACEBACK=1 to see where, and report it")
        return 70
    return status if isinstance(status, int) else 0


def run() -> None:
    """The entry point of the console script."""
    fill_streams()
    sys.exit(main())


if __name__ == "__main__":
    run()
