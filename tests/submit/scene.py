"""A user's host: a state folder, a checkpoint root's parent, and stand-ins for Slurm's commands (FX-SB)."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurm_dispatch.errors import NothingThereError
from slurm_dispatch.records.fold import fold
from slurm_dispatch.state.as_user import in_child
from slurm_dispatch.state.folder import StateFolder, make_state

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from slurm_dispatch.records.facts import Fact
    from slurm_dispatch.state.jobs import Record

DEADLINE_S = 120.0
COMMANDS = ("sbatch", "squeue", "scontrol", "sacct", "scancel")
SCRIPT = "#!/bin/bash\n#SBATCH -n1\nexec dispatch-watch -- python3 train.py\n"


def person() -> tuple[int, int, str]:
    """Who the user is: the caller, or somebody without rights where that is root."""
    found = pwd.getpwnam("nobody") if os.geteuid() == 0 else pwd.getpwuid(os.geteuid())
    return found.pw_uid, found.pw_gid, found.pw_name


@dataclass(frozen=True)
class Call:
    """One call of a stand-in."""

    argv: list[str]
    environment: dict[str, str]
    stdin: str
    files: dict[str, str]
    folder: str
    umask: int


@dataclass(frozen=True)
class Result:
    """How the command ended."""

    status: int
    stdout: bytes
    stderr: bytes

    @property
    def ours(self) -> list[str]:
        """Our own lines of stderr, without their prefix."""
        lines = self.stderr.decode("utf-8", "surrogateescape").splitlines()
        return [line.removeprefix("dispatch: ") for line in lines if line.startswith("dispatch: ")]

    @property
    def theirs(self) -> bytes:
        """stderr without our lines."""
        return b"".join(line for line in self.stderr.splitlines(keepends=True) if not line.startswith(b"dispatch: "))


class Scene:
    """See above. Use as a context manager."""

    def __init__(self, extra: str = "", *, at: Path | None = None) -> None:
        self.uid, self.gid, self.user = person()
        self.started: list[Running] = []
        # Below /tmp and not pytest's own folder, which only its owner may enter.
        self.path = at or Path(tempfile.mkdtemp(prefix="dispatch-scene-"))
        for name in ("bin", "answers", "calls", "home", "scratch"):
            (self.path / name).mkdir()
        for name in COMMANDS:
            shutil.copy(Path(__file__).with_name("stub.py"), self.path / "bin" / name)
            (self.path / "bin" / name).chmod(0o755)
        make_state(str(self.path / "state"), slurm_uid=self.uid, slurm_gid=self.gid)
        self.config = self.path / "dispatch.toml"
        self.config.write_text(f'state = "{self.path}/state"\nsubmit_timeout_s = 60\nquery_timeout_s = 60\n{extra}')
        self.home = self.path / "home"
        (self.home / "train.sh").write_text(SCRIPT)
        self.root = self.path / "scratch" / "run"
        if os.geteuid() == 0:
            for folder, _, files in os.walk(self.path):
                for path in [folder, *(os.path.join(folder, name) for name in files)]:
                    os.chown(path, self.uid, self.gid)

    @staticmethod
    def owner() -> int:
        """The user's uid."""
        return person()[0]

    def __enter__(self) -> Scene:  # noqa: PYI034 - nobody derives from it
        return self

    def __exit__(self, *_: object) -> None:
        for running in self.started:
            running.end()
        shutil.rmtree(self.path)

    def answer(self, command: str, **knobs: Any) -> None:
        """What a stand-in does from now on."""
        (self.path / "answers" / f"{command}.json").write_text(json.dumps(knobs))

    def environment(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """The user's environment."""
        return {
            "PATH": f"{self.path}/bin:/usr/bin:/bin",
            "HOME": str(self.home),
            "USER": self.user,
            "DISPATCH_CONFIG": str(self.config),
            "PYTHONDONTWRITEBYTECODE": "1",
            **(more or {}),
        }

    def write(self, name: str, content: str | bytes) -> str:
        """A file in the user's folder; returns its name."""
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content)
        return name

    def start(self, argv: Sequence[str], *, stdin: bytes = b"", env: Mapping[str, str] | None = None) -> Running:
        """Start ``dispatch ARGV`` as the user, in a fork: nothing has to be loaded again."""
        out, err, given = (tempfile.TemporaryFile() for _ in range(3))  # noqa: SIM115 - closed by whoever waits
        given.write(stdin)
        given.seek(0)
        sys.stdout.flush()
        sys.stderr.flush()
        child = os.fork()
        if child == 0:
            try:
                for number, file in enumerate((given, out, err)):
                    os.dup2(file.fileno(), number)
                sys.stdin = open(0, closefd=False)  # noqa: SIM115
                sys.stdout, sys.stderr = (open(number, "w", closefd=False) for number in (1, 2))  # noqa: SIM115
                self._become()
                os.environ.clear()
                os.environ.update(self.environment(env))
                os._exit(_run_main(list(argv)))
            finally:
                os._exit(99)
        given.close()
        running = Running(child, out, err)
        self.started.append(running)
        return running

    def run(self, *argv: str, stdin: bytes = b"", env: Mapping[str, str] | None = None) -> Result:
        """Run ``dispatch ARGV`` as the user and wait for it."""
        return self.start(argv, stdin=stdin, env=env).wait()

    def sbatch(self, *argv: str, stdin: bytes = b"", env: Mapping[str, str] | None = None) -> Result:
        """``dispatch sbatch --checkpoint ROOT ARGV``."""
        return self.run("sbatch", "--checkpoint", str(self.root), *argv, stdin=stdin, env=env)

    def _become(self) -> None:
        if os.geteuid() == 0:
            os.setgroups([])
            os.setresgid(self.gid, self.gid, self.gid)
            os.setresuid(self.uid, self.uid, self.uid)
        os.umask(0o022)
        os.chdir(self.home)
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def accepted(self) -> bool:
        """Slurm has taken a job: its line is there whole, and the queue shows it."""
        path = self.path / "jobs"
        return path.exists() and path.read_bytes().endswith(b"\n")

    def calls(self, command: str) -> list[Call]:
        """The calls of one stand-in in their order; of sbatch only those that were to submit."""
        found = []
        for path in sorted((self.path / "calls").iterdir()):
            if path.name.endswith(f"-{command}"):
                call = Call(**json.loads(path.read_text(encoding="utf-8", errors="surrogateescape")))
                if command != "sbatch" or call.argv[:1] not in (["--version"], ["--help"]):
                    found.append(call)
        return found

    def call(self) -> Call:
        """The only submission."""
        (call,) = self.calls("sbatch")
        return call

    def records(self) -> list[Record]:
        """All records, by key."""
        folder = StateFolder(str(self.path / "state"))
        return [folder.record(job.key) for job in folder.jobs()]

    def record(self) -> Record:
        """The only record."""
        (record,) = self.records()
        return record

    def append(self, kind: str, **body: Any) -> None:
        """Add a fact to the only record, as a tick elsewhere does: with the owner's rights."""
        record = self.record()

        def work() -> bytes:
            assert record.append(len(record.read()) + 1, kind, "tick@other", body)
            return b""

        in_child(self.uid, self.gid, (), work, DEADLINE_S)

    def facts(self) -> list[Fact]:
        """The facts of the only record, which must fold."""
        facts = self.record().read()
        fold(facts)
        return facts

    def facts_so_far(self) -> list[Fact]:
        """The facts of the only record while it is being made; none before fact 1 is there."""
        try:
            return [fact for record in self.records() for fact in record.read()]
        except NothingThereError:
            return []

    def kinds(self) -> list[str]:
        """Their kinds."""
        return [fact.kind for fact in self.facts()]


