"""An account is read while the trainings write."""

from __future__ import annotations

import json

import pytest

from demo.witness import account

FIXED = {"attempt": "a", "epoch": "1000000", "host": "c1", "slurm_job_id": "7"}
START = json.dumps({**FIXED, "rank": 0, "what": "start", "at": 1.0, "variables": {"A": "1"}, "lineage": []})
STEP = json.dumps({**FIXED, "rank": 0, "what": "step", "at": 2.0, "step": 1, "loss": "x"})
OTHER = json.dumps({**FIXED, "rank": 1, "what": "start", "at": 1.5, "variables": {"A": "1"}, "lineage": []})


@pytest.mark.parametrize("cut", [1, len(START) // 2, START.index("}") + 1, len(STEP) - 1, len(STEP)])
def test_a_line_that_is_being_written_is_no_part_of_it(cut: int) -> None:
    """Wherever it is cut off, also behind a brace; and what stands in the next log is."""
    for half in (STEP[:cut], START[:cut]):
        known = account(f"{START}\n{half}\0{OTHER}\n\0", "")
        (execution,) = known.executions
        assert [line["what"] for line in execution.lines] == ["start"]
        assert [line["at"] for line in execution.ranks[1]] == [1.5]
        assert execution.slurm_id == "7"


def test_every_whole_line_is() -> None:
    (execution,) = account(f"{START}\n{STEP}\n\0\0{OTHER}\n\0", "").executions
    assert [line["what"] for line in execution.lines] == ["start", "step"]
    assert len(execution.ranks[1]) == 1
    assert account("", "").executions == []
