"""TaskProlog: what each task is given, in every shell that can be ``/bin/sh``."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.hooks.lab import DEADLINE_S, HOOKS, SHELLS, START, Ended, Lab, exported, run

if TYPE_CHECKING:
    from pathlib import Path

OWN = {
    "DISPATCH_JOB": "abc",
    "DISPATCH_EPOCH": "1000000",
    "DISPATCH_ATTEMPT": "aaaabbbbccccdddd2345",
}
IDENTITY = ("DISPATCH_JOB", "DISPATCH_EPOCH", "DISPATCH_ATTEMPT")
ALL = (*IDENTITY, "DISPATCH_CHECKPOINT", "DISPATCH_DIR", "DISPATCH_RESUME", "DISPATCH_RESUME_STEP")
EXECUTION = f"7.{START}:abc:1000000:{OWN['DISPATCH_ATTEMPT']}"


def write_file(folder: Path, name: str = f"7.{START}", **more: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    fields = {"DISPATCH_EXECUTION": "1", **OWN, "WORD": "dispatch:abc:0:1", "UNKNOWN": "x y", **more}
    path.write_text("".join(f"{key}={value}\n" for key, value in fields.items()))
    return path


@pytest.fixture(params=list(SHELLS))
def shell(request: pytest.FixtureRequest, tmp_path: Path) -> list[str]:
    """A shell under the name ``sh``, by which bash decides what it is."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "sh").symlink_to(SHELLS[request.param])
    return [str(tmp_path / "bin" / "sh")]


def task(shell: list[str], folder: Path, **environment: str) -> Ended:
    given = {"SLURM_JOB_ID": "7", "SLURM_JOB_START_TIME": str(START), **environment}
    return run([*shell, str(HOOKS / "task-prolog"), str(folder)], given)


def given(ended: Ended) -> dict[str, str | None]:
    assert (ended.status, ended.stderr) == (0, b"")
    return exported(ended.stdout)


def test_a_task_is_given_its_own_execution(shell: list[str], tmp_path: Path) -> None:
    write_file(tmp_path / "run")
    result = given(task(shell, tmp_path / "run", SLURM_DISPATCH_CHECKPOINT="/scratch/ada/a b $(x)"))
    assert {name: result[name] for name in IDENTITY} == OWN
    assert result["DISPATCH_CHECKPOINT"] == "/scratch/ada/a b $(x)"
    assert [result[name] for name in ("DISPATCH_DIR", "DISPATCH_RESUME", "DISPATCH_RESUME_STEP")] == [None] * 3
    assert result["SLURM_DISPATCH_EXECUTION"] == EXECUTION


def test_what_the_helper_says_reaches_the_tasks_of_its_execution(shell: list[str], tmp_path: Path) -> None:
    """C046: under ``--export=NONE`` too, since names that begin with SLURM pass."""
    write_file(tmp_path / "run")
    said = {
        "SLURM_DISPATCH_DIR": "/r/exec/a",
        "SLURM_DISPATCH_RESUME": "/r/exec/a/resume/x",
        "SLURM_DISPATCH_RESUME_STEP": "40",
    }
    mine = given(task(shell, tmp_path / "run", SLURM_DISPATCH_ATTEMPT=OWN["DISPATCH_ATTEMPT"], **said))
    assert [mine[name] for name in ALL[4:]] == list(said.values())
    assert "SLURM_DISPATCH_ATTEMPT" not in mine
    other = given(task(shell, tmp_path / "run", SLURM_DISPATCH_ATTEMPT="anotherattempt", **said))
    assert [other[name] for name in ALL[4:]] == [None] * 3
    assert [other[name] for name in (*said, "SLURM_DISPATCH_ATTEMPT")] == [None] * 4


def test_only_the_file_of_the_own_start_time_counts(shell: list[str], tmp_path: Path) -> None:
    write_file(tmp_path / "run", f"7.{START + 1}")
    write_file(tmp_path / "run", "7.0")
    write_file(tmp_path / "run", f"77.{START}")
    assert set(given(task(shell, tmp_path / "run")).values()) == {None}


def test_without_a_start_time_the_file_of_none_counts(shell: list[str], tmp_path: Path) -> None:
    write_file(tmp_path / "run", "7.0")
    ended = run([*shell, str(HOOKS / "task-prolog"), str(tmp_path / "run")], {"SLURM_JOB_ID": "7"})
    assert exported(ended.stdout)["DISPATCH_ATTEMPT"] == OWN["DISPATCH_ATTEMPT"]


