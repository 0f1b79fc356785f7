"""A shared job's executions on the real cluster, and the ready-made cessation commands that are asked about them."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
from typing import TYPE_CHECKING, Any

from docker.rig import ROOT
from slurm_dispatch.model.hostlist import expand
from slurm_dispatch.records.cessation import AskedExecution, NodeWord, question
from tests.cluster.site import WAIT_S, Managed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from docker.rig import Cluster

SITE = "/src/site/cessation"
KEY = "/etc/slurm-dispatch/ssh-key"


def commands(node_s: int) -> dict[str, list[str]]:
    """The commands as a site would name them in ``cessation``; they run on ctl as SlurmUser.

    :param node_s: how long they wait for a node.
    """
    wait = ["-t", str(node_s)]
    return {
        "slurm-nodes": [f"{SITE}/slurm-nodes"],
        "ssh-nodes": [f"{SITE}/ssh-nodes", "-l", "root", "-i", KEY, *wait],
        "fence-power": [f"{SITE}/fence-power", *wait, "/cluster/fence", "-n", "{node}", "-o", "status"],
    }


COMMANDS = commands(15)
PATIENT = commands(60)
"""The same for nodes that are there, on a machine that is slow."""
MEANING = {0: "ceased", 1: "running"}
AGENT = """#!/usr/bin/python3 -IS
import socket, sys
with socket.socket(socket.AF_UNIX) as power:
    power.settimeout(10)
    power.connect("/cluster/power.sock")
    power.sendall(sys.argv[sys.argv.index("-n") + 1].encode())
    power.shutdown(socket.SHUT_WR)
    answer = power.recv(100).decode()
print("Status: " + answer)
sys.exit({"ON": 0, "OFF": 2}.get(answer, 1))
"""
WRITER = """#!/bin/sh
# Leaves its job: forked twice, in a session of its own. $1: where it writes, $2: "bare" for an empty environment
if [ "$2" = bare ]; then before='env -i'; else before=; fi
(setsid $before /bin/sh -c 'while :; do date +%s >"$1"; sleep 0.2; done' writer "$1" </dev/null >/dev/null 2>&1 &)
"""


class Power:
    """The nodes' power controllers: a node is off if its container does not run. With a fence agent for them."""

    def __init__(self, cluster: Cluster) -> None:
        self._folder = os.path.join(ROOT, "docker", "clusters", cluster.name)
        self._prefix = f"dispatch-{cluster.name}-"
        path = os.path.join(self._folder, "fence")
        with open(path, "w", encoding="ascii") as stream:
            stream.write(AGENT)
        os.chmod(path, 0o755)
        self._server = socket.socket(socket.AF_UNIX)
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            # By the folder's descriptor: a checkout's path may be longer than a socket's address can be.
            address = f"/proc/self/fd/{folder}/power.sock"
            if os.path.lexists(address):
                os.unlink(address)
            self._server.bind(address)
            os.chmod(address, 0o666)
        finally:
            os.close(folder)
        self._server.listen(16)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return  # closed
            with connection:
                node = connection.recv(100).decode()
                argv = ["docker", "inspect", "-f", "{{.State.Status}}", self._prefix + node]
                found = subprocess.run(argv, capture_output=True, text=True, timeout=WAIT_S, check=False).stdout
                state = found.strip()
                connection.sendall({"exited": b"OFF", "running": b"ON", "paused": b"ON"}.get(state, b"?"))

    def close(self) -> None:
        """No controller answers any more."""
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._thread.join(WAIT_S)


class Ghost(Managed):
    """A job with a shared checkpoint, in plain sbatch, with a process that leaves it."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster, shared=True)
        self.beat = f"{self.folder}/beat"
        cluster.write(f"{self.folder}/writer", WRITER, user="ada", mode="755")

    def begin(self, *options: str, writer: str = "no", then: str = "exec sleep 3600") -> dict[str, Any]:
        """Run it; its start note.

        :param writer: ``no``, ``attempt`` (with the job's environment) or ``bare``.
        """
        starts = "" if writer == "no" else f"{self.folder}/writer {self.beat} {writer}\n"
        self.submit(f"{starts}{then}\n", ["--no-requeue", *options])
        self.cluster.wait_until(lambda: self.notes("start"), WAIT_S, "the start note")
        if writer != "no":
            self.cluster.wait_until(self.writes, WAIT_S, "the process that leaves its job to write")
        return self.start()

    def start(self) -> dict[str, Any]:
        """The first execution's start note."""
        return self.notes("start")[0]

    def writes(self) -> bool:
        """The process that left its job has written something."""
        return self.cluster.run("login", ["test", "-s", self.beat], check=False).status == 0

    def question(self, *, evidence: bool = True) -> bytes:
        """What the controller would ask about the first execution now."""
        start = self.start()
        words = [
            NodeWord(note["node"], note["clean"], note["verified"], note["how"], note["at"])
            for note in sorted(self.notes("node"), key=lambda note: float(note["at"]))
            if note["attempt"] == start["attempt"]
        ]
        asked = AskedExecution(
            start["cluster"], start["slurm_job_id"], start["attempt"], expand(start["nodes"]), start["start_time"],
            None, start["uid"], start["user"], tuple(words) if evidence else (),
        )  # fmt: skip
        return question(asked)

    def ask(self, name: str, *, evidence: bool = True, patient: bool = False) -> str:
        """A ready-made command's answer about the first execution, given on ctl as SlurmUser."""
        data = self.question(evidence=evidence).decode()
        argv = (PATIENT if patient else COMMANDS)[name]
        done = self.cluster.run("ctl", argv, user="slurm", input=data, check=False, timeout_s=WAIT_S)
        self.said = f"{name}: {done.status} {done.stdout} {done.stderr}"
        return MEANING.get(done.status, "unknown")

    def answers(self, names: Sequence[str] = tuple(COMMANDS), *, evidence: bool = True) -> dict[str, str]:
        """The answer of each."""
        return {name: self.ask(name, evidence=evidence) for name in names}

    def wait_answer(self, name: str, answer: str, *, evidence: bool = True) -> None:
        """Wait until the command answers so; only for an answer that the nodes, which are there, have to give."""

        def asked() -> bool:
            return self.ask(name, evidence=evidence, patient=True) == answer

        try:
            self.cluster.wait_until(asked, WAIT_S, f"{name} to say {answer}", every_s=0.5)
        except Exception as error:
            raise AssertionError(f"{self.said}\n{self.question()!r}\n{error}") from error
