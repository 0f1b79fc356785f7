"""Saves on their way to S3 and back, on a stub that loses answers and on SeaweedFS."""

from __future__ import annotations

import os
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from slurm_dispatch.anyroot import open_store
from slurm_dispatch.errors import (
    AbsentError,
    AmbiguousError,
    BadDataError,
    CannotCreateError,
    DeniedError,
    StoreError,
    TransientError,
)
from slurm_dispatch.s3 import bucket as buckets
from slurm_dispatch.s3 import transfer
from slurm_dispatch.s3.root import S3Root
from slurm_dispatch.s3.transfer import Meter, download, upload
from tests.s3.scene import FIRST, OLD
from tests.s3.servers import BUCKET
from tests.s3.stub import DEADLINE_S
from tests.store.scene import tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.s3.servers import Seaweed
    from tests.s3.stub import Stub

SAVE = f"exec/{OLD}/checkpoint-5"
LARGE = bytes(range(256)) * 40
"""Larger than a part is here."""


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts and ranges so small that a few KiB need several."""
    monkeypatch.setattr(buckets, "PART_BYTES", 4096)
    monkeypatch.setattr(transfer, "RANGE_BYTES", 3000)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A save of three files and an empty one."""
    folder = tmp_path / "checkpoint-5"
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "model").write_bytes(LARGE)
    (folder / "deep" / "er" / "größe 1").write_bytes(b"state")
    (folder / "deep" / "x").write_bytes(b"y" * 5000)
    (folder / "empty").touch()
    return folder


@contextmanager
def during(stub: Stub, method: str, act: Callable[[], object]) -> Iterator[None]:
    """``act`` happens while the request for one file is under way, which goes on only then."""
    over = threading.Event()
    slow = stub.fault("wait", method=method, key="deep/x", until=over, times=1)

    def change() -> None:
        ends_at = time.monotonic() + DEADLINE_S
        while not slow.met and time.monotonic() < ends_at:
            time.sleep(0.01)
        act()
        over.set()

    changing = threading.Thread(target=change)
    changing.start()
    yield
    changing.join(DEADLINE_S)


def stored(stub: Stub) -> dict[str, bytes]:
    """The save in the stub, by path."""
    at = f"run/{SAVE}/"
    return {key[len(at) :]: body for key, body in stub.objects.items() if key.startswith(at)}


def test_there_and_back(stub: Stub, root: S3Root, source: Path, tmp_path: Path) -> None:
    relative = upload(root, OLD, str(source))
    assert relative == SAVE.encode()
    assert stored(stub) == tree(source)
    root.publish(FIRST, 5, relative, attempt=OLD)
    download(root, relative, str(tmp_path / "back"))
    assert tree(tmp_path / "back") == tree(source)
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".tmp")]
    assert len([r for r in stub.of("PUT", "model") if "partNumber" in r.query]) == 3


def test_one_file(stub: Stub, root: S3Root, tmp_path: Path) -> None:
    (tmp_path / "last.pt").write_bytes(LARGE)
    relative = upload(root, OLD, str(tmp_path / "last.pt"), name="kept/last-7.pt")
    assert stub.objects[f"run/exec/{OLD}/kept/last-7.pt"] == LARGE
    download(root, relative, str(tmp_path / "back.pt"))
    assert (tmp_path / "back.pt").read_bytes() == LARGE


def test_what_is_there_is_not_sent_again(stub: Stub, root: S3Root, source: Path) -> None:
    """An upload that was broken off goes on; a file that is another one by now is sent."""
    refused = stub.fault("answer", key="deep/x", status=403, code="AccessDenied")
    with pytest.raises(DeniedError):
        upload(root, OLD, str(source))
    refused.times = 0
    before = set(stored(stub))
    sent = len(stub.requests)
    upload(root, OLD, str(source))
    again = {r.key.removeprefix(f"run/{SAVE}/") for r in stub.requests[sent:] if r.method in {"PUT", "POST"}}
    assert again == set(tree(source)) - before
    assert "deep/x" in again
    (source / "deep" / "er" / "größe 1").write_bytes(b"STATE")
    upload(root, OLD, str(source))
    assert stored(stub) == tree(source)


def test_what_an_earlier_save_of_the_name_left_goes(stub: Stub, root: S3Root, source: Path) -> None:
    stub.objects[f"run/{SAVE}/shard-of-before"] = b"old"
    stub.objects[f"run/{SAVE}/model"] = LARGE  # of the same size, and not ours
    upload(root, OLD, str(source))
    assert stored(stub) == tree(source)
    assert len(stub.of("POST", "model")) == 2


def test_a_published_save_is_not_touched(stub: Stub, root: S3Root, source: Path) -> None:
    upload(root, OLD, str(source))
    root.publish(FIRST, 5, SAVE, attempt=OLD)
    (source / "model").write_bytes(b"other")
    before = stored(stub)
    with pytest.raises(CannotCreateError, match="published already"):
        upload(root, OLD, str(source))
    assert stored(stub) == before


