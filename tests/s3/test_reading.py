"""Who resumes from a save in S3 has no links to it: what is said before it is read, and what is seen afterwards.

Each of these was found by ``tests/s3/test_model.py``.
"""

from __future__ import annotations

import functools
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from slurm_dispatch.anyroot import inspect, open_store
from slurm_dispatch.cli.latest import verified
from slurm_dispatch.errors import AbsentError, AmbiguousError, BadDataError, StoreError, TransientError
from slurm_dispatch.s3.deadline import Late
from slurm_dispatch.s3.manifest import record
from slurm_dispatch.s3.root import S3Root
from slurm_dispatch.s3.transfer import download, upload
from slurm_dispatch.store.choice import read_choice
from slurm_dispatch.store.fsck import fsck
from slurm_dispatch.store.gc import Known, Rules, Standing, plan
from slurm_dispatch.store.outranked import remove_all
from slurm_dispatch.store.sound import Condition
from slurm_dispatch.store.thin import thin
from slurm_dispatch.store.whole import Proof
from slurm_dispatch.watch import local
from slurm_dispatch.watch.place import Place
from tests.s3.scene import FIRST, NEW, OLD, SECOND
from tests.s3.stub import BUCKET
from tests.s3.test_keeping import chosen, kept

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.s3.shelf import Shelf

ROOT = f"s3://{BUCKET}/run"
NEWER = Place(ROOT, "job", SECOND, NEW)
"""An execution whose command reads and writes in S3 itself."""


def opened(path: str = ROOT) -> S3Root:
    """The root, as each process opens it for itself."""
    root = open_store(path)
    assert isinstance(root, S3Root)
    return root


@pytest.fixture
def root(shelf: Shelf) -> S3Root:
    """The root on the shelf."""
    return opened()


def at(shelf: Shelf, verb: str, part: str, act: Callable[[], object]) -> None:
    """Let something happen just before the first request of a kind whose key has this part."""
    left = [act]

    def gate(one: str, key: str, then: Callable[[], Any]) -> Any:
        if left and one == verb and part in key:
            left.pop()()
        return then()

    shelf.gate = gate


def saves(shelf: Shelf) -> set[str]:
    """What is there in kept/ of all executions."""
    return {key.split("/kept/")[1].split("/")[0] for key in shelf.objects if "/kept/" in key}


def publish_and_thin(*steps: int) -> None:
    """The older execution goes on."""
    for step in steps:
        kept(opened(), step)
    done = thin(opened(), OLD, epoch=FIRST, keep_own=1, keep_root=1)
    assert done.trouble == ()


def test_a_claim_beside_one_of_the_same_job_that_has_published(root: S3Root, shelf: Shelf) -> None:
    """C130: it looked for an owner, and then the other one claimed the root and published: that is no stranger."""

    def other() -> None:
        opened().claim("job", 0)
        kept(opened(), 1)

    at(shelf, "list", "run/pub", other)
    root.claim("job", 0)
    assert root.owners() == {0: "job"}


@pytest.mark.parametrize("follows", [False, True])
def test_a_first_start_is_chosen_once(root: S3Root, follows: bool, tmp_path: Path) -> None:
    """C139: nothing to resume from is a choice, too: a rank that has read it and one that comes later do the same."""
    here = replace(NEWER, local=str(tmp_path)) if follows else NEWER
    choose = local.choose_and_bring if follows else local.choose_remote
    first = choose(root, here, start_from=None)
    kept(root, 5)
    assert choose(opened(), here, start_from=None) == first
    assert (first.resume, first.turn) == (None, 1)


@pytest.mark.parametrize(
    "moment", [f"run/exec/{NEW}/.dispatch/choice", "save-checkpoint-2"], ids=["its choice", "its manifest"]
)
def test_what_is_about_to_be_chosen_stays(root: S3Root, shelf: Shelf, moment: str) -> None:
    """C087: between the look for the latest and the choice the elder publishes two more, and thins."""
    kept(root, 1)
    kept(root, 2)
    at(shelf, "create" if "choice" in moment else "head", moment, lambda: publish_and_thin(3, 4))
    choice = local.choose_remote(root, NEWER, start_from=None)
    assert choice.step == 2
    assert saves(shelf) == {"checkpoint-2", "checkpoint-4"}
    assert len(root.save_objects(b"exec/%s/kept/checkpoint-2" % OLD.encode(), root.bucket.deadline())) == 2


def test_what_was_outranked_before_that_was_said_is_not_chosen(root: S3Root, shelf: Shelf) -> None:
    kept(root, 2)
    at(shelf, "create", "/.dispatch/wish-", lambda: publish_and_thin(3, 4))
    assert local.choose_remote(root, NEWER, start_from=None).step == 4


