"""How a command is stopped, with stand-ins for squeue and scancel that write down what they were asked."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import pytest

from slurm_dispatch.watch.command import is_srun
from slurm_dispatch.watch.place import Place
from slurm_dispatch.watch.stopping import PAUSE_S, Stopping, ask_for_save
from tests.watch.test_apart import bin_folder, script

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["bin_folder"]

IN_SLURM = Place("/r", "abc", 1000000, "att", slurm_job="42")
OUTSIDE = Place("/r", "abc", 1000000, "att")


class Clock:
    """A clock that goes only when it is told."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def calls(bin_folder: Path, tmp_path: Path) -> Path:
    """A running job of two steps; returns where scancel's arguments go."""
    script(
        bin_folder, "squeue", 'case "$*" in *--steps*) printf "42.0\\n42.1\\n42.batch\\n";; *) echo RUNNING;; esac'
    )
    script(bin_folder, "scancel", f'echo "$*" >> {tmp_path}/calls')
    (tmp_path / "calls").touch()
    return tmp_path / "calls"


@contextmanager
def sleeper(traps: str = "") -> Iterator[subprocess.Popen[bytes]]:
    """A shell that has set its traps when this returns, in a process group of its own; killed at the end."""
    line = f"{traps}\necho ready; while :; do sleep 0.1; done"
    process = subprocess.Popen(["sh", "-c", line], start_new_session=True, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"ready\n"
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(60)
        process.stdout.close()


def test_what_is_srun() -> None:
    assert is_srun(["srun", "x"])
    assert is_srun(["/usr/bin/srun"])
    assert is_srun(["env", "A=1", "srun", "x"])
    assert not is_srun(["python", "srun"])
    assert not is_srun(["bash", "-c", "srun x"])


def test_srun_gets_no_sigterm_before_the_end(calls: Path) -> None:
    """SIGTERM to a direct srun child kills the tasks in the same second: the steps are told instead."""
    clock = Clock()
    with sleeper() as process:
        stopping = Stopping(IN_SLURM, process.pid, steps=True, group=True, grace_s=30, clock=clock)
        stopping.begin(signal.SIGTERM)
        assert calls.read_text() == "--signal=TERM 42.0\n--signal=TERM 42.1\n"
        stopping.step()
        assert process.poll() is None
        clock.now = 30
        stopping.step()
        assert calls.read_text().endswith("--signal=KILL 42.0\n--signal=KILL 42.1\n")
        assert process.poll() is None
        clock.now += PAUSE_S
        stopping.step()
        assert process.wait(60) == -signal.SIGTERM


def test_steps_that_slurm_ends_itself_are_not_told_twice(calls: Path, bin_folder: Path) -> None:
    script(bin_folder, "squeue", "echo COMPLETING")
    with sleeper() as process:
        Stopping(IN_SLURM, process.pid, steps=True, group=True, grace_s=30).begin(signal.SIGTERM)
        assert calls.read_text() == ""
        assert process.poll() is None


def test_without_an_answer_nobody_is_signalled(
    calls: Path, bin_folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    script(bin_folder, "squeue", "exit 1")
    with sleeper() as process:
        Stopping(IN_SLURM, process.pid, steps=True, group=True, grace_s=30).begin(signal.SIGTERM)
        assert process.poll() is None
    assert calls.read_text() == ""
    assert "does not say" in capfd.readouterr().err


def test_any_other_command_gets_the_signal_itself() -> None:
    clock = Clock()
    with sleeper("trap '' TERM") as process:
        stopping = Stopping(OUTSIDE, process.pid, steps=False, group=True, grace_s=30, clock=clock)
        stopping.begin(signal.SIGTERM)
        clock.now = 29
        stopping.step()
        assert process.poll() is None
        clock.now = 30
        stopping.step()
        assert process.wait(60) == -signal.SIGKILL


def test_a_person_who_asks_twice_does_not_wait() -> None:
    clock = Clock()
    with sleeper("trap '' INT") as process:
        stopping = Stopping(OUTSIDE, process.pid, steps=False, group=True, grace_s=3000, clock=clock)
        stopping.begin(signal.SIGINT)
        stopping.begin(signal.SIGINT)
        stopping.step()
        assert process.wait(60) == -signal.SIGKILL


def test_asking_for_a_save(calls: Path) -> None:
    with sleeper() as process:
        ask_for_save(IN_SLURM, process.pid, signal.SIGTERM, steps=True, group=True)
        assert calls.read_text() == "--signal=TERM 42.0\n--signal=TERM 42.1\n"
        assert process.poll() is None
        ask_for_save(IN_SLURM, process.pid, signal.SIGUSR1, steps=True, group=True)
        assert process.wait(60) == -signal.SIGUSR1
