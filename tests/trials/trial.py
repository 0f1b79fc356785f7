"""One trial: run 1 trains, is told to end and does not, run 2 replaces it, and run 3 replaces run 2.

    run 1  ..save..save..| told to end, is stalled in half of the trials .. wakes, writes on |killed (or in run 3)
    run 2                |starts at once ......save......save..........................|killed
    run 3                                                                               |save..save..save|killed

At the end the save that a fourth run would get tells which steps it is made of. It must be those of run 1 up
to a save not before the last one that there was when run 2 was started, those of run 2 up to a save not
before its last one that was in place, and those of run 3; and its losses must be bit for bit those of a run
that does these steps in one process without a fault. Anything else is a loss, and so is a run that could not
go on.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from demo import train
from tests.trials.designs import DEADLINE_S, logged

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.trials.designs import Design

STEP_S = 0.02
SAVE_STEPS = 5
MARK = "TRIAL_RUN"
"""The variable by which every process of a run is found."""


class Lost(Exception):
    """The design lost work; the message says how."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """What the seed decides. Seconds; counts of saves."""

    seed: int
    saves_before: int
    delay_s: float
    stalled: bool
    saves_meanwhile: int
    beside_s: float
    outlives: bool

    @classmethod
    def of(cls, seed: int) -> Schedule:
        rng = random.Random(seed)
        return cls(
            seed, rng.randint(2, 5), rng.uniform(0, 2 * STEP_S * SAVE_STEPS), rng.random() < 0.5,
            rng.randint(1, 4), rng.uniform(0, 2 * STEP_S * SAVE_STEPS), rng.random() < 0.5,
        )


@dataclass
class Run:
    """A started run: all processes that carry its mark."""

    number: int
    mark: str
    process: subprocess.Popen[bytes]

    def pids(self) -> list[int]:
        """Every live process of the run, wherever it went."""
        wanted = f"{MARK}={self.mark}".encode()
        found = []
        for name in os.listdir("/proc"):
            if name.isdigit():
                try:
                    with open(f"/proc/{name}/environ", "rb") as file:
                        if wanted in file.read().split(b"\0"):
                            found.append(int(name))
                except OSError:
                    pass  # it ended meanwhile, or is not ours to read
        return found

    def send(self, number: int) -> None:
        for pid in self.pids():
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass

    def kill(self) -> None:
        """End every process of the run, at once."""
        deadline = time.monotonic() + DEADLINE_S
        while self.pids():
            assert time.monotonic() < deadline, f"run {self.number} does not die"
            self.send(signal.SIGKILL)
            self.process.poll()
            time.sleep(0.01)
        self.process.wait(DEADLINE_S)


@dataclass
class Trial:
    """The folders of one trial, and the runs in them."""

    design: Design
    folder: str
    runs: list[Run] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.root, self.log = os.path.join(self.folder, "root"), os.path.join(self.folder, "log")
        os.makedirs(self.root)
        os.makedirs(self.log)

    def start(self) -> Run:
        """Start the next run."""
        number = len(self.runs) + 1
        mark = f"{self.folder}:{number}"
        training = [
            sys.executable, train.__file__, "--log_dir", self.log, "--branch", str(number), "--ignore-term",
            "--steps", "1000000", "--step-time", str(STEP_S), "--save_steps", str(SAVE_STEPS), "--save-time", "0.005",
        ]
        kept = {name: text for name, text in os.environ.items() if not name.startswith(("DISPATCH_", "SLURM_"))}
        environment = {
            **kept, MARK: mark, "DISPATCH_ATTEMPT": f"run{number}", **self.design.environment(self.root, number)
        }
        with open(os.path.join(self.log, f"run{number}.said"), "ab") as said:
            process = subprocess.Popen(
                self.design.command(self.root, number, training),
                env=environment, stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True,
            )
        self.runs.append(Run(number, mark, process))
        return self.runs[-1]

    def made(self, run: Run) -> list[int]:
        """The steps of the saves of ``run`` that the design has put in place, rising."""
        return self.design.made(self.root, self.log, run.number)

    def steps(self, run: Run) -> int:
        """How many steps the run has done."""
        return len(logged(self.log, run.number, "step"))

    def wait(self, what: str, condition: Callable[[], bool], *alive: Run) -> None:
        """Wait until ``condition`` holds; a run of ``alive`` that ends meanwhile is a loss."""
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            for run in alive:
                if run.process.poll() is not None:
                    raise Lost(f"run {run.number} could not go on: {self.last_words(run)}")
            if time.monotonic() > deadline:
                told = f"{self.design.name}: {what} did not come in {DEADLINE_S:.0f} s"
                raise AssertionError(f"{told}\n{self.account()}")
            time.sleep(0.01)

    def last_words(self, run: Run) -> str:
        said = self.said(run).strip().split("\n")[-1]
        return said or f"status {run.process.returncode}"

    def said(self, run: Run) -> str:
        with open(os.path.join(self.log, f"run{run.number}.said"), encoding="utf-8", errors="replace") as file:
            return file.read()

    def account(self) -> str:
        """What every run said, and the ends of the logs, for a message of failure."""
        parts = [f"run {run.number} said: {self.said(run)[-3000:]}" for run in self.runs]
        for name in sorted(os.listdir(self.log)):
            if name.endswith(".jsonl"):
                with open(os.path.join(self.log, name), encoding="ascii") as file:
                    parts.append(f"{name}: ...{file.read()[-1500:]}")
        return "\n".join(parts)

    def end(self) -> None:
        for run in self.runs:
            run.kill()


def step_of(save: str | None) -> int:
    """The step that a save's name gives; 0 for none."""
    return int(save.rsplit("checkpoint-", 1)[1]) if save else 0


