"""The helper on a root in S3: saves of a local folder uploaded, and the save to resume from brought to it."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from slurm_dispatch.anyroot import inspect, open_store
from slurm_dispatch.errors import LateError
from slurm_dispatch.s3.manifest import state_of
from slurm_dispatch.s3.root import S3Root
from slurm_dispatch.s3.transfer import download, upload
from slurm_dispatch.store.fsck import fsck
from slurm_dispatch.watch.apart import Apart, goes_on
from slurm_dispatch.watch.keeping import Uploaded
from slurm_dispatch.watch.local import bring, make_local, of_other_hosts
from slurm_dispatch.watch.options import parse
from slurm_dispatch.watch.place import find_place
from slurm_dispatch.watch.publish import Publisher
from slurm_dispatch.watch.scanner import Scanner
from slurm_dispatch.watch.supervise import Supervision
from tests.watch.rig import until
from tests.watch.trainer import write

if TYPE_CHECKING:

    from tests.s3.stub import Stub
    from tests.watch.remote import RemoteScene


def test_a_save_is_uploaded_and_published(remote: RemoteScene, stub: Stub) -> None:
    helper = remote.train("save 5 save 7 exit 3")
    assert helper.end() == 3, helper.said
    assert remote.published() == [(1, 7), (1, 5)]
    local = remote.local() / "checkpoint-7" / "weights"
    assert stub.objects["run/exec/attempt1/kept/checkpoint-7/weights"] == local.read_bytes()
    assert stub.objects["run/own/0"] == b"thejob"
    assert helper.has_said("uploading exec/attempt1/kept/checkpoint-7")
    root = remote.opened
    assert root.executions() == ["attempt1"]
    assert [str(state_of(root, one)) for one in root.listing()] == ["proved", "proved"]


def test_the_proof_comes_before_all_else(remote: RemoteScene, stub: Stub) -> None:
    """C143: a store that ignores the condition is refused before the command runs, and nobody has claimed it."""
    stub.fault("ignore", key="run/")
    helper = remote.train("touch ran")
    assert helper.end() == 73, helper.said
    assert helper.has_said("makes one name twice")
    assert not remote.passed("ran")
    assert [key for key in stub.objects if not key.endswith("/proved")] == []


def test_the_next_execution_resumes_from_a_local_copy(remote: RemoteScene, stub: Stub) -> None:
    assert remote.train("save 5 exit 0").end() == 0
    second = remote.train("wait go save 6 exit 0", number=2)
    second.until_said("resumes from")
    choice = json.loads(stub.objects["run/exec/attempt2/.dispatch/choice"])
    assert choice["resume"] == "exec/attempt1/kept/checkpoint-5"
    (copy,) = remote.local(2).glob("resume/*/checkpoint-5")
    assert second.has_said(f"resumes from {copy}")
    assert (copy / "weights").read_bytes() == (remote.local(1) / "checkpoint-5" / "weights").read_bytes()
    remote.open("go")
    assert second.end() == 0, second.said
    assert remote.published() == [(2, 6), (1, 5)]


def test_the_command_gets_the_local_paths(remote: RemoteScene) -> None:
    assert remote.train("save 5").end() == 0
    words = ["import json,os,sys; json.dump(dict(os.environ), open(sys.argv[1], 'w'))", str(remote.gates / "seen")]
    helper = remote.helper("--from", str(remote.disk), "--", sys.executable, "-c", *words, number=2)
    assert helper.end() == 0, helper.said
    seen = json.loads((remote.gates / "seen").read_text())
    (copy,) = remote.local(2).glob("resume/*/checkpoint-5")
    assert seen["DISPATCH_RESUME"] == str(copy)
    assert seen["DISPATCH_RESUME_STEP"] == "5"
    assert seen["DISPATCH_DIR"] == str(remote.local(2))
    assert seen["DISPATCH_CHECKPOINT"] == remote.place
    assert seen["SLURM_DISPATCH_FROM"] == str(remote.disk)


def test_a_save_that_goes_while_it_is_brought_is_asked_for_again(remote: RemoteScene, stub: Stub) -> None:
    """C087: whole or not at all, and the next latest."""
    assert remote.train("save 5 save 7", "--done", "done", "--no-thin").end() == 0
    gone = "run/exec/attempt1/kept/checkpoint-7/weights"
    kept = dict(stub.objects)
    fault = stub.fault("answer", method="GET", key=gone, status=404, code="NoSuchKey", times=1)
    second = remote.train("save 8", number=2)
    assert second.end() == 0, second.said
    assert fault.met == 1
    assert second.has_said("went while it was brought here")
    assert stub.objects.keys() >= kept.keys()
    assert remote.published()[0] == (2, 8)
    assert not list(remote.local(2).glob("resume/*/.tmp-*"))


def test_other_ranks_wait_for_the_choice(remote: RemoteScene, stub: Stub) -> None:
    """Each host brings the chosen save to its own disk; on one host the first task does and the others wait."""
    assert remote.train("save 5").end() == 0
    slurm = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "3"}
    ranks = [("1", "0", "other"), ("2", "1", "other"), ("0", "0", "disk")]
    helpers = []
    for rank, local, disk in ranks:
        environment = remote.environment(2, SLURM_PROCID=rank, SLURM_LOCALID=local, **slurm)
        remote.disk = remote.folder / disk
        helpers.append(remote.train(f"touch ran-{rank}", number=2, environment=environment))
        if rank == "2":
            assert not remote.passed("ran-1")
            assert not remote.passed("ran-2")
    assert [helper.end() for helper in helpers] == [0, 0, 0], [helper.said for helper in helpers]
    assert all(remote.passed(f"ran-{rank}") for rank in "012")
    (one,) = (remote.folder / "other").glob("attempt2/resume/*/checkpoint-5")
    (other,) = (remote.folder / "disk").glob("attempt2/resume/*/checkpoint-5")
    assert one.parent.name == other.parent.name
    assert sum(name.startswith("run/exec/attempt2/.dispatch/choice") for name in stub.objects) == 1


def test_two_processes_of_a_host_bring_it_at_once(remote: RemoteScene, stub: Stub) -> None:
    """``dispatch env --prepare`` beside a helper: whoever is first has brought it whole, and the other takes that."""
    assert remote.train("save 5").end() == 0
    root = remote.opened
    place = find_place(remote.environment(2), root=None, local=str(remote.disk), remote=True)
    make_local(place)
    (name,) = root.names()
    brought: list[str] = []

    def moving(_: float) -> None:
        if not brought:
            brought.append("")
            brought.append(bring(remote.opened, place, name))

    assert bring(root, place, name, moving) == brought[1]
    assert (Path(brought[1]) / "done").read_bytes() == b"1"
    assert not list(remote.local(2).glob("resume/*/.tmp-*"))


def test_a_killed_helper_goes_on_in_the_same_execution(remote: RemoteScene, stub: Stub) -> None:
    """What was uploaded and not published is not sent again."""
    first = remote.train("save 5 touch saved wait never", "--done", "done", "--interval", "0.2")
    until(lambda: (1, 5) in remote.published(), "the publication")
    first.kill()
    name = next(name for name in stub.objects if name.startswith("run/pub/"))
    del stub.objects[name]
    sent = len(stub.of("PUT", "kept/checkpoint-5/weights"))
    second = remote.train("wait go")
    until(lambda: (1, 5) in remote.published(), "the publication again")
    remote.open("go")
    assert second.end() == 0, second.said
    assert len(stub.of("PUT", "kept/checkpoint-5/weights")) == sent


def test_a_helper_that_is_killed_during_an_upload(remote: RemoteScene, stub: Stub) -> None:
    """What is half there is no publication; the next helper sends the rest, and not what is there already."""
    gate = threading.Event()
    fault = stub.fault("wait", key="kept/checkpoint-5/done", until=gate)
    first = remote.train("save 5 wait never")
    until(lambda: fault.met, "the last file")
    until(lambda: "run/exec/attempt1/kept/checkpoint-5/weights" in stub.objects, "the first file")
    first.kill()
    stub.faults.clear()
    assert remote.published() == []
    looked = fsck(remote.opened, inspecting=functools.partial(inspect, remote.opened))
    assert (looked.faults, len(looked.executions[0].loose)) == ([], 1)
    second = remote.train("wait go")
    remote.until_published(1, 5)
    remote.open("go")
    assert second.end() == 0, second.said
    assert len(stub.of("PUT", "kept/checkpoint-5/weights")) == 1
    gate.set()


def test_a_save_that_changes_during_its_upload_is_sent_as_it_was(remote: RemoteScene, stub: Stub) -> None:
    """C169: what is sent is what was whole when it was looked at: links, and copies of what is small."""
    gate = threading.Event()
    fault = stub.fault("wait", key="kept/checkpoint-5/done", until=gate, times=1)
    helper = remote.train("save 5 wait go rewrite 5 touch done wait end exit 0")
    until(lambda: fault.met, "the upload")
    whole = (remote.local() / "checkpoint-5" / "weights").read_bytes()
    remote.open("go")
    until(lambda: remote.passed("done"), "the second writing")
    gate.set()
    remote.until_published(1, 5)
    remote.open("end")
    assert helper.end() == 0, helper.said
    assert stub.objects["run/exec/attempt1/kept/checkpoint-5/weights"] == whole
    assert (remote.local() / "checkpoint-5" / "weights").read_bytes() != whole
    assert str(state_of(remote.opened, remote.publications()[0])) == "proved"


def test_a_save_that_goes_during_its_upload_is_published(remote: RemoteScene, stub: Stub) -> None:
    """C087: a saver that keeps one save; links to it are what is sent. Without links: test_remote_faults."""
    gate = threading.Event()
    fault = stub.fault("wait", key="kept/checkpoint-5/done", until=gate, times=1)
    helper = remote.train("save 5 wait go drop 5 touch gone wait end save 7 exit 0")
    until(lambda: fault.met, "the upload")
    whole = (remote.local() / "checkpoint-5" / "weights").read_bytes()
    remote.open("go")
    until(lambda: remote.passed("gone"), "the rotation")
    gate.set()
    remote.until_published(1, 5)
    remote.open("end")
    assert helper.end() == 0, helper.said
    assert remote.published() == [(1, 7), (1, 5)]
    assert stub.objects["run/exec/attempt1/kept/checkpoint-5/weights"] == whole


def test_a_store_that_does_not_answer_is_asked_for_one_call_s_time(
    remote: RemoteScene, stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call tries until its time is over; the scan that it was for has failed then, and does not begin anew."""
    place = find_place(remote.environment(), root=None, local=str(remote.disk), remote=True)
    options = parse(["--from", str(remote.disk), "--done", "done", "--", "true"])
    root = open_store(remote.place, timeout_s=0.5)
    assert isinstance(root, S3Root)
    folder = make_local(place)
    keeping = Uploaded(root, place.attempt, folder, say=print)
    publisher = Publisher(root, place, options, keeping=keeping, directory=folder, resumed_step=None)
    write(folder, "5", whole=True, done=True)
    calls: list[str] = []
    listing = root.listing
    monkeypatch.setattr(root, "listing", lambda: [calls.append("listing"), listing()][1])
    stub.fault("answer", method="GET", status=503, code="SlowDown")
    with pytest.raises(LateError, match="503 SlowDown"):
        publisher.scan(assume=True)
    assert calls == ["listing"]


