"""Whether anything of an execution still runs, on a ``/proc`` that is made for the case.

Epilog and ``dispatch ps`` have one definition of it: each test is for both.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from slurm_dispatch.slurm import processes as ps
from tests.hooks.lab import waiting

from dispatch_hooks import processes  # isort: skip

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

OWNER = 54321
V2 = "0::/system.slice/c1_slurmstepd.scope/{}/step_0/user/task_0"
V1 = "7:memory:/user.slice\n5:freezer:/slurm_c1/uid_54321/{}/step_batch\n1:name=systemd:/system.slice/slurmd.service"


class Proc:
    """A folder that looks like ``/proc``."""

    def __init__(self, folder: Path, scan: Callable[..., str]) -> None:
        self.folder = folder
        self._scan = scan
        self.add(1, uid=0)
        self.add(2, uid=0, environ=None, flags=0x208040, cgroup="0::/")

    def add(
        self,
        pid: int,
        *,
        uid: int = OWNER,
        environ: dict[str, str] | None = None,
        cgroup: str = "0::/system.slice/slurmd.service",
        state: str = "S",
        flags: int = 0x400000,
        threads: int = 1,
    ) -> None:
        path = self.folder / str(pid)
        path.mkdir()
        (path / "environ").write_bytes(b"".join(f"{k}={v}\0".encode() for k, v in (environ or {}).items()))
        (path / "cgroup").write_text(cgroup + "\n")
        numbers = [state, 1, pid, pid, 0, -1, flags, *[0] * 10, threads, 0, 999, *[0] * 30]
        (path / "stat").write_text(f"{pid} (a ) (b) {' '.join(map(str, numbers))}\n")
        os.chown(path, uid, uid)

    def scan(self, **changes: Any) -> str:
        return self._scan(str(self.folder), **changes)


def by_epilog(folder: str, **changes: Any) -> str:
    return processes.scan(wanted(**changes), folder).decode()


def by_ps(folder: str, **changes: Any) -> str:
    """The same question to ``dispatch ps``, with the answer in the hook's words."""
    given = {"uid": OWNER, "cgroups": {b"job_7"}, "living": set(), "again": set(), **changes}
    names = {name.decode() for name in given["cgroups"]} - {"-"}
    found = ps.scan(
        ps.Wanted(
            "mine",
            given["uid"],
            frozenset(int(name.removeprefix("job_")) for name in names if name.startswith("job_")),
            next((name for name in names if not name.startswith("job_")), ""),
            frozenset(given["living"]),
            frozenset(given["again"]),
        ),
        folder,
    )
    return " ".join([found.answer, *(str(it.pid) for it in found.left)])


SCANS = {"epilog": by_epilog, "ps": by_ps}


def wanted(**changes: object) -> object:
    given = {"attempt": "mine", "uid": OWNER, "cgroups": {b"job_7"}, "living": set(), "again": set(), **changes}
    return processes.Wanted(**given)


@pytest.fixture(params=list(SCANS))
def proc(tmp_path: Path, request: pytest.FixtureRequest) -> Proc:
    assert os.geteuid() == 0, "this test gives folders to other users: run it as root"
    return Proc(tmp_path, SCANS[request.param])


def test_a_node_with_nothing_of_the_job_is_clean(proc: Proc) -> None:
    proc.add(50, uid=0, environ={"DISPATCH_ATTEMPT": "minemine"})
    proc.add(51, uid=99, environ={"X": "DISPATCH_ATTEMPT=mine", "DISPATCH_RESUME": "/r/exec/mine/kept/x"})
    proc.add(52, uid=99, cgroup=V2.format("job_77"))
    assert proc.scan() == "clean"


@pytest.mark.parametrize("name", ["DISPATCH_ATTEMPT", "SLURM_DISPATCH_ATTEMPT"])
def test_a_process_that_carries_the_attempt_is_left_whoever_s_it_is(proc: Proc, name: str) -> None:
    """C163: a worker that left the job's cgroup and session, and even its user."""
    proc.add(50, uid=99, environ={"A": "b", name: "mine"})
    assert proc.scan() == "left 50"


@pytest.mark.parametrize("cgroup", [V1, V2])
def test_a_process_in_the_job_s_cgroup_is_left_whoever_s_it_is(proc: Proc, cgroup: str) -> None:
    proc.add(50, uid=0, cgroup=cgroup.format("job_7"))
    proc.add(51, uid=0, cgroup=cgroup.format("job_70"))
    assert proc.scan() == "left 50"


def test_a_cgroup_of_slurm_26_05_has_the_sluid_for_a_name(proc: Proc) -> None:
    proc.add(50, uid=0, cgroup=V2.format("s0000000000001"))
    assert proc.scan(cgroups={b"job_7", b"s0000000000001"}) == "left 50"
    assert proc.scan(cgroups={b"job_7", b"-"}) == "clean"


