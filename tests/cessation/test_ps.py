"""``dispatch ps``: what it takes from the node's own files, its answers, and their statuses."""

from __future__ import annotations

import json
import os
import re
import secrets
import subprocess
import sys
import time
from pathlib import Path

import pytest

from slurm_dispatch.cli import ps
from slurm_dispatch.slurm import on_node, processes
from slurm_dispatch.slurm.on_node import OnNode
from slurm_dispatch.slurm.processes import Scan, Wanted, scan
from tests.hooks.lab import START, SYSTEM_PYTHON, Lab, waiting

TOP = Path(__file__).resolve().parent.parent.parent
DEADLINE_S = 120.0
OWNER = 1_300_000_000 + os.getpid()
"""A user with no process on this machine, whoever else runs these tests on it."""
SHARED = "dispatch:abc:0:1:s"


def run(*arguments: str, user: int | None = None) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "slurm_dispatch.cli.main", "ps", *arguments],
        env={"PYTHONPATH": str(TOP), "PATH": "/usr/bin:/bin"},
        capture_output=True, text=True, timeout=DEADLINE_S, check=False, user=user, cwd="/",
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def attempt() -> str:
    return "t" + secrets.token_hex(8)


def test_nothing_of_it_runs_here(attempt: str) -> None:
    status, out, err = run("--attempt", attempt, "--uid", str(OWNER))
    node = os.uname().nodename.partition(".")[0]
    assert (status, out, err) == (0, f"clean {attempt} {node}\n", "")


def test_what_runs_is_shown(attempt: str) -> None:
    with waiting({"DISPATCH_ATTEMPT": attempt}, user=OWNER) as process:
        status, out, _ = run("--attempt", attempt)
        first, line = out.splitlines()
        assert (status, first.split()[:2]) == (1, ["left", attempt])
        assert re.match(rf" *{process.pid}  {OWNER} .* carries the attempt +/bin/sh -c echo up; read line\Z", line)
        status, out, _ = run("--attempt", attempt, "--json")
        found = json.loads(out)
        assert (status, found["v"], found["answer"], found["boot"]) == (1, 1, "left", processes.boot())
        (it,) = found["processes"]
        assert (it["pid"], it["uid"], it["why"]) == (process.pid, OWNER, "carries the attempt")
        assert abs(it["since"] - time.time()) < 3600


def test_the_owner_s_processes_are_left_without_the_attempt(attempt: str) -> None:
    with waiting({}, user=OWNER) as process:
        status, out, _ = run("--attempt", attempt, "--uid", str(OWNER), "--json")
        assert (status, [it["pid"] for it in json.loads(out)["processes"]]) == (1, [process.pid])
        assert run("--attempt", attempt, "--uid", str(OWNER + 1))[0] == 0


def test_without_the_owner_nothing_found_is_unknown(attempt: str) -> None:
    status, out, _ = run("--attempt", attempt)
    assert status == 75
    assert out.startswith(f"unknown {attempt} ")
    assert out.endswith(": nothing tells who its owner is (--uid)\n")
    assert run("--attempt", attempt, "--uid", "0")[0] == 75


def test_who_is_not_root_cannot_tell(attempt: str) -> None:
    os.seteuid(OWNER)
    try:
        found = scan(Wanted(attempt, OWNER + 1))
    finally:
        os.seteuid(0)
    assert (found.answer, found.troubles) == ("unknown", ["only root sees the environments of others"])


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--attempt", ""],
        ["--attempt", "a b"],
        ["--attempt", "A" * 20],
        ["--attempt", "x" * 41],
        ["--attempt", "abc", "--uid", "-1"],
        ["--attempt", "abc", "--uid", "ada"],
        ["--attempt", "abc", "--job", "0"],
        ["--attempt", "abc", "--sluid", "../x"],
        ["--attempt", "abc", "--timeout", "0"],
    ],
)
def test_what_is_asked_wrongly_is_refused_in_one_line(arguments: list[str]) -> None:
    status, out, err = run(*arguments)
    assert (status, out, err.count("\n")) == (64, "", 1)


def test_a_search_that_does_not_come_to_its_end_is_unknown(attempt: str) -> None:
    found = scan(Wanted(attempt, OWNER), deadline=time.monotonic() - 1)
    assert (found.answer, found.left) == ("unknown", [])
    assert any("in time" in why for why in found.troubles)


