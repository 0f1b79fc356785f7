"""``dispatch sbatch`` killed at every call that changes something outside the process."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from slurm_dispatch.errors import NothingThereError
from slurm_dispatch.model.identity import find_word
from slurm_dispatch.records.fold import fold
from slurm_dispatch.state.folder import StateFolder
from tests.kill import Point, Run, kill_at_every_call
from tests.submit.scene import Scene

if TYPE_CHECKING:
    from collections.abc import Iterator

TREE = str(Path(__file__).parent.parent.parent)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder for scenes that the scenes' user can enter."""
    path = Path(tempfile.mkdtemp(prefix="dispatch-kill-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


def lay_out(place: Path) -> Run:
    """A user's host, and the submission of one job."""
    scene = Scene(at=place)
    argv = [sys.executable, "-m", "tests.submit.as_user", "sbatch", "--checkpoint", str(scene.root), "train.sh"]
    environment = scene.environment({"PYTHONPATH": TREE, "PYTHONSAFEPATH": "1", "PYTHONDONTWRITEBYTECODE": "1"})
    return Run(argv, cwd=scene.home, env=environment)


def records(place: Path) -> dict[str, list[str]]:
    """Each job with the kinds of its facts; every record there is must fold."""
    found = {}
    folder = StateFolder(str(place / "state"))
    for job in folder.jobs():
        try:
            facts = folder.record(job.key).read()
        except NothingThereError:
            continue  # cut short before the job was there
        fold(facts)
        found[job.key] = [fact.kind for fact in facts]
    return found


def in_slurm(place: Path) -> list[str]:
    """The keys of the jobs that Slurm has taken."""
    if not (place / "jobs").exists():
        return []
    words = [find_word(json.loads(line)["comment"]) for line in (place / "jobs").read_text().splitlines()]
    assert all(word is not None and (word.generation, word.submission) == (0, 1) for word in words)
    return [word.job for word in words if word is not None]


def nothing_torn(place: Path, _point: Point) -> None:
    """Whatever Slurm has, an intent says so, and there is no second object of a job."""
    known = records(place)
    taken = in_slurm(place)
    assert len(set(taken)) == len(taken) <= 1
    for key in taken:
        assert known[key][:2] == ["spec", "intent"]
    for kinds in known.values():
        assert kinds in (["spec"], ["spec", "intent"], ["spec", "intent", "submitted"])


def submitted(place: Path) -> None:
    """The last run went through; what the killed one left is told apart from it."""
    known = records(place)
    assert [kinds for kinds in known.values() if kinds == ["spec", "intent", "submitted"]]
    assert set(in_slurm(place)) <= set(known)
    if os.geteuid() == 0:
        assert {job.uid for job in StateFolder(str(place / "state")).jobs()} == {Scene.owner()}


def test_killed_at_every_call(folder: Path) -> None:
    """P6, C001: no object without an intent, never two objects of one job, and the next submission works."""
    # Keeping what a stand-in was called with is the test's own business.
    visited = kill_at_every_call(
        folder,
        lay_out,
        check=nothing_torn,
        finished=submitted,
        keep=lambda point: "/calls/" not in point.text,
        least=15,
    )
    texts = " ".join(point.text for point in visited)
    assert "0000000002" in texts  # the intent
    assert "0000000003" in texts  # the answer
