"""The trial with the real ``transformers.Trainer`` on the real cluster: run 1 traps SIGTERM and goes on saving.

    run 1  ..save..save..| told to end, is stalled in half of the trials .. goes on, saves beside run 2 ..|killed
    run 2                |submitted at once, resumes ......save......save............................... |killed

Both designs run the same program with ``save_total_limit=1``: in one folder that both share, as a job script without
slurm-dispatch does, and through ``dispatch-watch`` with ``{dir}`` and ``{resume:...}``. Then a third run would load
what the design calls the last save. It must be whole, of run 1 up to a save not before the last one that there was
when run 2 was submitted, and of run 2 up to a save not before its last one; anything else is a loss, and so is a run
2 that could not go on.
"""

from __future__ import annotations

import json
import secrets
import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from demo.mainjob import MARKER, MainJob
from docker.rig import ClusterError
from tests.trials.trial import SAVE_STEPS, STEP_S, Lost, Schedule

if TYPE_CHECKING:
    from collections.abc import Callable

    from demo.witness import Account, Execution
    from docker.rig import Cluster

PROGRAM = "/src/tests/trials/transformers_run.py"
PYTHON = "/src/.venv-savers/on-node"
STEP_TIME_S = 0.1
SERVER = "/tmp/transformers-run.sock"
NODES = ("c1", "c2")
"""Where the trials' jobs run: the libraries are loaded once on each."""
WAIT_S = 300.0
"""How long a step of a trial may take."""
SLOWER = 2 * STEP_TIME_S / STEP_S
"""A save is made so much more seldom than in ``trial.py``, whose schedules are used."""
SCRIPT = """#!/bin/sh
#SBATCH --job-name={name} --partition=low --exclude=c3 --ntasks=1 --output={folder}/out-%j
{directives}
exec {watch}srun python3 {program} --by {server} --log_dir {logs} --stop-file {folder}/stop \\
    --step-time {step_time} --save_steps {save_steps} {words}
"""


def load(cluster: Cluster, user: str = "ada") -> None:
    """Load the libraries on the nodes; until the cluster's next reset."""
    for node in NODES:
        serve = f"setsid {PYTHON} {PROGRAM} --serve {SERVER}"
        cluster.sh(node, f"rm -f {SERVER}*; {serve} >/tmp/transformers-run.said 2>&1 &", user=user)
    for node in NODES:

        def loaded(node: str = node) -> bool:
            return cluster.run(node, ["test", "-S", SERVER], check=False).status == 0

        try:
            cluster.wait_until(loaded, WAIT_S, f"the libraries to be loaded on {node}")
        except ClusterError as error:
            said = cluster.sh(node, "tail -n 20 /tmp/transformers-run.said")
            raise ClusterError(f"{error}\nthe server said: {said}") from error


class OnCluster(ABC):
    """One trial's job in one design; runs are numbered from 1."""

    name: ClassVar[str]
    words: ClassVar[str]

    def __init__(self, cluster: Cluster) -> None:
        self.job = MainJob(cluster, f"{type(self).__name__.lower()}-{secrets.token_hex(3)}")
        self.cluster = cluster

    def script(self, directives: str, watch: str, words: str) -> str:
        job = self.job
        return SCRIPT.format(
            name=job.name, folder=job.folder, directives=directives, watch=watch, server=SERVER,
            program=PROGRAM, logs=job.logs, step_time=STEP_TIME_S, save_steps=SAVE_STEPS, words=words,
        )

    @abstractmethod
    def start(self) -> None:
        """Submit run 1."""

    @abstractmethod
    def replace(self, old: Execution) -> None:
        """Cancel run 1's job and have run 2 submitted at once."""

    @abstractmethod
    def made(self, known: Account, run: Execution) -> list[int]:
        """The steps of the saves of a run that are where its successor looks, rising."""

    @abstractmethod
    def last(self) -> dict[str, Any]:
        """What a run would resume from if it began now, as ``transformers_run.py --tell`` says it."""

    def known(self) -> Account:
        return self.job.account()

    def tell(self, *words: str) -> dict[str, Any]:
        argv = ["python3", PROGRAM, *words]
        return dict(json.loads(self.cluster.run("login", argv, user=self.job.user).stdout))

    def signal(self, run: Execution, name: str) -> None:
        self.cluster.run(run.host, ["kill", f"-{name}", str(run.start["pid"])], check=False)

    def end(self) -> None:
        """End every process of the trial."""
        self.job.stop()
        try:
            for run in self.known().executions:
                self.signal(run, "CONT")
                self.signal(run, "KILL")
        finally:
            self.cluster.run("ctl", ["scancel", "--name", self.job.name], check=False)


class OneFolder(OnCluster):
    """Both jobs have one folder; ``get_last_checkpoint`` decides, and each run keeps one save there."""

    name = "one folder"
    words = "one folder for both jobs, `get_last_checkpoint`, `save_total_limit=1`"

    def start(self) -> None:
        self.cluster.run("login", ["mkdir", "-p", self.job.root, self.job.logs], user=self.job.user)
        self._submit(1)

    def _submit(self, number: int) -> None:
        words = f"--branch {number} --output_dir {self.job.root} --resume_from_checkpoint last"
        self.cluster.submit(self.job.user, self.script("", "", words))

    def replace(self, old: Execution) -> None:
        self.cluster.run("ctl", ["scancel", old.slurm_id])
        self._submit(2)

    def made(self, known: Account, run: Execution) -> list[int]:
        return [line["step"] for line in run.of("saved")]

    def last(self) -> dict[str, Any]:
        return self.tell("--tell", "last", "--output_dir", self.job.root)


