"""Read what Slurm's commands print. No I/O.

User text (names, comments) is in these answers and may hold anything, newlines too. In text it stands last on
lines that begin with a nonce of the call; in JSON it cannot leave its field.
"""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any

from slurm_dispatch.model.identity import find_word
from slurm_dispatch.slurm.port import Dependent, JobDetail, Queue, QueueJob, Unknown

if TYPE_CHECKING:
    from collections.abc import Sequence

# squeue's letters: id, uid, state, submit time, start time, array id_task, reason, nodes, comment. Reason and
# nodes are Slurm's text; the comment is the user's and comes last.
QUEUE_FIELDS = ("A", "U", "T", "V", "S", "i", "r", "N", "k")
ACCOUNT_FIELDS = (
    "JobIDRaw", "UID", "State", "ExitCode", "Submit", "Start", "End", "Reason", "NodeList", "DerivedExitCode",
    "TimelimitRaw", "ReqMem", "NNodes",
)  # fmt: skip
# The backfill scheduler gives a job without a limit one of a year, and shows that from then on.
_UNLIMITED_MINUTES = 365 * 24 * 60
# squeue's letters: id, uid, state, reason, array id_task, dependencies. None of them is a user's text.
DEPENDENT_FIELDS = ("A", "U", "T", "r", "i", "E")
_TIME = re.compile(r"[0-9]{1,12}\Z")
_NUMBER = re.compile(r"[0-9]{1,10}\Z")
_CODE = re.compile(r"([0-9]{1,3}):([0-9]{1,3})\Z")
_WORD = re.compile(r"[A-Z_]{2,40}\Z")
_CANCELLED_BY = re.compile(r"CANCELLED by ([0-9]{1,10})\Z")
_NO_COMMENT = frozenset({"", "(null)", "N/A", "None"})

BASE_STATES = frozenset({
    "PENDING", "RUNNING", "SUSPENDED", "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED",
    "BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY",
})  # fmt: skip
FLAGS = frozenset({
    "COMPLETING", "CONFIGURING", "EXPEDITING", "LAUNCH_FAILED", "POWER_UP_NODE", "RECONFIG_FAIL", "REQUEUED",
    "REQUEUE_FED", "REQUEUE_HOLD", "RESIZING", "RESV_DEL_HOLD", "REVOKED", "SIGNALING", "SPECIAL_EXIT",
    "STAGE_OUT", "STOPPED", "UPDATE_DB",
})  # fmt: skip
KNOWN_STATES = BASE_STATES | FLAGS
"""Every word that Slurm up to 26.05 has for a job's state."""


def queue_format(nonce: str, fields: Sequence[str] = QUEUE_FIELDS) -> str:
    """The format of the bulk call: every line begins with ``nonce``, and it separates the fields too."""
    return nonce + nonce.join(f"%{letter}" for letter in fields)


def parse_dependents(text: str, nonce: str) -> tuple[Dependent, ...] | Unknown:
    """The jobs of a call with :data:`DEPENDENT_FIELDS` that have dependencies."""
    found: list[Dependent] = []
    for line in text.splitlines():
        fields = line.removeprefix(nonce).split(nonce)
        if not line.startswith(nonce) or len(fields) != len(DEPENDENT_FIELDS):
            return Unknown(f"squeue printed a line that does not parse: {line[:120]!r}")
        job_id, uid, state, reason, array, depends = fields
        if not (_NUMBER.match(job_id) and int(job_id) > 0 and _NUMBER.match(uid)):
            return Unknown(f"squeue printed a line that does not parse: {line[:120]!r}")
        if depends not in _NO_COMMENT:
            found.append(Dependent(int(job_id), int(uid), state, reason, "_" in array, depends))
    return tuple(found)


def parse_queue(text: str, nonce: str) -> Queue | Unknown:
    """All jobs of a bulk call's stdout.

    Lines that do not begin with the nonce are the rest of the comment before them, or a heading. A line with
    the nonce that does not parse makes the whole answer unknown: something else may be missing, too.
    """
    if text and not text.endswith("\n"):
        return Unknown("squeue was cut off in the middle of a line")
    jobs: list[QueueJob] = []
    rows: list[str] = []
    for line in text.split("\n"):
        if line.startswith(nonce):
            rows.append(line)
        elif rows:
            rows[-1] += "\n" + line
    for row in rows:
        job = _queue_job(row[len(nonce) :].split(nonce))
        if job is None:
            return Unknown(f"squeue printed a line that does not parse: {row[len(nonce):][:120]!r}")
        jobs.append(job)
    return Queue(tuple(jobs))