def test_the_store_is_away_and_comes_back(remote: RemoteScene, stub: Stub) -> None:
    """Section 8 of the design: the command runs on, it is said, and publishing goes on when the store is back."""
    helper = remote.train("wait go save 5 wait end exit 0", "--done", "done", "--timeout", "30")
    helper.until_said("first start")
    fault = stub.fault("answer", method="PUT", key="/kept/", status=403, code="AccessDenied")
    remote.open("go")
    helper.until_said("nothing is published")
    fault.times = 0
    remote.open("end")
    assert helper.end() == 0, helper.said
    assert remote.published() == [(1, 5)]
    assert helper.has_said("publishing works again")


def test_a_store_that_stays_away_is_74(remote: RemoteScene, stub: Stub) -> None:
    stub.fault("answer", method="PUT", key="/kept/", status=403, code="AccessDenied")
    helper = remote.train("save 5 exit 0", "--done", "done", "--timeout", "60")
    assert helper.end() == 74, helper.said
    assert helper.has_said("saves may be left unpublished")
    assert "AccessDenied" in helper.said
    assert remote.published() == []


def test_an_upload_that_hangs_costs_the_command_nothing(remote: RemoteScene, stub: Stub) -> None:
    """The scanning process is given up after --timeout, and the command ends as it would."""
    stub.fault("wait", method="PUT", key="/kept/", seconds=120.0)
    # It covers the start as well, which is slow on a busy machine.
    helper = remote.train("save 5 wait go exit 4", "--done", "done", "--timeout", "10")
    helper.until_said("did not end in 10 s")
    remote.open("go")
    assert helper.end() == 4, helper.said
    assert remote.published() == []


