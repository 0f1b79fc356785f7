"""``dispatch adopt``: a later save of a replaced run is given to the current lineage."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from slurm_dispatch.anyroot import open_store, publish_by_hand, states_of
from slurm_dispatch.cli import wishes
from slurm_dispatch.controller.wish import job_in, see
from slurm_dispatch.errors import StoreError
from slurm_dispatch.model.epoch import Epoch
from slurm_dispatch.records.state import ADOPT_S
from slurm_dispatch.store.manifest import SaveState, state_of
from slurm_dispatch.store.root import CheckpointRoot, open_root
from tests.s3.fixtures import no_aws_files, stub
from tests.s3.stub import BUCKET

if TYPE_CHECKING:
    from slurm_dispatch.model.publication import Publication
    from tests.people.desk import Desk
    from tests.s3.stub import Stub

__all__ = ["no_aws_files", "stub"]

GHOST, HEIR = "a" * 20, "b" * 20
REASON = ("--reason", "the ghost was right")
PLACE = f"s3://{BUCKET}/run"


class Root:
    """A checkpoint root in which submission 1's run lived on after submission 2's began."""

    def __init__(self, desk: Desk, name: str = "root") -> None:
        self.desk = desk
        self.path = os.path.join(desk.home, name)
        os.mkdir(self.path)
        self.ghost = self.published(GHOST, Epoch(0, 1, 0), 900)
        self.heir = self.published(HEIR, Epoch(0, 1, 1), 120)

    def published(self, attempt: str, epoch: Epoch, step: int) -> Publication:
        """A save of this execution."""
        root = open_root(self.path)
        folder = os.path.join(root.make_execution(attempt), f"checkpoint-{step}")
        os.mkdir(folder)
        with open(os.path.join(folder, "weights"), "w", encoding="ascii") as stream:
            stream.write(str(step))
        made = root.publish(int(epoch), step, os.fsencode(os.path.relpath(folder, self.path)), attempt=attempt)
        for top, folders, names in os.walk(self.path):
            for path in (top, *(os.path.join(top, name) for name in (*folders, *names))):
                os.chown(path, self.desk.rig.uid, -1)
        return made

    def latest(self) -> Publication:
        """What a run would resume from now."""
        save = open_root(self.path).latest()
        assert save is not None
        return save.publication


@pytest.fixture
def root(desk: Desk) -> Root:
    return Root(desk)


@pytest.mark.parametrize("how", ["name", "path", "absolute"])
def test_a_job_that_is_held_is_given_a_save_and_let_go(desk: Desk, root: Root, how: str) -> None:
    """What the ghost wrote later outranks nothing by itself, and a person may say that it counts."""
    key = desk.held(root=root.path)
    path = os.fsdecode(root.ghost.path)
    names = {"name": root.ghost.name, "path": path, "absolute": os.path.join(root.path, path)}
    text = desk.ok("adopt", key, names[how], *REASON)
    new = root.latest()
    assert (new.epoch, new.step) == (int(Epoch(0, 2, 0)), 900)
    # Of its own path: one that was published once may be removed by who found it outranked before.
    assert new.path not in {root.ghost.path, root.heir.path}
    assert os.path.basename(new.path) == b"checkpoint-900"
    with open(os.path.join(os.fsencode(root.path), new.path, b"weights"), encoding="ascii") as stream:
        assert stream.read() == "900"
    assert state_of(open_root(root.path), new) is SaveState.PROVED
    said = f"job {key}: step 900 is the latest now, as {new.name}"
    assert text == f"{said}; the job is held, and dispatch release lets it go on\n"
    fact = desk.rig.last(key, "adopted")
    assert (fact.body["submission"], fact.body["publication"]) == (2, root.ghost.name)
    assert (fact.body["name"], fact.body["reason"]) == (new.name, REASON[1])
    assert "submission 3 is Slurm job" in desk.ok("release", key, "--reason", "go")
    assert root.published("c" * 20, Epoch(0, 3, 0), 901) == root.latest()


def test_a_submission_that_waits_in_slurm_is_replaced_by_a_later_one(desk: Desk, root: Root) -> None:
    key = desk.job(root=root.path)
    first = desk.rig.object(key)
    text = desk.ok("adopt", key, root.ghost.name, *REASON)
    number = desk.rig.object(key)
    assert text.endswith(f": submission 3 is Slurm job {number}\n")
    assert desk.object(first)["states"] == ["CANCELLED"]
    desk.tick()
    assert desk.object(number)["states"] == ["PENDING"]
    assert desk.phase(key) == "queued"


def test_one_that_waits_to_be_made_gets_a_later_number(desk: Desk, root: Root) -> None:
    key = desk.waiting(root=root.path)
    assert ": submission 3 is Slurm job" in desk.ok("adopt", key, root.ghost.name, *REASON)
    assert "--time=2:00:00" in desk.object(desk.rig.object(key))["argv"]  # what was decided stays


def test_a_closed_job_is_given_one_and_opened_again(desk: Desk, root: Root) -> None:
    key = desk.closed(root=root.path)
    assert "dispatch reopen lets it go on" in desk.ok("adopt", key, root.ghost.name, *REASON)
    desk.ok("reopen", key, "--reason", "x")
    assert desk.state(key).submissions[-1].number == 3


def test_what_is_refused(desk: Desk, root: Root) -> None:
    running, submitting = desk.running(root=root.path), desk.submitting(root=root.path, name="b")
    for key, phase in ((running, "running"), (submitting, "submitting")):
        line = desk.refused(64, "adopt", key, root.ghost.name, *REASON)
        assert f"is {phase}: its next save would outrank what is adopted; wait until" in line
    shared = desk.job(root=root.path, name="c", shared=True)
    assert "has a shared checkpoint" in desk.refused(64, "adopt", shared, root.ghost.name, *REASON)
    held = desk.held(root=root.path, name="d")
    assert "is the latest already" in desk.refused(64, "adopt", held, root.heir.name, *REASON)
    assert "is no publication of" in desk.refused(64, "adopt", held, "exec/x/y", *REASON)
    assert "there is no reason" in desk.refused(64, "adopt", held, root.ghost.name, "--reason", "")
    shutil.rmtree(os.path.join(root.path, os.fsdecode(root.ghost.path)))
    assert "checkpoint-900 is not there" in desk.refused(65, "adopt", held, root.ghost.name, *REASON)
    nowhere = desk.held(root=os.path.join(desk.home, "nowhere"), name="e")
    assert "nowhere" in desk.refused(74, "adopt", nowhere, root.ghost.name, *REASON)
    for key in (running, submitting, shared, held, nowhere):
        assert "adopted" not in desk.rig.kinds(key)
    assert root.latest() == root.heir


def test_a_save_is_adopted_by_the_job_that_goes_on(desk: Desk, root: Root) -> None:
    elder = desk.held(root=root.path)
    before = desk.keys()
    desk.ok("supersede", elder)
    (key,) = desk.keys() - before
    assert f"dispatch adopt {key} ..." in desk.refused(64, "adopt", elder, root.ghost.name, *REASON)
    assert ": submission 3 is Slurm job" in desk.ok("adopt", key, root.ghost.name, *REASON)
    assert root.latest().epoch == int(Epoch(1, 2, 0))


def test_an_unrelated_job_whose_saves_are_outranked_anyway(desk: Desk, root: Root) -> None:
    key = desk.held(root=root.path)
    root.published(HEIR, Epoch(4, 1, 0), 5)
    assert "the root has saves of a later job" in desk.refused(64, "adopt", key, root.ghost.name, *REASON)
    assert "adopted" not in desk.rig.kinds(key)


def test_while_a_suspected_execution_may_still_run(desk: Desk, root: Root) -> None:
    key = desk.running(root=root.path)
    number = desk.rig.object(key)
    desk.add(key, "suspected", submission=1, slurm_job_id=number, restart=0, nodes=["c1"], since=1.0)
    line = desk.refused(64, "adopt", key, root.ghost.name, *REASON)
    assert "a suspected execution" in line


def test_a_store_that_fails_costs_a_number_and_no_more(
    desk: Desk, root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = desk.held(root=root.path)

    def publish(*_: Any, **__: Any) -> None:
        raise StoreError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(CheckpointRoot, "publish", publish)
        assert "the disk is full" in desk.refused(74, "adopt", key, root.ghost.name, *REASON)
    assert root.latest() == root.heir
    desk.ok("adopt", key, root.ghost.name, *REASON)
    assert root.latest().epoch == int(Epoch(0, 3, 0))
    assert "submission 4 is Slurm job" in desk.ok("release", key, "--reason", "go")


@pytest.mark.parametrize("phase", ["waiting", "queued", "ended"])
def test_a_tick_between_the_number_and_the_publication_submits_nothing(
    desk: Desk, root: Root, monkeypatch: pytest.MonkeyPatch, phase: str
) -> None:
    """P6, P7: the number is used up first, and what follows it waits until the save is there."""
    if phase == "waiting":
        key = desk.waiting(root=root.path)
    elif phase == "queued":
        key = desk.job(root=root.path)
    else:
        key = desk.running(root=root.path)
        desk.add(key, "end", submission=1, slurm_job_id=desk.rig.object(key), restart=0, start_time=None,
                 outcome="preempted", evidence={}, final=True)  # fmt: skip
    original = CheckpointRoot.publish

    def publish(*arguments: Any, **named: Any) -> Publication:
        means = desk.rig.means()
        for _ in range(3):
            job_in(desk.rig.record(key), means, see(means, host="ctl", cluster="fake")).work()
        return original(*arguments, **named)

    before = len(desk.slurm.calls("submit"))
    monkeypatch.setattr(CheckpointRoot, "publish", publish)
    text = desk.ok("adopt", key, root.ghost.name, *REASON)
    if phase == "ended":
        assert len(desk.slurm.calls("submit")) == before + ("is Slurm job" in text)
        desk.rig.later_s = ADOPT_S + 1
        desk.tick()
    number = desk.rig.last(key, "intent").body["submission"]
    assert (number, root.latest().step) == (3, 900)
    assert len(desk.slurm.calls("submit")) == before + 1
    assert desk.phase(key) == "queued"


def test_a_person_who_dies_before_the_publication_keeps_the_job_waiting_for_a_minute(
    desk: Desk, root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = desk.waiting(root=root.path)
    with monkeypatch.context() as patched:
        patched.setattr(CheckpointRoot, "publish", lambda *_, **__: os._exit(9))
        assert desk.dispatch("adopt", key, root.ghost.name, *REASON).status != 0
    assert desk.rig.kinds(key)[-1] == "adopted"
    desk.tick()
    assert desk.phase(key) == "waiting"
    desk.rig.later_s = ADOPT_S + 1
    desk.tick()
    assert (desk.phase(key), root.latest()) == ("queued", root.heir)


def test_a_tick_that_submits_meanwhile_is_told(desk: Desk, root: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its run may have asked for the latest before the save was published."""
    key = desk.waiting(root=root.path)
    original, word = CheckpointRoot.publish, str(desk.state(key).spec.word(3))

    def publish(*arguments: Any, **named: Any) -> Publication:
        record = desk.rig.record(key)
        facts = record.read()
        made = record.append(len(facts) + 1, "intent", "tick@ctl", {
            "submission": 3, "word": word, "host": "ctl", "deadline": 1.0, "wait_s": 1.0, "changes": [],
            "decision": next(it.seq for it in facts if it.kind == "decision")})  # fmt: skip
        assert made
        return original(*arguments, **named)

    monkeypatch.setattr(CheckpointRoot, "publish", publish)
    line = desk.refused(75, "adopt", key, root.ghost.name, *REASON)
    assert "submission 3 was made at the same time: it may have chosen before" in line
    assert root.latest().step == 900


