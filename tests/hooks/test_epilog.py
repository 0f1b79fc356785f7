"""Epilog: it names the execution that ran, by Prolog's file, whatever Slurm tells it."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from tests.hooks.lab import START, SYSTEM_PYTHON, Lab, waiting

if TYPE_CHECKING:
    from pathlib import Path

NAME = f"7.{START}"
ORPHAN = {
    "SLURM_JOB_COMMENT": None,
    "SLURM_JOB_START_TIME": None,
    "SLURM_JOB_RESTART_COUNT": None,
    "SLURM_JOB_UID": "0",
    "SLURM_JOB_USER": "root",
}
"""What an Epilog is given for a job that the controller has forgotten."""
OWNER = str(1_200_000_000 + os.getpid())
"""A user with no process on this machine, whoever else runs these tests on it."""


def prolog(lab: Lab, **changes: str | None) -> str:
    """Start an execution on the node; its attempt."""
    before = set(lab.files())
    assert lab.run("prolog", SLURM_JOB_UID=OWNER, **changes).status == 0
    name, *_ = sorted(set(lab.files()) - before)  # a component's own stands after the common one
    lines = (lab.run_folder / name).read_text().splitlines()
    return next(line.partition("=")[2] for line in lines if line.startswith("DISPATCH_ATTEMPT="))


def test_a_clean_end_is_noted_and_the_file_goes(lab: Lab) -> None:
    attempt = prolog(lab)
    ended = lab.run("epilog")
    assert (ended.status, ended.stdout, ended.stderr) == (0, b"", b"")
    assert lab.files() == []
    note = lab.note(f"node.abc.0.1.7.{attempt}.c1.*")
    assert note.pop("at") > START
    assert note.pop("boot")
    assert note == {
        "v": 1,
        "job": "abc",
        "generation": 0,
        "submission": 1,
        "shared": False,
        "cluster": "lab",
        "slurm_job_id": 7,
        "attempt": attempt,
        "epoch": "1000000",
        "node": "c1",
        "clean": True,
        "left": [],
        "start_time": START,
        "verified": True,
        "how": "scan",
    }


@pytest.mark.parametrize("seen", ["0", "1", "5", None])
def test_the_restart_count_that_it_is_given_names_nothing(lab: Lab, seen: str | None) -> None:
    """In the epilogs that count is already the next one's in some paths and not in others."""
    attempt = prolog(lab)
    lab.run("epilog", SLURM_JOB_RESTART_COUNT=seen)
    note = lab.note("node.*")
    assert (note["attempt"], note["epoch"], note["verified"]) == (attempt, "1000000", True)


def test_a_comment_that_was_edited_or_removed_changes_nothing(lab: Lab) -> None:
    attempt = prolog(lab)
    lab.run("epilog", SLURM_JOB_COMMENT="dispatch:evil:0:9")
    assert lab.note("node.*")["attempt"] == attempt
    attempt = prolog(lab, SLURM_JOB_START_TIME=str(START + 5))
    lab.run("epilog", SLURM_JOB_START_TIME=str(START + 5), SLURM_JOB_COMMENT=None)
    assert lab.note(f"node.abc.0.1.7.{attempt}.*")["attempt"] == attempt
    assert lab.files() == []


def test_it_ends_only_the_file_of_its_own_start_time(lab: Lab) -> None:
    """A late Epilog, beside the Prolog of the next execution."""
    old = prolog(lab)
    new = prolog(lab, SLURM_JOB_START_TIME=str(START + 60), SLURM_JOB_RESTART_COUNT="1")
    lab.run("epilog", SLURM_JOB_RESTART_COUNT="1")
    assert lab.files() == [f"7.{START + 60}"]
    assert lab.note("node.*")["attempt"] == old != new


def test_run_again_it_leaves_no_second_note(lab: Lab) -> None:
    prolog(lab)
    for _ in range(3):
        assert lab.run("epilog").status == 0
    assert lab.names() == ["node"]


def test_where_prolog_never_ran_it_invents_nothing(lab: Lab) -> None:
    assert lab.run("epilog").status == 0
    prolog(lab, SLURM_JOB_START_TIME=str(START + 60))
    assert lab.run("epilog").status == 0
    assert lab.names() == []
    assert lab.files() == [f"7.{START + 60}"]


