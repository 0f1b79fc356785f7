"""What a job's pass may do to the record of the job that it supersedes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from slurm_dispatch.controller import elders
from slurm_dispatch.errors import BadDataError
from slurm_dispatch.records.observation import Unknown
from tests.controller.rig import Rig

if TYPE_CHECKING:
    from pathlib import Path

    from slurm_dispatch.records.state import State
    from slurm_dispatch.state.jobs import Record


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def successor(rig: Rig, elder: str) -> tuple[Record, State]:
    """A job that is to go on in the elder's place, and has not taken over yet."""
    spec = rig.spec(supersedes=elder, generation=1)
    return rig.folder.create_job(spec, b"", b"", by="user:ada@login"), rig.state(spec.job)


def test_the_elder_is_closed_once(rig: Rig) -> None:
    elder = rig.job()
    record, state = successor(rig, elder)
    assert elders.closed(record, state) is None
    assert elders.close(record, state, keep=None, by="tick@ctl")
    assert rig.facts(elder)[-1].body["by_job"] == state.spec.job
    assert not elders.close(record, state, keep=None, by="tick@ctl")
    assert rig.kinds(elder).count("closed") == 1


def test_a_record_that_names_another_owner_is_neither_read_nor_closed(rig: Rig) -> None:
    """Whatever the files' rights are: a fact cannot make one owner's pass close another's job."""
    elder = rig.job(uid=rig.uid + 1)
    record, state = successor(rig, elder)
    before = rig.kinds(elder)
    told = elders.closed(record, state)
    assert isinstance(told, Unknown)
    assert f"is of uid {rig.uid + 1}" in told.why
    with pytest.raises(BadDataError, match=f"job {elder} is of uid {rig.uid + 1}"):
        elders.close(record, state, keep=None, by="tick@ctl")
    assert rig.kinds(elder) == before
