"""The port by Slurm's commands: argv lists, ``LC_ALL=C``, explicit fields, times in seconds, a deadline.

One adapter speaks to one cluster. A job that was sent to another (``-M``) is asked for there only, by the adapter
that :meth:`SlurmCommands.at` gives: that the own cluster does not have it says nothing.
"""

from __future__ import annotations

import os
import re
import secrets
from typing import TYPE_CHECKING

from slurm_dispatch.slurm.parse import (
    ACCOUNT_FIELDS,
    DEPENDENT_FIELDS,
    parse_accounting,
    parse_config,
    parse_dependents,
    parse_detail_json,
    parse_detail_text,
    parse_queue,
    queue_format,
)
from slurm_dispatch.slurm.parse_nodes import parse_nodes
from slurm_dispatch.slurm.port import (
    Absent,
    Accepted,
    CancelAnswer,
    ChangeAnswer,
    Dependent,
    JobDetail,
    Nodes,
    Present,
    Queue,
    Rejected,
    SbatchCall,
    SubmitAnswer,
    Unknown,
)
from slurm_dispatch.slurm.reply import JOB_ID_MAX, find_id, read_reply
from slurm_dispatch.slurm.run import Finished, Setting, find, run

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from slurm_dispatch.model.identity import Word

QUERY_TIMEOUT_S = 60.0
OTHER_TIMEOUT_S = 30.0
"""The most that another cluster's answer is waited for: its silence must not hold up this one's jobs for long."""
ACCOUNTING_IDS_MAX = 500
"""Ids in one call of sacct: an argv of 6 KB, and an answer of some 100 KB."""
# Of our own environment Slurm's commands need these and nothing else: SQUEUE_, SACCT_ and SLURM_ variables of
# a user change what they print, and LD_PRELOAD what they are.
_KEPT = ("PATH", "HOME", "USER", "LOGNAME", "SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT", "TMPDIR")
_UNKNOWN_ID = "Invalid job id specified"
_OVER = (_UNKNOWN_ID, "Job/step already completing or completed", "Job has already finished")
_PENDING = "Job is pending execution"
# What slurmctld answers for certain (slurm_errno.c, 22.05 to 26.05); anything else may have been about the way.
_REFUSED = (
    _UNKNOWN_ID,
    "Job has already finished",
    "Requested operation is presently disabled",
    "Requested operation only supported on batch jobs",
    "Access/permission denied",
    "Invalid node name specified",
    "Requested node configuration is not available",
    "Job is no longer pending execution",
    "Job dependency problem",
)
_FIELD = re.compile(r"[A-Za-z]{1,40}\Z")
_VALUE = re.compile(r"[A-Za-z0-9_.,:+?*\[\]-]{0,60000}\Z")
_CLUSTER = re.compile(r"[A-Za-z0-9_.-]{1,256}\Z")


FILE_ALONE = (24, 11)
"""The last Slurm that was seen to give a job the variables of ``--export-file`` where no ``--export`` is beside it;
26.05 then gives it none of them."""


def commands_environment(bin_folder: str = "", *, inherited: Mapping[str, str] | None = None) -> dict[str, str]:
    """What Slurm's commands run with: a few inherited variables, ``LC_ALL=C``, times in Unix seconds.

    Never a token of root's (P10): the same environment goes to commands that run as a job's owner.

    :param bin_folder: where the site's Slurm is, put before ``PATH``; empty: ``PATH`` is enough.
    """
    source = os.environ if inherited is None else inherited
    found = {name: source[name] for name in _KEPT if name in source}
    if os.geteuid() == 0:
        # A token is whoever has it. Root's must not go to the processes that work as an owner; munge tells who asks.
        found.pop("SLURM_JWT", None)
    path = found.get("PATH") or os.defpath
    found["PATH"] = f"{bin_folder}{os.pathsep}{path}" if bin_folder else path
    return {**found, "LC_ALL": "C", "SLURM_TIME_FORMAT": "%s"}


