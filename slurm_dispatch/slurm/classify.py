"""The outcome of an execution that has ended, from what the helper and Slurm say.

The law of this module: *what the helper saw comes first, a person's or Slurm's own act comes before the
status that a dying command gave, and a state that is not in the table is no outcome at all.* What Slurm says of each
end, release by release, is recorded in tests/assets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurm_dispatch.model.outcome import UNFINISHED_STATUS, Outcome
from slurm_dispatch.slurm.parse import KNOWN_STATES

if TYPE_CHECKING:
    from slurm_dispatch.slurm.port import JobDetail

# Ends that something else than the command brought about: the command's status then says nothing.
FORCED: dict[str, Outcome] = {
    "PREEMPTED": Outcome.PREEMPTED,
    "NODE_FAIL": Outcome.NODE_FAIL,
    "BOOT_FAIL": Outcome.BOOT_FAIL,
    "DEADLINE": Outcome.DEADLINE,
    "TIMEOUT": Outcome.TIMEOUT,
    "CANCELLED": Outcome.CANCELLED,
}
ENDS = frozenset({*FORCED, "COMPLETED", "FAILED", "OUT_OF_MEMORY", "LAUNCH_FAILED"})
ALIVE = frozenset({
    "RUNNING", "SUSPENDED", "STOPPED", "CONFIGURING", "RESIZING", "SIGNALING", "STAGE_OUT", "POWER_UP_NODE",
})  # fmt: skip
# Slurm has the object again, or will have; REQUEUED is accounting's word for the run before.
AGAIN = frozenset({"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD"})
OOM_SIGNAL = 125
"""Slurm's exit code 0:125 (SIG_OOM): the kernel ended a process for its memory."""
# Slurm's reasons for a job that failed before its script ran (slurm_protocol_defs.c: job_state_reason_string). 22.05
# gives the first to every job that a signal ended, too.
LAUNCH_REASONS = frozenset({"JobLaunchFailure", "PrologFailure", "launch_failed_requeued_held", "NodeLaunchFailure"})
# slurmd tells that it could not start the script as an exit code that is an error's number (slurm_errno.h: 4000 and
# more), of which the lower bits show as a signal: 53 its output could not be opened, 54 the Prolog failed. As signals
# they are real-time ones, which nobody sends.
LAUNCH_SIGNALS = frozenset(range(36, 55))
# The helper's own statuses (docs/dispatch-watch.md), where its word did not come. A program that means something else
# by them is not known; 74 is not among them, since sysexits.h has it as EX_IOERR and programs end with it.
BY_STATUS: dict[int, Outcome] = {79: Outcome.STALLED, 80: Outcome.NOT_RESUMED}
WORD_COMES = frozenset({74, *BY_STATUS})
"""Statuses of a script for which its helper's word is worth waiting for: the node's Epilog may hand it on."""
# The helper's words for an end that it brought about or saw; `unfinished` is treated like its status.
_OWN_WORDS = frozenset({Outcome.STALLED, Outcome.NOT_RESUMED, Outcome.STORE_ERROR})


@dataclass(frozen=True, slots=True)
class HelperEnd:
    """What the helper handed on (the fact ``ended``): the command's own status or signal, or a word."""

    status: int | None = None
    signal: int | None = None
    outcome: Outcome | None = None

    @property
    def unfinished(self) -> bool:
        """The command saved and wants to go on."""
        return self.outcome is Outcome.UNFINISHED or self.status == UNFINISHED_STATUS

    @property
    def failed(self) -> bool:
        """The command did not end with 0."""
        return self.signal is not None or self.status not in {None, 0}


@dataclass(frozen=True, slots=True)
class Verdict:
    """An outcome, or none yet.

    :param outcome: ``None``: it has not ended, or what Slurm says is not known; ``why`` says which.
    :param final: false where Slurm restarts the object itself.
    :param strange: Slurm says something that this version does not know, which a person should hear of.
    """

    outcome: Outcome | None
    why: str
    final: bool = True
    strange: bool = False


def classify(detail: JobDetail, ended: HelperEnd | None, *, started: bool) -> Verdict:
    """Why an execution ended.

    :param started: the batch script began, as far as is known (a start note without a refusal).
    """
    states = detail.states
    said = ",".join(sorted(states))
    strange = states - KNOWN_STATES
    if strange:
        why = f"Slurm says {said}; {' and '.join(sorted(strange))} is a state that this version does not know"
        return Verdict(None, why, strange=True)
    if states & AGAIN:
        return _requeued(detail, said, started=started)
    if states & ALIVE:
        return Verdict(None, f"it has not ended: {said}", final=False)
    if states == {"COMPLETING"}:
        return Verdict(None, "completing; the text does not say what it was")
    if not states & ENDS:
        return Verdict(None, f"Slurm says {said}, which is no end that this version knows", strange=True)
    if ended is not None and ended.outcome in _OWN_WORDS:
        return Verdict(ended.outcome, f"the helper says {ended.outcome}; Slurm says {said}")
    never = _never_started(detail, started=started, helped=ended is not None)
    if never:
        return Verdict(Outcome.LAUNCH_FAILED, never)
    for state, outcome in FORCED.items():
        if state in states:
            if state == "TIMEOUT" and ended is not None and ended.unfinished:
                return Verdict(Outcome.UNFINISHED, "the command saved and wants to go on; Slurm says TIMEOUT")
            return Verdict(outcome, f"Slurm says {said}{_by(detail)}")
    return _by_itself(detail, ended, said)