def test_the_owner_s_other_processes_are_left(proc: Proc) -> None:
    proc.add(50, environ={})
    proc.add(51, environ={"HOME": "/"}, cgroup="0::/user.slice/user-54321.slice/session-1.scope")
    assert proc.scan() == "left 50 51"


def test_the_owner_s_other_live_jobs_are_not_counted(proc: Proc) -> None:
    proc.add(50, environ={"DISPATCH_ATTEMPT": "other"})
    proc.add(51, cgroup=V2.format("job_8"))
    proc.add(52, cgroup=V1.format("job_9"))
    assert proc.scan(living={"other"}) == "clean"
    assert proc.scan() == "left 50"


def test_a_cgroup_that_the_user_made_below_his_own_excuses_nothing(proc: Proc) -> None:
    proc.add(50, cgroup="0::/user.slice/user-54321.slice/user@54321.service/job_99")
    proc.add(51, cgroup=V2.format("job_7") + "/slurmstepd.scope/job_99")
    assert proc.scan() == "left 50 51"


def test_the_next_execution_of_the_same_job_is_not_the_old_one(proc: Proc) -> None:
    proc.add(50, cgroup=V2.format("job_7"), environ={"DISPATCH_ATTEMPT": "next"})
    assert proc.scan(living={"next"}, again={"next"}) == "clean"
    assert proc.scan(living={"next"}) == "left 50"


def test_threads_of_the_kernel_and_dead_processes_are_not_counted(proc: Proc) -> None:
    proc.add(50, state="Z", environ=None)
    assert proc.scan() == "clean"
    proc.add(51, state="Z", environ=None, threads=3)  # the first thread has ended, the others run
    assert proc.scan() == "left 51"


def test_a_process_that_cannot_be_read_makes_the_answer_unknown(proc: Proc) -> None:
    proc.add(50, uid=99)
    (proc.folder / "50" / "environ").unlink()
    (proc.folder / "50" / "environ").mkdir()  # EISDIR: any error but "it is gone"
    assert proc.scan() == "unknown"
    proc.add(51, environ={"DISPATCH_ATTEMPT": "mine"})
    assert proc.scan() == "left 51"


def test_a_process_that_is_gone_meanwhile_is_passed_over(proc: Proc) -> None:
    proc.add(50)
    for name in ("environ", "cgroup", "stat"):
        (proc.folder / "50" / name).unlink()
    assert proc.scan() == "clean"


@pytest.mark.parametrize("uid", [0, None])
def test_nothing_found_of_root_s_own_job_is_unknown(proc: Proc, uid: int | None) -> None:
    assert proc.scan(uid=uid) == "unknown"
    proc.add(50, uid=0, environ={"DISPATCH_ATTEMPT": "mine"})
    assert proc.scan(uid=uid) == "left 50"


def test_a_process_that_appears_while_the_list_is_read_is_seen(proc: Proc, monkeypatch: pytest.MonkeyPatch) -> None:
    lists = iter([["1", "2"], ["1", "2", "50"]])
    proc.add(50)
    monkeypatch.setattr(processes.os, "listdir", lambda path: next(lists, ["1", "2", "50"]))
    assert proc.scan() == "left 50"


def test_at_most_32_processes_are_named(proc: Proc) -> None:
    for pid in range(100, 150):
        proc.add(pid)
    assert proc.scan() == "left " + " ".join(map(str, range(100, 132)))


@pytest.fixture
def sleeper() -> Iterator[tuple[int, int]]:
    """(pid, uid) of a process of a user of its own, with an empty environment."""
    uid = 1_000_000_000 + os.getpid()
    with waiting({}, user=uid) as process:
        yield process.pid, uid


@pytest.mark.parametrize("scan", list(SCANS))
def test_a_real_process_of_the_owner_is_found(sleeper: tuple[int, int], scan: str) -> None:
    pid, uid = sleeper
    assert SCANS[scan]("/proc", uid=uid) == f"left {pid}"
    assert SCANS[scan]("/proc", uid=uid + 4_000_000) == "clean"


def test_this_process_and_those_above_it_are_not_counted() -> None:
    above = processes._above("/proc")
    assert {1, os.getpid(), os.getppid()} <= above


def test_the_boot_is_the_machine_s_and_process_1_s() -> None:
    boot = processes.boot()
    with open("/proc/sys/kernel/random/boot_id") as file:
        assert boot.partition(":")[0] == file.read().strip()
    assert boot.partition(":")[2].isdigit()
    assert processes.boot() == boot == ps.boot()


def test_in_a_namespace_that_slurm_made_for_a_job_nothing_is_proved(proc: Proc) -> None:
    """Slurm can start hooks with a process 1 of the job's own, and then they see neither node nor boot."""
    stat = proc.folder / "1" / "stat"
    stat.write_text(stat.read_text().replace("(a ) (b)", "(slurmstepd: [7.e)"))
    assert proc.scan() == "unknown"
