"""What no real server shows on demand, on a stub.

Answers lost, conflicts, conditions ignored, pages and listings that lie, checksums refused.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest

from slurm_dispatch.errors import (
    AbsentError,
    AmbiguousError,
    BadDataError,
    CannotCreateError,
    CorruptError,
    DeniedError,
    StoreError,
    TransientError,
)
from slurm_dispatch.model.publication import Publication
from slurm_dispatch.s3.deadline import Deadline
from slurm_dispatch.s3.proof import RACERS
from tests.s3.scene import FIRST, NEW, OLD, SECOND, names, published, save

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurm_dispatch.s3.root import S3Root
    from tests.s3.stub import Stub

PUB = "run/pub/"
SOON_S = 1.0
"""A timeout for a call that is to run out of it."""
LONG_S = 60.0
"""Far more than a call may take that has a timeout of :data:`SOON_S`, on any machine."""


def publications(stub: Stub) -> list[str]:
    return sorted(key.removeprefix(PUB) for key in stub.objects if key.startswith(PUB))


# Creating


@pytest.mark.parametrize(
    "fault",
    [
        {"kind": "act-then-drop"},
        {"kind": "act-then-answer", "status": 500},
        {"kind": "act-then-answer", "status": 503, "code": "SlowDown"},
        {"kind": "drop"},
        {"kind": "answer", "status": 503, "code": "SlowDown"},
        {"kind": "answer", "status": 429, "code": "TooManyRequests"},
    ],
    ids=lambda fault: f"{fault['kind']}-{fault.get('status', '')}",
)
def test_an_answer_that_was_lost_is_no_lost_race(stub: Stub, root: S3Root, fault: dict[str, object]) -> None:
    """C139: the same key is put again; that it exists then is success, whoever made it."""
    path = save(root, OLD, "checkpoint-5")
    root.publish(FIRST, 4, path, attempt=OLD)
    met = stub.fault(key=PUB, times=2, **fault)  # type: ignore[arg-type]
    publication = root.publish(FIRST, 5, path, attempt=OLD)
    assert met.met == 2
    assert stub.objects[PUB + publication.name] == b""
    assert len(publications(stub)) == 2
    assert {request.key for request in stub.of("PUT", PUB)} == {PUB + name for name in publications(stub)}


def test_a_claim_whose_answer_was_lost_is_ours(stub: Stub, root: S3Root, opened: Callable[..., S3Root]) -> None:
    """C139: what stands in the object says whose it is."""
    stub.fault("act-then-drop", key="run/own/", times=1)
    root.claim("mine", 0)
    assert stub.objects["run/own/0"] == b"mine"
    with pytest.raises(CannotCreateError, match="mine"):
        opened().claim("yours", 0)


def test_a_conflict_is_tried_again(stub: Stub, root: S3Root) -> None:
    """C140: 409 says that another request is under way, not that the object is there."""
    path = save(root, OLD, "checkpoint-5")
    met = stub.fault("answer", key=PUB, status=409, code="ConditionalRequestConflict", times=3)
    publication = root.publish(FIRST, 5, path, attempt=OLD)
    assert met.met == 3
    assert publications(stub) == [publication.name]
    assert len(stub.of("PUT", PUB)) == 4


def test_a_conflict_that_somebody_else_won_is_success(stub: Stub, root: S3Root) -> None:
    """C140: 409, and then the object is there, made by the other request."""
    path = save(root, OLD, "checkpoint-5")
    name = Publication(FIRST, 5, path.encode()).name
    stub.fault("act-then-answer", key=PUB, status=409, code="ConditionalRequestConflict", times=1)
    assert root.publish(FIRST, 5, path, attempt=OLD).name == name
    assert len(stub.of("PUT", PUB)) == 1


def test_a_conflict_that_never_ends_is_not_known(stub: Stub, root: S3Root) -> None:
    """C140: neither success nor refusal is made of it."""
    stub.fault("answer", key=PUB, status=409, code="ConditionalRequestConflict")
    with pytest.raises(AmbiguousError, match="not done in 1 s: the store says that it is there, and then"):
        root.bucket.create(PUB + "x", b"", Deadline(SOON_S))
    assert publications(stub) == []


def test_a_request_that_arrives_late(stub: Stub, root: S3Root) -> None:
    """C147: that it is not there yet is no reason to choose another name; the same one is put again."""
    path = save(root, OLD, "checkpoint-5")
    root.publish(FIRST, 4, path, attempt=OLD)
    stub.fault("act-late", key=PUB, seconds=0.5, times=1)
    publication = root.publish(FIRST, 5, path, attempt=OLD)
    late = stub.of("PUT", publication.name)
    assert len(late) == 2
    ends_at = time.monotonic() + LONG_S
    while any(isinstance(thread, threading.Timer) for thread in threading.enumerate()):
        assert time.monotonic() < ends_at
        time.sleep(0.02)
    assert len(publications(stub)) == 2
    assert stub.objects[PUB + publication.name] == b""


def test_a_request_that_arrives_after_we_gave_up(stub: Stub, opened: Callable[..., S3Root]) -> None:
    """C147: it is not known, and publishing the same again is success, be it there by now or not."""
    root = opened()
    path = save(root, OLD, "checkpoint-5")
    root.publish(FIRST, 4, path, attempt=OLD)
    late = stub.fault("act-late", key=PUB, seconds=0.1)
    with pytest.raises(AmbiguousError, match="not done in 1 s"):
        root.bucket.create(PUB + Publication(FIRST, 5, path.encode()).name, b"", Deadline(SOON_S))
    late.times = 0
    publication = opened().publish(FIRST, 5, path, attempt=OLD)
    assert publications(stub)[-1] == publication.name
    assert len(publications(stub)) == 2


# Whether the store keeps the condition


def test_a_store_that_ignores_the_condition_is_refused_by_name(stub: Stub, root: S3Root) -> None:
    """C143: two puts of one name in the execution's own folder, and nothing is published."""
    path = save(root, OLD, "checkpoint-5")
    stub.fault("ignore")
    with pytest.raises(CannotCreateError, match="makes one name twice") as caught:
        root.publish(FIRST, 5, path, attempt=OLD)
    assert stub.endpoint in caught.value.line()
    assert publications(stub) == []
    assert stub.of("PUT", PUB) == []


