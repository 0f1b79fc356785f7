"""What persons do to a job, as the facts that say it; each refused with one clear line where it cannot be. Pure.

Every function takes the state that was just read and returns the facts to append in order, the first as fact
``state.seq + 1``. Whoever loses the race for a number reads again and asks again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from slurm_dispatch.errors import UsageError, show
from slurm_dispatch.records.facts import REMOVED_MAX
from slurm_dispatch.records.law import Phase
from slurm_dispatch.records.spec import CHANGEABLE
from slurm_dispatch.rules.rule import parse_rules

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from slurm_dispatch.records.state import State

REMOVED_BYTES = 40_000
"""Of the paths in a fact ``removed``: a fact has at most 64 KiB, and a character can take twice its escape."""
REASON_MAX = 1000
"""Characters of a person's reason."""
RELEASE_EXPIRED_S = 14 * 86400.0
"""How long after a hold ran out a release still works."""

Facts = tuple[tuple[str, dict[str, Any]], ...]
"""(kind, body) of each fact."""


def hold(state: State, reason: str, for_s: float | None = None) -> Facts:
    """Nothing more is started until somebody releases it.

    :param for_s: how long; ``None``: as long as the site lets a hold last.
    :raises UsageError: the job is closed.
    """
    _open(state, "held")
    return (("hold", {"reason": _reason(reason), "for_s": for_s}),)


def release(state: State, reason: str, now: float) -> Facts:
    """Let it go; of a job whose hold ran out within the last 14 days, open it again.

    :raises UsageError: nothing holds it.
    """
    reason = _reason(reason)
    closed = state.closed
    if closed is not None and closed.why == "hold_expired":
        if now - closed.at > RELEASE_EXPIRED_S:
            days = RELEASE_EXPIRED_S / 86400
            raise UsageError(
                f"the hold of job {state.spec.job} ran out more than {days:g} days ago",
                hint="dispatch reopen opens it again",
            )
        opened = reopen(state, reason)
        # What is opened with a shared checkpoint is held again; who releases it has decided that already.
        on = state.seq + 1
        again = (("release", {"on": on, "how": "person", "reason": reason}),) if reopens_held(state) else ()
        return opened + again
    if closed is not None:
        raise UsageError(f"job {state.spec.job} is closed ({closed.why})", hint="dispatch reopen opens it again")
    held = state.holding if state.holding is not None else state.hold
    if held is None:
        raise UsageError(f"job {state.spec.job} is not held: it is {state.phase}")
    return (("release", {"on": held.seq, "how": "person", "reason": reason}),)


def reopen(state: State, reason: str) -> Facts:
    """Undo that it was closed; with a shared checkpoint it is held then.

    :raises UsageError: it is not closed, or another job goes on in its place.
    """
    key, closed = state.spec.job, state.closed
    if closed is None:
        raise UsageError(f"job {key} is not closed: it is {state.phase}")
    if closed.by_job is not None:
        raise UsageError(
            f"job {closed.by_job} goes on in place of job {key}", hint=f"supersede job {closed.by_job} instead"
        )
    if state.spec.supersedes is not None and state.took_over is None:
        raise UsageError(
            f"job {key} never took over from job {state.spec.supersedes}", hint="supersede that one again"
        )
    return (("reopened", {"reason": _reason(reason), "submission": state.next_number}),)


def reopens_held(state: State) -> bool:
    """Whether the job is held once it is opened again: older executions may still run."""
    return state.spec.shared or state.elders_wait


def update(
    state: State,
    reason: str,
    *,
    argv: Sequence[str] | None = None,
    script_sha256: str | None = None,
    script_name: str | None = None,
    script_args: Sequence[str] | None = None,
    rules: Sequence[str] | None = None,
    settings: Mapping[str, Any] | None = None,
    given: Sequence[str] = (),
) -> Facts:
    """Change what the next submission is; what runs is not touched.

    :param script_sha256: of the file ``script-<sha256>``, which is beside the facts already.
    :param settings: of the specification's optional fields, and ``max_submissions``.
    :param given: names of the options of sbatch that are new in ``argv``: no rule's change of them counts any more.
    :raises UsageError: the job is closed, nothing changes, a rule does not parse or a setting is none.
    """
    _open(state, "changed")
    if rules is not None:
        parse_rules(rules)
    for name in settings or {}:
        if name not in CHANGEABLE:
            raise UsageError(f"'{show(name)}' is not a setting of a job that can be changed")
    parts = (argv, script_sha256, script_name, script_args, rules)
    if all(it is None for it in parts) and not settings:
        raise UsageError(f"nothing of job {state.spec.job} is changed", hint="give --script or options of sbatch")
    body = {
        "argv": None if argv is None else list(argv),
        "script_sha256": script_sha256,
        "script_name": script_name,
        "script_args": None if script_args is None else list(script_args),
        "rules": None if rules is None else list(rules),
        "settings": dict(settings or {}),
        "reason": _reason(reason, needed=False),
        "given": sorted(given),
    }
    return (("updated", body),)


