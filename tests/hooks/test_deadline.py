"""A filesystem that hangs holds no hook up: strace delays the call that it would hang in."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.hooks.lab import PYTHON_HOOKS, START, Lab, waiting

if TYPE_CHECKING:
    from collections.abc import Iterator

DELAY_US = 3_600_000_000
"""An hour: far more than any test waits."""
WAIT_S = 120.0


@contextmanager
def hanging(lab: Lab, hook: str, *options: str, **changes: str | None) -> Iterator[int]:
    """The status of a hook of which some process hangs in a system call while this block runs."""
    status = lab.folder / "status"
    # The substitution reads the hook's output to its end, as slurmd does: what is left behind must not hold it.
    script = 'out=$("$@"); echo $? >"$STATUS"'
    argv = ["strace", "-f", "-qq", "-o", "/dev/null", *options, "/bin/sh", "-c", script, "sh", *lab.argv(hook)]
    environment = {**lab.environment(**changes), "STATUS": str(status), "PATH": "/usr/bin:/bin"}
    process = subprocess.Popen(argv, env=environment, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        end = time.monotonic() + WAIT_S
        while not (status.exists() and status.read_text().endswith("\n")):
            assert time.monotonic() < end, f"{hook} has not ended"
            assert process.poll() is None, f"strace ended with {process.returncode}"
            time.sleep(0.02)
        yield int(status.read_text())
    finally:
        end_traced(process.pid)
        process.kill()  # while it delays a call, it hears of nothing else
        process.wait(WAIT_S)


def end_traced(strace: int) -> None:
    """Kill what a strace still traces."""
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/status") as file:
                if f"\nTracerPid:\t{strace}\n" in file.read():
                    os.kill(int(name), signal.SIGKILL)
        except (FileNotFoundError, ProcessLookupError):
            continue


def delay(call: str, *more: str) -> list[str]:
    return [*more, "-e", f"trace={call}", "-e", f"inject={call}:delay_enter={DELAY_US}"]


@pytest.mark.parametrize("hook", ["prolog-slurmctld", "epilog-slurmctld", "epilog"])
@pytest.mark.parametrize("call", ["fsync", "linkat", "openat"])
def test_notes_that_hang_hold_no_hook_up(system_lab: Lab, hook: str, call: str) -> None:
    """C059."""
    system_lab.run("prolog")
    spooled = (hook, call) == ("epilog", "openat")
    # The spool must be reached in the fifth of it that is left then, also where the disk is slow.
    system_lab.configure(deadline_s="20" if spooled else "2")
    with hanging(
        system_lab, hook, *delay(call, *(["-P", str(system_lab.notes)] if call == "openat" else []))
    ) as status:
        assert status == 0
        assert system_lab.names() == ([".tmp-" + path.name[5:] for path in system_lab.notes.iterdir()])
    # What could not be noted is not forgotten: a later Epilog can say it. A hanging open reaches the spool.
    assert system_lab.files() == ([] if spooled else [f"7.{START}"])


def test_a_run_folder_that_hangs_does_not_hold_prolog_up(system_lab: Lab) -> None:
    system_lab.configure(deadline_s="2")
    with hanging(system_lab, "prolog", *delay("renameat,renameat2")) as status:
        assert status == 0


def test_a_refusal_that_needs_no_reading_holds_though_the_notes_hang(system_lab: Lab) -> None:
    system_lab.configure(deadline_s="2")
    shared = {"SLURM_JOB_COMMENT": "dispatch:abc:0:1:s", "SLURM_JOB_RESTART_COUNT": "1"}
    with hanging(system_lab, "prolog-slurmctld", *delay("fsync"), **shared) as status:
        assert status == 1


def test_a_scan_that_does_not_finish_is_unknown(system_lab: Lab) -> None:
    """A process in a state in which its environment cannot be read holds its reader up too."""
    system_lab.run("prolog")
    system_lab.configure(deadline_s="20")
    with waiting({}) as process:
        path = f"/proc/{process.pid}/environ"
        with hanging(system_lab, "epilog", *delay("openat", "-P", path)) as status:
            assert status == 0
            note = system_lab.note("node.*")
    assert (note["clean"], note["left"], note["verified"]) == (None, [], True)
    assert system_lab.files() == []


@pytest.mark.parametrize("hook", PYTHON_HOOKS)
def test_a_hook_calls_no_command(system_lab: Lab, hook: str) -> None:
    """C041: no scontrol, no squeue; nothing but the sh part and Python is ever started."""
    system_lab.run("prolog")
    trace = system_lab.folder / "trace"
    before = ["strace", "-f", "-qq", "-o", str(trace), "-e", "trace=execve"]
    assert system_lab.run(hook, before=before, PATH="/usr/bin:/bin").status == 0
    lines = [line for line in trace.read_text().splitlines() if "execve(" in line]
    assert len(lines) == 2, lines
    assert f"/{hook}" in lines[0]
    assert system_lab.python in lines[1]
    assert hook != "prolog" or system_lab.files() == [f"7.{START}"]
