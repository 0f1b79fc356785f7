"""A lab for each test, under each Python that is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.hooks.lab import PYTHONS, SYSTEM_PYTHON, WANTED, Lab

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(params=list(PYTHONS))
def lab(request: pytest.FixtureRequest, tmp_path: Path) -> Lab:
    """A lab whose hooks run under one of the Pythons."""
    return Lab(tmp_path, python=PYTHONS[request.param])


@pytest.fixture
def system_lab(tmp_path: Path) -> Lab:
    """A lab whose hooks run under the system's Python."""
    return Lab(tmp_path, python=SYSTEM_PYTHON)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which Pythons the hooks ran under."""
    missing = [version for version in WANTED if version not in PYTHONS]
    line = "the hooks ran under " + ", ".join(f"{name} ({path})" for name, path in PYTHONS.items())
    terminalreporter.write_line(line + (f"; not installed here: {', '.join(missing)}" if missing else ""))
