"""Every end that a job can have, as three releases of Slurm tell it: recorded by ``tests/assets/record.py``.

The tables below are the only thing here that was written by hand: which outcome each end is. An end that a release
tells in another way than it told it when it was recorded is found by recording again.
"""

from __future__ import annotations

import datetime as dt
import json
from typing import TYPE_CHECKING, Any

import pytest

from slurm_dispatch.model.identity import Word
from slurm_dispatch.model.outcome import Outcome
from slurm_dispatch.slurm.classify import HelperEnd, classify
from slurm_dispatch.slurm.parse import (
    KNOWN_STATES,
    parse_accounting,
    parse_detail_json,
    parse_detail_text,
    parse_queue,
)
from slurm_dispatch.slurm.port import JobDetail, Queue
from tests.slurm.recorded import NONCE, RELEASES, Ends, ends

if TYPE_CHECKING:
    from collections.abc import Iterator

ADA, BEN = 2001, 2002
WORD = Word("recorded00", 0, 1)
OVER: dict[str, Outcome] = {
    "completed": Outcome.COMPLETED,
    "no_workdir": Outcome.COMPLETED,
    "failed": Outcome.FAILED,
    "signal": Outcome.FAILED,
    "signal_term": Outcome.FAILED,
    "signalled_by_owner": Outcome.FAILED,
    "over_memory_kill": Outcome.FAILED,
    "no_interpreter": Outcome.FAILED,
    "task_prolog_fails": Outcome.FAILED,
    "task_prolog_fails_requeue": Outcome.FAILED,
    "site_prolog_fails": Outcome.FAILED,
    "no_output_folder": Outcome.LAUNCH_FAILED,
    "status_85": Outcome.UNFINISHED,
    "timeout": Outcome.TIMEOUT,
    "timeout_at_once": Outcome.TIMEOUT,
    "deadline_running": Outcome.TIMEOUT,
    "deadline": Outcome.DEADLINE,
    "out_of_memory": Outcome.OUT_OF_MEMORY,
    "out_of_memory_step": Outcome.OUT_OF_MEMORY,
    "out_of_memory_exit_0": Outcome.OUT_OF_MEMORY,
    "boot_fail": Outcome.BOOT_FAIL,
    "preempted": Outcome.PREEMPTED,
    "preempted_cancel": Outcome.PREEMPTED,
    "node_down": Outcome.NODE_FAIL,
    "node_down_two_nodes": Outcome.NODE_FAIL,
    "node_dies": Outcome.NODE_FAIL,
    "node_dies_two_nodes": Outcome.NODE_FAIL,
    "cancelled_by_owner": Outcome.CANCELLED,
    "cancelled_by_root": Outcome.CANCELLED,
    "cancelled_by_operator": Outcome.CANCELLED,
    "cancelled_exit_0": Outcome.CANCELLED,
    "cancelled_pending_by_owner": Outcome.CANCELLED,
    "cancelled_pending_by_root": Outcome.CANCELLED,
    "dependency_killed": Outcome.CANCELLED,
    "prolog_slurmctld_fails": Outcome.CANCELLED,
}
"""What ends for good, where a start was noted: what Slurm says of it alone."""
AGAIN: dict[str, Outcome] = {
    "requeued": Outcome.CANCELLED,
    "requeued_by_root": Outcome.CANCELLED,
    "requeue_held": Outcome.CANCELLED,
    "special_exit": Outcome.CANCELLED,
    "boot_fail_requeue": Outcome.CANCELLED,
    "prolog_slurmctld_fails_requeue": Outcome.CANCELLED,
    "site_prolog_fails_requeue": Outcome.LAUNCH_FAILED,
    "preempted_requeue": Outcome.PREEMPTED,
    "node_down_requeue": Outcome.NODE_FAIL,
    "node_dies_requeue": Outcome.NODE_FAIL,
}
"""What Slurm starts again: the outcome of the run before, which only accounting tells."""
UNTOLD = {
    ("text", "out_of_memory_step"): Outcome.FAILED,  # text does not tell the ends of steps
    ("22.05 accounting", "site_prolog_fails_requeue"): Outcome.CANCELLED,  # it keeps no code of the run before
}
"""What a source says less of than the others."""
GOING = frozenset({"suspended", "dependency_never", "node_down_no_kill", "node_dies_no_kill"})
NEVER_RAN = frozenset({
    "no_interpreter", "task_prolog_fails", "task_prolog_fails_requeue", "site_prolog_fails", "no_output_folder",
})  # fmt: skip
CANCELLED_BY = {
    "cancelled_by_owner": ADA, "cancelled_by_root": 0, "cancelled_by_operator": BEN, "cancelled_exit_0": ADA,
    "cancelled_pending_by_owner": ADA, "cancelled_pending_by_root": 0,
}  # fmt: skip
EACH = [(release, name) for release in RELEASES for name in ends(release).ends]