def test_a_job_that_the_controller_has_forgotten_is_known_by_its_file(lab: Lab) -> None:
    attempt = prolog(lab)
    assert lab.run("epilog", **ORPHAN).status == 0
    note = lab.note("node.*")
    assert (note["attempt"], note["start_time"], note["verified"]) == (attempt, START, False)
    assert note["clean"] is True
    assert lab.files() == []


def test_of_two_executions_the_older_one_is_the_forgotten_one(lab: Lab) -> None:
    old = prolog(lab)
    prolog(lab, SLURM_JOB_START_TIME=str(START + 60), SLURM_JOB_RESTART_COUNT="1")
    lab.run("epilog", **ORPHAN)
    assert lab.note("node.*")["attempt"] == old
    assert lab.files() == [f"7.{START + 60}"]


def test_a_guessed_file_stays_while_something_of_its_execution_runs(system_lab: Lab) -> None:
    """The id of a forgotten job can be a new job's already, whose tasks still need the file."""
    with waiting({"DISPATCH_ATTEMPT": prolog(system_lab)}) as worker:
        system_lab.run("epilog", **ORPHAN)
    note = system_lab.note("node.*")
    assert (note["clean"], note["left"]) == (False, [worker.pid])
    assert system_lab.files() == [NAME]


def test_a_process_that_is_left_is_named_and_lives_on(lab: Lab) -> None:
    """C163: survivors are reported; the hook kills nothing."""
    with waiting({"DISPATCH_ATTEMPT": prolog(lab)}) as worker:
        lab.run("epilog")
        assert worker.poll() is None
    note = lab.note("node.*")
    assert (note["clean"], note["left"]) == (False, [worker.pid])
    assert lab.files() == []


@pytest.mark.parametrize("seen", ["0", "1"])
def test_without_start_times_the_file_that_is_there_is_taken_unverified(lab: Lab, seen: str) -> None:
    """Slurm 22.05."""
    attempt = prolog(lab, SLURM_JOB_START_TIME=None)
    lab.run("epilog", SLURM_JOB_START_TIME=None, SLURM_JOB_RESTART_COUNT=seen)
    note = lab.note("node.*")
    assert (note["attempt"], note["start_time"], note["verified"]) == (attempt, None, False)
    assert lab.files() == []


def test_without_start_times_a_late_epilog_leaves_the_next_execution_s_file(lab: Lab) -> None:
    prolog(lab, SLURM_JOB_START_TIME=None, SLURM_JOB_RESTART_COUNT="1")
    lab.run("epilog", SLURM_JOB_START_TIME=None, SLURM_JOB_RESTART_COUNT="0")
    assert lab.names() == []
    assert lab.files() == ["7.0"]


def test_a_component_is_known_by_the_leader_s_id(lab: Lab) -> None:
    component = {"SLURM_JOB_ID": "12", "SLURM_HET_JOB_ID": "11"}
    attempt = prolog(lab, **component)
    lab.run("epilog", **component)
    assert lab.note(f"node.abc.0.1.12.{attempt}.*")["slurm_job_id"] == 12
    assert lab.files() == []


LEADER = {"SLURM_JOB_ID": "11", "SLURM_HET_JOB_ID": "11"}
COMPONENT = {"SLURM_JOB_ID": "12", "SLURM_HET_JOB_ID": "11"}


@pytest.mark.parametrize("order", [(LEADER, COMPONENT), (COMPONENT, LEADER)])
@pytest.mark.parametrize("start", [str(START), None])
def test_components_that_share_node_and_start_time_are_noted_each(
    lab: Lab, order: tuple[dict[str, str], ...], start: str | None
) -> None:
    for component in (LEADER, COMPONENT):
        assert lab.run("prolog", **component, SLURM_JOB_UID=OWNER, SLURM_JOB_START_TIME=start).status == 0
    common = f"11.{start or 0}"
    assert lab.files() == [common, f"{common}.11", f"{common}.12"]
    lab.run("epilog", **order[0], SLURM_JOB_START_TIME=start)
    # The other one's tasks still find it.
    assert lab.files() == [common, f"{common}.{order[1]['SLURM_JOB_ID']}"]
    for _ in range(2):
        lab.run("epilog", **order[1], SLURM_JOB_START_TIME=start)
        assert lab.files() == []
    assert lab.names() == ["node", "node"]
    first, second = (lab.note(f"node.abc.0.1.{component['SLURM_JOB_ID']}.*") for component in order)
    assert first["attempt"] == second["attempt"]
    assert {first["verified"], second["verified"]} == {start is not None}