class SlurmCommands:
    """A :class:`~slurm_dispatch.slurm.port.SlurmPort` that runs ``sbatch``, ``squeue``, ``scontrol``, ``sacct``
    and ``scancel``."""

    def __init__(
        self, environment: Mapping[str, str], *, timeout_s: float = QUERY_TIMEOUT_S, cluster: str | None = None
    ) -> None:
        """Nothing runs yet.

        :param environment: of the commands that ask, from :func:`commands_environment`.
        :param cluster: asked with ``-M``; ``None``: the commands' own cluster.
        """
        self.environment = environment
        self.timeout_s = timeout_s
        self.cluster = cluster
        self._version: tuple[int, int] | None = None

    def at(self, cluster: str) -> SlurmCommands:
        """The commands for another cluster; see the port."""
        timeout_s = min(self.timeout_s, OTHER_TIMEOUT_S)
        return SlurmCommands(self.environment, timeout_s=timeout_s, cluster=_check_cluster(cluster))

    def submit(self, call: SbatchCall, accepted: Callable[[Accepted], None] | None = None) -> SubmitAnswer:
        """Call sbatch once; see the port."""
        told = False

        def lift(stdout: bytes) -> bool:
            nonlocal told
            found = find_id(stdout, parsable=call.parsable, ended=False)
            if found is None:
                return False
            if accepted is not None and not told:
                told = True
                accepted(found)
            return call.waits

        argv = list(call.argv)
        files: list[int] = []
        try:
            if call.script_at is not None:
                files.append(_memory_file("script", call.script))
                argv.insert(call.script_at, f"/dev/fd/{files[-1]}")
            if call.job_environment is not None:
                files.append(_memory_file("environment", call.job_environment))
                argv.insert(0, f"--export-file={files[-1]}")
                if self.version() > FILE_ALONE:
                    argv.insert(0, "--export=ALL")  # one of the job's own stands after it, and counts
            # Found where the site's Slurm is, not along the PATH that goes to the job.
            program = find("sbatch", self.environment)
            setting = Setting(
                program=program,
                environment=call.environment,
                stdin=call.script if call.script_at is None else b"",
                workdir=call.workdir,
                umask=call.umask,
                files=files,
                limits=call.limits,
                alarm=not call.waits,
            )
            finished = run(["sbatch", *argv], setting, deadline_s=call.deadline_s, relay=call.relay, lift=lift)
        except FileNotFoundError as error:
            return Rejected(127, f"cannot run sbatch: {error.strerror}")
        finally:
            for descriptor in files:
                os.close(descriptor)
        answer = read_reply(finished, parsable=call.parsable)
        if isinstance(answer, Accepted) and accepted is not None and not told:
            accepted(answer)
        return answer

    def queue(self) -> Queue | Unknown:
        """All jobs of all users in all states, in one call."""
        nonce = _nonce()
        argv = ["squeue", "--all", "--noheader", "--states=all", f"--format={queue_format(nonce)}"]
        finished = self._ask(argv)
        if finished.trouble:
            return Unknown(f"squeue: {finished.trouble}")
        return parse_queue(_text(finished.stdout), nonce)

    def dependents(self, uid: int) -> tuple[Dependent, ...] | Unknown:
        """The jobs of this owner that wait for others, or were cancelled because they did, in one call."""
        nonce = _nonce()
        states = "--states=PENDING,CANCELLED"
        argv = ["squeue", "--all", "--noheader", states, f"--user={uid}"]
        finished = self._ask([*argv, f"--format={queue_format(nonce, DEPENDENT_FIELDS)}"])
        if finished.trouble:
            return Unknown(f"squeue: {finished.trouble}")
        return parse_dependents(_text(finished.stdout), nonce)

    def detail(self, slurm_job_ids: Sequence[int]) -> dict[int, Present[JobDetail] | Absent | Unknown]:
        """What slurmctld says of each object: JSON from 23.11 on, text where that is not to be had.

        The JSON answer for an unknown id and for a slurmctld that does not answer can be the same empty list,
        so an empty one is asked again as text.
        """
        return {job_id: self._detail(job_id) for job_id in slurm_job_ids}

    def _detail(self, job_id: int) -> Present[JobDetail] | Absent | Unknown:
        _check_id(job_id)
        if self.version() >= (23, 11):
            finished = self._ask(["scontrol", "--json", "show", "job", str(job_id)])
            if not finished.trouble:
                found = parse_detail_json(_text(finished.stdout), job_id)
                if isinstance(found, JobDetail):
                    return Present(found)
        finished = self._ask(["scontrol", "show", "job", str(job_id)])
        if finished.trouble:
            if _UNKNOWN_ID.encode() in finished.stderr and not finished.timed_out:
                return Absent()
            return Unknown(f"scontrol: {finished.trouble}")
        text = parse_detail_text(_text(finished.stdout), job_id)
        return Present(text) if isinstance(text, JobDetail) else text

    def accounting(
        self, slurm_job_ids: Sequence[int], *, since: int | None = None
    ) -> dict[int, Present[tuple[JobDetail, ...]] | Absent | Unknown]:
        """The rows of accounting for each id, duplicates too, oldest first; one call for 500 ids.

        :param since: rows of objects that were submitted before are another job's that had the id once (C061).
        """
        found: dict[int, Present[tuple[JobDetail, ...]] | Absent | Unknown] = {}
        for at in range(0, len(slurm_job_ids), ACCOUNTING_IDS_MAX):
            part = [_check_id(job_id) for job_id in slurm_job_ids[at : at + ACCOUNTING_IDS_MAX]]
            answer = self._account([f"--jobs={','.join(map(str, part))}", "--starttime=1970-01-02"])
            for job_id in part:
                if isinstance(answer, Unknown):
                    found[job_id] = answer
                    continue
                rows = tuple(
                    row
                    for row in answer
                    if row.slurm_job_id == job_id and (since is None or (row.submit_time or 0) >= since)
                )
                found[job_id] = Present(rows) if rows else Absent()
        return found

    def accounting_by_word(
        self, word: Word, uid: int, *, since: int
    ) -> Present[tuple[JobDetail, ...]] | Absent | Unknown:
        """The rows of ``uid`` since then whose comment has ``word``; unknown where comments are not stored."""
        config = self.config()
        if isinstance(config, Unknown):
            return config
        if "job_comment" not in config.get("AccountingStoreFlags", ""):
            return Unknown("accounting does not store comments (AccountingStoreFlags lacks job_comment)")
        answer = self._account([f"--uid={uid}", f"--starttime={_local_time(since)}", "--endtime=now"])
        if isinstance(answer, Unknown):
            return answer
        rows = tuple(row for row in answer if row.word == word and row.uid == uid)
        return Present(rows) if rows else Absent()

    def _account(self, selection: Sequence[str]) -> tuple[JobDetail, ...] | Unknown:
        nonce = _nonce()
        restarts = self.version() >= (24, 11)
        fields = [*ACCOUNT_FIELDS, *(["Restarts"] if restarts else []), "Comment"]
        argv = ["sacct", "--allocations", "--duplicates", "--noheader", "--parsable2", f"--delimiter={nonce}"]
        finished = self._ask([*argv, f"--format={','.join(fields)}", *selection])
        if finished.trouble:
            return Unknown(f"sacct: {finished.trouble}")
        return parse_accounting(_text(finished.stdout), nonce, restarts=restarts)

    def cancel(self, slurm_job_id: int, cluster: str | None) -> CancelAnswer:
        """Cancel one object; one that has ended already, or that slurmctld no longer knows, is done."""
        _check_id(slurm_job_id)
        where = cluster if cluster is not None else self.cluster
        argv = ["scancel", *([f"--clusters={_check_cluster(where)}"] if where is not None else []), str(slurm_job_id)]
        finished = run(argv, Setting(self.environment), deadline_s=self.timeout_s)
        said = _text(finished.stderr)
        if finished.status == 0 and "error:" not in said:
            return CancelAnswer(done=True)
        if not finished.timed_out and any(phrase in said for phrase in _OVER):
            return CancelAnswer(done=True, why=finished.trouble)
        return CancelAnswer(done=False, why=f"scancel: {finished.trouble or said.strip()}")

    def requeue(self, slurm_job_id: int, cluster: str | None) -> ChangeAnswer:
        """Let Slurm start the object again; see the port."""
        answer = self._change(["requeue", str(_check_id(slurm_job_id))], cluster)
        return ChangeAnswer(done=True) if not answer.done and _PENDING in answer.why else answer

    def update(self, slurm_job_id: int, cluster: str | None, fields: Mapping[str, str]) -> ChangeAnswer:
        """Change fields of the object; see the port."""
        for name, value in fields.items():
            if not _FIELD.match(name) or not _VALUE.match(value):
                raise ValueError(f"{name}={value!r} cannot be handed to scontrol update")
        changes = [f"{name}={value}" for name, value in fields.items()]
        return self._change(["update", f"JobId={_check_id(slurm_job_id)}", *changes], cluster)

    def _change(self, words: Sequence[str], cluster: str | None) -> ChangeAnswer:
        where = cluster if cluster is not None else self.cluster
        argv = ["scontrol", *([f"--clusters={_check_cluster(where)}"] if where is not None else []), *words]
        finished = run(argv, Setting(self.environment), deadline_s=self.timeout_s)
        said = _text(finished.stderr) + _text(finished.stdout)
        if finished.status == 0 and "error" not in said.lower():
            return ChangeAnswer(done=True)
        # Of what scontrol says in several lines the one with the cause counts.
        cause = next((line.strip() for line in said.splitlines() if any(it in line for it in _REFUSED)), "")
        refused = bool(cause) and not finished.timed_out
        pending = next((line.strip() for line in said.splitlines() if _PENDING in line), "")
        return ChangeAnswer(False, refused, f"scontrol: {cause or pending or finished.trouble or said.strip()}")

    def nodes(self) -> Nodes | Unknown:
        """All nodes of the cluster, in one call."""
        finished = self._ask(["scontrol", "--all", "show", "nodes"])
        if finished.trouble:
            return Unknown(f"scontrol show nodes: {finished.trouble}")
        return parse_nodes(_text(finished.stdout))

    def config(self) -> Mapping[str, str] | Unknown:
        """``scontrol show config`` as names and values."""
        finished = self._ask(["scontrol", "show", "config"])
        if finished.trouble:
            return Unknown(f"scontrol show config: {finished.trouble}")
        found = parse_config(_text(finished.stdout))
        return found if "SLURM_VERSION" in found else Unknown("scontrol show config printed something else")

    def version(self) -> tuple[int, int]:
        """(24, 11) of the commands; (0, 0) where they do not say. Asked once."""
        if self._version is None:
            finished = run(["scontrol", "--version"], Setting(self.environment), deadline_s=self.timeout_s)
            match = re.search(rb"\b([0-9]{2})\.([0-9]{2})", finished.stdout) if not finished.trouble else None
            if match is None:
                return (0, 0)
            self._version = (int(match[1]), int(match[2]))
        return self._version

    def _ask(self, argv: Sequence[str]) -> Finished:
        program, *rest = argv
        where = [] if self.cluster is None else [f"--clusters={_check_cluster(self.cluster)}"]
        return run([program, *where, *rest], Setting(self.environment), deadline_s=self.timeout_s)


def _nonce() -> str:
    return f"<{secrets.token_hex(8)}>"


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _check_id(slurm_job_id: int) -> int:
    """An id that can stand on a command line: scancel without one, or with 0, would do something else."""
    if isinstance(slurm_job_id, bool) or not isinstance(slurm_job_id, int) or not 0 < slurm_job_id <= JOB_ID_MAX:
        raise ValueError(f"{slurm_job_id!r} is not a Slurm job id")
    return slurm_job_id


def _check_cluster(name: str) -> str:
    if not _CLUSTER.match(name):
        raise ValueError(f"{name!r} is not a cluster's name")
    return name


def _local_time(moment: int) -> str:
    """A time as sacct takes it, in the host's own zone."""
    import time

    return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(moment))


def _memory_file(name: str, content: bytes) -> int:
    """A descriptor that reads as ``content``, without a file anywhere."""
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC)
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