@pytest.fixture(params=EACH, ids=[f"{release}-{name}" for release, name in EACH])
def end(request: pytest.FixtureRequest) -> tuple[Ends, str]:
    """One end of one release."""
    release, name = request.param
    return ends(release), name


def details(recorded: Ends, name: str, phase: str = "over") -> Iterator[tuple[str, JobDetail]]:
    """What slurmctld said of it, by the form; nothing where there was no such moment."""
    job = recorded.ends[name]
    look = job.get(phase)
    if look is None:
        return
    if look["json"] is not None:
        detail = parse_detail_json(json.dumps({"jobs": look["json"]}), job["job"])
        assert isinstance(detail, JobDetail), detail
        yield "json", detail
    detail = parse_detail_text(look["text"], job["job"])
    assert isinstance(detail, JobDetail), detail
    yield "text", detail


def rows(recorded: Ends, name: str, phase: str = "over") -> tuple[JobDetail, ...]:
    """What accounting said of it."""
    found = parse_accounting(recorded.ends[name][phase]["accounting"], NONCE, restarts=recorded.restarts)
    assert isinstance(found, tuple), found
    return found


@pytest.mark.parametrize("release", RELEASES)
def test_each_release_has_each_end(release: str) -> None:
    """Recorded from a cluster of that release, which says so, on a day."""
    recorded = ends(release)
    assert set(recorded.ends) == OVER.keys() | AGAIN.keys() | GOING
    assert recorded.slurm.startswith(f"{release}.")
    assert dt.date.fromisoformat(recorded.recorded).year >= 2026
    assert {name for name, job in recorded.ends.items() if not job["ran"]} >= NEVER_RAN


def test_slurmctld_tells_the_outcome(end: tuple[Ends, str]) -> None:
    """Without accounting, by each form; a form that cannot tell says less, never something else."""
    _, name = end
    for form, detail in details(*end):
        verdict = classify(detail, None, started=True)
        assert not verdict.strange, verdict
        if name in OVER:
            assert verdict.outcome is UNTOLD.get((form, name), OVER[name]), (form, verdict)
            assert verdict.final
        else:
            assert (verdict.outcome, verdict.final) == (None, False), (form, verdict)
        assert (detail.uid, detail.word) == (ADA, WORD)


def test_accounting_tells_the_outcome(end: tuple[Ends, str]) -> None:
    """After slurmctld has forgotten it; of what Slurm started again it tells the run before."""
    recorded, name = end
    found = rows(*end)
    verdicts = [classify(row, None, started=True) for row in found]
    assert not any(verdict.strange for verdict in verdicts)
    assert {row.uid for row in found} == {ADA}
    if name in GOING:
        assert [verdict.final for verdict in verdicts] == [False] * len(found)
        assert {verdict.outcome for verdict in verdicts} == {None}
        return
    source = f"{recorded.slurm[:5]} accounting"
    assert verdicts[0].outcome is UNTOLD.get((source, name), {**OVER, **AGAIN}[name]), found[0]
    if name in OVER:
        assert [verdict.final for verdict in verdicts] == [True]
    for row in found[1:]:
        assert row.states == {"PENDING"}
        assert row.restart in {1, None}


