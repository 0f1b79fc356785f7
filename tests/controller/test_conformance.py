"""The stand-in Slurm says what the real one says (``tests/cluster/test_tick.py`` asks the real one)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurm_dispatch.slurm.port import Rejected, SbatchCall, Unknown
from tests.controller.conformance import check
from tests.controller.fake_slurm import FakeSlurm
from tests.controller.memory_slurm import MemorySlurm

if TYPE_CHECKING:
    from pathlib import Path


class Hands:
    """What the stand-in does by itself in a real cluster."""

    refuses_the_unknown = True

    def __init__(self, slurm: FakeSlurm) -> None:
        self._slurm = slurm

    def run(self, slurm_job_id: int) -> None:
        self._slurm.start(slurm_job_id)

    def requeue(self, slurm_job_id: int) -> None:
        self._slurm.restart(slurm_job_id)


def test_the_stand_in_conforms(tmp_path: Path) -> None:
    slurm = FakeSlurm(str(tmp_path))
    check(slurm, Hands(slurm))


def test_the_one_in_memory_conforms() -> None:
    slurm = MemorySlurm()
    check(slurm, Hands(slurm))


def test_what_is_away_is_unknown(tmp_path: Path) -> None:
    slurm = FakeSlurm(str(tmp_path))
    slurm.knob(queue="away", detail="away", accounting="away", cancel="away", submit="reject", nodes="away")
    slurm.knob(requeue="away", update="away")
    assert isinstance(slurm.queue(), Unknown)
    assert isinstance(slurm.detail([1])[1], Unknown)
    assert isinstance(slurm.accounting([1])[1], Unknown)
    assert not slurm.cancel(1, None).done
    assert isinstance(slurm.nodes(), Unknown)
    for answer in (slurm.requeue(1, None), slurm.update(1, None, {"StartTime": "now"})):
        assert (answer.done, answer.refused) == (False, False)
    assert isinstance(slurm.submit(SbatchCall((), {}, 1.0)), Rejected)
