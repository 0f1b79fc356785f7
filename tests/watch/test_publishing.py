"""The helper with a real training program: what is published, and what never is."""

from __future__ import annotations

import os
import signal
import zipfile
from pathlib import Path

import pytest

from tests.watch.rig import TRAINER, Scene, until


def test_saves_are_published_and_the_status_is_passed_on(scene: Scene) -> None:
    helper = scene.train("save 10 wait one save 20 wait two exit 7")
    helper.until_said("published step 10")
    scene.open("one")
    helper.until_said("published step 20")
    scene.open("two")
    assert helper.end() == 7
    assert scene.published() == [(1, 20), (1, 10)]
    assert (scene.latest() / "done").exists()
    assert all(line.startswith("dispatch: ") for line in helper.lines)


def test_the_last_scan_finds_what_the_command_left(scene: Scene) -> None:
    helper = scene.train("save 10 exit 0", "--done", "done", "--interval", "1h")
    assert helper.end() == 0, helper.said
    assert scene.published() == [(1, 10)]


def test_a_killed_saver_s_torn_save_is_never_published(scene: Scene) -> None:
    """C054: the writer is killed half-way; no publication for step 20, and the next execution resumes from 10."""
    helper = scene.train("save 10 wait one torn 20", "--settle", "0.3", "--done", "done")
    helper.until_said("published step 10")
    scene.open("one")
    assert helper.end() == 128 + 9
    assert scene.published() == [(1, 10)]
    assert (scene.execution() / "checkpoint-20" / "weights").exists()
    again = scene.train("exit 0", number=2)
    assert again.end() == 0
    assert again.has_said("attempt2: resumes from")
    assert "checkpoint-10" in again.said


def test_a_torn_save_is_not_assumed_whole_after_a_kill(scene: Scene) -> None:
    """C054 without a marker: what only settled counts no more once the command was killed."""
    helper = scene.train("bare 10 wait one torn 20", "--settle", "0.5")
    helper.until_said("published step 10")
    scene.open("one")
    assert helper.end() == 128 + 9
    assert scene.published() == [(1, 10)]


def test_a_settled_save_is_published_and_said_to_be_assumed(scene: Scene) -> None:
    helper = scene.train("bare 10 wait one exit 0", "--settle", "0.3")
    helper.until_said("published step 10")
    assert helper.has_said("assumed whole after 0.3 s")
    scene.open("one")
    assert helper.end() == 0, helper.said


def test_the_last_scan_waits_for_a_save_to_settle(scene: Scene) -> None:
    helper = scene.train("bare 10 exit 0", "--settle", "1")
    assert helper.end() == 0, helper.said
    assert scene.published() == [(1, 10)]


def test_a_save_without_its_marker_is_never_assumed(scene: Scene) -> None:
    """C109: an integer-named folder that is half written is not published because it exists."""
    helper = scene.train("half 10 wait one exit 0", "--done", "done", "--settle", "0.2")
    helper.until_said("has no done")
    scene.open("one")
    assert helper.end() == 0, helper.said
    assert scene.published() == []


def test_an_empty_folder_is_no_save(scene: Scene) -> None:
    """C109: an empty folder with the right name is not published, however long it stays."""
    script = 'mkdir "$1/checkpoint-3"; echo x > "$1/checkpoint-4"; while [ ! -e "$2/one" ]; do sleep 0.05; done'
    helper = scene.helper("--settle", "0.2", "--", "sh", "-c", script, "sh", "{dir}", str(scene.gates))
    helper.until_said("published step 4")
    scene.open("one")
    assert helper.end() == 0, helper.said
    assert scene.published() == [(1, 4)]


