"""Ticks that a dead file server holds do not pile up."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from slurm_dispatch.cli import tick
from slurm_dispatch.controller import stuck as module
from slurm_dispatch.controller.stuck import stuck
from slurm_dispatch.errors import ServiceAwayError

if TYPE_CHECKING:
    from pathlib import Path

OWN = b"python3\0/usr/bin/dispatch\0tick\0"


def process(proc: Path, name: str, state: str, command: bytes = OWN, uid: int = 0) -> None:
    (proc / name).mkdir()
    (proc / name / "stat").write_text(f"{name} (a ) D b) {state} 1 2 3")
    (proc / name / "cmdline").write_bytes(command)
    (proc / name / "status").write_text(f"Name:\tdispatch\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n")


def test_only_those_of_our_command_line_that_the_kernel_holds_count(tmp_path: Path) -> None:
    process(tmp_path, "self", "R")
    assert stuck(str(tmp_path)) == {}
    for number in range(5):
        process(tmp_path, str(10 + number), "D")
    process(tmp_path, "20", "S")
    process(tmp_path, "21", "D", b"cat\0/hung\0")
    process(tmp_path, "23", "D", uid=1000)
    (tmp_path / "22").mkdir()  # ended meanwhile
    (tmp_path / "uptime").write_text("1 1")
    assert stuck(str(tmp_path)) == {0: 5, 1000: 1}


def test_a_process_that_runs_is_not_stuck() -> None:
    # Its command line is its own: another worker of these tests has ours, and may well be waiting for a disk.
    code = "import sys; from slurm_dispatch.controller.stuck import stuck; sys.exit(len(stuck()))"
    argv = [sys.executable, "-c", code, secrets.token_hex(8)]
    top = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
    assert subprocess.run(argv, cwd=top, timeout=60).returncode == 0


def test_a_tick_that_finds_too_many_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "stuck", lambda: Counter({0: module.STUCK_MAX}))
    with pytest.raises(ServiceAwayError, match="cannot be ended"):
        tick.refuse_pile("root")


def test_a_user_who_imitates_hanging_ticks_stops_his_own_jobs_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process in vfork is in state D too, and anybody can give his own our command line."""
    many = {1000: 10 * module.STUCK_MAX, 1001: module.STUCK_OWNER_MAX - 1}
    monkeypatch.setattr(module, "stuck", lambda: Counter(many))
    assert tick.refuse_pile("root") == [1000]