class Ours(OnCluster):
    """slurm-dispatch: the same program, with ``dispatch-watch`` in front of it."""

    name = "slurm-dispatch"
    words = "slurm-dispatch: `dispatch-watch` in front, `{dir}` and `{resume:--resume_from_checkpoint}`"

    def start(self) -> None:
        directives = f"#DISPATCH --checkpoint {self.job.root}\n#DISPATCH --on cancelled:resubmit,budget=1"
        watch = f"dispatch-watch --done {MARKER} --interval 0.3 -- "
        self.job.submit_script(self.script(directives, watch, "--output_dir {dir} {resume:--resume_from_checkpoint}"))

    def replace(self, old: Execution) -> None:
        self.cluster.run("ctl", ["scancel", old.slurm_id])

    def made(self, known: Account, run: Execution) -> list[int]:
        return sorted(found.publication.step for found in known.published_by(run.epoch))

    def last(self) -> dict[str, Any]:
        return self.tell("--tell", self.job.latest())


DESIGNS: tuple[type[OnCluster], ...] = (OneFolder, Ours)


class Trial:
    """One trial under way."""

    def __init__(self, design: OnCluster) -> None:
        self.design = design

    def run(self, number: int, known: Account) -> Execution | None:
        """Run ``number``, once it trains."""
        found = [one for one in known.executions if one.of("step")]
        return found[number - 1] if len(found) >= number else None

    def wait(self, what: str, seen: Callable[[Account], bool], *, needs: int) -> None:
        """Wait for something; if run ``needs`` dies meanwhile, that is a loss."""
        design, deadline = self.design, time.monotonic() + WAIT_S
        while True:
            known = design.known()
            if seen(known):
                return
            for run in known.executions[needs - 1 : needs]:
                for line in run.of("died"):
                    raise Lost(f"run {needs} could not go on: {line['error']}")
            if time.monotonic() > deadline:
                raise ClusterError(f"{design.job.name}: {what} did not come\n{design.job.picture()}")
            time.sleep(0.3)

    def made(self, known: Account, number: int) -> list[int]:
        """The saves of run ``number``; none before it trains."""
        run = self.run(number, known)
        return [] if run is None else self.design.made(known, run)

    def wait_made(self, number: int, count: int) -> None:
        what = f"{count} saves of run {number}"
        self.wait(what, lambda known: len(self.made(known, number)) >= count, needs=number)

    def the(self, number: int) -> Execution:
        run = self.run(number, self.design.known())
        assert run is not None
        return run

    def began(self, known: Account) -> bool:
        return self.run(2, known) is not None

    def beside(self, known: Account) -> bool:
        """Whether run 1 has written beside run 2, or has died of it."""
        old, new = self.run(1, known), self.run(2, known)
        assert old is not None
        assert new is not None
        return bool([line for line in old.of("saved", "died") if line["at"] > new.start["at"]])


def judge(told: dict[str, Any], runs: list[str], bounds: list[int]) -> None:
    """Raise :class:`Lost` unless the save is made of what it must be made of.

    :param told: what ``transformers_run.py --tell`` says of it.
    :param runs: the branches of run 1 and run 2.
    :param bounds: the least step at which run 2 may begin, and the least at which the save may be.
    """
    if told["save"] is None:
        raise Lost("no save is left")
    if "broken" in told:
        raise Lost(f"the last save cannot be read: {told['broken']}")
    lineage = [(str(name), int(first)) for name, first in told["lineage"]]
    if [name for name, _ in lineage] != runs:
        raise Lost(f"the last save is made of {lineage}, not of {runs}: the work of a replacement is gone")
    if lineage[1][1] < bounds[0]:
        raise Lost(f"run 2 began at step {lineage[1][1]}, though there was a save of step {bounds[0]}")
    if told["step"] < bounds[1]:
        raise Lost(f"the last save is of step {told['step']}, not {bounds[1]}: the work of a replacement is gone")
    whole = told["rising"] and told["steps"] == told["step"]
    if not whole or told["written_by"] != [int(runs[1]), told["step"]]:
        raise Lost(f"the weights are of {told['written_by']} in a save of {lineage}: saves were mixed")


def run_trial(design: OnCluster, schedule: Schedule) -> str | None:
    """Do one trial; ``None``, or how the design lost."""
    trial = Trial(design)
    try:
        design.start()
        trial.wait_made(1, schedule.saves_before)
        time.sleep(schedule.delay_s * SLOWER)
        known, old = design.known(), trial.the(1)
        if schedule.stalled:
            design.signal(old, "STOP")
        bounds = [design.made(known, old)[-1]]
        design.signal(old, "TERM")  # trapped; a stopped run gets it when it goes on
        design.replace(old)
        trial.wait("run 2 to train", trial.began, needs=2)
        design.signal(old, "CONT")
        trial.wait("run 1 to save beside run 2", trial.beside, needs=2)
        trial.wait_made(2, schedule.saves_meanwhile)
        time.sleep(schedule.beside_s * SLOWER)
        new = trial.the(2)
        bounds.append(design.made(design.known(), new)[-1])
        for run in (new, old):
            design.signal(run, "KILL")
        judge(design.last(), [str(old.epoch), str(new.epoch)], bounds)
    except Lost as lost:
        return str(lost)
    finally:
        design.end()
    return None
