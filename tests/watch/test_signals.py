"""Signals, the supervisor's own death, and the status that is passed on."""

from __future__ import annotations

import os
import signal
import stat
import sys
from pathlib import Path

import pytest

from tests.watch.rig import TRAINER, Helper, Scene, until


@pytest.mark.parametrize("name", ["USR1", "USR2", "ALRM"])
def test_the_user_s_signals_are_passed_on_and_end_nothing(scene: Scene, name: str) -> None:
    """C051: the helper never eats the user's USR1 and USR2."""
    helper = scene.train(f"trap {name} save 10 wait got-{name} save 20 exit 3")
    helper.until_said("published step 10")
    helper.process.send_signal(signal.Signals[f"SIG{name}"])
    assert helper.end() == 3
    assert scene.published() == [(1, 20), (1, 10)]


def test_sigterm_is_passed_on_and_what_is_proved_is_published(scene: Scene) -> None:
    helper = scene.train("trap TERM touch ready wait got-TERM save 20 bare 30 exit 0", "--done", "done", "--settle", "0")
    until(lambda: scene.passed("ready"), "the trainer")
    helper.process.send_signal(signal.SIGTERM)
    assert helper.end() == 0
    assert scene.published() == [(1, 20)]
    assert helper.has_said("SIGTERM: the command is asked to end")


def test_after_sigterm_nothing_is_assumed_whole(scene: Scene) -> None:
    """C054: a save that is only settled counts no more once the command was told to end."""
    helper = scene.train("trap TERM touch ready wait got-TERM bare 30 exit 0", "--settle", "0")
    until(lambda: scene.passed("ready"), "the trainer")
    helper.process.send_signal(signal.SIGTERM)
    assert helper.end() == 0
    assert scene.published() == []


def test_a_command_that_ignores_sigterm_is_killed_after_grace(scene: Scene) -> None:
    helper = scene.train("trap TERM save 10 touch ready wait never exit 0", "--done", "done", "--grace", "0.3")
    until(lambda: scene.passed("ready"), "the trainer")
    helper.process.send_signal(signal.SIGTERM)
    assert helper.end() == 128 + 9
    assert helper.has_said("it is killed")
    assert scene.published() == [(1, 10)]


def test_scanning_goes_on_while_a_stopped_command_writes(scene: Scene) -> None:
    """A save that is made because the job ends is published while the command still lives."""
    script = "trap TERM save 10 touch ready wait got-TERM save 20 wait go exit 0"
    helper = scene.train(script, "--done", "done", "--grace", "300")
    until(lambda: scene.passed("ready"), "the trainer")
    helper.process.send_signal(signal.SIGTERM)
    helper.until_said("published step 20")
    scene.open("go")
    assert helper.end() == 0


@pytest.mark.parametrize(("script", "status"), [("exit 85", 85), ("kill KILL", 137), ("kill TERM", 143), ("exit 0", 0)])
def test_the_status_is_passed_on(scene: Scene, script: str, status: int) -> None:
    assert scene.train(script).end() == status


