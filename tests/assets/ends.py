"""Every end that a job can have, made for real on a cluster, and what Slurm says of each while it ends and after.

``record.py`` uses this. The cluster must be one of its own: nodes are killed, hooks are replaced by such as fail.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from docker.rig import ClusterError
from slurm_dispatch.slurm.parse import ACCOUNT_FIELDS, queue_format

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from docker.rig import Cluster

NONCE = "<0123456789abcdef>"
WAIT_S = 300.0
ACCOUNTED_S = 15.0
"""How long accounting may take to tell an end; what it says then is what is recorded."""
FOLDER = "/scratch/ada/ends"
HOOKS = "/etc/slurm/dispatch"
LONG = "exec sleep 3000"
DEAF = "trap '' TERM\nwhile :; do sleep 1; done"
"""Lives on until Slurm kills it."""
EATER = "exec python3 -c 'x = bytearray(300 << 20); import time; time.sleep(3000)'"
SETTINGS = """
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=1
JobAcctGatherParams=OverMemoryKill
SelectTypeParameters=CR_CPU_Memory
DefMemPerNode=100
PartitionName=spare Nodes=ALL PriorityTier=1 PreemptMode=CANCEL MaxTime=INFINITE
"""
OVER = frozenset({
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT",
})  # fmt: skip
# Of the JSON of a job what can tell an end, and who and when: the rest is the same for every end.
KEPT = (
    "admin_comment", "batch_host", "comment", "cpus", "deadline", "derived_exit_code", "eligible_time", "end_time",
    "excluded_nodes", "exit_code", "failed_node", "flags", "hold", "job_id", "job_state", "memory_per_cpu",
    "memory_per_node", "name", "node_count", "nodes", "preempt_time", "priority", "requeue", "required_nodes",
    "restart_cnt", "start_time", "state_description", "state_reason", "submit_time", "system_comment", "time_limit",
    "user_id",
)  # fmt: skip
# BOOT_FAIL is what a program that makes nodes ready for a job tells Slurm by this call (JOB_RECONFIG_FAIL); nothing
# of Slurm's own calls it so, and no command can.
BOOT_FAIL = """
import ctypes, glob, sys
slurm = ctypes.CDLL(glob.glob("/usr/lib/*/slurm-wlm/libslurmfull.so")[0], ctypes.RTLD_GLOBAL)
slurm.slurm_init(None)
answer = ctypes.c_void_p()
sys.exit(slurm.slurm_requeue2(sys.argv[1].encode(), ctypes.c_uint32(1 << 17), ctypes.byref(answer)))
"""


@dataclass
class End:
    """One job, and how it comes to its end.

    :param how: the act, in words.
    :param act: done to the job's id once it runs (or waits, with ``pending``).
    :param node: which node of the cluster it must have.
    :param looks: what was recorded: ``ending`` while it was completing, ``over`` after it.
    """

    name: str
    how: str
    script: str = LONG
    options: tuple[str, ...] = ()
    act: Callable[[Cluster, int], None] | None = None
    pending: bool = False
    node: int | None = None
    until: frozenset[str] = OVER
    job: int = 0
    acted: bool = False
    ran: bool = False
    seen: float = 0.0
    looks: dict[str, dict[str, Any]] = field(default_factory=dict)


def root(*argv: str) -> Callable[[Cluster, int], None]:
    """A command of root's on ``ctl``; ``{}`` is the job's id."""
    return by("root", *argv)


def by(user: str, *argv: str) -> Callable[[Cluster, int], None]:
    """A command of a user's on ``ctl``; ``{}`` is the job's id."""

    def act(cluster: Cluster, job: int) -> None:
        cluster.run("ctl", [word.format(job) for word in argv], user=user, cwd="/")

    return act


def boot_fail(cluster: Cluster, job: int) -> None:
    """Say that the job's nodes could not be made ready. A job that may not be requeued ends by it, with an error."""
    cluster.run("ctl", ["python3", "-c", BOOT_FAIL, str(job)], check=False)


