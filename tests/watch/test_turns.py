"""Ranks, second turns, helpers beside, and the variables for a shell."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from slurm_dispatch.errors import TransientError
from slurm_dispatch.store.root import open_root
from slurm_dispatch.watch.place import Place
from slurm_dispatch.watch.prepare import follow
from slurm_dispatch.watch.turn import claim_run, end_run, is_gone, last_run, this_process
from tests.watch.rig import DEADLINE_S, TRAINER, Scene, session, until
from tests.watch.test_signals import _script

if TYPE_CHECKING:
    from pathlib import Path


def rank(number: int, tasks: int = 2, step: str = "0") -> dict[str, str]:
    return {
        "SLURM_JOB_ID": "42",
        "SLURM_STEP_ID": step,
        "SLURM_PROCID": str(number),
        "SLURM_STEP_NUM_TASKS": str(tasks),
    }


def test_only_the_first_rank_publishes(scene: Scene) -> None:
    """C108: every rank runs a helper and sees the same save; there is one publication."""
    script = "wait go save 10 exit 0"
    second = scene.train("touch ran wait go exit 5", environment=scene.environment(**rank(1)))
    first = scene.train(script, environment=scene.environment(**rank(0)))
    until(lambda: scene.passed("ran"), "the second rank's command")
    scene.open("go")
    assert (first.end(), second.end()) == (0, 5)
    assert scene.published() == [(1, 10)]
    assert second.lines == []


def test_every_rank_resumes_from_the_same_save(scene: Scene) -> None:
    assert scene.train("save 10 exit 0").end() == 0
    show = ["--", "sh", "-c", 'echo "$DISPATCH_RESUME $DISPATCH_RESUME_STEP $DISPATCH_DIR"']
    helpers = [scene.helper(*show, environment=scene.environment(2, **rank(n, 3))) for n in (2, 1, 0)]
    told = set()
    for helper in helpers:
        assert helper.process.stdout is not None
        told.add(helper.process.stdout.read())
        assert helper.end() == 0
    assert len(told) == 1


def test_a_rank_whose_first_one_never_chooses_says_so(scene: Scene) -> None:
    """C101: a root that is not shared between nodes ends in one clear line and not in a wait for ever."""
    helper = scene.train("touch ran exit 0", "--timeout", "1", environment=scene.environment(**rank(1)))
    assert helper.end() == 74
    assert "waited 1 s for the choice of rank 0" in helper.said
    assert not scene.passed("ran")


@pytest.mark.parametrize("name", ["INT", "TERM"])
def test_a_rank_that_waits_can_be_ended(scene: Scene, name: str) -> None:
    """Before the command there is nothing to end gently: no traceback, and no process is left behind."""
    helper = scene.train("exit 0", environment=scene.environment(**rank(1)))
    until(lambda: len(session(helper.process.pid)) == 2, "the process that waits for the choice")
    number = signal.Signals[f"SIG{name}"]
    helper.process.send_signal(number)
    assert helper.process.wait(DEADLINE_S) == -number
    until(lambda: session(helper.process.pid) == [], "the end of the process that waits")
    assert helper.end() == -number
    assert helper.lines == []


def test_a_rank_whose_helper_ended_before_it_began_to_wait_does_not_wait(tmp_path: Path) -> None:
    """The helper was ended in the moment in which it had forked the process that waits."""
    place = Place(str(tmp_path), None, 0, "attempt0000000000000")
    with pytest.raises(TransientError, match="the helper that waited for the choice of rank 0 was ended"):
        follow(place, supervisor=os.getppid() + 1, timeout_s=600.0)


def test_a_second_turn_chooses_anew(scene: Scene) -> None:
    """A script that runs the command twice: the second run resumes from what the first one saved."""
    assert scene.train("save 10 save 20 exit 1").end() == 1
    again = scene.train("save 30 exit 0")
    assert again.end() == 0
    assert again.has_said("resumes from")
    assert "checkpoint-20" in again.said
    assert scene.published() == [(1, 30), (1, 20), (1, 10)]


def test_what_a_killed_turn_left_is_published_by_the_next(scene: Scene) -> None:
    first = scene.train("save 10 wait never")
    first.until_said("published step 10")
    first.kill()
    (scene.execution() / "checkpoint-20").mkdir()
    for name in ("weights", "done"):
        (scene.execution() / "checkpoint-20" / name).write_text("w")
    again = scene.train("exit 0")
    assert again.end() == 0
    assert scene.published() == [(1, 20), (1, 10)]


def test_what_a_killed_turn_left_torn_is_not_assumed_whole_by_the_next(scene: Scene) -> None:
    """C054: a torn save never changes again, so a later turn of the command must not take it for a settled one."""
    first = scene.train("bare 10 wait ten torn 20", "--settle", "0.3", "--interval", "0.05")
    first.until_said("published step 10")
    scene.open("ten")
    assert first.end() == 128 + 9
    again = scene.train("wait thirty bare 30 wait end exit 0", "--settle", "0.3", "--interval", "0.05")
    again.until_said("resumes from")
    scene.open("thirty")
    again.until_said("published step 30")
    scene.open("end")
    assert again.end() == 0
    assert scene.published() == [(1, 30), (1, 10)]


def test_what_a_killed_turn_left_torn_is_published_once_it_was_written_again(scene: Scene) -> None:
    first = scene.train("bare 10 wait ten torn 20", "--settle", "0.3", "--interval", "0.05")
    first.until_said("published step 10")
    scene.open("ten")
    assert first.end() == 128 + 9
    again = scene.train("bare 20 exit 0", "--settle", "0.3", "--interval", "0.05")
    assert again.end() == 0
    assert scene.published() == [(1, 20), (1, 10)]
    assert (scene.latest() / "weights").stat().st_size > 200_000


def test_a_turn_that_writes_old_names_again_did_not_resume(scene: Scene) -> None:
    """The names are those of the turn before, and what is in them is not."""
    assert scene.train("save 10 save 20 exit 0").end() == 0
    assert scene.train("save 10 wait never").end() == 80
    assert scene.published()[0] == (1, 20)


def test_saves_of_a_turn_that_did_not_resume_are_never_published(scene: Scene) -> None:
    """What did not resume lies in the folder; a later turn of the same execution must not take it for its own."""
    assert scene.train("save 100 exit 0").end() == 0
    assert scene.train("save 5 wait never", number=2).end() == 80
    again = scene.train("save 110 exit 0", number=2)
    assert again.end() == 0
    assert scene.published() == [(2, 110), (1, 100)]


def test_one_of_several_tasks_never_chooses_anew(scene: Scene) -> None:
    """Two ranks could otherwise read two choices."""
    assert scene.train("save 10 exit 0", environment=scene.environment(**rank(0))).end() == 0
    show = ["--", "sh", "-c", 'echo "${DISPATCH_RESUME-none}"']
    for number in (0, 1):
        helper = scene.helper(*show, environment=scene.environment(**rank(number, step="1")))
        assert helper.process.stdout is not None
        assert helper.process.stdout.read() == "none\n"
        assert helper.end() == 0


def test_a_second_helper_at_the_same_time_publishes_nothing(scene: Scene) -> None:
    first = scene.train("save 10 wait go exit 0")
    first.until_said("published step 10")
    second = scene.train("exit 3")
    assert second.end() == 3
    assert "publishes for this execution" in second.said
    scene.open("go")
    assert first.end() == 0


def test_runs(tmp_path: Path) -> None:
    root = open_root(str(tmp_path))
    root.make_execution("att")
    assert last_run(root, "att") is None
    me = this_process(os.getpid())
    assert not is_gone(me)
    assert claim_run(root, "att", 1, me)
    assert not claim_run(root, "att", 1, me)
    run = last_run(root, "att")
    assert run is not None
    assert (run.number, run.runner, run.over) == (1, me, False)
    end_run(root, "att", 1, 0)
    ended = last_run(root, "att")
    assert ended is not None
    assert ended.over
    with subprocess.Popen(["true"]) as process:
        process.wait(60)
        assert is_gone(type(me)(me.host, me.boot, process.pid, "1"))
    assert not is_gone(type(me)("another-host", me.boot, 1, "1"))
    assert is_gone(type(me)(me.host, "an earlier boot", os.getpid(), me.started))


def beside(scene: Scene, script: str, *, environment: dict[str, str] | None = None) -> subprocess.Popen[str]:
    """A batch script with a helper beside its training; standard error is a file."""
    with (scene.folder / "stderr").open("w") as errors:
        process = subprocess.Popen(
            ["sh", "-c", script, "sh", sys.executable, TRAINER, str(scene.gates)],
            env=scene.environment() if environment is None else environment,
            stderr=errors,
            cwd=scene.folder,
            start_new_session=True,
            text=True,
        )
    scene.sessions.append(process.pid)
    return process


WATCH = '"$1" -m slurm_dispatch.watch.main'
BEGIN = f'eval "$("$1" -m slurm_dispatch.cli.main env --prepare)"; {WATCH} --interval 0.05 --done done --beside & '


def said(scene: Scene) -> str:
    return (scene.folder / "stderr").read_text()


def test_beside_and_finish(scene: Scene) -> None:
    script = BEGIN + (
        '"$1" "$2" "$3" "$DISPATCH_DIR" save 10 wait one save 20 exit 0;' + f" {WATCH} --finish --status $?; exit $?"
    )
    process = beside(scene, script)
    until(lambda: "published step 10" in said(scene), "the first publication")
    scene.open("one")
    assert process.wait(120) == 0
    assert scene.published() == [(1, 20), (1, 10)]


def test_beside_ends_with_the_script_that_started_it(scene: Scene) -> None:
    """C052: TERM reaches the batch shell only; the helper notices that it has gone, and ends within seconds."""
    script = (
        "trap 'exit 0' TERM; " + BEGIN + '"$1" "$2" "$3" "$DISPATCH_DIR" save 10 touch ready; sleep 600 & wait $!'
    )
    process = beside(scene, script)
    until(lambda: "published step 10" in said(scene), "the first publication")
    process.send_signal(signal.SIGTERM)
    until(lambda: process.poll() is not None, "the end of the script")
    until((scene.execution() / ".dispatch" / "run-1.end").exists, "the helper's end")
    for pid in _others(process.pid):
        with suppress(ProcessLookupError):  # the helper itself may be one that is just ending
            os.kill(pid, signal.SIGKILL)
    (scene.execution() / "checkpoint-30").mkdir()
    (scene.execution() / "checkpoint-30" / "done").write_text("1")
    assert scene.published() == [(1, 10)]


def _others(leader: int) -> list[int]:
    from tests.watch.rig import session

    return session(leader)


def test_beside_that_was_killed_and_started_again_goes_on(scene: Scene) -> None:
    """The training that it was beside lives on, so what settled meanwhile counts."""
    first = scene.helper("--settle", "0.3", "--beside")
    until((scene.execution() / ".dispatch" / "run-1").exists, "the helper")
    first.kill()
    (scene.execution() / "checkpoint-7").mkdir()
    (scene.execution() / "checkpoint-7" / "weights").write_text("w")
    again = scene.helper("--settle", "0.3", "--beside")
    again.until_said("published step 7")
    assert scene.helper("--finish").end() == 0
    assert again.end() == 0


def test_beside_that_was_killed_is_noticed(scene: Scene) -> None:
    """C167: the helper dies with its step; the training goes on, and --finish says that publishing had ended."""
    script = BEGIN + (
        'H=$!; "$1" "$2" "$3" "$DISPATCH_DIR" save 10 wait one exit 0; kill -9 $H; wait $H; '
        f"{WATCH} --finish; exit $?"
    )
    process = beside(scene, script)
    until(lambda: "published step 10" in said(scene), "the first publication")
    scene.open("one")
    assert process.wait(120) == 69
    assert "--beside was killed" in said(scene)


def test_the_next_execution_says_that_the_helper_before_it_was_killed(scene: Scene) -> None:
    """C167: nobody can say it in the execution itself, if nothing asks --finish."""
    first = scene.helper("--done", "done", "--beside")
    until((scene.execution() / ".dispatch" / "run-1").exists, "the helper")
    (scene.execution() / "checkpoint-7").mkdir()
    (scene.execution() / "checkpoint-7" / "done").write_text("1")
    first.until_said("published step 7")
    first.kill()
    second = scene.helper("--done", "done", "--beside", number=2)
    second.until_said("never said that it ended")
    assert second.has_said("attempt1, which published step 7")
    assert scene.helper("--finish", number=2).end() == 0
    assert second.end() == 0
    third = scene.helper("--done", "done", "--beside", number=3)
    third.until_said("resumes from")
    assert third.has_said("never said that it ended")  # the save is still the first one's
    assert scene.helper("--finish", number=3).end() == 0


def test_beside_ends_when_no_step_is_left(scene: Scene) -> None:
    """The steps are there, then they are not; the last scan follows."""
    folder = scene.folder / "bin"
    folder.mkdir()
    _script(folder / "squeue", f"touch {scene.gates}/asked; [ -e {scene.gates}/gone ] || printf '42.batch\\n42.0\\n'")
    environment = scene.environment(SLURM_JOB_ID="42", PATH=f"{folder}:{os.environ['PATH']}")
    helper = scene.helper("--done", "done", "--settle", "1", "--beside", environment=environment)
    until(lambda: scene.passed("asked"), "the question for the steps")
    (scene.execution() / "checkpoint-7").mkdir()
    (scene.execution() / "checkpoint-7" / "done").write_text("1")
    helper.until_said("published step 7")
    scene.open("gone")
    assert helper.end() == 0
    assert helper.has_said("no other step of the job is left")


def test_finish_without_a_helper(scene: Scene) -> None:
    helper = scene.helper("--finish")
    assert helper.end() in {66, 74}
    scene.execution().mkdir(parents=True)
    other = scene.helper("--finish")
    assert other.end() == 66
    assert "there is no dispatch-watch --beside" in other.said


def test_beside_ends_with_an_error_of_the_store(scene: Scene) -> None:
    helper = scene.helper("--beside")
    helper.until_said("a first start")
    (scene.execution()).rename(scene.folder / "taken")
    assert helper.end() == 74


def env(scene: Scene, *words: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "slurm_dispatch.cli.main", "env", *words],
        env=scene.environment() if environment is None else environment,
        capture_output=True,
        timeout=120,
    )


def test_env(scene: Scene) -> None:
    looked = env(scene)
    assert looked.returncode == 0
    assert b"unset DISPATCH_RESUME\n" in looked.stdout
    assert not (scene.root / "exec").exists()
    prepared = json.loads(env(scene, "--prepare", "--json").stdout)
    assert prepared["DISPATCH_DIR"] == str(scene.execution())
    assert prepared["DISPATCH_RESUME"] is None
    assert scene.execution().is_dir()
    assert scene.train("save 10 exit 0", number=2).end() == 0
    third = json.loads(env(scene, "--prepare", "--json", environment=scene.environment(3)).stdout)
    assert third["DISPATCH_RESUME_STEP"] == "10"
    assert json.loads(env(scene, "--json", environment=scene.environment(3)).stdout) == third


def test_env_of_an_unmanaged_run_is_the_helper_s(scene: Scene) -> None:
    """The documented lines for a training beside, on a workstation."""
    environment = {name: value for name, value in scene.environment().items() if not name.startswith("DISPATCH_")}
    environment |= {"DISPATCH_CHECKPOINT": str(scene.root), "PYTHON": sys.executable}
    script = """eval "$($PYTHON -m slurm_dispatch.cli.main env --prepare)" || exit 99
        $PYTHON -m slurm_dispatch.watch.main --interval 0.05 --done done --beside &
        mkdir "$DISPATCH_DIR/checkpoint-5" && echo w > "$DISPATCH_DIR/checkpoint-5/done"
        while [ ! -e "$DISPATCH_DIR/.dispatch/run-1" ]; do sleep 0.05; done
        $PYTHON -m slurm_dispatch.watch.main --finish --status 0
    """
    ended = subprocess.run(
        ["sh", "-c", script], env=environment, check=False, timeout=120, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr
    assert [(one.epoch, one.step) for one in scene.publications()] == [(0, 5)]


def test_env_is_safe_for_a_shell(scene: Scene) -> None:
    """A root with quotes, newlines and commands in its name comes out as it went in, and runs nothing."""
    root = scene.folder / 'it\'s $(touch evil) `touch evil`\n"x" \\ é'
    root.mkdir()
    environment = scene.environment(DISPATCH_CHECKPOINT=str(root), DISPATCH_RESUME="/old")
    evaluate = f'eval "$({sys.executable} -m slurm_dispatch.cli.main env --prepare)"'
    line = evaluate + '; printf %s "$DISPATCH_CHECKPOINT|${DISPATCH_RESUME-none}"'
    ended = subprocess.run(["sh", "-c", line], env=environment, cwd=scene.folder, capture_output=True, timeout=120)
    assert ended.stdout.decode() == f"{root}|none"
    assert not (scene.folder / "evil").exists()


@pytest.mark.parametrize(
    ("change", "status"),
    [({"DISPATCH_EPOCH": ""}, 78), ({"DISPATCH_CHECKPOINT": ""}, 64), ({"DISPATCH_JOB": "other"}, 73)],
)
def test_env_refused(scene: Scene, change: dict[str, str], status: int) -> None:
    assert env(scene, "--prepare").returncode == 0
    refused = env(scene, "--prepare", environment=scene.environment(**change))
    assert refused.returncode == status
    assert refused.stderr.count(b"\n") == 1
    assert refused.stdout == b""
