"""The end of a scene of :mod:`tests.controller.kill_scenes`: how it is reached, and what must be the same in it."""

from __future__ import annotations

import difflib
import json
import os
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from slurm_dispatch.controller import hints, index, tickfile
from slurm_dispatch.controller.breaker import Breaker
from slurm_dispatch.records import people
from slurm_dispatch.records.fold import fold
from slurm_dispatch.records.state import Phase
from tests.controller.fake_slurm import OVER
from tests.controller.kill_scenes import B, Scene, add
from tests.controller.rig import WAIT_S

if TYPE_CHECKING:
    from pathlib import Path

    from tests.controller.site_rig import SiteRig

LATER_S = (0.0, WAIT_S + 60, 2 * (WAIT_S + 60), 86400.0, 86460.0, 86520.0)
"""When the passes come that finish it: an intent without an answer must be watched, and a burnt one backs off."""


def passes(scene: Scene, place: Path) -> None:
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


def whole(folder: str) -> None:
    """Every file of ticks can be read."""
    for name in os.listdir(folder):
        if name != hints.LAST and not name.startswith(".tmp-"):
            with open(os.path.join(folder, name), encoding="ascii") as stream:
                version = index.FORMAT if name.startswith("index.") else tickfile.FORMAT
                assert json.load(stream)["v"] == version, name


def sound(rig: SiteRig) -> None:
    """What must be so at every moment."""
    for job in rig.folder.jobs():
        fold(rig.facts(job.key))  # whole, and allowed by the law
    whole(rig.tick_folder)
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


def end(rig: SiteRig) -> dict[str, Any]:
    """What must be the same with a kill and without: all but times, and the numbers that were burnt."""
    jobs: dict[str, dict[str, Any]] = {}
    for job in rig.folder.jobs():
        facts, state = rig.facts(job.key), rig.state(job.key)
        burnt = {fact.seq for fact in facts if fact.kind == "burnt"}
        kinds = Counter(fact.kind for fact in facts)
        left = {fact.seq for fact in facts if fact.kind == "intent"}
        again = {fact.seq for fact in facts if fact.kind == "decision" and fact.body["on"] in burnt | left}
        alive = [number for number in objects_of(rig, job.key) if not OVER & set(rig.slurm.job(number)["states"])]
        elder = None if state.elder is None else state.elder.object
        kept = () if state.phase is Phase.CLOSED else (elder, state.object)
        assert alive == [it.slurm_job_id for it in kept if it is not None]
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
            "told": sorted({it.body["what"] for it in facts if it.kind == "told" and it.body["on"] not in again}),
            "objects": len(objects_of(rig, job.key)),
        }  # fmt: skip
    notes = Counter(name.split(".")[0] for name in rig.notes() if not name.startswith("refuse."))
    return {"jobs": jobs, "notes": dict(notes), "requeues": rig.slurm.calls("requeue") != []}


def objects_of(rig: SiteRig, key: str) -> list[int]:
    return [number for number in rig.slurm.ids() if f"dispatch:{key}:" in rig.slurm.job(number)["comment"]]


def same(rig: SiteRig, as_it_must: dict[str, Any], what: str) -> None:
    """The end is sound, and what it must be; ``what`` led to it."""
    try:
        sound(rig)
        found = end(rig)
    except Exception as error:
        raise AssertionError(f"{what}: {error!r}") from error
    is_now, must = (json.dumps(it, indent=1, sort_keys=True).splitlines() for it in (found, as_it_must))
    differ = "\n".join(difflib.unified_diff(must, is_now, "must", "is", n=0, lineterm=""))
    assert is_now == must, f"{what}\n{differ}"


__all__ = ["LATER_S", "end", "passes", "same", "sound", "whole"]