def test_a_torn_save_stays_where_it_is(remote: RemoteScene, stub: Stub) -> None:
    """C109: what is not whole is not sent."""
    helper = remote.train("save 5 torn 7")
    assert helper.end() == 128 + signal.SIGKILL
    assert remote.published() == [(1, 5)]
    assert not any("checkpoint-7" in key for key in stub.objects)


def test_a_first_save_below_the_resumed_step_is_not_published(remote: RemoteScene) -> None:
    assert remote.train("save 5").end() == 0
    helper = remote.train("save 2 wait never", number=2)
    assert helper.end() == 80, helper.said
    assert remote.published() == [(1, 5)]


def test_old_saves_are_thinned_in_the_store_and_not_on_the_disk(remote: RemoteScene, stub: Stub) -> None:
    """The same rules as on a folder; what the saver wrote is the saver's to rotate."""
    first = remote.train("".join(f"save {n} wait s{n} " for n in (1, 2, 3, 4, 5)), "--done", "done", "--keep", "2,2")
    for step in (1, 2, 3, 4, 5):
        remote.until_published(1, step)
        remote.open(f"s{step}")
    assert first.end() == 0, first.said
    there = {key.split("/")[4] for key in stub.objects if "/kept/" in key}
    assert there == {"checkpoint-4", "checkpoint-5"}
    assert sorted(os.listdir(remote.local())) == [".dispatch", *(f"checkpoint-{n}" for n in (1, 2, 3, 4, 5))]
    assert os.listdir(remote.local() / ".dispatch") == ["sent"], "no upload is announced any more"
    assert os.listdir(remote.local() / ".dispatch" / "sent") == []
    second = remote.train("save 6 wait s6 save 7 wait s7", "--done", "done", "--keep", "1,1", number=2)
    for step in (6, 7):
        remote.until_published(2, step)
        remote.open(f"s{step}")
    assert second.end() == 0, second.said
    assert {key.split("/")[4] for key in stub.objects if "/kept/" in key} == {"checkpoint-7"}
    assert remote.published()[0] == (2, 7)


