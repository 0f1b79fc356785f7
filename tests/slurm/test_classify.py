"""Outcomes."""

from __future__ import annotations

import pytest

from slurm_dispatch.model.outcome import Outcome
from slurm_dispatch.slurm.classify import HelperEnd, classify
from slurm_dispatch.slurm.port import JobDetail


def job(
    *states: str, code: tuple[int, int] = (0, 0), reason: str = "None", nodes: str = "c1", **more: int
) -> JobDetail:
    """An object."""
    return JobDetail(
        slurm_job_id=1, uid=1000, states=frozenset(states), reason=reason, exit_status=code[0], exit_signal=code[1],
        restart=more.get("restart", 0), submit_time=1, start_time=2, end_time=3, nodes=nodes, comment="",
        source="json",
        by_uid=more.get("by_uid"),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("state", "outcome"),
    [
        ("COMPLETED", Outcome.COMPLETED),
        ("FAILED", Outcome.FAILED),
        ("TIMEOUT", Outcome.TIMEOUT),
        ("NODE_FAIL", Outcome.NODE_FAIL),
        ("BOOT_FAIL", Outcome.BOOT_FAIL),
        ("PREEMPTED", Outcome.PREEMPTED),
        ("CANCELLED", Outcome.CANCELLED),
        ("DEADLINE", Outcome.DEADLINE),
        ("OUT_OF_MEMORY", Outcome.OUT_OF_MEMORY),
    ],
)
@pytest.mark.parametrize("flags", [(), ("COMPLETING",)])
def test_states(state: str, outcome: Outcome, flags: tuple[str, ...]) -> None:
    """Each state that ends an object, while it is completing too."""
    verdict = classify(job(state, *flags), None, started=True)
    assert (verdict.outcome, verdict.final) == (outcome, True)


@pytest.mark.parametrize("state", ["RUNNING", "SUSPENDED", "CONFIGURING", "STOPPED", "PENDING"])
def test_what_has_not_ended(state: str) -> None:
    """C082: SUSPENDED is not over."""
    verdict = classify(job(state), None, started=True)
    assert (verdict.outcome, verdict.final) == (None, False)


@pytest.mark.parametrize("state", ["REVOKED", "SOMETHING_NEW", "COMPLETING"])
def test_what_is_not_known(state: str) -> None:
    """No outcome, and the state is named."""
    verdict = classify(job(state), None, started=True)
    assert verdict.outcome is None
    assert state.lower() in verdict.why.lower()


def test_slurm_starts_it_again() -> None:
    """C034: an object that Slurm requeues is not over."""
    assert not classify(job("PENDING", "COMPLETING", restart=1), None, started=True).final
    assert not classify(job("REQUEUED"), None, started=True).final


def test_the_commands_own_end() -> None:
    """A script that ends with 0 after its command failed is failed; 85 and the word are unfinished."""
    done = job("COMPLETED")
    assert classify(done, HelperEnd(status=3), started=True).outcome is Outcome.FAILED
    assert classify(done, HelperEnd(signal=9), started=True).outcome is Outcome.FAILED
    assert classify(done, HelperEnd(status=0), started=True).outcome is Outcome.COMPLETED
    assert classify(done, HelperEnd(status=85), started=True).outcome is Outcome.UNFINISHED
    assert classify(done, HelperEnd(outcome=Outcome.UNFINISHED), started=True).outcome is Outcome.UNFINISHED
    assert classify(job("FAILED", code=(85, 0)), None, started=True).outcome is Outcome.UNFINISHED
    assert classify(job("TIMEOUT"), HelperEnd(status=85), started=True).outcome is Outcome.UNFINISHED


@pytest.mark.parametrize("word", [Outcome.STALLED, Outcome.NOT_RESUMED, Outcome.STORE_ERROR])
@pytest.mark.parametrize("state", ["FAILED", "CANCELLED", "TIMEOUT"])
def test_the_helpers_word_comes_first(word: Outcome, state: str) -> None:
    """What the helper saw counts whatever Slurm calls it."""
    assert classify(job(state), HelperEnd(status=1, outcome=word), started=True).outcome is word


@pytest.mark.parametrize("state", ["CANCELLED", "PREEMPTED", "NODE_FAIL"])
@pytest.mark.parametrize("ended", [HelperEnd(status=85), HelperEnd(signal=15), HelperEnd(status=143)])
def test_an_act_from_outside_beats_a_dying_status(state: str, ended: HelperEnd) -> None:
    """C051: the cause comes from Slurm's state and not from the signal; a person's cancel is never 'unfinished'."""
    assert classify(job(state), ended, started=True).outcome is Outcome(state.lower())


def test_a_script_that_never_started() -> None:
    """C042: launch_failed, whatever Slurm calls it; a cancel in the queue stays a cancel."""
    assert classify(job("FAILED"), None, started=False).outcome is Outcome.LAUNCH_FAILED
    assert classify(job("NODE_FAIL"), None, started=False).outcome is Outcome.LAUNCH_FAILED
    assert classify(job("CANCELLED", by_uid=0), None, started=False).outcome is Outcome.LAUNCH_FAILED
    assert classify(job("FAILED", reason="JobLaunchFailure"), None, started=True).outcome is Outcome.LAUNCH_FAILED
    assert classify(job("CANCELLED", by_uid=1000), None, started=False).outcome is Outcome.CANCELLED
    assert classify(job("CANCELLED", nodes=""), None, started=False).outcome is Outcome.CANCELLED
    assert classify(job("CANCELLED"), None, started=False).outcome is Outcome.CANCELLED


def test_a_signal_that_slurm_does_not_requeue() -> None:
    """C053: FAILED 130:0 is a failure like others, and it is final."""
    verdict = classify(job("FAILED", code=(130, 0)), None, started=True)
    assert (verdict.outcome, verdict.final) == (Outcome.FAILED, True)