def test_a_search_that_hangs_is_given_up(attempt: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(*_: object, **__: object) -> Scan:
        time.sleep(1000)
        raise AssertionError

    monkeypatch.setattr(processes, "scan", hang)
    found = ps.look(Wanted(attempt, OWNER), 0.5)
    assert (found["answer"], found["processes"]) == ("unknown", [])
    assert found["why"]


def test_what_a_process_calls_itself_is_one_line(attempt: str) -> None:
    argv = [SYSTEM_PYTHON, "-c", "print('up', flush=True); input()", "a\nleft x\x1b[2J" + "y" * 500]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(argv, env={"DISPATCH_ATTEMPT": attempt}, **pipes) as it:
        assert it.stdout is not None
        assert it.stdout.readline() == b"up\n"
        status, out, _ = run("--attempt", attempt)
        it.kill()
    assert (status, len(out.splitlines())) == (1, 2)
    assert all(line.isprintable() and len(line) < 300 for line in out.splitlines())


# What the node's own files say.


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """A node on which the hooks ran; ``dispatch ps`` looks into its folders."""
    lab = Lab(tmp_path, python=SYSTEM_PYTHON)
    executions, begun = on_node.executions, on_node.begun
    monkeypatch.setattr(on_node, "executions", lambda: executions(str(lab.run_folder)))
    monkeypatch.setattr(on_node, "begun", lambda _: begun(str(lab.spool)))
    return lab


def began(lab: Lab, **changes: str) -> str:
    """Prolog of an execution; its attempt."""
    before = set(lab.files())
    assert lab.run("prolog", SLURM_JOB_UID=str(OWNER), SLURM_JOB_COMMENT=SHARED, **changes).status == 0
    (name,) = set(lab.files()) - before
    return re.findall(r"^DISPATCH_ATTEMPT=(.*)$", (lab.run_folder / name).read_text(), re.MULTILINE)[0]


def test_owner_and_job_are_those_of_the_execution_file(node: Lab) -> None:
    attempt = began(node)
    assert on_node.executions() == [OnNode(attempt, 7, OWNER)]
    wanted = ps.want(attempt, frozenset(), None, "")
    assert wanted == Wanted(attempt, OWNER, frozenset({7}))
    assert ps.want("other", frozenset(), None, "") == Wanted("other", None)


def test_the_owner_s_other_executions_are_not_counted(node: Lab) -> None:
    attempt = began(node)
    again = began(node, SLURM_JOB_START_TIME=str(START + 9))
    other = began(node, SLURM_JOB_ID="8")
    wanted = ps.want(attempt, frozenset(), None, "")
    assert (wanted.living, wanted.again) == (frozenset({again, other}), frozenset({again}))


def test_after_a_reboot_what_is_only_the_owner_s_does_not_count(node: Lab) -> None:
    attempt = began(node)
    (kept,) = node.spool.glob("begun.*")
    assert not ps.want(attempt, frozenset(), None, "").booted
    (node.run_folder / f"7.{START}").unlink()
    assert not ps.want(attempt, frozenset(), None, "").booted
    kept.write_text(kept.read_text().replace(f"BOOT={processes.boot()}", "BOOT=11111111:7"))
    wanted = ps.want(attempt, frozenset(), None, "")
    assert wanted == Wanted(attempt, OWNER, frozenset({7}), booted=True)
    with waiting({}, user=OWNER):
        assert scan(wanted).answer == "clean"
    with waiting({"DISPATCH_ATTEMPT": attempt}, user=OWNER):
        assert scan(wanted).answer == "left"
    text = kept.read_text()
    kept.write_text(text.replace(f"HOST={os.uname().nodename}", "HOST=another"))  # a copy of that one's disk
    assert not ps.want(attempt, frozenset(), None, "").booted
    kept.write_text(text)
    # It was begun again in this boot.
    began(node)
    assert not ps.want(attempt, frozenset(), None, "").booted


def test_files_that_are_not_the_site_s_own_say_nothing(node: Lab) -> None:
    attempt = began(node)
    node.run_folder.chmod(0o777)
    assert on_node.executions() == []
    node.run_folder.chmod(0o755)
    (node.run_folder / "8.1").symlink_to(node.run_folder / f"7.{START}")
    os.mkfifo(node.run_folder / "9.1")
    (node.run_folder / "10.1").write_text("DISPATCH_EXECUTION=1\n")
    (node.run_folder / "11.1").write_bytes(b"\xff\0")
    (node.run_folder / "12.1").mkdir()
    (node.run_folder / "13.1").write_text((node.run_folder / f"7.{START}").read_text().replace("=1\n", "=2\n", 1))
    assert [it.attempt for it in on_node.executions()] == [attempt]
    os.chown(node.run_folder, OWNER, OWNER)
    assert on_node.executions() == []


def test_the_spool_is_that_of_the_hooks_settings(tmp_path: Path) -> None:
    conf = tmp_path / "node.conf"
    assert on_node.spool_of(str(conf)) == "/var/spool/slurm-dispatch"
    conf.write_text("# spool=/a\nnotes=/b\n spool = /c d \n")
    assert on_node.spool_of(str(conf)) == "/c d"
    conf.write_text("spool=relative\n")
    assert on_node.spool_of(str(conf)) == "/var/spool/slurm-dispatch"


def test_in_a_cgroup_of_slurm_26_05_nobody_knows_whose_it_is(tmp_path: Path) -> None:
    """Its name is the SLUID: without that, a process of the owner's can be of this job or of another one."""
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "stat").write_text("1 (init) S 0 1 1\n")
    process = tmp_path / "50"
    process.mkdir()
    os.chown(process, OWNER, OWNER)
    (process / "environ").write_bytes(b"A=b\0")
    (process / "cgroup").write_text("0::/system.slice/slurmstepd.scope/sABCDEF1/step_0/user/task_0\n")
    (process / "stat").write_text("50 (x) S 1 1 1\n")
    jobs = frozenset({7})
    assert scan(Wanted("mine", OWNER, jobs), str(tmp_path)).answer == "unknown"
    assert scan(Wanted("mine", OWNER, jobs, "sABCDEF1"), str(tmp_path)).answer == "left"
    assert scan(Wanted("mine", OWNER, jobs, "sABCDEF2"), str(tmp_path)).answer == "clean"
    (process / "environ").write_bytes(b"DISPATCH_ATTEMPT=other\0")
    assert scan(Wanted("mine", OWNER, jobs, living=frozenset({"other"})), str(tmp_path)).answer == "clean"
