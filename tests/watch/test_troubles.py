"""A store that fails or hangs, and a record that cannot be reached: the training goes on, and it is said."""

from __future__ import annotations

import errno
import json
import os
import select
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from slurm_dispatch.errors import AbsentError, DeniedError, NotAllowedError
from slurm_dispatch.records.spec import Spec
from slurm_dispatch.state.jobs import Record
from slurm_dispatch.store.choice import Choice
from slurm_dispatch.store.root import open_root
from slurm_dispatch.store.whole import look
from slurm_dispatch.watch import say as saying
from slurm_dispatch.watch import session, tree
from slurm_dispatch.watch.handing import HandingOn, append, check_folder
from slurm_dispatch.watch.options import parse
from slurm_dispatch.watch.place import Place
from slurm_dispatch.watch.prepare import Prepared, low_space
from slurm_dispatch.watch.publish import Publisher
from slurm_dispatch.watch.scanner import Serving
from slurm_dispatch.watch.session import Session
from tests.watch.rig import DEADLINE_S, JOB, Scene

if TYPE_CHECKING:
    from collections.abc import Callable


def test_a_store_that_fails_does_not_end_the_command(scene: Scene) -> None:
    """The command runs on, a later scan does what this one could not, and its own status is passed on."""
    script = "save 10 wait one save 20 touch two wait three exit 3"
    helper = scene.train(script)
    helper.until_said("published step 10")
    pub = scene.root / "pub"
    pub.rename(scene.root / "away")
    pub.write_text("no folder")
    scene.open("one")
    helper.until_said("nothing is published")
    assert helper.process.poll() is None
    scene.open("three")
    assert helper.end() == 3
    assert helper.has_said("saves may be left unpublished")


def test_a_whole_save_that_is_left_unpublished_is_74(scene: Scene) -> None:
    helper = scene.train("save 10 wait one save 20 exit 0")
    helper.until_said("published step 10")
    pub = scene.root / "pub"
    pub.rename(scene.root / "away")
    pub.write_text("no folder")
    scene.open("one")
    assert helper.end() == 74


def test_on_error_end(scene: Scene) -> None:
    helper = scene.train("save 10 wait one save 20 wait never", "--done", "done", "--on-error", "end")
    helper.until_said("published step 10")
    pub = scene.root / "pub"
    pub.rename(scene.root / "away")
    pub.write_text("no folder")
    scene.open("one")
    assert helper.end() == 74
    assert helper.has_said("--on-error=end")


def test_a_scan_that_hangs_does_not_hold_up_the_command(scene: Scene) -> None:
    """C059: the scanning process stops (as on a hung mount); it is given up, and the command goes on and ends."""
    import signal

    from tests.watch.test_signals import _children, _words

    # Long enough for a scan that does not hang, also where the disk is slow.
    helper = scene.train("save 10 wait one exit 6", "--done", "done", "--timeout", "10")
    helper.until_said("published step 10")
    # Stopped within a scan or between two: either way it is given up, by the one deadline or by the other.
    for pid in _children(helper.process.pid):
        if b"slurm_dispatch.watch.main" in _words(pid):
            os.kill(pid, signal.SIGSTOP)
    scene.open("one")
    assert helper.end() == 6
    assert helper.has_said("did not end in 10 s") or helper.has_said("the last scan is given up")


def record(folder: Path) -> Record:
    """A record of the job, with its specification only."""
    path = folder / "state" / "jobs" / JOB
    (path / "facts").mkdir(parents=True)
    path.chmod(0o700)
    spec = Spec(
        JOB, 0, "ada", os.getuid(), os.getgid(), (), "c", "train", "/r", False, (), None, (), "0" * 64, True, "/",
        0o22, "", (), 100, None, "login",
    )  # fmt: skip
    made = Record(str(path))
    assert made.append(1, "spec", "user:ada@login", spec.body())
    return made


def test_progress_and_the_end_are_handed_on(scene: Scene) -> None:
    made = record(scene.folder)
    environment = scene.environment(SLURM_DISPATCH_RECORD=made.folder)
    helper = scene.train("save 10 wait one save 20 exit 85", environment=environment)
    helper.until_said("published step 10")
    scene.open("one")
    assert helper.end() == 85
    facts = [(fact.kind, dict(fact.body)) for fact in made.read()[1:]]
    common = {"attempt": "attempt1", "epoch": "1000000"}
    none = {"resumed_from": None, "removed": 0, "paths": []}
    assert facts[0] == ("progress", {**common, "step": 10, **none})
    assert facts[-2] == ("progress", {**common, "step": 20, **none})
    assert facts[-1] == ("ended", {**common, "status": 85, "signal": None, "outcome": None, "step": 20})


