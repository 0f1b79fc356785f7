"""A store in S3 for the jobs of the real cluster, and the main job with its root there.

SeaweedFS runs on this machine and listens on the address that the cluster's network has here, so the hosts reach it
as they would any server. Credentials and endpoint are in files of the user's home, as the AWS command line has them.
"""

from __future__ import annotations

import json
import os
import secrets
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from demo.mainjob import MARKER, PROGRAM, MainJob
from demo.witness import Account, account
from docker.rig import COMMAND_S, PATIENCE_S, ROOT
from slurm_dispatch.s3.bucket import Bucket
from slurm_dispatch.s3.place import parse_place
from slurm_dispatch.s3.root import S3Root
from slurm_dispatch.s3.settings import settings
from tests.s3.servers import BUCKET, KEY, SECRET, Seaweed

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from docker.rig import Cluster

DISK = "/var/tmp/saves"
"""On a node, and no other host sees it: each container has its own."""
CREDENTIALS = f"[default]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n"
SCRIPT = """#!/bin/sh
{directives}
exec dispatch-watch --from {disk} --done {marker} --interval 0.3 -- \\
    python3 {program} --output_dir {{dir}} {{resume:--resume_from_checkpoint}} {training}
"""


class Store:
    """A running SeaweedFS that every host of the cluster reaches, and ``dispatch`` on them that can use it."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster = cluster
        routes = cluster.run("login", ["ip", "route", "show", "default"]).stdout
        self.server = Seaweed(folder, host=routes.split()[2])
        fetch = [os.path.join(ROOT, "tools", "fetch-s3")]
        subprocess.run(fetch, env={**os.environ, "PYTHON": sys.executable}, check=True, timeout=4 * PATIENCE_S)

    def up(self) -> None:
        """Start it, install the client on each host as an admin does, and give ada its credentials."""
        hosts = [host for host in self.cluster.hosts if host != "ctl"]  # the controller opens no root
        with ThreadPoolExecutor(len(hosts) + 1) as pool:
            started = pool.submit(self.server.start)
            install = ["sh", "/src/docker/install", "s3"]
            list(pool.map(lambda host: self.cluster.run(host, install, timeout_s=PATIENCE_S), hosts))
            started.result()
        self.credentials("ada")

    def credentials(self, user: str, *, secrets_are: str = CREDENTIALS, endpoint: str | None = None) -> None:
        """What ``aws configure`` leaves in the user's home, which every host sees."""
        config = f"[default]\nregion = us-east-1\nendpoint_url = {endpoint or self.server.endpoint}\n"
        self.cluster.write(f"/home/{user}/.aws/credentials", secrets_are, user=user, mode="600")
        self.cluster.write(f"/home/{user}/.aws/config", config, user=user, mode="600")

    def opened(self, root: str) -> S3Root:
        """A root in it, as this process sees it."""
        secret = self.server.folder / "credentials"  # the client itself would take keys of the environment only
        secret.write_text(CREDENTIALS, encoding="ascii")
        files = {"AWS_SHARED_CREDENTIALS_FILE": str(secret), "AWS_CONFIG_FILE": os.devnull, "AWS_REGION": "us-east-1"}
        given = settings({**files, "AWS_ENDPOINT_URL": self.server.endpoint})
        return S3Root(Bucket(parse_place(root), given, timeout_s=COMMAND_S))


class RemoteJob(MainJob):
    """The main job with its root in S3, which saves on its node's own disk."""

    def __init__(self, store: Store, name: str, *, user: str = "ada") -> None:
        super().__init__(store.cluster, name, user=user)
        self.store = store
        self.said = Account([], [])
        self.root = f"s3://{BUCKET}/{name}-{secrets.token_hex(3)}"

    def begin(self, options: Sequence[str], training: Sequence[str] = (), *, rule: str) -> RemoteJob:
        """Submit it as a user does, from the login host."""
        words = ["--ignore-term", "--steps", "1000000", "--stop-file", self.stop_file, "--log_dir", self.logs,
                 "--step-time", "0.1", "--save_steps", "5", "--save_total_limit", "5", *training]  # fmt: skip
        directives = "\n".join([
            f"#SBATCH --job-name={self.name}", "#SBATCH --partition=low", f"#SBATCH --output={self.folder}/out-%j",
            f"#DISPATCH --checkpoint {self.root}", f"#DISPATCH --on {rule}",
        ])
        script = SCRIPT.format(
            directives=directives, disk=DISK, marker=MARKER, program=PROGRAM, training=shlex.join(words)
        )
        self.submit_script(script, options)
        return self

    def submit_script(self, script: str, options: Sequence[str] = ()) -> RemoteJob:
        """See :meth:`MainJob.submit_script`; there is no root to make."""
        root, self.root = self.root, self.folder
        try:
            super().submit_script(script, options)
        finally:
            self.root = root
        return self

    # What is known of it. Of the time of a publication the store tells whole seconds.

    def logs_only(self) -> Account:
        """What the trainings logged: the store is not asked."""
        return account(self._logged(), "")

    def _logged(self) -> str:
        read = f"cd {self.logs} && for log in *.jsonl; do cat -- $log && printf '\\000'; done 2>/dev/null; :"
        return self.cluster.sh("login", read, user=self.user)

    def account(self) -> Account:
        """What the trainings logged and what is published."""
        logs = self._logged()
        root = self.store.opened(self.root)
        bucket, folder = root.bucket, root.place.key("pub")
        listed = [one for page in bucket._library.list(bucket._store(), folder) for one in page]
        return account(logs, "\n".join(
            f"{one['last_modified'].timestamp()} {one['path'].rpartition('/')[2]}" for one in listed
        ))

    def out(self, job: int | str) -> str:
        """What the job of this id said so far."""
        return self.cluster.sh("login", f"cat {self.folder}/out-{job} 2>/dev/null || :", user=self.user)

    def dispatch(self, *words: str, check: bool = True) -> str:
        """What a command that its user gives on the login host prints."""
        done = self.cluster.run("login", ["dispatch", *words], user=self.user, check=check)
        return done.stdout

    def latest(self) -> str:
        """What ``dispatch latest`` prints."""
        return self.dispatch("latest", "--root", self.root).removesuffix("\n")

    def fetched(self) -> str:
        """The latest save, brought to the login host by ``dispatch fetch``."""
        to = f"{self.folder}/fetched-{secrets.token_hex(3)}"
        self.cluster.run("login", ["mkdir", to], user=self.user)
        return self.dispatch("fetch", "--root", self.root, "--to", to).removesuffix("\n")

    def state(self, save: str) -> Any:
        """The marker of a save on the login host."""
        return json.loads(self.cluster.run("login", ["cat", "--", f"{save}/{MARKER}"], user=self.user).stdout)
