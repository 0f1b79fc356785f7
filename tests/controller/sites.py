"""A whole site for the controller itself: with root, SlurmUser and an owner where the tests run as root, and in
user mode where they do not."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from slurm_dispatch.controller.tick import Controller, Settings
from slurm_dispatch.state.folder import make_state
from tests.controller.rig import Rig

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

TOP = Path(__file__).resolve().parents[2]
OWNER = "nobody"
SECOND_OWNER = "bin"
SLURM_USER = "daemon"


class Site:
    """A rig whose jobs belong to :data:`OWNER`, and a controller for it.

    :ivar log: what the controller said.
    """

    def __init__(self, folder: Path) -> None:
        self.root = os.geteuid() == 0
        self.folder = folder
        if self.root:
            os.umask(0)  # the owner's child writes into the stand-in Slurm's folder
            slurm = pwd.getpwnam(SLURM_USER)
            make_state(str(folder / "state"), slurm_uid=slurm.pw_uid, slurm_gid=slurm.pw_gid)
            os.chmod(folder / "state", 0o755)
        self.rig = Rig(folder, uid=pwd.getpwnam(OWNER).pw_uid if self.root else None)
        self.log: list[str] = []

    def controller(self, *, owner_timeout_s: float = 30.0) -> Controller:
        """A controller that knows nothing yet."""
        settings = Settings(state=self.rig.path, user_mode=not self.root, slurm_user=SLURM_USER, host="ctl",
                            owner_timeout_s=owner_timeout_s)  # fmt: skip
        return Controller(settings, self.rig.means(), self.log.append)

    def install(self, programs: Mapping[str, str], *lines: str) -> Path:
        """Put these scripts where Slurm's commands are looked for, and configure the commands for this site.

        :param lines: more of the configuration.
        :returns: the configuration's path.
        """
        commands = self.folder / "bin"
        commands.mkdir()
        for name, text in programs.items():
            (commands / name).write_text(text)
            (commands / name).chmod(0o755)
        mode = f'slurm_user = "{SLURM_USER}"' if self.root else "user_mode = true"
        config = self.folder / "dispatch.toml"
        settings = [f'state = "{self.rig.path}"', f'slurm_bin = "{commands}"', mode, *lines]
        config.write_text("\n".join(settings) + "\n")
        config.chmod(0o644)
        return config

    def dispatch(self, *words: str) -> subprocess.CompletedProcess[str]:
        """The command line, as a process of its own."""
        argv = [sys.executable, "-m", "slurm_dispatch.cli.main", *words]
        environment = {**os.environ, "PYTHONPATH": str(TOP), "DISPATCH_CONFIG": str(self.folder / "dispatch.toml"),
                       "DISPATCH_TRACEBACK": ""}  # fmt: skip
        return subprocess.run(
            argv, env=environment, cwd="/", capture_output=True, text=True, timeout=120, check=False
        )

    def hand_over(self, uid: int | None = None) -> None:
        """Give the facts and notes that this process added by itself to whom they belong to; not beside a loop."""
        if not self.root:
            return
        slurm, uid = pwd.getpwnam(SLURM_USER), self.rig.uid if uid is None else uid
        for name in self.rig.notes():
            os.chown(os.path.join(self.rig.path, "notes", name), slurm.pw_uid, slurm.pw_gid)
        for top, _, names in os.walk(os.path.join(self.rig.path, "jobs")):
            for path in (top, *(os.path.join(top, name) for name in names)):
                if os.path.basename(path) != "jobs" and os.stat(path).st_uid == 0:
                    os.chown(path, uid, -1)

    def preempted(self, uid: int | None = None) -> str:
        """A job of the owner (or of another uid) that was just preempted: a loop that runs sees that alone."""
        before, self.rig.uid = self.rig.uid, self.rig.uid if uid is None else uid
        try:
            with self.rig.at_once():
                key = self.rig.job()
                self.rig.start(key)
                self.rig.slurm.end(self.rig.object(key), "PREEMPTED", "COMPLETING")
                self.rig.end_note(key)
        finally:
            self.rig.uid = before
        return key


def make_site() -> Iterator[Site]:
    """A site in a folder that its users can reach (pytest's own are closed to others)."""
    folder = Path(tempfile.mkdtemp(prefix="dispatch-test-"))
    mask = os.umask(0o022)
    try:
        os.chmod(folder, 0o755)
        yield Site(folder)
    finally:
        os.umask(mask)
        shutil.rmtree(folder, ignore_errors=True)
