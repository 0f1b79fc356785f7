"""A place to run a hook in: settings, notes, spool and execution files below one folder."""

from __future__ import annotations

import glob
import json
import os
import re
import shutil
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

TOP = Path(__file__).resolve().parent.parent.parent
HOOKS = TOP / "hooks"
NAMES = ("prolog-slurmctld", "prolog", "task-prolog", "epilog", "epilog-slurmctld")
PYTHON_HOOKS = (*(name for name in NAMES if name != "task-prolog"), "boot")
SYSTEM_PYTHON = "/usr/bin/python3"
WANTED = ("3.6", "3.9", "3.11", "3.13")
DEADLINE_S = 60.0
"""For one run of a hook whose own deadline is 5 s."""
START = 1700000000


def pythons() -> dict[str, str]:
    """The system's Python, always, and of :data:`WANTED` those that are installed: version to path."""
    found = {"system": SYSTEM_PYTHON}
    for version in WANTED:
        known = sorted(glob.glob(os.path.expanduser(f"~/.pyenv/versions/{version}.*/bin/python3")))
        on_path = shutil.which(f"python{version}")
        if known or on_path:
            found[version] = known[-1] if known else str(on_path)
    return found


PYTHONS = pythons()


SHELLS = {"sh": "/bin/sh", **{name: path for name in ("dash", "bash") if (path := shutil.which(name))}}
"""What can be ``/bin/sh``: the system's own, and dash and bash where they are installed."""


@dataclass(frozen=True)
class Ended:
    """How a hook ended."""

    status: int
    stdout: bytes
    stderr: bytes


@dataclass
class Lab:
    """Folders of one test, and the environment that Slurm would give."""

    folder: Path
    python: str = SYSTEM_PYTHON
    settings: dict[str, str] = field(default_factory=dict)
    hooks: Path = HOOKS

    def __post_init__(self) -> None:
        self.notes = self.folder / "notes"
        self.run_folder = self.folder / "run"
        self.spool = self.folder / "spool"
        self.conf = self.folder / "node.conf"
        self.notes.mkdir(mode=0o700)
        self.configure()

    def configure(self, **settings: str) -> None:
        """Write the settings file."""
        self.settings = {
            "notes": str(self.notes),
            "spool": str(self.spool),
            "slurm_user": str(os.geteuid()),
            "deadline_s": "30",
            **settings,
        }
        self.conf.write_text("".join(f"{name}={value}\n" for name, value in self.settings.items()))

    def environment(self, **changes: str | None) -> dict[str, str]:
        """What Slurm 24.11 gives a hook for job 7, first execution; ``None`` takes a variable away."""
        given = {
            "SLURM_CLUSTER_NAME": "lab",
            "SLURM_JOB_ID": "7",
            "SLURM_JOB_UID": "54321",
            "SLURM_JOB_USER": "ada",
            "SLURM_JOB_PARTITION": "low",
            "SLURM_JOB_NODELIST": "c[1-2]",
            "SLURM_JOB_COMMENT": "mine dispatch:abc:0:1",
            "SLURM_JOB_RESTART_COUNT": "0",
            "SLURM_JOB_START_TIME": str(START),
            "SLURMD_NODENAME": "c1",
        }
        for name, value in changes.items():
            if value is None:
                given.pop(name, None)
            else:
                given[name] = value
        return given

    def argv(self, hook: str) -> list[str]:
        """The command line of a hook in this lab."""
        if hook == "task-prolog":
            return [str(self.hooks / hook), str(self.run_folder)]
        return [str(self.hooks / hook), str(self.conf), str(self.run_folder), self.python]

    def run(self, hook: str, *, before: list[str] | None = None, **changes: str | None) -> Ended:
        """Run a hook to its end, with nothing in its environment but what Slurm gives."""
        return run([*(before or []), *self.argv(hook)], self.environment(**changes))

    def note(self, pattern: str) -> dict[str, Any]:
        """The one note whose name matches a glob."""
        found = list(self.notes.glob(pattern))
        assert len(found) == 1, f"{pattern}: {[path.name for path in self.notes.iterdir()]}"
        return read_note(found[0])

    def names(self) -> list[str]:
        """The kinds of the notes that are there, sorted, and anything unfinished whole."""
        return sorted(
            path.name if path.name.startswith(".") else path.name.partition(".")[0] for path in self.notes.iterdir()
        )

    def files(self) -> list[str]:
        """The names in the folder of the execution files."""
        return sorted(path.name for path in self.run_folder.iterdir()) if self.run_folder.exists() else []


def read_note(path: Path) -> dict[str, Any]:
    """A note, which must be one whole JSON object of version 1."""
    text = path.read_bytes()
    assert text.endswith(b"}\n")
    fields = json.loads(text)
    assert fields["v"] == 1
    return dict(fields)


def run(argv: list[str], environment: dict[str, str] | dict[bytes, bytes]) -> Ended:
    """Run with exactly this environment."""
    ended = subprocess.run(argv, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=DEADLINE_S)
    return Ended(ended.returncode, ended.stdout, ended.stderr)


@contextmanager
def waiting(environment: dict[str, str], *, user: int | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """A process of exactly this environment that does nothing until it is ended."""
    argv = ["/bin/sh", "-c", "echo up; read line"]
    groups: list[int] | None = None if user is None else []
    with subprocess.Popen(
        argv,
        env=environment,
        user=user,
        group=user,
        extra_groups=groups,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        yield process
        process.kill()


def exported(output: bytes) -> dict[str, str | None]:
    """What slurmstepd makes of a TaskProlog's output; any line that is neither form is an error here."""
    result: dict[str, str | None] = {}
    for line in output.decode().splitlines():
        export = re.fullmatch(r"export ([A-Z_]+)=(.+)", line)
        unset = re.fullmatch(r"unset ([A-Z_]+)", line)
        assert export or unset, f"slurmstepd would not know {line!r}"
        if export:
            result[export[1]] = export[2]
        elif unset:
            result[unset[1]] = None
    return result


if str(HOOKS / "python") not in sys.path:
    sys.path.append(str(HOOKS / "python"))
