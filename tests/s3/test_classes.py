"""What the client raises is classed, all of it; a deadline holds; a save is seen as a layout wants to see it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from obstore import exceptions

from slurm_dispatch.errors import (
    AbsentError,
    AmbiguousError,
    CorruptError,
    DeniedError,
    LateError,
    StoreError,
    TransientError,
)
from slurm_dispatch.s3.deadline import Deadline, Late
from slurm_dispatch.s3.manifest import read_manifest, record, state_of
from slurm_dispatch.s3.trouble import _HINTS, NotImplementedHere, classed, code_of, passes, said, status_of
from slurm_dispatch.s3.view import READ_BYTES_MAX, view_of
from slurm_dispatch.store.manifest import SaveState
from slurm_dispatch.store.whole import Proof
from tests.s3.scene import OLD, published, save

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurm_dispatch.s3.root import S3Root
    from tests.s3.stub import Stub

TOP = str(Path(__file__).resolve().parents[2])
CLASSES = [
    one for one in vars(exceptions).values() if isinstance(one, type) and issubclass(one, exceptions.BaseError)
]
OF_STATUS = {
    400: StoreError, 401: DeniedError, 403: DeniedError, 404: AbsentError, 408: TransientError, 429: TransientError,
    500: TransientError, 501: NotImplementedHere, 502: TransientError, 503: TransientError, 301: StoreError,
}  # fmt: skip


def test_there_are_classes() -> None:
    assert len(CLASSES) > 5


@pytest.mark.parametrize("kind", [*CLASSES, FileNotFoundError, ValueError, TypeError], ids=lambda kind: kind.__name__)
def test_every_exception_of_the_client_has_a_class(kind: type[Exception]) -> None:
    found = classed(kind("words"), "reading", "s3://bucket/key", "http://there")
    assert isinstance(found, StoreError)
    assert "s3://bucket/key" in str(found)
    assert "http://there" in str(found)
    assert isinstance(passes(kind("words")), bool)


@pytest.mark.parametrize(("status", "kind"), OF_STATUS.items())
def test_every_status_has_a_class(stub: Stub, root: S3Root, status: int, kind: type[StoreError]) -> None:
    """The text that the client makes of an answer still says its status and code."""
    stub.fault("answer", method="GET", status=status, code="SomeCode")
    with pytest.raises(Exception) as caught:  # noqa: PT011 - the client's own, before it is classed
        list(root.bucket._library.list(root.bucket._store(), "run"))
    assert status_of(caught.value) == status
    assert code_of(caught.value) == ("SomeCode" if status >= 400 else "")
    assert type(classed(caught.value, "listing", "x", "y")) is kind
    assert passes(caught.value) is (kind is TransientError)


@pytest.mark.parametrize("code", [*_HINTS, "SomeCode"])
def test_what_a_person_can_do_is_said(stub: Stub, root: S3Root, code: str) -> None:
    stub.fault("answer", method="GET", status=403, code=code)
    with pytest.raises(DeniedError) as caught:
        root.listing()
    assert f"403 {code}" in str(caught.value)
    assert caught.value.hint == _HINTS.get(code, "look at the credentials and at what they may do")


@pytest.mark.parametrize(("scheme", "cause"), [("http", "Connection refused"), ("https", "does not speak https")])
def test_the_cause_of_no_answer_is_said(
    stub: Stub, opened: Callable[..., S3Root], monkeypatch: pytest.MonkeyPatch, scheme: str, cause: str
) -> None:
    """The client's first line is the same for all causes."""
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        port = nobody.getsockname()[1] if scheme == "http" else stub.endpoint.rpartition(":")[2]
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"{scheme}://127.0.0.1:{port}")
        bucket = opened().bucket
        with pytest.raises(Exception) as caught:  # noqa: PT011 - the client's own, before it is classed
            list(bucket._library.list(bucket._store(), "run"))
    assert cause in said(caught.value)
    assert passes(caught.value)


def test_what_was_tried_until_the_time_was_over_says_why(stub: Stub, opened: Callable[..., S3Root]) -> None:
    stub.fault("answer", method="GET", status=503, code="SlowDown")
    stub.fault("answer", method="PUT", status=503, code="SlowDown")
    root = opened(timeout_s=3.0)
    with pytest.raises(LateError, match="not done in 3 s: 503 SlowDown"):
        root.listing()
    with pytest.raises(AmbiguousError, match="not done in 3 s: 503 SlowDown"):
        root.prove(OLD)


def test_nobody_gave_credentials() -> None:
    """The client asks the cloud's own service then, and its words are about that."""
    text = "Generic S3 error: Error performing PUT http://169.254.169.254/latest/api/token in 1ms - {}\n\nDebug:"
    for why in ("HTTP error: error sending request", "Server returned non-2xx status code: 403 Forbidden: no"):
        error = classed(exceptions.GenericError(text.format(why)), "listing", "s3://bucket/key", "http://there")
        assert "there are no credentials in variables or files" in str(error)
        assert "403" not in error.line()


