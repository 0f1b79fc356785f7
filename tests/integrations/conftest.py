"""Running the programs, each once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

TREE = Path(__file__).resolve().parent.parent.parent
PROGRAMS = Path(__file__).resolve().parent / "programs"
PYTHON = TREE / ".venv-savers" / "bin" / "python"
DEADLINE_S = 600.0
QUIET = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}

Told = list[dict[str, Any]]


def program(name: str, *words: str, below: tuple[str, ...] = (), **variables: str) -> tuple[Told, str]:
    """Run a program to its end; what it told, and its standard error.

    :param below: words of ``dispatch-watch``, which starts it.
    """
    assert PYTHON.exists(), "run tools/make-venv-savers first"
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("DISPATCH_", "SLURM_", "PYTHON"))}
    argv = [str(PYTHON), str(PROGRAMS / name), *words]
    if below:
        argv = [sys.executable, "-c", "from slurm_dispatch.watch.main import run; run()", *below, "--", *argv]
    done = subprocess.run(
        argv, env={**kept, **QUIET, "PYTHONPATH": str(TREE), **variables}, capture_output=True, text=True,
        timeout=DEADLINE_S, check=False, stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, f"{name} ended with {done.returncode}:\n{done.stderr[-6000:]}"
    return [json.loads(line) for line in done.stdout.split("\n") if line.startswith('{"what"')], done.stderr


def names(root: Path | str) -> list[tuple[int, int, str]]:
    """The publications: submission, step, path; the latest last."""
    from slurm_dispatch.anyroot import open_store

    listing = open_store(str(root)).listing()
    return [(one.epoch // 10**6, one.step, os.fsdecode(one.path)) for one in reversed(listing)]
