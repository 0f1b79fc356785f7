"""Each outcome made for real, through ``dispatch sbatch``, and the word that the record has for it.

All jobs run side by side: what takes time is Slurm's shortest time limit, a minute, and its KillWait. Meanwhile
slurmdbd is away. Preemption, a node that is lost and cancels are in ``test_tick.py``.
"""

from __future__ import annotations

import json
import re
import secrets
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest

from docker.rig import PATIENCE_S, STATE
from tests.assets.ends import BOOT_FAIL

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from docker.rig import Cluster

LONG_S = 3 * PATIENCE_S
CONFINED, REFUSING, PLAIN = "c3", "c2", "c1"
"""Nodes: jobs have little memory, the site's prolog fails, and one with nothing about it."""
PROLOG = "/etc/slurm/dispatch/prolog"
STOP = "failed,timeout,out_of_memory,boot_fail,deadline,launch_failed,store_error,not_resumed,cancelled:stop"
LIVE = "exec sleep 100000"
DEAF = "trap '' TERM\nwhile :; do sleep 1; done"
# What slurmstepd tells slurmctld of a job in which the kernel ended a process for its memory, told by root: where the
# machine has no control groups of version 1 to make it happen.
OOM = """
import ctypes, glob, sys
slurm = ctypes.CDLL(glob.glob("/usr/lib/*/slurm-wlm/libslurmfull.so")[0], ctypes.RTLD_GLOBAL)
slurm.slurm_init(None)
sys.exit(slurm.slurm_complete_job(ctypes.c_uint32(int(sys.argv[1])), ctypes.c_uint32(253)))
"""
EAT = "python3 -c 'x = bytearray(300 << 20); import time; time.sleep(100000)'"
WATCH = "dispatch-watch --interval 1 --done done"
# A whole save appears, and nothing can be published any more.
NO_STORE = f"""{WATCH} -- sh -c '
cd "$DISPATCH_CHECKPOINT" && rm -rf pub && echo "no folder" >pub
mkdir "$1/checkpoint-1" && echo whole >"$1/checkpoint-1/done"
exec sleep 3' sh {{dir}}
"""
# The second execution is given step 100, and begins at 5 nevertheless.
FORGETFUL = f"""{WATCH} --grace 2 -- sh -c '
step=100
test -z "${{DISPATCH_RESUME-}}" || step=5
mkdir "$1/checkpoint-$step" && echo whole >"$1/checkpoint-$step/done"
test "$step" = 5 || exit 85
exec sleep 100000' sh {{dir}}
"""


@dataclass(frozen=True)
class Case:
    """One job.

    :param outcomes: the outcome of each execution, in order.
    :param source: what the last ``end`` must stand on, in part.
    """

    name: str
    script: str
    outcomes: tuple[str, ...]
    options: tuple[str, ...] = ()
    node: str = PLAIN
    evidence: tuple[tuple[str, Any], ...] = ()
    rules: tuple[str, ...] = (STOP,)