def test_rotation_with_a_limit_of_one(scene: Scene) -> None:
    """The published save is the helper's own: the trainer's rotation does not take it away."""
    helper = scene.train("save 10 wait one drop 10 save 20 wait two drop 20 touch three wait four exit 0")
    helper.until_said("published step 10")
    scene.open("one")
    helper.until_said("published step 20")
    scene.open("two")
    until(lambda: scene.passed("three"), "the trainer's rotation")
    assert not (scene.execution() / "checkpoint-20").exists()
    assert len((scene.latest() / "weights").read_bytes()) > 200_000
    scene.open("four")
    assert helper.end() == 0, helper.said


def test_a_ghost_cannot_take_the_save_that_its_replacement_resumes_from(scene: Scene) -> None:
    """The old run lives on, deletes its own save and publishes more: the replacement keeps what it was given."""
    ghost = scene.train("trap TERM save 10 wait one drop 10 save 90 wait two exit 0")
    ghost.until_said("published step 10")
    new = scene.train("wait loaded save 20 wait three exit 0", number=2)
    new.until_said("resumes from")
    resume = next(line for line in new.lines if "resumes from" in line).partition("resumes from ")[2]
    scene.open("one")
    ghost.until_said("published step 90")
    assert (Path(resume) / "weights").exists()
    assert Path(resume).parent.name == "resume"
    scene.open("loaded")
    new.until_said("published step 20")
    assert scene.published()[0] == (2, 20)
    scene.open("two")
    scene.open("three")
    assert (ghost.end(), new.end()) == (0, 0)
    assert scene.published()[0] == (2, 20)


def test_a_run_that_does_not_resume(scene: Scene) -> None:
    """C097: a restart from nothing is not published, is ended, and the good lineage stays the latest."""
    assert scene.train("save 100 exit 0").end() == 0
    helper = scene.train("save 5 wait never", number=2)
    assert helper.end() == 80
    assert "did not resume" in helper.said
    assert scene.published() == [(1, 100)]


def test_a_run_that_does_not_resume_and_ends_at_once(scene: Scene) -> None:
    assert scene.train("save 100 exit 0").end() == 0
    helper = scene.train("save 5 save 10 exit 0", "--done", "done", "--interval", "1h", number=2)
    assert helper.end() == 80
    assert scene.published() == [(1, 100)]


def test_a_step_back_can_be_allowed(scene: Scene) -> None:
    """C089: newest is the greatest epoch, then the step."""
    assert scene.train("save 100 exit 0").end() == 0
    helper = scene.train("save 5 exit 0", "--done", "done", "--allow-step-back", number=2)
    assert helper.end() == 0, helper.said
    assert scene.published() == [(2, 5), (1, 100)]


def test_saving_the_resumed_step_again_is_no_step_back(scene: Scene) -> None:
    """C105: a save counter that begins with the step that was loaded clashes with nothing."""
    assert scene.train("save 100 exit 0").end() == 0
    assert scene.train("save 100 exit 0", number=2).end() == 0
    assert scene.published() == [(2, 100), (1, 100)]


def test_variables_and_words_of_the_command(scene: Scene) -> None:
    """C091: on a first start DISPATCH_RESUME is unset and an inherited one is taken away."""
    show = "import json,os,sys;print(json.dumps([dict(os.environ),sys.argv[1:]]))"
    command = ["--", "python3", "-c", show, "{dir}", "{resume:--from}"]
    inherited = scene.environment(DISPATCH_RESUME="/old", DISPATCH_RESUME_STEP="1", SLURM_DISPATCH_RESUME="/old")
    first = scene.helper(*command, environment=inherited)
    environment, words = _output(first)
    assert words == [str(scene.execution())]
    assert environment["DISPATCH_DIR"] == environment["SLURM_DISPATCH_DIR"] == str(scene.execution())
    assert environment["SLURM_DISPATCH_ATTEMPT"] == "attempt1"
    assert not [name for name in environment if "RESUME" in name]
    assert scene.train("save 10 exit 0", number=2).end() == 0
    environment, words = _output(scene.helper(*command, number=3))
    assert words == [str(scene.execution(3)), "--from", environment["DISPATCH_RESUME"]]
    assert environment["SLURM_DISPATCH_RESUME"] == environment["DISPATCH_RESUME"]
    assert environment["DISPATCH_RESUME_STEP"] == environment["SLURM_DISPATCH_RESUME_STEP"] == "10"


