"""A state folder, a stand-in Slurm and the hooks' notes: what a controller sees, laid out by hand."""

from __future__ import annotations

import json
import os
import socket
import time
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from slurm_dispatch.controller import owner
from slurm_dispatch.controller.job import Means, Report
from slurm_dispatch.controller.view import View, key_in, notes_by_key
from slurm_dispatch.model.epoch import Epoch
from slurm_dispatch.model.identity import Word, attempt_of, new_key
from slurm_dispatch.records.fold import fold
from slurm_dispatch.records.policy import Policy
from slurm_dispatch.records.spec import Spec
from slurm_dispatch.state.folder import StateFolder, make_state
from tests.controller.fake_slurm import FakeSlurm

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from slurm_dispatch.records.facts import Fact
    from slurm_dispatch.records.state import State
    from slurm_dispatch.slurm.port import SlurmPort
    from slurm_dispatch.state.jobs import Record

SCRIPT = b"#!/bin/sh\nexec train\n"
MESSAGE_TIMEOUT_S = 10.0
SUBMIT_TIMEOUT_S = 5.0
WAIT_S = SUBMIT_TIMEOUT_S + 2 * MESSAGE_TIMEOUT_S


class Rig:
    """One site.

    :ivar later_s: how far the controller's clock is ahead of the real one.
    """

    def __init__(self, folder: Path, *, uid: int | None = None, slurm: SlurmPort | None = None) -> None:
        self.path = str(folder / "state")
        self.uid = os.getuid() if uid is None else uid
        if not os.path.isdir(self.path):
            make_state(self.path, slurm_uid=os.getuid(), slurm_gid=os.getgid())
        self.folder = StateFolder(self.path)
        aside = str(folder / "aside")
        make_state(aside, slurm_uid=os.getuid(), slurm_gid=os.getgid())
        self._aside = StateFolder(aside)
        self._laid: list[str] | None = None
        self.slurm = FakeSlurm(str(folder / "slurm"))
        self.port: SlurmPort = self.slurm if slurm is None else slurm
        self.later_s = 0.0
        self.reports: dict[str, Report] = {}

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Whoever works on the site sees nothing of the jobs and notes that this block makes before it ends.

        Then the jobs come, whole, and the notes in their order, each belonging to whom it must belong to.
        """
        if self._laid is not None:
            yield
            return
        self._laid = []
        try:
            yield
            self._show(self._laid)
        finally:
            self._laid = None

    def _show(self, notes: list[str]) -> None:
        for key in sorted(os.listdir(self._aside.jobs_folder)):
            made = os.path.join(self._aside.jobs_folder, key)
            for top, _, names in os.walk(made):
                for path in (top, *(os.path.join(top, name) for name in names)):
                    os.chown(path, self.uid, -1)
            os.rename(made, os.path.join(self.folder.jobs_folder, key))
        into = os.path.join(self.path, "notes")
        owner_of_notes = os.stat(into)
        for name in notes:
            made = os.path.join(self._aside.path, "notes", name)
            os.chown(made, owner_of_notes.st_uid, owner_of_notes.st_gid)
            os.replace(made, os.path.join(into, name))

    # A job and what the hooks and the helper say of it.

    def spec(self, *rules: str, shared: bool = False, key: str | None = None, **more: Any) -> Spec:
        """A specification; ``more`` are fields that differ."""
        spec = Spec(
            job=key or new_key(), generation=0, user="ada", uid=self.uid, gid=os.getgid(), groups=(), cluster="fake",
            name="train", root="/ckpt", shared=shared, argv=("--job-name=train",), script_name="train.sh",
            script_args=(), script_sha256="0" * 64, wrap=False, workdir="/tmp", umask=0o022, comment="mine",
            rules=rules, max_submissions=100, start_from=None, host="login",
        )  # fmt: skip
        return replace(spec, **more)

    def job(self, *rules: str, submitted: bool = True, **about: Any) -> str:
        """A job as the wrapper leaves it: record, intent, object, ``submitted``.

        :param submitted: false leaves the intent without an answer, and no object.
        """
        spec = self.spec(*rules, **about)
        with self.at_once():
            record = self._aside.create_job(spec, SCRIPT, b"HOME=/home/ada\0", by="user:ada@login")
            word = spec.word(1)
            assert record.append(2, "intent", "user:ada@login", {
                "submission": 1, "word": str(word), "host": "login", "deadline": time.time() + SUBMIT_TIMEOUT_S,
                "wait_s": WAIT_S, "changes": [], "decision": None})  # fmt: skip
            if submitted:
                number = self.slurm.plain(comment=f"mine {word}", uid=self.uid)
                assert record.append(3, "submitted", "user:ada@login", {
                    "submission": 1, "cluster": "fake", "slurm_job_id": number, "how": "answer"})  # fmt: skip
        return spec.job

    def record(self, key: str) -> Record:
        """The record of a job."""
        made = self._aside.record(key)
        return made if os.path.isdir(made.folder) else self.folder.record(key)

    def facts(self, key: str) -> list[Fact]:
        """Its facts."""
        return self.record(key).read()

    def kinds(self, key: str, after: int = 0) -> list[str]:
        """The kinds of its facts."""
        return [fact.kind for fact in self.facts(key)[after:]]

    def state(self, key: str) -> State:
        """What they make."""
        return fold(self.facts(key))

    def last(self, key: str, kind: str) -> Fact:
        """The last fact of a kind."""
        return [fact for fact in self.facts(key) if fact.kind == kind][-1]

    def object(self, key: str) -> int:
        """The Slurm job id of the latest submission that has one."""
        return int(self.last(key, "submitted").body["slurm_job_id"])

    def word(self, key: str) -> Word:
        """The identity word of the latest submission."""
        state = self.state(key)
        return state.spec.word(state.submissions[-1].number)

    def start(self, key: str, *, note: bool = True) -> int:
        """The current object starts, with its start note."""
        number = self.object(key)
        start = self.slurm.start(number)
        if note:
            self.start_note(key, number, start)
        return start

    def start_note(self, key: str, number: int, start: int, **fields: Any) -> None:
        """The note of PrologSlurmctld."""
        word = self.word(key)
        restart = self.slurm.job(number)["restart"]
        self.note(f"start.{_dotted(word)}.{number}.{restart}", word, number, {
            "restart": restart, "start_time": start, "attempt": attempt_of("fake", number, word, restart, start),
            "epoch": str(Epoch(word.generation, word.submission, restart)), "nodes": "c1", "uid": self.uid,
            "user": "ada", "partition": "low", "account": "ml", "array": None, "het_leader": None, "sluid": None,
            **fields})  # fmt: skip

    def refused_note(self, key: str, number: int, why: str, start: int) -> None:
        """The note of a PrologSlurmctld that refused."""
        word = self.word(key)
        restart = self.slurm.job(number)["restart"]
        self.note(f"refused.{_dotted(word)}.{number}.{restart}.{start}", word, number, {
            "restart": restart, "start_time": start, "why": why})  # fmt: skip

    def end_note(self, key: str, number: int | None = None, *, age_s: float = 0.0, **fields: Any) -> None:
        """The note of EpilogSlurmctld."""
        number = self.object(key) if number is None else number
        start = self.slurm.job(number)["start_time"]
        word, at = self.word(key), time.time() + self.later_s - age_s
        self.note(f"end.{_dotted(word)}.{number}.{start or 0}.{int(at * 1e9)}", word, number, {
            "start_time": start, "restart_seen": 0, "exit_code": "0:0", "nodes": "c1", "uid": self.uid,
            "at": at, **fields})  # fmt: skip

    def node_note(self, key: str, number: int) -> None:
        """The note of a node's Epilog: it is clean."""
        word, job = self.word(key), self.slurm.job(number)
        attempt = attempt_of("fake", number, word, job["restart"], job["start_time"])
        self.note(f"node.{_dotted(word)}.{number}.{attempt}.c1.{time.time_ns()}", word, number, {
            "attempt": attempt, "epoch": str(Epoch(word.generation, word.submission, job["restart"])), "node": "c1",
            "boot": "b", "clean": True, "left": [], "start_time": job["start_time"], "verified": True})  # fmt: skip

    def note(self, name: str, word: Word, number: int, fields: dict[str, Any]) -> None:
        """Leave a note."""
        body = {"v": 1, "job": word.job, "generation": word.generation, "submission": word.submission,
                "shared": word.shared, "cluster": "fake", "slurm_job_id": number, "at": time.time() + self.later_s,
                **fields}  # fmt: skip
        with self.at_once():
            with open(os.path.join(self._aside.path, "notes", name), "w", encoding="utf-8") as stream:
                json.dump(body, stream)
            assert self._laid is not None
            self._laid.append(name)

    def notes(self) -> list[str]:
        """The names in ``notes/``."""
        return sorted(os.listdir(os.path.join(self.path, "notes")))

    def helper(self, key: str, **fields: Any) -> None:
        """The helper's fact ``ended`` about the latest execution."""
        execution = self.state(key).submissions[-1].execution
        assert execution is not None
        facts = self.facts(key)
        body = {"attempt": execution.attempt, "epoch": str(execution.epoch), "status": None, "signal": None,
                "outcome": None, "step": None, **fields}  # fmt: skip
        assert self.record(key).append(len(facts) + 1, "ended", "watch@c1", body)

    # The controller.

    def means(self) -> Means:
        """What a pass works with."""
        return Means(port=self.port, policy=Policy(), by="tick@ctl", submit_timeout_s=SUBMIT_TIMEOUT_S,
                     message_timeout_s=MESSAGE_TIMEOUT_S, site_environment={"PATH": "/usr/bin:/bin"})  # fmt: skip

    def view(self) -> View:
        """What a pass knows now."""
        at = time.time() + self.later_s
        read = self.folder.notes().read()
        config = self.port.config()
        assert isinstance(config, dict)
        return View(at, socket.gethostname(), "fake", self.port.queue(),
                    "slurmdbd" in config["AccountingStorageType"], notes_by_key(read.notes), True, config,
                    frozenset(key_in(name) for name, _ in read.bad) | read.unread)  # fmt: skip

    def tick(self, *, view: View | None = None) -> dict[str, Report]:
        """One pass in this process: notes, queue, every job, and the notes that are facts now go."""
        view = self.view() if view is None else view
        keys = [job.key for job in self.folder.jobs()]
        answer = owner.work(self.folder.jobs_folder, self.uid, keys, view, self.means())
        reports = owner.unpack(answer, keys, self.notes())
        self.folder.notes().remove([name for report in reports for name in report.done_notes])
        self.reports = {report.key: report for report in reports}
        return self.reports

    def settle(self, passes: int = 6) -> None:
        """Pass until nothing moves any more; fails if it still does after ``passes``."""
        before: list[int] | None = None
        for _ in range(passes):
            self.tick()
            now = [len(self.facts(job.key)) for job in self.folder.jobs()]
            if now == before:
                return
            before = now
        raise AssertionError(
            f"still moving after {passes} passes: {[report.lines for report in self.reports.values()]}"
        )


def _dotted(word: Word) -> str:
    return f"{word.job}.{word.generation}.{word.submission}"