def test_a_store_that_does_not_know_the_condition(stub: Stub, root: S3Root) -> None:
    """C145: refused with its reason; a look before a put without the condition is not made of it."""
    path = save(root, OLD, "checkpoint-5")
    stub.conditions = False
    with pytest.raises(CannotCreateError, match=r"does not know the condition 'If-None-Match: \*' \(501\)") as caught:
        root.publish(FIRST, 5, path, attempt=OLD)
    assert stub.endpoint in caught.value.line()
    assert stub.of("PUT", PUB) == []
    assert all("if-none-match" in r.headers for r in stub.of("PUT") if "weights" not in r.key)


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ({"kind": "ignore"}, CannotCreateError),
        ({"kind": "answer", "status": 501, "code": "NotImplemented"}, CannotCreateError),
        ({"kind": "answer", "status": 400, "code": "InvalidArgument"}, StoreError),
    ],
    ids=["passed over", "not implemented", "bad request"],
)
def test_a_store_with_a_condition_of_its_own(
    stub: Stub, root: S3Root, fault: dict[str, object], error: type[Exception]
) -> None:
    """C146: whatever it makes of ours, if it is not a refusal of the second put it is no store to publish in."""
    path = save(root, OLD, "checkpoint-5")
    stub.fault(key="/proved", **fault)  # type: ignore[arg-type]
    with pytest.raises(error):
        root.publish(FIRST, 5, path, attempt=OLD)
    assert publications(stub) == []


