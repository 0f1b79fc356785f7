"""Prolog: the execution file, whole, root's own, in place of whatever was planted."""

from __future__ import annotations

import os

import pytest

from slurm_dispatch.model.identity import Word, attempt_of
from tests.hooks.lab import START, Lab

NAME = f"7.{START}"


def lines(lab: Lab, name: str = NAME) -> dict[str, str]:
    text = (lab.run_folder / name).read_text()
    assert text.endswith("\n")
    assert text.startswith("DISPATCH_EXECUTION=1\n")
    return dict(line.split("=", 1) for line in text.splitlines())


def test_the_file_says_who_the_execution_is(lab: Lab) -> None:
    ended = lab.run("prolog")
    assert (ended.status, ended.stdout, ended.stderr) == (0, b"", b"")
    assert lab.files() == [NAME]
    assert lines(lab) == {
        "DISPATCH_EXECUTION": "1",
        "DISPATCH_JOB": "abc",
        "DISPATCH_EPOCH": "1000000",
        "DISPATCH_ATTEMPT": attempt_of("lab", 7, Word("abc", 0, 1), 0, START),
        "WORD": "dispatch:abc:0:1",
        "JOB_ID": "7",
        "START_TIME": str(START),
        "RESTART": "0",
        "NODES": "c[1-2]",
        "UID": "54321",
    }
    assert (lab.run_folder / NAME).stat().st_mode & 0o7777 == 0o644
    assert lab.run_folder.stat().st_mode & 0o7777 == 0o755


def test_the_gate_and_the_node_name_the_execution_alike(lab: Lab) -> None:
    lab.run("prolog-slurmctld", SLURM_JOB_RESTART_COUNT="3")
    lab.run("prolog", SLURM_JOB_RESTART_COUNT="3")
    note = lab.note("start.*")
    assert lines(lab)["DISPATCH_ATTEMPT"] == note["attempt"]
    assert lines(lab)["DISPATCH_EPOCH"] == note["epoch"] == "1000003"


def test_each_execution_has_a_file_of_its_own(lab: Lab) -> None:
    lab.run("prolog")
    lab.run("prolog", SLURM_JOB_RESTART_COUNT="1", SLURM_JOB_START_TIME=str(START + 50))
    assert lab.files() == [NAME, f"7.{START + 50}"]
    first, second = lines(lab), lines(lab, f"7.{START + 50}")
    assert first["DISPATCH_ATTEMPT"] != second["DISPATCH_ATTEMPT"]
    assert int(second["DISPATCH_EPOCH"]) == int(first["DISPATCH_EPOCH"]) + 1


def test_without_a_start_time_the_next_execution_s_file_replaces(lab: Lab) -> None:
    """Slurm 22.05: its Prolog has the older name of the node list only."""
    given = {"SLURM_JOB_START_TIME": None, "SLURM_JOB_NODELIST": None, "SLURM_NODELIST": "n1"}
    lab.run("prolog", **given)
    lab.run("prolog", **given, SLURM_JOB_RESTART_COUNT="1")
    assert lab.files() == ["7.0"]
    assert lines(lab, "7.0")["RESTART"] == "1"
    assert lines(lab, "7.0")["NODES"] == "n1"
    assert lines(lab, "7.0")["DISPATCH_ATTEMPT"] == attempt_of("lab", 7, Word("abc", 0, 1), 1, None)


def test_a_component_s_file_has_the_leader_s_id(lab: Lab) -> None:
    lab.run("prolog", SLURM_JOB_ID="12", SLURM_HET_JOB_ID="11", SLURM_JOB_START_TIME=str(START + 1))
    assert lab.files() == [f"11.{START + 1}", f"11.{START + 1}.12"]
    assert lines(lab, f"11.{START + 1}") == lines(lab, f"11.{START + 1}.12")
    fields = lines(lab, f"11.{START + 1}")
    assert fields["JOB_ID"] == "11"
    assert fields["DISPATCH_ATTEMPT"] == attempt_of("lab", 11, Word("abc", 0, 1), 0, None)


@pytest.mark.parametrize(("restart", "refused"), [("0", False), ("1", True)])
def test_only_a_second_execution_of_a_shared_job_is_marked(lab: Lab, restart: str, refused: bool) -> None:
    lab.run("prolog", SLURM_JOB_COMMENT="dispatch:abc:0:1:s", SLURM_JOB_RESTART_COUNT=restart)
    assert (lines(lab).get("REFUSE") == "1") == refused