# In S3. Nothing forks here once a client of S3 was used, as it may have been in this process: so the work that the
# command gives to a child is done at once.


@pytest.fixture
def bucket(stub: Stub, no_aws_files: None, monkeypatch: pytest.MonkeyPatch) -> Stub:
    """A root in S3 in which submission 1's run lived on after submission 2's began."""
    for name, value in stub.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(wishes, "in_child", lambda uid, gid, groups, work, deadline_s: work())
    for attempt, epoch, step in ((GHOST, Epoch(0, 1, 0), 900), (HEIR, Epoch(0, 1, 1), 120)):
        path = f"exec/{attempt}/checkpoint-{step}"
        stub.objects[f"run/{path}/weights"] = str(step).encode()
        publish_by_hand(open_store(PLACE), int(epoch), step, path, attempt=attempt, sync=False)
    return stub


@pytest.mark.parametrize("how", ["name", "path", "address"])
def test_a_save_in_s3_is_adopted_as_a_copy(desk: Desk, bucket: Stub, how: str) -> None:
    """Which the store makes; it is whole before the number is used up, since from then on the ticks wait."""
    heir, ghost = open_store(PLACE).listing()
    key = desk.held(root=PLACE)
    path = os.fsdecode(ghost.path)
    names = {"name": ghost.name, "path": path, "address": f"{PLACE}/{path}"}
    said = desk.dispatch("adopt", key, names[how], *REASON, by_root=True)
    assert said.status == 0, said
    root = open_store(PLACE)
    new = root.listing()[0]
    assert (new.epoch, new.step) == (int(Epoch(0, 2, 0)), 900)
    assert said.out.startswith(f"job {key}: step 900 is the latest now, as {new.name}; the job is held")
    assert new.path not in {ghost.path, heir.path}
    assert bucket.objects[f"run/{new.path.decode()}/weights"] == b"900"
    (state,) = states_of(root, [new])
    assert str(state) == "proved"
    assert desk.rig.last(key, "adopted").body["name"] == new.name
    copied = next(n for n, one in enumerate(bucket.requests) if "x-amz-copy-source" in one.headers)
    published = next(n for n, one in enumerate(bucket.requests) if one.key.endswith(new.name))
    assert copied < published


def test_what_is_refused_in_s3_copies_nothing(desk: Desk, bucket: Stub) -> None:
    heir, ghost = open_store(PLACE).listing()
    running = desk.running(root=PLACE)
    held = desk.held(root=PLACE, name="d")

    def refused(status: int, key: str, text: str) -> str:
        return desk.refused(status, "adopt", key, text, *REASON, by_root=True)

    assert "is running: its next save would outrank" in refused(64, running, ghost.name)
    assert "is the latest already" in refused(64, held, heir.name)
    assert "is no publication of" in refused(64, held, f"{PLACE}/exec/x")
    before = set(bucket.objects)
    bucket.objects.pop(f"run/exec/{GHOST}/.dispatch/save-checkpoint-900")
    assert "has no manifest" in refused(65, held, ghost.name)
    bucket.objects.pop(f"run/{ghost.path.decode()}/weights")
    assert "checkpoint-900 is not there" in refused(65, held, ghost.name)
    assert before.issuperset(bucket.objects)
    assert "adopted" not in desk.rig.kinds(held)
