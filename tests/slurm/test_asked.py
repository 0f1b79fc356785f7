"""Limits that somebody changed on an object are taken over by the next submission; nothing else is."""

from __future__ import annotations

import pytest

from slurm_dispatch.slurm.asked import changed_limits, memory_of, time_of

SCRIPT = b"#!/bin/sh\n#SBATCH --time=60 --mem=2G\n:\n"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 5400), ("90:30", 5430), ("1:30:00", 5400), ("2-0", 172_800), ("1-12:30", 131_400), ("1-0:0:1", 86_401),
     ("", None), ("INFINITE", None), ("soon", None), ("1:2:3:4", None)],
)  # fmt: skip
def test_a_time_limit(text: str, seconds: int | None) -> None:
    assert time_of(text) == seconds


@pytest.mark.parametrize(
    ("text", "megabytes"),
    [("500", 500), ("2G", 2048), ("1t", 1024**2), ("2048K", 2), ("4GB", 4096), ("0", None), ("x", None)],
)
def test_a_memory_limit(text: str, megabytes: int | None) -> None:
    assert memory_of(text) == megabytes


@pytest.mark.parametrize(
    ("argv", "script", "changes", "limits", "found"),
    [
        (["--time=60"], b"", [], {"time_s": 3600.0}, ()),
        (["--time=60"], b"", [], {"time_s": 7200.0}, ("--time=120",)),
        (["--time=59:30"], b"", [], {"time_s": 3600.0}, ()),  # Slurm's unit is the minute
        ([], SCRIPT, [], {"time_s": 600.0, "mem_mb": 2048.0}, ("--time=10",)),
        ([], SCRIPT, [], {"time_s": 3600.0, "mem_mb": 4096.0}, ("--mem=4096M",)),
        (["--time=5"], SCRIPT, [], {"time_s": 300.0}, ()),  # the command line is stronger
        (["--time=60"], b"", ["--time=0-01:30:00"], {"time_s": 5400.0}, ()),  # what the rule gave it
        (["--time=60"], b"", ["--time=0-01:30:00"], {"time_s": 3600.0}, ("--time=60",)),
        ([], b"", [], {"time_s": 3600.0, "mem_mb": 100.0}, ()),  # the partition's
        (["--time=60", "--time-min=30"], b"", [], {"time_s": 1800.0}, ()),  # Slurm's choice
        (["--mem=0"], b"", [], {"mem_mb": 64_000.0}, ()),
        (["--mem=1G", "--mem-per-cpu=1G"], b"", [], {"mem_mb": 8192.0}, ()),
        (["--time=60", "--mem=1G"], b"", [], {}, ()),
    ],
)
def test_what_is_taken_over(
    argv: list[str], script: bytes, changes: list[str], limits: dict[str, float], found: tuple[str, ...]
) -> None:
    assert changed_limits(argv, script, changes, limits) == found
