"""Slurm's commands asked of one cluster or another: what their argv lists are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from slurm_dispatch.model.identity import Word
from slurm_dispatch.slurm.commands import OTHER_TIMEOUT_S, SlurmCommands
from slurm_dispatch.slurm.port import Absent, Present, Queue, Unknown

if TYPE_CHECKING:
    from pathlib import Path

ALL = ("squeue", "scontrol", "sacct", "scancel")
DOWN = (
    "'second' can't be reached now, or it is an invalid entry for --cluster.  Use 'sacctmgr list clusters' to see "
    "available clusters."
)
"""What each command of Slurm 24.11 says of a cluster whose slurmctld is not registered with slurmdbd."""


class Commands:
    """Stand-ins that keep their argv and print what they are told."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ALL:
            path = folder / name
            path.write_text(
                f'#!/bin/sh\necho "{name} $*" >>{folder}/calls\ncat {folder}/{name}.out 2>/dev/null\n'
                f"if test -e {folder}/{name}.err; then cat {folder}/{name}.err >&2; exit 1; fi\n"
            )
            path.chmod(0o755)
        self.slurm = SlurmCommands({"PATH": f"{folder}:/usr/bin:/bin"}, timeout_s=60.0)

    def calls(self) -> list[str]:
        path = self.folder / "calls"
        found = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return [line for line in found if line != "scontrol --version"]


@pytest.fixture
def commands(tmp_path: Path) -> Commands:
    return Commands(tmp_path)


def everything(slurm: SlurmCommands, cluster: str | None) -> None:
    slurm.queue()
    slurm.detail([7])
    slurm.accounting([7])
    slurm.accounting_by_word(Word("abc", 0, 1), 1001, since=0)
    slurm.nodes()
    slurm.config()
    slurm.cancel(7, cluster)
    slurm.requeue(7, cluster)
    slurm.update(7, cluster, {"StartTime": "now"})


def test_the_own_cluster_is_never_asked_by_name(commands: Commands) -> None:
    """C081: Slurm finds a cluster of a name through slurmdbd, which a site need not have, and which may be away."""
    everything(commands.slurm, None)
    calls = commands.calls()
    assert {line.split()[0] for line in calls} == set(ALL)
    assert not [line for line in calls if "clusters" in line or " -M" in line]


def test_another_cluster_is_asked_by_name_each_time(commands: Commands) -> None:
    """C005, C079: every question and every act."""
    there = commands.slurm.at("second")
    everything(there, None)
    calls = commands.calls()
    assert {line.split()[0] for line in calls} == set(ALL)
    assert not [line for line in calls if "--clusters=second " not in line]
    assert there.timeout_s == OTHER_TIMEOUT_S
    everything(commands.slurm, "second")
    assert [line.split()[1] for line in commands.calls() if "clusters" in line] == ["--clusters=second"] * 3


def test_a_cluster_that_is_not_there_says_nothing_of_its_jobs(commands: Commands) -> None:
    """C079: no answer of it is absence."""
    for name in ALL:
        (commands.folder / f"{name}.err").write_text(f"{name}: error: {DOWN}\n{name}: fatal: Could not get cluster\n")
    there = commands.slurm.at("second")
    assert isinstance(there.queue(), Unknown)
    assert isinstance(there.detail([7])[7], Unknown)
    assert isinstance(there.accounting([7])[7], Unknown)
    assert isinstance(there.accounting_by_word(Word("abc", 0, 1), 1001, since=0), Unknown)
    assert not there.cancel(7, None).done
    for answer in (there.requeue(7, None), there.update(7, None, {"StartTime": "now"})):
        assert (answer.done, answer.refused) == (False, False)
    assert not isinstance(there.queue(), Queue | Present | Absent)


@pytest.mark.parametrize("name", ["", "a b", "a;b", "$(id)", "x" * 257, "a,b"])
def test_what_is_no_name_goes_on_no_command_line(commands: Commands, name: str) -> None:
    with pytest.raises(ValueError, match="is not a cluster's name"):
        commands.slurm.at(name)
