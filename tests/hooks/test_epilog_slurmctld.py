"""EpilogSlurmctld: the end note, which is the kick."""

from __future__ import annotations

import pytest

from tests.hooks.lab import START, Lab


def test_an_end_leaves_a_note_that_says_what_was_seen(lab: Lab) -> None:
    ended = lab.run("epilog-slurmctld", SLURM_JOB_RESTART_COUNT="1", SLURM_JOB_EXIT_CODE2="0:9")
    assert (ended.status, ended.stdout, ended.stderr) == (0, b"", b"")
    note = lab.note(f"end.abc.0.1.7.{START}.*")
    assert note.pop("at") > START
    assert note == {
        "v": 1,
        "job": "abc",
        "generation": 0,
        "submission": 1,
        "shared": False,
        "cluster": "lab",
        "slurm_job_id": 7,
        "start_time": START,
        "restart_seen": 1,
        "exit_code": "0:9",
        "nodes": "c[1-2]",
        "uid": 54321,
    }


def test_an_end_that_is_said_twice_leaves_two_notes(lab: Lab) -> None:
    for _ in range(2):
        assert lab.run("epilog-slurmctld").status == 0
    assert lab.names() == ["end", "end"]


def test_without_a_start_time_the_note_says_null(lab: Lab) -> None:
    assert lab.run("epilog-slurmctld", SLURM_JOB_START_TIME=None, SLURM_JOB_RESTART_COUNT=None).status == 0
    note = lab.note("end.abc.0.1.7.0.*")
    assert (note["start_time"], note["restart_seen"], note["exit_code"]) == (None, None, None)


@pytest.mark.parametrize("comment", ["dispatch:abc:0:1", "somebody else's"])
def test_the_site_s_own_script_runs_for_every_job(system_lab: Lab, comment: str) -> None:
    script = system_lab.folder / "site-epilog-slurmctld"
    script.write_text("#!/bin/sh\nexit 5\n")
    script.chmod(0o755)
    assert system_lab.run("epilog-slurmctld", SLURM_JOB_COMMENT=comment).status == 5
    assert system_lab.names() == (["end"] if comment.startswith("dispatch") else [])
