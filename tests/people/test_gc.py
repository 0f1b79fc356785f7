"""``dispatch gc`` where there are records: who runs, and what the record says of what was removed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from slurm_dispatch.store.keep import keep
from slurm_dispatch.store.root import open_root
from slurm_dispatch.store.whole import Proof
from slurm_dispatch.watch.turn import claim_run, end_run, this_process

if TYPE_CHECKING:
    from tests.people.desk import Desk


class Root:
    """A root with the saves of a job's executions."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.path = os.path.join(desk.home, "root")
        os.mkdir(self.path)
        self._own()

    def _own(self) -> None:
        for top, folders, names in os.walk(self.path):
            for name in (".", *folders, *names):
                os.lchown(os.path.join(top, name), self.desk.rig.uid, -1)

    def claimed(self, key: str, generation: int = 0) -> None:
        """The job's helper has claimed it."""
        open_root(self.path).claim(key, generation)
        self._own()

    def published(self, attempt: str, epoch: int, *steps: int, ended: bool = True) -> None:
        """Saves of an execution, and its helper's end."""
        root = open_root(self.path)
        for step in steps:
            path = os.path.join(root.make_execution(attempt), f"checkpoint-{step}")
            os.mkdir(path)
            with open(os.path.join(path, "weights"), "wb") as stream:
                stream.write(b"x" * 100)
            kept = keep(root, attempt, path, proof=Proof.PROVED)
            assert kept is not None
            root.publish(epoch, step, kept, attempt=attempt)
        if ended:
            claim_run(root, attempt, 1, this_process(os.getpid()))
            end_run(root, attempt, 1, 0)
        self._own()

    def there(self, attempt: str) -> list[str]:
        """What it has kept."""
        return sorted(os.listdir(os.path.join(self.path, "exec", attempt, "kept")))


@pytest.fixture
def root(desk: Desk) -> Root:
    return Root(desk)


def _execution(desk: Desk, key: str) -> tuple[str, int]:
    execution = desk.state(key).submissions[0].executions[0]
    return execution.attempt, int(execution.epoch)


def test_what_is_removed_is_on_record_first(desk: Desk, root: Root) -> None:
    key = desk.closed(root=root.path)
    root.claimed(key)
    attempt, epoch = _execution(desk, key)
    root.published(attempt, epoch, 1, 2, 3)
    out = desk.ok("gc", root.path, "--keep-last", "1")
    assert "ended: its helper has ended" in out
    assert root.there(attempt) == ["checkpoint-3"]
    fact = desk.rig.last(key, "removed")
    assert fact.by.startswith("user:")
    assert (fact.body["how"], fact.body["count"]) == ("gc", 2)
    assert fact.body["paths"] == [f"exec/{attempt}/kept/checkpoint-{step}" for step in (2, 1)]
    assert "2 outranked saves removed by hand" in desk.ok("show", key, "--facts")
    before = len(desk.rig.facts(key))
    desk.ok("gc", root.path, "--keep-last", "1")
    assert len(desk.rig.facts(key)) == before
    desk.tick()
    assert desk.phase(key) == "closed"


def test_what_runs_is_left(desk: Desk, root: Root) -> None:
    """By its record: whatever its helper's mark says, since the script goes on; and whatever a person says."""
    key = desk.running(root=root.path)
    root.claimed(key)
    attempt, epoch = _execution(desk, key)
    root.published(attempt, epoch, 1, 2, 3)
    for more in ((), ("--ended", attempt)):
        out = desk.ok("gc", root.path, "--keep-last", "1", *more)
        assert f"running: job {key}: submission 1 has no end on record" in out
    assert len(root.there(attempt)) == 3
    assert "removed" not in desk.rig.kinds(key)


@pytest.mark.parametrize(("answer", "left"), [("ceased", 1), ("running", 3), ("unknown", 3)])
def test_what_was_answered_about_its_processes(desk: Desk, root: Root, answer: str, left: int) -> None:
    key = desk.closed(root=root.path)
    root.claimed(key)
    attempt, epoch = _execution(desk, key)
    root.published(attempt, epoch, 1, 2, 3, ended=False)
    desk.add(key, "cessation", attempt=attempt, answer=answer, source="test", detail="", count=1, first=1.0, last=1)
    out = desk.ok("gc", root.path, "--keep-last", "1")
    assert len(root.there(attempt)) == left, out
    assert ("removed" in desk.rig.kinds(key)) is (left == 1)


@pytest.mark.parametrize(("clean", "left"), [(True, 1), (False, 3)])
def test_what_its_node_said(desk: Desk, root: Root, clean: bool, left: int) -> None:
    """A node that has booted since proves it; one on which processes were left calls it running."""
    key = desk.closed(root=root.path)
    root.claimed(key)
    attempt, epoch = _execution(desk, key)
    root.published(attempt, epoch, 1, 2, 3, ended=False)
    nodes = desk.state(key).submissions[0].executions[0].nodes
    desk.add(key, "node", attempt=attempt, epoch=str(epoch), node=nodes, boot="b", clean=clean, left=[],
             start_time=None, verified=True, how="boot", seen=1.0)  # fmt: skip
    out = desk.ok("gc", root.path, "--keep-last", "1")
    assert len(root.there(attempt)) == left, out


def test_a_record_that_cannot_be_read_calls_nothing_over(desk: Desk, root: Root) -> None:
    key = desk.closed(root=root.path)
    root.claimed(key)
    attempt, epoch = _execution(desk, key)
    root.published(attempt, epoch, 1, 2, 3)
    path = os.path.join(desk.rig.record(key).facts_folder, f"{2:010}")
    os.rename(path, path + "x")
    out = desk.ok("gc", root.path, "--keep-last", "1")
    assert f"unknown: the record of job {key} cannot be read" in out
    assert len(root.there(attempt)) == 3


def test_an_adopted_save_is_nobodys_execution(desk: Desk, root: Root) -> None:
    """It goes once it is outranked, though nothing ever ran in its folder."""
    key = desk.held(root=root.path)
    root.claimed(key)
    attempt, epoch = _execution(desk, key)
    root.published(attempt, epoch, 1, 2, 3)
    desk.ok("adopt", key, f"exec/{attempt}/kept/checkpoint-1", "--reason", "it was the best")
    (adopted,) = set(os.listdir(os.path.join(root.path, "exec"))) - {attempt}
    desk.ok("gc", root.path, "--keep-last", "1")
    assert (root.there(adopted), root.there(attempt)) == (["checkpoint-1"], ["checkpoint-3"])
    root.published("later", epoch + 10**7, 4, 5)
    desk.ok("gc", root.path, "--keep-last", "1")
    assert (root.there(adopted), root.there(attempt)) == ([], [])


def test_root_lends_nobody_its_rights(desk: Desk, root: Root) -> None:
    """P10: a user's files are touched with the user's rights."""
    if not desk.root:
        pytest.fail("this test needs root")
    line = desk.refused(77, "gc", root.path, "--keep-last", "1", by_root=True)
    assert "runuser -u" in line