def test_inherited_values_of_another_job_are_taken_away(shell: list[str], tmp_path: Path) -> None:
    """A job that is submitted from inside a job inherits its variables; so does a restarted one on 22.05."""
    inherited = {
        **OWN,
        "DISPATCH_CHECKPOINT": "/old",
        "DISPATCH_DIR": "/old/exec/x",
        "SLURM_DISPATCH_CHECKPOINT": "/old",
        "SLURM_DISPATCH_RECORD": "/state/jobs/old",
        "SLURM_DISPATCH_ATTEMPT": OWN["DISPATCH_ATTEMPT"],
        "SLURM_DISPATCH_DIR": "/old/exec/x",
    }
    for execution in (f"6.{START}:abc:1:x", f"7.{START - 1}:abc:1:x", "", "nonsense"):
        result = given(task(shell, tmp_path / "run", **inherited, SLURM_DISPATCH_EXECUTION=execution))
        assert {result[name] for name in ALL if name != "DISPATCH_CHECKPOINT"} == {None}
        assert result["SLURM_DISPATCH_ATTEMPT"] is None
        if execution:
            assert result["DISPATCH_CHECKPOINT"] is None
            assert result["SLURM_DISPATCH_CHECKPOINT"] is None
            assert result["SLURM_DISPATCH_RECORD"] is None


def test_without_a_file_a_task_keeps_what_its_own_execution_handed_on(shell: list[str], tmp_path: Path) -> None:
    """A node whose Prolog was skipped, or whose /run is full, beside nodes that have the file."""
    handed_on = {
        "SLURM_DISPATCH_EXECUTION": EXECUTION,
        "SLURM_DISPATCH_CHECKPOINT": "/scratch/root",
        "SLURM_DISPATCH_ATTEMPT": OWN["DISPATCH_ATTEMPT"],
        "SLURM_DISPATCH_DIR": "/scratch/root/exec/x",
    }
    result = given(task(shell, tmp_path / "run", **handed_on))
    assert {name: result[name] for name in IDENTITY} == OWN
    assert (result["DISPATCH_CHECKPOINT"], result["DISPATCH_DIR"]) == ("/scratch/root", "/scratch/root/exec/x")


def test_a_first_task_without_a_file_still_knows_its_root(shell: list[str], tmp_path: Path) -> None:
    """No identity then, but the training runs, unmanaged: what the wrapper said of this job stays."""
    result = given(task(shell, tmp_path / "run", SLURM_DISPATCH_CHECKPOINT="/scratch/root"))
    assert result["DISPATCH_CHECKPOINT"] == "/scratch/root"
    assert {result[name] for name in IDENTITY} == {None}


@pytest.mark.parametrize(
    "execution",
    [
        f"7.{START}:abc:1",
        f"7.{START}:a/b:1:x",
        f"7.{START}:abc:x:x",
        f"7.{START}:abc:1:x/y",
        f"7.{START}:::",
        f"7.{START}:abc:1:x\ny",
    ],
)
def test_a_handed_on_identity_that_does_not_parse_is_none(shell: list[str], tmp_path: Path, execution: str) -> None:
    result = given(task(shell, tmp_path / "run", SLURM_DISPATCH_EXECUTION=execution))
    assert {result[name] for name in IDENTITY} == {None}


def test_a_second_execution_of_a_shared_job_is_refused(shell: list[str], tmp_path: Path) -> None:
    write_file(tmp_path / "run", REFUSE="1")
    ended = task(shell, tmp_path / "run")
    assert ended.status == 1
    assert ended.stdout.startswith(b"print dispatch: ")
    assert ended.stdout.count(b"\n") == 1
    assert b"export" not in ended.stdout


def test_a_file_of_another_version_gives_nothing_and_refuses_nothing(shell: list[str], tmp_path: Path) -> None:
    path = write_file(tmp_path / "run", REFUSE="1")
    path.write_text(path.read_text().replace("DISPATCH_EXECUTION=1", "DISPATCH_EXECUTION=2"))
    assert set(given(task(shell, tmp_path / "run")).values()) == {None}