def test_an_execution_asks_once(stub: Stub, root: S3Root, opened: Callable[..., S3Root]) -> None:
    """C143: two puts before the first publication; a later process of the execution needs one."""
    for step in (1, 2, 3):
        published(root, step)
    assert len(stub.of("PUT", "/proved")) == 2
    published(opened(), 4)
    assert len(stub.of("PUT", "/proved")) == 3
    published(root, 1, epoch=SECOND, attempt=NEW)
    assert len(stub.of("PUT", f"{NEW}/.dispatch/proved")) == 2


def test_what_a_publication_asks_of_the_store(stub: Stub, root: S3Root) -> None:
    """One listing that shows the save and one put; the put alone where the save was listed just before, once."""

    def asked(step: int) -> list[str]:
        path = save(root, OLD, f"checkpoint-{step}")
        if step == 3:
            root.saw(path.encode())
        before = len(stub.requests)
        root.publish(FIRST, step, path, attempt=OLD)
        return [request.method for request in stub.requests[before:]]

    root.take_as_proved(OLD)
    assert [asked(step) for step in (1, 2, 3, 4)] == [["GET", "PUT"], ["GET", "PUT"], ["PUT"], ["GET", "PUT"]]
    root.saw(save(root, OLD, "checkpoint-5").encode())
    with pytest.raises(BadDataError, match="not there"):
        root.publish(FIRST, 6, f"exec/{OLD}/checkpoint-6", attempt=OLD)


def test_the_proof_is_not_spoiled_by_a_lost_answer(stub: Stub, root: S3Root) -> None:
    """C139, C143: of a store that ignores the condition no lost answer makes a good one."""
    path = save(root, OLD, "checkpoint-5")
    stub.fault("act-then-drop", key="/proved", times=1)
    root.publish(FIRST, 5, path, attempt=OLD)
    stub.fault("act-then-answer", key=f"{NEW}/.dispatch/proved", times=1, status=500)
    stub.fault("ignore", key=f"{NEW}/.dispatch/proved")
    path = save(root, NEW, "checkpoint-5")
    with pytest.raises(CannotCreateError):
        root.publish(SECOND, 5, path, attempt=NEW)


# Checksums


def test_no_checksum_is_sent(stub: Stub, root: S3Root, monkeypatch: pytest.MonkeyPatch) -> None:
    """C150: a store that refuses checksums and chunked bodies is served in all that we do."""
    monkeypatch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "when_supported")
    stub.checksums = False
    root.claim("mine", 0)
    publication = published(root, 5)
    latest = root.latest()
    assert latest is not None
    assert latest.publication == publication
    root.bucket.remove("run/exec/x", root.bucket.deadline())
    assert not [name for r in stub.requests for name in r.headers if "checksum" in name or "trailer" in name]


def test_a_store_that_keeps_trailers_in_the_object_is_refused(stub: Stub, root: S3Root) -> None:
    """C150: an empty object that is not empty is no publication."""
    path = save(root, OLD, "checkpoint-5")
    stub.fault("spoil", key="/proved")
    with pytest.raises(CannotCreateError, match="does not keep an empty object empty"):
        root.publish(FIRST, 5, path, attempt=OLD)
    assert publications(stub) == []


def test_a_publication_that_is_not_empty_is_named(stub: Stub, root: S3Root) -> None:
    """C150: neither published again as if nothing were, nor resumed from."""
    publication = published(root, 5)
    stub.objects[PUB + publication.name] = b"0\r\n"
    with pytest.raises(CorruptError, match="another content"):
        root.publish(FIRST, 5, publication.path, attempt=OLD)
    with pytest.raises(CorruptError, match="not an empty object"):
        root.latest()


# Listings


@pytest.mark.parametrize("ends", ["token", "nothing"])
@pytest.mark.parametrize(("count", "page"), [(2500, 1000), (1000, 1000), (1001, 1000), (7, 1), (6, 3)])
def test_all_pages_are_read(stub: Stub, root: S3Root, count: int, page: int, ends: str) -> None:
    """C151: also where a server calls a page the last that is not; the newest sorts last."""
    many = names(count)
    stub.objects.update((PUB + name, b"") for name in many)
    save(root, OLD, f"checkpoint-{count - 1}")
    stub.page, stub.ends = page, ends
    latest = root.latest()
    assert latest is not None
    assert latest.publication.step == count - 1
    assert [p.name for p in root.listing()] == many[::-1]


