"""Five trials of each design, the losing schedules forced, and what the judge says of good and bad saves."""

from __future__ import annotations

import json
import os
import random
import secrets
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from demo import train
from tests.trials import designs
from tests.trials.__main__ import table
from tests.trials.designs import DEADLINE_S, DESIGNS, OneFolder, Ours, Pointer
from tests.trials.trial import Lost, Schedule, Trial, judge, run_trial, step_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.trials.designs import Design

ROUNDS = 5
SIDE_BY_SIDE = 3
AHEAD = 300
"""Steps that the old run is ahead: the new one needs 6 s for them, and is ended after two saves."""


def test_five_trials_of_each_design_and_ours_loses_none(tmp_path: Path) -> None:
    base = int(os.environ.get("TRIAL_SEED", secrets.randbelow(10**6)))
    print(f"TRIAL_SEED={base}")
    jobs = [(design, Schedule.of(base + number)) for number in range(ROUNDS) for design in DESIGNS]
    random.Random(base).shuffle(jobs)
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        ends = list(pool.map(lambda job: run_trial(job[0], folder_of(tmp_path, job), job[1]), jobs))
    for (design, schedule), end in zip(jobs, ends, strict=True):
        print(f"{design.name}, seed {schedule.seed}: {end or 'kept everything'}")
    ours = [(schedule, end) for (design, schedule), end in zip(jobs, ends, strict=True) if isinstance(design, Ours)]
    assert len(ours) == ROUNDS
    assert [(schedule, end) for schedule, end in ours if end is not None] == []


def folder_of(parent: Path, job: tuple[Design, Schedule]) -> str:
    return str(parent / f"{job[0].name.replace(' ', '-')}-{job[1].seed}")


def finish(trial: Trial, bounds: list[int]) -> None:
    """Run 3, and the verdict."""
    last = trial.start()
    trial.wait("saves of run 3", lambda: len(trial.made(last)) >= 2, last)
    last.kill()
    judge(trial.design.latest(trial.root), bounds)


def test_the_harness_sees_a_stalled_old_run_move_the_pointer_back(tmp_path: Path) -> None:
    """The old run has looked whether it is current, stalls, is replaced, and goes on: its rename wins."""
    trial = Trial(Pointer(), str(tmp_path))
    try:
        old = trial.start()
        trial.wait("saves of run 1", lambda: len(trial.made(old)) >= 2, old)
        bounds = [step_of(trial.design.latest(trial.root))]
        (tmp_path / "root/stall-1").touch()
        trial.wait("the stall of run 1", (tmp_path / "root/stalled-1").exists, old)
        made = len(trial.made(old))
        new = trial.start()
        trial.wait("saves of run 2", lambda: len(trial.made(new)) >= 3, new)
        new.send(signal.SIGSTOP)  # so that nothing of it comes after the old run's rename
        old.send(signal.SIGCONT)
        trial.wait("the old run's rename", lambda: len(trial.made(old)) > made, old)
        old.kill()
        new.kill()
        bounds.append(trial.made(new)[-1])
        with pytest.raises(Lost, match="the work of a replacement is gone"):
            finish(trial, bounds)
    finally:
        trial.end()


def test_the_harness_sees_rotation_delete_the_replacement_s_save(tmp_path: Path) -> None:
    """The old run is further when it dies: its number is higher, so the replacement deletes its own saves."""
    trial = Trial(OneFolder(), str(tmp_path))
    try:
        old = trial.start()
        trial.wait("saves of run 1", lambda: len(trial.made(old)) >= 2, old)
        old.send(signal.SIGSTOP)
        bounds = [step_of(trial.design.latest(trial.root))]
        new = trial.start()
        trial.wait("a save of run 2", lambda: len(trial.made(new)) >= 1, new)
        new.send(signal.SIGSTOP)
        old.send(signal.SIGCONT)
        ahead = trial.made(new)[-1] + AHEAD
        trial.wait("later saves of run 1", lambda: trial.made(old)[-1] >= ahead, old)
        old.kill()
        made = len(trial.made(new))
        new.send(signal.SIGCONT)
        trial.wait("later saves of run 2", lambda: len(trial.made(new)) >= made + 2, new)
        new.kill()
        bounds.append(trial.made(new)[-1])
        with pytest.raises(Lost):
            finish(trial, bounds)
    finally:
        trial.end()


