"""``slurm_dispatch.publish``, ``latest`` and ``execution`` on a root in S3: alone, and beside ``dispatch-watch``."""

from __future__ import annotations

import functools
import json
import os
import shutil
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import slurm_dispatch
from slurm_dispatch import api
from slurm_dispatch.errors import (
    AmbiguousError,
    BadDataError,
    CannotCreateError,
    NotResumedError,
    StoreError,
    TransientError,
    UsageError,
)
from slurm_dispatch.integrations.transformers import Hooks
from slurm_dispatch.s3.manifest import state_of
from slurm_dispatch.s3.transfer import upload
from slurm_dispatch.store.best import read_best
from slurm_dispatch.store.whole import look as looking
from slurm_dispatch.watch import inside, local, sending
from slurm_dispatch.watch.keeping import Uploaded
from slurm_dispatch.watch.options import Options
from slurm_dispatch.watch.place import FROM, KEEP, find_place
from slurm_dispatch.watch.publish import Publisher
from slurm_dispatch.watch.turn import this_process
from tests.s3.scene import FIRST, NEW, OLD, SECOND
from tests.s3.servers import BUCKET as REAL_BUCKET
from tests.s3.stub import BUCKET
from tests.savers.views import safetensors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from slurm_dispatch.s3.root import S3Root
    from tests.s3.servers import Seaweed
    from tests.s3.stub import Stub

ROOT = f"s3://{BUCKET}/run"


