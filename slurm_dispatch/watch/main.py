"""``dispatch-watch``: the helper inside the job, and the one place where its errors become exit codes."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

from slurm_dispatch.durable import fill_streams
from slurm_dispatch.errors import ConfigurationError, DispatchError, StoreError, UsageError
from slurm_dispatch.watch import options as command_line
from slurm_dispatch.watch import words
from slurm_dispatch.watch.place import INHERITED, KEEP, Place, find_place, keep_text, variables
from slurm_dispatch.watch.say import say

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurm_dispatch.watch.prepare import Prepared

START_FROM = "SLURM_DISPATCH_START_FROM"
STALL = "SLURM_DISPATCH_STALL"
"""The job's own setting, from the wrapper; ``--stall`` goes before it."""


def main(arguments: list[str], environment: Mapping[str, str] | None = None) -> int:
    """Run a command line and return its exit code; says one line for each error.

    :param environment: ``os.environ`` unless told otherwise.
    """
    surroundings = dict(os.environ if environment is None else environment)
    try:
        return _main(arguments, surroundings)
    except DispatchError as error:
        say(error.line())
        return error.exit_code
    except Exception as error:
        if surroundings.get("DISPATCH_TRACEBACK"):
            raise
        say(f"bug: {type(error).__name__}: {error}; set DISPATCH_TRACEBACK=1 to see where, and report it")
        return 70


def _main(arguments: list[str], environment: dict[str, str]) -> int:
    options = command_line.parse(arguments)
    if options.help:
        sys.stdout.write(command_line.help_text())
        sys.stdout.flush()
        return 0
    if options.version:
        from slurm_dispatch import __version__

        sys.stdout.write(f"dispatch-watch {__version__}\n")
        sys.stdout.flush()
        return 0
    if options.command:
        words.check(options.command)
    place = find_place(
        environment, root=options.root, require_managed=options.require_managed, local=options.from_dir, remote=True
    )
    if options.stall_s is None and environment.get(STALL):
        options.stall_s = _stall(environment[STALL])
    if options.finish:
        from slurm_dispatch.watch.beside import finish

        return finish(place, status=options.status, timeout_s=options.timeout_s)
    return _work(place, options, environment)


def _stall(text: str) -> float:
    try:
        return command_line.seconds(STALL, text)
    except UsageError as error:
        hint = "dispatch sbatch sets it from the job's stall; do not set it yourself"
        raise ConfigurationError(str(error), hint=hint) from error


def _work(place: Place, options: command_line.Options, environment: dict[str, str]) -> int:
    from slurm_dispatch.watch.apart import apart
    from slurm_dispatch.watch.judge import Judge
    from slurm_dispatch.watch.local import is_remote, of_other_hosts
    from slurm_dispatch.watch.prepare import Prepared, follow, prepare
    from slurm_dispatch.watch.shared import follow_shared, prepare_shared
    from slurm_dispatch.watch.turn import this_process

    if options.single is not None and is_remote(place) and place.local is None:
        raise UsageError("--single on a root in S3 needs --from DIR, the folder of this host that FILE is in")
    if place.job is None and place.first:
        say(f"not managed: this run has epoch 0, below all others of {place.root}")
    runner = this_process(os.getpid(), beside=options.beside)
    start_from = options.start_from or environment.get(START_FROM)

    def work() -> bytes:
        if place.shared:
            if not place.first:
                return follow_shared(place, supervisor=runner.pid, timeout_s=options.timeout_s).encode()
            return prepare_shared(place, runner=runner, judge=Judge(options)).encode()
        if not place.first:
            return follow(place, supervisor=runner.pid, timeout_s=options.timeout_s).encode()
        return prepare(
            place, start_from=start_from, copy=options.copy, runner=runner, judge=Judge(options),
            timeout_s=options.timeout_s,
        ).encode()  # fmt: skip

    # A little longer than what waits inside, so that the better message comes first.
    try:
        prepared = Prepared.decode(apart(work, options.timeout_s + 5, f"the checkpoint root {place.root}"))
    except StoreError:
        if place.first and not options.beside:
            _tell_store_error(place, environment)
        raise
    hosts = of_other_hosts(place, environment) if place.first else None
    if hosts is not None:
        say(hosts)
    _say_prepared(place, options, prepared)
    environment = {name: value for name, value in environment.items() if name not in INHERITED}
    environment.update(variables(place, prepared.directory, prepared.resume, prepared.step))
    environment[KEEP] = keep_text(options.keep_own, options.keep_root, thin=options.thin)
    if options.beside:
        return _beside(place, options, prepared, environment)
    from slurm_dispatch.watch.command import CannotStart
    from slurm_dispatch.watch.supervise import Supervision

    argv = words.fill(options.command, prepared.directory, prepared.resume)
    try:
        supervision = Supervision(place, options, prepared, argv, environment)
    except CannotStart as error:
        say(str(error))
        return error.status
    return supervision.run()


def _tell_store_error(place: Place, environment: dict[str, str]) -> None:
    """Hand on that the store failed before the command could start: by its status alone it would be a failed job."""
    from slurm_dispatch.model.outcome import Outcome
    from slurm_dispatch.watch.handing import NODE_FOLDER, RECORD, HandingOn

    record, folder = environment.get(RECORD), environment.get(NODE_FOLDER)
    handing = HandingOn(record, place.job, place.attempt, place.epoch, None, node_folder=folder)
    handing.ended(status=None, signal=None, outcome=Outcome.STORE_ERROR.value, step=None)


def _say_prepared(place: Place, options: command_line.Options, prepared: Prepared) -> None:
    if prepared.other is not None and place.first:
        say(prepared.other)
    if prepared.outranked:
        say("a newer execution of this job has published already: nothing of this one will be latest")
    if prepared.space is not None:
        say(prepared.space)
    if prepared.before is not None:
        say(prepared.before)
    if prepared.run is None:
        return
    if not prepared.links and options.single is None:
        say("no hard links here: saves cannot be kept, so the saver's own rotation can remove a published one")
    settles = not (options.done or options.single or place.shared)
    if options.stall_s and settles and options.stall_s <= options.settle_s:
        say(
            f"--stall {options.stall_s:g} s is no longer than --settle {options.settle_s:g} s: what is only settled "
            "is published too late for it"
        )
    begins = "a first start" if prepared.resume is None else f"resumes from {prepared.resume}"
    if place.shared:
        begins = "a shared checkpoint: the command works in the root itself and nothing is published"
    say(f"epoch {place.epoch}, attempt {place.attempt}: {begins}")


def _beside(place: Place, options: command_line.Options, prepared: object, environment: dict[str, str]) -> int:
    from slurm_dispatch.watch.beside import Beside
    from slurm_dispatch.watch.prepare import Prepared

    assert isinstance(prepared, Prepared)
    if prepared.run is None:
        return 0
    return Beside(place, options, prepared, environment).run()


def run() -> None:
    """The entry point of the console script."""
    fill_streams()
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C before the command starts is no traceback
    sys.exit(main(sys.argv[1:]))


if __name__ == "__main__":
    run()