def test_a_hangup_that_was_ignored_stays_ignored(scene: Scene) -> None:
    """``nohup dispatch-watch``: neither the helper nor the command ends."""
    environment = scene.environment()
    command = ["--done", "done", "--", sys.executable, TRAINER, str(scene.gates), "{dir}"]
    script = ["touch", "ready", "wait", "go", "exit", "4"]
    nohup = 'trap "" HUP; exec "$0" -m slurm_dispatch.watch.main "$@"'
    import subprocess

    helper = Helper(
        subprocess.Popen(
            ["sh", "-c", nohup, sys.executable, *command, *script],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
    )
    scene.helpers.append(helper)
    until(lambda: scene.passed("ready"), "the trainer")
    helper.process.send_signal(signal.SIGHUP)
    scene.open("go")
    assert helper.end() == 4


def test_a_killed_helper_publishes_nothing_more(scene: Scene) -> None:
    """C052: after the supervisor's end the scanning process ends too, and what is saved then is not published."""
    helper = scene.train("save 10 touch ready wait go save 20 touch saved exit 0")
    helper.until_said("published step 10")
    scanning = _children(helper.process.pid)
    helper.process.kill()
    helper.process.wait(60)
    until(lambda: not any(_lives(pid, helper.process.pid) for pid in scanning), "the end of the scanning process")
    scene.open("go")
    until(lambda: scene.passed("saved"), "the trainer")
    assert scene.published() == [(1, 10)]


def test_a_killed_scanning_process_starts_again(scene: Scene) -> None:
    helper = scene.train("save 10 wait go save 20 wait end exit 0")
    helper.until_said("published step 10")
    for pid in _children(helper.process.pid):
        if b"slurm_dispatch.watch.main" in _words(pid):
            os.kill(pid, signal.SIGKILL)
    helper.until_said("it starts again")
    scene.open("go")
    helper.until_said("published step 20")
    scene.open("end")
    assert helper.end() == 0


def test_standard_output_is_the_command_s_alone(scene: Scene) -> None:
    helper = scene.helper("--", "sh", "-c", "printf 'a\\0b'; printf 'c' >&2")
    assert helper.process.stdout is not None
    assert helper.process.stdout.read() == "a\0b"
    assert helper.end() == 0


def test_a_closed_standard_error_harms_nothing(scene: Scene) -> None:
    import subprocess

    words = ["--done", "done", "--", sys.executable, TRAINER, str(scene.gates), "{dir}", "save", "10", "exit", "5"]
    ended = subprocess.run(
        ["sh", "-c", 'exec "$0" -m slurm_dispatch.watch.main "$@" 2>&- >&- <&-', sys.executable, *words],
        env=scene.environment(),
        timeout=120,
    )
    assert ended.returncode == 5
    assert scene.published() == [(1, 10)]


def test_srun_is_spared(scene: Scene) -> None:
    """Slurm signals the tasks itself when it ends a job; srun gets no SIGTERM, which would kill them at once."""
    folder = scene.folder / "bin"
    folder.mkdir()
    _script(folder / "squeue", "echo COMPLETING")
    _script(folder / "srun", f'exec {sys.executable} {TRAINER} "$@"')
    environment = scene.environment(PATH=f"{folder}:{os.environ['PATH']}", SLURM_JOB_ID="42")
    words = ["trap", "TERM", "touch", "ready", "wait", "go", "save", "20", "exit", "0"]
    helper = scene.helper(
        "--done", "done", "--grace", "300", "--", "srun", str(scene.gates), "{dir}", *words, environment=environment
    )
    until(lambda: scene.passed("ready"), "the trainer")
    helper.process.send_signal(signal.SIGTERM)
    helper.until_said("asked to end")
    scene.open("go")
    assert helper.end() == 0
    assert not scene.passed("got-TERM")
    assert scene.published() == [(1, 20)]


def test_before_the_end_the_command_is_asked_for_a_save(scene: Scene) -> None:
    """The time limit is asked again when the time has come: it moves until the trainer is ready to be asked."""
    later = f'[ -e {scene.gates}/ready ] || echo "EndTime=$(date -u -d "+63 seconds" +%Y-%m-%dT%H:%M:%S)"'
    environment = scene.environment(
        SLURM_JOB_ID="42", SLURM_JOB_END_TIME="1000000000", TZ="UTC", PATH=_stubs(scene, later)
    )
    script = "trap USR1 touch ready wait got-USR1 save 20 exit 6"
    helper = scene.train(script, "--done", "done", "--before-end", "1m:USR1", environment=environment)
    assert helper.end() == 6
    assert helper.has_said("asked for a save (SIGUSR1)")
    assert scene.published() == [(1, 20)]


def test_before_the_end_without_a_time_limit_is_said(scene: Scene) -> None:
    helper = scene.train("exit 0", "--done", "done", "--before-end", "10m")
    assert helper.end() == 0
    assert helper.has_said("--before-end cannot ask")


def _stubs(scene: Scene, text: str) -> str:
    folder = scene.folder / "stubs"
    folder.mkdir()
    for name in ("squeue", "scontrol", "scancel"):
        _script(folder / name, text)
    return f"{folder}:{os.environ['PATH']}"


def _script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def _children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _words(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def _lives(pid: int, parent: int) -> bool:
    """Whether a scanning process is still there: with its words, which are the helper's."""
    try:
        return b"slurm_dispatch.watch.main" in _words(pid)
    except OSError:
        return False
