"""Outcomes."""

from __future__ import annotations

import pytest

from slurm_dispatch.model.outcome import Outcome
from slurm_dispatch.slurm.classify import HelperEnd, classify, word_comes
from slurm_dispatch.slurm.port import JobDetail


def job(
    *states: str, code: tuple[int, int] = (0, 0), reason: str = "None", nodes: str = "c1", **more: int
) -> JobDetail:
    """An object."""
    return JobDetail(
        slurm_job_id=1, uid=1000, states=frozenset(states), reason=reason, exit_status=code[0], exit_signal=code[1],
        restart=more.get("restart", 0), submit_time=1, start_time=2, end_time=3, nodes=nodes, comment="",
        source="json",
        by_uid=more.get("by_uid"), derived_signal=more.get("derived"),
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


@pytest.mark.parametrize("state", ["REVOKED", "SOMETHING_NEW"])
@pytest.mark.parametrize("beside", [(), ("COMPLETING",)])
@pytest.mark.parametrize("started", [True, False])
def test_what_is_not_known(state: str, beside: tuple[str, ...], started: bool) -> None:
    """No outcome, whatever stands beside it, and whatever the helper says; the state is named for a person."""
    for ended in (None, HelperEnd(status=0), HelperEnd(status=1, outcome=Outcome.STALLED)):
        verdict = classify(job(state, *beside), ended, started=started)
        assert (verdict.outcome, verdict.strange) == (None, True)
        assert state in verdict.why


def test_an_unknown_flag_beside_a_known_state_is_not_known() -> None:
    """It may say that the state is not what it was."""
    assert classify(job("FAILED", "SOMETHING_NEW"), None, started=True).strange


def test_completing_alone_says_nothing() -> None:
    """Text hides the state behind COMPLETING: no outcome yet, and nothing strange."""
    verdict = classify(job("COMPLETING"), None, started=True)
    assert (verdict.outcome, verdict.strange) == (None, False)


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
    # The script's status counts where the command's does not say more.
    assert classify(job("FAILED", code=(85, 0)), HelperEnd(status=0), started=True).outcome is Outcome.UNFINISHED
    assert classify(job("FAILED", code=(85, 0)), HelperEnd(status=3), started=True).outcome is Outcome.FAILED
    assert classify(job("FAILED", code=(4, 0)), HelperEnd(status=0), started=True).outcome is Outcome.FAILED


def test_memory() -> None:
    """What the kernel ended for its memory, in the batch script or in a step; a command that ended well is not."""
    out, step = job("OUT_OF_MEMORY", code=(0, 125)), job("FAILED", code=(1, 0), derived=125)
    assert classify(out, None, started=True).outcome is Outcome.OUT_OF_MEMORY
    assert classify(out, HelperEnd(signal=9), started=True).outcome is Outcome.OUT_OF_MEMORY
    assert classify(out, HelperEnd(status=0), started=True).outcome is Outcome.COMPLETED
    assert classify(out, HelperEnd(status=85), started=True).outcome is Outcome.UNFINISHED
    assert classify(step, None, started=True).outcome is Outcome.OUT_OF_MEMORY
    assert classify(step, HelperEnd(status=1), started=True).outcome is Outcome.OUT_OF_MEMORY
    assert classify(job("COMPLETED", derived=125), None, started=True).outcome is Outcome.COMPLETED
    assert classify(job("COMPLETED", derived=125), HelperEnd(status=1), started=True).outcome is Outcome.OUT_OF_MEMORY
    assert classify(job("CANCELLED", derived=125), HelperEnd(status=1), started=True).outcome is Outcome.CANCELLED
    assert classify(job("FAILED", code=(1, 0), derived=9), None, started=True).outcome is Outcome.FAILED


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
    # slurmd's own error in place of an exit code, unless the helper was there to tell an end.
    for signal in (53, 54):
        assert classify(job("FAILED", code=(0, signal)), None, started=True).outcome is Outcome.LAUNCH_FAILED
        helped = classify(job("FAILED", code=(0, signal)), HelperEnd(signal=signal), started=True)
        assert helped.outcome is Outcome.FAILED
    # Slurm gives the reason JobLaunchFailure to nodes that did not boot.
    boot = job("BOOT_FAIL", reason="JobLaunchFailure", code=(1, 0))
    assert classify(boot, None, started=False).outcome is Outcome.BOOT_FAIL
    assert classify(boot, None, started=True).outcome is Outcome.BOOT_FAIL


def test_a_signal_that_slurm_does_not_requeue() -> None:
    """C053: FAILED 130:0 is a failure like others, and it is final."""
    verdict = classify(job("FAILED", code=(130, 0)), None, started=True)
    assert (verdict.outcome, verdict.final) == (Outcome.FAILED, True)


@pytest.mark.parametrize(
    ("status", "outcome"),
    [(79, Outcome.STALLED), (80, Outcome.NOT_RESUMED), (74, Outcome.FAILED), (85, Outcome.UNFINISHED)],
)
def test_a_status_of_the_helpers_whose_word_did_not_come(status: int, outcome: Outcome) -> None:
    """74 is every program's EX_IOERR: without the helper's word it is a failure like another."""
    ended = job("FAILED", code=(status, 0))
    assert classify(ended, None, started=True).outcome is outcome
    assert word_comes(ended, None) == (status != 85)
    told = HelperEnd(status=status if status == 85 else 1)
    assert not word_comes(ended, told)
    if status != 85:  # the command's own status came, and so the helper had no word of its own
        assert classify(ended, told, started=True).outcome is Outcome.FAILED


@pytest.mark.parametrize("state", ["PREEMPTED", "TIMEOUT", "NODE_FAIL", "CANCELLED", "OUT_OF_MEMORY"])
def test_an_end_from_outside_comes_before_a_status_of_the_helpers(state: str) -> None:
    ended = job(state, code=(80, 0))
    assert classify(ended, None, started=True).outcome is Outcome(state.lower())
    assert not word_comes(ended, None)
    assert classify(job("FAILED", code=(80, 9)), None, started=True).outcome is Outcome.FAILED
