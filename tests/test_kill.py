"""The kill harness finds every call, and what it says of a program that is not safe is an error."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from tests.kill import Point, Run, kill_at_every_call, points

if TYPE_CHECKING:
    from pathlib import Path

SAFE = """
import os
os.makedirs("out", exist_ok=True)
with open("out/.tmp", "wb") as file:
    file.write(b"one")
os.rename("out/.tmp", "out/whole")
"""
TORN = """
import os
os.makedirs("out", exist_ok=True)
with open("out/whole", "wb", buffering=0) as file:
    file.write(b"one")
    file.write(b"two")
"""


def _run(folder: Path, script: str) -> Run:
    return Run([sys.executable, "-IS", "-c", script], cwd=folder)


def test_every_state_between_two_calls_is_seen(tmp_path: Path) -> None:
    seen: set[tuple[str, ...]] = set()

    def check(folder: Path, point: Point) -> None:
        seen.add(tuple(sorted(p.name for p in folder.rglob("*"))))

    def finished(folder: Path) -> None:
        assert (folder / "out/whole").read_text() == "one"

    visited = kill_at_every_call(
        tmp_path, lambda folder: _run(folder, SAFE), check=check, finished=finished, mark="out"
    )
    assert seen >= {(), ("out",), (".tmp", "out"), ("out", "whole")}
    assert {"mkdir", "write", "exit_group"} <= {point.call for point in visited}


def test_a_program_that_leaves_half_a_file_is_found_out(tmp_path: Path) -> None:
    def check(folder: Path, point: Point) -> None:
        whole = folder / "out/whole"
        assert not whole.exists() or whole.read_text() == "onetwo"

    with pytest.raises(AssertionError, match="points failed"):
        kill_at_every_call(
            tmp_path, lambda folder: _run(folder, TORN), check=check, finished=lambda folder: None, mark="out"
        )


def test_start_up_is_not_counted(tmp_path: Path) -> None:
    everything = points(_run(tmp_path, "open('first', 'w'); open('second', 'w')"), tmp_path / "trace")
    later = points(_run(tmp_path, "open('first', 'w'); open('second', 'w')"), tmp_path / "trace", mark="second")
    assert sum("first" in point.text for point in everything) > 0
    assert not any("first" in point.text for point in later)
    assert any(point.call in {"open", "openat"} and "second" in point.text for point in later)
    assert later[-1].call == "exit_group"
