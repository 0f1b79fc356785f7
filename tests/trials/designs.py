"""The three designs: how a run is started in each, and what its successor would resume from."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from abc import ABC, abstractmethod
from typing import ClassVar

from demo import train
from slurm_dispatch.model.publication import parse_name
from tests.trials import pointer

DEADLINE_S = 120.0
_WATCH = "from slurm_dispatch.watch.main import run; run()"
_DISPATCH = "from slurm_dispatch.cli.main import run; run()"


class Design(ABC):
    """One way to keep saves. ``root`` is the trial's own folder; runs are numbered from 1."""

    name: ClassVar[str]
    words: ClassVar[str]

    @abstractmethod
    def command(self, root: str, run: int, training: list[str]) -> list[str]:
        """The argv that starts ``run`` with the training's own argv."""

    def environment(self, root: str, run: int) -> dict[str, str]:
        """Variables that the run gets besides those of every run."""
        return {}

    @abstractmethod
    def latest(self, root: str) -> str | None:
        """The save that a run would resume from if it began now."""

    @abstractmethod
    def made(self, root: str, log: str, run: int) -> list[int]:
        """The steps of the saves of ``run`` that the design has put where its successor looks, rising."""


class OneFolder(Design):
    """Every run writes into one folder; the highest number wins, and rotation deletes the others."""

    name = "one folder"
    words = "one folder, the highest number wins, rotation deletes the others (Hugging Face's Trainer)"

    def command(self, root: str, run: int, training: list[str]) -> list[str]:
        return [*training, "--output_dir", root, "--resume_from_checkpoint", "last"]

    def latest(self, root: str) -> str | None:
        saves = train.saves_of(root)
        return saves[-1][1] if saves else None

    def made(self, root: str, log: str, run: int) -> list[int]:
        return logged(log, run, "saved")


class Pointer(Design):
    """A folder for each run, and a pointer file that is checked, then renamed into place."""

    name = "pointer"
    words = "a folder for each run, and a pointer that is checked, then renamed into place"

    def command(self, root: str, run: int, training: list[str]) -> list[str]:
        return [sys.executable, pointer.__file__, root, str(run), "--", *training, "--save_total_limit", "0"]

    def latest(self, root: str) -> str | None:
        return pointer.get(os.path.join(root, "latest"))

    def made(self, root: str, log: str, run: int) -> list[int]:
        text = pointer.get(os.path.join(root, f"pointed-{run}")) or ""
        return [int(line) for line in text.rpartition("\n")[0].split()]


class Ours(Design):
    """slurm-dispatch: a folder for each execution, kept saves, publications in the order of their epochs."""

    name = "slurm-dispatch"
    words = "slurm-dispatch: a folder for each execution, kept saves, publications ordered by epoch"

    def command(self, root: str, run: int, training: list[str]) -> list[str]:
        own = ["--done", train.MARKER, "--interval", "0.05", "--"]
        words = ["--output_dir", "{dir}", "{resume:--resume_from_checkpoint}"]
        return [sys.executable, "-c", _WATCH, *own, *training, *words]

    def environment(self, root: str, run: int) -> dict[str, str]:
        return {
            "DISPATCH_JOB": "trial",
            "DISPATCH_EPOCH": str(epoch(run)),
            "DISPATCH_CHECKPOINT": root,
        }

    def latest(self, root: str) -> str | None:
        asked = subprocess.run(
            [sys.executable, "-c", _DISPATCH, "latest", "--root", root],
            capture_output=True, text=True, timeout=DEADLINE_S, check=False,
        )
        if asked.returncode == 66:
            return None
        assert asked.returncode == 0, f"dispatch latest ended with {asked.returncode}: {asked.stderr}"
        return asked.stdout.removesuffix("\n")

    def made(self, root: str, log: str, run: int) -> list[int]:
        try:
            names = sorted(os.listdir(os.path.join(root, "pub")))
        except FileNotFoundError:
            return []
        return [parse_name(name).step for name in names if name.startswith(f"{epoch(run):020d}-")]


DESIGNS: tuple[Design, ...] = (OneFolder(), Pointer(), Ours())
RIVALS = DESIGNS[:2]


def epoch(run: int) -> int:
    """The epoch of the execution that a fresh submission ``run`` makes."""
    return run * 10**6


def logged(log: str, run: int, what: str) -> list[int]:
    """The steps in the whole lines of one kind of a run's log, which may not be there yet."""
    text = pointer.get(os.path.join(log, train.log_name(f"run{run}", 0))) or ""
    lines = [json.loads(line) for line in text.rpartition("\n")[0].split("\n") if f'"what": "{what}"' in line]
    return [line["step"] for line in lines]