@pytest.fixture(autouse=True)
def job(root: S3Root, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test is in execution :data:`NEW` of a job with the root, and saves below ``disk``."""
    for name in [name for name in os.environ if name.startswith(("DISPATCH_", "SLURM_", "LOCAL_RANK"))]:
        monkeypatch.delenv(name)
    for cached in (api._in_s3, api._claimed):
        cached.cache_clear()
    become(monkeypatch, NEW, SECOND)
    monkeypatch.setenv("DISPATCH_CHECKPOINT", ROOT)
    monkeypatch.setenv(FROM, str(tmp_path / "disk"))


def become(monkeypatch: pytest.MonkeyPatch, attempt: str, epoch: int) -> None:
    """The test is in this execution from here on."""
    monkeypatch.setenv("DISPATCH_JOB", "job")
    monkeypatch.setenv("DISPATCH_ATTEMPT", attempt)
    monkeypatch.setenv("DISPATCH_EPOCH", str(epoch))


def saved(step: int, content: bytes = b"weights" * 100, name: str | None = None) -> str:
    """A whole save of this execution on this host."""
    folder = Path(slurm_dispatch.execution().directory, name or f"checkpoint-{step}")
    folder.mkdir()
    (folder / "weights").write_bytes(content)
    (folder / "trainer_state.json").write_text(f'{{"global_step": {step}}}')
    return str(folder)


def names(root: S3Root) -> list[tuple[int, int, str]]:
    return [(one.epoch, one.step, os.fsdecode(one.path)) for one in root.listing()]


def sent(stub: Stub, name: str = "weights") -> int:
    """How often a file of a save was stored."""
    return len([one for one in stub.of("PUT", f"/{name}") if "x-amz-copy-source" not in one.headers])


def helper(root: S3Root) -> Publisher:
    """The part of ``dispatch-watch --from`` that publishes, for the same execution."""
    place = find_place(os.environ, root=None, local=os.environ[FROM], remote=True)
    folder = local.make_local(place)
    keeping = Uploaded(root, place.attempt, folder, say=print)
    options = Options(done=["trainer_state.json"])
    publisher = Publisher(root, place, options, keeping=keeping, directory=folder, resumed_step=None)
    publisher.begin()
    return publisher


def test_a_save_is_uploaded_and_published_once(root: S3Root, stub: Stub, tmp_path: Path) -> None:
    this = slurm_dispatch.execution()
    assert (this.resume, this.directory, this.root) == (None, str(tmp_path / "disk" / NEW), ROOT)
    publication = slurm_dispatch.publish(saved(5), 5)
    assert names(root) == [(SECOND, 5, f"exec/{NEW}/kept/checkpoint-5")]
    assert stub.objects[f"run/exec/{NEW}/kept/checkpoint-5/weights"] == b"weights" * 100
    assert (stub.objects["run/own/0"], str(state_of(root, publication))) == (b"job", "proved")
    latest = slurm_dispatch.latest()
    assert latest is not None
    assert (latest.publication, latest.path) == (publication, f"{ROOT}/exec/{NEW}/kept/checkpoint-5")
    assert this.publish(f"{this.directory}/checkpoint-5", 5) == publication
    assert (len(names(root)), sent(stub)) == (1, 1)


def test_the_next_execution_has_it_on_its_disk(
    root: S3Root, stub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    become(monkeypatch, OLD, FIRST)
    slurm_dispatch.publish(saved(5), 5)
    become(monkeypatch, NEW, SECOND)
    this = slurm_dispatch.execution()
    assert this.resume is not None
    assert (Path(this.resume).name, this.resume_step) == ("checkpoint-5", 5)
    assert this.resume.startswith(f"{tmp_path}/disk/{NEW}/resume/")
    assert Path(this.resume, "weights").read_bytes() == b"weights" * 100
    slurm_dispatch.publish(saved(10), 10)
    assert slurm_dispatch.execution() == this, "chosen once, whatever was published since"


def test_a_first_start_is_chosen_once_too(root: S3Root, stub: Stub) -> None:
    """A process that asks later, when something is published, is told what the first one was."""
    assert slurm_dispatch.execution().resume is None
    slurm_dispatch.publish(saved(5), 5)
    assert slurm_dispatch.execution().resume is None
    assert [key for key in stub.objects if "choice" in key] == [f"run/exec/{NEW}/.dispatch/choice"]


def test_the_first_process_of_a_host_brings_it_and_the_others_wait(
    root: S3Root, stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    become(monkeypatch, OLD, FIRST)
    slurm_dispatch.publish(saved(5), 5)
    become(monkeypatch, NEW, SECOND)
    found: list[object] = []

    def rank(number: int) -> None:
        found.append(slurm_dispatch.execution(environment={**os.environ, api.LOCAL_RANK: str(number)}).resume)

    others = [threading.Thread(target=rank, args=(number,)) for number in (1, 2)]
    for one in others:
        one.start()
    rank(0)
    for one in others:
        one.join(60.0)
    assert len(found) == 3
    assert len(set(found)) == 1
    assert len(stub.of("GET", "checkpoint-5/weights")) == 1


def test_who_waits_has_a_deadline(root: S3Root) -> None:
    with pytest.raises(TransientError):
        slurm_dispatch.execution(environment={**os.environ, api.LOCAL_RANK: "1"}, timeout_s=0.5)


def test_a_folder_that_is_said_here(
    root: S3Root, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(FROM)
    (tmp_path / "other").mkdir()
    this = slurm_dispatch.execution(from_dir=tmp_path / "other")
    assert this.directory == str(tmp_path / "other" / NEW)
    save = Path(this.directory, "checkpoint-5")
    save.mkdir()
    (save / "weights").write_bytes(b"1")
    this.publish(save, 5)
    assert names(root) == [(SECOND, 5, f"exec/{NEW}/kept/checkpoint-5")]
    with pytest.raises(UsageError, match="--from is for a root in S3"):
        slurm_dispatch.execution(root=str(tmp_path), from_dir=tmp_path / "other")


def test_what_was_written_to_s3_itself(root: S3Root, stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a folder all paths are of S3, and what is there is published where it is."""
    monkeypatch.delenv(FROM)
    this = slurm_dispatch.execution()
    assert (this.directory, this.resume) == (f"{ROOT}/exec/{NEW}", None)
    stub.objects[f"run/exec/{NEW}/checkpoint-5/model.safetensors"] = safetensors()
    publication = this.publish(f"{this.directory}/checkpoint-5", 5)
    assert (names(root), str(state_of(root, publication))) == ([(SECOND, 5, f"exec/{NEW}/checkpoint-5")], "proved")
    stub.objects[f"run/exec/{NEW}/checkpoint-6/model.safetensors"] = safetensors()[:-3]
    with pytest.raises(BadDataError, match=r"is not whole: model\.safetensors"):
        this.publish(f"{this.directory}/checkpoint-6", 6)
    with pytest.raises(BadDataError, match="outside"):
        this.publish(f"{ROOT}/exec/{OLD}/checkpoint-5", 7)
    become(monkeypatch, "last0000000000000000", 3 * 10**6)
    assert slurm_dispatch.execution().resume == f"{ROOT}/exec/{NEW}/checkpoint-5"


def test_latest_on_this_host(root: S3Root, stub: Stub, tmp_path: Path) -> None:
    """Whole, below the folder, and once."""
    assert slurm_dispatch.latest(to=tmp_path / "here") is None
    slurm_dispatch.publish(saved(5), 5)
    first = slurm_dispatch.latest(to=tmp_path / "here")
    assert first is not None
    assert first.path.startswith(f"{tmp_path}/here/")
    assert Path(first.path, "weights").read_bytes() == b"weights" * 100
    assert slurm_dispatch.latest(ROOT, to=str(tmp_path / "here")) == first
    assert len(stub.of("GET", "checkpoint-5/weights")) == 1
    slurm_dispatch.publish(saved(6), 6)
    second = slurm_dispatch.latest(to=tmp_path / "here")
    assert second is not None
    assert (second.publication.step, Path(second.path).name) == (6, "checkpoint-6")


# What is refused.


def test_what_cannot_be_published_says_why_and_sends_nothing(root: S3Root, stub: Stub, tmp_path: Path) -> None:
    directory = slurm_dispatch.execution().directory
    with pytest.raises(BadDataError, match="outside"):
        slurm_dispatch.publish(tmp_path, 5)
    with pytest.raises(BadDataError, match="not there"):
        slurm_dispatch.publish(f"{directory}/checkpoint-5", 5)
    part = saved(6)
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    Path(part, "model.safetensors.index.json").write_text(json.dumps(index))
    Path(part, "model-00001-of-00002.safetensors").write_bytes(safetensors())
    with pytest.raises(BadDataError, match=r"model-00002-of-00002\.safetensors is missing"):
        slurm_dispatch.publish(part, 6)
    with pytest.raises(BadDataError):
        slurm_dispatch.publish(saved(7), -7)
    assert names(root) == []
    assert sent(stub, "trainer_state.json") <= 1


def test_a_step_below_the_one_resumed_from_is_refused(root: S3Root, monkeypatch: pytest.MonkeyPatch) -> None:
    become(monkeypatch, OLD, FIRST)
    slurm_dispatch.publish(saved(50), 50)
    become(monkeypatch, NEW, SECOND)
    save = saved(5)
    with pytest.raises(NotResumedError, match="this execution resumes from step 50"):
        slurm_dispatch.publish(save, 5)
    slurm_dispatch.publish(save, 5, allow_step_back=True)
    assert [step for _, step, _ in names(root)] == [5, 50]


def test_a_name_that_is_rewritten_is_no_second_save(root: S3Root, stub: Stub) -> None:
    save = saved(5, name="last")
    slurm_dispatch.publish(save, 5)
    Path(save, "weights").write_bytes(b"more")
    with pytest.raises(BadDataError, match="published already"):
        slurm_dispatch.publish(save, 10)
    assert stub.objects[f"run/exec/{NEW}/kept/last/weights"] == b"weights" * 100


def test_a_shared_checkpoint_and_another_job(root: S3Root, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_DISPATCH_SHARED", "1")
    with pytest.raises(UsageError, match="a shared checkpoint is a folder"):
        slurm_dispatch.execution()
    monkeypatch.delenv("SLURM_DISPATCH_SHARED")
    root.claim("other", 0)
    with pytest.raises(CannotCreateError, match="job other"):
        slurm_dispatch.execution()


def test_the_trainer_saves_to_folders(root: S3Root, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FROM)
    with pytest.raises(UsageError, match="the Trainer saves to folders") as caught:
        Hooks()
    assert "--from DIR" in caught.value.line()


def test_a_store_that_fails_is_a_store_error(
    root: S3Root, opened: Callable[..., S3Root], stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And never "nothing there"; the same again is done where the store is back."""
    save = saved(5)
    monkeypatch.setattr(api, "_open_place", lambda place: opened(timeout_s=1.0))
    fault = stub.fault("answer", method="PUT", key="/pub/", status=503)
    with pytest.raises(AmbiguousError):
        slurm_dispatch.publish(save, 5)
    fault.times = 0
    slurm_dispatch.publish(save, 5)
    assert ([step for _, step, _ in names(root)], sent(stub)) == ([5], 1)
    away = stub.fault("answer", method="GET", status=503)
    monkeypatch.setattr(api, "_open", lambda root: opened(timeout_s=1.0))
    with pytest.raises(StoreError):
        slurm_dispatch.latest()
    away.times = 0


def test_outside_a_job_everything_is_said(root: S3Root, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPATCH_JOB", "DISPATCH_EPOCH", "DISPATCH_ATTEMPT", "DISPATCH_CHECKPOINT", FROM):
        monkeypatch.delenv(name)
    save = tmp_path / "checkpoint-5"
    save.mkdir()
    (save / "weights").write_bytes(b"1")
    slurm_dispatch.publish(save, 5, root=ROOT, epoch=FIRST, attempt=NEW)
    assert names(root) == [(FIRST, 5, f"exec/{NEW}/kept/checkpoint-5")]


def test_a_training_of_a_helper_without_a_job_is_that_execution(
    root: S3Root, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DISPATCH_JOB", "DISPATCH_EPOCH", "DISPATCH_ATTEMPT"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("SLURM_DISPATCH_ATTEMPT", OLD)
    monkeypatch.setenv("DISPATCH_DIR", str(tmp_path / "disk" / OLD))
    assert slurm_dispatch.execution().attempt == OLD
    monkeypatch.delenv(FROM)
    monkeypatch.setenv("DISPATCH_DIR", f"{ROOT}/exec/{OLD}")
    assert slurm_dispatch.execution().attempt == OLD


# Beside the helper.


@pytest.mark.parametrize("first", ["helper", "training"])
def test_what_the_helper_publishes_too_is_one_publication(root: S3Root, stub: Stub, first: str) -> None:
    """And is sent once, whoever is first."""
    publisher, save = helper(root), saved(5)
    acts: list[Callable[[], object]] = [
        lambda: publisher.scan(assume=False).published, lambda: slurm_dispatch.publish(save, 5).step
    ]
    told = [act() for act in (acts if first == "helper" else acts[::-1])]
    assert told == ([[5], 5] if first == "helper" else [5, [5]])
    assert names(root) == [(SECOND, 5, f"exec/{NEW}/kept/checkpoint-5")]
    assert sent(stub) == 1
    slurm_dispatch.publish(saved(15), 15)
    saved(10)
    assert publisher.scan(assume=False).published == [10, 15], "no step is refused because another was first"
    assert sent(stub) == 3


def test_an_upload_of_the_helper_is_waited_for(root: S3Root, stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    """The training finds it at work, and then that everything is there: nothing is sent twice."""
    save, waits = saved(5), threading.Event()

    def look(path: str, *, read: bool = True) -> object:
        if not read:
            waits.set()  # it did not upload, and asks whether the save is what it was
        return looking(path, read=read)

    monkeypatch.setattr(inside, "look", look)
    training = threading.Thread(target=slurm_dispatch.publish, args=(save, 5))
    with by_another(monkeypatch, "checkpoint-5"):
        training.start()
        assert waits.wait(60.0)
        assert sent(stub) == 0
        upload(root, NEW, save, name="kept/checkpoint-5")
        assert names(root) == []
    training.join(60.0)
    assert sent(stub) == 1
    assert names(root) == [(SECOND, 5, f"exec/{NEW}/kept/checkpoint-5")]


@contextmanager
def by_another(monkeypatch: pytest.MonkeyPatch, name: str) -> Iterator[None]:
    """Meanwhile a process that lives, the one that has started this one, says that it uploads the save."""
    monkeypatch.setattr(sending, "this_process", lambda _: this_process(os.getppid()))
    with sending.announced(slurm_dispatch.execution().directory, name) as alone:
        assert alone
        monkeypatch.setattr(sending, "this_process", this_process)
        yield


def test_the_helper_leaves_what_the_training_uploads(
    root: S3Root, stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes to it at its next scan."""
    publisher = helper(root)
    saved(5)
    with by_another(monkeypatch, "checkpoint-5"):
        result = publisher.scan(assume=False)
        assert (result.published, result.waiting, sent(stub)) == ([], 1, 0)
    assert publisher.scan(assume=False).published == [5]


def test_an_upload_that_was_killed_holds_up_nobody(root: S3Root, stub: Stub) -> None:
    """C139: the process that announced it is gone."""
    save = saved(5)
    folder = Path(slurm_dispatch.execution().directory, ".dispatch")
    folder.mkdir()
    gone = {"host": os.uname().nodename, "boot": "an earlier one", "pid": 1, "started": "1", "beside": False}
    (folder / "sending-checkpoint-5").write_text(json.dumps(gone))
    slurm_dispatch.publish(save, 5)
    assert [step for _, step, _ in names(root)] == [5]
    assert os.listdir(folder) == []
    away = {**gone, "host": "another", "pid": os.getppid()}
    (folder / "sending-checkpoint-7").write_text(json.dumps(away))
    slurm_dispatch.publish(saved(7), 7)
    (folder / "sending-checkpoint-8").write_text("no process at all")
    slurm_dispatch.publish(saved(8), 8)
    assert os.listdir(folder) == []


# Thinning and the best save.


def test_it_thins_as_the_helper_was_told(root: S3Root, stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEEP, "1,1")
    for step in (5, 10, 15):
        slurm_dispatch.publish(saved(step), step)
    there = {key.split("/kept/")[1].split("/")[0] for key in stub.objects if "/kept/" in key}
    assert there == {"checkpoint-15"}
    assert len(names(root)) == 3


def test_the_best_save_is_carried_over_executions(
    root: S3Root, stub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was published is copied by the store; the next execution has it, on its disk too, and then the old one
    goes."""
    become(monkeypatch, OLD, FIRST)
    this, save = slurm_dispatch.execution(), saved(5, b"best")
    this.publish(save, 5)
    told = functools.partial(this.keep_best, metric="score", greater_is_better=True)
    best = told(save, 5, score=0.9)
    assert best.path == f"{ROOT}/exec/{OLD}/best/checkpoint-5"
    assert (sent(stub), slurm_dispatch.best("score", greater_is_better=True)) == (1, best)
    assert (this.carry_best("loss", greater_is_better=False), this.bring_best(best).score) == (None, 0.9)
    become(monkeypatch, NEW, SECOND)
    this = slurm_dispatch.execution()
    mine = this.carry_best("score", greater_is_better=True)
    assert mine is not None
    assert (mine.path, mine.score, mine.epoch) == (f"{ROOT}/exec/{NEW}/best/checkpoint-5", 0.9, SECOND)
    here = this.bring_best(mine)
    assert here.path.startswith(f"{tmp_path}/disk/{NEW}/best/")
    assert Path(here.path, "weights").read_bytes() == b"best"
    assert this.bring_best(mine) == here
    for step in (10, 15):
        this.publish(saved(step), step)
    assert not [key for key in stub.objects if key.startswith(f"run/exec/{OLD}/best/")]
    assert read_best(root, OLD) is None
    assert stub.objects[f"run/exec/{NEW}/best/checkpoint-5/weights"] == b"best"


def test_a_save_that_is_the_best_one_and_was_not_published_is_uploaded(root: S3Root, stub: Stub) -> None:
    this = slurm_dispatch.execution()
    this.keep_best(saved(5), 5, metric="loss", score=1.0, greater_is_better=False)
    this.keep_best(saved(6), 6, metric="loss", score=0.5, greater_is_better=False)
    best = {key for key in stub.objects if "/best/" in key}
    assert best == {f"run/exec/{NEW}/best/checkpoint-6/{name}" for name in ("weights", "trainer_state.json")}
    with pytest.raises(BadDataError, match="not there"):
        this.keep_best("/no/such/checkpoint-7", 7, metric="loss", score=0.1, greater_is_better=False)


# On a real server.


def test_on_a_real_server(
    seaweed: Seaweed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Saves in parts there, copied there, and back."""
    for name, value in seaweed.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("DISPATCH_CHECKPOINT", f"s3://{REAL_BUCKET}/{tmp_path.name}")
    monkeypatch.setattr("slurm_dispatch.s3.bucket.COPY_BYTES_MAX", 4 << 20)
    large = os.urandom(20 << 20)
    become(monkeypatch, OLD, FIRST)
    this, save = slurm_dispatch.execution(), saved(5, large)
    this.publish(save, 5)
    this.keep_best(save, 5, metric="loss", score=1.0, greater_is_better=False)
    become(monkeypatch, NEW, SECOND)
    this = slurm_dispatch.execution()
    assert this.resume is not None
    assert Path(this.resume, "weights").read_bytes() == large
    best = this.carry_best("loss", greater_is_better=False)
    assert best is not None
    shutil.rmtree(this.resume)
    assert Path(this.bring_best(best).path, "weights").read_bytes() == large
    assert Path(this.bring_best(best).path, "trainer_state.json").exists()