def test_one_file_is_published_each_time_that_it_is_written(remote: RemoteScene, stub: Stub) -> None:
    code = (
        "import os,sys,time,zipfile\n"
        "d,g=sys.argv[1:]\n"
        "for n in (1,2):\n"
        "    with zipfile.ZipFile(d+'/.new','w') as z: z.writestr('data.pkl', str(n)*100)\n"
        "    os.replace(d+'/.new', d+'/last.pt')\n"
        "    end=time.monotonic()+60\n"
        "    while not os.path.exists(f'{g}/w{n}') and time.monotonic()<end: time.sleep(.01)\n"
    )
    words = ["--from", str(remote.disk), "--single", "last.pt", "--", sys.executable, "-c", code, "{dir}"]
    helper = remote.helper(*words, str(remote.gates))
    until(lambda: (1, 1) in remote.published(), "the first")
    remote.open("w1")
    until(lambda: (1, 2) in remote.published(), "the second")
    remote.open("w2")
    assert helper.end() == 0, helper.said
    assert remote.published() == [(1, 2), (1, 1)]
    assert {"run/exec/attempt1/kept/last-1.pt", "run/exec/attempt1/kept/last-2.pt"} <= stub.objects.keys()


def test_what_cannot_be_is_refused_before_the_store_is_asked(remote: RemoteScene, stub: Stub) -> None:
    nowhere = remote.helper("--from", str(remote.folder / "no" / "mount"), "--", "true")
    assert nowhere.end() == 74
    folder = remote.helper("--root", str(remote.root), "--from", str(remote.disk), "--", "true")
    assert folder.end() == 64
    assert stub.requests == []


