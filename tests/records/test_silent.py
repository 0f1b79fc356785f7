"""A helper that died before its script, as the record shows it."""

from __future__ import annotations

import pytest

from slurm_dispatch.records.silent import silent_helper, silent_text
from slurm_dispatch.records.why import explain
from tests.records.life import Life, start_body


def ended(life: Life, number: int) -> Life:
    """The helper's own last word."""
    body = start_body(life.spec, number)
    return life.add(
        "ended", attempt=body["attempt"], epoch=body["epoch"], status=0, signal=None, outcome=None, step=40
    )


@pytest.mark.parametrize("outcome", ["completed", "failed"])
def test_a_helper_that_is_not_heard_of_at_the_end_of_its_script(outcome: str) -> None:
    """C167: it died with its step; the run went on, and what it saved after that is not published."""
    life = Life().run(1).progress(1, 40)
    assert silent_helper(life.state) is None
    life.end(1, outcome)
    found = silent_helper(life.state)
    assert found is not None
    assert (found.attempt, found.step) == (start_body(life.spec, 1)["attempt"], 40)
    assert "at step 40 and not at the end" in silent_text(life.state)
    assert explain(life.state, life.facts).helper == silent_text(life.state)


def test_one_that_spoke_one_that_was_ended_and_one_that_never_was() -> None:
    assert silent_text(ended(Life().run(1).progress(1, 40), 1).end(1, "completed").state) == ""
    assert silent_text(Life().run(1).progress(1, 40).end(1, "preempted").state) == ""
    assert silent_text(Life().run(1).end(1, "completed").state) == ""
    assert silent_text(Life().state) == ""


def test_it_is_said_of_the_last_execution_only() -> None:
    life = Life().run(1).progress(1, 40).end(1, "failed").resubmit(2, "failed").run(2)
    assert silent_text(life.state)
    ended(life.progress(2, 50, 40), 2).end(2, "completed")
    assert silent_text(life.state) == ""