def test_a_listing_that_leaves_the_newest_out_once(stub: Stub, opened: Callable[..., S3Root]) -> None:
    """C153: a new process does not know it, and finds it in the look behind the greatest."""
    root = opened()
    for step in (1, 2, 3):
        newest = published(root, step)
    stub.omits[PUB + newest.name] = 1
    latest = opened().latest()
    assert latest is not None
    assert latest.publication == newest
    assert stub.omits[PUB + newest.name] == 0


def test_a_listing_only_raises_what_is_known(stub: Stub, opened: Callable[..., S3Root]) -> None:
    """C153: what this process has seen or made counts, confirmed by a look, whatever a listing leaves out."""
    writer, reader = opened(), opened()
    published(writer, 1)
    newest = published(writer, 2)
    assert reader.latest() is not None
    stub.omits[PUB + newest.name] = -1
    for root in (writer, reader):
        latest = root.latest()
        assert latest is not None
        assert latest.publication == newest
        assert [p.step for p in root.listing()] == [2, 1]
        assert root.highest().epoch == FIRST
    del stub.objects[PUB + newest.name]
    for root in (writer, reader):
        with pytest.raises(StoreError, match="was there and is not any more"):
            root.latest()


def test_a_name_without_its_object(stub: Stub, opened: Callable[..., S3Root]) -> None:
    """C154: a ghost is looked at before it is believed; the next one is taken only if that is asked for, and said."""
    said: list[str] = []
    root = opened(say=said.append)
    real = published(root, 1)
    save(root, OLD, "checkpoint-2")
    ghost = names(3)[2]
    stub.ghosts.add(PUB + ghost)
    with pytest.raises(BadDataError, match="the store says that it is not there") as caught:
        root.latest()
    assert ghost in str(caught.value)
    fallback = root.latest(fallback=True)
    assert fallback is not None
    assert fallback.publication == real
    assert ghost in said[0]


def test_a_save_that_is_a_ghost(stub: Stub, root: S3Root) -> None:
    """C154: the publication is there and not one object of its save."""
    published(root, 1)
    gone = published(root, 2)
    del stub.objects[f"run/exec/{OLD}/checkpoint-2/weights"]
    with pytest.raises(BadDataError, match="checkpoint-2 is gone") as caught:
        root.latest()
    assert gone.name in str(caught.value)


def test_placeholders_of_folders_are_no_names(stub: Stub, root: S3Root) -> None:
    for folder in ("run/pub/", "run/own/", f"run/exec/{OLD}/checkpoint-5/"):
        stub.objects[folder] = b""
    assert root.latest() is None
    assert root.listing() == []
    root.claim("mine", 0)
    with pytest.raises(BadDataError, match="checkpoint-5 is"):
        root.publish(FIRST, 5, f"exec/{OLD}/checkpoint-5", attempt=OLD)


@pytest.mark.parametrize("key", ["run/pub/a/b", "run/pub/sub//x", "run/pub/x\ty"])
def test_a_key_among_the_publications_that_is_none(stub: Stub, root: S3Root, key: str) -> None:
    """C091: named, and nothing is skipped."""
    published(root, 1)
    stub.objects[key] = b""
    with pytest.raises((BadDataError, CorruptError), match="pub"):
        root.latest()


# Absent, and could not look


