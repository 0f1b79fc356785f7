"""The training program: what the proofs on the cluster lean on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from demo import train

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = train.__file__
DEADLINE_S = 120.0
DISPATCH = {"DISPATCH_JOB": "k", "DISPATCH_EPOCH": "1000000", "DISPATCH_ATTEMPT": "aaa", "DISPATCH_CHECKPOINT": "/r"}


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("DISPATCH_", "SLURM_"))}
    return {**kept, **more}


def begin(folder: Path, *words: str, **more: str) -> subprocess.Popen[str]:
    argv = [sys.executable, PROGRAM, "--output_dir", str(folder), "--step-time", "0", *words]
    return subprocess.Popen(argv, env=environment(**more), stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, said = process.communicate(timeout=DEADLINE_S)
    return process.returncode, said


def run(folder: Path, *words: str, **more: str) -> None:
    status, said = finish(begin(folder, *words, **more))
    assert status == 0, said


def log_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("ascii").splitlines()]


def marker(folder: Path, step: int) -> Any:
    return json.loads((folder / f"checkpoint-{step}" / train.MARKER).read_text("ascii"))


def wait_for(condition: Any, what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not come in {DEADLINE_S:.0f} s"
        time.sleep(0.02)


def logged(path: Path, what: str) -> list[dict[str, Any]]:
    """Lines of one kind in a log that may be in the middle of being written, or not there yet."""
    if not path.exists():
        return []
    whole = path.read_text("ascii").rpartition("\n")[0]
    return [line for line in map(json.loads, whole.splitlines()) if line["what"] == what]


def test_when_it_began_is_told_by_slurm_or_by_the_node_s_prolog(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slurm 22.05 has no SLURM_JOB_START_TIME: there the execution's file is as old as the execution."""
    monkeypatch.setattr(train, "EXECUTIONS", str(tmp_path))
    for name in ("SLURM_JOB_START_TIME", "SLURM_JOB_ID"):
        monkeypatch.delenv(name, raising=False)
    assert train.began(9.0) == 9.0
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert train.began(9.0) == 9.0
    (tmp_path / "7.0").touch()
    os.utime(tmp_path / "7.0", (5, 5))
    assert train.began(9.0) == 5.0
    monkeypatch.setenv("SLURM_JOB_START_TIME", "4")
    assert train.began(9.0) == 4.0


def test_it_learns(tmp_path: Path) -> None:
    run(tmp_path, "--steps", "300", "--save_steps", "300")
    losses = [float.fromhex(text) for text in marker(tmp_path, 300)["log_history"]]
    assert sum(losses[-20:]) / 20 < losses[0] - 1.0


def test_a_resumed_run_has_the_losses_of_one_that_never_stopped(tmp_path: Path) -> None:
    run(tmp_path / "a", "--steps", "20", "--branch", "1")
    resume = "--resume_from_checkpoint"
    run(tmp_path / "b", "--steps", "33", "--branch", "2", resume, str(tmp_path / "a/checkpoint-20"))
    run(tmp_path / "c", "--steps", "47", "--branch", "3", resume, str(tmp_path / "b/checkpoint-33"))
    state = marker(tmp_path / "c", 47)
    assert state["lineage"] == [["1", 0], ["2", 20], ["3", 33]]
    assert train.replay(state, train.CORPUS) == state["log_history"]
    assert state["log_history"][:20] == marker(tmp_path / "a", 20)["log_history"]


def test_two_runs_from_one_save_part_at_once(tmp_path: Path) -> None:
    run(tmp_path / "a", "--steps", "10", "--branch", "1")
    for name in ("2", "3"):
        save = str(tmp_path / "a/checkpoint-10")
        run(tmp_path / name, "--steps", "20", "--branch", name, "--resume_from_checkpoint", save)
    one, two = (marker(tmp_path / name, 20)["log_history"] for name in ("2", "3"))
    assert one[:10] == two[:10]
    assert all(first != second for first, second in zip(one[10:], two[10:], strict=True))