@pytest.mark.parametrize("kind", ["fifo", "folder", "dangling link", "empty", "binary", "unended"])
def test_whatever_stands_under_the_name_the_task_starts(shell: list[str], tmp_path: Path, kind: str) -> None:
    path = write_file(tmp_path / "run")
    content = path.read_bytes()
    path.unlink()
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "dangling link":
        path.symlink_to("nowhere")
    else:
        path.write_bytes({"empty": b"", "binary": bytes(range(1, 256)) * 20, "unended": content[:-60]}[kind])
    ended = task(shell, tmp_path / "run")
    assert ended.status == 0
    assert exported(ended.stdout)["DISPATCH_JOB"] in {None, "abc"}


@pytest.mark.parametrize("value", ["a\nexport PATH=/evil", "\n", "x" * 100_000, "é\udcff", '"; $(id) `id` %n \\'])
def test_a_value_is_handed_on_whole_or_not_at_all(shell: list[str], tmp_path: Path, value: str) -> None:
    write_file(tmp_path / "run")
    environment = {b"SLURM_JOB_ID": b"7", b"SLURM_JOB_START_TIME": str(START).encode()}
    environment[b"SLURM_DISPATCH_CHECKPOINT"] = value.encode("utf-8", "surrogateescape")
    ended = run([*shell, str(HOOKS / "task-prolog"), str(tmp_path / "run")], environment)
    assert ended.status == 0
    lines = ended.stdout.decode("utf-8", "surrogateescape").split("\n")
    expected = "unset DISPATCH_CHECKPOINT" if "\n" in value else f"export DISPATCH_CHECKPOINT={value}"
    assert expected in lines
    assert not any(line.startswith("export PATH") for line in lines)


HOSTILE = {
    "IFS": "=:a",
    "BASH_ENV": "/nonexistent",
    "ENV": "/nonexistent",
    "PATH": "/nonexistent",
    "LD_PRELOAD": "/nonexistent.so",
    "PYTHONPATH": "/nonexistent",
    "CDPATH": "/",
    "PS4": "export EVIL=",
    "BASH_FUNC_read%%": "() { echo export EVIL=1; }",
    "BASH_FUNC_printf%%": "() { echo export EVIL=1; }",
    "BASH_FUNC_[%%": "() { echo export EVIL=1; return 1; }",
    "BASH_FUNC_unset%%": "() { echo export EVIL=1; }",
    "job": "evil",
    "attempt": "evil",
    "refuse": "1",
    "version": "1",
    "line": "REFUSE=1",
    "LC_ALL": "xx_YY.nonsense",
}


@pytest.mark.parametrize("with_file", [True, False])
@pytest.mark.parametrize(
    "hostile", [HOSTILE, {"POSIXLY_CORRECT": "1", "SHELLOPTS": "errexit:nounset:xtrace:verbose"}]
)
def test_a_hostile_environment_changes_nothing(
    shell: list[str], tmp_path: Path, hostile: dict[str, str], with_file: bool
) -> None:
    if with_file:
        write_file(tmp_path / "run")
    plain = task(shell, tmp_path / "run")
    ended = task(shell, tmp_path / "run", **hostile)
    assert (ended.status, ended.stdout) == (plain.status, plain.stdout)
    # ld.so and bash complain on the pipe that slurmstepd reads, in lines that it does not know.
    assert not any(line.startswith((b"export ", b"unset ", b"print ")) for line in ended.stderr.splitlines())


@pytest.mark.parametrize("closed", ["0<&-", "1>&-", "2>&-", "0<&- 1>&- 2>&-"])
def test_closed_streams_do_not_fail_a_task(shell: list[str], tmp_path: Path, closed: str) -> None:
    write_file(tmp_path / "run")
    line = f'"$@" {closed}'
    argv = ["/bin/sh", "-c", line, "sh", *shell, str(HOOKS / "task-prolog"), str(tmp_path / "run")]
    assert run(argv, {"SLURM_JOB_ID": "7", "SLURM_JOB_START_TIME": str(START)}).status == 0


def test_a_reader_that_has_gone_does_not_fail_a_task(shell: list[str], tmp_path: Path) -> None:
    write_file(tmp_path / "run")
    read_end, write_end = os.pipe()
    os.close(read_end)
    try:
        status = subprocess.call(
            [*shell, str(HOOKS / "task-prolog"), str(tmp_path / "run")],
            env={"SLURM_JOB_ID": "7", "SLURM_JOB_START_TIME": str(START)},
            stdout=write_end,
            stderr=subprocess.DEVNULL,
            timeout=DEADLINE_S,
        )
    finally:
        os.close(write_end)
    assert status == 0


