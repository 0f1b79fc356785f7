"""The answers that ``tests/assets/record.py`` took from a real cluster."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurm_dispatch.slurm.parse import parse_queue

if TYPE_CHECKING:
    from slurm_dispatch.slurm.port import Queue, Unknown

ASSETS = Path(__file__).parent.parent / "assets" / "slurm-24.11"
RELEASES = ("22.05", "24.11", "26.05")
NONCE = "<0123456789abcdef>"


@dataclass(frozen=True)
class Answer:
    """One recorded answer."""

    argv: list[str]
    status: int
    stdout: str
    stderr: str


def of(release: str) -> Path:
    """Where the answers of a release are, as ``24.11``."""
    return ASSETS.parent / f"slurm-{release}"


def answer(name: str, release: str = "24.11") -> Answer:
    """The answer ``name``."""
    return Answer(**json.loads((of(release) / f"{name}.json").read_text()))


def jobs() -> dict[str, int]:
    """The ids of the jobs that the answers are about: failed, running, cancelled."""
    return {name: int(number) for name, number in json.loads((ASSETS / "jobs.json").read_text()).items()}


@dataclass(frozen=True)
class Ends:
    """Every end that was made on a cluster of one release.

    :param slurm: the release in full.
    :param recorded: the day, in ISO form.
    :param restarts: accounting had the column ``Restarts``.
    :param ends: by name: what was done (``how``, ``options``), whether the script ``ran``, the ``job`` id, and what
        Slurm said while it was ``ending`` (if it was seen then) and when it was ``over``.
    """

    slurm: str
    debian: str
    recorded: str
    restarts: bool
    ends: dict[str, dict[str, Any]]


@cache
def ends(release: str) -> Ends:
    """The ends of a release, as ``24.11``."""
    return Ends(**json.loads((ASSETS.parent / f"slurm-{release}" / "ends.json").read_text()))


def array_of(release: str = "24.11") -> tuple[int, dict[str, int]]:
    """The recorded array: its id, and the raw id of each of its lines in the queue by ``<array>_<task>``."""
    content = json.loads((of(release) / "array.json").read_text())
    return int(content["array"]), {name: int(raw) for name, raw in content["tasks"].items()}


def array_queue(release: str = "24.11") -> Queue | Unknown:
    """The queue with the recorded array in it."""
    return parse_queue(answer("array-queue", release).stdout, NONCE)


def dependents_jobs(release: str = "24.11") -> dict[str, int]:
    """The ids of the jobs that the recorded answer about dependents is about."""
    content = json.loads((of(release) / "dependents-jobs.json").read_text())
    return {name: int(number) for name, number in content.items()}
