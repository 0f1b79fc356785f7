"""A site with very many jobs, made fast: real records and notes, and stand-ins for squeue and scontrol.

The stand-ins print text in the shape that squeue prints it, with the nonce of the call; each call adds a line to
:attr:`MadeSite.calls`.
"""

from __future__ import annotations

import json
import os
import pwd
import random
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from slurm_dispatch.model.epoch import Epoch
from slurm_dispatch.model.identity import KEY_CHARACTERS, KEY_LENGTH, Word, attempt_of
from slurm_dispatch.records.facts import Fact, fact_name, render
from slurm_dispatch.records.spec import Spec
from slurm_dispatch.state.folder import make_state

if TYPE_CHECKING:
    from collections.abc import Iterator

OWNERS = 8
"""As many users have jobs, if that many accounts are here; half of the jobs are the first one's."""
SLURM_USER = "daemon"
CLUSTER = "bench"
RUNNING_OF_FOUR = 3
"""Of four jobs so many run, and have a note of their start; the others wait."""
FIRST_ID = 1_000
AGE_S = 7_200
SQUEUE = """#!/bin/sh
printf 'squeue\\n' >>'{calls}'
for option; do
    case $option in --format=*) nonce=${{option#--format=}}; nonce=${{nonce%%'>'*}}'>' ;; esac
done
exec sed "s/@/$nonce/g" '{text}'
"""
SCONTROL = """#!/bin/sh
printf 'scontrol %s\\n' "$*" >>'{calls}'
cat <<'END'
AccountingStorageType   = accounting_storage/slurmdbd
ClusterName             = bench
MessageTimeout          = 10 sec
PrologSlurmctld         = /etc/slurm/prolog-slurmctld
SLURM_VERSION           = 24.11.5
END
"""


@dataclass(slots=True)
class MadeSite:
    """Where everything of it is.

    :ivar uids: the owners, turn by turn.
    :ivar folders: of facts, all of them.
    """

    path: str
    count: int
    uids: list[int] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)

    @property
    def state(self) -> str:
        return os.path.join(self.path, "state")

    @property
    def calls(self) -> str:
        return os.path.join(self.path, "calls")

    @property
    def squeue(self) -> str:
        return os.path.join(self.path, "bin", "squeue")

    @property
    def config(self) -> str:
        return os.path.join(self.path, "dispatch.toml")


@dataclass(frozen=True, slots=True)
class _Job:
    """One job; ``start`` is ``None`` while it waits. Times are Unix seconds."""

    word: Word
    uid: int
    slurm_job_id: int
    submitted: int
    start: int | None
    nodes: str


def make(path: str, count: int, *, seed: int = 1) -> MadeSite:
    """A site of ``count`` open jobs in ``path``, which is empty, all of them older than any clock's error."""
    site = MadeSite(path, count)
    root = os.geteuid() == 0
    os.chmod(path, 0o755)
    slurm = pwd.getpwnam(SLURM_USER).pw_uid if root else os.geteuid()
    make_state(site.state, slurm_uid=slurm, slurm_gid=-1 if root else os.getegid())
    site.uids = owners() if root else [os.geteuid()]
    os.mkdir(os.path.join(path, "bin"))
    text = os.path.join(path, "queue")
    with open(text, "w", encoding="ascii") as queue:
        queue.writelines(_jobs(site, slurm, random.Random(seed)))
    for name, program in (("squeue", SQUEUE), ("scontrol", SCONTROL)):
        file = os.path.join(path, "bin", name)
        with open(file, "w", encoding="ascii") as stream:
            stream.write(program.format(calls=site.calls, text=text))
        os.chmod(file, 0o755)
    with open(site.calls, "w", encoding="ascii"):
        os.chmod(site.calls, 0o666)
    with open(site.config, "w", encoding="ascii") as stream:
        stream.write(f'state = "{site.state}"\nslurm_bin = "{path}/bin"\nslurm_user = "{SLURM_USER}"\n')
        if not root:
            stream.write("user_mode = true\n")
    return site


def owners() -> list[int]:
    """Accounts of this host that own nothing of the bench's otherwise."""
    taken = {0, pwd.getpwnam(SLURM_USER).pw_uid}
    found = [user.pw_uid for user in sorted(pwd.getpwall(), key=lambda user: user.pw_uid) if user.pw_uid not in taken]
    return found[:OWNERS]