def test_other_hosts_are_spoken_of() -> None:
    """What another host saves is not uploaded, and a folder of one host is not on another: said at the start."""
    slurm = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "2"}
    step = {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_NODES": "2"}

    def said(environment: dict[str, str], local: str | None = "/d") -> str:
        place = find_place(environment, root="s3://bucket/run", local=local, remote=True)
        return of_other_hosts(place, environment) or ""

    assert "srun dispatch-watch" in said(slurm)
    assert "rank 0 is uploaded" in said(slurm | step)
    assert said(slurm | step | {"SLURM_STEP_NUM_NODES": "1"}) == ""
    assert said({}) == said(slurm, None) == ""


def test_dispatch_env_brings_the_save_and_helpers_read_it(remote: RemoteScene, stub: Stub) -> None:
    assert remote.train("save 5").end() == 0
    words = [sys.executable, "-m", "slurm_dispatch.cli.main", "env", "--json"]

    def env(*more: str, **variables: str) -> dict[str, str | None]:
        environment = remote.environment(2, **variables)
        argv = [*words, *more]
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=120, check=True)
        found: dict[str, str | None] = json.loads(done.stdout)
        return found

    before = env("--from", str(remote.disk))
    assert (before["DISPATCH_RESUME"], before["DISPATCH_DIR"]) == (None, str(remote.local(2)))
    made = env("--prepare", SLURM_DISPATCH_FROM=str(remote.disk))
    (copy,) = remote.local(2).glob("resume/*/checkpoint-5")
    assert (made["DISPATCH_RESUME"], made["DISPATCH_RESUME_STEP"]) == (str(copy), "5")
    assert env("--from", str(remote.disk)) == made
    elsewhere = env("--from", str(remote.folder / "elsewhere"))
    assert (elsewhere["DISPATCH_RESUME"], elsewhere["DISPATCH_RESUME_STEP"]) == (None, None)
    itself = env()
    assert itself["DISPATCH_DIR"] == f"{remote.place}/exec/attempt2"
    assert itself["DISPATCH_RESUME"] == f"{remote.place}/exec/attempt1/kept/checkpoint-5"


def test_beside_a_training_and_asked_to_finish(remote: RemoteScene) -> None:
    """--finish needs no --from: what it asks for is a note in the store."""
    beside = remote.helper("--from", str(remote.disk), "--done", "done", "--beside")
    beside.until_said("first start")
    write(str(remote.local()), "5", whole=True, done=True)
    remote.until_published(1, 5)
    write(str(remote.local()), "7", whole=True, done=True)
    finish = remote.helper("--finish", "--status", "0")
    assert finish.end() == 0, finish.said
    assert beside.end() == 0, beside.said
    assert remote.published() == [(1, 7), (1, 5)]


def test_dispatch_again_is_a_note_in_the_store(remote: RemoteScene, stub: Stub) -> None:
    code = "import sys; from slurm_dispatch.cli.main import run; sys.argv=['dispatch','again']; run()"
    helper = remote.helper("--from", str(remote.disk), "--", sys.executable, "-c", code)
    assert helper.end() == 85, helper.said
    assert "run/exec/attempt1/.dispatch/run-1.again" in stub.objects


