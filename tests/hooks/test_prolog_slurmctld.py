"""PrologSlurmctld: the start note, and the gate that refuses only what must not start."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from slurm_dispatch.model.identity import Word, attempt_of
from tests.hooks.lab import START, Lab

if TYPE_CHECKING:
    from pathlib import Path

SHARED = "dispatch:abc:0:1:s"


def start_note(lab: Lab, restart: int = 0) -> Path:
    return lab.notes / f"start.abc.0.1.7.{restart}"


def planted(v: str = "1", job: str = '"abc"', start_time: str = "5") -> bytes:
    middle = '"generation": 0, "submission": 1, "slurm_job_id": 7, "restart": 0'
    return f'{{"v": {v}, "job": {job}, {middle}, "start_time": {start_time}}}\n'.encode()


def test_a_start_leaves_a_note_that_says_everything(lab: Lab) -> None:
    ended = lab.run("prolog-slurmctld", SLURM_JOB_ACCOUNT="phys", SLURM_JOB_SLUID="s0000000000001")
    assert (ended.status, ended.stdout, ended.stderr) == (0, b"", b"")
    assert [path.name for path in lab.notes.iterdir()] == ["start.abc.0.1.7.0"]
    note = lab.note("start.*")
    assert note.pop("at") > START
    assert note == {
        "v": 1,
        "job": "abc",
        "generation": 0,
        "submission": 1,
        "shared": False,
        "cluster": "lab",
        "slurm_job_id": 7,
        "restart": 0,
        "start_time": START,
        "attempt": attempt_of("lab", 7, Word("abc", 0, 1), 0, START),
        "epoch": "1000000",
        "nodes": "c[1-2]",
        "uid": 54321,
        "user": "ada",
        "partition": "low",
        "account": "phys",
        "array": None,
        "het_leader": None,
        "sluid": "s0000000000001",
    }
    assert start_note(lab).stat().st_mode & 0o777 == 0o600


def test_the_same_start_again_is_let_through(lab: Lab) -> None:
    first = lab.run("prolog-slurmctld")
    content = start_note(lab).read_bytes()
    again = lab.run("prolog-slurmctld", SLURM_JOB_PARTITION="high")
    assert (first.status, again.status) == (0, 0)
    assert start_note(lab).read_bytes() == content
    assert lab.names() == ["start"]


def test_the_same_restart_count_with_another_start_time_is_refused(lab: Lab) -> None:
    assert lab.run("prolog-slurmctld").status == 0
    content = start_note(lab).read_bytes()
    assert lab.run("prolog-slurmctld", SLURM_JOB_START_TIME=str(START + 4)).status == 1
    assert start_note(lab).read_bytes() == content
    assert lab.names() == ["refused", "start"]
    note = lab.note(f"refused.abc.0.1.7.0.{START + 4}")
    assert (note["why"], note["restart"], note["start_time"]) == ("double_start", 0, START + 4)


def test_the_next_restart_count_is_let_through(lab: Lab) -> None:
    """C042, C050: Slurm may restart a job, even one that asked it not to; that is another execution."""
    assert lab.run("prolog-slurmctld").status == 0
    ended = lab.run("prolog-slurmctld", SLURM_JOB_RESTART_COUNT="1", SLURM_JOB_START_TIME=str(START + 9))
    assert ended.status == 0
    first, second = (json.loads(start_note(lab, restart).read_bytes()) for restart in (0, 1))
    assert int(second["epoch"]) == int(first["epoch"]) + 1
    assert second["attempt"] != first["attempt"]


def test_a_restart_of_a_shared_job_is_refused_without_reading(lab: Lab) -> None:
    """C050: before any of the user's code runs, and under an epoch of its own anyway."""
    assert lab.run("prolog-slurmctld", SLURM_JOB_COMMENT=SHARED).status == 0
    os.rename(lab.notes, lab.folder / "away")
    assert lab.run("prolog-slurmctld", SLURM_JOB_COMMENT=SHARED, SLURM_JOB_RESTART_COUNT="1").status == 1
    os.rename(lab.folder / "away", lab.notes)
    assert lab.run("prolog-slurmctld", SLURM_JOB_COMMENT=SHARED, SLURM_JOB_RESTART_COUNT="2").status == 1
    assert lab.note("refused.*")["why"] == "shared"


def test_a_restart_of_a_shared_job_is_refused_where_no_notes_folder_is_set(lab: Lab) -> None:
    lab.conf.write_text("slurm_user=0\n")
    assert lab.run("prolog-slurmctld", SLURM_JOB_COMMENT=SHARED, SLURM_JOB_RESTART_COUNT="1").status == 1
    assert lab.run("prolog-slurmctld", SLURM_JOB_COMMENT=SHARED).status == 0


@pytest.mark.parametrize("kind", ["file", "dangling link", "folder"])
def test_a_submission_that_the_tick_has_refused_is_refused(system_lab: Lab, kind: str) -> None:
    refuse = system_lab.notes / "refuse.abc.0.1"
    if kind == "file":
        refuse.touch()
    elif kind == "folder":
        refuse.mkdir()
    else:
        refuse.symlink_to("nowhere")
    assert system_lab.run("prolog-slurmctld").status == 1
    assert system_lab.note("refused.*")["why"] == "refuse"
    assert not start_note(system_lab).exists()
    assert system_lab.run("prolog-slurmctld", SLURM_JOB_COMMENT="dispatch:abc:0:2").status == 0


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b'{"v": 1, "job": "abc", "gener',
        b"\0" * 300,
        planted(v="2"),
        planted(job='"xyz"'),
        planted(start_time='"5"'),
        planted(start_time="null"),
        planted(start_time="true"),
        b"[" * 70000,
    ],
)
def test_a_note_that_is_torn_or_another_s_is_no_evidence(system_lab: Lab, content: bytes) -> None:
    """C060: a gate that cannot know lets the job start; it never makes Slurm requeue for ever."""
    start_note(system_lab).write_bytes(content)
    assert system_lab.run("prolog-slurmctld").status == 0
    assert start_note(system_lab).read_bytes() == content