def test_a_download_holds_what_it_brings(root: S3Root, shelf: Shelf, tmp_path: Path) -> None:
    """A ghost that saves faster than its replacement downloads would take each save away under its hands."""
    kept(root, 2)
    at(shelf, "get", "checkpoint-2/weights", lambda: publish_and_thin(3, 4))
    choice = local.choose_and_bring(root, replace(NEWER, local=str(tmp_path)), start_from=None)
    assert choice.step == 2
    assert choice.resume is not None
    assert sorted(os.listdir(choice.resume)) == ["done", "weights"]


def test_one_outrun_each_time_says_so(root: S3Root, shelf: Shelf, tmp_path: Path) -> None:
    kept(root, 1)
    steps = iter(range(2, 20))

    def gate(verb: str, key: str, then: Callable[[], Any]) -> Any:
        if verb == "create" and "/wish-" in key:
            kept(opened(), next(steps))
        return then()

    shelf.gate = gate
    here = replace(NEWER, local=str(tmp_path))
    for place, choose in ((NEWER, local.choose_remote), (here, local.choose_and_bring)):
        with pytest.raises(TransientError, match="each of 5 times"):
            choose(root, place, start_from=None)
    assert read_choice(root, NEW) is None


def test_where_only_a_helper_has_ended_what_was_chosen_stays(root: S3Root, shelf: Shelf) -> None:
    """The next one in the job's script may have chosen it since."""
    kept(root, 1)
    chosen(root, NEW, SECOND)
    kept(root, 2)
    ended = {OLD: Known(Standing.OVER, "said so"), NEW: Known(Standing.ENDED, "its helper")}
    assert plan(root, Rules(1), ended.__getitem__).paths == []
    over = plan(root, Rules(1), lambda _: Known(Standing.OVER, "said so"))
    assert over.paths == [b"exec/%s/kept/checkpoint-1" % OLD.encode()]


def test_nothing_goes_while_it_is_not_known_what_is_read(root: S3Root, shelf: Shelf) -> None:
    """P5: a choice that could not be read is none of no choice."""
    for step in (1, 2):
        kept(root, step)
    chosen(root, NEW, SECOND)
    kept(root, 3)

    def away(verb: str, key: str, then: Callable[[], Any]) -> Any:
        if key.endswith(f"{NEW}/.dispatch/choice"):
            raise PermissionError("status code: 403")
        return then()

    shelf.gate = away
    with pytest.raises(StoreError):
        thin(root, OLD, epoch=FIRST, keep_own=1, keep_root=1)
    with pytest.raises(StoreError):
        plan(root, Rules(1), lambda _: Known(Standing.OVER, "said so"))
    assert len(saves(shelf)) == 3


@pytest.mark.parametrize("latest", [False, True])
def test_a_part_of_a_save_is_no_save_though_its_manifest_is_there(
    root: S3Root, shelf: Shelf, tmp_path: Path, latest: bool
) -> None:
    """C154: a saver's own rotation, or a rule of the bucket, has taken a part of what was published."""
    path = kept(root, 1)
    del shelf.objects[f"run/{path.decode()}/done"]
    if latest:
        with pytest.raises(BadDataError, match="had 2 objects with 701 bytes"):
            download(root, path, str(tmp_path / "copy"))
        with pytest.raises(BadDataError, match="had 2 objects with 701 bytes"):
            local.choose_remote(root, NEWER, start_from=None)
    else:
        kept(root, 2)
        with pytest.raises(AbsentError, match="outranked"):
            download(root, path, str(tmp_path / "copy"))
    assert os.listdir(tmp_path) == []


def test_a_save_that_was_written_again_is_said_to_be(shelf: Shelf, tmp_path: Path) -> None:
    """C169: as in a folder."""
    said: list[str] = []
    root = open_store(ROOT, say=said.append)
    assert isinstance(root, S3Root)
    path = kept(root, 1)
    root.bucket.replace(f"run/{path.decode()}/done", b"2", root.bucket.deadline())
    download(root, path, str(tmp_path / "copy"))
    assert len(said) == 1
    assert "is not what it was when it was published" in said[0]


def test_a_latest_that_goes_while_it_is_checked_is_no_answer(root: S3Root, shelf: Shelf) -> None:
    """C087: a newer one was published and thinned it: that one is checked, and is the answer."""
    kept(root, 1)
    save = root.latest()
    assert save is not None
    at(shelf, "list", "checkpoint-1", lambda: publish_and_thin(2, 3))
    now, found = verified(root, save, fallback=False)
    assert (now.publication.step, found.condition) == (3, Condition.WHOLE)


def test_a_rank_does_not_follow_to_what_is_gone(root: S3Root, shelf: Shelf) -> None:
    """A later step of the same execution, whose first rank is about to choose anew."""
    path = kept(root, 1)
    choice = chosen(root, NEW, SECOND)
    other = replace(NEWER, rank=1, tasks=2)
    assert local.follow_choice(root, other, choice, lambda _: None) == choice
    root.remove(path)
    assert local.follow_choice(root, other, choice, lambda _: None) is None