def _output(helper: object) -> tuple[dict[str, str], list[str]]:
    import json

    from tests.watch.rig import Helper

    assert isinstance(helper, Helper)
    assert helper.process.stdout is not None
    text = helper.process.stdout.read()
    assert helper.end() == 0, helper.said
    environment, words = json.loads(text)
    return environment, words


def test_not_managed(scene: Scene) -> None:
    environment = {name: value for name, value in scene.environment().items() if not name.startswith("DISPATCH_")}
    helper = scene.train("save 10 exit 0", "--done", "done", "--root", str(scene.root), environment=environment)
    assert helper.end() == 0, helper.said
    assert sum("not managed" in line for line in helper.lines) == 1
    assert [(one.epoch, one.step) for one in scene.publications()] == [(0, 10)]
    managed = scene.train("exit 0")
    assert managed.end() == 0, managed.said
    assert "checkpoint-10" in managed.said
    refused = scene.train("exit 0", "--require-managed", "--root", str(scene.root), environment=environment)
    assert refused.end() == 77


def test_another_job_s_root(scene: Scene) -> None:
    assert scene.train("save 10 exit 0").end() == 0
    helper = scene.train("touch ran exit 0", environment=scene.environment(DISPATCH_JOB="other"))
    assert helper.end() == 73
    assert "thejob" in helper.said
    assert not scene.passed("ran")


def test_a_root_that_is_not_there(scene: Scene) -> None:
    missing = scene.folder / "no" / "such"
    helper = scene.train("touch ran exit 0", environment=scene.environment(DISPATCH_CHECKPOINT=str(missing)))
    assert helper.end() == 74
    assert len(helper.lines) == 1
    assert str(missing) in helper.said
    assert not scene.passed("ran")


def test_a_name_in_pub_that_does_not_parse(scene: Scene) -> None:
    (scene.root / "pub").mkdir()
    (scene.root / "pub" / "rubbish").touch()
    helper = scene.train("touch ran exit 0")
    assert helper.end() == 65
    assert "rubbish" in helper.said
    assert not scene.passed("ran")


@pytest.mark.parametrize(("command", "status"), [("/no/such/command", 127), (str(TRAINER), 126)])
def test_a_command_that_cannot_be_run(scene: Scene, command: str, status: int) -> None:
    os.chmod(TRAINER, 0o644)
    helper = scene.helper("--", command)
    assert helper.end() == status
    assert "cannot run" in helper.said


def test_bad_options_are_one_line(scene: Scene) -> None:
    helper = scene.helper("--settle", "x", "--", "true")
    assert helper.end() == 64
    assert len(helper.lines) == 1
    assert not (scene.root / "exec").exists()


def test_start_from(scene: Scene) -> None:
    """A job begins from a save made before dispatch, but only while there is no publication."""
    old = scene.folder / "old"
    old.mkdir()
    (old / "weights").write_text("w")
    show = ["--", "sh", "-c", 'echo "${DISPATCH_RESUME-none} ${DISPATCH_RESUME_STEP-none}"']
    first = scene.helper("--start-from", str(old), *show)
    assert first.process.stdout is not None
    path, step = first.process.stdout.read().split()
    assert first.end() == 0
    assert (Path(path) / "weights").read_text() == "w"
    assert step == "none"
    assert scene.train("save 10 exit 0", number=2).end() == 0
    third = scene.helper("--start-from", str(old), *show, number=3)
    assert third.process.stdout is not None
    assert third.process.stdout.read().split()[1] == "10"
    assert third.end() == 0


