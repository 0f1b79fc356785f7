"""The answers that ``tests/assets/record.py`` took from a real cluster."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

ASSETS = Path(__file__).parent.parent / "assets" / "slurm-24.11"
NONCE = "<0123456789abcdef>"


@dataclass(frozen=True)
class Answer:
    """One recorded answer."""

    argv: list[str]
    status: int
    stdout: str
    stderr: str


def answer(name: str) -> Answer:
    """The answer ``name``."""
    return Answer(**json.loads((ASSETS / f"{name}.json").read_text()))


def jobs() -> dict[str, int]:
    """The ids of the jobs that the answers are about: failed, running, cancelled."""
    return {name: int(number) for name, number in json.loads((ASSETS / "jobs.json").read_text()).items()}
