"""A saver that writes to S3 itself: published by the same rules, its own paths, from one listing a scan."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from slurm_dispatch.s3.manifest import state_of
from slurm_dispatch.savers.layout import State
from slurm_dispatch.watch.judge import Judge
from slurm_dispatch.watch.objects import Objects
from slurm_dispatch.watch.options import parse
from tests.watch.rig import until

if TYPE_CHECKING:

    from tests.s3.stub import Stub
    from tests.watch.remote import RemoteScene
    from tests.watch.rig import Helper

TRAINER = str(Path(__file__).with_name("remote_trainer.py"))
EXECUTION = "run/exec/attempt1/"


def train(remote: RemoteScene, script: str, *options: str, number: int = 1) -> Helper:
    """The helper with a program that saves to S3."""
    words = [sys.executable, TRAINER, str(remote.gates), "{dir}", *script.split()]
    return remote.helper(*(options or ("--done", "done")), "--", *words, number=number)


def opinion(remote: RemoteScene, *words: str) -> tuple[State, str]:
    """What is said of the only candidate."""
    tree = Objects(remote.opened, "attempt1")
    judge = Judge(parse([*words, "--", "x"]), tree=tree)
    (candidate,) = judge.listing(tree.directory).found
    found = judge.opinion(candidate)
    assert found is not None
    return found.state, found.why


def test_its_saves_are_published_where_they_are(remote: RemoteScene, stub: Stub) -> None:
    helper = train(remote, "save 5 bare 6 save 7 wait go exit 3")
    remote.until_published(1, 7)
    remote.open("go")
    assert helper.end() == 3, helper.said
    assert remote.published() in ([(1, 7), (1, 5)], [(1, 7)])
    assert remote.publications()[0].path == b"exec/attempt1/checkpoint-7"
    assert str(state_of(remote.opened, remote.publications()[0])) == "proved"
    assert helper.has_said("no hard links here")
    assert not any("/kept/" in key for key in stub.objects)


def test_the_next_execution_is_given_the_place_in_s3(remote: RemoteScene) -> None:
    assert train(remote, "save 5").end() == 0
    second = train(remote, "save 6", number=2)
    assert second.end() == 0, second.said
    assert second.has_said(f"resumes from {remote.place}/exec/attempt1/checkpoint-5")
    assert remote.published() == [(2, 6), (1, 5)]


def test_a_save_without_its_index_s_shards_is_torn(remote: RemoteScene, stub: Stub) -> None:
    """C109: what the index lists must be there, wherever it is."""
    helper = train(remote, "shards 5 touch half wait go rest 5 exit 0", "--done", "model.safetensors.index.json")
    until(lambda: remote.passed("half"), "the first shard")
    assert opinion(remote, "--layout", "auto")[0] is State.TORN
    helper.until_said("first start")
    assert remote.published() == []
    remote.open("go")
    assert helper.end() == 0, helper.said
    assert remote.published() == [(1, 5)]


def test_a_marker_that_is_cut_is_none(remote: RemoteScene, stub: Stub) -> None:
    stub.objects[f"{EXECUTION}checkpoint-5/weights"] = b"w"
    stub.objects[f"{EXECUTION}checkpoint-5/state.json"] = b'{"step": '
    assert opinion(remote, "--done", "state.json")[0] is State.UNSURE
    stub.objects[f"{EXECUTION}checkpoint-5/state.json"] = b'{"step": 5}'
    assert opinion(remote, "--done", "state.json")[0] is State.WHOLE
    stub.objects[f"{EXECUTION}checkpoint-5.done"] = b""
    assert opinion(remote, "--done", "{name}.done")[0] is State.WHOLE


def test_the_trainer_s_own_saves_are_recognised(remote: RemoteScene, stub: Stub) -> None:
    """The same layouts, over one listing and ranges."""
    state = json.dumps({"global_step": 5}).encode()
    head = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    stub.objects[f"{EXECUTION}checkpoint-5/model.safetensors"] = len(head).to_bytes(8, "little") + head + b"1234"
    for name in ("config.json", "trainer_state.json"):
        stub.objects[f"{EXECUTION}checkpoint-5/{name}"] = state
    said: list[str] = []
    tree = Objects(remote.opened, "attempt1")
    judge = Judge(parse(["--", "x"]), say=said.append, tree=tree)
    (candidate,) = judge.listing(tree.directory).found
    found = judge.opinion(candidate)
    assert found is not None
    assert "transformers Trainer" in said[0]
    assert found.state is State.UNSURE
    assert "--done" in found.why
    assert opinion(remote, "--layout", "auto", "--done", "trainer_state.json")[0] is State.WHOLE
    stub.objects[f"{EXECUTION}checkpoint-5/model.safetensors"] = len(head).to_bytes(8, "little") + head + b"12"
    (candidate,) = judge.listing(tree.directory).found
    found = judge.opinion(candidate)
    assert found is not None
    assert found.state is State.TORN


def test_an_object_that_is_still_put_is_not_seen_to_change(remote: RemoteScene, stub: Stub) -> None:
    """Of a save of several objects one may be on its way for hours: without a proof it is never taken for settled."""
    options = ("--settle", "0.1", "--pattern", "*checkpoint-{step}*")
    helper = train(remote, "bare 5 wait go exit 0", *options)
    helper.until_said("checkpoint-5 does not change and is not published: nothing shows which objects it has")
    stub.objects[f"{EXECUTION}one-checkpoint-6.bin"] = b"an object is there whole, or not at all"
    remote.until_published(1, 6)
    remote.open("go")
    assert helper.end() == 0, helper.said
    assert remote.published() == [(1, 6)]


def test_what_did_not_change_is_not_read_again(remote: RemoteScene, stub: Stub) -> None:
    stub.objects[f"{EXECUTION}checkpoint-5/weights"] = b"w" * 100
    stub.objects[f"{EXECUTION}checkpoint-5/done"] = b"1"
    tree = Objects(remote.opened, "attempt1")
    judge = Judge(parse(["--done", "done", "--", "x"]), tree=tree)
    for _ in range(3):
        (candidate,) = judge.listing(tree.directory).found
        found = judge.opinion(candidate)
        assert found is not None
        assert found.state is State.WHOLE
    assert len([request for request in stub.of("GET") if request.key.endswith("/weights")]) <= 2
    assert len([request for request in stub.of("GET") if not request.key]) == 3 * 2  # a page, and whether it was all
    stub.objects[f"{EXECUTION}checkpoint-5/weights"] = b"x" * 100
    (candidate,) = judge.listing(tree.directory).found
    again = judge.opinion(candidate)
    assert again is not None
    assert again.seen != found.seen


def test_a_save_that_is_written_again_meanwhile_is_not_published(remote: RemoteScene, stub: Stub) -> None:
    """Between the look that showed it whole and the publication it changed: the next scan looks anew."""
    stub.objects[f"{EXECUTION}checkpoint-5/weights"] = b"w" * 100
    root = remote.opened
    tree = Objects(root, "attempt1")
    tree.begin()
    seen = tree.look(f"{tree.directory}/checkpoint-5")
    assert seen is not None
    from slurm_dispatch.store.whole import Proof
    from slurm_dispatch.watch.keeping import Written

    keeping = Written(root, "attempt1", tree)
    path = f"{tree.directory}/checkpoint-5"
    assert keeping.keep(path, seen, Proof.PROVED, copy=False) == b"exec/attempt1/checkpoint-5"
    stub.objects[f"{EXECUTION}checkpoint-5/weights"] = b"x" * 100
    assert keeping.keep(path, seen, Proof.PROVED, copy=False) is None


def test_a_killed_training_s_half_save_is_not_published(remote: RemoteScene) -> None:
    """It never changes again, and is assumed by nobody."""
    helper = train(remote, "bare 5 wait go kill KILL", "--pattern", "checkpoint-{step}", "--settle", "1h")
    helper.until_said("first start")
    remote.open("go")
    assert helper.end() == 128 + signal.SIGKILL
    assert remote.published() == []


def test_the_saver_s_own_rotation(remote: RemoteScene, stub: Stub) -> None:
    """C087: what it removed is gone; the older publication stays, and latest is the newest."""
    helper = train(remote, "save 5 wait a drop 5 save 7 wait b exit 0")
    remote.until_published(1, 5)
    remote.open("a")
    remote.until_published(1, 7)
    remote.open("b")
    assert helper.end() == 0, helper.said
    save = remote.opened.latest()
    assert save is not None
    assert save.path == f"{remote.place}/exec/attempt1/checkpoint-7"


def test_one_file_needs_a_folder(remote: RemoteScene, stub: Stub) -> None:
    helper = remote.helper("--single", "last.pt", "--", "true")
    assert helper.end() == 64
    assert helper.has_said("--from DIR")
    assert stub.requests == []