def test_start_from_that_is_not_there(scene: Scene) -> None:
    helper = scene.helper("--start-from", "/no/such/save", "--", "true")
    assert helper.end() == 65
    assert "/no/such/save" in helper.said
    # Once there is a publication it is not needed any more, and may be gone.
    assert scene.train("save 10 exit 0", number=2).end() == 0
    assert scene.helper("--start-from", "/no/such/save", "--", "true", number=3).end() == 0


def test_the_step_comes_from_the_name_alone(scene: Scene) -> None:
    """C095, C098: tracker files that say another step, or name a folder that is not there, decide nothing."""
    (scene.folder / "tracker").write_text("global_step28")
    script = 'cp tracker "$1/latest"; echo 99 > "$1/latest_checkpointed_iteration.txt"; mkdir "$1/global_step20"; '
    script += 'echo w > "$1/global_step20/weights"; echo 1 > "$1/global_step20/done"'
    helper = scene.helper("--pattern", "global_step{step}", "--done", "done", "--", "sh", "-c", script, "sh", "{dir}")
    assert helper.end() == 0, helper.said
    assert scene.published() == [(1, 20)]


def test_a_full_disk_s_truncated_save_is_not_published(scene: Scene) -> None:
    """C104: the saver ends with the error; what it left is not whole, and the earlier save stays latest."""
    helper = scene.train("bare 10 wait one half 20 exit 1", "--settle", "0.5")
    helper.until_said("published step 10")
    scene.open("one")
    assert helper.end() == 1
    assert scene.published() == [(1, 10)]


def test_a_file_that_is_rewritten_in_place_does_not_change_what_was_published(scene: Scene) -> None:
    """C103, C169: the published save is the helper's own copy of what savers rewrite."""
    helper = scene.train("save 10 wait one rewrite 10 touch two wait three exit 0")
    helper.until_said("published step 10")
    before = (scene.latest() / "weights").read_bytes()
    scene.open("one")
    until(lambda: scene.passed("two"), "the trainer")
    assert (scene.execution() / "checkpoint-10" / "weights").read_bytes() != before
    assert (scene.latest() / "weights").read_bytes() == before
    scene.open("three")
    assert helper.end() == 0, helper.said


def test_a_marker_beside_a_truncated_shard_proves_nothing(scene: Scene) -> None:
    """C102: a shard was cut after ``.metadata`` was written; the next execution resumes from the save before."""
    with zipfile.ZipFile(scene.folder / "shard", "w") as file:
        file.writestr("data", os.urandom(50_000))
    whole = (scene.folder / "shard").read_bytes()
    (scene.folder / "cut").write_bytes(whole[: len(whole) // 2])
    lay = 'mkdir "$1/checkpoint-$2"; cp "$3" "$1/checkpoint-$2/__3_0.distcp"; echo m > "$1/checkpoint-$2/.metadata"'
    for number, step, shard in ((1, "10", "shard"), (2, "20", "cut")):
        words = ["--done", ".metadata", "--settle", "0.2", "--", "sh", "-c", lay, "sh", "{dir}", step, shard]
        assert scene.helper(*words, number=number).end() == 0
        assert scene.published() == [(1, 10)]
    again = scene.train("exit 0", number=3)
    assert again.end() == 0
    assert again.has_said("attempt3: resumes from")
    assert "checkpoint-10" in again.said


def test_a_job_whose_image_has_no_command_of_slurm(scene: Scene) -> None:
    """C056: inside the job a file system is all that is needed; what follows is decided outside."""
    empty = scene.folder / "empty"
    empty.mkdir()
    environment = scene.environment(SLURM_JOB_ID="42", SLURM_JOB_NODELIST="c1", PATH=str(empty))
    helper = scene.train("trap TERM save 10 wait got-TERM save 20 exit 85", environment=environment)
    helper.until_said("published step 10")
    helper.process.send_signal(signal.SIGTERM)
    assert helper.end() == 85, helper.said
    assert scene.published() == [(1, 20), (1, 10)]