def _requeued(detail: JobDetail, said: str, *, started: bool) -> Verdict:
    """Slurm starts the object again: an accounting row says why, the queue no longer does."""
    if "REQUEUED" in detail.states and not detail.states & (AGAIN - {"REQUEUED"}):
        if not started or detail.exit_signal in LAUNCH_SIGNALS:
            code = f"{detail.exit_status}:{detail.exit_signal}"
            return Verdict(Outcome.LAUNCH_FAILED, f"its script never started; Slurm says {said}, {code}", final=False)
        return Verdict(Outcome.CANCELLED, "somebody had it requeued (scontrol requeue)", final=False)
    if detail.completing or (detail.restart or 0) > 0:
        return Verdict(None, f"Slurm starts it again and no longer says why it ended: {said}", final=False)
    return Verdict(None, f"it has not started: {said}", final=False)


def _never_started(detail: JobDetail, *, started: bool, helped: bool) -> str:
    """Why the script never ran, or ``""``.

    :param helped: the helper has told an end, so the script ran.
    """
    if "BOOT_FAIL" in detail.states:
        return ""  # with the reason JobLaunchFailure, whatever it was
    by_signal = bool(detail.exit_signal) and detail.exit_signal not in LAUNCH_SIGNALS
    if "LAUNCH_FAILED" in detail.states or (detail.reason in LAUNCH_REASONS and not by_signal):
        return f"Slurm could not launch it: {detail.reason or 'LAUNCH_FAILED'}"
    if "FAILED" in detail.states and detail.exit_signal in LAUNCH_SIGNALS and not helped:
        return f"slurmd could not start its script; Slurm says exit code {detail.exit_status}:{detail.exit_signal}"
    if started or not detail.nodes:
        return ""  # without nodes it was cancelled in the queue, which is a person's wish
    if "FAILED" in detail.states or "NODE_FAIL" in detail.states:
        return f"its script never started; Slurm says {','.join(sorted(detail.states))}"
    if "CANCELLED" in detail.states and detail.by_uid == 0 and detail.uid != 0:
        return "it got nodes and its script never started; Slurm shows it as cancelled by root"
    return ""


def _by_itself(detail: JobDetail, ended: HelperEnd | None, said: str) -> Verdict:
    """No act from outside: the command's own status, and what the kernel did to it."""
    if ended is not None and ended.unfinished:
        return Verdict(Outcome.UNFINISHED, "the command saved and wants to go on")
    if ended is not None and not ended.failed and ended.status == 0 and "FAILED" not in detail.states:
        return Verdict(Outcome.COMPLETED, f"the command ended with status 0; Slurm says {said}")
    if (ended is None or not ended.failed) and (detail.exit_status, detail.exit_signal) == (UNFINISHED_STATUS, 0):
        return Verdict(Outcome.UNFINISHED, f"the script ended with {UNFINISHED_STATUS}")
    failed = "FAILED" in detail.states or (ended is not None and ended.failed)
    if "OUT_OF_MEMORY" in detail.states or (failed and OOM_SIGNAL in (detail.exit_signal, detail.derived_signal)):
        where = "" if "OUT_OF_MEMORY" in detail.states else ", and of a step that the kernel ended it for its memory"
        return Verdict(Outcome.OUT_OF_MEMORY, f"Slurm says {said}{where}")
    if ended is not None and ended.failed:
        how = f"signal {ended.signal}" if ended.signal is not None else f"status {ended.status}"
        return Verdict(Outcome.FAILED, f"the command ended with {how}; Slurm says {said}")
    own = BY_STATUS.get(detail.exit_status or 0)
    if failed and ended is None and own is not None and not detail.exit_signal:
        return Verdict(own, f"the script ended with {detail.exit_status}, which is the helper's status for it")
    if failed:
        code = f"{detail.exit_status}:{detail.exit_signal}"
        return Verdict(Outcome.FAILED, f"Slurm says {said}, exit code {code}")
    return Verdict(Outcome.COMPLETED, f"Slurm says {said}")


def word_comes(detail: JobDetail, ended: HelperEnd | None) -> bool:
    """The script ended with a status of the helper's, which has not told its own word yet."""
    own = detail.exit_status in WORD_COMES and not detail.exit_signal
    return own and ended is None and "FAILED" in detail.states and not detail.states & FORCED.keys()


def _by(detail: JobDetail) -> str:
    return f" by uid {detail.by_uid}" if detail.by_uid is not None else ""
