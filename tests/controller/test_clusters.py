"""A job on another cluster, and the id that it has there on this one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from slurm_dispatch.slurm import commands
from slurm_dispatch.slurm.commands import SlurmCommands
from slurm_dispatch.slurm.run import Finished
from tests.controller.rig import Rig

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from slurm_dispatch.controller.view import View


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def on_beta(rig: Rig, rule: str) -> tuple[str, int]:
    """A job that sbatch sent to cluster beta; its key and its Slurm job id there."""
    key = rig.job(rule, submitted=False)
    number = rig.slurm.plain(comment=f"mine {rig.word(key)}", uid=rig.uid)
    body = {"submission": 1, "cluster": "beta", "slurm_job_id": number, "how": "answer"}
    assert rig.record(key).append(3, "submitted", "user:ada@login", body)
    return key, number


def asks(rig: Rig, cluster: str) -> View:
    """What a tick on a host of that cluster sees."""
    return replace(rig.view(), cluster=cluster)


@pytest.mark.parametrize("here", ["foreign", "ended", "gone"])
@pytest.mark.parametrize("wish", [False, True])
def test_a_tick_of_another_cluster_leaves_it_alone(rig: Rig, here: str, *, wish: bool) -> None:
    """C079, C080: not found, or another job of the same id, without the right cluster is no evidence; nothing is
    submitted, and nothing is cancelled here."""
    key, number = on_beta(rig, "failed,node_fail,lost:resubmit")
    fields: dict[str, dict[str, Any]] = {
        "foreign": {"uid": rig.uid + 1, "comment": "", "states": ["RUNNING"], "start_time": 1},
        "ended": {"states": ["FAILED"], "exit_status": 1, "start_time": 1, "end_time": 9},
        "gone": {"in_memory": False, "accounting_live": False},
    }
    rig.slurm.set(number, **fields[here])
    if wish:
        body = {"what": "cancel", "reason": "enough"}
        assert rig.record(key).append(4, "request", "user:ada@login", body)
    kinds = rig.kinds(key)
    for later in (0.0, 86400.0):
        rig.later_s = later
        rig.tick(view=asks(rig, "alpha"))
    assert rig.kinds(key) == kinds
    assert rig.slurm.ids() == [number]
    assert not {"cancel", "submit", "requeue", "update"} & set(rig.slurm.calls())


def test_a_tick_of_its_own_cluster_brings_it_back(rig: Rig) -> None:
    """C079: one state folder, a tick on a host of each cluster."""
    key, number = on_beta(rig, "failed:resubmit")
    rig.slurm.start(number)
    rig.slurm.end(number, "FAILED", exit_status=1)
    for _ in range(3):
        rig.tick(view=asks(rig, "beta"))
    assert rig.kinds(key).count("submitted") == 2
    assert len(rig.slurm.ids()) == 2


@pytest.mark.parametrize("verb", ["cancel", "requeue", "update"])
def test_every_act_names_the_cluster(monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    """C080: the same id on two clusters: the act goes to the one that is recorded, and to no other."""
    argvs: list[list[str]] = []

    def run(argv: Sequence[str], *_: Any, **__: Any) -> Finished:
        argvs.append(list(argv))
        return Finished(0, b"", b"")

    monkeypatch.setattr(commands, "run", run)
    port = SlurmCommands({})
    acts: dict[str, Any] = {
        "cancel": lambda: port.cancel(500, "beta"),
        "requeue": lambda: port.requeue(500, "beta"),
        "update": lambda: port.update(500, "beta", {"StartTime": "now"}),
    }
    assert acts[verb]().done
    ((_, where, *rest),) = argvs
    assert where == "--clusters=beta"
    assert rest[-1].removeprefix("JobId=") in {"500", "StartTime=now"}