STAY, AGAIN = ("--no-requeue",), ("--requeue",)
REQUEUED = frozenset({"PENDING"})
BY_ITSELF = (
    End("completed", "its script ends with 0", "exit 0"),
    End("failed", "its script ends with 1", "exit 1"),
    End("status_85", "its script ends with 85", "exit 85"),
    End("signal", "its script kills itself with SIGKILL", "kill -9 $$"),
    End("signal_term", "its script kills itself with SIGTERM", "kill -15 $$"),
    End("timeout", "it runs past its time limit of a minute", DEAF, ("--time=1",)),
    End("timeout_at_once", "the same, and it ends with 0 at the SIGTERM", "trap 'exit 0' TERM\nsleep 3000 & wait",
        ("--time=1",)),
    End("deadline", "it waits until its deadline can no longer be kept", LONG,
        ("--time=1", "--deadline=now+65seconds", "--exclusive"), node=0),
    End("deadline_running", "its time limit was cut to its deadline (--time-min)", DEAF,
        ("--time=2", "--time-min=1", "--deadline=now+70seconds")),
    End("over_memory_kill", "it takes 300 MB of 50, and jobacct_gather ends it (OverMemoryKill)", EATER,
        ("--mem=50M",), node=0),
    End("out_of_memory", "its script takes 300 MB of 50, and the kernel ends it", EATER, ("--mem=50M",), node=-1),
    End("out_of_memory_step", "a step takes 300 MB of 50, the kernel ends it, and the script ends with srun's status",
        EATER.replace("exec", "srun"), ("--mem=50M",), node=-1),
    End("out_of_memory_exit_0", "the kernel ends a process of its script, which ends with 0",
        EATER.replace("exec", "") + "\nexit 0", ("--mem=50M",), node=-1),
    End("no_workdir", "its working directory is not there; it runs in /tmp", "exit 0", ("--chdir=/nonexistent",)),
    End("no_output_folder", "the folder of its output is not there", LONG, ("--output=/nonexistent/out",)),
    End("no_interpreter", "the interpreter of its script is not there", "#!/nonexistent"),
)
BY_PEOPLE = (
    End("cancelled_by_owner", "scancel by its owner", DEAF, (), by("ada", "scancel", "{}")),
    End("cancelled_by_root", "scancel by root", DEAF, (), root("scancel", "{}")),
    End("cancelled_by_operator", "scancel by an operator", DEAF, (), by("ben", "scancel", "{}")),
    End("cancelled_exit_0", "scancel by its owner, and it ends with 0 at the SIGTERM",
        "trap 'exit 0' TERM\nsleep 3000 & wait", (), by("ada", "scancel", "{}")),
    End("cancelled_pending_by_owner", "scancel by its owner while it waits", LONG, ("--begin=now+1hour",),
        by("ada", "scancel", "{}"), pending=True),
    End("cancelled_pending_by_root", "scancel by root while it waits", LONG, ("--begin=now+1hour",),
        root("scancel", "{}"), pending=True),
    End("signalled_by_owner", "scancel --signal=KILL --batch by its owner", LONG, (),
        by("ada", "scancel", "--signal=KILL", "--batch", "{}")),
    End("requeued", "scontrol requeue by its owner", DEAF, AGAIN, by("ada", "scontrol", "requeue", "{}"),
        until=REQUEUED),
    End("requeued_by_root", "scontrol requeue by root", DEAF, AGAIN, root("scontrol", "requeue", "{}"),
        until=REQUEUED),
    End("requeue_held", "scontrol requeuehold by root", DEAF, AGAIN, root("scontrol", "requeuehold", "{}"),
        until=REQUEUED),
    End("special_exit", "scontrol requeuehold State=SpecialExit by root", DEAF, AGAIN,
        root("scontrol", "requeuehold", "State=SpecialExit", "{}"), until=REQUEUED | {"SPECIAL_EXIT"}),
    End("suspended", "scontrol suspend by root", LONG, (), root("scontrol", "suspend", "{}"),
        until=frozenset({"SUSPENDED"})),
    End("boot_fail", "slurm_requeue(JOB_RECONFIG_FAIL) by root", DEAF, STAY, boot_fail),
    End("boot_fail_requeue", "slurm_requeue(JOB_RECONFIG_FAIL) by root", DEAF, AGAIN, boot_fail, until=REQUEUED),
)


