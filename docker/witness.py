"""What one training did, from the logs that ``demo/train.py`` leaves: which runs there were, from what each went
on, how long two of them wrote side by side, and whether the lineage of a save is the one that it must be."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from docker.rig import Cluster

TRAIN = "/src/demo/train.py"
MARKER = "trainer_state.json"
REPLAY_S = 300.0


@dataclass(frozen=True, slots=True)
class Run:
    """One rank of one execution, as its own log tells it. Times are Unix seconds, epochs decimal texts.

    :param resume: the path that it was told to go on from, or ``None``.
    :param start_step: the step it began after: 0, or that of the save.
    :param variables: the ``DISPATCH_`` variables that it had.
    :param steps: when each step was done, in order.
    :param losses: the loss of each of those steps, the exact hexadecimal text.
    :param saves: when each save was whole, by its step.
    :param removed: the names of the saves that its rotation deleted.
    :param signals: when it got a SIGTERM.
    :param end: ``end``, ``died``, or ``None`` while it lives or where it was killed.
    :param last_at: when it wrote its last line.
    """

    attempt: str
    epoch: str
    branch: str
    rank: int
    host: str
    pid: int
    slurm_job_id: str
    start_at: float
    start_step: int
    resume: str | None
    variables: dict[str, str]
    lineage: tuple[tuple[str, int], ...]
    steps: dict[int, float] = field(repr=False)
    losses: dict[int, str] = field(repr=False)
    saves: dict[int, float] = field(repr=False)
    removed: tuple[str, ...] = field(repr=False)
    signals: tuple[float, ...]
    end: str | None
    error: str | None
    last_at: float

    @property
    def last_step(self) -> int:
        """The last step that it did; the step it began after if none."""
        return max(self.steps, default=self.start_step)

    def steps_after(self, at: float) -> list[int]:
        """The steps that it did after a time."""
        return [step for step, when in self.steps.items() if when > at]

    def saves_after(self, at: float) -> list[int]:
        """The saves that it finished after a time."""
        return [step for step, when in self.saves.items() if when > at]


def parse_run(text: str) -> Run | None:
    """A run from its log; ``None`` if it has not begun. A last line that is not whole yet is passed over."""
    lines = [json.loads(line) for line in text.rpartition("\n")[0].split("\n") if line]
    if not lines:
        return None
    first = lines[0]
    start = next((line for line in lines if line["what"] == "start"), None)
    of: dict[str, list[dict[str, Any]]] = {}
    for line in lines:
        of.setdefault(line["what"], []).append(line)
    died = of.get("died", [])
    begun = start or first
    return Run(
        attempt=first["attempt"], epoch=first["epoch"], branch=first["branch"], rank=first["rank"],
        host=first["host"], pid=first["pid"], slurm_job_id=first["slurm_job_id"], start_at=begun["at"],
        start_step=begun.get("step", 0), resume=begun.get("resume"), variables=begun.get("variables", {}),
        lineage=tuple((str(name), int(step)) for name, step in begun.get("lineage", [])),
        steps={line["step"]: line["at"] for line in of.get("step", [])},
        losses={line["step"]: line["loss"] for line in of.get("step", [])},
        saves={line["step"]: line["at"] for line in of.get("saved", [])},
        removed=tuple(name for line in of.get("saved", []) for name in line["gone"]),
        signals=tuple(line["at"] for line in of.get("signal", [])),
        end="died" if died else "end" if of.get("end") else None,
        error=died[0]["error"] if died else None,
        last_at=lines[-1]["at"],
    )


class Training:
    """The runs of one training.

    :param log_dir: the ``--log_dir`` that all of its runs were given, on the cluster's shared filesystem.
    """

    def __init__(self, cluster: Cluster, log_dir: str, *, host: str = "login") -> None:
        self._cluster = cluster
        self._host = host
        self.log_dir = log_dir

    def all_runs(self) -> list[Run]:
        """Every rank of every execution that has begun, in the order of their starts."""
        # All logs in one command, with a record separator after each.
        script = 'for f in "$1"/*.jsonl; do [ -e "$f" ] && cat "$f" && printf "\\n\\036\\n"; done; :'
        text = self._cluster.run(self._host, ["sh", "-c", script, "sh", self.log_dir]).stdout
        runs = [parse_run(part) for part in text.split("\n\x1e\n")]
        return sorted((run for run in runs if run is not None), key=lambda run: (run.start_at, run.rank))

    def runs(self) -> list[Run]:
        """Rank 0 of every execution that has begun, in the order of their starts."""
        return [run for run in self.all_runs() if run.rank == 0]

    def run(self, attempt: str) -> Run:
        """Rank 0 of one execution, as it is now."""
        return next(run for run in self.runs() if run.attempt == attempt)

    def wait_runs(self, number: int, deadline_s: float) -> list[Run]:
        """Wait until that many executions have begun; all of them."""

        def enough() -> list[Run] | None:
            found = self.runs()
            return found if len(found) >= number else None

        return self._cluster.wait_until(enough, deadline_s, f"run {number} of the training in {self.log_dir}")

    def wait_step(self, attempt: str, step: int, deadline_s: float) -> Run:
        """Wait until a run has done a step; the run as it was then."""

        def done() -> Run | None:
            run = self.run(attempt)
            return run if run.last_step >= step else None

        return self._cluster.wait_until(done, deadline_s, f"step {step} of {attempt} in {self.log_dir}")

    def wait_saves(self, attempt: str, number: int, deadline_s: float) -> Run:
        """Wait until a run has finished that many saves; the run as it was then."""

        def done() -> Run | None:
            run = self.run(attempt)
            return run if len(run.saves) >= number else None

        return self._cluster.wait_until(done, deadline_s, f"{number} saves of {attempt} in {self.log_dir}")

    def wait_end(self, attempt: str, deadline_s: float) -> Run:
        """Wait until a run has done its last step, or died by itself; the run as it was then."""

        def done() -> Run | None:
            run = self.run(attempt)
            return run if run.end is not None else None

        return self._cluster.wait_until(done, deadline_s, f"the end of {attempt} in {self.log_dir}")

    def replay(self, save: str) -> Replay:
        """Do the steps of a save's lineage again, in one process without a fault, and compare every loss."""
        argv = ["python3", TRAIN, "--replay", f"{save}/{MARKER}"]
        done = self._cluster.run(self._host, argv, check=False, timeout_s=REPLAY_S)
        if done.status not in (0, 1) or not done.stdout.startswith("{"):
            raise AssertionError(f"the replay of {save} ended with {done.status}: {done.stderr}")
        found = json.loads(done.stdout)
        lineage = tuple((str(name), int(step)) for name, step in found["lineage"])
        return Replay(found["equal"], lineage, tuple(found["losses"]))


@dataclass(frozen=True, slots=True)
class Replay:
    """A lineage done again.

    :param equal: whether the save has exactly the losses that a run without faults has.
    :param lineage: which branch began after which step, in order.
    """

    equal: bool
    lineage: tuple[tuple[str, int], ...]
    losses: tuple[str, ...] = field(repr=False)


def overlap_s(old: Run, new: Run) -> float:
    """For how long the old run still did steps after the new one had begun; 0 or less if it did not."""
    return max(old.steps.values(), default=old.start_at) - new.start_at
