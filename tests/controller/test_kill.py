"""kill -9 at every call of a pass: the next one finishes it, and the end is the same as without the kill.

Each scene is killed at every call that changes something outside the process. From every different state that this
leaves, each of the passes that finish it is killed in its turn wherever it writes a fact or calls Slurm.
"""

from __future__ import annotations

import difflib
import json
import os
import shutil
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from slurm_dispatch.controller import hints
from slurm_dispatch.controller.breaker import Breaker
from slurm_dispatch.records import people
from slurm_dispatch.records.fold import fold
from slurm_dispatch.records.state import Phase
from tests import forked
from tests.controller.fake_slurm import OVER
from tests.controller.kill_scenes import SCENES, B, Scene, add
from tests.controller.rig import WAIT_S

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.controller.site_rig import SiteRig
    from tests.kill import Point

LATER_S = (0.0, WAIT_S + 60, 2 * (WAIT_S + 60), 86400.0, 86460.0, 86520.0)
"""When the passes come that finish it: an intent without an answer must be watched, and a burnt one backs off."""
ACTS = ("submit", "cancel", "requeue", "update")


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
    print(f"{scene.name}: {len(first)} points, {len(states)} states after them, {second} points of the passes that finish")


def _reference(scene: Scene, made: Path, place: Path) -> dict[str, Any]:
    """The end without a kill, which must be the one that the scene is about."""
    rig = scene.rig(shutil.copytree(made, place))
    scene.tick(rig)
    _passes(scene, place)
    found = _end(rig)
    assert {key: Phase(it["phase"]) for key, it in found["jobs"].items()} == dict(scene.ends)
    _sound(rig)
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
    """Where the passes that finish it write a fact, call Slurm, or have just been answered; and what is there then."""
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
        _sound(scene.rig(place, later_s))
    except Exception as error:
        raise AssertionError(f"killed at {point}: {error}") from error
    return place


def _finish(scene: Scene, place: Path, as_it_must: dict[str, Any], what: str) -> None:
    _passes(scene, place)
    rig = scene.rig(place)
    try:
        _sound(rig)
    except Exception as error:
        raise AssertionError(f"{what}: {error}") from error
    found, wanted = (json.dumps(it, indent=1, sort_keys=True).splitlines() for it in (_end(rig), as_it_must))
    assert found == wanted, what + "\n" + "\n".join(difflib.unified_diff(wanted, found, "must", "is", n=0, lineterm=""))
    shutil.rmtree(place)


def _passes(scene: Scene, place: Path) -> None:
    rig = scene.rig(place)
    for later_s in LATER_S:
        rig.later_s = scene.at_s + later_s
        scene.tick(rig)
    for job in rig.folder.jobs():
        state, facts = rig.state(job.key), rig.facts(job.key)
        held = state.decision if state.phase is Phase.HELD else None
        if held is not None and facts[held.on - 1].kind == "intent":
            # Where an older run must not be joined by a second, only a person may say that sbatch made nothing.
            assert state.spec.shared
            add(rig, job.key, people.release(state, "there is none", time.time()))
            scene.tick(rig)
            scene.tick(rig)


def _sound(rig: SiteRig) -> None:
    """What must be so at every moment."""
    for job in rig.folder.jobs():
        fold(rig.facts(job.key))  # whole, and allowed by the law
    for name in os.listdir(rig.tick_folder):
        if name != hints.LAST and not name.startswith(".tmp-"):
            with open(os.path.join(rig.tick_folder, name), encoding="ascii") as stream:
                assert json.load(stream)["v"] == 1, name
    found = rig.hints()
    made = Counter((it.job, it.submission) for it in found.recent.resubmissions)
    assert all(count == 1 for count in made.values()), made
    ends = Counter((it.job, it.submission, it.outcome) for it in found.recent.ends)
    assert all(count == 1 for count in ends.values()), ends
    # A kill may leave something uncounted; never anything counted that did not happen, or twice.
    facts = [(job.key, fact) for job in rig.folder.jobs() for fact in rig.facts(job.key)]
    decided = {(B, 2)} | {(key, fact.body["submission"]) for key, fact in facts if fact.kind == "decision"}
    assert set(made) <= decided | {(key, 1) for key, fact in facts if fact.kind == "decision"}
    if found.breaker != Breaker():
        assert len(made) > rig.rules.bounds.resubmissions or rig.rules.bounds.drains


def _end(rig: SiteRig) -> dict[str, Any]:
    """What must be the same with a kill and without: all but times, and the numbers that were burnt."""
    jobs: dict[str, dict[str, Any]] = {}
    for job in rig.folder.jobs():
        facts, state = rig.facts(job.key), rig.state(job.key)
        burnt = {fact.seq for fact in facts if fact.kind == "burnt"}
        kinds = Counter(fact.kind for fact in facts)
        left = {fact.seq for fact in facts if fact.kind == "intent"}
        again = {fact.seq for fact in facts if fact.kind == "decision" and fact.body["on"] in burnt | left}
        alive = [number for number in _objects(rig, job.key) if not OVER & set(rig.slurm.job(number)["states"])]
        objects = () if state.phase is Phase.CLOSED else (state.elder and state.elder.object, state.object)
        assert alive == [it.slurm_job_id for it in objects if it is not None]
        jobs[job.key] = {
            "phase": state.phase.value,
            "closed": None if state.closed is None else (state.closed.why, state.closed.by_job),
            "decisions": [
                [fact.body[name] for name in ("outcome", "action", "rule", "why", "then", "free", "budget_used")]
                for fact in facts if fact.kind == "decision" and fact.body["on"] not in burnt | left
            ],
            "ends": [fact.body["outcome"] for fact in facts if fact.kind == "end"],
            "releases": sum(fact.kind == "release" and fact.body["on"] not in again for fact in facts),
            "once": {kind: kinds[kind] for kind in ("closed", "suspected", "cleared", "requeued",
                                                    "took_over", "cessation", "stray", "started")},
            "told": sorted({fact.body["what"] for fact in facts if fact.kind == "told" and fact.body["on"] not in again}),
            "objects": len(_objects(rig, job.key)),
        }  # fmt: skip
    notes = Counter(name.split(".")[0] for name in rig.notes() if not name.startswith("refuse."))
    return {"jobs": jobs, "notes": dict(notes), "requeues": rig.slurm.calls("requeue") != []}


def _objects(rig: SiteRig, key: str) -> list[int]:
    return [number for number in rig.slurm.ids() if f"dispatch:{key}:" in rig.slurm.job(number)["comment"]]


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
    return json.dumps([last, slurm, sorted(notes.items()), site, hints.FOLDER])