def test_a_component_that_the_controller_has_forgotten_is_known_by_its_own_file(lab: Lab) -> None:
    for component in (LEADER, COMPONENT):
        lab.run("prolog", **component, SLURM_JOB_UID=OWNER)
    lab.run("epilog", SLURM_JOB_ID="12", **ORPHAN)
    assert lab.files() == [f"11.{START}", f"11.{START}.11"]
    lab.run("epilog", SLURM_JOB_ID="11", **ORPHAN)
    assert lab.files() == []
    assert {lab.note(f"node.abc.0.1.{job}.*")["verified"] for job in (11, 12)} == {False}


def test_another_user_s_files_are_left_out_of_account(lab: Lab) -> None:
    """Only the owner's own other jobs excuse a process of his."""
    prolog(lab)
    (lab.run_folder / "8.1").write_text("not an execution file")
    (lab.run_folder / "9.1").symlink_to("/dev/zero")
    os.mkfifo(lab.run_folder / "10.1")
    lab.run("epilog")
    assert lab.note("node.*")["clean"] is True
    assert lab.files() == ["10.1", "8.1", "9.1"]


@pytest.mark.parametrize("kind", ["link", "fifo", "garbage", "empty"])
def test_a_planted_file_is_removed_and_never_followed(system_lab: Lab, kind: str) -> None:
    system_lab.run_folder.mkdir()
    planted, victim = system_lab.run_folder / NAME, system_lab.folder / "victim"
    victim.write_text("DISPATCH_EXECUTION=1\n")
    if kind == "link":
        planted.symlink_to(victim)
    elif kind == "fifo":
        os.mkfifo(planted)
    else:
        planted.write_bytes(b"" if kind == "empty" else b"\xff\n" * 9)
    assert system_lab.run("epilog").status == 0
    assert system_lab.names() == []
    assert victim.read_text() == "DISPATCH_EXECUTION=1\n"
    assert kind == "link" or system_lab.files() == []


def test_the_note_is_written_as_slurmuser(open_tmp: Path) -> None:
    """C125: root is squashed on a shared filesystem, so it never writes there itself."""
    system_lab = Lab(open_tmp, python=SYSTEM_PYTHON)
    os.chown(system_lab.notes, 65533, 65532)
    system_lab.configure(slurm_user="65533")
    prolog(system_lab)
    system_lab.run("epilog")
    (path,) = system_lab.notes.iterdir()
    assert path.stat().st_uid == 65533
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("trouble", ["not set", "not there", "a file", "no permission"])
def test_where_the_notes_are_out_of_reach_the_note_goes_to_the_spool(system_lab: Lab, trouble: str) -> None:
    attempt = prolog(system_lab)
    if trouble == "not set":
        system_lab.conf.write_text(f"spool={system_lab.spool}\n")
    elif trouble == "not there":
        system_lab.configure(notes=str(system_lab.folder / "nowhere"))
    elif trouble == "a file":
        system_lab.configure(notes=str(system_lab.conf))
    else:
        system_lab.configure(slurm_user="65533")
    assert system_lab.run("epilog").status == 0
    assert system_lab.names() == []
    (path,) = system_lab.spool.iterdir()
    assert path.name.startswith(f"node.abc.0.1.7.{attempt}.c1.")
    assert json.loads(path.read_bytes())["clean"] is True
    assert system_lab.spool.stat().st_mode & 0o7777 == 0o700
    assert system_lab.files() == []