def test_ours_keeps_everything_where_the_pointer_and_the_one_folder_lose(tmp_path: Path) -> None:
    """The old run is stopped while its replacement publishes, goes on, gets further, and publishes late."""
    trial = Trial(Ours(), str(tmp_path))
    try:
        old = trial.start()
        trial.wait("publications of run 1", lambda: len(trial.made(old)) >= 2, old)
        old.send(signal.SIGSTOP)
        before = len(trial.made(old))
        bounds = [step_of(trial.design.latest(trial.root))]
        new = trial.start()
        trial.wait("publications of run 2", lambda: len(trial.made(new)) >= 3, new)
        new.send(signal.SIGSTOP)
        bounds.append(step_of(trial.design.latest(trial.root)))
        old.send(signal.SIGCONT)
        trial.wait("late publications of run 1", lambda: len(trial.made(old)) >= before + 10, old)
        old.kill()
        assert step_of(trial.design.latest(trial.root)) >= bounds[1]
        new.send(signal.SIGCONT)
        made = len(trial.made(new))
        trial.wait("later publications of run 2", lambda: len(trial.made(new)) >= made + 2, new)
        new.kill()
        finish(trial, bounds)
    finally:
        trial.end()


def made_of(folder: Path, *parts: tuple[str, int]) -> str:
    """A save of these branches, each up to a step."""
    save: str | None = None
    for name, step in parts:
        words: list[str] = ["--resume_from_checkpoint", save] if save else []
        subprocess.run(
            [sys.executable, train.__file__, "--output_dir", str(folder / name), "--branch", name, *words,
             "--steps", str(step), "--step-time", "0"],
            check=True, timeout=DEADLINE_S,
        )
        save = str(folder / name / f"checkpoint-{step}")
    assert save
    return save


def test_the_judge_takes_what_is_right(tmp_path: Path) -> None:
    judge(made_of(tmp_path, ("1", 10), ("2", 20), ("3", 30)), [10, 15])


def test_the_judge_sees_what_is_wrong(tmp_path: Path) -> None:
    save = made_of(tmp_path, ("1", 10), ("2", 20), ("3", 30))
    with pytest.raises(Lost, match="began at step 10, though there was a save of step 15"):
        judge(save, [15, 20])
    with pytest.raises(Lost, match="the work of a replacement is gone"):
        judge(made_of(tmp_path / "b", ("1", 10), ("3", 20)), [10, 10])
    with pytest.raises(Lost, match="no save is left"):
        judge(None, [10, 15])
    marker = os.path.join(save, train.MARKER)
    state = train.read_json(marker)
    state["log_history"][25] = state["log_history"][24]
    train.write_json(marker, state)
    with pytest.raises(Lost, match="saves were mixed"):
        judge(save, [10, 15])
    with open(marker, "w", encoding="ascii") as file:
        file.write(json.dumps(state)[:-5])
    with pytest.raises(Lost, match="cannot be read"):
        judge(save, [10, 15])


def test_schedules_come_from_the_seed() -> None:
    assert Schedule.of(3) == Schedule.of(3)
    assert len({Schedule.of(seed).delay_s for seed in range(40)}) == 40


def test_epochs_rise_with_the_runs() -> None:
    assert [designs.epoch(run) for run in (1, 2, 3)] == [1_000_000, 2_000_000, 3_000_000]


def test_the_table_counts_what_happened() -> None:
    schedule = Schedule.of(1)
    one, two, ours = DESIGNS
    ends = ["run 2 could not go on: x", "the last save is made of y: the work of a replacement is gone", None]
    page = table([(one, schedule, end) for end in ends] + [(two, schedule, None), (ours, schedule, None)], 3, 1)
    rows = [line.split(" | ")[1:] for line in page.split("\n") if line.startswith("| ")][1:]
    assert rows[0][:2] == ["3", "2"]
    assert [row[:2] for row in rows[1:]] == [["1", "0"], ["1", "0"]]
