"""A stand-in Slurm behind the port, kept in a folder so that forked children and other processes share it.

``test_conformance.py`` holds it against the real adapter: what the controller's tests rely on is said there, once,
for both.
"""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Any

from slurm_dispatch.model.identity import Word, find_word
from slurm_dispatch.slurm.dependency import mentioned
from slurm_dispatch.slurm.port import (
    Absent,
    Accepted,
    Ambiguous,
    CancelAnswer,
    ChangeAnswer,
    Dependent,
    JobDetail,
    Node,
    Nodes,
    Present,
    Queue,
    QueueJob,
    Rejected,
    SbatchCall,
    SubmitAnswer,
    Unknown,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

FIRST_ID = 101
OVER = frozenset(
    {
        "COMPLETED",
        "FAILED",
        "CANCELLED",
        "TIMEOUT",
        "NODE_FAIL",
        "PREEMPTED",
        "OUT_OF_MEMORY",
        "BOOT_FAIL",
        "DEADLINE",
    }
)


BOOT_TIME = 1_700_000_000
_NODES = {
    name: {"state": "IDLE", "flags": [], "partitions": ["low"], "boot_time": BOOT_TIME} for name in ("c1", "c2", "c3")
}


class FakeSlurm:
    """A cluster of one folder: a file for each object, a file for the knobs, and a line for each call.

    Knobs (:meth:`knob`): ``queue``, ``detail``, ``accounting``, ``cancel`` are ``ok`` or ``away``; ``accounting``
    may be ``none`` too; ``submit`` is ``ok``, ``reject``, ``lost_before`` (no object, no answer), ``lost_after``
    (an object, no answer) or ``hang``; ``requeue``, ``update`` and ``nodes`` are ``ok`` or ``away``, and ``requeue``
    may be ``lost_after``; ``boot_time`` is slurmctld's start in Unix seconds.
    """

    def __init__(self, folder: str, *, name: str = "fake") -> None:
        self.folder = folder
        self.name = name
        self.prepare()

    def prepare(self) -> None:
        """Make the place where everything is kept."""
        os.makedirs(os.path.join(self.folder, "jobs"), exist_ok=True)

    def caller(self) -> int:
        """Whose calls these are."""
        return os.getuid()

    # What a test does to the cluster.

    def knob(self, **values: str) -> None:
        """Set knobs; the others stay."""
        self._put("knobs.json", {**self._get("knobs.json", {}), **values})

    def plain(self, *, comment: str, uid: int | None = None, slurm_job_id: int | None = None) -> int:
        """An object that was submitted with this comment."""
        number = FIRST_ID if slurm_job_id is None else slurm_job_id
        body = {
            "uid": self.caller() if uid is None else uid,
            "states": ["PENDING"],
            "reason": "None",
            "restart": 0,
            "submit_time": int(time.time()),
            "start_time": None,
            "end_time": None,
            "nodes": "",
            "comment": comment,
            "exit_status": 0,
            "exit_signal": 0,
            "by_uid": None,
            "in_memory": True,
            "argv": [],
        }
        while not self._new(number, body):
            if slurm_job_id is not None:
                raise AssertionError(f"object {number} is there already")
            number += 1
        return number

    def start(self, slurm_job_id: int, *, nodes: str = "c1") -> int:
        """The object starts now; the start time is different for each start."""
        body = self._job(slurm_job_id)
        start = max(int(time.time()), body.get("last_start", 0) + 1)
        self.set(slurm_job_id, states=["RUNNING"], start_time=start, last_start=start, nodes=nodes)
        return start

    def set(self, slurm_job_id: int, **fields: Any) -> None:
        """Change what Slurm knows of an object."""
        self._put(f"jobs/{slurm_job_id}.json", {**self._job(slurm_job_id), **fields})

    def end(self, slurm_job_id: int, *states: str, **fields: Any) -> None:
        """The object ends in these states (``PREEMPTED``, ``COMPLETING``, ...), and not as soon as it started."""
        end = max(int(time.time()), (self._job(slurm_job_id)["start_time"] or 0) + 2)
        self.set(slurm_job_id, states=list(states), **{"end_time": end, **fields})

    def restart(self, slurm_job_id: int, state: str = "REQUEUED") -> None:
        """Slurm restarts the object: pending again, submitted now, the count one higher, a row in accounting."""
        body = self._job(slurm_job_id)
        rows = [*body.get("rows", []), {**body, "states": [state], "end_time": int(time.time())}]
        begin = int(time.time()) + 121
        changed = {"states": ["PENDING"], "restart": body["restart"] + 1, "rows": rows, "start_time": None}
        changed["nodes"] = ""  # as Slurm's own, which has none while it waits
        changed["submit_time"] = max(int(time.time()), body["submit_time"] + 1)
        self.set(slurm_job_id, **changed, reason="BeginTime", begin_time=begin)

    def node(
        self,
        name: str,
        state: str = "IDLE",
        *flags: str,
        partitions: Sequence[str] = ("low",),
        duplicate_at: int | None = None,
        prolog_failed_at: int | None = None,
    ) -> None:
        """A node is in this state now; those that were never named are idle."""
        nodes = self._get("nodes.json", _NODES)
        body = {"state": state, "flags": list(flags), "partitions": list(partitions), "boot_time": BOOT_TIME}
        why = {"duplicate_at": duplicate_at, "prolog_failed_at": prolog_failed_at}
        self._put("nodes.json", {**nodes, name: {**body, **why}})

    def forget(self, slurm_job_id: int) -> None:
        """MinJobAge is over: only accounting has it."""
        self.set(slurm_job_id, in_memory=False)

    def ids(self) -> list[int]:
        """All objects that ever were, in order."""
        names = os.listdir(os.path.join(self.folder, "jobs"))
        return sorted(int(name.split(".")[0]) for name in names if name.endswith(".json") and name[0] != ".")

    def job(self, slurm_job_id: int) -> dict[str, Any]:
        """What Slurm knows of an object."""
        return self._job(slurm_job_id)

    def calls(self, verb: str | None = None) -> list[str]:
        """The verbs that were called, in order, or those of one name."""
        try:
            with open(os.path.join(self.folder, "calls"), encoding="ascii") as stream:
                lines = stream.read().split()
        except FileNotFoundError:
            return []
        return [line for line in lines if verb is None or line == verb]

    # The port.

    def at(self, cluster: str) -> FakeSlurm:
        """Another cluster: a stand-in of its own."""
        return FakeSlurm(os.path.join(self.folder, "clusters", cluster), name=cluster)

    def submit(self, call: SbatchCall, accepted: Callable[[Accepted], None] | None = None) -> SubmitAnswer:
        named = [text.partition("=")[2] for text in call.argv if text.startswith("--clusters=")]
        goal = named[-1] if named else self.name
        if goal != self.name:
            answer = self.at(goal).submit(call)
            if isinstance(answer, Accepted):
                answer = Accepted(answer.slurm_job_id, goal)
                if accepted is not None:
                    accepted(answer)
            return answer
        self._called("submit")
        how = self._knob("submit")
        if how == "reject":
            return Rejected(1, "sbatch: error: Invalid partition name specified")
        if how == "lost_before":
            return Ambiguous("Socket timed out on send/recv operation", 1)
        number = self.plain(comment=_comment(call.argv))
        self.set(number, argv=list(call.argv))
        depends = [word.partition("=")[2] for word in call.argv if word.startswith("--dependency=")]
        if depends:
            self._waits_for(number, depends[-1])
        if how == "lost_after":
            return Ambiguous("Socket timed out on send/recv operation", 1)
        if how == "hang":
            time.sleep(600)
        answer = Accepted(number, None)
        if accepted is not None:
            accepted(answer)
        return answer

    def queue(self) -> Queue | Unknown:
        self._called("queue")
        if self._knob("queue") != "ok":
            return Unknown("squeue: Unable to contact slurm controller (connect failure)")
        jobs = []
        for number in self.ids():
            body = self._job(number)
            if not body["in_memory"]:
                continue
            state = "COMPLETING" if "COMPLETING" in body["states"] else body["states"][0]
            jobs.append(
                QueueJob(
                    slurm_job_id=number,
                    uid=body["uid"],
                    state=state,
                    reason=body["reason"],
                    submit_time=body["submit_time"],
                    start_time=body.get("begin_time") if body["reason"] == "BeginTime" else body["start_time"],
                    nodes=body["nodes"],
                    word=find_word(body["comment"]),
                    array=body.get("array"),
                )
            )
        return Queue(tuple(jobs))

    def dependents(self, uid: int) -> tuple[Dependent, ...] | Unknown:
        self._called("dependents")
        if self._knob("dependents") != "ok":
            return Unknown("squeue: Unable to contact slurm controller (connect failure)")
        found = []
        for number in self.ids():
            body = self._job(number)
            state, text = body["states"][0], body.get("dependency")
            if text and body["uid"] == uid and body["in_memory"] and state in {"PENDING", "CANCELLED"}:
                array = "_" in (body.get("array") or "")
                found.append(Dependent(number, uid, state, body["reason"], array, text))
        return tuple(found)

    def detail(self, slurm_job_ids: Sequence[int]) -> dict[int, Present[JobDetail] | Absent | Unknown]:
        self._called("detail")
        if self._knob("detail") != "ok":
            return {number: Unknown("Unable to contact slurm controller") for number in slurm_job_ids}
        answer: dict[int, Present[JobDetail] | Absent | Unknown] = {}
        for number in slurm_job_ids:
            body = self._get(f"jobs/{number}.json", None)
            answer[number] = Present(_detail(number, body, "json")) if body and body["in_memory"] else Absent()
        return answer

    def accounting(
        self, slurm_job_ids: Sequence[int], *, since: int | None = None
    ) -> dict[int, Present[tuple[JobDetail, ...]] | Absent | Unknown]:
        self._called("accounting")
        if self._knob("accounting") != "ok":
            return {number: Unknown("sacct: Unable to contact slurmdbd") for number in slurm_job_ids}
        answer: dict[int, Present[tuple[JobDetail, ...]] | Absent | Unknown] = {}
        for number in slurm_job_ids:
            rows = tuple(_detail(number, row, "accounting") for row in self._rows(number))
            answer[number] = Present(rows) if rows else Absent()
        return answer

    def accounting_by_word(
        self, word: Word, uid: int, *, since: int
    ) -> Present[tuple[JobDetail, ...]] | Absent | Unknown:
        self._called("accounting_by_word")
        if self._knob("accounting") != "ok":
            return Unknown("sacct: Unable to contact slurmdbd")
        rows = tuple(
            _detail(number, row, "accounting")
            for number in self.ids()
            for row in self._rows(number)
            if row["uid"] == uid and find_word(row["comment"]) == word
        )
        return Present(rows) if rows else Absent()

    def cancel(self, slurm_job_id: int, cluster: str | None) -> CancelAnswer:
        if cluster is not None:
            return self._other(cluster).cancel(slurm_job_id, None)
        self._called("cancel")
        if self._knob("cancel") != "ok":
            return CancelAnswer(done=False, why="scancel: Unable to contact slurm controller")
        body = self._get(f"jobs/{slurm_job_id}.json", None)
        if body is not None and not OVER & set(body["states"]):
            started = "RUNNING" in body["states"]
            self.end(slurm_job_id, "CANCELLED", *(["COMPLETING"] if started else []), by_uid=self.caller())
        return CancelAnswer(done=True)

    def requeue(self, slurm_job_id: int, cluster: str | None) -> ChangeAnswer:
        if cluster is not None:
            return self._other(cluster).requeue(slurm_job_id, None)
        self._called("requeue")
        away = self._change_away("requeue", slurm_job_id)
        if away is not None:
            return away
        body = self._job(slurm_job_id)
        if "PENDING" in body["states"]:
            return ChangeAnswer(done=True)
        if not _requeues(body["argv"]):
            return ChangeAnswer(False, True, "scontrol: Requested operation is presently disabled")
        self.restart(slurm_job_id)
        if self._knob("requeue") == "lost_after":
            return ChangeAnswer(done=False, why="scontrol: Socket timed out on send/recv operation")
        return ChangeAnswer(done=True)

    def update(self, slurm_job_id: int, cluster: str | None, fields: Mapping[str, str]) -> ChangeAnswer:
        if cluster is not None:
            return self._other(cluster).update(slurm_job_id, None, fields)
        self._called("update")
        away = self._change_away("update", slurm_job_id)
        if away is not None:
            return away
        body = self._job(slurm_job_id)
        if set(body["states"]) & OVER:
            return ChangeAnswer(False, True, "scontrol: Job has already finished")
        if "Dependency" in fields:
            if any(self._get(f"jobs/{each}.json", None) is None for each in mentioned(fields["Dependency"])):
                return ChangeAnswer(False, True, "scontrol: Job dependency problem")
            self._waits_for(slurm_job_id, fields["Dependency"])
        changed = {**body.get("updated", {}), **fields}
        begins = {"reason": "None"} if "StartTime" in fields and body["reason"] == "BeginTime" else {}
        self.set(slurm_job_id, updated=changed, **begins)
        return ChangeAnswer(done=True)

    def nodes(self) -> Nodes | Unknown:
        self._called("nodes")
        if self._knob("nodes") != "ok":
            return Unknown("scontrol show nodes: Unable to contact slurm controller (connect failure)")
        return Nodes(
            tuple(
                Node(
                    name,
                    body["state"],
                    frozenset(body["flags"]),
                    tuple(body["partitions"]),
                    body["boot_time"],
                    body.get("duplicate_at"),
                    body.get("prolog_failed_at"),
                )
                for name, body in self._get("nodes.json", _NODES).items()
            )
        )

    def config(self) -> Mapping[str, str] | Unknown:
        return {
            "BOOT_TIME": self._get("knobs.json", {}).get("boot_time", str(BOOT_TIME)),
            "SlurmdTimeout": "300 sec",
            "ClusterName": self.name,
            "MessageTimeout": "10 sec",
            "AccountingStorageType": "(null)"
            if self._knob("accounting") == "none"
            else "accounting_storage/slurmdbd",
            "AccountingStoreFlags": "job_comment",
            "SLURM_VERSION": self._knob("version") or "24.11.5",
        }

    # The folder.

    def _waits_for(self, number: int, text: str) -> None:
        """The object waits for this now, as squeue prints it."""
        self.set(number, dependency=",".join(f"{part}(unfulfilled)" for part in text.split(",")), reason="Dependency")

    def _other(self, cluster: str) -> FakeSlurm:
        assert cluster != self.name, "by its own name it would be looked for through slurmdbd"
        return self.at(cluster)

    def _change_away(self, verb: str, number: int) -> ChangeAnswer | None:
        if self._knob(verb) == "away":
            return ChangeAnswer(done=False, why="scontrol: Unable to contact slurm controller (connect failure)")
        body = self._get(f"jobs/{number}.json", None)
        if body is None or not body["in_memory"]:
            return ChangeAnswer(False, True, "scontrol: Invalid job id specified")
        return None

    def _rows(self, number: int) -> list[dict[str, Any]]:
        body = self._get(f"jobs/{number}.json", None)
        if body is None:
            return []
        return [*body.get("rows", []), *([body] if body.get("accounting_live", True) else [])]

    def _job(self, number: int) -> dict[str, Any]:
        body: dict[str, Any] | None = self._get(f"jobs/{number}.json", None)
        assert body is not None, f"no object {number}"
        return body

    def _knob(self, name: str) -> str:
        return str(self._get("knobs.json", {}).get(name, "ok"))

    def _called(self, verb: str) -> None:
        with open(os.path.join(self.folder, "calls"), "a", encoding="ascii") as stream:
            stream.write(verb + "\n")

    def _new(self, number: int, body: dict[str, Any]) -> bool:
        temporary = os.path.join(self.folder, f".new.{os.getpid()}")
        with open(temporary, "w", encoding="utf-8") as stream:
            json.dump(body, stream)
        try:
            os.link(temporary, os.path.join(self.folder, "jobs", f"{number}.json"))
        except FileExistsError:
            return False
        finally:
            os.unlink(temporary)
        return True

    def _put(self, name: str, body: Any) -> None:
        temporary = os.path.join(self.folder, f".put.{os.getpid()}")
        with open(temporary, "w", encoding="utf-8") as stream:
            json.dump(body, stream)
        os.replace(temporary, os.path.join(self.folder, name))

    def _get(self, name: str, default: Any) -> Any:
        try:
            with open(os.path.join(self.folder, name), encoding="utf-8") as stream:
                return json.load(stream)
        except FileNotFoundError:
            return default


def _requeues(argv: Sequence[str]) -> bool:
    """The last word on it in the arguments; Slurm's default is yes."""
    words = [text for text in argv if text in {"--requeue", "--no-requeue"}]
    return not words or words[-1] == "--requeue"


def _comment(argv: Sequence[str]) -> str:
    comment = ""
    for position, text in enumerate(argv):
        if text.startswith("--comment="):
            comment = text.partition("=")[2]
        elif text == "--comment":
            comment = argv[position + 1]
    return comment


def _detail(number: int, body: dict[str, Any], source: str) -> JobDetail:
    states = [state for state in body["states"] if source != "accounting" or state != "COMPLETING"]
    return JobDetail(
        slurm_job_id=number,
        uid=body["uid"],
        states=frozenset(states),
        reason=body["reason"],
        exit_status=body["exit_status"],
        exit_signal=body["exit_signal"],
        restart=body["restart"],
        submit_time=body["submit_time"],
        start_time=body["start_time"],
        end_time=body["end_time"],
        nodes=body["nodes"],
        comment=body["comment"],
        source=source,
        word=find_word(body["comment"]),
        by_uid=body["by_uid"] if source == "accounting" else None,
        time_limit_s=body.get("time_limit_s"),
        memory_mb=body.get("memory_mb"),
        array="_" in (body.get("array") or "") and source != "accounting",
    )


__all__ = ["BOOT_TIME", "FIRST_ID", "OVER", "FakeSlurm"]