class Recording:
    """One pass over all ends on one cluster."""

    def __init__(self, cluster: Cluster, *, restarts: bool, say: Callable[[str], None]) -> None:
        """Prepare.

        :param restarts: sacct has the column ``Restarts``.
        """
        self.cluster = cluster
        self.restarts = restarts
        self.say = say
        self.ends: dict[str, End] = {}
        self.second = cluster.nodes[-1]

    # One look.

    def ask(self, *argv: str) -> str | None:
        """What a command prints that runs as the product runs it; ``None`` where it fails."""
        env = {"LC_ALL": "C", "SLURM_TIME_FORMAT": "%s"}
        done = self.cluster.run("ctl", argv, env=env, check=False)
        return done.stdout if done.status == 0 else None

    def look(self, job: int) -> dict[str, Any]:
        """What Slurm says of a job, by each command and form."""
        fields = ",".join((*ACCOUNT_FIELDS, *(("Restarts",) if self.restarts else ()), "Comment"))
        printed = self.ask("scontrol", "--json", "show", "job", str(job))
        try:
            found = json.loads(printed or "")["jobs"]
        except ValueError:
            found = None
        return {
            "json": found and [{name: one[name] for name in KEPT if name in one} for one in found],
            "text": self.ask("scontrol", "show", "job", str(job)),
            "queue": self.ask("squeue", "--all", "--noheader", "--states=all", f"--jobs={job}",
                              f"--format={queue_format(NONCE)}"),
            "accounting": self.ask("sacct", "--allocations", "--duplicates", "--noheader", "--parsable2",
                                   f"--delimiter={NONCE}", f"--format={fields}", f"--jobs={job}",
                                   "--starttime=1970-01-02"),
        }  # fmt: skip

    # The jobs.

    def submit(self, end: End, *more: str) -> None:
        """Submit the job of an end."""
        head = end.script if end.script.startswith("#!") else f"#!/bin/sh\n: >{FOLDER}/{end.name}\n{end.script}"
        options = ["--job-name", end.name, "--output=/dev/null", "--comment=dispatch:recorded00:0:1", *end.options]
        end.job = self.cluster.submit("ada", f"{head}\n", [*options, *more], cwd=FOLDER)
        self.ends[end.name] = end

    def follow(self, ends: Sequence[End]) -> None:
        """Wait for the ends of these, with a look at each while it is completing and one after."""
        deadline = time.monotonic() + WAIT_S
        open_ends = list(ends)
        while open_ends:
            if time.monotonic() > deadline:
                left = ", ".join(f"{end.name} ({end.job})" for end in open_ends)
                raise ClusterError(f"no end of {left}\n{self.cluster.picture()}")
            printed = self.ask("squeue", "--all", "--noheader", "--states=all", "--format=%A %T %r") or ""
            states = {int(line.split()[0]): line.split()[1] for line in printed.splitlines()}
            for end in list(open_ends):
                self.step(end, states.get(end.job, ""))
                if "over" in end.looks:
                    open_ends.remove(end)
            time.sleep(0.2)

    def started(self, end: End) -> bool:
        """The script began."""
        end.ran = end.ran or self.cluster.run("ctl", ["test", "-e", f"{FOLDER}/{end.name}"], check=False).status == 0
        return end.ran

    def step(self, end: End, state: str) -> None:
        """One round for one job."""
        if end.act is not None and not end.acted:
            if (end.pending and state == "PENDING") or (state == "RUNNING" and self.started(end)):
                end.act(self.cluster, end.job)
                end.acted = True
            return
        if state == "COMPLETING" and "ending" not in end.looks:
            end.looks["ending"] = self.look(end.job)
        again = state == "PENDING" and (end.acted or "ending" in end.looks or end.act is None)
        if state in end.until and (state != "PENDING" or again):
            self.started(end)
            found = self.look(end.job)
            end.seen = end.seen or time.monotonic()
            if self.accounted(end, found) or time.monotonic() - end.seen > ACCOUNTED_S:
                end.looks["over"] = found
                self.say(f"{end.name}: {state}")

    @staticmethod
    def accounted(end: End, found: dict[str, Any]) -> bool:
        """Accounting tells the end as well."""
        rows = [row for row in (found["accounting"] or "").split("\n") if NONCE in row]
        if rows and rows[0].split(NONCE)[1] == "0":
            return False  # 22.05 may learn of the end before it learns of the job, and shows root's id meanwhile
        if end.until != OVER and len(rows) > 1:
            return True
        return bool(rows) and not any(
            f"{NONCE}{state}{NONCE}" in row for row in rows for state in ("RUNNING", "PENDING")
        )

    # Groups of ends.

    def all(self) -> None:
        """Make and record every end."""
        self.prepare()
        self.alone()
        self.preempted()
        self.dependent()
        self.refused_by_hooks()
        self.lost_nodes()

    def prepare(self) -> None:
        """The cluster's settings for this: memory limits that are kept, Epilogs that take a while, an operator."""
        cluster = self.cluster
        cluster.service_off()
        cluster.run("login", ["mkdir", "-p", FOLDER], user="ada")
        for host in cluster.hosts:
            cluster.sh(host, "sed -i '/^SelectTypeParameters=/d' /etc/slurm/slurm.conf")
            cluster.run(host, ["sh", "-c", "cat >>/etc/slurm/slurm.conf"], input=SETTINGS)
        for node in cluster.nodes:
            cluster.write(f"{HOOKS}/epilog", "#!/bin/sh\nsleep 3\n", host=node, mode="755")
            cluster.sh(node, f"sh /src/docker/node {'confine' if node == self.second else 'restart'}")
        cluster.run("ctl", ["sacctmgr", "-i", "modify", "user", "ben", "set", "adminlevel=operator"])
        # In order, so that all is saved: after a kill in its first minutes, a slurmctld of 26.05 cannot start again.
        again = "pkill -x slurmctld; while pgrep -x slurmctld; do sleep 0.1; done; sh /src/docker/controller start"
        cluster.sh("ctl", again, timeout_s=WAIT_S)
        cluster.wait_until(cluster.nodes_idle, WAIT_S, "all nodes to be idle")

    def alone(self) -> None:
        """What ends by itself, or by somebody's command."""
        ends = [*BY_ITSELF, *BY_PEOPLE]
        nodes = len(self.cluster.nodes)
        for at, end in enumerate(ends):
            node = self.cluster.nodes[at % nodes if end.node is None else end.node]
            self.submit(end, *(() if end.pending else (f"--nodelist={node}",)))
        self.follow(ends)
        self.clear()

    def preempted(self) -> None:
        """By a job of a partition that goes before."""
        ends = [
            End("preempted", "preempted in a partition whose mode is REQUEUE, with --no-requeue", DEAF, STAY),
            End("preempted_requeue", "preempted in a partition whose mode is REQUEUE", DEAF, AGAIN, until=REQUEUED),
            End("preempted_cancel", "preempted in a partition whose mode is CANCEL", DEAF, ("--partition=spare",)),
        ]
        for end in ends:
            self.submit(end, f"--nodelist={self.second}")

        def take() -> None:
            self.cluster.submit("ben", "#!/bin/sh\nsleep 60\n", ["--partition=high", "--exclusive", "-o", "/dev/null",
                                                                f"--nodelist={self.second}"], cwd="/tmp")

        self.follow_together(ends, take)

    def follow_together(self, ends: Sequence[End], act: Callable[[], None]) -> None:
        """All of them run, then something happens to all."""
        self.wait_running(ends)
        act()
        for end in ends:
            end.acted = True
        self.follow(ends)
        self.clear()

    def wait_running(self, ends: Sequence[End]) -> None:
        """Wait until all scripts run."""
        for end in ends:
            self.cluster.wait_job(end.job, ["RUNNING"])
            self.cluster.wait_until(partial(self.started, end), WAIT_S, f"the script of {end.name}")

    def dependent(self) -> None:
        """A dependency that never comes true."""
        failed = self.ends["failed"].job
        needs, how = f"--dependency=afterok:{failed}", "depends on a job that failed (afterok)"
        never = End("dependency_never", how, LONG, (needs,), pending=True, until=REQUEUED)
        killed = "--kill-on-invalid-dep=yes"
        ends = [never, End("dependency_killed", f"{how}, with {killed}", LONG, (needs, killed))]
        for end in ends:
            self.submit(end)

        def told() -> bool:
            return "DependencyNeverSatisfied" in (self.ask("scontrol", "show", "job", str(never.job)) or "")

        self.cluster.wait_until(told, WAIT_S, "the dependency to be given up")
        self.follow(ends)
        self.clear()

    def refused_by_hooks(self) -> None:
        """The site's own hooks fail."""
        for hook, host, name in (
            ("prolog", self.second, "site_prolog"),
            ("task-prolog", self.second, "task_prolog"),
            ("prolog-slurmctld", "ctl", "prolog_slurmctld"),
        ):
            before = self.cluster.read(f"{HOOKS}/{hook}", host)
            self.cluster.write(f"{HOOKS}/{hook}", "#!/bin/sh\nexit 1\n", host=host, mode="755")
            over = OVER if hook == "task-prolog" else OVER | REQUEUED
            ends = [
                End(f"{name}_fails", f"the site's {hook} ends with 1", LONG, STAY),
                End(f"{name}_fails_requeue", f"the site's {hook} ends with 1", LONG, AGAIN, until=over),
            ]
            for end in ends:
                self.launch(end)
            self.cluster.write(f"{HOOKS}/{hook}", before, host=host, mode="755")
            # Of a job that is not requeued slurmd tells the failed Prolog again every 15 s, and its node is drained
            # each time; it does not end at a SIGTERM either.
            self.cluster.sh(self.second, "sh /src/docker/node kill; sh /src/docker/node start")
            self.clear()

    def launch(self, end: End) -> None:
        """One job on the second node, that does not get far; the node is put back to work."""
        self.submit(end, f"--nodelist={self.second}")
        job = end.job

        def moved() -> bool:
            text = self.ask("scontrol", "show", "job", str(job)) or ""
            return "Restarts=1" in text or "JobState=PENDING" not in text

        self.cluster.wait_until(moved, WAIT_S, f"job {job} to be tried")
        self.follow([end])
        self.clear()

    def lost_nodes(self) -> None:
        """A node is set down by an admin; then its power goes."""
        down = ("scontrol", "update", f"node={self.second}", "state=down", "reason=broken")
        for name, how, act in (
            ("node_down", "an admin sets its node DOWN", lambda: self.cluster.run("ctl", down)),
            ("node_dies", "its node loses its power", lambda: self.cluster.fault("kill-node", self.second)),
        ):
            ends = [
                End(f"{name}", how, DEAF, STAY),
                End(f"{name}_requeue", how, DEAF, AGAIN, until=REQUEUED),
                End(f"{name}_two_nodes", f"{how}; it has another", DEAF, (*STAY, "--nodes=2")),
                End(f"{name}_no_kill", f"{how}; it has another, and --no-kill", DEAF,
                    (*STAY, "--nodes=2", "--no-kill"), until=frozenset({"RUNNING"})),
            ]
            for end in ends:
                both = ",".join((self.cluster.nodes[0], self.second))
                self.submit(end, f"--nodelist={both if '--nodes=2' in end.options else self.second}")
            self.wait_running(ends)
            act()
            for end in ends:
                end.acted = True
            self.follow(ends[:3])
            self.follow(ends[3:])
            if name == "node_dies":
                self.cluster.fault("heal", self.second)
            self.clear()

    def clear(self) -> None:
        """No job is left, and all nodes take some."""
        self.cluster.wait_until(self.cluster._cleared, WAIT_S, "all nodes to be idle", every_s=0.5)

    def result(self) -> dict[str, Any]:
        """All that was seen, by name."""
        return {
            end.name: {"how": end.how, "job": end.job, "options": list(end.options), "ran": end.ran, **end.looks}
            for end in self.ends.values()
        }