def adopt(state: State, publication: str, name: str, reason: str) -> Facts:
    """Give a publication of a replaced run to the current lineage, under a number that is used up for it.

    :param name: of the new publication, made with :attr:`State.next_number`.
    :raises UsageError: an execution runs, or may be about to.
    """
    key, phase = state.spec.job, state.phase
    if phase is Phase.NEW:
        raise UsageError(f"job {key} was not submitted yet")
    if phase in {Phase.SUBMITTING, Phase.RUNNING, Phase.REQUEUING}:
        raise UsageError(
            f"job {key} is {phase}: its next save would outrank what is adopted",
            hint="wait until its execution has ended, or cancel it first",
        )
    if state.closed is not None and state.closed.by_job is not None:
        by_job = state.closed.by_job
        raise UsageError(f"job {by_job} goes on in place of job {key}", hint=f"dispatch adopt {by_job} ...")
    if state.elder is not None and phase is not Phase.CLOSED:
        raise UsageError(
            f"a suspected execution of job {key} may still run, and its next save would be outranked",
            hint="wait until its replacement runs and has ended, or cancel the job first",
        )
    if phase is Phase.QUEUED and state.spec.shared:
        raise UsageError(
            f"job {key} has a shared checkpoint, and Slurm may start it any moment", hint="cancel it first"
        )
    body = {"submission": state.next_number, "publication": publication, "name": name, "reason": _reason(reason)}
    return (("adopted", body),)


def remove(paths: Sequence[str]) -> Facts:
    """Say that these saves, which are outranked, are about to be removed: a kill then leaves less gone than said.

    :param paths: relative to the root, printable; one at least. The first ones are named, as many as a fact holds.
    """
    named: list[str] = []
    room = REMOVED_BYTES
    for path in paths[:REMOVED_MAX]:
        room -= len(path.encode("unicode_escape")) + 8
        if room < 0:
            break
        named.append(path)
    return (("removed", {"how": "gc", "count": len(paths), "paths": named}),)


def supersede(state: State, by_job: str, reason: str, keep: int | None = None) -> Facts:
    """Close it in favour of job ``by_job``, which is made already and names it as the one that it supersedes.

    A job that is closed is opened for it, so that one fact, which only one can write, says who goes on.

    :param keep: the Slurm job of it that is left running.
    :raises UsageError: another job goes on in its place already, or ``keep`` is not its running object.
    """
    key, closed = state.spec.job, state.closed
    if keep is not None and (state.object is None or state.object.slurm_job_id != keep):
        raise UsageError(f"Slurm job {keep} is not what runs of job {key}")
    if closed is None and state.spec.supersedes is not None and state.took_over is None:
        raise UsageError(
            f"job {key} has not taken over from job {state.spec.supersedes} yet", hint="the next tick does: try again"
        )
    opened: Facts = ()
    if closed is not None:
        opened = reopen(state, reason or f"superseded by job {by_job}")
    body = {"why": "superseded", "reason": _reason(reason, needed=False), "by_job": by_job, "keep": keep}
    return (*opened, ("closed", body))


def _open(state: State, what: str) -> None:
    if state.phase is Phase.CLOSED:
        why = "" if state.closed is None else f" ({state.closed.why})"
        raise UsageError(f"job {state.spec.job} is closed{why} and cannot be {what}")


def _reason(reason: str, *, needed: bool = True) -> str:
    if needed and not reason.strip():
        raise UsageError("there is no reason", hint="say why with --reason")
    if len(reason) > REASON_MAX:
        raise UsageError(f"a reason of {len(reason)} characters is longer than {REASON_MAX}")
    return reason


__all__ = [
    "REASON_MAX", "RELEASE_EXPIRED_S", "Facts", "adopt", "hold", "release", "reopen", "reopens_held", "supersede",
    "update",
]  # fmt: skip