def test_while_it_is_completing_nothing_else_is_said(end: tuple[Ends, str]) -> None:
    """The outcome is there at once, or not yet; it is never another one."""
    _, name = end
    for form, detail in details(*end, "ending"):
        verdict = classify(detail, None, started=True)
        assert not verdict.strange
        if form == "json" and name in OVER:
            assert verdict.outcome is OVER[name], verdict
        else:
            assert verdict.outcome in {None, UNTOLD.get((form, name), OVER.get(name))}, (form, verdict)


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("name", sorted(NEVER_RAN))
def test_a_script_that_never_started(release: str, name: str) -> None:
    """C042: where no start was noted it is launch_failed, by every source."""
    recorded = ends(release)
    for source in [*(detail for _, detail in details(recorded, name)), *rows(recorded, name)]:
        assert classify(source, None, started=False).outcome is Outcome.LAUNCH_FAILED, source


@pytest.mark.parametrize("release", RELEASES)
def test_a_refusal_of_prolog_slurmctld(release: str) -> None:
    """Slurm shows the job as cancelled by root; without a start that is launch_failed."""
    recorded = ends(release)
    (row,) = rows(recorded, "prolog_slurmctld_fails")
    assert (row.by_uid, classify(row, None, started=False).outcome) == (0, Outcome.LAUNCH_FAILED)
    first = rows(recorded, "prolog_slurmctld_fails_requeue")[0]
    verdict = classify(first, None, started=False)
    assert (verdict.outcome, verdict.final) == (Outcome.LAUNCH_FAILED, False)


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("name", sorted(CANCELLED_BY))
def test_who_cancelled_it(release: str, name: str) -> None:
    """Only accounting says it."""
    assert [row.by_uid for row in rows(ends(release), name)] == [CANCELLED_BY[name]]


def test_what_the_helper_handed_on_comes_first(end: tuple[Ends, str]) -> None:
    """A helper's word stands for whatever Slurm calls the end of what ran; a status does where nobody forced it."""
    recorded, name = end
    if name not in OVER or not recorded.ends[name]["ran"]:
        return
    for detail in [*(detail for _, detail in details(*end)), *rows(*end)]:
        for word in (Outcome.STALLED, Outcome.NOT_RESUMED, Outcome.STORE_ERROR):
            assert classify(detail, HelperEnd(status=1, outcome=word), started=True).outcome is word
        unfinished = classify(detail, HelperEnd(status=85), started=True).outcome
        forced = {Outcome.PREEMPTED, Outcome.NODE_FAIL, Outcome.BOOT_FAIL, Outcome.CANCELLED}
        assert unfinished is (OVER[name] if OVER[name] in forced else Outcome.UNFINISHED)


def test_the_bulk_call_lists_it(end: tuple[Ends, str]) -> None:
    """In both moments, with a state that is known, the owner and the word."""
    recorded, name = end
    for phase in ("ending", "over"):
        look = recorded.ends[name].get(phase)
        if look is None:
            continue
        found = parse_queue(look["queue"], NONCE)
        assert isinstance(found, Queue), found
        (job,) = found.jobs
        assert (job.slurm_job_id, job.uid, job.word) == (recorded.ends[name]["job"], ADA, WORD)
        assert job.state in KNOWN_STATES


@pytest.mark.parametrize("release", RELEASES)
def test_codes_signals_and_limits(release: str) -> None:
    """What the options of a rule go by, from each source; a year is how backfill writes that there is no limit."""
    recorded = ends(release)
    codes = {"failed": (1, 0), "status_85": (85, 0), "signal": (0, 9), "signal_term": (0, 15), "completed": (0, 0)}
    for name, code in codes.items():
        for detail in [*(detail for _, detail in details(recorded, name)), *rows(recorded, name)]:
            assert (detail.exit_status, detail.exit_signal) == code, (name, detail.source)
            assert (detail.time_limit_s, detail.memory_mb) == (None, 100), (name, detail.source)
    for name, limits in {"timeout": (60, 100), "out_of_memory": (None, 50), "preempted": (None, 100)}.items():
        for detail in [*(detail for _, detail in details(recorded, name)), *rows(recorded, name)]:
            assert (detail.time_limit_s, detail.memory_mb) == limits, (name, detail.source)
    assert all(look["json"] is None for look in looks(recorded)) is (release == "22.05")


def looks(recorded: Ends) -> list[dict[str, Any]]:
    """Every look of a release."""
    return [job[phase] for job in recorded.ends.values() for phase in ("ending", "over") if phase in job]
