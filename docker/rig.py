"""The real cluster, for tests, the demo and the measurements: run things in it, break it, wait for what comes.

Nothing here waits without a deadline, and a wait that fails says what the cluster looks like.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shlex
import socket
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
NODES = ("c1", "c2", "c3")
HOSTS = ("ctl", "login", *NODES)
USERS = ("ada", "ben")
STATE = "/srv/slurm-dispatch"
"""The state folder of slurm-dispatch, the same on every host."""
TICK_LOG = "/var/log/slurm-dispatch/tick.log"
PATIENCE_S = 120.0
"""How long anything may take on a slow machine that has other things to do."""
POLL_S = 0.1
COMMAND_S = 180.0
FAULT_S = 400.0
UP_S = 900.0

# What text says of a job where there is no JSON. A name or comment with a newline shows its first line.
_TEXT_JOB = {
    "id": r"\AJobId=(\d+)", "name": r" JobName=(.*)$", "user": r"^   UserId=(.*)\(\d+\) GroupId=",
    "state": r"^   JobState=([A-Z_]+) Reason=", "reason": r"^   JobState=[A-Z_]+ Reason=(.*) Dependency=",
    "restarts": r"^   Requeue=[01] Restarts=(\d+) ", "exit": r" ExitCode=(\d+):\d+$",
    "start": r"^   StartTime=(\w+) ", "nodes": r"^   NodeList=(.*)$", "comment": r"^   Comment=(.*?) ?$",
}

# $1 path, $2 mode, the content from standard input. Whoever runs in the host and waits for the file may read, run
# or remove it as soon as its name is there: so it is made beside the name, where no listing shows it.
WRITE = """set -e
folder=$(dirname -- "$1")
mkdir -p -- "$folder"
new=$(mktemp -- "$folder/.new-XXXXXXXXXX")
trap 'rm -f -- "$new"' EXIT
cat >"$new"
chmod -- "$2" "$new"
mv -T -- "$new" "$1"
"""

T = TypeVar("T")


class ClusterError(Exception):
    """The cluster did not do what was asked; the message says what it looks like."""


@dataclass(frozen=True, slots=True)
class Finished:
    """A command that has ended.

    :param status: its exit status, negative for a signal.
    """

    argv: tuple[str, ...]
    status: int
    stdout: str
    stderr: str


@dataclass(frozen=True, slots=True)
class Job:
    """What slurmctld says of a job that it still knows.

    :param states: its state and flags, as ``("PREEMPTED", "COMPLETING")``.
    :param nodes: the names of its nodes; empty where it has none.
    :param start_time: Unix seconds, 0 where it has not started.
    """

    id: int
    name: str
    user: str
    states: tuple[str, ...]
    reason: str
    nodes: tuple[str, ...]
    restarts: int
    start_time: int
    exit_status: int | None
    comment: str

    @property
    def state(self) -> str:
        """The state without flags."""
        return self.states[0]


class Cluster:
    """One cluster of ``docker/cluster``.

    :param name: which one (``DISPATCH_CLUSTER``); ``None`` for what the environment or the checkout says.
    :param release: ``bookworm``: its Slurm is 22.05; ``sid``: one of the newest Slurm; ``None`` for what the
        environment says (``DISPATCH_RELEASE``), which is ``trixie`` where it says nothing.
    :param small: without the third node.
    """

    def __init__(self, name: str | None = None, *, release: str | None = None, small: bool = False) -> None:
        release = release or os.environ.get("DISPATCH_RELEASE") or "trixie"
        self.nodes = NODES[:2] if small else NODES
        self.hosts = ("ctl", "login", *self.nodes)
        self.release = release
        self.json = release != "bookworm"  # scontrol has it from 23.02 on
        self.tells_starts = release != "bookworm"  # so have the hooks an execution's start time
        self._environ = {**os.environ, "DISPATCH_RELEASE": release, "DISPATCH_SMALL": "1" if small else ""}
        if name is not None:
            self._environ["DISPATCH_CLUSTER"] = name
        self.name = self._script("cluster", "name", timeout_s=COMMAND_S).strip()
        self._agents = os.path.join(ROOT, "docker", "clusters", self.name, "agent")

    # Up and down.

    def up(self) -> None:
        """Start it, building what is missing; harmless if it runs."""
        self._script("cluster", "up", timeout_s=UP_S)

    def down(self) -> None:
        """Remove it with all that it holds."""
        self._script("cluster", "down", timeout_s=FAULT_S)

    def refresh(self) -> None:
        """Put this tree's package, hooks and site files into it."""
        self._script("cluster", "refresh", timeout_s=FAULT_S)

    def fault(self, what: str, node: str | None = None) -> None:
        """One fault of ``docker/fault``, as ``fault("cut", "c1")``."""
        self._script("fault", what, *([node] if node else []), timeout_s=FAULT_S)

    def _script(self, script: str, *words: str, timeout_s: float) -> str:
        done = subprocess.run([os.path.join(ROOT, "docker", script), *words], env=self._environ, timeout=timeout_s,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if done.returncode:
            command = shlex.join([f"docker/{script}", *words])
            raise ClusterError(f"{command} ended with {done.returncode}: {done.stderr[-3000:]}")
        return done.stdout

    # Commands.

    def run(
        self,
        host: str,
        argv: Sequence[str],
        *,
        user: str = "root",
        input: str = "",  # noqa: A002 (the word that subprocess.run has for it)
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        timeout_s: float = COMMAND_S,
        check: bool = True,
    ) -> Finished:
        """Run a command in a host and wait for its end. No shell is involved.

        :param user: as whom, with the environment of a fresh login, in their home unless ``cwd`` says where.
        :param env: variables on top of those.
        :param timeout_s: after that long the command and its process group are killed.
        :raises ClusterError: the host is away, the deadline passed, or (with ``check``) the status is not 0.
        """
        request = {"argv": list(argv), "user": user, "env": dict(env or {}), "cwd": cwd, "timeout_s": timeout_s}
        head, stdout, stderr = self._ask(host, request, input.encode(), timeout_s)
        words = f"{shlex.join(argv)} on {host} as {user}"
        if head["error"] is not None:
            raise ClusterError(f"{words} could not be started: {head['error']}")
        if head["status"] is None:
            raise ClusterError(f"{words} did not end in {timeout_s:g} s; stdout: {stdout[-2000:]!r}; "
                               f"stderr: {stderr[-2000:]!r}")
        done = Finished(tuple(argv), head["status"], stdout, stderr)
        if check and done.status:
            raise ClusterError(f"{words} ended with {done.status}: {(stderr or stdout)[-3000:]}")
        return done

    def _ask(
        self, host: str, request: Mapping[str, object], stdin: bytes, timeout_s: float
    ) -> tuple[dict[str, Any], str, str]:
        folder = os.open(self._agents, os.O_RDONLY | os.O_DIRECTORY)
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.settimeout(timeout_s + COMMAND_S)
                # By the folder's descriptor: a checkout's path may be longer than a socket's address can be.
                connection.connect(f"/proc/self/fd/{folder}/{host}.sock")
                connection.sendall(json.dumps(request).encode() + b"\n" + stdin)
                connection.shutdown(socket.SHUT_WR)
                with connection.makefile("rb") as answer:
                    head = json.loads(answer.readline())
                    stdout = answer.read(head["stdout"])
                    stderr = answer.read(head["stderr"])
        except (OSError, ValueError) as error:
            raise ClusterError(f"{host} of cluster {self.name} does not answer: {error}") from error
        finally:
            os.close(folder)
        return head, stdout.decode(errors="replace"), stderr.decode(errors="replace")

    def sh(self, host: str, script: str, *, user: str = "root", **options: Any) -> str:
        """The output of a line of shell."""
        return self.run(host, ["sh", "-c", script], user=user, **options).stdout

    # Files.

    def read(self, path: str, host: str = "login") -> str:
        """The text of a file in a host; an absent one is an error."""
        return self.run(host, ["cat", "--", path]).stdout

    def write(self, path: str, text: str, *, user: str = "root", host: str = "login", mode: str = "644") -> None:
        """Make or replace a file in a host, and the folders above it, as ``user``: at once, whole, with its mode."""
        self.run(host, ["sh", "-c", WRITE, "sh", path, mode], user=user, input=text)

    # Jobs.

    def submit(self, user: str, script: str, options: Sequence[str] = (), *, host: str = "login",
               env: Mapping[str, str] | None = None, cwd: str | None = None) -> int:
        """Submit a script with plain ``sbatch`` from standard input; the job's id."""
        done = self.run(host, ["sbatch", "--parsable", *options], user=user, input=script, env=env, cwd=cwd)
        return int(done.stdout.strip().split(";")[0])

    def job(self, job_id: int) -> Job | None:
        """What slurmctld knows of a job, or ``None`` if it says that it has none of that id.

        :raises ClusterError: slurmctld gave no answer.
        """
        if not self.json:
            return self._text_job(job_id)
        done = self.run("ctl", ["scontrol", "show", "job", str(job_id), "--json"], check=False)
        try:
            found = json.loads(done.stdout)["jobs"]
        except (ValueError, KeyError) as error:
            raise ClusterError(f"scontrol show job {job_id} ended with {done.status}: {done.stderr}") from error
        if done.status:
            raise ClusterError(f"scontrol show job {job_id} ended with {done.status}: {done.stderr}")
        return self._job(found[0]) if found else None

    def _text_job(self, job_id: int) -> Job | None:
        env = {"SLURM_TIME_FORMAT": "%s"}
        done = self.run("ctl", ["scontrol", "show", "job", str(job_id)], env=env, check=False)
        if "Invalid job id specified" in done.stderr:
            return None
        matches = {name: re.search(pattern, done.stdout, re.MULTILINE) for name, pattern in _TEXT_JOB.items()}
        found = {name: match[1] for name, match in matches.items() if match}
        if done.status or not found.keys() >= _TEXT_JOB.keys() - {"comment"}:
            raise ClusterError(f"scontrol show job {job_id} ended with {done.status}: {done.stderr or done.stdout}")
        # A flag hides the state here; what waits for a flag or for a state gets along with that.
        return Job(
            id=int(found["id"]), name=found["name"], user=found["user"], states=(found["state"],),
            reason=found["reason"], nodes=self._names("" if found["nodes"] == "(null)" else found["nodes"]),
            restarts=int(found["restarts"]), start_time=int(found["start"]) if found["start"].isdigit() else 0,
            exit_status=int(found["exit"]), comment=found.get("comment", ""),
        )

    def _names(self, nodes: str) -> tuple[str, ...]:
        return tuple(self.run("ctl", ["scontrol", "show", "hostnames", nodes]).stdout.split()) if nodes else ()

    def _job(self, found: Mapping[str, Any]) -> Job:
        start = found["start_time"]
        code = found["exit_code"]["return_code"]
        return Job(
            id=found["job_id"], name=found["name"], user=found["user_name"], states=tuple(found["job_state"]),
            reason=found["state_reason"], nodes=self._names(found["nodes"] or ""), restarts=found["restart_cnt"],
            start_time=start["number"] if start["set"] else 0,
            exit_status=code["number"] if code["set"] else None, comment=found["comment"],
        )

    def wait_job(self, job_id: int, states: Collection[str], deadline_s: float = PATIENCE_S) -> Job:
        """Wait until the job's state or one of its flags is among ``states``; the job as it was then.

        A job whose node is not ready yet (RUNNING with CONFIGURING) counts as CONFIGURING only.
        """

        def reached() -> Job | None:
            job = self.job(job_id)
            if job is None:
                return None
            seen = set(job.states) - ({"RUNNING"} if "CONFIGURING" in job.states else set())
            return job if seen & set(states) else None

        return self.wait_until(reached, deadline_s, f"job {job_id} to be {' or '.join(sorted(states))}")

    def wait_until(
        self, predicate: Callable[[], T | None], deadline_s: float, what: str, *, every_s: float = POLL_S
    ) -> T:
        """Ask again and again until the answer is true; that answer.

        :param what: what is waited for, as in "nodes to be idle".
        :raises ClusterError: it did not come; the message shows queue, nodes and the ends of the logs.
        """
        deadline = time.monotonic() + deadline_s
        trouble: ClusterError | None = None
        while True:
            try:
                answer = predicate()
                if answer:
                    return answer
                trouble = None
            except ClusterError as error:  # a daemon that is busy for a while is no answer yet
                trouble = error
            if time.monotonic() > deadline:
                last = f"\nthe last question failed: {trouble}" if trouble else ""
                raise ClusterError(f"waited {deadline_s:g} s for {what} in vain{last}\n{self.picture()}")
            time.sleep(every_s)

    # Nodes and the controller.

    def node_states(self) -> dict[str, str]:
        """The state of each node, in small letters, with Slurm's flags at its end (``down*``)."""
        lines = self.run("ctl", ["sinfo", "-h", "-N", "-p", "low", "-o", "%N %T"]).stdout.split("\n")
        return {line.split()[0]: line.split()[1] for line in lines if line}

    def nodes_idle(self) -> bool:
        """Whether all nodes are idle, which they are not while a job is completing."""
        return set(self.node_states().values()) == {"idle"}

    def node_usable(self, node: str) -> bool:
        """Whether the node takes jobs."""
        return self.node_states()[node] in ("idle", "mixed", "allocated")

    def crash_controller(self, *, saved: bool) -> None:
        """Kill slurmctld as a crash would, and start it again.

        :param saved: whether everything that it knew is in its state files. With ``False`` it is killed at
            once, and what changed in the last 5 seconds is lost, or not.
        """
        marker = self.save_state() if saved else None
        self.fault("crash-controller")
        if marker is not None:
            self.run("ctl", ["scancel", "--name", marker])

    def save_state(self, folder: str = "/var/spool/slurmctld") -> str:
        """Wait until slurmctld has written all that it knows now into its state files, which are in ``folder``.

        There is no command for it: a job that is submitted on hold makes the state change, and it is saved
        when its name stands in the file. Returns that name; the job is left, to be cancelled by the caller.
        """
        marker = f"saved-{secrets.token_hex(6)}"
        self.run("ctl", ["sbatch", "--hold", "--job-name", marker, "--wrap", "true"], cwd="/tmp")
        saved = ["grep", "-q", marker, f"{folder}/job_state"]
        what = "slurmctld to save its state"
        self.wait_until(lambda: self.run("ctl", saved, check=False).status == 0, PATIENCE_S, what)
        return marker

    # Between tests.

    def service_off(self) -> None:
        """No tick runs by itself any more, neither the service's nor cron's, until :meth:`service_on`."""
        self.run("ctl", ["sh", "/src/docker/ticks", "off"])

    def service_on(self) -> None:
        """The service and cron tick again; harmless if they do."""
        self.run("ctl", ["sh", "/src/docker/ticks", "on"])

    def reset(self) -> None:
        """Make it as good as new for the next tests: every fault undone, no job, no note, no record, all idle.

        What users still run is killed, on every host, also what has left its job. Files below ``/home`` and
        ``/scratch`` stay.
        """
        with ThreadPoolExecutor(len(self.nodes)) as pool:
            list(pool.map(lambda node: self.fault("heal", node), self.nodes))
        self.service_off()
        self.wait_until(self._cleared, PATIENCE_S, "all jobs to be gone and all nodes to be idle", every_s=0.3)
        # Again where a command that was killed, or one of Slurm's own, has made or removed something meanwhile.
        empty = ["find", f"{STATE}/jobs", f"{STATE}/notes", f"{STATE}/tick", "-mindepth", "1", "-delete"]
        what = "the records and notes to be gone"
        self.wait_until(lambda: self.run("ctl", empty, check=False).status == 0, PATIENCE_S, what)
        for node in self.nodes:
            self.sh(node, "umount -l $(grep -o '/run/slurm-dispatch/[^ ]*' /proc/self/mounts) 2>/dev/null; "
                          "rm -rf /run/slurm-dispatch /var/spool/slurm-dispatch")
        self.service_on()

    def _cleared(self) -> bool:
        for host in self.hosts:
            self.run(host, ["pkill", "-KILL", "-u", ",".join(USERS)], check=False)
        left = self.run("ctl", ["squeue", "-h", "-a", "-o", "%i"]).stdout.split()
        if left:
            self.run("ctl", ["scancel", *left], check=False)
        states = self.node_states()
        for node, state in states.items():
            if state.startswith(("down", "drain", "fail")):
                self.run("ctl", ["scontrol", "update", f"node={node}", "state=resume"], check=False)
        return not left and set(states.values()) == {"idle"}

    # For people.

    def picture(self, lines: int = 30) -> str:
        """What the cluster looks like: queue, nodes, and the ends of the logs that tell most."""
        restarts = "" if self.release == "bookworm" else "restarts,"
        asked = (
            ("queue", "squeue -a -o '%i %P %j %u %T %M %R %k'"),
            ("nodes", "sinfo -N -p low -o '%N %T %E'"),
            ("accounting", f"sacct -a -X -n -o jobid,user,state%30,start,end,{restarts}comment%60 | tail -n 20"),
            ("ticks", f"tail -n {lines} {TICK_LOG}"),
            ("slurmctld", f"tail -n {lines} /var/log/slurm/slurmctld.log"),
            ("syslog of ctl", f"tail -n {lines} /var/log/syslog"),
        )
        return "\n".join(f"--- {title}\n{self._glimpse(command)}" for title, command in asked)

    def _glimpse(self, command: str) -> str:
        try:
            done = self.run("ctl", ["sh", "-c", command], check=False)
        except ClusterError as error:  # a picture of a cluster that is ill must not fail
            return str(error)
        return (done.stdout + done.stderr).rstrip()
