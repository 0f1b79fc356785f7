"""The helper on a root in S3 where something goes wrong: what is lost of a save, an answer that is lost, a choice
that is asked for again, an upload that outlasts the command."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from slurm_dispatch.errors import BadDataError, StoreError
from slurm_dispatch.s3 import bucket as buckets
from slurm_dispatch.s3 import transfer
from slurm_dispatch.savers.layout import State
from slurm_dispatch.store.whole import Proof, look
from slurm_dispatch.watch import beside
from slurm_dispatch.watch import keeping as keepings
from slurm_dispatch.watch import prepare as preparing
from slurm_dispatch.watch import scanner as scanning
from slurm_dispatch.watch.judge import Judge
from slurm_dispatch.watch.keeping import Uploaded
from slurm_dispatch.watch.local import choose_and_bring, choose_remote, directory, make_local
from slurm_dispatch.watch.objects import Objects
from slurm_dispatch.watch.options import parse
from slurm_dispatch.watch.place import find_place
from slurm_dispatch.watch.prepare import Prepared
from slurm_dispatch.watch.publish import Publisher, Result
from slurm_dispatch.watch.scanner import Scanner, Serving
from slurm_dispatch.watch.session import Session
from tests.watch.rig import until
from tests.watch.test_remote_saver import train
from tests.watch.trainer import write

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurm_dispatch.watch.place import Place
    from tests.s3.stub import Stub
    from tests.watch.remote import RemoteScene

KEPT = "run/exec/attempt1/kept/"


def place_of(remote: RemoteScene, number: int = 1, *, local: bool = True) -> Place:
    """An execution as its helper sees it."""
    folder = str(remote.disk) if local else None
    return find_place(remote.environment(number), root=None, local=folder, remote=True)


def uploaded(remote: RemoteScene) -> tuple[Uploaded, str]:
    """What keeps the saves of the first execution, and its folder."""
    folder = make_local(place_of(remote))
    return Uploaded(remote.opened, "attempt1", folder, say=lambda _: None), folder


def lay(folder: str) -> str:
    """A save of the saver's; returns its path."""
    write(folder, "5", whole=True, done=True)
    return os.path.join(folder, "checkpoint-5")


def keep(keeping: Uploaded, path: str) -> bytes | None:
    """One save, as it is now."""
    seen = look(path)
    assert seen is not None
    return keeping.keep(path, seen, Proof.PROVED, copy=False)


# Choosing

@pytest.mark.parametrize("local", [True, False])
def test_a_first_start_is_chosen_once(remote: RemoteScene, stub: Stub, local: bool) -> None:
    """A rank that is started again, or a second helper, reads what the others read: nothing to resume from."""
    choose = choose_and_bring if local else choose_remote
    place = place_of(remote, local=local)
    make_local(place_of(remote))
    first = choose(remote.opened, place, start_from=None)
    assert (first.resume, first.turn) == (None, 1)
    stub.objects[f"{KEPT}checkpoint-5/weights"] = b"w"
    remote.opened.publish(place.epoch, 5, "exec/attempt1/kept/checkpoint-5", attempt="attempt1")
    assert choose(remote.opened, place, start_from=None) == first


@pytest.mark.parametrize("lost", ["done", "weights"])
def test_what_is_left_of_a_published_save_is_not_resumed_from(remote: RemoteScene, stub: Stub, lost: str) -> None:
    """A lifecycle rule, or a rotation that was stopped, took a part of it; its manifest says what it was."""
    assert remote.train("save 5 save 7").end() == 0
    del stub.objects[f"{KEPT}checkpoint-7/{lost}"]
    second = remote.train("touch ran", number=2)
    assert second.end() == 65, second.said
    assert second.has_said("checkpoint-7")
    assert second.has_said("when it was published")
    assert not remote.passed("ran")
    assert not list(remote.local(2).glob("resume/*/*"))


def test_nor_where_the_command_reads_it_in_s3(remote: RemoteScene, stub: Stub) -> None:
    assert train(remote, "save 5").end() == 0
    del stub.objects["run/exec/attempt1/checkpoint-5/weights"]
    second = train(remote, "touch ran", number=2)
    assert second.end() == 65, second.said
    assert second.has_said("when it was published")
    assert not remote.passed("ran")