def test_notes_in_the_spool_go_on_when_the_folder_is_back(lab: Lab) -> None:
    away = lab.folder / "away"
    lab.notes.rename(away)
    attempts = [prolog(lab, SLURM_JOB_ID=job) for job in ("8", "9")]
    for job in ("8", "9"):
        lab.run("epilog", SLURM_JOB_ID=job)
    spooled = {path.name: path.read_bytes() for path in lab.spool.iterdir()}
    assert len(spooled) == 2
    away.rename(lab.notes)
    attempts.append(prolog(lab))
    lab.run("epilog")
    assert list(lab.spool.iterdir()) == []
    found = {path.name: path.read_bytes() for path in lab.notes.iterdir()}
    assert spooled.items() < found.items()
    assert sorted(json.loads(note)["attempt"] for note in found.values()) == sorted(attempts)


def test_one_epilog_hands_on_so_many_and_the_oldest_first(system_lab: Lab) -> None:
    system_lab.spool.mkdir(mode=0o700)
    names = [f"node.abc.0.1.{job}.a.c1.{100 + job}" for job in range(1, 41)]
    for name in names:
        (system_lab.spool / name).write_text("{}\n")
    (system_lab.spool / ".tmp-x").touch()
    for left in (names[32:], []):
        prolog(system_lab)
        system_lab.run("epilog")
        assert sorted(path.name for path in system_lab.spool.iterdir()) == [".tmp-x", *left]
    assert {path.name for path in system_lab.notes.iterdir()} > set(names)


@pytest.mark.parametrize("planted", ["link", "folder", "another user's"])
def test_a_spool_that_is_not_the_hook_s_hands_nothing_on(open_tmp: Path, planted: str) -> None:
    lab = Lab(open_tmp, python=SYSTEM_PYTHON)
    lab.spool.mkdir()
    if planted == "folder":
        (lab.spool / "node.x.0.1.1.a.c1.1").mkdir()
    else:
        (lab.spool / "node.x.0.1.1.a.c1.1").write_text("{}\n")
    if planted == "link":
        lab.spool.rename(open_tmp / "elsewhere")
        lab.spool.symlink_to(open_tmp / "elsewhere")
    if planted == "another user's":
        os.chown(lab.spool, 65533, 65533)
    prolog(lab)
    assert lab.run("epilog").status == 0
    assert lab.names() == ["node"]
    assert lab.note("node.*")["job"] == "abc"
    assert len(list(lab.spool.iterdir())) == 1


def test_what_the_folder_does_not_take_stays_in_the_spool(system_lab: Lab) -> None:
    """A note is removed from the spool only once it is where it belongs."""
    system_lab.spool.mkdir(mode=0o700)
    names = [f"node.abc.0.1.{job}.a.c1.{100 + job}" for job in range(1, 4)]
    for name in names:
        (system_lab.spool / name).write_text(name)
    # The second of them is longer than the hook may write.
    (system_lab.spool / names[1]).write_text("x" * 40000)
    prolog(system_lab)
    limited = ["/bin/sh", "-c", 'ulimit -f 20; exec "$@"', "sh"]
    assert system_lab.run("epilog", before=limited).status == 0
    assert sorted(path.name for path in system_lab.spool.iterdir()) == names[1:]
    assert min(path.name for path in system_lab.notes.iterdir()) == names[0]


@pytest.mark.parametrize("name", ["a/../b", "c1\n", "x" * 300, "é", "", None])
def test_a_node_s_name_fits_into_a_file_s_name(system_lab: Lab, name: str | None) -> None:
    prolog(system_lab)
    system_lab.run("epilog", SLURMD_NODENAME=name)
    (path,) = system_lab.notes.iterdir()
    assert path.name.startswith("node.abc.0.1.7.")
    assert path.name.isascii()
    assert json.loads(path.read_bytes())["node"]


def test_what_killed_prologs_left_unfinished_is_swept(system_lab: Lab) -> None:
    prolog(system_lab)
    for name, age in (("old", 4000), ("young", 10)):
        path = system_lab.run_folder / f".tmp-{name}"
        path.touch()
        moment = path.stat().st_mtime - age
        os.utime(path, (moment, moment))
    system_lab.run("epilog")
    assert system_lab.files() == [".tmp-young"]