def test_the_outcome_of_a_run_that_did_not_resume_is_handed_on(scene: Scene) -> None:
    made = record(scene.folder)
    assert scene.train("save 100 exit 0").end() == 0
    helper = scene.train("save 5 wait never", environment=scene.environment(2, SLURM_DISPATCH_RECORD=made.folder))
    assert helper.end() == 80
    last = made.read()[-1]
    assert (last.kind, last.body["outcome"], last.body["signal"], last.body["step"]) == (
        "ended",
        "not_resumed",
        15,
        None,
    )


def test_a_store_that_fails_before_the_command_is_handed_on(scene: Scene) -> None:
    """Its status alone is that of a failed job, which is brought back a few times; the store may be away for long."""
    made = record(scene.folder)
    root = scene.folder / "away" / "root"  # the folder that it lies in is not there either
    environment = scene.environment(SLURM_DISPATCH_RECORD=made.folder, DISPATCH_CHECKPOINT=str(root))
    helper = scene.helper("--", "true", environment=environment)
    assert helper.end() == 74, helper.said
    (fact,) = made.read()[1:]
    assert (fact.kind, fact.body["outcome"], fact.body["status"], fact.body["step"]) == (
        "ended",
        "store_error",
        None,
        None,
    )
    beside = scene.helper("--beside", environment=environment)
    assert beside.end() == 74, beside.said
    assert len(made.read()) == 2


def test_only_the_process_that_publishes_hands_on(scene: Scene) -> None:
    made = record(scene.folder)
    step = {"SLURM_JOB_ID": "42", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "1"}
    first = scene.train("save 10 exit 0", environment=scene.environment(**(step | {"SLURM_PROCID": "0"})))
    assert first.end() == 0
    second = scene.train("exit 0", environment=scene.environment(SLURM_DISPATCH_RECORD=made.folder, **step))
    assert second.end() == 0
    assert len(made.read()) == 1


def test_a_record_that_is_away_is_said_once(scene: Scene) -> None:
    environment = scene.environment(SLURM_DISPATCH_RECORD=f"/no/such/{JOB}")
    helper = scene.train("save 10 exit 0", environment=environment)
    assert helper.end() == 0
    assert sum("record" in line for line in helper.lines) == 1
    assert scene.published() == [(1, 10)]


def test_a_closed_record_gets_no_more_facts(tmp_path: Path) -> None:
    made = record(tmp_path)
    made.append(2, "closed", "user:ada@login", {"why": "cancelled", "reason": "enough"})
    body = {"attempt": "a", "epoch": "1000000", "status": 0, "signal": None, "outcome": None, "step": None}
    append(made.folder, JOB, "ended", body)
    assert len(made.read()) == 2


def test_whose_record_it_is(tmp_path: Path) -> None:
    made = record(tmp_path)
    check_folder(made.folder, JOB)
    with pytest.raises(NotAllowedError):
        check_folder(made.folder, "other")
    with pytest.raises(NotAllowedError):
        check_folder(f"relative/{JOB}", JOB)
    with pytest.raises(AbsentError):
        check_folder(f"/no/such/{JOB}", JOB)
    os.chmod(made.folder, 0o777)
    with pytest.raises(DeniedError):
        check_folder(made.folder, JOB)
    (tmp_path / "link").mkdir()
    (tmp_path / "link" / JOB).symlink_to(made.folder)
    with pytest.raises(DeniedError):
        check_folder(str(tmp_path / "link" / JOB), JOB)


def test_progress_is_handed_on_at_most_once_in_fifteen_minutes(tmp_path: Path) -> None:
    made = record(tmp_path)
    handing = HandingOn(made.folder, JOB, "a", 1000000, None)
    for now, step in ((0.0, 10), (1.0, 20), (899.0, 30), (900.0, 40)):
        handing.progress(step, now)
        if handing.running is not None:
            handing.running.wait("it")
            handing.running = None
    handing.ended(status=0, signal=None, outcome=None, step=40)
    assert [fact.body["step"] for fact in made.read()[1:]] == [10, 40, 40]


def test_what_the_helper_removed_is_in_its_progress(scene: Scene) -> None:
    """Who removed what is in the record: the helper's thinning too, and of all its removals their number."""
    made = record(scene.folder)
    environment = scene.environment(SLURM_DISPATCH_RECORD=made.folder)
    argv = ["save", "10", "wait", "one", *(word for step in (20, 30, 40) for word in ("save", str(step)))]
    options = ("--done", "done", "--keep", "1,1")
    helper = scene.train(" ".join([*argv, "exit 0"]), *options, environment=environment)
    helper.until_said("published step 10")
    scene.open("one")
    assert helper.end() == 0
    last = [fact.body for fact in made.read() if fact.kind == "progress"][-1]
    kept = os.listdir(os.path.join(scene.root, "exec", "attempt1", "kept"))
    assert (last["step"], last["removed"], kept) == (40, len(last["paths"]), ["checkpoint-40"])
    assert last["paths"][0] == "exec/attempt1/kept/checkpoint-10"