def test_a_download_that_was_killed_leaves_nothing_for_long(remote: RemoteScene, stub: Stub) -> None:
    """Half a save has no name of its own, and is removed by the next helper of the execution."""
    assert remote.train("save 5").end() == 0
    gate = threading.Event()
    fault = stub.fault("wait", method="GET", key="kept/checkpoint-5/weights", until=gate)
    second = remote.train("touch ran", number=2)
    until(lambda: fault.met, "the download")
    until(lambda: list(remote.local(2).glob("resume/*/.tmp-*")), "what is half there")
    second.kill()
    fault.times = 0
    gate.set()
    assert not remote.passed("ran")
    assert not list(remote.local(2).glob("resume/*/checkpoint-5"))
    third = remote.train("save 6", number=2)
    assert third.end() == 0, third.said
    assert list(remote.local(2).glob("resume/*/checkpoint-5"))
    assert not list(remote.local(2).glob("resume/*/.tmp-*"))
    assert remote.published()[0] == (2, 6)


def test_what_was_brought_for_an_earlier_turn_goes(remote: RemoteScene) -> None:
    """A script that runs the helper again and again would fill the disk with what each turn resumed from."""
    assert remote.train("save 5").end() == 0
    for step in (6, 7):
        helper = remote.train(f"save {step}", number=2)
        assert helper.end() == 0, helper.said
        (brought,) = remote.local(2).glob("resume/*/*")
        assert brought.name == f"checkpoint-{step - 1}"
        assert helper.has_said(f"resumes from {brought}")


def test_an_upload_that_goes_on_is_not_given_up() -> None:
    """--timeout is for a store that hangs: what goes on moves the end of the scan, and its end forgets it."""

    def waits(control: int, events: int) -> None:
        os.read(control, 1)

    scanner = Scanner(waits)
    try:
        began = scanner.scan_began
        assert began is not None
        assert scanner.due(10.0) == began + 10.0
        for line in ({"e": "begin"}, {"e": "moves", "s": 1000.0}, {"e": "moves", "s": 0.0}):
            _tell(scanner, line)
        assert scanner.due(10.0) > began + 1000.0
        _tell(scanner, {"e": "end"})
        assert scanner.due(10.0) == float("inf")
        _tell(scanner, {"e": "begin"})
        assert scanner.due(10.0) < began + 1000.0
    finally:
        scanner.close(kill=True)


@pytest.mark.parametrize(("begun", "until_s"), [(False, 500.0), (True, 100.0)])
def test_the_last_upload_of_a_clean_end_is_waited_for(begun: bool, until_s: float) -> None:
    """After a stop somebody else has a clock; after an end by itself an upload that goes on is waited for."""
    stand_in = SimpleNamespace(
        _give_up_at=100.0, _stopping=SimpleNamespace(begun=begun), _session=SimpleNamespace(moving_until=500.0)
    )
    assert Supervision._last_until(stand_in) == until_s  # type: ignore[arg-type]


def _tell(scanner: Scanner, event: dict[str, object]) -> None:
    """What the scanning process would write."""
    reading, writing = os.pipe()
    kept, scanner.events = scanner.events, reading
    try:
        os.write(writing, json.dumps(event).encode() + b"\n")
        scanner.read()
    finally:
        scanner.events = kept
        os.close(reading)
        os.close(writing)


def test_work_apart_that_goes_on_is_not_given_up() -> None:
    """A download of hours at the start: each part of it begins the deadline anew, and is no part of the answer."""

    def work() -> bytes:
        goes_on()
        goes_on()
        return b"~ok"

    running = Apart(work, 60.0)
    first = running.ends_at
    assert running.wait("it") == b"~ok"
    assert running.ends_at > first


def test_an_upload_says_that_it_goes_on(remote: RemoteScene, tmp_path: Path) -> None:
    """Once with what the largest file may take, then after each file."""
    save = tmp_path / "save"
    save.mkdir()
    (save / "large").write_bytes(b"x" * (8 << 20))
    (save / "small").write_bytes(b"x")
    told: list[float] = []
    relative = upload(remote.opened, "attempt1", str(save), moving=told.append)
    assert told == [2.0, 0.0, 0.0]
    told.clear()
    download(remote.opened, relative, str(tmp_path / "copy"), moving=told.append)
    assert len(told) == 3
