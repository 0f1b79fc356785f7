"""The helper on a root in S3: saves of a local folder uploaded, and the save to resume from brought to it."""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import TYPE_CHECKING

import pytest

from slurm_dispatch.s3.manifest import state_of
from tests.s3.fixtures import no_aws_files, stub
from tests.watch.remote import RemoteScene
from tests.watch.rig import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.s3.stub import Stub

__all__ = ["no_aws_files", "stub"]


@pytest.fixture
def remote(tmp_path: Path, stub: Stub, no_aws_files: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[RemoteScene]:
    """A root on the stub."""
    made = RemoteScene(tmp_path, stub.environment(), monkeypatch)
    yield made
    made.close()


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
    """C159: whole or not at all, and the next latest."""
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


def test_the_store_is_away_and_comes_back(remote: RemoteScene, stub: Stub) -> None:
    """Section 8 of the design: the command runs on, it is said, and publishing goes on when the store is back."""
    helper = remote.train("wait go save 5 wait end exit 0", "--done", "done", "--timeout", "3")
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
    helper = remote.train("save 5 exit 0", "--done", "done", "--timeout", "5")
    stub.fault("answer", method="PUT", key="/kept/", status=403, code="AccessDenied")
    assert helper.end() == 74, helper.said
    assert helper.has_said("saves may be left unpublished")
    assert "AccessDenied" in helper.said
    assert remote.published() == []


def test_an_upload_that_hangs_costs_the_command_nothing(remote: RemoteScene, stub: Stub) -> None:
    """The scanning process is given up after --timeout, and the command ends as it would."""
    stub.fault("wait", method="PUT", key="/kept/", seconds=120.0)
    helper = remote.train("save 5 wait go exit 4", "--done", "done", "--timeout", "2")
    helper.until_said("did not end in 2 s")
    remote.open("go")
    assert helper.end() == 4, helper.said
    assert remote.published() == []


def test_a_torn_save_stays_where_it_is(remote: RemoteScene, stub: Stub) -> None:
    """C001: what is not whole is not sent."""
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
    assert sorted(os.listdir(remote.local())) == [f"checkpoint-{n}" for n in (1, 2, 3, 4, 5)]
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