def _queue_job(fields: list[str]) -> QueueJob | None:
    if len(fields) != len(QUEUE_FIELDS):
        return None
    job_id, uid, state, submit, start, array, reason, nodes, comment = fields
    if not (_NUMBER.match(job_id) and int(job_id) > 0 and _NUMBER.match(uid) and _WORD.match(state)):
        return None
    comment = comment.rstrip("\n")
    return QueueJob(
        slurm_job_id=int(job_id),
        uid=int(uid),
        state=state,
        reason=reason,
        submit_time=_time(submit),
        start_time=_time(start),
        nodes=nodes,
        word=find_word(comment),
        array=array if array != job_id else None,
    )


def _time(text: str) -> int | None:
    return int(text) if _TIME.match(text) and int(text) > 0 else None


def parse_detail_json(text: str, slurm_job_id: int) -> JobDetail | Unknown | None:
    """One object of ``scontrol show job ID --json``; ``None`` where the answer has no job at all.

    Read by the shape of each field, not by the data parser's version: numbers are plain or
    ``{"set", "infinite", "number"}``, states one word or a list.
    """
    try:
        jobs = json.loads(text)["jobs"]
        if not isinstance(jobs, list):
            return Unknown("scontrol's JSON has no list of jobs")
        for job in jobs:
            if job["job_id"] == slurm_job_id:
                return _json_job(job)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        return Unknown(f"scontrol's JSON does not parse: {type(error).__name__}: {error}")
    return Unknown(f"scontrol was asked for {slurm_job_id} and answered something else") if jobs else None


def _json_job(job: dict[str, Any]) -> JobDetail | Unknown:
    states = job["job_state"]
    states = frozenset([states] if isinstance(states, str) else states)
    if not states or not all(isinstance(state, str) and _WORD.match(state) for state in states):
        return Unknown(f"scontrol's JSON has the job state {states!r}")
    exit_code = job.get("exit_code")
    status, signal = _json_exit(exit_code)
    comment = job.get("comment") or ""
    limits = {
        name: job[name]
        for name in ("time_limit", "memory_per_node", "memory_per_cpu", "excluded_nodes", "required_nodes")
        if name in job
    }
    return JobDetail(
        slurm_job_id=job["job_id"],
        uid=job["user_id"],
        states=states,
        reason=str(job.get("state_reason") or ""),
        exit_status=status,
        exit_signal=signal,
        restart=_json_number(job.get("restart_cnt")),
        submit_time=_json_number(job.get("submit_time")) or None,
        start_time=_json_number(job.get("start_time")) or None,
        end_time=_json_number(job.get("end_time")) or None,
        nodes=str(job.get("nodes") or ""),
        comment=comment,
        source="json",
        word=find_word(comment),
        requeue=job.get("requeue") if isinstance(job.get("requeue"), bool) else None,
        options={name: _json_text(value) for name, value in limits.items()},
        derived_signal=_json_exit(job.get("derived_exit_code"))[1],
        time_limit_s=_seconds(_json_number(job.get("time_limit"))),
        memory_mb=_memory(
            _json_number(job.get("memory_per_node")),
            _json_number(job.get("memory_per_cpu")),
            _json_number(job.get("cpus")),
            _json_number(job.get("node_count")),
        ),
        array=bool(_json_number(job.get("array_job_id"))),
    )


def _seconds(minutes: int | None) -> int | None:
    return minutes * 60 if minutes and minutes != _UNLIMITED_MINUTES else None


def _memory(node: int | None, cpu: int | None, cpus: int | None, nodes: int | None) -> int | None:
    """Megabytes a node, from what a node or each of its processors may have; 0 is Slurm's word for all there is."""
    if node:
        return node
    return math.ceil(cpu * cpus / nodes) if cpu and cpus and nodes else None