TROUBLES = [
    ({"status": 403, "code": "AccessDenied"}, DeniedError),
    ({"status": 401, "code": "Unauthorized"}, DeniedError),
    ({"status": 400, "code": "InvalidRequest"}, StoreError),
    ({"status": 301, "code": "PermanentRedirect"}, StoreError),
    ({"status": 500}, TransientError),
    ({"status": 503, "code": "SlowDown"}, TransientError),
    ({"status": 429, "code": "TooManyRequests"}, TransientError),
    ({"kind": "drop"}, TransientError),
    ({"kind": "wait", "seconds": 3.0}, TransientError),
]
OF_LISTINGS = [
    ({"status": 404, "code": "NoSuchBucket"}, AbsentError),
    ({"kind": "dribble", "seconds": 0.2}, TransientError),
]
"""A look that answers 404 says "not there", and has no body that could come slowly."""


@pytest.mark.parametrize(
    ("method", "fault", "error"),
    [("GET", *one) for one in TROUBLES + OF_LISTINGS] + [("HEAD", *one) for one in TROUBLES],
    ids=lambda value: str(value.get("status", value.get("kind"))) if isinstance(value, dict) else None,
)
def test_could_not_look_is_not_nothing(
    stub: Stub, opened: Callable[..., S3Root], method: str, fault: dict[str, object], error: type[StoreError]
) -> None:
    """C091: each trouble has its class and ends in time; none of them is a first start."""
    published(opened(), 1)
    stub.fault(method=method, key="run/pub", **{"kind": "answer", **fault})  # type: ignore[arg-type]
    # What is refused for good is told at once; the rest is tried until the time is up.
    root = opened(timeout_s=SOON_S if error is TransientError else LONG_S)
    begun = time.monotonic()
    with pytest.raises(error):
        root.latest()
    assert time.monotonic() - begun < LONG_S


def test_nothing_there_is_nothing(stub: Stub, root: S3Root) -> None:
    """C091: an empty prefix is a first start, a bucket that is not there is none."""
    assert root.latest() is None


def test_no_such_bucket(opened: Callable[..., S3Root]) -> None:
    """C091: neither a first start nor a place to publish in."""
    root = opened("s3://elsewhere/run")
    for act in (root.latest, root.highest, root.listing, lambda: root.claim("mine", 0)):
        with pytest.raises(AbsentError, match="NoSuchBucket"):
            act()
    with pytest.raises(AbsentError):
        save(root, OLD, "checkpoint-5")


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT"])
def test_a_server_that_is_full_for_a_moment(stub: Stub, root: S3Root, method: str) -> None:
    met = stub.fault("answer", method=method, status=503, code="SlowDown", times=3)
    root.claim("mine", 0)
    publication = published(root, 5)
    latest = root.latest()
    assert latest is not None
    assert latest.publication == publication
    assert met.met == 3


def test_a_server_that_takes_and_never_answers(stub: Stub, root: S3Root) -> None:
    """C147: the time is up, and it is not known."""
    stub.fault("wait", key=PUB, seconds=5.0)
    begun = time.monotonic()
    with pytest.raises(AmbiguousError):
        root.bucket.create(PUB + "x", b"", Deadline(SOON_S))
    assert time.monotonic() - begun < LONG_S


# Whole lives


def test_if_match_is_never_sent(stub: Stub, root: S3Root, opened: Callable[..., S3Root]) -> None:
    """C159: nothing rests on a condition that some servers pass over for keys that are not there."""
    root.claim("mine", 0)
    published(root, 5)
    published(opened(), 5)
    root.latest()
    root.highest()
    assert {r.method for r in stub.requests} >= {"PUT", "GET", "HEAD"}
    assert not [r for r in stub.requests if "if-match" in r.headers]


def test_many_jobs_claim_one_root(stub: Stub, opened: Callable[..., S3Root]) -> None:
    """C130: one of them has it, and each of the others is told whose it is."""
    refused: list[str] = []
    won: list[str] = []

    def claim(job: str) -> None:
        try:
            opened().claim(job, 0)
            won.append(job)
        except CannotCreateError as error:
            refused.append(str(error))

    threads = [threading.Thread(target=claim, args=(f"job{number}",)) for number in range(RACERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG_S)
    assert len(won) == 1
    assert len(refused) == RACERS - 1
    assert stub.objects["run/own/0"] == won[0].encode()
    assert all(won[0] in line for line in refused)