@pytest.mark.parametrize("part", ["model.npz", "optimizer.npz", "random.json", train.MARKER])
def test_a_save_with_a_part_of_another_run_is_told(tmp_path: Path, part: str) -> None:
    """Every file of a save matters: with one of them of another branch the lineage is not what it must be."""
    run(tmp_path / "a", "--steps", "10", "--branch", "1")
    run(tmp_path / "b", "--steps", "10", "--branch", "2")
    mixed = tmp_path / "a/checkpoint-10" / part
    mixed.write_bytes((tmp_path / "b/checkpoint-10" / part).read_bytes())
    run(tmp_path / "c", "--steps", "20", "--branch", "3", "--resume_from_checkpoint", str(mixed.parent))
    state = marker(tmp_path / "c", 20)
    assert train.replay(state, train.CORPUS) != state["log_history"]
    replayed = subprocess.run(
        [sys.executable, PROGRAM, "--replay", str(tmp_path / "c/checkpoint-20" / train.MARKER)],
        stdout=subprocess.PIPE, check=False, timeout=DEADLINE_S,
    )
    assert replayed.returncode == 1
    assert json.loads(replayed.stdout)["equal"] is False


def test_rotation_keeps_the_highest_number_as_trainer_does(tmp_path: Path) -> None:
    (tmp_path / "checkpoint-90").mkdir()
    (tmp_path / "checkpoint-x").mkdir()
    run(tmp_path, "--steps", "20")
    assert [number for number, _ in train.saves_of(str(tmp_path))] == [90]
    gone = [line["gone"] for line in log_of(tmp_path / "0.0.jsonl") if line["what"] == "saved"]
    assert gone == [[f"checkpoint-{step}"] for step in (5, 10, 15, 20)]


def test_the_limit_of_saves(tmp_path: Path) -> None:
    run(tmp_path, "--steps", "20", "--save_total_limit", "2")
    assert [number for number, _ in train.saves_of(str(tmp_path))] == [15, 20]
    run(tmp_path / "all", "--steps", "20", "--save_total_limit", "0")
    assert [number for number, _ in train.saves_of(str(tmp_path / "all"))] == [5, 10, 15, 20]


def test_last_resumes_from_the_highest_number(tmp_path: Path) -> None:
    run(tmp_path, "--steps", "10", "--branch", "1")
    run(tmp_path, "--steps", "15", "--branch", "2", "--resume_from_checkpoint", "last")
    assert marker(tmp_path, 15)["lineage"] == [["1", 0], ["2", 10]]
    run(tmp_path / "none", "--steps", "5", "--resume_from_checkpoint", "last")
    assert marker(tmp_path / "none", 5)["lineage"] == [["0", 0]]


def test_a_save_of_another_seed_is_refused(tmp_path: Path) -> None:
    run(tmp_path / "a", "--steps", "5")
    status, said = finish(
        begin(tmp_path / "b", "--seed", "8", "--resume_from_checkpoint", str(tmp_path / "a/checkpoint-5"))
    )
    assert (status, said.count("\n")) == (1, 1)
    assert "seed 7, not 8" in said


def test_sigterm_is_ignored_or_ends_it(tmp_path: Path) -> None:
    deaf = begin(tmp_path / "deaf", "--steps", "1000000", "--step-time", "0.01", "--ignore-term")
    soft = begin(tmp_path / "soft", "--steps", "1000000", "--step-time", "0.01")
    try:
        logs = [tmp_path / name / "0.0.jsonl" for name in ("deaf", "soft")]
        for log in logs:
            wait_for(lambda log=log: logged(log, "step"), f"a step in {log}")
        deaf.terminate()
        soft.terminate()
        assert finish(soft)[0] == -signal.SIGTERM
        wait_for(lambda: logged(logs[0], "signal"), "the signal in the log")
        told = logged(logs[0], "signal")[0]["at"]
        wait_for(lambda: [line for line in logged(logs[0], "saved") if line["at"] > told], "a save after SIGTERM")
        assert deaf.poll() is None
    finally:
        deaf.kill()
        deaf.communicate()
        soft.kill()
        soft.communicate()


