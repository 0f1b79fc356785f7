"""``dispatch tick``: look at all open jobs once, or in a loop."""

from __future__ import annotations

import os
import pwd
import socket
import time
from functools import partial
from typing import TYPE_CHECKING

import click

from slurm_dispatch.errors import one_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurm_dispatch.config.site import Site
    from slurm_dispatch.controller.cessation import Asker
    from slurm_dispatch.controller.tick import Controller

SETTLE_S = 5.0
"""How long a tick of cron goes on asking about jobs that are just ending, before it leaves them to the next."""
COMMANDS_S = 90.0
"""How long it waits for the site's commands (notify, cessation): ended half-way, they would begin anew each time."""


@click.command("tick")
@click.option("--loop", "forever", is_flag=True, help="Go on until SIGTERM, and tick at once when a job ends.")
def command(*, forever: bool) -> int:
    """Look at all open jobs: record what happened, decide, and submit again what must go on.

    Root looks at everybody's jobs, each with its owner's rights; in user mode it is the caller's own jobs. Two at
    once, on one host or several, are harmless. Prints a line for each decision and each trouble, and nothing
    otherwise.

    \b
    Examples:
      dispatch tick          once, for cron
      dispatch tick --loop   as a service

    Exit codes: 0 done (also with the troubles that it printed), 69 earlier ticks hang in the kernel,
    77 not root outside user mode, 78 bad configuration.
    """
    from slurm_dispatch.config.site import load_site

    site = load_site()
    hanging = refuse_pile(site.slurm_user)
    controller = make_controller(site)
    controller.put_off(hanging)
    if forever:
        run_loop(controller, site)
    else:
        run_once(controller)
    return 0


def refuse_pile(slurm_user: str) -> list[int]:
    """Refuse to tick where ticks of before hang in the kernel.

    :returns: the owners whose own children hang there.
    :raises ServiceAwayError: there are too many of the site's.
    """
    from slurm_dispatch.controller import stuck
    from slurm_dispatch.errors import ServiceAwayError

    found = stuck.stuck()
    site = {0, os.geteuid()}
    try:
        site.add(pwd.getpwnam(slurm_user).pw_uid)
    except KeyError:
        pass  # said where SlurmUser is needed
    count = sum(found[uid] for uid in site)
    if count >= stuck.STUCK_MAX:
        raise ServiceAwayError(
            f"{count} processes of earlier ticks cannot be ended", hint="the file server of the state folder is away"
        )
    return [uid for uid, owned in found.items() if uid not in site and owned >= stuck.STUCK_OWNER_MAX]


def make_controller(site: Site) -> Controller:
    """The controller of this site, with Slurm's commands behind it.

    :raises NotAllowedError: not root, and the site is not in user mode.
    """
    from slurm_dispatch.controller.job import means_of
    from slurm_dispatch.controller.keeper import Keeper
    from slurm_dispatch.controller.siterules import rules_of
    from slurm_dispatch.controller.tick import Controller, Settings
    from slurm_dispatch.errors import NotAllowedError
    from slurm_dispatch.state.users import own_name

    if not site.user_mode and os.geteuid() != 0:
        raise NotAllowedError(
            "dispatch tick is root's: it works with each owner's rights", hint="set user_mode for a tick of your own"
        )
    host = socket.gethostname()
    means = means_of(site, f"tick@{host}" if os.geteuid() == 0 else f"user:{own_name()}@{host}")
    settings = Settings(
        state=site.state,
        user_mode=site.user_mode,
        slurm_user=site.slurm_user,
        host=host,
        cluster=site.cluster or "",
        accounting=site.accounting,
        owner_timeout_s=site.owner_timeout_s,
    )

    def log(line: str) -> None:
        click.echo(f"dispatch: {one_line(line)}", err=True)

    keeper = Keeper(rules_of(site), means.port, make_asker(site, means.site_environment), log)
    return Controller(settings, means, log, keeper=keeper)


def make_asker(site: Site, environment: Mapping[str, str]) -> Asker | None:
    """Who asks about cessation on this site; ``None`` where nobody answers.

    :param environment: of Slurm's commands.
    :raises ConfigurationError: the user as whom the command is to run is not there.
    """
    from slurm_dispatch.controller.cessation import Asker
    from slurm_dispatch.slurm.cessation import signal_of

    signal = signal_of(site.cessation, environment, site.cluster or "")
    if signal is None:
        return None
    return Asker(signal, user=site.cessation_user or site.slurm_user, timeout_s=site.cessation_timeout_s)


def run_once(controller: Controller) -> None:
    """One pass, and a few short ones for jobs that are just ending."""
    until = time.monotonic() + SETTLE_S
    last = time.monotonic() + COMMANDS_S
    try:
        again = controller.tick(full=True)
        while again is not None:
            then = time.monotonic() + again
            if then >= until and not (controller.busy() and then < last):
                break
            time.sleep(again)
            again = controller.tick(full=False)
    finally:
        controller.stop()


def run_loop(controller: Controller, site: Site) -> None:
    """Passes until a signal. Other settings in the site's file count from the next full tick on."""
    from slurm_dispatch.controller.kick import Kick
    from slurm_dispatch.controller.loop import Loop
    from slurm_dispatch.controller.tick import PATIENCE_S

    renewal = Renewal(site, controller)
    while True:
        now = renewal.controller
        kick = Kick(os.path.join(renewal.site.state, "notes"), now.as_slurm_user)
        tick = partial(_pass, now, PATIENCE_S)
        loop = Loop(tick, kick, renewal.site.tick_interval_s, renewal.is_due)
        try:
            loop.run()
        finally:
            now.stop()
        if loop.ended:
            return


def _pass(controller: Controller, patience_s: float, full: bool, /) -> float | None:
    return controller.tick(full=full, patience_s=patience_s)


class Renewal:
    """The site's settings as they are now, and the controller that goes by them.

    :param site: those that ``controller`` was made of.
    """

    def __init__(self, site: Site, controller: Controller) -> None:
        self.site = site
        self.controller = controller
        self._said = ""

    def is_due(self) -> bool:
        """Whether the file has other settings by now; then ``site`` and ``controller`` are the new ones.

        What is wrong in it is said once, and the settings of before go on. A controller that has something under
        way finishes that first.
        """
        from slurm_dispatch.config.site import load_site
        from slurm_dispatch.errors import DispatchError

        if not self.controller.idle():
            return False
        try:
            found = load_site()
            if found == self.site:
                return False
            self.controller, self.site = make_controller(found), found
        except DispatchError as error:
            self._say(f"{error.line()}; the settings of before go on")
            return False
        self._say(f"the settings of {found.path} have changed; the new ones count from now on")
        return True

    def _say(self, line: str) -> None:
        if line != self._said:
            click.echo(f"dispatch: {one_line(line)}", err=True)
        self._said = line


__all__ = ["COMMANDS_S", "SETTLE_S", "Renewal", "command", "make_controller", "refuse_pile", "run_loop", "run_once"]
