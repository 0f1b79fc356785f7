"""A shared checkpoint: the command works in the root itself; progress and stalls come from the names of saves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

from slurm_dispatch.store.root import open_root
from slurm_dispatch.watch.options import parse
from slurm_dispatch.watch.shared import SharedSaves
from tests.watch.rig import DEADLINE_S, Scene, until
from tests.watch.test_troubles import record
from tests.watch.test_turns import rank

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

SHARED = {"SLURM_DISPATCH_SHARED": "1"}
SHOW = ["--", "sh", "-c", 'echo "$DISPATCH_DIR ${DISPATCH_RESUME-none} $*"', "sh", "{dir}", "{resume:--from}", "end"]


def shown(scene: Scene, number: int = 1, **more: str) -> str:
    helper = scene.helper(*SHOW, environment=scene.environment(number, **SHARED, **more))
    assert helper.process.stdout is not None
    text = helper.process.stdout.read()
    assert helper.end() == 0
    return text


def test_the_command_works_in_the_root_and_resumes_by_itself(scene: Scene) -> None:
    assert scene.train("save 10 exit 0").end() == 0
    assert shown(scene, 2) == f"{scene.root} none {scene.root} end\n"
    assert os.readlink(scene.root / "own" / "0") == "thejob"


def test_nothing_is_published_kept_or_thinned(scene: Scene) -> None:
    helper = scene.train("save 10 save 20 save 30 save 40 exit 7", environment=scene.environment(1, **SHARED))
    assert helper.end() == 7
    assert helper.has_said("a shared checkpoint: the command works in the root itself and nothing is published")
    assert {path.name for path in scene.root.iterdir()} == {
        "own", "exec", "checkpoint-10", "checkpoint-20", "checkpoint-30", "checkpoint-40",
    }  # fmt: skip
    assert [path.name for path in scene.execution().iterdir()] == [".dispatch"]


def test_progress_is_what_is_above_the_saves_that_were_there(scene: Scene) -> None:
    made = record(scene.folder)
    environment = scene.environment(1, SLURM_DISPATCH_RECORD=made.folder, **SHARED)
    assert scene.train("save 10 exit 1", environment=scene.environment(1, **SHARED)).end() == 1
    helper = scene.train("save 5 wait one save 20 wait two exit 0", environment=environment)
    scene.open("one")
    until(lambda: len(made.read()) == 2, "the progress")
    scene.open("two")
    assert helper.end() == 0
    progress, ended = made.read()[1:]
    common = {"attempt": "attempt1", "epoch": "1000000"}
    assert dict(progress.body) == {**common, "step": 20, "resumed_from": 10, "removed": 0, "paths": []}
    assert dict(ended.body) == {**common, "status": 0, "signal": None, "outcome": None, "step": 20}


def test_whether_it_resumed_is_not_looked_at(scene: Scene) -> None:
    assert scene.train("save 100 exit 0", environment=scene.environment(1, **SHARED)).end() == 0
    assert scene.train("save 5 exit 0", environment=scene.environment(2, **SHARED)).end() == 0


def test_another_job_s_root_is_refused_on_every_rank(scene: Scene) -> None:
    assert scene.train("exit 0", environment=scene.environment(1, **SHARED)).end() == 0
    foreign = {**SHARED, "DISPATCH_JOB": "another"}
    second = scene.train(
        "touch ran exit 0", "--timeout", "1", environment=scene.environment(2, **foreign, **rank(1))
    )
    first = scene.train("touch ran exit 0", environment=scene.environment(2, **foreign, **rank(0)))
    assert (first.end(), second.end()) == (73, 74)
    assert "rank 1 waited 1 s for rank 0" in second.said
    assert not scene.passed("ran")


def test_every_rank_has_the_root(scene: Scene) -> None:
    helper = scene.helper(*SHOW, environment=scene.environment(1, **SHARED, **rank(1)))
    first = scene.helper(*SHOW, environment=scene.environment(1, **SHARED, **rank(0)))
    for one in (helper, first):
        assert one.process.stdout is not None
        assert one.process.stdout.read() == f"{scene.root} none {scene.root} end\n"
        assert one.end() == 0
    assert helper.lines == []


def test_a_second_helper_hands_on_nothing(scene: Scene) -> None:
    made = record(scene.folder)
    first = scene.train("touch ran wait go exit 0", environment=scene.environment(1, **SHARED))
    until(lambda: scene.passed("ran"), "the first command")
    environment = scene.environment(1, SLURM_DISPATCH_RECORD=made.folder, **SHARED)
    second = scene.train("save 10 exit 3", environment=environment)
    assert second.end() == 3
    assert "publishes for this execution" in second.said
    scene.open("go")
    assert first.end() == 0
    assert len(made.read()) == 1


def test_a_stall_is_told_from_the_names(scene: Scene) -> None:
    helper = scene.train("save 10 wait never", "--stall", "1", environment=scene.environment(1, **SHARED))
    assert helper.end() == 79
    assert helper.has_said("no save was written for 1 s (--stall)")


def test_a_save_that_is_written_again_breaks_the_silence(tmp_path: Path) -> None:
    """A training that went back writes old names, with smaller steps: no progress, and no stall."""
    saves = SharedSaves(str(tmp_path), parse(["--", "x"]), step=None)
    for step in (10, 20):
        (tmp_path / f"checkpoint-{step}").mkdir()
    for name in ("own", "exec", "pub"):
        (tmp_path / name).mkdir()
    found = saves.scan(assume=True)
    assert (found.published, found.active) == ([10, 20], False)  # the first look is the measure
    assert not saves.scan(assume=True).active
    os.utime(tmp_path / "checkpoint-10", ns=(1, 1))
    found = saves.scan(assume=True)
    assert (found.published, found.active) == ([], True)
    (tmp_path / "checkpoint-10").rmdir()
    assert not saves.scan(assume=True).active  # a rotation is no save
    (tmp_path / "checkpoint-15").mkdir()
    found = saves.scan(assume=False)
    assert (found.published, found.active, found.waiting) == ([], True, 0)


def test_with_done_a_save_counts_once_it_has_its_marker(tmp_path: Path) -> None:
    saves = SharedSaves(str(tmp_path), parse(["--done", "done", "--", "x"]), step=5)
    (tmp_path / "checkpoint-10").mkdir()
    assert saves.scan(assume=True).published == []
    (tmp_path / "checkpoint-10" / "done").touch()
    found = saves.scan(assume=True)
    assert (found.published, found.active) == ([10], True)


def test_two_saves_of_one_step_are_said_and_nothing_that_matches_too(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    now = 0.0
    saves = SharedSaves(str(tmp_path), parse(["--pattern", "*-{step}", "--", "x"]), step=None, clock=lambda: now)
    (tmp_path / "notes").touch()
    for moment in (0.0, 1799.0, 1800.0, 1900.0):
        now = moment
        saves.scan(assume=True)
    assert capfd.readouterr().err.count("seen in") == 1
    for name in ("a-10", "b-10"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    for _ in range(2):
        assert saves.scan(assume=True).published == []
    assert capfd.readouterr().err.count("is not counted as a save: a-10 and b-10 are both saves of step 10") == 1


def test_the_variables_for_a_shell(scene: Scene) -> None:
    argv = [sys.executable, "-m", "slurm_dispatch.cli.main", "env", "--json"]
    for words in (argv, [*argv, "--prepare"]):
        done = subprocess.run(
            words, env=scene.environment(1, **SHARED), capture_output=True, timeout=DEADLINE_S, check=True
        )
        found = json.loads(done.stdout)
        assert found["DISPATCH_DIR"] == found["SLURM_DISPATCH_DIR"] == str(scene.root)
        assert found["DISPATCH_RESUME"] is None
    assert open_root(str(scene.root)).listing() == []
    assert os.readlink(scene.root / "own" / "0") == "thejob"
