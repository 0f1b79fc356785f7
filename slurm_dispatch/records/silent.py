"""What the record shows of a helper that died before the script that it served (C167). Pure.

Nobody is told of the death of a process that was killed: its step is over, and the script goes on. The record shows
it once the script has ended by itself: then the helper's own word is missing, which it says whenever it can.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurm_dispatch.model.outcome import Outcome

if TYPE_CHECKING:
    from slurm_dispatch.records.state import Execution, State

BY_ITSELF = frozenset({Outcome.COMPLETED, Outcome.FAILED})
"""Outcomes of a script that nobody ended: who ends a job ends its helper too, which may have no time to speak."""


def silent_helper(state: State) -> Execution | None:
    """The latest execution that has ended, if its helper published, and is not heard of at the end of its script.

    Where nodes do not have the state folder its word comes a moment later, with the node's Epilog.
    """
    for submission in reversed(state.submissions):
        if not submission.ends:
            continue
        end = submission.ends[-1]
        for execution in reversed(submission.executions):
            if end.restart is None or execution.epoch.restart == end.restart:
                spoke = execution.step is not None and execution.ended is None
                return execution if spoke and end.outcome in BY_ITSELF else None
        return None
    return None


def silent_text(state: State) -> str:
    """The same for a person, in one line; empty where there is nothing to say."""
    execution = silent_helper(state)
    if execution is None:
        return ""
    return (
        f"that of attempt {execution.attempt} was heard of last at step {execution.step} and not at the end: it died "
        "before its script, or could not hand its end on; if it died, what was saved after that is not published "
        f"(dispatch ls --root {state.spec.root}, dispatch publish)"
    )


__all__ = ["BY_ITSELF", "silent_helper", "silent_text"]
