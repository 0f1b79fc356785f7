"""Which objects that wait Slurm does not start before a person lets it. No I/O.

The law of this module: *what Slurm or an operator holds is shown, recorded and told, and nothing here lifts it.*
"""

from __future__ import annotations

from slurm_dispatch.records.verdict import NEVER

HELD_STATES = frozenset({"REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"})
PLAIN = "held"
"""Where Slurm gives no reason."""


def held_by(state: str, reason: str) -> str:
    """Slurm's reason if an object in this state is held, else an empty text.

    Slurm's words for it are JobHeldAdmin, JobHeldUser, JobHoldMaxRequeue, launch_failed_requeued_held and others that
    end like it; and of one whose dependency can never be met.
    """
    if state in HELD_STATES:
        return reason if reason not in {"", "None"} else PLAIN
    if state == "PENDING" and ("held" in reason.lower() or "JobHold" in reason or reason == NEVER):
        return reason
    return ""


__all__ = ["HELD_STATES", "NEVER", "held_by"]
