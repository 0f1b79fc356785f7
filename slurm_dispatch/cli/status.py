"""``dispatch status``: the caller's jobs, one a line."""

from __future__ import annotations

import json
import os
import pwd
import time
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from slurm_dispatch.config.site import Site
    from slurm_dispatch.controller.glance import Glance
    from slurm_dispatch.errors import DispatchError
    from slurm_dispatch.records.state import State

RECENT_S = 86400.0
"""Closed jobs are listed for a day."""
LATE_TICK_S = 300.0
"""Without a tick for so long nothing is replaced: it is said."""
HEAD = ("JOB", "NAME", "STATE", "SLURM ID", "EPOCH", "LAST END", "SUBMISSIONS", "STEP", "SINCE")


@click.command("status")
@click.option("--all", "everything", is_flag=True, help="Closed jobs too, however old.")
@click.option("--user", help="Another user's jobs, or 'all' (for root).")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(*, everything: bool, user: str | None, as_json: bool) -> int:
    """List your jobs: those that are open, and those that were closed in the last day.

    STATE is what the job's record says. Slurm is asked whether it still has what should be there, and a line below
    the table says where it does not, and what waits there until somebody does something.

    \b
    Examples:
      dispatch status
      dispatch status --all --json

    Exit codes: 0 done (also if a record cannot be read: its line says so), 64 usage, 69 the state folder
    does not answer, 77 another's jobs, 78 bad configuration.
    """
    from slurm_dispatch.config.site import load_site
    from slurm_dispatch.errors import DispatchError
    from slurm_dispatch.records.fold import fold
    from slurm_dispatch.state.folder import StateFolder
    from slurm_dispatch.state.read import own_jobs, read_jobs

    site = load_site()
    folder = StateFolder(site.state)
    states: dict[str, State | DispatchError] = {}
    for key, facts in read_jobs(folder, own_jobs(folder, whose(user)), deadline_s=site.owner_timeout_s).items():
        try:
            states[key] = facts if isinstance(facts, DispatchError) else fold(facts)
        except DispatchError as error:
            states[key] = error
    now, tick = time.time(), folder.last_tick()
    listed = {key: state for key, state in states.items() if everything or _is_recent(state, now)}
    seen = ask_slurm({key: state for key, state in listed.items() if not isinstance(state, DispatchError)}, site)
    if as_json:
        jobs = [{**json_of(key, state), "in_slurm": seen.words.get(key)} for key, state in sorted(listed.items())]
        content = {"last_tick": tick, "slurm_does_not_answer": seen.trouble or None, "jobs": jobs}
        click.echo(json.dumps(content, indent=2))
    else:
        click.echo(_text(listed, len(states) - len(listed), seen, tick, now))
    return 0


def ask_slurm(states: dict[str, State], site: Site) -> Glance:
    """What Slurm lists of these jobs' current objects."""
    from slurm_dispatch.controller.glance import TIMEOUT_S, glance
    from slurm_dispatch.slurm.commands import SlurmCommands, commands_environment

    environment = commands_environment(site.slurm_bin or "")
    port = SlurmCommands(environment, timeout_s=min(TIMEOUT_S, site.query_timeout_s))
    return glance(states, port, site.cluster or "")


def whose(user: str | None) -> int | None:
    """The uid whose jobs are meant; ``None`` for all.

    :raises UsageError: no such user.
    :raises NotAllowedError: another's, and the caller is not root.
    """
    from slurm_dispatch.errors import NotAllowedError, UsageError, show

    if user is None:
        return os.geteuid()
    uid = None
    if user != "all":
        try:
            uid = pwd.getpwnam(user).pw_uid
        except (KeyError, ValueError) as error:
            raise UsageError(f"there is no user {show(user)}") from error
    if os.geteuid() not in {0, uid}:
        raise NotAllowedError("only root sees the jobs of others")
    return uid


def _is_recent(state: State | DispatchError, now: float) -> bool:
    from slurm_dispatch.errors import DispatchError, NothingThereError

    if isinstance(state, DispatchError):
        return not isinstance(state, NothingThereError)  # in the making, or cut short: not a job
    return state.closed is None or now - state.closed.at < RECENT_S


def _text(
    listed: dict[str, State | DispatchError], hidden: int, seen: Glance, tick: float | None, now: float
) -> str:
    from slurm_dispatch.cli.layout import both, table
    from slurm_dispatch.controller.glance import waits_for
    from slurm_dispatch.errors import DispatchError

    states = {key: state for key, state in listed.items() if not isinstance(state, DispatchError)}
    lines = []
    if states:
        ordered = sorted(states.items(), key=lambda item: item[1].created)
        lines.append(table(HEAD, [_row(key, state, now) for key, state in ordered]))
    else:
        lines.append("no open jobs" + (f", {hidden} closed or unfinished (--all shows them)" if hidden else ""))
    for key, state in sorted(states.items()):
        said = waits_for(state)
        if key in seen.missing | seen.stuck and state.object is not None:
            said = f"Slurm job {state.object.slurm_job_id} is {seen.words[key]}"
        if said:
            lines.append(click.style(f"{key}  {said}", fg="yellow"))
    if seen.away:
        lines.append(click.style(seen.away, fg="yellow"))
    for key, error in sorted(listed.items()):
        if isinstance(error, DispatchError):
            lines.append(click.style(f"{key}  cannot be read: {error.line()}", fg="red"))
    late = ""
    if tick is None or now - tick >= LATE_TICK_S:
        late = click.style("  nothing is replaced meanwhile", fg="yellow")
    lines.append(f"last tick: {'never' if tick is None else both(tick, now)}{late}")
    return "\n".join(lines)


def _row(key: str, state: State, now: float) -> list[str]:
    from slurm_dispatch.cli.layout import both, dash
    from slurm_dispatch.records.describe import last_outcome, state_text

    current = state.current
    slurm = None if current is None or current.object is None else current.object.slurm_job_id
    execution = None if current is None else current.execution
    used = f"{0 if current is None else current.number} of {state.spec.max_submissions}"
    return [
        key,
        state.spec.name,
        state_text(state),
        dash(slurm),
        dash(None if execution is None else execution.epoch),
        dash(last_outcome(state)),
        used,
        dash(state.step),
        both(state.changed, now),
    ]


def json_of(key: str, state: State | DispatchError) -> dict[str, Any]:
    """A job as ``--json`` has it; epochs are texts, since they pass 2^53."""
    from slurm_dispatch.errors import DispatchError
    from slurm_dispatch.records.describe import last_outcome

    if isinstance(state, DispatchError):
        return {"job": key, "error": state.line(), "exit_code": state.exit_code}
    current = state.current
    execution = None if current is None else current.execution
    return {
        "job": key,
        "name": state.spec.name,
        "user": state.spec.user,
        "state": state.phase.value,
        "closed": None if state.closed is None else state.closed.why,
        "generation": state.spec.generation,
        "submission": None if current is None else current.number,
        "max_submissions": state.spec.max_submissions,
        "slurm_job_id": None if current is None or current.object is None else current.object.slurm_job_id,
        "epoch": None if execution is None else str(execution.epoch),
        "attempt": None if execution is None else execution.attempt,
        "last_outcome": last_outcome(state),
        "step": state.step,
        "progress_at": state.progress_at,
        "checkpoint": state.spec.root,
        "created": state.created,
        "changed": state.changed,
    }