def test_manifests_of_what_a_saver_removed_go(root: S3Root, shelf: Shelf) -> None:
    """One a publication would pile up; and what the saver removed of its own is no fault."""
    for step in (1, 2, 3):
        path = f"exec/{OLD}/checkpoint-{step}"
        root.bucket.replace(root.place.key(path, "done"), b"1", root.bucket.deadline())
        record(root, path.encode(), Proof.PROVED)
        root.publish(FIRST, step, path, attempt=OLD)
    for step in (1, 2):
        del shelf.objects[f"run/exec/{OLD}/checkpoint-{step}/done"]

    def manifests() -> list[str]:
        return [name for name in root.notes(OLD).names() if name.startswith("save-")]

    report = fsck(root, inspecting=functools.partial(inspect, root))
    assert report.faults == []
    assert [found.condition for _, found in report.saves] == [Condition.WHOLE, Condition.REMOVED, Condition.REMOVED]
    running = plan(root, Rules(1), lambda _: Known(Standing.RUNNING, "said so"))
    assert (running.paths, running.left) == ([], {})
    copy = dict(shelf.objects)
    done = thin(root, OLD, epoch=FIRST)
    assert (done.removed, done.trouble) == ((), ())
    assert manifests() == ["save-checkpoint-3"]
    shelf.objects.update(copy)
    over = plan(root, Rules(1), lambda _: Known(Standing.OVER, "said so"))
    assert remove_all(root, over.paths)[1] == ()
    assert manifests() == ["save-checkpoint-3"]


class Parcel:
    """A gate: the first request of a kind whose key has this part gets no answer, and is done when it is told."""

    def __init__(self, verb: str, part: str) -> None:
        self._what = (verb, part)
        self.then: Callable[[], Any] | None = None

    def __call__(self, verb: str, key: str, act: Callable[[], Any]) -> Any:
        """Let it through, or not."""
        if self.then is None and verb == self._what[0] and self._what[1] in key:
            self.then = act
            raise Late
        return act()

    def arrive(self) -> None:
        """It is done."""
        assert self.then is not None
        self.then()


def test_a_put_of_what_was_before_that_is_done_after_is_seen(root: S3Root, shelf: Shelf, tmp_path: Path) -> None:
    """C109: a store that hung does what it was sent, though the sender has sent the file as it is now."""
    source = tmp_path / "checkpoint-1"
    source.mkdir()
    (source / "index").write_bytes(b"before")
    (source / "model").write_bytes(b"model")
    parcel = shelf.gate = Parcel("put", "/index")
    with pytest.raises(AmbiguousError):
        upload(root, OLD, str(source))
    (source / "index").write_bytes(b"after!")
    at(shelf, "list", "checkpoint-1", lambda: at(shelf, "list", "checkpoint-1", parcel.arrive))
    with pytest.raises(TransientError, match="by an earlier upload"):
        upload(root, OLD, str(source))
    assert upload(root, OLD, str(source)) == b"exec/%s/checkpoint-1" % OLD.encode()
    assert shelf.objects[f"run/exec/{OLD}/checkpoint-1/index"].body == b"after!"


def test_an_earlier_note_of_a_save_that_is_done_after_is_seen(root: S3Root, shelf: Shelf) -> None:
    parcel = shelf.gate = Parcel("put", "run/a")
    with pytest.raises(TransientError):
        root.bucket.replace("run/a", b"before", root.bucket.deadline())
    at(shelf, "head", "run/a", parcel.arrive)
    with pytest.raises(TransientError, match="an earlier put came later"):
        root.bucket.replace("run/a", b"after", root.bucket.deadline())
    root.bucket.replace("run/a", b"after", root.bucket.deadline())
    assert shelf.objects["run/a"].body == b"after"


def test_a_manifest_stays_where_it_could_not_be_seen_whether_its_save_is_there(root: S3Root, shelf: Shelf) -> None:
    """P5: a folder that could not be listed is none that is empty."""
    kept(root, 1)
    kept(root, 2)

    def away(verb: str, key: str, then: Callable[[], Any]) -> Any:
        if verb == "list" and key == f"run/exec/{OLD}/kept":
            raise PermissionError("status code: 403")
        return then()

    shelf.gate = away
    over = plan(root, Rules(1), lambda _: Known(Standing.OVER, "said so"))
    assert (over.paths, len(over.trouble) > 0) == ([], True)
    done = thin(root, OLD, epoch=FIRST)
    assert (done.removed, len(done.trouble) > 0) == ((), True)
    assert {name for name in root.notes(OLD).names() if name.startswith("save-")} == {
        "save-checkpoint-1", "save-checkpoint-2"}  # fmt: skip
