"""``dispatch holds``: the jobs that wait for a person, and why."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import click

from slurm_dispatch.cli.held import Filters, filter_options

if TYPE_CHECKING:
    from slurm_dispatch.config.site import Site
    from slurm_dispatch.controller.hints import Hints
    from slurm_dispatch.records.observation import SiteClock
    from slurm_dispatch.records.state import State

HEAD = ("JOB", "NAME", "USER", "WHY", "SINCE", "LEFT", "REASON")


@click.command("holds")
@filter_options
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(*, filters: Filters, as_json: bool) -> int:
    """List the jobs that are held, or that will be once what runs has ended.

    LEFT is how much of the hold is left before the job is closed; only time in which ticks ran counts, and none runs
    out before a day after a maintenance.

    \b
    Examples:
      dispatch holds
      dispatch holds --user all --reason-like "*store*" --json

    Exit codes: 0 done (also if there are none), 64 usage, 69 the state folder does not answer, 77 another's jobs.
    """
    from slurm_dispatch.cli.held import is_held, jobs_of
    from slurm_dispatch.cli.layout import table
    from slurm_dispatch.cli.wishes import bench
    from slurm_dispatch.controller import hints
    from slurm_dispatch.errors import one_line

    here = bench()
    found, trouble = jobs_of(here, filters)
    held = {key: state for key, state in sorted(found.items()) if is_held(state)}
    now = time.time()
    ticks = hints.load(hints.tick_folder(here.site.state))
    ran = _clock(here.site, ticks, now)
    longest_s = here.site.longest_hold_s
    entries = [
        _entry(key, state, ran, longest_s, now, until=_kept_until(state, ticks, now)) for key, state in held.items()
    ]
    if as_json:
        click.echo(json.dumps({"holds": entries, "trouble": trouble}, indent=2))
        return 0
    for line in trouble:
        click.echo(f"dispatch: {one_line(line)}", err=True)
    click.echo(table(HEAD, [_row(entry, now) for entry in entries]) if entries else "no job is held")
    return 0


def _kept_until(state: State, ticks: Hints, now: float) -> float | None:
    """Until when a maintenance keeps it from running out, as far as it is known where the job runs."""
    from slurm_dispatch.controller.maintenance import holds_until

    return None if state.spec.clusters else holds_until(ticks.windows, state.spec.partitions, now)


def _clock(site: Site, found: Hints, now: float) -> SiteClock | None:
    """The site's clock as a tick would read it now: its file is written far less often than ticks come."""
    from slurm_dispatch.controller import clock
    from slurm_dispatch.controller.siterules import rules_of
    from slurm_dispatch.records.observation import SiteClock

    if found.clock is None:
        return None
    reading = clock.advance(found.clock, now, rules_of(site).gap_s, last=found.last)
    return SiteClock(reading.id, reading.ran_s)


def _entry(
    key: str, state: State, clock: SiteClock | None, longest_s: float, now: float, *, until: float | None
) -> dict[str, Any]:
    from slurm_dispatch.cli.held import reason_of
    from slurm_dispatch.records.decide_holds import counted_s, left_of

    holding, hold = state.holding, state.hold
    stands = holding if holding is not None else hold
    length_s = longest_s if stands is None or stands.for_s is None else min(stands.for_s, longest_s)
    left_s = max(0.0, left_of(length_s - counted_s(state, clock), until, now))
    return {
        "job": key,
        "name": state.spec.name,
        "user": state.spec.user,
        "account": state.spec.account,
        "partition": state.spec.partition,
        "phase": state.phase.value,
        "why": "person" if holding is None else holding.why,
        "since": None if stands is None else stands.at,
        "left_s": None if holding is None else left_s,
        "reason": reason_of(state),
    }


def _row(entry: dict[str, Any], now: float) -> list[str]:
    from slurm_dispatch.cli.layout import age, dash

    left_s = entry["left_s"]
    left = f"not yet: {entry['phase']}" if left_s is None else _length(left_s)
    since = dash(None if entry["since"] is None else age(entry["since"], now))
    return [entry["job"], entry["name"], entry["user"], entry["why"], since, left, entry["reason"]]


def _length(seconds: float) -> str:
    """Two units: a hold that has just begun is not a day shorter than it is."""
    minutes = -(-int(seconds) // 60)
    days, hours, minutes = minutes // 1440, minutes // 60 % 24, minutes % 60
    if days:
        return f"{days}d {hours}h"
    return f"{hours}h {minutes}m" if hours else f"{minutes}m"
