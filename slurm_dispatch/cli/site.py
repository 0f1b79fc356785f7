"""``dispatch site``: what an operator tells slurm-dispatch about the whole site."""

from __future__ import annotations

import json
import os
import socket
import time
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from slurm_dispatch.controller.maintenance import Window

FOR_MAX_S = 90 * 86400.0
"""A maintenance that is announced for longer is a typing error."""


@click.group("site")
def command() -> None:
    """Tell slurm-dispatch about the site: announced maintenance.

    \b
    Example:
      dispatch site maintenance begin --for 4h
    """


@command.group("maintenance", invoke_without_command=True)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.pass_context
def maintenance_group(context: click.Context, *, as_json: bool) -> int:
    """Announce maintenance, or end it; alone, list what is announced.

    What ends while a maintenance of its partition (or of the whole cluster) runs costs no budget, and its replacement
    comes back after the end, spread over some minutes, so that not everything starts at once.

    \b
    Examples:
      dispatch site maintenance
      dispatch site maintenance begin --for 4h
      dispatch site maintenance begin --partition gpu
      dispatch site maintenance end --partition gpu

    Exit codes: 0 done, 64 usage, 66 nothing to end, 69 the state folder does not answer, 77 not the site's
    operator, 78 bad configuration.
    """
    if context.invoked_subcommand is not None:
        return 0
    from slurm_dispatch.config.site import load_site
    from slurm_dispatch.controller.hints import tick_folder
    from slurm_dispatch.controller.maintenance import content, read_windows

    now = time.time()
    windows = read_windows(tick_folder(load_site().state))
    if as_json:
        click.echo(
            json.dumps({"maintenance": [{**content(it), "active": it.covers(now)} for it in windows]}, indent=2)
        )
    else:
        click.echo(text(windows, now))
    return 0


@maintenance_group.command("begin")
@click.option("--partition", help="Of this partition only, not of the whole cluster.")
@click.option("--for", "length", help="How long it is thought to take: 90m, 4h, 2d. Not given: until it is ended.")
def begin(*, partition: str | None, length: str | None) -> int:
    """Begin a maintenance now; one that is announced already gets the new end."""
    from slurm_dispatch.controller.maintenance import ALL, Window

    folder = _operator(partition)
    now = time.time()
    before = _current(folder, partition, now)
    end = None if length is None else now + parse_length(length)
    window = Window(partition or ALL, now if before is None else before.begin, end, _by())
    _write(folder, window)
    click.echo(
        f"maintenance of {_what(window)} {'has begun' if before is None else 'goes on'}, {_until(window, now)}"
    )
    return 0


@maintenance_group.command("end")
@click.option("--partition", help="Of this partition, not of the whole cluster.")
def end_(*, partition: str | None) -> int:
    """End a maintenance now: what waited for its end comes back, spread over some minutes."""
    from slurm_dispatch.controller.maintenance import Window
    from slurm_dispatch.errors import NothingThereError

    folder = _operator(partition)
    now = time.time()
    before = _current(folder, partition, now)
    if before is None:
        raise NothingThereError(f"there is no maintenance of {partition or 'the cluster'} to end")
    window = Window(before.partition, before.begin, now, _by())
    _write(folder, window)
    click.echo(f"maintenance of {_what(window)} has ended")
    return 0


def parse_length(value: str) -> float:
    """Seconds of ``90m``, ``4h``, ``2d``.

    :raises UsageError: it is no such length, or longer than 90 days.
    """
    from slurm_dispatch.errors import BadDataError, UsageError, show
    from slurm_dispatch.model.quantity import parse_duration

    try:
        seconds = parse_duration(value)
    except BadDataError as error:
        raise UsageError(str(error), hint=error.hint) from error
    if not 0.0 < seconds <= FOR_MAX_S:
        raise UsageError(f"{show(value)} is not a length of up to 90 days")
    return seconds


def text(windows: tuple[Window, ...], now: float) -> str:
    """The announced maintenance for a person."""
    from slurm_dispatch.cli.layout import both, table

    if not windows:
        return "no maintenance is announced"
    rows = []
    for window in windows:
        over = window.end is not None and window.end <= now
        rows.append(
            [_what(window), "over" if over else "runs", both(window.begin, now), both(window.end, now), window.by]
        )
    return table(("OF", "STATE", "BEGAN", "ENDS", "BY"), rows)


def _operator(partition: str | None) -> str:
    """The folder of the files, for somebody who may write there.

    :raises UsageError: the partition's name cannot be one.
    :raises NotAllowedError: neither root nor, in user mode, the owner.
    """
    from slurm_dispatch.config.site import load_site
    from slurm_dispatch.controller.hints import tick_folder
    from slurm_dispatch.controller.maintenance import ALL, PARTITION
    from slurm_dispatch.errors import NotAllowedError, UsageError, show

    if partition is not None and (not PARTITION.match(partition) or partition == ALL):
        raise UsageError(f"{show(partition)} is not a partition's name")
    site = load_site()
    if os.geteuid() != 0 and not site.user_mode:
        raise NotAllowedError("only root announces maintenance", hint="in user mode it is the user's own")
    return tick_folder(site.state)


def _current(folder: str, partition: str | None, now: float) -> Window | None:
    from slurm_dispatch.controller.maintenance import from_content, name_of
    from slurm_dispatch.controller.tickfile import read_file

    window = from_content(name_of(partition).partition(".")[2], read_file(folder, name_of(partition)))
    return None if window is None or (window.end is not None and window.end <= now) else window


def _write(folder: str, window: Window) -> None:
    from slurm_dispatch.controller.maintenance import ALL, content, name_of
    from slurm_dispatch.controller.tickfile import write_file

    body: dict[str, Any] = content(window)
    write_file(folder, name_of(None if window.partition == ALL else window.partition), body, sync=True)


def _what(window: Window) -> str:
    from slurm_dispatch.controller.maintenance import ALL

    return "the whole cluster" if window.partition == ALL else f"partition {window.partition}"


def _until(window: Window, now: float) -> str:
    from slurm_dispatch.cli.layout import both

    return "until it is ended" if window.end is None else f"and ends {both(window.end, now)}"


def _by() -> str:
    from slurm_dispatch.state.users import own_name

    return f"user:{own_name()}@{socket.gethostname()}"