def test_a_rotation_that_goes_on_while_a_newer_save_is_published(
    remote: RemoteScene, stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C087: the run before still lives, publishes and removes; its replacement asks for the latest again."""
    assert train(remote, "save 5").end() == 0
    del stub.objects["run/exec/attempt1/checkpoint-5/weights"]
    root, first = remote.opened, place_of(remote)
    asked = root.latest

    def late(**more: bool) -> object:
        found = asked(**more)
        if "run/exec/attempt1/checkpoint-7/weights" not in stub.objects:
            stub.objects["run/exec/attempt1/checkpoint-7/weights"] = b"w"
            remote.opened.publish(first.epoch, 7, "exec/attempt1/checkpoint-7", attempt="attempt1")
        return found

    monkeypatch.setattr(root, "latest", late)
    make_local(place_of(remote, 2))
    assert choose_and_bring(root, place_of(remote, 2), start_from=None).step == 7


def test_a_save_that_was_written_over_is_said(remote: RemoteScene, stub: Stub) -> None:
    """C169: all of it is there and something is other than it was, as on a folder."""
    assert remote.train("save 5").end() == 0
    stub.objects[f"{KEPT}checkpoint-5/weights"] = bytes(len(stub.objects[f"{KEPT}checkpoint-5/weights"]))
    second = remote.train("touch ran", number=2)
    assert second.end() == 0, second.said
    assert second.has_said("is not what it was when it was published")
    assert remote.passed("ran")


# Publishing

def test_a_publication_whose_answer_was_lost_is_found(remote: RemoteScene, stub: Stub) -> None:
    """C155: it is there, and so is what was sent; nothing is sent again, and the same is published again."""
    keeping, folder = uploaded(remote)
    path = lay(folder)
    kept = keep(keeping, path)
    assert kept is not None
    remote.opened.publish(place_of(remote).epoch, 5, kept, attempt="attempt1")
    before = len(stub.requests)
    assert keep(keeping, path) == kept
    assert not [one for one in stub.requests[before:] if one.method in {"PUT", "POST"} and "/kept/" in one.key]
    Path(path, "weights").write_bytes(b"of another turn")
    with pytest.raises(BadDataError, match="published already"):
        keep(keeping, path)


def test_what_is_whole_is_published_before_anything_is_thinned(remote: RemoteScene, stub: Stub) -> None:
    """Removing takes minutes where a save has ten thousand objects; told to stop, the helper only publishes."""
    keeping, folder = uploaded(remote)
    options = parse(["--done", "done", "--keep", "2,2", "--", "x"])
    publisher = Publisher(
        remote.opened, place_of(remote), options, keeping=keeping, directory=folder, resumed_step=None
    )
    publisher.begin()
    for steps, hurried in (("12", False), ("34", False), ("56", True)):
        for step in steps:
            write(folder, step, whole=True, done=True)
        publisher.hurried = hurried
        before = len(stub.requests)
        result = publisher.scan(assume=True)
        assert result.published == [int(step) for step in steps]
        done = [(one.method, "/pub/" in one.key) for one in stub.requests[before:]]
        last = max(at for at, what in enumerate(done) if what == ("PUT", True))
        removed = [at for at, what in enumerate(done) if what == ("DELETE", False)]
        assert all(at > last for at in removed)
        assert bool(removed) == (steps == "34")
        assert sorted(name[-1] for name in result.removed) == (["1", "2"] if removed else [])


def while_sending(keeping: Uploaded, name: str, act: Callable[[], object]) -> None:
    """``act`` happens once a file of this name is sent, before the next."""
    bucket = keeping._root.bucket
    send = bucket.send

    def sending(key: str, file: str, *more: object) -> None:
        send(key, file, *more)  # type: ignore[arg-type]
        if key.endswith(f"/{name}"):
            act()

    bucket.send = sending  # type: ignore[method-assign, assignment]


def test_a_rotation_does_not_disturb_an_upload(remote: RemoteScene, stub: Stub) -> None:
    """C087: a saver that keeps one save removes it as the next is written, long before all of it is sent."""
    keeping, folder = uploaded(remote)
    path = lay(folder)
    whole = Path(path, "weights").read_bytes()
    while_sending(keeping, "weights", lambda: shutil.rmtree(path))
    assert keep(keeping, path) == b"exec/attempt1/kept/checkpoint-5"
    assert stub.objects[f"{KEPT}checkpoint-5/weights"] == whole
    assert stub.objects[f"{KEPT}checkpoint-5/done"] == b"1"
    assert os.listdir(os.path.join(folder, ".dispatch", "sent")) == []


def test_what_is_written_in_place_meanwhile_is_no_save(remote: RemoteScene, stub: Stub) -> None:
    """C169: large files are linked, and a saver that writes into them writes into what is sent."""
    keeping, folder = uploaded(remote)
    path = lay(folder)
    with open(os.path.join(path, "weights"), "ab") as file:
        file.truncate(2 << 20)

    def write_over() -> None:
        with open(os.path.join(path, "weights"), "r+b") as file:
            file.write(b"torn")

    while_sending(keeping, "done", write_over)
    with pytest.raises(BadDataError, match="changed while it was uploaded"):
        keep(keeping, path)
    assert os.listdir(os.path.join(folder, ".dispatch", "sent")) == []
    kept = keep(keeping, path)  # the small file was sent, as what it was, though its copy is another
    assert kept is not None
    assert len(stub.of("PUT", "/done")) == 1


def test_a_file_that_is_written_all_the_time_is_published(remote: RemoteScene, stub: Stub) -> None:
    """What is uploaded is a copy: with ``--single`` the program writes the next one during each upload."""
    keeping, folder = uploaded(remote)
    path = Path(folder, "last.pt")
    path.write_bytes(b"1" * (2 << 20))
    while_sending(keeping, "last-1.pt", lambda: path.write_bytes(b"2" * (2 << 20)))
    seen = look(str(path))
    assert seen is not None
    assert keeping.keep(str(path), seen, Proof.PROVED, copy=True, name="last-1.pt") is not None
    assert stub.objects[f"{KEPT}last-1.pt"] == b"1" * (2 << 20)
    assert not keeping.holds("last-1.pt", str(path))
    seen = look(str(path))
    assert seen is not None
    assert keeping.keep(str(path), seen, Proof.PROVED, copy=True, name="last-2.pt") is not None
    assert keeping.holds("last-2.pt", str(path))


def test_where_there_are_no_links_what_was_sent_of_a_save_that_went_is_removed(
    remote: RemoteScene, stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A saver that rotates faster than uploads go would leave one save after the other, which nobody names."""
    monkeypatch.setattr(keepings, "can_link", lambda _: False)
    keeping, folder = uploaded(remote)
    path = lay(folder)
    while_sending(keeping, "done", lambda: shutil.rmtree(path))
    with pytest.raises(BadDataError):
        keep(keeping, path)
    assert not [key for key in stub.objects if key.startswith(KEPT)]


def test_a_full_disk_costs_no_save(remote: RemoteScene, stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no room for copies of the small files: the saver's own are uploaded, and that is said."""

    def full(*_: object, **__: object) -> None:
        raise StoreError("No space left on device")

    keeping, folder = uploaded(remote)
    path = lay(folder)
    monkeypatch.setattr(keepings, "transfer", full)
    said: list[str] = []
    keeping._root._say = said.append
    assert keep(keeping, path) is not None
    assert stub.objects[f"{KEPT}checkpoint-5/done"] == b"1"
    assert "No space left" in said[0]


def test_links_for_an_upload_are_not_synced(remote: RemoteScene, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are gone with the upload; of ten thousand small files it would take as long as sending them."""
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    keeping, folder = uploaded(remote)
    path = lay(folder)
    for number in range(40):
        Path(path, f"rng-{number}").write_bytes(b"s")
    assert keep(keeping, path) is not None
    assert len(synced) < 10  # of the folders that are made


def test_links_of_an_upload_that_was_killed_go(remote: RemoteScene) -> None:
    """They would hold on this host's disk what the saver has removed."""
    keeping, folder = uploaded(remote)
    left = Path(folder, ".dispatch", "sent", "checkpoint-5")
    left.mkdir(parents=True)
    (left / "weights").touch()
    keeping.begin()
    assert os.listdir(os.path.join(folder, ".dispatch", "sent")) == []


def test_a_key_that_is_too_long_is_no_trouble_of_the_store(remote: RemoteScene, stub: Stub) -> None:
    """A save of which S3 cannot take a file holds up no other: it is said, and nothing of it is sent."""
    keeping, folder = uploaded(remote)
    path = lay(folder)
    deep = Path(path, *["d" * 200] * 5)
    deep.mkdir(parents=True)
    (deep / "weights").write_bytes(b"w")
    before = len(stub.requests)
    with pytest.raises(BadDataError, match="1024 bytes"):
        keep(keeping, path)
    assert not [one for one in stub.requests[before:] if one.method != "GET"]


def test_a_marker_beside_a_save_that_comes_last(remote: RemoteScene, stub: Stub) -> None:
    """Nothing in the save changes when it comes, and the save is whole then."""
    stub.objects["run/exec/attempt1/checkpoint-5/weights"] = b"w"
    tree = Objects(remote.opened, "attempt1")
    judge = Judge(parse(["--done", "{name}.done", "--", "x"]), tree=tree)

    def state() -> State:
        (candidate,) = judge.listing(tree.directory).found
        opinion = judge.opinion(candidate)
        assert opinion is not None
        return opinion.state

    assert state() is State.UNSURE
    stub.objects["run/exec/attempt1/checkpoint-5.done"] = b""
    assert state() is State.WHOLE


# Ends

def test_a_stop_during_an_upload(remote: RemoteScene, stub: Stub) -> None:
    """The upload goes on as long as it may, and a person is told what that hangs on."""
    gate = threading.Event()
    fault = stub.fault("wait", key="kept/checkpoint-5/done", until=gate, times=1)
    helper = remote.train("save 5 wait never")
    until(lambda: fault.met, "the upload")
    helper.process.send_signal(signal.SIGTERM)
    helper.until_said("an upload is under way")
    assert remote.published() == []
    gate.set()
    assert helper.end() == 128 + signal.SIGTERM, helper.said
    assert remote.published() == [(1, 5)]


def test_after_an_upload_there_is_time_for_the_rest(remote: RemoteScene) -> None:
    """The upload of the save before outlasted the command, and --timeout; the last save is still to be published."""
    options = parse(["--timeout", "50", "--", "x"])
    session = Session(place_of(remote), options, Prepared("/d", None, None, None), {})
    scanner = session._scanner = Scanner(lambda control, _: bool(os.read(control, 1)) and None)
    try:
        assert session.moving_until == 0.0
        before = time.monotonic()
        for event in ({"e": "begin"}, {"e": "moves", "s": 0.0}, _ended(published=[5])):
            _tell(session, scanner, event)
        assert session.moving_until >= before + options.timeout_s
    finally:
        scanner.close(kill=True)


def test_the_last_save_may_settle_though_an_upload_took_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """What another save's upload takes is not taken from --settle."""
    clock = [0.0]
    monkeypatch.setattr(scanning, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    looks: list[float] = []

    class Publisher:
        options = parse(["--settle", "60", "--", "x"])

        def alive(self) -> bool:
            return True

        def begin(self) -> None:
            pass

        def scan(self, *, assume: bool) -> Result:
            looks.append(clock[0])
            if len(looks) == 1:
                clock[0] += 1200.0
                return Result(published=[5], waiting=1, settling=1)
            return Result(waiting=1, settling=1) if clock[0] < looks[1] + 59.0 else Result(published=[7])

    class Quick(Serving):
        def _hear(self, timeout_s: float) -> bool:
            clock[0] += timeout_s
            return False

    reading, writing = os.pipe()
    serving = Quick(Publisher(), -1, writing)  # type: ignore[arg-type]
    serving._last_scan()
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        events = [json.loads(line) for line in stream.read().splitlines()]
    assert events[-2]["published"] == [7]
    assert events[-1] == {"e": "last", "error": None, "waiting": 0}


def _ended(published: list[int]) -> dict[str, object]:
    return {"e": "end", "error": None, "published": published, "not_resumed": None, "active": False, "removed": []}


def _tell(session: Session, scanner: Scanner, event: dict[str, object]) -> None:
    """What the scanning process would write."""
    reading, writing = os.pipe()
    kept, scanner.events = scanner.events, reading
    try:
        os.write(writing, json.dumps(event).encode() + b"\n")
        session.handle([reading])
    finally:
        scanner.events = kept
        os.close(reading)
        os.close(writing)


# What it costs to wait

@pytest.mark.parametrize("root", ["s3://bucket/run", "/root"])
def test_who_waits_asks_a_store_that_costs_money_seldom(monkeypatch: pytest.MonkeyPatch, root: str) -> None:
    """Hundreds of ranks wait ten minutes for a download; each look is several requests. A folder is asked at once."""
    clock, looks = [0.0], [0]
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        clock[0] += seconds

    def find() -> str | None:
        looks[0] += 1
        return "found" if clock[0] >= 600 else None

    monkeypatch.setattr(preparing, "time", SimpleNamespace(monotonic=lambda: clock[0], sleep=sleep))
    place = find_place({}, root=root, remote=True)
    found = preparing._wait(place, find, "it", supervisor=os.getppid(), timeout_s=700.0)
    assert found == "found"
    if place.root.startswith("s3:"):
        assert looks[0] < 100
        assert max(pauses) <= preparing.REMOTE_PAUSE_S_MAX
    else:
        assert set(pauses) == {preparing.PAUSE_S}


def test_who_asked_to_finish_looks_seldom(remote: RemoteScene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look starts a process that loads the client; the last upload may take an hour."""
    clock, looks = [0.0], [0]

    def sleep(seconds: float) -> None:
        clock[0] += seconds

    def answer(*_: object) -> bytes:
        looks[0] += 1
        return b"1" if looks[0] == 1 or clock[0] >= 3600 else b""

    monkeypatch.setattr(beside, "time", SimpleNamespace(monotonic=lambda: clock[0], sleep=sleep))
    monkeypatch.setattr(beside, "apart", answer)
    assert beside.finish(place_of(remote), status=0, timeout_s=5000.0) == 1
    assert looks[0] < 800


def test_parts_under_way_are_few_where_they_are_large() -> None:
    """They are in memory, of eight files at once: of files of a TB, too."""
    mib = 1 << 20
    assert [buckets._at_once(part * mib) for part in (16, 32, 64, 117, 600)] == [4, 2, 1, 1, 1]


# What a person sees, and what strangers could do

def test_a_large_file_is_spoken_of_now_and_then(
    remote: RemoteScene, stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its ranges come one after the other, the first of them with the file's only name; not each is a line."""
    monkeypatch.setattr(transfer, "RANGE_BYTES", 100)
    stub.objects[f"{KEPT}last-5.pt"] = bytes(5000)
    said: list[str] = []
    transfer.download(remote.opened, b"exec/attempt1/kept/last-5.pt", str(remote.folder / "back"), say=said.append)
    assert len(said) == 1
    assert "0.0 of 0.0 MiB" in said[0]
    assert "1 of 1 files" in said[0]


def test_a_folder_of_somebody_else_is_not_saved_into(remote: RemoteScene, tmp_path: Path) -> None:
    """Below /tmp anybody can make it first, and put a save there that would be taken for what was brought."""
    place = place_of(remote)
    folder = Path(directory(place))
    folder.parent.mkdir()
    folder.mkdir()
    os.chown(folder, 12345, 12345)
    with pytest.raises(StoreError, match="another user"):
        make_local(place)
    os.chown(folder, os.geteuid(), os.getegid())
    assert make_local(place) == str(folder)
    folder.rmdir()
    folder.symlink_to(tmp_path)
    with pytest.raises(StoreError, match="no folder"):
        make_local(place)


