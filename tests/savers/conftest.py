"""The libraries of tests/savers/requirements.txt, in an interpreter of their own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def libraries() -> Path:
    """The interpreter of .venv-savers, which ``make`` makes. Without the libraries the tests fail."""
    script = str(TOP / "tools" / "make-venv-savers")
    found = subprocess.run([script, "--check"], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    return TOP / ".venv-savers" / "bin" / "python"


@pytest.fixture(scope="session")
def more_libraries(libraries: Path) -> Path:
    """The same interpreter with the libraries of requirements-more.txt."""
    script = str(TOP / "tools" / "make-venv-savers")
    found = subprocess.run([script, "--check", "more"], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    return libraries