@pytest.mark.parametrize("kind", ["fifo", "folder", "link to a foreign note", "link to itself"])
def test_a_planted_start_note_is_no_evidence(system_lab: Lab, kind: str) -> None:
    note = start_note(system_lab)
    if kind == "fifo":
        os.mkfifo(note)
    elif kind == "folder":
        note.mkdir()
    elif kind == "link to itself":
        note.symlink_to(note)
    else:
        assert system_lab.run("prolog-slurmctld", SLURM_JOB_START_TIME="5").status == 0
        note.rename(system_lab.folder / "elsewhere")
        note.symlink_to(system_lab.folder / "elsewhere")
    assert system_lab.run("prolog-slurmctld").status == 0


def test_without_a_start_time_a_second_start_is_let_through(lab: Lab) -> None:
    """Slurm 22.05 gives none: a hook that runs again and a second start look the same."""
    assert lab.run("prolog-slurmctld", SLURM_JOB_START_TIME=None).status == 0
    assert lab.run("prolog-slurmctld", SLURM_JOB_START_TIME=None).status == 0
    note = lab.note("start.*")
    assert note["start_time"] is None
    assert note["attempt"] == attempt_of("lab", 7, Word("abc", 0, 1), 0, None)


def test_without_a_start_time_a_second_start_of_a_shared_job_is_refused(lab: Lab) -> None:
    """C060: of a shared checkpoint a person decides, also where it may be the hook alone that runs again."""
    shared = {"SLURM_JOB_COMMENT": "dispatch:abc:0:1:s", "SLURM_JOB_START_TIME": None}
    assert lab.run("prolog-slurmctld", **shared).status == 0
    assert lab.run("prolog-slurmctld", **shared).status == 1
    note = lab.note("refused.*")
    assert (note["why"], note["restart"], note["start_time"]) == ("double_start", 0, None)
    assert lab.note("start.*")["shared"] is True


def test_array_tasks_are_told_apart_by_their_own_job_ids(lab: Lab) -> None:
    for job, task in (("13", "3"), ("14", "1")):
        array = {
            "SLURM_ARRAY_JOB_ID": "13",
            "SLURM_ARRAY_TASK_ID": task,
            "SLURM_JOB_START_TIME": str(START + int(job)),
        }
        assert lab.run("prolog-slurmctld", SLURM_JOB_ID=job, **array).status == 0
    assert lab.note("start.abc.0.1.13.0")["array"] == "13_3"
    assert lab.note("start.abc.0.1.14.0")["array"] == "13_1"


def test_components_of_a_heterogeneous_job_share_the_attempt_and_have_gates_of_their_own(lab: Lab) -> None:
    for job, start in (("11", START), ("12", START + 1)):
        component = {"SLURM_HET_JOB_ID": "11", "SLURM_HET_JOB_OFFSET": str(int(job) - 11)}
        assert lab.run("prolog-slurmctld", SLURM_JOB_ID=job, SLURM_JOB_START_TIME=str(start), **component).status == 0
    first, second = lab.note("start.abc.0.1.11.0"), lab.note("start.abc.0.1.12.0")
    assert first["attempt"] == second["attempt"] == attempt_of("lab", 11, Word("abc", 0, 1), 0, None)
    assert (first["het_leader"], second["het_leader"]) == (11, 11)
    again = lab.run("prolog-slurmctld", SLURM_JOB_ID="12", SLURM_HET_JOB_ID="11", SLURM_JOB_START_TIME=str(START + 2))
    assert again.status == 1


def site_script(lab: Lab, body: str) -> None:
    script = lab.folder / "site-prolog-slurmctld"
    script.write_text(f"#!/bin/sh\necho ran >>{lab.folder}/site\n{body}\n")
    script.chmod(0o755)


@pytest.mark.parametrize("comment", ["dispatch:abc:0:1", "somebody else's"])
@pytest.mark.parametrize("status", [0, 3, 99])
def test_the_site_s_own_script_runs_first_and_its_status_is_passed_on(
    system_lab: Lab, comment: str, status: int
) -> None:
    site_script(system_lab, f"ls {system_lab.notes} >{system_lab.folder}/seen; exit {status}")
    assert system_lab.run("prolog-slurmctld", SLURM_JOB_COMMENT=comment).status == status
    assert (system_lab.folder / "site").read_text() == "ran\n"
    assert (system_lab.folder / "seen").read_text() == ""
    assert system_lab.names() == (["start"] if status == 0 and comment.startswith("dispatch") else [])


def test_a_refusal_is_passed_on_where_the_site_s_script_agrees(system_lab: Lab) -> None:
    site_script(system_lab, "exit 0")
    assert system_lab.run("prolog-slurmctld").status == 0
    assert system_lab.run("prolog-slurmctld", SLURM_JOB_START_TIME=str(START + 1)).status == 1
