"""The libraries of tests/savers/requirements.txt, in an interpreter of their own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def libraries() -> Path:
    """The interpreter of .venv-savers; it is made if it is not there. Without the libraries the tests fail."""
    made = subprocess.run([str(TOP / "tools" / "make-venv-savers")], capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    return TOP / ".venv-savers" / "bin" / "python"
