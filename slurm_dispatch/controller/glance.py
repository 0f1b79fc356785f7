"""What Slurm says now of the current objects of open jobs, in words for a person. Decides nothing.

The record says what was found out; where it waits, only Slurm tells for what. So ``dispatch status`` and
``dispatch show`` ask for the queue, once, and go on without it where Slurm does not answer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from slurm_dispatch.records.state import Phase, Settled, State
from slurm_dispatch.slurm.parse import KNOWN_STATES
from slurm_dispatch.slurm.port import Queue, QueueJob, SlurmPort, Unknown

if TYPE_CHECKING:
    from collections.abc import Mapping

TIMEOUT_S = 10.0
"""A person waits no longer than this for the queue: the record can be shown without it."""


@dataclass(frozen=True, slots=True)
class Glance:
    """The answer.

    :param words: by key, for each job that has a current object and whose queue was told: Slurm's state in its
        own words, or what is not listed means.
    :param missing: keys of jobs whose object Slurm does not list.
    :param trouble: why nothing was told, one line, or empty.
    :param stuck: keys of jobs whose object waits until a person does something, or is in a state that is not known.
    :param reasons: by key, why Slurm lets the object wait, in its own word.
    """

    words: Mapping[str, str]
    missing: frozenset[str] = frozenset()
    trouble: str = ""
    reasons: Mapping[str, str] = field(default_factory=dict)
    stuck: frozenset[str] = frozenset()


def glance(states: Mapping[str, State], port: SlurmPort) -> Glance:
    """Ask Slurm about the current objects of ``states``; does not ask where there is none."""
    current = {key: state for key, state in states.items() if state.object is not None}
    if not current:
        return Glance({})
    queue = port.queue()
    if isinstance(queue, Unknown):
        return Glance({}, trouble=queue.why)
    words = {key: _words(state, queue) for key, state in current.items()}
    missing = frozenset(key for key, text in words.items() if text is None)
    reasons = {
        key: queued.reason
        for key, state in current.items()
        if words[key] is not None and state.object is not None
        if (queued := queue.of_id(state.object.slurm_job_id)) is not None and queued.state == "PENDING"
    }
    told = {key: text or f"not listed; {_missing(key)}" for key, text in words.items()}
    stuck = frozenset(
        key
        for key, state in current.items()
        if words[key] is not None and state.object is not None
        if (queued := queue.of_id(state.object.slurm_job_id)) is not None and (_held(queued) or _strange(queued))
    )
    return Glance(told, missing, reasons=reasons, stuck=stuck)


def waits_for(state: State) -> str:
    """What an intent without an answer waits for, or an empty text."""
    if state.phase is not Phase.SUBMITTING or state.current is None or state.current.settled is not Settled.OPEN:
        return ""
    until = [first + state.current.wait_s for first in state.current.watched.values()]
    if not until:
        return "sbatch has not answered, and no tick has looked yet"
    wait_s = f"{state.current.wait_s:.0f} s"
    return f"sbatch has not answered; a tick looks for its job in Slurm, {wait_s} after it first saw this"


def _missing(key: str) -> str:
    return f"a tick takes its end from accounting, and where that has none dispatch cancel {key} closes the job"


def _words(state: State, queue: Queue) -> str | None:
    """Slurm's words about the current object; ``None``: it does not list it, or gave its id to another job."""
    current, submission = state.object, state.current
    queued = None if current is None else queue.of_id(current.slurm_job_id)
    if queued is None or submission is None or queued.uid != state.spec.uid:
        return None
    if queued.word is not None and queued.word != state.spec.word(submission.number):
        return None
    reason = f" ({queued.reason})" if queued.reason not in {"", "None"} else ""
    return f"{queued.state}{f' on {queued.nodes}' if queued.nodes else ''}{reason}{_held(queued)}{_strange(queued)}"


def _held(queued: QueueJob) -> str:
    """What a hold of Slurm's own needs (C043, C057): no tick releases it, so a person must be told."""
    if queued.reason == "BadConstraints":
        return (
            ": no nodes can ever fit what it asks for, says Slurm; change it with `scontrol update`, then "
            f"`scontrol release {queued.slurm_job_id}`"
        )
    if queued.reason == "JobHeldAdmin":
        return ": held by an operator, who alone can release it"
    if queued.state == "REQUEUE_HOLD" or "held" in queued.reason.lower():
        return f": held in Slurm; when the cause is gone, `scontrol release {queued.slurm_job_id}` lets it start"
    return ""


def _strange(queued: QueueJob) -> str:
    if queued.state in KNOWN_STATES:
        return ""
    return ": a state that this version does not know; nothing is done about it"


__all__ = ["TIMEOUT_S", "Glance", "glance", "waits_for"]