def test_it_lingers_after_sigterm_and_then_ends_by_it(tmp_path: Path) -> None:
    training = begin(tmp_path, "--steps", "1000000", "--step-time", "0.01", "--ignore-term", "--linger", "1")
    log = tmp_path / "0.0.jsonl"
    try:
        wait_for(lambda: logged(log, "step"), "a step")
        training.terminate()
        assert finish(training)[0] == -signal.SIGTERM
    finally:
        training.kill()
        training.communicate()
    told = logged(log, "signal")[0]["at"]
    assert [line for line in logged(log, "step") if line["at"] > told]


def test_a_detached_writer_outlives_its_launcher(tmp_path: Path) -> None:
    launcher = begin(tmp_path, "--steps", "1000000", "--step-time", "0.01", "--detach")
    log = tmp_path / "0.0.jsonl"
    writer = 0
    try:
        wait_for(lambda: logged(log, "start"), "the writer's start")
        writer = logged(log, "start")[0]["pid"]
        assert writer != launcher.pid
        assert os.getsid(writer) not in {os.getsid(launcher.pid), launcher.pid}
        launcher.kill()
        launcher.communicate()
        steps = len(logged(log, "step"))
        wait_for(lambda: len(logged(log, "step")) > steps, "a step after the launcher's end")
    finally:
        launcher.kill()
        if writer:
            os.kill(writer, signal.SIGKILL)


def test_a_detached_writer_that_ends_lets_its_launcher_end(tmp_path: Path) -> None:
    run(tmp_path, "--steps", "10", "--detach")
    assert [line["what"] for line in log_of(tmp_path / "0.0.jsonl")][-1] == "end"


def test_the_stop_file_ends_it_with_a_save(tmp_path: Path) -> None:
    stop = tmp_path / "stop"
    training = begin(tmp_path, "--steps", "1000000", "--step-time", "0.01", "--stop-file", str(stop))
    wait_for(lambda: logged(tmp_path / "0.0.jsonl", "step"), "a step")
    stop.touch()
    assert finish(training)[0] == 0
    log = log_of(tmp_path / "0.0.jsonl")
    assert [line["what"] for line in log[-3:]] == ["step", "saved", "end"]
    assert marker(tmp_path, log[-1]["step"])["global_step"] == log[-1]["step"]


def test_ranks_have_the_same_variables_and_losses(tmp_path: Path) -> None:
    ranks = [begin(tmp_path, "--steps", "20", SLURM_PROCID=str(rank), **DISPATCH) for rank in (1, 0)]
    assert [finish(rank) for rank in ranks] == [(0, ""), (0, "")]
    first, second = (log_of(tmp_path / f"aaa.{rank}.jsonl") for rank in (0, 1))
    losses = [[line["loss"] for line in log if line["what"] == "step"] for log in (first, second)]
    assert losses[0] == losses[1]
    assert len(losses[0]) == 20
    assert first[0]["variables"] == DISPATCH
    assert not [line for line in second if line["what"] == "saved"]
    assert (first[0]["epoch"], first[0]["branch"]) == ("1000000", "1000000")


def test_a_rank_with_other_variables_fails(tmp_path: Path) -> None:
    other = {**DISPATCH, "DISPATCH_RESUME": "/r/exec/bbb/checkpoint-5"}
    run(tmp_path, "--steps", "5", SLURM_PROCID="0", **DISPATCH)
    status, said = finish(begin(tmp_path, "--steps", "5", SLURM_PROCID="1", **other))
    assert status == 1
    assert "/r/exec/bbb/checkpoint-5" in said
    assert log_of(tmp_path / "aaa.1.jsonl")[-1]["what"] == "died"


def test_the_marker_is_written_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Killed(Exception):
        pass

    def die(seconds: float) -> None:
        raise Killed

    monkeypatch.setattr(time, "sleep", die)
    with pytest.raises(Killed):
        train.Trainer(train.CORPUS, 7).save(str(tmp_path), 1.0)
    assert os.listdir(tmp_path) == ["model.npz"]
