"""A site with a person at its terminal: the commands that people give, with a stand-in Slurm."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pwd
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from slurm_dispatch.cli.main import COMMANDS, dispatch, main
from slurm_dispatch.controller import job as passes
from slurm_dispatch.controller.tick import identity
from slurm_dispatch.slurm import commands
from slurm_dispatch.state.as_user import in_child
from slurm_dispatch.state.folder import StateFolder
from tests.controller.fake_slurm import FakeSlurm
from tests.controller.sites import OWNER, make_site

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pytest

    from slurm_dispatch.records.facts import Fact
    from slurm_dispatch.records.state import State
    from slurm_dispatch.slurm.port import Accepted, SbatchCall, SubmitAnswer
    from tests.controller.sites import Site

SBATCH = """#!/bin/sh
case $1 in
--version) echo slurm 24.11.5 ;;
--help) echo '      --plugged=value     an option of a plugin' ;;
*) exit 1 ;;
esac
"""


class Recording(FakeSlurm):
    """Keeps what each submission was called with, and who called; what it makes is the owner's.

    :param uid: the owner's, as whom the rig's passes, which are not in a child of his, submit too.
    """

    def __init__(self, folder: str, uid: int) -> None:
        super().__init__(folder)
        self.uid = uid

    def submit(self, call: SbatchCall, accepted: Callable[[Accepted], None] | None = None) -> SubmitAnswer:
        """As :class:`FakeSlurm`."""
        before = set(self.ids())
        try:
            return super().submit(call, accepted)
        finally:
            for number in set(self.ids()) - before:
                own = (call.job_environment or b"").decode("utf-8", "surrogateescape").split("\0")
                handed = dict(it.split("=", 1) for it in own if it)
                script = call.script.decode() if call.script_at is not None else ""
                self.set(number, handed=handed, own=dict(call.environment), caller=os.geteuid(), script=script,
                         uid=self.uid)  # fmt: skip


PASSES_MAX = 8


@dataclass(frozen=True, slots=True)
class Said:
    """What came of a command."""

    status: int
    out: str
    err: str

    def __str__(self) -> str:
        return f"{self.status}\n{self.out}\n{self.err}"


class Desk:
    """One site, whose jobs belong to :data:`OWNER`, or in user mode to who runs the tests.

    :ivar root: the tests run as root, so that root can act for the owner.
    """

    def __init__(self, site: Site) -> None:
        self.site, self.rig, self.root = site, site.rig, site.root
        self.slurm = self.rig.slurm = self.rig.port = Recording(str(site.folder / "slurm"), self.rig.uid)
        self.home = str(site.folder / "home")
        os.mkdir(self.home)
        os.chown(self.home, self.rig.uid, -1)

    def dispatch(self, *words: str, by_root: bool = False) -> Said:
        """The command, given by the owner of the jobs in his home, or by root."""
        if not self.root or by_root:
            return _said(*words)
        user = pwd.getpwnam(OWNER)

        def work() -> bytes:
            os.chdir(self.home)
            said = _said(*words)
            return json.dumps([said.status, said.out, said.err]).encode()

        return Said(*json.loads(in_child(user.pw_uid, *identity(user.pw_uid), work, 120.0)))

    def ok(self, *words: str, by_root: bool = False) -> str:
        """The same, and it must be done without a complaint; what it printed."""
        said = self.dispatch(*words, by_root=by_root)
        assert (said.status, said.err) == (0, ""), said
        return said.out

    def refused(self, status: int, *words: str, by_root: bool = False) -> str:
        """The same, and it must be refused in one line; that line."""
        said = self.dispatch(*words, by_root=by_root)
        assert (said.status, said.out) == (status, ""), said
        assert said.err.count("\n") == 1, said
        assert said.err.startswith("dispatch: "), said
        return said.err.strip()

    # Jobs.

    def job(self, *rules: str, **about: Any) -> str:
        """A job whose first submission waits in Slurm."""
        return self.rig.job(*rules, **about)

    def running(self, *rules: str, **about: Any) -> str:
        """One that runs."""
        key = self.job(*rules, **about)
        self.rig.start(key)
        self.tick()
        assert self.phase(key) == "running"
        return key

    def ended(self, key: str, *states: str) -> None:
        """Its current object ends in these states, and the tick decides."""
        self.slurm.end(self.rig.object(key), *states)
        self.tick()

    def held(self, **about: Any) -> str:
        """One that its rule holds."""
        key = self.running("failed:hold", **about)
        self.ended(key, "FAILED")
        assert self.phase(key) == "held"
        return key

    def waiting(self, **about: Any) -> str:
        """One whose next submission is decided and not made."""
        key = self.running(**about)
        self.decided(key)
        return key

    def decided(self, key: str) -> None:
        """What ran was preempted, and its replacement is decided."""
        self.add(key, "end", submission=1, slurm_job_id=self.rig.object(key), restart=0, start_time=None,
                 outcome="preempted", evidence={}, final=True)  # fmt: skip
        decided = {"outcome": "preempted", "action": "resubmit", "rule": "preempted:resubmit", "budget_used": 0}
        rest = {"budget": None, "reason": "the rule", "submission": 2, "not_before": None, "close": None}
        self.add(key, "decision", on=self.state(key).seq, changes=["--time=2:00:00"], **decided, **rest)
        assert self.phase(key) == "waiting"

    def submitting(self, **about: Any) -> str:
        """One with an intent that has no answer."""
        key = self.job(submitted=False, **about)
        assert self.phase(key) == "submitting"
        return key

    def closed(self, **about: Any) -> str:
        """One that has completed."""
        key = self.running(**about)
        self.ended(key, "COMPLETED")
        assert self.phase(key) == "closed"
        return key

    def tick(self) -> None:
        """Ticks until nothing moves any more."""
        before: dict[str, int] = {}
        for _ in range(PASSES_MAX):
            self.rig.tick()
            self.site.hand_over()
            folders = {key: self.rig.record(key).facts_folder for key in self.keys()}
            now = {key: len(os.listdir(path)) for key, path in folders.items() if os.path.isdir(path)}
            if now == before:
                return
            before = now
        raise AssertionError(f"still moving: {[report.lines for report in self.rig.reports.values()]}")

    def add(self, key: str, kind: str, **body: Any) -> Fact:
        """A fact of somebody else's."""
        seq = len(self.rig.facts(key)) + 1
        assert self.rig.record(key).append(seq, kind, "tick@other", body)
        self.site.hand_over()
        return self.rig.facts(key)[-1]

    def state(self, key: str) -> State:
        """What its facts make."""
        return self.rig.state(key)

    def phase(self, key: str) -> str:
        """Where it is."""
        return self.state(key).phase.value

    def keys(self) -> set[str]:
        """All jobs."""
        return {job.key for job in StateFolder(self.rig.path).jobs()}

    def object(self, number: int) -> dict[str, Any]:
        """What Slurm knows of an object."""
        return self.slurm.job(number)

    def file(self, name: str, content: str) -> str:
        """A file of the owner's in his home; its path."""
        path = os.path.join(self.home, name)
        with open(path, "w", encoding="utf-8") as stream:
            stream.write(content)
        os.chown(path, self.rig.uid, -1)
        return path


def _said(*words: str) -> Said:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(list(words))
    return Said(status, out.getvalue(), err.getvalue())


def _instead(slurm: FakeSlurm, *_: Any, **__: Any) -> FakeSlurm:
    return slurm


def make_desk(monkeypatch: pytest.MonkeyPatch, *lines: str) -> Iterator[Desk]:
    """A desk; ``lines`` stand in the site's configuration."""
    for site in make_site():
        desk = Desk(site)
        config = site.install({"sbatch": SBATCH}, *lines)
        monkeypatch.setenv("DISPATCH_CONFIG", str(config))
        monkeypatch.setenv("DISPATCH_TRACEBACK", "1")
        for module in (commands, passes):
            monkeypatch.setattr(module, "SlurmCommands", partial(_instead, desk.slurm))
        for name in COMMANDS:  # before anybody gives up the right to read them
            dispatch.get_command(None, name)  # type: ignore[arg-type]
        yield desk