def _json_number(value: object) -> int | None:
    if isinstance(value, dict):
        value = value.get("number") if value.get("set") and not value.get("infinite") else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _json_text(value: object) -> str:
    if isinstance(value, dict):
        if value.get("infinite"):
            return "infinite"
        number = _json_number(value)
        return "" if number is None else str(number)
    return "" if value is None else str(value)


def _json_exit(value: object) -> tuple[int | None, int | None]:
    """Status and signal; older parsers give a signal's number under ``signal_id``, newer ones under ``id``."""
    if isinstance(value, int):
        return (value >> 8) & 255, value & 127
    if not isinstance(value, dict):
        return None, None
    signal = value.get("signal")
    number = None
    if isinstance(signal, dict):
        number = _json_number(signal.get("id", signal.get("signal_id")))
    code = _json_number(value.get("return_code"))
    return 0 if code is None and number else code, number or 0  # beside a signal there is no code, and text says 0


_TEXT_STATE = re.compile(r"^   JobState=([A-Z_]+) Reason=(.*) Dependency=", re.MULTILINE)
_TEXT_HEAD = re.compile(r"\AJobId=([0-9]+)(?:( ArrayJobId=\S+)| HetJobId=\S+|)")
_TEXT_USER = re.compile(r"^   UserId=\S*?\(([0-9]+)\) GroupId=", re.MULTILINE)
_TEXT_RUN = re.compile(
    r"^   Requeue=([01]) Restarts=([0-9]+) BatchFlag=\S+ Reboot=\S+ ExitCode=([0-9]+):([0-9]+)$", re.MULTILINE
)
_TEXT_SUBMIT = re.compile(r"^   SubmitTime=(\S+) ", re.MULTILINE)
_TEXT_START = re.compile(r"^   StartTime=(\S+) EndTime=(\S+) ", re.MULTILINE)
_TEXT_NODES = re.compile(r"^   NodeList=(\S*)(?: SchedNodeList=\S*)?$", re.MULTILINE)
_TEXT_COMMENT = re.compile(r"^   Comment=(.*)$", re.MULTILINE)
_TEXT_LIMIT = re.compile(r"^   RunTime=\S+ TimeLimit=(\S+) ", re.MULTILINE)
_TEXT_SIZE = re.compile(r"^   NumNodes=([0-9]+)\S* NumCPUs=([0-9]+) ", re.MULTILINE)
_TEXT_MEMORY = re.compile(r"^   MinCPUsNode=\S+ MinMemory(Node|CPU)=(\S+) ", re.MULTILINE)
_DURATION = re.compile(r"(?:([0-9]{1,6})-)?([0-9]{1,6}):([0-9]{2}):([0-9]{2})\Z")
_SIZE = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,4})?)([KMGTP])[nc]?\Z")
_MEGABYTES = {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1024**2, "P": 1024**3}


def parse_detail_text(text: str, slurm_job_id: int) -> JobDetail | Unknown:
    """One object of ``scontrol show job ID`` in its many-line form, times as Unix seconds.

    A name or comment with newlines can imitate a line. Each line that decides is therefore taken only if it
    is there exactly once; an imitation makes the answer unknown, never wrong.
    """
    head = _TEXT_HEAD.match(text)
    if head is None or int(head[1]) != slurm_job_id:
        return Unknown("scontrol printed something that is not the job that it was asked for")
    once: dict[str, re.Match[str]] = {}
    for name, pattern in (("state", _TEXT_STATE), ("user", _TEXT_USER), ("run", _TEXT_RUN), ("start", _TEXT_START)):
        found = list(pattern.finditer(text))
        if len(found) != 1:
            return Unknown(f"scontrol's text has {len(found)} lines with the {name} of job {slurm_job_id}")
        once[name] = found[0]
    submit, nodes, comment, limit = (
        found[0][1] if len(found := list(pattern.finditer(text))) == 1 else ""
        for pattern in (_TEXT_SUBMIT, _TEXT_NODES, _TEXT_COMMENT, _TEXT_LIMIT)
    )
    return JobDetail(
        slurm_job_id=slurm_job_id,
        uid=int(once["user"][1]),
        states=frozenset({once["state"][1]}),
        reason=once["state"][2].split(" FailedNode=", 1)[0],
        exit_status=int(once["run"][3]),
        exit_signal=int(once["run"][4]),
        restart=int(once["run"][2]),
        submit_time=_time(submit),
        start_time=_time(once["start"][1]),
        end_time=_time(once["start"][2]),
        nodes="" if nodes in _NO_COMMENT else nodes,
        comment=comment,
        source="text",
        word=find_word(comment),
        requeue=once["run"][1] == "1",
        time_limit_s=_duration(limit),
        memory_mb=_text_memory(text),
        array=head[2] is not None,
    )


