"""The pages and the sample that are made from the code are what the code says."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]


def check(top: Path) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, str(top / "tools/doc_tables.py"), "--check"], capture_output=True, timeout=120, check=False
    )


def test_they_are_current() -> None:
    done = check(TOP)
    assert (done.returncode, done.stderr) == (0, b"")


def test_one_that_is_not_current_is_named(tmp_path: Path) -> None:
    for name in ("slurm_dispatch", "tools", "docs", "site"):
        shutil.copytree(TOP / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    page = tmp_path / "docs/states.md"
    page.write_text(page.read_text("utf-8").replace("preempted", "pre-empted"), "utf-8")
    done = check(tmp_path)
    assert done.returncode == 1
    assert b"docs/states.md is not what the code says" in done.stderr
    assert b"settings.md" not in done.stderr