def test_a_save_whose_publication_got_no_answer_is_not_written_over(
    stub: Stub, root: S3Root, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C155: that publication may come to be there at any moment, so it is made before anything else is sent."""
    relative = upload(root, OLD, str(source))
    before = stored(stub)
    monkeypatch.setattr(root.bucket, "timeout_s", 1.0)
    root.prove(OLD)
    lost = stub.fault("drop", key="run/pub/")
    with pytest.raises(AmbiguousError):
        root.publish(FIRST, 5, relative, attempt=OLD)
    assert lost.met
    (source / "model").write_bytes(b"other")
    with pytest.raises(AmbiguousError):
        upload(root, OLD, str(source))
    assert stored(stub) == before
    stub.faults.clear()
    with pytest.raises(CannotCreateError, match="published already"):
        upload(root, OLD, str(source))
    assert stored(stub) == before
    assert [publication.step for publication in root.listing()] == [5]


@pytest.mark.parametrize("kind", ["act-then-drop", "act-then-answer"])
def test_a_finished_upload_whose_answer_was_lost(stub: Stub, root: S3Root, source: Path, kind: str) -> None:
    """C155: it is accepted because the object has our token and size, and is not sent a second time."""
    met = stub.fault(kind, method="POST", key="model", query="uploadId", times=1)
    upload(root, OLD, str(source))
    assert met.met == 1
    assert stored(stub) == tree(source)
    assert len([r for r in stub.of("POST", "model") if "uploads" in r.query]) == 1


def test_an_upload_that_is_not_known_any_more(stub: Stub, root: S3Root, source: Path) -> None:
    """C155: and an older object of the same size is under the key: it is not taken for ours."""
    stub.objects[f"run/{SAVE}/model"] = LARGE[::-1]
    met = stub.fault("answer", method="POST", key="model", query="uploadId", status=404, code="NoSuchUpload", times=1)
    upload(root, OLD, str(source))
    assert met.met == 1
    assert stored(stub)["model"] == LARGE
    assert len([r for r in stub.of("POST", "model") if "uploads" in r.query]) == 2


def test_answers_lost_and_a_full_server(stub: Stub, root: S3Root, source: Path, tmp_path: Path) -> None:
    """C139: nothing of it is seen outside."""
    stub.fault("drop", key="deep/x", times=1)
    stub.fault("act-then-drop", key="größe", times=1)
    stub.fault("answer", method="PUT", key="model", query="partNumber", status=503, code="SlowDown", times=1)
    upload(root, OLD, str(source))
    assert stored(stub) == tree(source)
    stub.fault("drop", method="GET", key="model", times=2)
    stub.fault("answer", method="GET", key="deep/x", status=503, code="SlowDown", times=1)
    download(root, SAVE.encode(), str(tmp_path / "back"))
    assert tree(tmp_path / "back") == tree(source)


def test_a_store_that_hangs(stub: Stub, root: S3Root, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "FILE_S", 0.5)
    monkeypatch.setattr(transfer, "RATE_MIN", 1 << 30)
    stub.fault("wait", key="deep/x", seconds=5.0)
    with pytest.raises(AmbiguousError, match="not done in"):
        upload(root, OLD, str(source))


@pytest.mark.parametrize("methods", [("PUT",), ("PUT", "HEAD")])
def test_a_store_that_goes_away_is_said_soon(
    stub: Stub, opened: Callable[..., S3Root], source: Path, monkeypatch: pytest.MonkeyPatch, methods: tuple[str, ...]
) -> None:
    """And not when a file of its size should have been there at the slowest: of 100 GB that is days."""
    monkeypatch.setattr(transfer, "FILE_S", 20.0)
    for method in methods:
        stub.fault("drop", method=method, key="deep/x")
    with pytest.raises(TransientError, match=r"uploading .*deep/x|looking at .*deep/x.*: not done in 1 s"):
        upload(opened(timeout_s=1.0), OLD, str(source))


def test_a_store_that_loses_what_it_took(stub: Stub, root: S3Root, source: Path) -> None:
    stub.omits[f"run/{SAVE}/model"] = -1
    with pytest.raises(StoreError, match="not there as it was sent"):
        upload(root, OLD, str(source))


def test_what_s3_has_not(stub: Stub, root: S3Root, source: Path, tmp_path: Path) -> None:
    """Refused before anything is sent."""
    with pytest.raises(BadDataError, match="not there"):
        upload(root, OLD, str(tmp_path / "none"))
    (tmp_path / "hollow").mkdir()
    (tmp_path / "hollow" / "file").touch()
    with pytest.raises(BadDataError, match="empty"):
        upload(root, OLD, str(tmp_path / "hollow"))
    for wrong in ("link", "fifo", b"\xff", "new\nline"):
        path = os.path.join(os.fsencode(source), os.fsencode(wrong))
        if wrong == "link":
            os.symlink("model", path)
        elif wrong == "fifo":
            os.mkfifo(path)
        else:
            Path(os.fsdecode(path)).touch()
        with pytest.raises(BadDataError):
            upload(root, OLD, str(source))
        os.unlink(path)
    assert stored(stub) == {}


def test_a_source_that_changes_meanwhile(stub: Stub, root: S3Root, source: Path) -> None:
    """It is no save that was proved to be whole."""
    changed = pytest.raises(BadDataError, match="changed while it was uploaded")
    with during(stub, "PUT", lambda: (source / "late").write_bytes(b"x")), changed:
        upload(root, OLD, str(source))


def test_a_save_that_goes_while_it_is_fetched(stub: Stub, root: S3Root, source: Path, tmp_path: Path) -> None:
    upload(root, OLD, str(source))
    stub.fault("answer", method="GET", key="deep/x", status=404, code="NoSuchKey")
    with pytest.raises(AbsentError, match="deep/x"):
        download(root, SAVE.encode(), str(tmp_path / "back"))
    with pytest.raises(AbsentError, match="gone"):
        download(root, b"exec/other/checkpoint-1", str(tmp_path / "back"))
    assert sorted(os.listdir(tmp_path)) == ["checkpoint-5"]


def test_a_save_that_changes_while_it_is_fetched(stub: Stub, root: S3Root, source: Path, tmp_path: Path) -> None:
    upload(root, OLD, str(source))
    changed = pytest.raises(BadDataError, match="changed while it was read")
    with during(stub, "GET", lambda: stub.objects.update({f"run/{SAVE}/model": LARGE[::-1]})), changed:
        download(root, SAVE.encode(), str(tmp_path / "back"))
    assert sorted(os.listdir(tmp_path)) == ["checkpoint-5"]


def test_where_nothing_may_be(stub: Stub, root: S3Root, source: Path, tmp_path: Path) -> None:
    upload(root, OLD, str(source))
    with pytest.raises(CannotCreateError, match="there already"):
        download(root, SAVE.encode(), str(source))
    with pytest.raises(StoreError):
        download(root, SAVE.encode(), str(tmp_path / "none" / "back"))


@pytest.mark.parametrize("more", [["a", "a/b"], ["a/../../b"], ["/b"], ["a//b"]])
def test_keys_that_can_be_no_files(stub: Stub, root: S3Root, tmp_path: Path, more: list[str]) -> None:
    """Nothing is written outside the target, whatever the keys are."""
    for name in more:
        stub.objects[f"run/{SAVE}/{name}"] = b"x"
    with pytest.raises((BadDataError, StoreError)):
        download(root, SAVE.encode(), str(tmp_path / "back"))
    assert os.listdir(tmp_path) == []


def test_a_meter_says_how_far_it_is() -> None:
    said: list[str] = []
    meter = Meter("uploading x", said.append, every_s=0.0)
    meter.begin(2, 3 << 20)
    meter.add(1, 1 << 20)
    meter.add(1, 2 << 20)
    assert said[0].startswith("uploading x: 1.0 of 3.0 MiB, 1 of 2 files, ")
    assert said[1].startswith("uploading x: 3.0 of 3.0 MiB, 2 of 2 files, ")
    quiet: list[str] = []
    meter = Meter("uploading x", quiet.append, every_s=3600.0)
    meter.begin(2, 2)
    meter.add(1, 1)
    assert quiet == []
    meter.add(1, 1)
    assert len(quiet) == 1


def test_there_and_back_on_a_real_server(
    seaweed: Seaweed, monkeypatch: pytest.MonkeyPatch, no_aws_files: None, tmp_path: Path
) -> None:
    """In parts of 5 MiB, the smallest that S3 takes."""
    monkeypatch.setattr(buckets, "PART_BYTES", 5 << 20)
    monkeypatch.setattr(transfer, "RANGE_BYTES", 1 << 20)
    for name, value in seaweed.environment().items():
        monkeypatch.setenv(name, value)
    root = open_store(f"s3://{BUCKET}/{tmp_path.name}", timeout_s=120.0)
    assert isinstance(root, S3Root)
    folder = tmp_path / "checkpoint-9"
    folder.mkdir()
    (folder / "large").write_bytes(os.urandom((11 << 20) + 17))
    for number in range(20):
        (folder / f"small-{number}").write_bytes(os.urandom(100 * number))
    relative = upload(root, OLD, str(folder))
    upload(root, OLD, str(folder))
    root.publish(FIRST, 9, relative, attempt=OLD)
    latest = root.latest()
    assert latest is not None
    download(root, latest.publication.path, str(tmp_path / "back"))
    assert tree(tmp_path / "back") == tree(folder)
