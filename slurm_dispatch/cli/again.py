"""``dispatch again``: said inside a job whose work is saved and not finished, so that another submission goes on."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT_S = 60.0
"""For a checkpoint root that does not answer."""


@click.command("again")
def command() -> None:
    """Say that the work of this job is saved and not finished.

    From any rank, step or host of the execution, before dispatch-watch starts, while it runs, or after it. However
    the script ends then, the outcome is `unfinished`; a rule says what follows (resubmit unless told otherwise).
    A command that ends with status 85 says the same. It ends nothing.

    \b
    Example, in a batch script:
      dispatch-watch -- srun python train.py --max-hours 11
      test -e "$DISPATCH_CHECKPOINT/finished" || dispatch again

    Exit codes: 0 done; 69 nobody could be told, so end the script with 85; 73 the root is another job's; 74 it could
    not be written to; 77 not in a managed job; 78 the identity is not whole.
    """
    from slurm_dispatch.cli.main import say

    say(again(os.environ))


def again(environment: Mapping[str, str]) -> str:
    """Leave the mark for the helper; without one, tell the job's record or this node's Epilog.

    :returns: what was done, as one line.
    :raises DispatchError: nobody was told.
    """
    from slurm_dispatch.errors import NotAllowedError
    from slurm_dispatch.watch.apart import apart
    from slurm_dispatch.watch.place import find_place
    from slurm_dispatch.watch.prepare import open_any
    from slurm_dispatch.watch.turn import say_again

    place = find_place(environment, root=None, remote=True)
    if place.job is None:
        raise NotAllowedError(
            "not in a job of dispatch's, so there is nothing to go on with", hint="submit with dispatch sbatch"
        )

    def leave() -> bytes:
        return b"heard" if say_again(open_any(place), place.attempt) else b""

    if apart(leave, ROOT_S, f"the checkpoint root {place.root}"):
        return "this execution is unfinished: dispatch-watch hands it on when its command has ended"
    return _without_helper(environment, place.job, place.attempt, place.epoch)


def _without_helper(environment: Mapping[str, str], job: str, attempt: str, epoch: int) -> str:
    from slurm_dispatch.errors import DispatchError, ServiceAwayError
    from slurm_dispatch.model.outcome import UNFINISHED_STATUS, Outcome
    from slurm_dispatch.watch.apart import apart
    from slurm_dispatch.watch.handing import DEADLINE_S, NODE_FOLDER, RECORD, hand_on

    body = {
        "attempt": attempt,
        "epoch": str(epoch),
        "status": None,
        "signal": None,
        "outcome": Outcome.UNFINISHED.value,
        "step": None,
    }

    def tell() -> bytes:
        node = environment.get(NODE_FOLDER)
        return hand_on(environment.get(RECORD), job, node, "ended", body).encode("utf-8", "replace")

    try:
        on_node = apart(tell, DEADLINE_S, "the job's record")
    except DispatchError as error:
        raise ServiceAwayError(
            f"no dispatch-watch runs in this execution, and the job's record could not be told: {error}",
            hint=f"end the script with status {UNFINISHED_STATUS} instead; a dispatch-watch that starts later knows",
        ) from error
    whom = "this node's Epilog tells the job's record" if on_node else "the job's record was told"
    return f"no dispatch-watch runs in this execution now: it is unfinished, and {whom}"