def test_nothing_matched_is_said_once_with_the_names(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    root = open_root(str(tmp_path))
    directory = root.make_execution("att")
    (Path(directory) / "ckpt_10").mkdir()
    now = 0.0
    publisher = Publisher(
        root, Place(str(tmp_path), JOB, 1000000, "att"), parse(["--", "x"]), resumed_step=None, clock=lambda: now
    )
    publisher.begin()
    for moment in (0.0, 1799.0, 1800.0, 1900.0):
        now = moment
        publisher.scan(assume=True)
    said = capfd.readouterr().err
    assert said.count("\n") == 1
    assert "ckpt_10" in said
    assert "checkpoint-{step}" in said


def test_a_save_that_changes_while_it_is_kept_is_not_published(tmp_path: Path) -> None:
    """C169: what is published is closed and does not change; here a file grows between two looks."""
    root = open_root(str(tmp_path))
    save = Path(root.make_execution("att")) / "checkpoint-10"
    save.mkdir()
    now = 0.0
    publisher = Publisher(
        root, Place(str(tmp_path), JOB, 1000000, "att"), parse(["--settle", "5", "--", "x"]), resumed_step=None,
        clock=lambda: now,
    )  # fmt: skip
    publisher.begin()
    for moment in range(0, 20, 4):
        now = float(moment)
        (save / "weights").write_text("w" * (moment + 1))
        assert publisher.scan(assume=True).published == []
    now = 20.0
    assert publisher.scan(assume=True).published == []
    now = 30.0
    assert publisher.scan(assume=False).published == []
    assert publisher.scan(assume=True).published == [10]


def test_a_supervisor_that_dies_while_a_save_is_kept_gets_nothing_published(tmp_path: Path) -> None:
    """C052: nobody would hand it on, and the replacement may have begun; it stays kept, and unpublished."""
    root = open_root(str(tmp_path))
    folder = Path(root.make_execution("att"))
    (folder / "checkpoint-10").mkdir()
    for name in ("weights", "done"):
        (folder / "checkpoint-10" / name).write_text("w")
    publisher = Publisher(
        root, Place(str(tmp_path), JOB, 1000000, "att"), parse(["--done", "done", "--", "x"]), resumed_step=None,
        alive=lambda: not (folder / "kept").exists(),
    )  # fmt: skip
    publisher.begin()
    assert publisher.scan(assume=True).published == []
    assert root.listing() == []
    assert (folder / "kept" / "checkpoint-10" / "weights").exists()


def test_what_an_earlier_turn_left_below_the_step_resumed_from_is_never_published(tmp_path: Path) -> None:
    """It would be the latest of this epoch for a moment, and who resumed then would lose steps."""
    root = open_root(str(tmp_path))
    folder = Path(root.make_execution("att"))

    def lay(step: int) -> str:
        save = folder / f"checkpoint-{step}"
        save.mkdir()
        for name in ("weights", "done"):
            (save / name).write_text("w")
        return str(save)

    known = frozenset({lay(8), lay(11)})
    publisher = Publisher(
        root, Place(str(tmp_path), JOB, 1000000, "att"), parse(["--done", "done", "--", "x"]), resumed_step=10,
        known=known,
    )  # fmt: skip
    publisher.begin()
    assert publisher.scan(assume=True).published == [11]
    lay(12)
    assert publisher.scan(assume=True).published == [12]
    assert [one.step for one in root.listing()] == [12, 11]


def test_a_link_that_leaves_the_save_is_refused_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """C094: a link out of the save is not published."""
    root = open_root(str(tmp_path))
    save = Path(root.make_execution("att")) / "checkpoint-10"
    save.mkdir()
    (save / "done").touch()
    (save / "weights").symlink_to("/etc/passwd")
    publisher = Publisher(
        root, Place(str(tmp_path), JOB, 1000000, "att"), parse(["--done", "done", "--", "x"]), resumed_step=None
    )
    publisher.begin()
    for _ in range(3):
        publisher.scan(assume=True)
    assert root.listing() == []
    assert capfd.readouterr().err.count("\n") == 1


def test_the_facts_are_json_of_the_format(scene: Scene) -> None:
    made = record(scene.folder)
    assert scene.train("exit 0", environment=scene.environment(SLURM_DISPATCH_RECORD=made.folder)).end() == 0
    names = sorted(os.listdir(os.path.join(made.folder, "facts")))
    assert names == ["0000000001", "0000000002"]
    fact = json.loads((Path(made.folder) / "facts" / names[1]).read_text())
    assert fact["v"] == 1
    assert fact["by"].startswith("watch@")


def test_too_little_space_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save = tmp_path / "save"
    save.mkdir()
    (save / "weights").write_bytes(b"w" * 1000)
    choice = Choice(1, 10**6, str(save), 10, None)
    real = os.statvfs(tmp_path)
    assert low_space(str(tmp_path), Choice(1, 10**6, None, None, None)) is None

    def said(free: int) -> str | None:
        fields = list(real)
        fields[1], fields[4] = 1, free  # f_frsize, f_bavail
        monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result(fields))
        return low_space(str(tmp_path), choice)

    assert said(2000) is None
    assert "less than two saves of 1,000" in (said(1999) or "")


