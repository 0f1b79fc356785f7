"""What Slurm says now of the current objects of open jobs, in words for a person. Decides nothing.

The record says what was found out; where it waits, only Slurm tells for what. So ``dispatch status`` and
``dispatch show`` ask for the queue, once, and go on without it where Slurm does not answer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from slurm_dispatch.records.places import HERE, place_of
from slurm_dispatch.records.state import Phase, Settled, State
from slurm_dispatch.slurm.holds import NEVER, held_by
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

    @property
    def away(self) -> str:
        """What is away, one line for a person; empty where Slurm answered or was not asked."""
        return f"Slurm does not answer, the record is all that is shown: {self.trouble}" if self.trouble else ""


def glance(states: Mapping[str, State], port: SlurmPort, home: str = "") -> Glance:
    """Ask Slurm about the current objects of ``states``: each cluster that has any of them, once.

    :param home: the name of the cluster that ``port`` asks; empty: it is asked for it, where anything hangs on it.
    """
    current = {key: state for key, state in states.items() if state.object is not None}
    names = {state.object.cluster for state in current.values() if state.object is not None and state.object.cluster}
    if not home and names:
        config = port.config()
        home = "" if isinstance(config, Unknown) else config.get("ClusterName", "")
    found: dict[str, dict[str, State]] = {}
    for key, state in current.items():
        if state.object is not None:
            found.setdefault(place_of(state.spec, state.object.cluster, home), {})[key] = state
    told: dict[str, str] = {}
    missing: set[str] = set()
    reasons: dict[str, str] = {}
    stuck: set[str] = set()
    troubles: list[str] = []
    for place, there in sorted(found.items()):
        try:
            queue = (port if place == HERE else port.at(place)).queue()
        except ValueError as error:
            queue = Unknown(str(error))
        if isinstance(queue, Unknown):
            troubles.append(queue.why if place == HERE else f"cluster {place}: {queue.why}")
            continue
        for key, state in there.items():
            text, queued = _words(state, queue), _queued(state, queue)
            told[key] = text or f"not listed; {_missing(key)}"
            if text is None:
                missing.add(key)
            elif queued is not None and queued.state == "PENDING":
                reasons[key] = queued.reason
            if text is not None and queued is not None and (_held(queued) or _strange(queued)):
                stuck.add(key)
    return Glance(told, frozenset(missing), "; ".join(troubles), reasons, frozenset(stuck))


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
    submission, queued = state.current, _queued(state, queue)
    if queued is None or submission is None or queued.uid != state.spec.uid:
        return None
    if queued.word is not None and queued.word != state.spec.word(submission.number):
        return None
    reason = f" ({queued.reason})" if queued.reason not in {"", "None"} else ""
    return f"{queued.state}{f' on {queued.nodes}' if queued.nodes else ''}{reason}{_held(queued)}{_strange(queued)}"


def _queued(state: State, queue: Queue) -> QueueJob | None:
    return None if state.object is None else queue.of_id(state.object.slurm_job_id)


def _held(queued: QueueJob) -> str:
    """What a hold of Slurm's own needs (C043, C057): no tick releases it, so a person must be told."""
    if queued.reason == "BadConstraints":
        return (
            ": no nodes can ever fit what it asks for, says Slurm; change it with `scontrol update`, then "
            f"`scontrol release {queued.slurm_job_id}`"
        )
    if queued.reason == "JobHeldAdmin":
        return ": held by an operator, who alone can release it"
    if queued.reason == NEVER:
        return ": what it depends on can never be met any more; `scontrol update` gives it another dependency"
    if held_by(queued.state, queued.reason):
        return f": held in Slurm; when the cause is gone, `scontrol release {queued.slurm_job_id}` lets it start"
    return ""


def _strange(queued: QueueJob) -> str:
    if queued.state in KNOWN_STATES:
        return ""
    return ": a state that this version does not know; nothing is done about it"


__all__ = ["TIMEOUT_S", "Glance", "glance", "waits_for"]