def _jobs(site: MadeSite, slurm: int, chance: random.Random) -> Iterator[str]:
    now = int(time.time()) - AGE_S
    shared: dict[str, str] = {}
    for number in range(site.count):
        word = Word("".join(chance.choices(KEY_CHARACTERS, k=KEY_LENGTH)), 0, 1)
        runs = number % 4 < RUNNING_OF_FOUR
        uid = site.uids[0 if number % 2 == 0 else (number // 2) % len(site.uids)]
        job = _Job(word, uid, FIRST_ID + number, now, now + 60 if runs else None, f"c{number % 5000}" if runs else "")
        folder = os.path.join(site.state, "jobs", word.job)
        facts = os.path.join(folder, "facts")
        os.mkdir(folder, 0o700)
        os.mkdir(facts, 0o700)
        _script_and_environment(folder, shared)
        for seq, (kind, body) in enumerate(_facts(job), start=1):
            with open(os.path.join(facts, fact_name(seq)), "wb") as stream:
                stream.write(render(Fact(seq, float(now + seq), kind, "user:bench@login", body)))
            os.chown(stream.name, uid, -1)
        for path in (facts, folder):
            os.chown(path, uid, -1)
            os.utime(path, (now, now + 100))
        site.folders.append(facts)
        if runs:
            _note(site, slurm, job)
        yield _line(job)


def _script_and_environment(folder: str, shared: dict[str, str]) -> None:
    """The same files for all: nothing of a tick that has nothing to do reads them."""
    for name, content in (("script", b"#!/bin/sh\nexec train\n"), ("environment", b"HOME=/home/bench\0")):
        path = os.path.join(folder, name)
        try:
            os.link(shared[name], path)
        except (KeyError, OSError):  # the first, or the filesystem lets a file have no more names
            with open(path, "wb") as stream:
                stream.write(content)
            shared[name] = path


def _facts(job: _Job) -> Iterator[tuple[str, dict[str, object]]]:
    word, uid = job.word, job.uid
    spec = Spec(
        job=word.job, generation=0, user=f"user{uid}", uid=uid, gid=100, groups=(), cluster=CLUSTER, name="train",
        root=f"/scratch/{word.job}", shared=False, argv=("--job-name=train", "--nodes=1", "--time=1-00:00:00"),
        script_name="train.sh", script_args=(), script_sha256="0" * 64, wrap=False, workdir="/home/bench",
        umask=0o022, comment="", rules=(), max_submissions=100, start_from=None, host="login",
    )  # fmt: skip
    yield "spec", spec.body()
    yield "intent", {"submission": 1, "word": str(word), "host": "login", "deadline": time.time() - AGE_S + 150,
                     "wait_s": 170.0, "changes": [], "decision": None}  # fmt: skip
    yield "submitted", {"submission": 1, "cluster": CLUSTER, "slurm_job_id": job.slurm_job_id, "how": "answer"}
    if job.start is not None:
        yield "started", {"submission": 1, "slurm_job_id": job.slurm_job_id, **_execution(job)}


def _execution(job: _Job) -> dict[str, object]:
    attempt = attempt_of(CLUSTER, job.slurm_job_id, job.word, 0, job.start)
    return {"restart": 0, "epoch": str(Epoch(0, 1, 0)), "attempt": attempt, "start_time": job.start,
            "nodes": job.nodes}  # fmt: skip


def _note(site: MadeSite, slurm: int, job: _Job) -> None:
    word, uid = job.word, job.uid
    body = {
        "v": 1, "job": word.job, "generation": 0, "submission": 1, "shared": False, "cluster": CLUSTER,
        "slurm_job_id": job.slurm_job_id, "at": job.start, **_execution(job), "uid": uid, "user": f"user{uid}",
        "partition": "gpu", "account": "ml", "array": None, "het_leader": None, "sluid": None,
    }  # fmt: skip
    path = os.path.join(site.state, "notes", f"start.{word.job}.0.1.{job.slurm_job_id}.0")
    with open(path, "w", encoding="ascii") as stream:
        json.dump(body, stream)
    os.chown(path, slurm, -1)


def _line(job: _Job) -> str:
    """A line of the queue, with ``@`` for the nonce."""
    state, reason = ("PENDING", "Priority") if job.start is None else ("RUNNING", "None")
    begins = job.submitted + 90_000 if job.start is None else job.start
    fields = (job.slurm_job_id, job.uid, state, job.submitted, begins, job.slurm_job_id, reason, job.nodes,
              f"train {job.word}")  # fmt: skip
    return "@" + "@".join(map(str, fields)) + "\n"


__all__ = ["MadeSite", "make"]