def test_what_is_deleted_after_it_was_looked_at_is_not_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C054: the job is killed while a rotation deletes; of what is left the marker is still there."""
    root = open_root(str(tmp_path))
    save = Path(root.make_execution("att")) / "checkpoint-10"
    save.mkdir()
    for name in ("weights", "done"):
        (save / name).write_text("w")
    publisher = Publisher(
        root, Place(str(tmp_path), JOB, 1000000, "att"), parse(["--done", "done", "--", "x"]), resumed_step=None
    )
    publisher.begin()
    real = look

    def looked(*arguments: Any, **more: Any) -> Any:
        seen = real(*arguments, **more)
        (save / "weights").unlink(missing_ok=True)
        return seen

    with monkeypatch.context() as patch:
        patch.setattr(tree, "look", looked)
        assert publisher.scan(assume=True).published == []
    assert root.listing() == []


def test_a_limit_of_processes_does_not_end_the_command(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scanning process was killed and no other can be started for a while; then publishing goes on."""
    monkeypatch.setattr(session, "RESTART_S", 0.05)
    root = open_root(str(scene.root))
    prepared = Prepared(root.make_execution("att"), None, None, 1)
    place = Place(str(scene.root), JOB, 1000000, "att")
    options = parse(["--done", "done", "--interval", "0.05", "--beside"])
    made = Session(place, options, prepared, {})
    try:
        made.handle(select.select(made.descriptors(), [], [])[0])
        assert made._scanner is not None
        os.kill(made._scanner.pid, signal.SIGKILL)

        def refuse() -> int:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

        def serve(condition: Callable[[], object]) -> None:
            ends_at = time.monotonic() + DEADLINE_S
            while not condition():
                assert time.monotonic() < ends_at
                made.handle(select.select(made.descriptors(), [], [], 0.05)[0])

        with monkeypatch.context() as patch:
            patch.setattr(os, "fork", refuse)
            serve(lambda: made.error is not None and "no process" in made.error)
            made.handing.ended(status=0, signal=None, outcome=None, step=None)
        save = scene.root / "exec" / "att" / "checkpoint-10"
        save.mkdir()
        (save / "done").write_text("w")
        serve(lambda: made.step == 10)
        assert made.error is None
    finally:
        made.end(0)


def test_a_full_standard_error_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever reads the helper's lines stands still: they are lost, and the signals and the command go on."""
    monkeypatch.setattr(saying, "FULL_S", 0.01)
    reading, writing = os.pipe()
    before = os.dup(2)
    try:
        os.dup2(writing, 2)
        for _ in range(100):
            saying.say("\u4e16" * 3000)
        os.set_blocking(reading, False)
        lines = os.read(reading, 1 << 20).splitlines()
    finally:
        os.dup2(before, 2)
        for descriptor in (before, reading, writing):
            os.close(descriptor)
    assert 10 < len(lines) < 100
    assert {len(line) <= saying.LINE_MAX for line in lines} == {True}
    assert all(line.decode("utf-8").endswith("\u4e16...") for line in lines)


def test_a_scanning_process_ends_with_its_supervisor(tmp_path: Path) -> None:
    """Also where another child of the supervisor, one that hangs, holds the pipes open."""
    root = open_root(str(tmp_path))
    root.make_execution("att")
    publisher = Publisher(
        root, Place(str(tmp_path), JOB, 1000000, "att"), parse(["--", "x"]), resumed_step=None, alive=lambda: False
    )
    control, events = os.pipe(), os.pipe()
    try:
        Serving(publisher, control[0], events[1]).run()
    finally:
        for descriptor in (*control, *events):
            os.close(descriptor)