CASES = (
    Case("completed", "exit 0", ("completed",), evidence=(("state", "COMPLETED"), ("exit_code", 0))),
    Case("failed", "exit 7", ("failed",), evidence=(("state", "FAILED"), ("exit_code", 7), ("signal", 0))),
    Case("killed", "kill -9 $$", ("failed",), evidence=(("state", "FAILED"), ("signal", 9))),
    Case("failed_unnoticed", f"{WATCH} -- sh -c 'exit 3'\nexit 0", ("failed",), evidence=(("state", "COMPLETED"),)),
    Case("unfinished", "exit 85", ("unfinished",), rules=("unfinished:stop",), evidence=(("exit_code", 85),)),
    Case("unfinished_unnoticed", f"{WATCH} -- sh -c 'exit 85'\nexit 0", ("unfinished",), rules=("unfinished:stop",),
         evidence=(("state", "COMPLETED"),)),
    Case("timeout", DEAF, ("timeout",), ("--time=1",),
         evidence=(("state", "TIMEOUT"), ("limits", {"time_s": 60.0}))),
    Case("out_of_memory", EAT, ("out_of_memory",), node=CONFINED, evidence=(("state", "OUT_OF_MEMORY"),)),
    Case("out_of_memory_step", f"exec {WATCH} -- srun {EAT}", ("out_of_memory",), node=CONFINED),
    Case("boot_fail", LIVE, ("boot_fail",), evidence=(("state", "BOOT_FAIL"),)),
    Case("site_prolog", LIVE, ("launch_failed",), node=REFUSING, evidence=(("state", "FAILED"),)),
    Case("never_started", LIVE, ("launch_failed",), ("--output=/nonexistent/out",),
         evidence=(("state", "FAILED"), ("signal", 53))),
    Case("store_error", NO_STORE, ("store_error",), evidence=(("state", "FAILED"), ("exit_code", 74))),
    Case("not_resumed", FORGETFUL, ("unfinished", "not_resumed"), rules=("unfinished:resubmit", STOP),
         evidence=(("exit_code", 80),)),
    Case("deadline", LIVE, ("deadline",), ("--time=1", "--deadline=now+65seconds", "--hold"),
         evidence=(("state", "DEADLINE"),)),
)  # fmt: skip
ONCE = "test ! -e again || exit 0\ntouch again\nexit {status}"
"""Ends with a status the first time and with 0 the second."""
UNACCOUNTED = (
    Case("again_failed", ONCE.format(status=3), ("failed", "completed"), rules=("failed:resubmit",)),
    Case("again_unfinished", ONCE.format(status=85), ("unfinished", "completed"), rules=("unfinished:resubmit",)),
    Case("cancelled", LIVE, ("cancelled",), rules=()),
)


class Records:
    """Jobs of ada's, and what their records say."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.folder = f"/scratch/ada/outcomes-{secrets.token_hex(4)}"
        self.keys: dict[str, str] = {}

    def submit(self, case: Case) -> None:
        """Submit the job of a case."""
        folder = f"{self.folder}/{case.name}"
        self.cluster.write(f"{folder}/job.sh", f"#!/bin/sh\n{case.script}\n", user="ada")
        rules = [word for rule in case.rules for word in ("--on", rule)]
        own = case.options
        if case.name == "deadline" and self.cluster.release == "bookworm":
            # Slurm 22.05 keeps a held job beyond its deadline; this one waits for those before it to leave the node.
            own = (*own[:-1], "--exclusive")
        options = ["--checkpoint", f"{folder}/root", *rules, "--output=out", f"--nodelist={case.node}"]
        argv = ["dispatch", "sbatch", *options, *own, "job.sh"]
        said = self.cluster.run("login", argv, user="ada", cwd=folder, timeout_s=LONG_S).stderr
        found = re.search(r"\bjob ([a-z0-9]{12})\b", said)
        assert found, said
        self.keys[case.name] = found[1]

    def submit_all(self, cases: Sequence[Case]) -> None:
        """Submit them, a few at a time."""
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(self.submit, cases))

    def facts(self, name: str) -> list[dict[str, Any]]:
        """The facts of a case's job, in order."""
        text = self.cluster.sh("ctl", f"cd {STATE}/jobs/{self.keys[name]}/facts && cat $(ls | sort)")
        return [json.loads(line) for line in text.splitlines()]

    def of(self, name: str, kind: str) -> list[dict[str, Any]]:
        """Those of a kind."""
        return [fact for fact in self.facts(name) if fact["kind"] == kind]

    def wait(self, name: str, kind: str, count: int = 1) -> dict[str, Any]:
        """Wait until there are so many of a kind; the last."""

        def there() -> dict[str, Any] | None:
            found = self.of(name, kind)
            return found[-1] if len(found) >= count else None

        return self.cluster.wait_until(there, LONG_S, f"{count} facts {kind} of {name}", every_s=0.5)

    def slurm_id(self, name: str) -> int:
        """The Slurm job id of the first submission."""
        return int(self.of(name, "submitted")[0]["slurm_job_id"])


