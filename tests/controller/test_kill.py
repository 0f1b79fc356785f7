"""kill -9 at every call of a pass: the next one finishes it, and the end is the same as without the kill.

Each scene is killed at every call that changes something outside the process. From every different state that this
leaves, each of the passes that finish it is killed in its turn wherever it writes a fact or calls Slurm.
"""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from slurm_dispatch.records.state import Phase
from tests import forked
from tests.controller.kill_scenes import SCENES, Scene
from tests.controller.scene_end import LATER_S, end, passes, same, sound

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.controller.site_rig import SiteRig
    from tests.kill import Point

ACTS = ("submit", "cancel", "requeue", "update")


@pytest.fixture(autouse=True)
def _standing_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine is, all passes of a scene come at the same times, and make the same calls."""
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.name.replace(" ", "-"))
def test_the_end_is_the_same_wherever_a_pass_is_killed(scene: Scene, tmp_path: Path) -> None:
    """P5, P6, P7: one current object, the same decisions, no second submission, nothing lost."""
    made = tmp_path / "made"
    made.mkdir()
    scene.make(scene.rig(made, -scene.at_s))
    as_it_must = _reference(scene, made, tmp_path / "whole")
    first = list(_first_points(scene, made, tmp_path))
    assert len(first) >= scene.least, [str(point) for _, point in first]
    assert {act for act in ACTS if any(f'"{act}' in point.text for _, point in first)} >= set(scene.acts)
    states: dict[str, Path] = {}
    for number, (before, point) in enumerate(first):
        killed = _killed(scene, before, tmp_path / f"first{number}", point, 0.0)
        mark = _mark(scene.rig(killed))
        if mark not in states:
            states[mark] = shutil.copytree(killed, tmp_path / f"state{number}")
        _finish(scene, killed, as_it_must, f"killed at {point}")
    second = 0
    for mark, left in states.items():
        for later_s, before, point in _second_points(scene, left, tmp_path):
            second += 1
            killed = _killed(scene, before, tmp_path / f"second{second}", point, later_s)
            _finish(scene, killed, as_it_must, f"from {mark} killed again {later_s:g} s later at {point}")
        shutil.rmtree(left)
    assert second > 0
    if scene.whole:
        for name in ("/tick/recent", "/tick/last", "/tick/index.", "/notes/"):
            assert any(name in point.text for _, point in first), name
    print(f"{scene.name}: {len(first)} points, {len(states)} states after, {second} points of the passes that finish")


def _reference(scene: Scene, made: Path, place: Path) -> dict[str, Any]:
    """The end without a kill, which must be the one that the scene is about."""
    rig = scene.rig(shutil.copytree(made, place))
    scene.tick(rig)
    passes(scene, place)
    found = end(rig)
    assert {key: Phase(it["phase"]) for key, it in found["jobs"].items()} == dict(scene.ends)
    sound(rig)
    return found


def _first_points(scene: Scene, made: Path, folder: Path) -> Iterator[tuple[Path, Point]]:
    """Where to kill each of the scene's passes, and what is there before it."""
    for number in range(scene.passes):
        if number:
            made = shutil.copytree(made, folder / f"made{number}")
            scene.tick(scene.rig(made))
        for point in _points(scene, made, folder, 0.0):
            yield made, point


def _points(scene: Scene, there: Path, folder: Path, later_s: float) -> list[Point]:
    """Where to kill the pass over what is ``there``; the stand-in's own bookkeeping is no place."""
    place = shutil.copytree(there, folder / "counted")
    rig = scene.rig(place, later_s)
    found = forked.points(lambda: scene.tick(rig), folder / "counted.trace", place)
    shutil.rmtree(place)
    return [point for point in found if "/slurm/" not in point.text or _is_act(point)]


def _is_act(point: Point) -> bool:
    """Before the call reaches the stand-in Slurm, and where that has taken it."""
    if "/slurm/calls" in point.text:
        return point.call == "write" and any(f'"{act}' in point.text for act in ACTS)
    return "/slurm/" in point.text and point.call in {"link", "linkat", "rename", "renameat", "renameat2"}


def _second_points(scene: Scene, left: Path, folder: Path) -> Iterator[tuple[float, Path, Point]]:
    """Where the passes that finish it write a fact, call Slurm, or were just answered; and what is there then."""
    before = shutil.copytree(left, folder / "before")
    for later_s in LATER_S[:4]:
        after_an_act = False
        for point in _points(scene, before, folder, later_s):
            fact = point.call in {"link", "linkat"} and "/facts/" in point.text
            if fact or _is_act(point) or after_an_act:
                yield later_s, before, point
            after_an_act = _is_act(point)
        rig = scene.rig(before, later_s)
        scene.tick(rig)
    shutil.rmtree(before)


def _killed(scene: Scene, there: Path, place: Path, point: Point, later_s: float) -> Path:
    """A copy of what is ``there`` after a pass that was killed at ``point``; it must be sound."""
    shutil.copytree(there, place)
    rig = scene.rig(place, later_s)
    forked.kill(lambda: scene.tick(rig), point, place / "trace")
    try:
        sound(scene.rig(place, later_s))
    except Exception as error:
        raise AssertionError(f"killed at {point}: {error}") from error
    return place


def _finish(scene: Scene, place: Path, as_it_must: dict[str, Any], what: str) -> None:
    passes(scene, place)
    same(scene.rig(place), as_it_must, what)
    shutil.rmtree(place)


def _mark(rig: SiteRig) -> str:
    """What tells one state from another, for a pass."""
    slurm = [(number, *(str(rig.slurm.job(number).get(name)) for name in ("states", "restart", "reason", "updated")))
             for number in rig.slurm.ids()]  # fmt: skip
    found = rig.hints()
    site = (len(found.recent.resubmissions), len(found.recent.ends), len(found.recent.overlaps), len(found.memory),
            found.breaker.open, len(found.breaker.owners), len(found.silence.silent))  # fmt: skip
    kinds = {job.key: rig.kinds(job.key) for job in rig.folder.jobs()}
    notes = Counter(name.split(".")[0] for name in rig.notes())
    last = {key: [*it[-2:], len(it)] for key, it in kinds.items()}
    return json.dumps([last, slurm, sorted(notes.items()), site])