def _text_memory(text: str) -> int | None:
    memory, size = list(_TEXT_MEMORY.finditer(text)), list(_TEXT_SIZE.finditer(text))
    if len(memory) != 1 or len(size) != 1:
        return None
    each = _megabytes(memory[0][2])
    if memory[0][1] == "Node":
        return each
    return _memory(None, each, int(size[0][2]), int(size[0][1]))


def _duration(text: str) -> int | None:
    match = _DURATION.match(text)
    if match is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return _seconds((days * 24 + hours) * 60 + minutes + math.ceil(seconds / 60))


def _megabytes(text: str) -> int | None:
    match = _SIZE.match(text)
    return math.ceil(float(match[1]) * _MEGABYTES[match[2]]) or None if match else None


def parse_accounting(text: str, nonce: str, *, restarts: bool) -> tuple[JobDetail, ...] | Unknown:
    """The rows of sacct, printed with ``nonce`` as delimiter and the comment last; oldest first.

    :param restarts: the column ``Restarts`` stands before the comment (24.11 and newer).
    """
    if text and not text.endswith("\n"):
        return Unknown("sacct was cut off in the middle of a line")
    columns = len(ACCOUNT_FIELDS) + restarts + 1
    rows: list[str] = []
    for line in text.split("\n"):
        if nonce in line:
            rows.append(line)
        elif rows:
            rows[-1] += "\n" + line
    found: list[JobDetail] = []
    for row in rows:
        fields = row.split(nonce)
        detail = _account_row(fields, restarts) if len(fields) == columns else None
        if detail is None:
            return Unknown(f"sacct printed a row that does not parse: {row.replace(nonce, '|')[:120]!r}")
        found.append(detail)
    return tuple(sorted(found, key=lambda row: (row.submit_time or 0, row.start_time or 0)))


def _account_row(fields: list[str], restarts: bool) -> JobDetail | None:
    job_id, uid, state, code, submit, start, end, reason, nodes, derived, limit, memory, count, *rest = fields
    comment = rest[-1].rstrip("\n")
    derived_code = _CODE.match(derived)
    total = _megabytes(memory)
    by = _CANCELLED_BY.match(state)
    exit_code = _CODE.match(code)
    state = state.split(" ", 1)[0].rstrip("+")
    if not (_NUMBER.match(job_id) and _NUMBER.match(uid) and _WORD.match(state)):
        return None
    return JobDetail(
        slurm_job_id=int(job_id),
        uid=int(uid),
        states=frozenset({state}),
        reason=reason,
        exit_status=int(exit_code[1]) if exit_code else None,
        exit_signal=int(exit_code[2]) if exit_code else None,
        restart=int(rest[0]) if restarts and _NUMBER.match(rest[0]) else None,
        submit_time=_time(submit),
        start_time=_time(start),
        end_time=_time(end),
        nodes="" if nodes in _NO_COMMENT or nodes == "None assigned" else nodes,
        comment=comment,
        source="accounting",
        word=find_word(comment),
        by_uid=int(by[1]) if by else None,
        derived_signal=int(derived_code[2]) if derived_code else None,
        time_limit_s=_seconds(int(limit)) if _NUMBER.match(limit) else None,
        memory_mb=math.ceil(total / int(count)) if total and _NUMBER.match(count) and int(count) else None,
    )


def parse_config(text: str) -> dict[str, str]:
    """``scontrol show config`` as names and values."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, equals, value = line.partition("=")
        if equals and name.strip() and " " not in name.strip():
            found[name.strip()] = value.strip()
    return found
