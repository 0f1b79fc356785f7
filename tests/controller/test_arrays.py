"""An array that carries a job's word: somebody has copied a comment. Nothing is done to it, since the raw id of its
pending part means the whole array."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from slurm_dispatch.slurm.port import Queue
from tests.controller.site_rig import SiteRig
from tests.slurm.recorded import array_of, array_queue

if TYPE_CHECKING:
    from pathlib import Path

ACTS = {"cancel", "requeue", "update"}


@pytest.fixture
def rig(tmp_path: Path) -> SiteRig:
    return SiteRig(tmp_path)


def acts(rig: SiteRig) -> list[str]:
    return [call for call in rig.slurm.calls() if call in ACTS]


def copied(rig: SiteRig, key: str, state: str = "RUNNING") -> list[int]:
    """An array of the owner's with the job's word: a task, and the part that waits."""
    found = []
    for array in ("990_0", "990_[1-4%2]"):
        number = rig.slurm.plain(comment=f"mine {rig.word(key)}", uid=rig.uid)
        rig.slurm.set(number, array=array, states=[state if array == "990_0" else "PENDING"], start_time=1)
        found.append(number)
    return found


def test_an_array_with_our_word_is_no_stray(rig: SiteRig) -> None:
    """C037: a stray is cancelled when seen, by its raw id; an array never."""
    key = rig.job()
    rig.start(key)
    copied(rig, key)
    rig.settle()
    assert acts(rig) == []
    assert "stray" not in rig.kinds(key)
    plain = rig.slurm.plain(comment=f"mine {rig.word(key)}", uid=rig.uid)
    rig.settle()
    assert rig.slurm.job(plain)["states"] == ["CANCELLED"]  # what is no array is
    assert acts(rig) == ["cancel"]


@pytest.mark.parametrize("accounting", ["ok", "none"])
def test_an_array_with_our_word_is_not_adopted(rig: SiteRig, accounting: str) -> None:
    """C037, C065: the answer to sbatch is lost, and an array has its word: neither task is the object."""
    key = rig.job(submitted=False)
    first, _ = copied(rig, key)
    rig.start_note(key, first, 1, array="990_0")
    rig.tick()
    rig.later_s = 100.0
    rig.slurm.knob(accounting=accounting)
    rig.settle()
    assert "submitted" not in rig.kinds(key)
    assert "burnt" in rig.kinds(key)
    assert acts(rig) == []


@pytest.mark.parametrize("rule", ["failed:requeue", "failed:resubmit"])
def test_an_object_that_became_an_array_is_left_alone(rig: SiteRig, rule: str) -> None:
    """C037: Slurm lost its state and gave the id to an array of the same owner with a copied comment."""
    key = rig.job(rule)
    number = rig.object(key)
    rig.start(key)
    rig.settle()
    rig.slurm.set(number, array="990_[0-4]", states=["PENDING"])
    body = {"what": "cancel", "reason": "enough"}
    assert rig.record(key).append(rig.state(key).seq + 1, "request", "user:ada@login", body)
    rig.settle()
    assert acts(rig) == []
    assert rig.slurm.job(number)["states"] == ["PENDING"]


def test_a_requeue_looks_whether_it_is_an_array_now(rig: SiteRig) -> None:
    """C037: the id was given away between the look and the act."""
    key = rig.job("failed:requeue")
    number = rig.object(key)
    rig.start(key)
    rig.settle()
    rig.slurm.knob(requeue="away")
    rig.ends(key, "FAILED", exit_status=1)
    rig.tick()
    assert rig.state(key).phase.value == "requeuing"
    view = rig.view()
    rig.slurm.knob(requeue="ok")
    rig.slurm.set(number, array="990_[0-4]")
    before = acts(rig)
    rig.tick(view=view)
    assert acts(rig) == before
    assert "of an array now" in rig.last(key, "requeue_failed").body["why"]


@pytest.mark.parametrize("release", ["22.05", "24.11"])
def test_a_real_array_in_the_queue(release: str) -> None:
    """C037, C065: as Slurm lists one, each line has a raw id of its own, and none is an object of ours."""
    queue = array_queue(release)
    assert isinstance(queue, Queue)
    array, tasks = array_of(release)
    seen = {job.array: job.slurm_job_id for job in queue.jobs if job.in_array}
    assert {name: raw for name, raw in seen.items() if name in tasks} == tasks
    assert tasks[next(name for name in tasks if "[" in name)] == array  # the raw id that means all of it
    word = next(job.word for job in queue.jobs if job.in_array)
    assert word is not None
    assert queue.of_word(word, 2001) == ()
