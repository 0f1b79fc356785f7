"""Work in a process apart: its answers, its errors, and that it cannot hold up its caller."""

from __future__ import annotations

import errno
import os
import signal
import stat
import sys
import time
from typing import TYPE_CHECKING

import pytest

from slurm_dispatch.errors import CannotCreateError, DispatchError, TransientError
from slurm_dispatch.watch import slurmconf
from slurm_dispatch.watch.apart import apart, run_command
from slurm_dispatch.watch.scanner import Scanner

if TYPE_CHECKING:
    from pathlib import Path


def script(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


@pytest.fixture
def bin_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that stands before all others in PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


def test_an_answer() -> None:
    assert apart(lambda: b"x" * 300_000, 60, "it") == b"x" * 300_000


def test_an_error_keeps_its_class_and_hint() -> None:
    def work() -> bytes:
        raise CannotCreateError("no\nway", hint="do that")

    with pytest.raises(CannotCreateError) as caught:
        apart(work, 60, "it")
    assert caught.value.line() == "no\\nway; do that"


def test_a_bug_is_one_line() -> None:
    with pytest.raises(DispatchError, match="ZeroDivisionError"):
        apart(lambda: bytes(1 // 0), 60, "it")


def test_what_hangs_is_given_up() -> None:
    def work() -> bytes:
        time.sleep(600)
        return b""

    with pytest.raises(TransientError, match="it: no answer in time"):
        apart(work, 0.2, "it")


def test_what_is_killed_is_an_error() -> None:
    def work() -> bytes:
        os.kill(os.getpid(), signal.SIGKILL)
        return b""

    with pytest.raises(TransientError, match="killed"):
        apart(work, 60, "it")


def test_the_child_hears_no_signal_of_the_job() -> None:
    def work() -> bytes:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
            os.kill(os.getpid(), number)
        return b"lives"

    assert apart(work, 60, "it") == b"lives"


def test_a_command(bin_folder: Path) -> None:
    script(bin_folder, "one", 'echo "$LC_ALL $1"; echo no >&2; exit 3')
    assert run_command(["one", "a b"], 60) == (3, "C a b\n")
    assert run_command(["no-such-command-here"], 60) is None
    script(bin_folder, "slow", "sleep 600")
    assert run_command(["slow"], 0.2) is None
    script(bin_folder, "dies", "kill -9 $$")
    assert run_command(["dies"], 60) is None


def test_a_command_that_prints_for_ever_is_given_up(bin_folder: Path) -> None:
    script(bin_folder, "much", f"exec {sys.executable} -c 'while True: print(\"x\" * 100000)'")
    assert run_command(["much"], 60) is None


def test_steps_as_squeue_prints_them(bin_folder: Path) -> None:
    script(bin_folder, "squeue", "printf '42.extern\\n42.batch\\n42.0\\n42.3\\n42_7.1\\n42+1.2\\nrubbish\\n42\\n'")
    assert slurmconf.steps("42") == ["42.0", "42.3", "42_7.1", "42+1.2"]
    assert slurmconf.steps("42", own="3") == ["42.0", "42_7.1", "42+1.2"]


def test_no_answer_is_not_an_empty_answer(bin_folder: Path) -> None:
    script(bin_folder, "squeue", "echo away >&2; exit 1")
    assert slurmconf.steps("42") is None
    assert slurmconf.state("42") is None
    script(bin_folder, "squeue", ":")
    assert slurmconf.steps("42") == []
    assert slurmconf.state("42") is None


def test_a_signal_never_goes_to_a_whole_job(bin_folder: Path, tmp_path: Path) -> None:
    """``scancel --signal=KILL JOB`` cancels the job: without a step nothing is called."""
    script(bin_folder, "scancel", f'echo "$*" >> {tmp_path}/calls')
    for step in ("42", "42.batch", "", "42.extern", "-a", "42.0 43"):
        assert not slurmconf.signal_step(step, "KILL")
    assert not (tmp_path / "calls").exists()
    assert slurmconf.signal_step("42.0", "KILL")
    assert (tmp_path / "calls").read_text() == "--signal=KILL 42.0\n"


def test_the_end_of_the_job(bin_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    try:
        script(
            bin_folder,
            "scontrol",
            "echo 'JobId=42 StartTime=2026-11-30T05:00:00 EndTime=2026-11-30T06:00:00 Deadline=N/A'",
        )
        assert slurmconf.asked_end_time("42") == 1796018400
        script(bin_folder, "scontrol", "echo 'JobId=42 EndTime=Unknown'")
        assert slurmconf.asked_end_time("42") is None
        assert slurmconf.environment_end_time({"SLURM_JOB_END_TIME": "1796018400"}) == 1796018400
        for text in ("0", "x", "", "-5", "1e9"):
            assert slurmconf.environment_end_time({"SLURM_JOB_END_TIME": text}) is None
    finally:
        monkeypatch.undo()
        time.tzset()


def test_no_process_to_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    """The training has used up the job's processes or descriptors: one clear error, and nothing is left open."""

    def refuse() -> int:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    before = os.listdir("/proc/self/fd")
    for name in ("fork", "pipe"):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, refuse)
            with pytest.raises(TransientError, match="Resource temporarily unavailable"):
                apart(lambda: b"", 60, "it")
            with pytest.raises(TransientError, match="Resource temporarily unavailable"):
                Scanner(lambda _control, _events: None)
            assert run_command(["true"], 60) is None
            assert slurmconf.state("42") is None
    assert os.listdir("/proc/self/fd") == before


def test_a_child_that_cannot_be_killed_is_reaped_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """It sits in the kernel until the filesystem answers; the supervisor lives for weeks and leaves no zombies."""
    pids = []

    def work() -> bytes:
        time.sleep(600)
        return b""

    with monkeypatch.context() as patch:
        patch.setattr(os, "kill", lambda pid, _number: pids.append(pid))
        with pytest.raises(TransientError):
            apart(work, 0.05, "it")
    (pid,) = pids
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert apart(lambda: b"1", 60, "another") == b"1"
    assert not os.path.exists(f"/proc/{pid}")