@pytest.mark.parametrize("kind", ["link to a file", "dangling link", "fifo", "file", "socket name"])
def test_what_is_planted_under_the_name_is_replaced_and_never_followed(system_lab: Lab, kind: str) -> None:
    system_lab.run_folder.mkdir(mode=0o755)
    planted, victim = system_lab.run_folder / NAME, system_lab.folder / "victim"
    victim.write_text("precious")
    if kind == "link to a file":
        planted.symlink_to(victim)
    elif kind == "dangling link":
        planted.symlink_to(system_lab.folder / "made")
    elif kind == "fifo":
        os.mkfifo(planted)
    elif kind == "file":
        os.link(victim, planted)
    else:
        planted.symlink_to("/dev/zero")
    assert system_lab.run("prolog").status == 0
    assert lines(system_lab)["DISPATCH_JOB"] == "abc"
    assert not planted.is_symlink()
    assert victim.read_text() == "precious"
    assert not (system_lab.folder / "made").exists()
    assert system_lab.files() == [NAME]


def test_a_planted_folder_is_left_alone(system_lab: Lab) -> None:
    (system_lab.run_folder / NAME / "deep").mkdir(parents=True)
    assert system_lab.run("prolog").status == 0
    assert system_lab.files() == [NAME]
    assert (system_lab.run_folder / NAME / "deep").is_dir()


@pytest.mark.parametrize("kind", ["link", "file", "fifo", "another user's"])
def test_a_folder_that_is_not_our_own_is_not_used(system_lab: Lab, kind: str) -> None:
    elsewhere = system_lab.folder / "elsewhere"
    elsewhere.mkdir()
    if kind == "link":
        system_lab.run_folder.symlink_to(elsewhere)
    elif kind == "file":
        system_lab.run_folder.touch()
    elif kind == "fifo":
        os.mkfifo(system_lab.run_folder)
    else:
        system_lab.run_folder.mkdir()
        os.chown(system_lab.run_folder, 54321, 54321)
    assert system_lab.run("prolog").status == 0
    assert list(elsewhere.iterdir()) == []
    assert kind != "another user's" or system_lab.files() == []


def test_a_folder_that_others_could_write_into_is_closed(system_lab: Lab) -> None:
    system_lab.run_folder.mkdir()
    system_lab.run_folder.chmod(0o777)
    assert system_lab.run("prolog").status == 0
    assert system_lab.run_folder.stat().st_mode & 0o7777 == 0o755
    assert system_lab.files() == [NAME]


@pytest.mark.parametrize(
    "wrong",
    [
        {"SLURM_JOB_ID": "nonsense"},
        {"SLURM_JOB_ID": None},
        {"SLURM_JOB_ID": "0"},
        {"SLURM_JOB_ID": "../../x"},
        {"SLURM_JOB_RESTART_COUNT": "1000000"},
        {"SLURM_JOB_RESTART_COUNT": "-1"},
    ],
    ids=str,
)
def test_where_slurm_says_nonsense_there_is_no_file(system_lab: Lab, wrong: dict[str, str | None]) -> None:
    assert system_lab.run("prolog", **wrong).status == 0
    assert system_lab.files() == []
    assert system_lab.run("prolog-slurmctld", **wrong).status == 0
    assert system_lab.names() == []


def test_no_restart_count_is_the_first_execution_s(system_lab: Lab) -> None:
    assert system_lab.run("prolog", SLURM_JOB_RESTART_COUNT=None).status == 0
    assert lines(system_lab)["RESTART"] == "0"


SHARED = "dispatch:abc:0:1:s"


@pytest.mark.parametrize(
    ("first", "second", "refused"),
    [
        ({"SLURM_JOB_COMMENT": SHARED}, {"SLURM_JOB_COMMENT": SHARED}, True),
        # The id began again at 1: another submission.
        ({"SLURM_JOB_COMMENT": "dispatch:old:0:1:s"}, {"SLURM_JOB_COMMENT": SHARED}, False),
        ({"SLURM_JOB_COMMENT": SHARED, "SLURM_JOB_ID": "77"}, {"SLURM_JOB_COMMENT": SHARED}, False),
        ({}, {}, False),  # isolated: overlap is harmless
    ],
)
def test_one_restart_count_that_starts_twice_is_marked_for_a_shared_job(
    system_lab: Lab, first: dict[str, str], second: dict[str, str], refused: bool
) -> None:
    """Without PrologSlurmctld there is no other gate; an execution whose Epilog has not been here is evidence."""
    system_lab.run("prolog", **first)
    system_lab.run("prolog", **second, SLURM_JOB_START_TIME=str(START + 9))
    assert (lines(system_lab, f"7.{START + 9}").get("REFUSE") == "1") == refused


def test_a_prolog_that_runs_twice_for_one_start_marks_nothing(system_lab: Lab) -> None:
    for _ in range(2):
        system_lab.run("prolog", SLURM_JOB_COMMENT=SHARED)
    assert "REFUSE" not in lines(system_lab)


def test_a_broken_file_of_an_earlier_start_is_no_evidence(system_lab: Lab) -> None:
    system_lab.run_folder.mkdir(mode=0o755)
    (system_lab.run_folder / f"7.{START - 9}").write_text("nonsense")
    system_lab.run("prolog", SLURM_JOB_COMMENT=SHARED)
    assert "REFUSE" not in lines(system_lab)