class Running:
    """A command that runs."""

    def __init__(self, child: int, out: Any, err: Any) -> None:
        self.child, self.out, self.err = child, out, err
        self.ended = False

    def signal(self, number: int) -> None:
        """Send it a signal."""
        os.kill(self.child, number)

    def wait(self) -> Result:
        """Wait until it ends; killed, and an error, after two minutes."""
        end = time.monotonic() + DEADLINE_S
        while True:
            ended, status = os.waitpid(self.child, os.WNOHANG)
            if ended:
                self.ended = True
                break
            if time.monotonic() > end:
                os.kill(self.child, signal.SIGKILL)
                os.waitpid(self.child, 0)
                self.ended = True
                raise AssertionError(f"no end after {DEADLINE_S} s: {self._text()}")
            time.sleep(0.01)
        return Result(os.waitstatus_to_exitcode(status), *self._text())

    def said(self) -> bytes:
        """What it has written on stderr so far."""
        return os.pread(self.err.fileno(), 1 << 20, 0)

    def end(self) -> None:
        """Kill it if it still runs, for a test that failed before it waited."""
        if not self.ended:
            self.ended = True
            os.kill(self.child, signal.SIGKILL)
            os.waitpid(self.child, 0)
            self.out.close()
            self.err.close()

    def _text(self) -> tuple[bytes, bytes]:
        found = []
        for file in (self.out, self.err):
            with file:
                file.seek(0)
                found.append(file.read())
        return found[0], found[1]


def until(what: str, condition: Any, deadline_s: float = DEADLINE_S) -> None:
    """Wait for a condition."""
    end = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"not within {deadline_s} s: {what}")
        time.sleep(0.01)


def _run_main(argv: list[str]) -> int:
    from slurm_dispatch.cli.main import main

    try:
        return main(argv)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


# Loaded before any fork, so that the child, who may not be able to read them, has them.
import slurm_dispatch.cli.main  # noqa: E402
import slurm_dispatch.cli.plan  # noqa: E402
import slurm_dispatch.cli.sbatch  # noqa: E402
import slurm_dispatch.config.site  # noqa: E402
import slurm_dispatch.slurm.commands  # noqa: E402
import slurm_dispatch.submit.first  # noqa: E402
import slurm_dispatch.submit.plan_text  # noqa: E402
import slurm_dispatch.submit.request  # noqa: E402, F401