def test_it_works_in_an_environment_with_nothing_in_it(shell: list[str], tmp_path: Path) -> None:
    """C039, C045: no PATH and no job; a container without the file."""
    ended = run([*shell, str(HOOKS / "task-prolog")], {})
    assert ended.status == 0
    assert set(exported(ended.stdout).values()) == {None}


def test_prolog_writes_what_task_prolog_reads(lab: Lab) -> None:
    lab.run("prolog")
    result = exported(lab.run("task-prolog").stdout)
    assert (result["DISPATCH_JOB"], result["DISPATCH_EPOCH"]) == ("abc", "1000000")
    assert result["SLURM_DISPATCH_EXECUTION"] == f"7.{START}:abc:1000000:{result['DISPATCH_ATTEMPT']}"


def test_it_runs_no_program(shell: list[str], tmp_path: Path) -> None:
    """It is on the way of every rank, and in containers that have no programs."""
    write_file(tmp_path / "run")
    trace = tmp_path / "trace"
    argv = ["strace", "-f", "-o", str(trace), "-e", "trace=execve,fork,vfork,clone,clone3", *shell]
    assert (
        run([*argv, str(HOOKS / "task-prolog"), str(tmp_path / "run")], {**os.environ, "SLURM_JOB_ID": "7"}).status
        == 0
    )
    calls = [line for line in trace.read_text().splitlines() if "(" in line]
    assert len(calls) == 1, calls


def test_the_word_says_whether_the_checkpoint_is_shared(shell: list[str], tmp_path: Path) -> None:
    """Whatever the wrapper or an outer job said."""
    write_file(tmp_path / "run", WORD="dispatch:abc:0:1:s")
    shared = given(task(shell, tmp_path / "run"))
    assert shared["SLURM_DISPATCH_SHARED"] == "1"
    assert shared["SLURM_DISPATCH_EXECUTION"] == f"{EXECUTION}:s"
    write_file(tmp_path / "run")
    isolated = given(task(shell, tmp_path / "run", SLURM_DISPATCH_SHARED="1"))
    assert isolated["SLURM_DISPATCH_SHARED"] is None
    assert isolated["SLURM_DISPATCH_EXECUTION"] == EXECUTION
    assert "SLURM_DISPATCH_SHARED" not in given(task(shell, tmp_path / "run"))


def test_without_a_file_a_task_of_a_shared_job_knows_that_it_is_one(shell: list[str], tmp_path: Path) -> None:
    result = given(task(shell, tmp_path / "run", SLURM_DISPATCH_EXECUTION=f"{EXECUTION}:s"))
    assert {name: result[name] for name in IDENTITY} == OWN
    assert result["SLURM_DISPATCH_SHARED"] == "1"
    assert result["SLURM_DISPATCH_EXECUTION"] == f"{EXECUTION}:s"


def test_what_an_outer_job_said_of_itself_is_taken_away(shell: list[str], tmp_path: Path) -> None:
    said = {"SLURM_DISPATCH_SHARED": "1", "SLURM_DISPATCH_STALL": "1800", "SLURM_RESTART_COUNT": "1"}
    result = given(task(shell, tmp_path / "run", SLURM_DISPATCH_EXECUTION=f"6.{START}:abc:1:x", **said))
    assert (result["SLURM_DISPATCH_SHARED"], result["SLURM_DISPATCH_STALL"]) == (None, None)


@pytest.mark.parametrize(("count", "refused"), [("1", True), ("12", True), ("0", False), (None, False), ("x", False)])
def test_without_a_file_a_restart_of_a_shared_job_is_refused(
    shell: list[str], tmp_path: Path, count: str | None, refused: bool
) -> None:
    """The Prolog was skipped, or could not write: the wrapper and Slurm say enough."""
    more = {} if count is None else {"SLURM_RESTART_COUNT": count}
    ended = task(shell, tmp_path / "run", SLURM_DISPATCH_SHARED="1", **more)
    assert (ended.status, ended.stdout.startswith(b"print ")) == (int(refused), refused)
    isolated = task(shell, tmp_path / "run", **more)
    assert isolated.status == 0
