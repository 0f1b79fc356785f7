"""Each promise's check takes a good story, and says what is wrong with a bad one."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

from demo import promises
from demo.witness import Account, account
from slurm_dispatch.model.publication import Publication

ONE, TWO = 1_000_000, 2_000_000


def log(
    epoch: int, lineage: list[tuple[str, int]], steps: range, at: float, *, rank: int = 0, began: float | None = None
) -> list[dict[str, Any]]:
    """A log: the start at ``at``, then a step a second, a save every 5 steps."""
    fixed = {"attempt": f"a{epoch}", "epoch": str(epoch), "rank": rank, "host": "c1", "pid": 1}
    lines: list[dict[str, Any]] = [
        {**fixed, "what": "start", "at": at, "began": at if began is None else began, "step": steps.start - 1,
         "resume": None, "lineage": lineage, "variables": {"DISPATCH_EPOCH": str(epoch)}}
    ]
    for number, step in enumerate(steps, 1):
        lines.append({**fixed, "what": "step", "at": at + number, "step": step, "loss": f"{epoch}:{step}"})
        if step % 5 == 0:
            lines.append({**fixed, "what": "saved", "at": at + number, "step": step, "gone": []})
    return lines


def good() -> tuple[list[dict[str, Any]], list[tuple[float, int, int]], dict[str, Any]]:
    """Logs, publications (when, epoch, step) and the last save's marker of a job that was replaced once.

    The old execution does steps 1 to 30 from second 0 on; the new one begins at second 12 from step 10.
    """
    first = [(str(ONE), 0)]
    second = [*first, (str(TWO), 10)]
    lines = log(ONE, first, range(1, 31), 0.0) + log(TWO, second, range(11, 31), 12.0)
    lines += log(TWO, second, range(11, 31), 12.0, rank=1)
    published = [(step + 0.5, ONE, step) for step in range(5, 31, 5)]
    published += [(step + 2.5, TWO, step) for step in range(15, 31, 5)]
    losses = [f"{ONE}:{step}" for step in range(1, 11)] + [f"{TWO}:{step}" for step in range(11, 31)]
    return lines, published, {"lineage": second, "global_step": 30, "log_history": losses}


def read(lines: list[dict[str, Any]], published: list[tuple[float, int, int]]) -> Account:
    names = [(at, Publication(epoch, step, path(epoch, step))) for at, epoch, step in published]
    listing = "".join(f"{at} {publication.name}\n" for at, publication in names)
    return account("".join(json.dumps(line) + "\n" for line in lines), listing)


def path(epoch: int, step: int) -> bytes:
    return f"exec/a{epoch}/kept/checkpoint-{step}".encode()


def latest(epoch: int, step: int) -> str:
    return f"/root/{path(epoch, step).decode()}"


def test_a_good_story_breaks_nothing() -> None:
    lines, published, state = good()
    known = read(lines, published)
    assert promises.epochs_rise(known) == []
    assert promises.ranks_agree(known) == []
    assert [promises.resumed_from_last(known, execution) for execution in known.executions] == [[], []]
    assert promises.lineage_is_right(known, state, state["log_history"]) == []
    assert promises.old_runs_changed_nothing(known, state, latest(TWO, 30)) == []


def test_overlap_counts_what_the_old_one_wrote_beside_the_new_one() -> None:
    lines, published, _ = good()
    old, new = read(lines, published).executions
    assert promises.overlap(old, new) == 17 + 4  # steps 14 to 30, saves 15 to 30
    assert promises.late_publications(read(lines, published), old, new) == 4
    ended = [line for line in lines if line["epoch"] == str(TWO) or line["at"] < 13]
    old, new = read(ended, published).executions
    assert promises.overlap(old, new) == 0


def test_a_death_in_the_middle_of_a_save_is_an_overlap() -> None:
    lines, published, _ = good()
    ended = [line for line in lines if line["epoch"] == str(TWO) or line["at"] < 13]
    ended.append({**ended[0], "what": "died", "at": 15.0, "error": "FileNotFoundError"})
    old, new = read(ended, published).executions
    assert promises.overlap(old, new) == 1


def test_a_line_that_is_cut_off_is_left_out() -> None:
    known = account('{"attempt": "a", "epoch": "1000000", "rank"', "")
    assert known.executions == []


def test_epochs_that_do_not_rise_are_seen() -> None:
    lines, published, _ = good()
    for line in lines:
        if line["epoch"] == str(TWO):
            line["at"] -= 100
    assert "began after" in promises.epochs_rise(read(lines, published))[0]


def test_a_rank_with_other_variables_or_losses_is_seen() -> None:
    lines, published, _ = good()
    other = deepcopy(lines)
    next(line for line in other if line["rank"] == 1)["variables"] = {}
    assert "rank 1 has {}" in promises.ranks_agree(read(other, published))[0]
    lines[-1]["loss"] = "x"
    lines[-2]["loss"] = "x"
    assert "rank 1 has other losses" in promises.ranks_agree(read(lines, published))[0]


def test_resuming_from_another_save_than_the_last_published_is_seen() -> None:
    lines, published, _ = good()
    begin = next(line for line in lines if line["what"] == "start" and line["epoch"] == str(TWO))

    def says(step: int, lineage: list[tuple[str, int]]) -> str:
        begin["step"], begin["lineage"] = step, lineage
        found = promises.resumed_from_last(read(lines, published), read(lines, published).executions[1])
        return found[0] if found else ""

    assert says(10, [(str(ONE), 0), (str(TWO), 10)]) == ""
    assert "though (1000000, 10) was published" in says(5, [(str(ONE), 0), (str(TWO), 5)])
    assert "which was not published when it began" in says(15, [(str(ONE), 0), (str(TWO), 15)])
    assert "began anew, though (1000000, 10)" in says(0, [(str(TWO), 0)])
    begin["at"] = 15.8  # between Slurm's start and its own the old one published step 15: both are right
    assert says(10, [(str(ONE), 0), (str(TWO), 10)]) == ""
    assert says(15, [(str(ONE), 0), (str(TWO), 15)]) == ""


def test_a_last_save_of_other_steps_is_seen() -> None:
    lines, published, state = good()
    known = read(lines, published)
    foreign = {**state, "lineage": [(str(ONE), 0)]}
    assert "not of the last execution" in promises.lineage_is_right(known, foreign, state["log_history"])[0]
    moved = {**state, "lineage": [(str(ONE), 0), (str(TWO), 15)]}
    assert "its execution went on from" in promises.lineage_is_right(known, moved, state["log_history"])[0]
    replayed = [*state["log_history"][:20], "other", *state["log_history"][21:]]
    assert "from step 21 on" in promises.lineage_is_right(known, state, replayed)[0]
    assert "from step 30 on" in promises.lineage_is_right(known, state, state["log_history"][:29])[0]
    mixed = {**state, "log_history": [*state["log_history"][:15], f"{ONE}:16", *state["log_history"][16:]]}
    assert "step 16 of the last save" in promises.lineage_is_right(known, mixed, mixed["log_history"])[0]


def test_an_old_run_that_comes_out_on_top_is_seen() -> None:
    lines, published, state = good()
    known = read(lines, published)
    assert "latest is" in promises.old_runs_changed_nothing(known, state, latest(ONE, 30))[0]
    only_old = read(lines, [row for row in published if row[1] == ONE])
    assert "not 2000000" in promises.old_runs_changed_nothing(only_old, state, latest(ONE, 30))[0]
    assert "not 2000000" in promises.old_runs_changed_nothing(read(lines, []), state, latest(ONE, 30))[0]
    short = {**state, "global_step": 25}
    assert "holds step 25" in promises.old_runs_changed_nothing(known, short, latest(TWO, 30))[0]