def test_a_deadline_holds_whatever_is_waited_for() -> None:
    over = threading.Event()
    begun = time.monotonic()
    with pytest.raises(Late):
        Deadline(0.1).call(lambda: over.wait(300))
    assert time.monotonic() - begun < 60
    over.set()
    assert Deadline(60).call(lambda: 5) == 5
    with pytest.raises(KeyError):
        Deadline(60).call(lambda: {}["x"])


def test_calls_at_once() -> None:
    """A thread that is busy with a call serves no other."""
    gate = threading.Barrier(5)
    with ThreadPoolExecutor(4) as callers:
        waiting = [callers.submit(Deadline(60).call, lambda: gate.wait(60)) for _ in range(4)]
        places = [Deadline(60).call(lambda: gate.wait(60)), *(one.result() for one in waiting)]
    assert sorted(places) == [0, 1, 2, 3, 4]


FORKS = """
import os, warnings
warnings.simplefilter("ignore", DeprecationWarning)
from slurm_dispatch.s3.deadline import Deadline
assert Deadline(60).call(lambda: 5) == 5
pid = os.fork()
if pid == 0:
    os._exit(Deadline(60).call(lambda: 7))
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
"""


def test_a_fork_waits_for_no_thread_that_it_has_not() -> None:
    subprocess.run([sys.executable, "-c", FORKS], check=True, timeout=300, env={**os.environ, "PYTHONPATH": TOP})


def test_tries_end_with_the_time() -> None:
    assert list(Deadline(0.05).tries()) == [0]
    assert list(islice(Deadline(600).tries(), 4)) == [0, 1, 2, 3]


def test_what_was_recorded_and_what_is_there(stub: Stub, root: S3Root) -> None:
    """C169: a saver that writes over a published save, or takes it away, is seen."""
    publication = published(root, 5)
    assert state_of(root, publication) is SaveState.UNRECORDED
    record(root, publication.path, Proof.PROVED)
    assert state_of(root, publication) is SaveState.PROVED
    stub.objects[f"run/exec/{OLD}/checkpoint-5/weights"] = b"WEIGHTS"
    assert state_of(root, publication) is SaveState.CHANGED
    record(root, publication.path, Proof.ASSUMED)
    assert state_of(root, publication) is SaveState.CHANGED
    stub.objects[f"run/exec/{OLD}/checkpoint-5/weights"] = b""
    assert state_of(root, publication) is SaveState.GONE
    stub.objects[f"run/exec/{OLD}/.dispatch/save-checkpoint-5"] = b"{"
    with pytest.raises(CorruptError, match="does not parse"):
        read_manifest(root, publication.path)


def test_a_save_as_a_layout_sees_it(stub: Stub, root: S3Root) -> None:
    assert view_of(root, b"exec/none") is None
    folder = "run/exec/a/c-1"
    stub.objects.update({f"{folder}/x/shard": b"0123456789", f"{folder}/index": b"{}", f"{folder}0/y": b"z"})
    view = view_of(root, b"exec/a/c-1")
    assert view is not None
    assert (view.name, view.single) == ("c-1", False)
    assert view.sizes == {"index": 2, "x/shard": 10}
    assert view.read("x/shard") == b"0123456789"
    assert view.read("x/shard", 2, 3) == b"234"
    assert view.read("x/shard", 8, READ_BYTES_MAX) == b"89"
    assert view.read("x/shard", 10, 5) == b""
    with pytest.raises(FileNotFoundError):
        view.read("y")
    del stub.objects["run/exec/a/c-1/index"]
    with pytest.raises(FileNotFoundError, match="gone"):
        view.read("index")
    stub.fault("answer", method="GET", status=403)
    with pytest.raises(OSError, match="403"):
        view.read("x/shard")


def test_a_save_of_one_object(stub: Stub, root: S3Root) -> None:
    stub.objects["run/exec/a/last.pt"] = b"0123"
    view = view_of(root, b"exec/a/last.pt")
    assert view is not None
    assert (view.name, view.single, view.sizes) == ("last.pt", True, {"": 4})
    assert view.read("", 1, 2) == b"12"


def test_a_look_at_more_than_can_be_held_is_refused(stub: Stub, root: S3Root) -> None:
    save(root, "a", "c-1")
    view = view_of(root, b"exec/a/c-1")
    assert view is not None
    object.__setattr__(view, "sizes", {"weights": READ_BYTES_MAX + 1})
    with pytest.raises(OSError, match="at once"):
        view.read("weights")


def test_removing_takes_the_proof_first(stub: Stub, root: S3Root) -> None:
    """Broken off at any object, what is left has neither manifest nor marker; the next removing takes the rest."""
    publication = published(root, 5)
    stub.objects[f"run/exec/{OLD}/checkpoint-5/done"] = b"1"
    record(root, publication.path, Proof.PROVED)
    refused = stub.fault("answer", method="DELETE", key="weights", status=403)
    with pytest.raises(DeniedError):
        root.remove(publication.path)
    assert refused.met == 1
    assert sorted(key for key in stub.objects if "proved" not in key) == [
        f"run/exec/{OLD}/checkpoint-5/weights", f"run/pub/{publication.name}"
    ]  # fmt: skip
    refused.times = 0
    assert root.remove(publication.path)
    assert not root.remove(publication.path)
    assert publication.name in root.names()
