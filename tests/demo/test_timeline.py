"""The demo's timeline: rows in the order of time, overlaps marked, and what the last save is made of."""

from __future__ import annotations

from typing import Any

from demo import timeline
from tests.demo.test_promises import ONE, TWO, good, read


def test_a_replaced_job_as_a_timeline() -> None:
    lines, published, state = good()
    lines.append({**lines[1], "what": "signal", "at": 11.0, "signal": 15})
    last = {**state, "log_history": [*state["log_history"][:-1], (2.5).hex()]}
    facts: list[dict[str, Any]] = [
        {"kind": "decision", "at": 11.2, "outcome": "preempted", "action": "resubmit", "rule": "preempted:resubmit"},
        {"kind": "submitted", "at": 11.3, "submission": 2, "slurm_job_id": 7},
        {"kind": "submitted", "at": -0.5, "submission": 1, "slurm_job_id": 5},
    ]
    text = timeline.render(read(lines, published), [(-1.0, "ada submits it")], facts, last)
    rows = text.split("\n\n")[0].splitlines()[1:]
    times = [float(row.split(" s ")[0]) for row in rows]
    assert times == sorted(times)
    wanted = [
        ("", "ada submits it"),
        (f"1 (epoch {ONE})", "begins on c1, from nothing"),
        (f"1 (epoch {ONE})", "is told to end (SIGTERM), and writes on"),
        ("tick", "decides: preempted -> resubmit (preempted:resubmit)"),
        ("tick", "submission 2 is Slurm job 7"),
        (f"2 (epoch {TWO})", f"begins on c1, 2 ranks, from step 10 of epoch {ONE}"),
        (f"1 (epoch {ONE})", "|| writes beside execution 2"),
    ]
    at = -1
    for name, what in wanted:
        at = next(i for i in range(at + 1, len(rows)) if name in rows[i] and rows[i].endswith(f"  {what}"))
    late = next(row for row in rows if "writes no more" in row)
    assert late.endswith("|| writes no more: 4 saves beside it, up to step 30; 4 of its publications came late")
    assert not [row for row in rows if "submission 1 is" in row]
    assert f"steps     1 to    10 of execution 1 (epoch {ONE})" in text
    assert f"steps    11 to    30 of execution 2 (epoch {TWO})" in text
    assert "2.5000 nats" in text