def state_of(save: str | None) -> Any:
    """The marker of the last save, which a fourth run would read."""
    if save is None:
        raise Lost("no save is left")
    try:
        return train.read_json(os.path.join(save, train.MARKER))
    except (OSError, ValueError) as error:
        raise Lost(f"the last save cannot be read: {error}") from error


def judge(save: str | None, bounds: list[int]) -> None:
    """Raise :class:`Lost` unless the save is made of what it must be made of.

    :param bounds: for each run but the first, the least step at which its part may begin.
    """
    state = state_of(save)
    lineage = [(str(name), int(first)) for name, first in state["lineage"]]
    names = [name for name, _ in lineage]
    if names != [str(number) for number in range(1, len(bounds) + 2)]:
        raise Lost(f"the last save is made of {lineage}: the work of a replacement is gone")
    for (name, first), bound in zip(lineage[1:], bounds, strict=True):
        if first < bound:
            raise Lost(f"run {name} began at step {first}, though there was a save of step {bound}")
    if train.replay(state, train.CORPUS) != state["log_history"]:
        raise Lost(f"the losses of {lineage} are not those of a run without faults: saves were mixed")


def run_trial(design: Design, folder: str, schedule: Schedule) -> str | None:
    """Do one trial; ``None``, or how the design lost."""
    trial = Trial(design, folder)
    try:
        old = trial.start()
        trial.wait("saves of run 1", lambda: len(trial.made(old)) >= schedule.saves_before, old)
        time.sleep(schedule.delay_s)
        if schedule.stalled:
            old.send(signal.SIGSTOP)
        bounds = [step_of(design.latest(trial.root))]
        old.send(signal.SIGTERM)  # told to end; a stopped process gets it when it goes on
        new = trial.start()
        trial.wait("saves of run 2", lambda: len(trial.made(new)) >= schedule.saves_meanwhile, new)
        overlap(trial, old, schedule.beside_s)
        new.kill()
        bounds.append(trial.made(new)[-1])
        if not schedule.outlives:
            old.kill()
        last = trial.start()
        trial.wait("a save of run 3", lambda: len(trial.made(last)) >= 1, last)
        old.kill()
        made = len(trial.made(last))
        trial.wait("a later save of run 3", lambda: len(trial.made(last)) >= made + 2, last)
        last.kill()
        judge(design.latest(trial.root), bounds)
    except Lost as lost:
        return str(lost)
    finally:
        trial.end()
    return None


def overlap(trial: Trial, old: Run, beside_s: float) -> None:
    """Let the old run write beside its replacement, and see that it does."""
    steps = trial.steps(old)
    old.send(signal.SIGCONT)
    try:
        trial.wait("a step of run 1 beside run 2", lambda: trial.steps(old) > steps, old)
    except Lost:
        return  # it died of its replacement's rotation: it was there, and its end hurts nobody
    time.sleep(beside_s)
