"""Handing on through the node, where the job's record cannot be reached from it."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

import pytest

from slurm_dispatch.errors import AbsentError, CorruptError, DeniedError, StoreError
from slurm_dispatch.state.jobs import Record
from slurm_dispatch.watch.handing import hand_on, leave_on_node
from tests.kill import Run, kill_at_every_call
from tests.watch.rig import JOB, REPOSITORY, Scene
from tests.watch.test_troubles import record

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kill import Point

BODY = {"attempt": "a", "epoch": "1000000", "step": 10, "resumed_from": None}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What Prolog makes for the user."""
    made = tmp_path / "7.1700000000.d"
    made.mkdir(mode=0o700)
    return made


def content(folder: Path) -> dict[str, Any]:
    return {path.name: json.loads(path.read_text()) for path in folder.iterdir()}


def test_what_the_record_does_not_take_is_left_for_the_epilog(scene: Scene, folder: Path) -> None:
    environment = scene.environment(SLURM_DISPATCH_RECORD=f"/no/such/{JOB}", SLURM_DISPATCH_HAND=str(folder))
    assert scene.train("save 10 save 20 exit 3", environment=environment).end() == 3
    common = {"v": 1, "attempt": "attempt1", "epoch": "1000000"}
    assert content(folder) == {
        "progress": {**common, "step": 20, "resumed_from": None},
        "ended": {**common, "status": 3, "signal": None, "outcome": None, "step": 20},
    }
    said = [line for line in scene.helpers[0].lines if "Epilog" in line]
    assert len(said) == 1
    assert "is not there on this node" in said[0]


def test_where_the_record_is_reached_nothing_stays_on_the_node(scene: Scene, folder: Path) -> None:
    made = record(scene.folder)
    environment = scene.environment(SLURM_DISPATCH_RECORD=made.folder, SLURM_DISPATCH_HAND=str(folder))
    assert scene.train("save 10 exit 0", environment=environment).end() == 0
    assert [fact.kind for fact in made.read()] == ["spec", "progress", "ended"]
    assert content(folder) == {}


def test_a_job_without_a_record_is_handed_on_all_the_same(scene: Scene, folder: Path) -> None:
    assert scene.train("exit 0", environment=scene.environment(SLURM_DISPATCH_HAND=str(folder))).end() == 0
    assert list(content(folder)) == ["ended"]


def test_a_later_fact_takes_the_place_of_an_earlier_one(folder: Path) -> None:
    for step in (10, 20):
        assert hand_on(None, JOB, str(folder), "progress", {**BODY, "step": step})
    assert content(folder) == {"progress": {"v": 1, **BODY, "step": 20}}
    assert (folder / "progress").stat().st_mode & 0o777 == 0o600


def test_a_folder_that_others_can_write_is_not_used(folder: Path) -> None:
    folder.chmod(0o777)
    with pytest.raises(DeniedError):
        leave_on_node(str(folder), "progress", BODY)
    (folder.parent / "link").symlink_to(folder)
    with pytest.raises((CorruptError, AbsentError)):
        leave_on_node(str(folder.parent / "link"), "progress", BODY)
    assert content(folder) == {}


def test_a_link_under_the_name_is_replaced_and_not_followed(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("untouched")
    (folder / "ended").symlink_to(tmp_path / "mine")
    leave_on_node(str(folder), "ended", BODY)
    assert (tmp_path / "mine").read_text() == "untouched"
    assert not (folder / "ended").is_symlink()


def test_with_neither_the_record_s_trouble_is_the_error(folder: Path) -> None:
    os.rmdir(folder)
    with pytest.raises(AbsentError, match="is not there on this node"):
        hand_on(f"/no/such/{JOB}", JOB, str(folder), "progress", BODY)
    with pytest.raises(StoreError, match="SLURM_DISPATCH_RECORD does not name"):
        hand_on(None, JOB, None, "progress", BODY)


def test_a_full_folder_leaves_nothing_unfinished(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from slurm_dispatch.watch import handing

    def full(descriptor: int, content: bytes) -> None:
        os.write(descriptor, content[:10])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(handing, "write_all", full)
    with pytest.raises(StoreError):
        leave_on_node(str(folder), "ended", BODY)
    assert content(folder) == {}


PROGRAM = """
import json, sys
from slurm_dispatch.watch.handing import hand_on
assert hand_on(sys.argv[1], "thejob", sys.argv[2], "ended", json.loads(sys.argv[3])) == ""
"""
END = {"attempt": "a", "epoch": "1000000", "status": 85, "signal": None, "outcome": None, "step": 10}


def lay(place: Path) -> Run:
    """A record, and the folder for handing on."""
    made = record(place)
    (place / "hand").mkdir(mode=0o700)
    return hand(place, made.folder)


def hand(place: Path, folder: str | None = None) -> Run:
    folder = folder or str(place / "state" / "jobs" / JOB)
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY)}
    return Run([sys.executable, "-c", PROGRAM, folder, str(place / "hand"), json.dumps(END)], env=env)


def test_killed_anywhere_it_is_on_the_node_or_in_the_record_whole(tmp_path: Path) -> None:
    left: set[tuple[bool, bool]] = set()

    def check(place: Path, point: Point) -> None:
        facts = Record(str(place / "state" / "jobs" / JOB)).read()
        on_node = place / "hand" / "ended"
        assert [fact.kind for fact in facts] in (["spec"], ["spec", "ended"])
        if on_node.exists():
            assert json.loads(on_node.read_text()) == {"v": 1, **END}
        left.add((on_node.exists(), len(facts) == 2))

    def finished(place: Path) -> None:
        facts = Record(str(place / "state" / "jobs" / JOB)).read()
        assert dict(facts[-1].body) == END
        assert not (place / "hand" / "ended").exists()

    kill_at_every_call(tmp_path, lay, check=check, finished=finished, again=hand, least=10)
    # Never in neither once it was on the node.
    assert left == {(False, False), (True, False), (True, True), (False, True)}
