"""The main job: the training of ``train.py``, submitted by a user through ``dispatch sbatch`` to the real cluster."""

from __future__ import annotations

import json
import secrets
import shlex
from typing import TYPE_CHECKING, Any, TypeVar

from demo import promises
from demo.witness import Account, Execution, account
from docker.rig import STATE, ClusterError
from slurm_dispatch.model.identity import find_word

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from docker.rig import Cluster

T = TypeVar("T")

MARKER = "trainer_state.json"
"""``MARKER`` of train.py, which the hosts run: nothing here imports numpy."""
PROGRAM = "/src/demo/train.py"
RULE = "preempted,node_fail,cancelled:resubmit,budget=20"
WAIT_S = 180.0
"""How long a step of a story may take on a slow machine."""
SCRIPT = """#!/bin/sh
{directives}
exec dispatch-watch --done {marker} --interval 0.3 -- \\
    srun python3 {program} --output_dir {{dir}} {{resume:--resume_from_checkpoint}} {training}
"""


class MainJob:
    """One submitted job and everything that can be known of it.

    :param cluster: where it runs.
    :param name: its Slurm name; its folder is ``/scratch/<user>/<name>-<random>``.
    """

    def __init__(self, cluster: Cluster, name: str, *, user: str = "ada") -> None:
        self.cluster = cluster
        self.name = name
        self.user = user
        self.folder = f"/scratch/{user}/{name}-{secrets.token_hex(3)}"
        self.root = f"{self.folder}/root"
        self.logs = f"{self.folder}/log"
        self.stop_file = f"{self.folder}/stop"
        self.first_id = 0
        self.key = ""

    def submit(
        self,
        options: Sequence[str] = ("--ntasks=2",),
        training: Sequence[str] = (),
        *,
        rule: str = RULE,
        step_time_s: float = 0.1,
        save_steps: int = 5,
    ) -> MainJob:
        """Submit it as a user does, from the login host.

        :param options: further options of sbatch.
        :param training: further words of the training's command line.
        """
        words = ["--ignore-term", "--steps", "1000000", "--stop-file", self.stop_file, "--log_dir", self.logs,
                 "--step-time", str(step_time_s), "--save_steps", str(save_steps), *training]
        directives = "\n".join([
            f"#SBATCH --job-name={self.name}", "#SBATCH --partition=low", f"#SBATCH --output={self.folder}/out",
            f"#DISPATCH --checkpoint {self.root}", f"#DISPATCH --on {rule}",
        ])
        script = SCRIPT.format(directives=directives, marker=MARKER, program=PROGRAM, training=shlex.join(words))
        return self.submit_script(script, options)

    def submit_script(self, script: str, options: Sequence[str] = ()) -> MainJob:
        """Submit a script as a user does, from the login host; it may use :attr:`root` and :attr:`logs`."""
        self.cluster.write(f"{self.folder}/train.sh", script, user=self.user)
        self.cluster.run("login", ["mkdir", "-p", self.root, self.logs], user=self.user)
        argv = ["dispatch", "sbatch", *options, f"{self.folder}/train.sh"]
        done = self.cluster.run("login", argv, user=self.user, cwd=self.folder)
        self.first_id = int(done.stdout.removeprefix("Submitted batch job ").strip())
        job = self.cluster.job(self.first_id)
        word = find_word(job.comment) if job else None
        if word is None:
            raise ClusterError(f"job {self.first_id} has no identity word; dispatch sbatch said: {done.stderr}")
        self.key = word.job
        return self

    # What is known of it.

    def account(self) -> Account:
        """What the trainings logged and what is published."""
        read = f"cd {self.logs} && for log in *.jsonl; do cat -- $log && printf '\\000'; done 2>/dev/null; :"
        logs = self.cluster.sh("login", read, user=self.user)
        listing = f"find {self.root}/pub -mindepth 1 -printf '%T@ %f\\n' 2>/dev/null; :"
        return account(logs, self.cluster.sh("login", listing, user=self.user))

    def facts(self) -> list[dict[str, Any]]:
        """The job's record, fact by fact."""
        text = self.cluster.sh("login", f"cat {STATE}/jobs/{self.key}/facts/[0-9]* 2>/dev/null; :")
        return [json.loads(line) for line in text.split("\n") if line.endswith("}")]

    def facts_of(self, *kinds: str) -> list[dict[str, Any]]:
        return [fact for fact in self.facts() if fact["kind"] in kinds]

    def latest(self) -> str:
        """What ``dispatch latest`` prints."""
        argv = ["dispatch", "latest", "--root", self.root]
        return self.cluster.run("login", argv, user=self.user).stdout.removesuffix("\n")

    def state(self, save: str) -> Any:
        """The marker of a save."""
        return json.loads(self.cluster.run("login", ["cat", "--", f"{save}/{MARKER}"], user=self.user).stdout)

    def replay(self, save: str) -> list[str]:
        """The losses of a run without faults that does the steps of the save, in a process on the login host."""
        argv = ["python3", PROGRAM, "--replay", f"{save}/{MARKER}"]
        return list(json.loads(self.cluster.run("login", argv, user=self.user, check=False).stdout)["losses"])

    # Waiting for it.

    def wait(self, what: str, predicate: Callable[[], T | None], deadline_s: float = WAIT_S) -> T:
        """Wait for something; a failure shows everything that is known of the job."""
        try:
            return self.cluster.wait_until(predicate, deadline_s, f"{self.name}: {what}", every_s=0.25)
        except ClusterError as error:
            raise ClusterError(f"{error}\n{self.picture()}") from error

    def wait_execution(self, number: int, deadline_s: float = WAIT_S) -> Execution:
        """The ``number``-th execution (from 1), as soon as it trains."""

        def found() -> Execution | None:
            executions = [one for one in self.account().executions if one.of("step")]
            return executions[number - 1] if len(executions) >= number else None

        return self.wait(f"execution {number} to train", found, deadline_s)

    def wait_published(self, execution: Execution, count: int) -> None:
        """Wait until an execution has published so many saves."""
        self.wait(
            f"{count} publications of epoch {execution.epoch}",
            lambda: len(self.account().published_by(execution.epoch)) >= count,
        )

    def wait_overlap(self, old: Execution, new: Execution) -> None:
        """Wait until the old execution has written beside the new one, which has published too."""

        def seen() -> bool:
            known = self.account()
            before, after = known.execution(old.epoch), known.execution(new.epoch)
            if before is None or after is None or not known.published_by(new.epoch):
                return False
            return promises.overlap(before, after) > 0

        self.wait(f"epoch {old.epoch} to write beside epoch {new.epoch}", seen)

    def publish_late(self, old: Execution, new: Execution) -> int:
        """Publish a whole save of an old execution by hand, under its own epoch and with a step above all others.

        It is a copy of one of the new execution's, so its marker says whose it is. The new execution may thin it
        away before it is published; then it is made again. Returns its step.
        """
        step = 10**9
        home, other = f"{self.root}/exec/{old.attempt}", f"{self.root}/exec/{new.attempt}"
        script = (
            f"save={home}/checkpoint-{step} && rm -rf $save && kept=$(ls -d {other}/kept/checkpoint-* | tail -n 1) &&"
            f" cp -r $kept $save && exec dispatch publish --root {self.root} --epoch {old.epoch}"
            f" --attempt {old.attempt} --step {step} $save"
        )

        def done() -> bool:
            return self.cluster.run("login", ["sh", "-c", script], user=self.user, check=False).status == 0

        self.wait(f"a late publication of epoch {old.epoch}", done)
        return step

    def stop(self) -> None:
        """Tell every process of the training, of whatever execution, to end with a save."""
        self.cluster.run("login", ["touch", self.stop_file], user=self.user)

    def finish(self) -> dict[str, Any]:
        """Tell the training to end with a save; the record's last fact, once the job is closed."""
        self.stop()
        return self.wait("the record to close", lambda: next(iter(self.facts_of("closed")), None))

    def broken(self) -> list[str]:
        """Every promise that was broken, in words, after :meth:`finish`."""
        known = self.account()
        save = self.latest()
        state = self.state(save)
        found = promises.epochs_rise(known) + promises.ranks_agree(known)
        for execution in known.executions:
            found += promises.resumed_from_last(known, execution)
        found += promises.lineage_is_right(known, state, self.replay(save))
        return found + promises.old_runs_changed_nothing(known, state, save)

    def picture(self) -> str:
        """Everything that explains a failure: record, output, ends of the logs, publications."""
        show = f"tail -n 60 {self.folder}/out; ls -l {self.root}/pub | tail -n 20; :"
        out = self.cluster.sh("login", show)
        logs = self.cluster.sh("login", f"tail -n 4 {self.logs}/*.jsonl; :")
        facts = "\n".join(json.dumps(fact) for fact in self.facts())
        return f"-- record of {self.key}\n{facts}\n-- output and publications\n{out}\n-- logs\n{logs}"