@pytest.fixture(scope="module")
def records(cluster: Cluster) -> Iterator[Records]:
    """All cases, submitted; the nodes are put in order again after them."""
    records = Records(cluster)
    prolog = cluster.read(PROLOG, REFUSING)
    confine = ["sh", "/src/docker/node", "confine"]
    confined = cluster.run(CONFINED, confine, check=False, timeout_s=LONG_S).status == 0
    try:
        cluster.write(PROLOG, "#!/bin/sh\nexit 1\n", host=REFUSING, mode="755")
        records.submit_all(CASES)
        told = {"boot_fail": BOOT_FAIL, **({} if confined else {"out_of_memory": OOM, "out_of_memory_step": OOM})}
        for name, program in told.items():
            records.wait(name, "started")
            job = records.slurm_id(name)
            cluster.wait_job(job, ["RUNNING"])
            cluster.run("ctl", ["python3", "-c", program, str(job)], check=False)
        yield records
    finally:
        cluster.run("ctl", ["scancel", "-u", "ada"], check=False)
        cluster.write(PROLOG, prolog, host=REFUSING, mode="755")
        # slurmd tells of the failed Prolog again and again, and its node would be drained each time.
        cluster.run(REFUSING, ["sh", "/src/docker/node", "kill"], check=False)
        cluster.run(REFUSING, ["sh", "/src/docker/node", "start"])
        if confined:
            cluster.run(CONFINED, ["sh", "/src/docker/node", "free"], timeout_s=LONG_S)
        cluster.reset()


def test_slurmdbd_is_away_all_the_time(cluster: Cluster, records: Records) -> None:
    """What slurmctld tells is enough; who cancelled only accounting knows, and until it does nobody guesses."""
    source = "json" if cluster.json else "text"
    cluster.sh("ctl", "while pgrep -x slurmdbd >/dev/null; do pkill -x slurmdbd; sleep 0.1; done")
    try:
        records.submit_all(UNACCOUNTED)
        records.wait("cancelled", "started")
        cluster.run("login", ["scancel", str(records.slurm_id("cancelled"))], user="ada")
        cluster.wait_job(records.slurm_id("cancelled"), ["CANCELLED"])
        for case in UNACCOUNTED[:2]:
            records.wait(case.name, "closed")
            assert tuple(end["outcome"] for end in records.of(case.name, "end")) == case.outcomes
            assert {end["evidence"]["source"] for end in records.of(case.name, "end")} == {source}
            assert len(records.of(case.name, "submitted")) == 2
        for _ in range(2):
            cluster.run("ctl", ["dispatch", "tick"], timeout_s=LONG_S)
        assert records.of("cancelled", "end") == []
    finally:
        cluster.sh("ctl", "runuser -u slurm -- slurmdbd", timeout_s=LONG_S)
    records.wait("cancelled", "closed")
    (end,) = records.of("cancelled", "end")
    assert (end["outcome"], end["evidence"]["by_uid"]) == ("cancelled", 2001)


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_the_end_has_the_right_word(cluster: Cluster, records: Records, case: Case) -> None:
    if case.name == "out_of_memory_step" and not cluster.json:
        case = replace(case, outcomes=("failed",))  # text does not tell the ends of steps
    records.wait(case.name, "end", len(case.outcomes))
    records.wait(case.name, "closed")
    ends = records.of(case.name, "end")
    assert tuple(end["outcome"] for end in ends) == case.outcomes, ends
    evidence = ends[-1]["evidence"]
    assert {name: evidence[name] for name, _ in case.evidence} == dict(case.evidence)
    assert len(records.of(case.name, "submitted")) == len(case.outcomes)
