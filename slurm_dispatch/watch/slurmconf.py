"""What the helper asks of Slurm from inside the job: its state, its steps, its end; and the signals for its steps.

Every answer may be missing: "no answer" is ``None`` and never an empty answer.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

from slurm_dispatch.watch.apart import run_command

if TYPE_CHECKING:
    from collections.abc import Mapping

DEADLINE_S = 5.0
"""For one command of Slurm's: KillWait is 30 s by default and 10 s is usual, and a step must be told in time."""
_STEP = re.compile(r"[0-9]+(?:_[0-9]+)?(?:\+[0-9]+)?\.[0-9]+(?:\+[0-9]+)?\Z")
_END = re.compile(r"(?:^|\s)EndTime=(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\s|$)")


def state(job: str) -> str | None:
    """The job's state as squeue's text has it (``RUNNING``, ``COMPLETING``, ...); ``None`` without an answer."""
    answer = run_command(["squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%T"], DEADLINE_S)
    if answer is None or answer[0] != 0:
        return None
    words = answer[1].split()
    return words[0] if words else None


def steps(job: str, own: str | None = None) -> list[str] | None:
    """The job's steps that srun started, as scancel takes them, without step ``own``; ``None`` without an answer."""
    answer = run_command(["squeue", "--noheader", "--steps", f"--jobs={job}", "--format=%i"], DEADLINE_S)
    if answer is None or answer[0] != 0:
        return None
    found = [word for word in answer[1].split() if _STEP.match(word)]
    return [step for step in found if step.rpartition(".")[2] != own]


def signal_step(step: str, name: str) -> bool:
    """Send a signal to one step. Always with the step: without one, KILL would cancel the whole job."""
    if not _STEP.match(step):
        return False
    answer = run_command(["scancel", f"--signal={name}", step], DEADLINE_S)
    return answer is not None and answer[0] == 0


def environment_end_time(environment: Mapping[str, str]) -> float | None:
    """``SLURM_JOB_END_TIME``, if it is a time."""
    text = environment.get("SLURM_JOB_END_TIME", "")
    return float(text) if text.isascii() and text.isdigit() and 0 < len(text) <= 11 and int(text) > 0 else None


def asked_end_time(job: str) -> float | None:
    """EndTime of ``scontrol show job``, which is local time."""
    answer = run_command(["scontrol", "--oneliner", "show", "job", job], DEADLINE_S)
    if answer is None or answer[0] != 0:
        return None
    match = _END.search(answer[1])
    if match is None:
        return None
    try:
        return time.mktime(time.strptime(match[1], "%Y-%m-%dT%H:%M:%S"))
    except (ValueError, OverflowError):
        return None
