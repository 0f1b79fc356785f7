"""The state folder: which jobs there are, whose they are, and what is not one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from slurm_dispatch.errors import NotAllowedError, ServiceAwayError
from slurm_dispatch.state.folder import JobFolder, StateFolder, make_state
from tests.records.life import KEY, make_spec

ME = os.getuid()


@pytest.fixture
def folder(tmp_path: Path) -> StateFolder:
    make_state(str(tmp_path / "state"), slurm_uid=ME, slurm_gid=os.getgid())
    return StateFolder(str(tmp_path / "state"), slurm_uid=ME)


def test_a_state_folder_has_the_modes_that_it_must_have(folder: StateFolder) -> None:
    modes = {name: (Path(folder.path) / name).stat().st_mode & 0o7777 for name in ("jobs", "notes", "tick")}
    assert modes == {"jobs": 0o1777, "notes": 0o700, "tick": 0o755}
    (Path(folder.path) / "notes" / "n").write_text("")
    make_state(folder.path, slurm_uid=ME, slurm_gid=os.getgid())
    assert (Path(folder.path) / "notes" / "n").exists()


def test_jobs_are_real_folders_with_the_name_of_a_key(folder: StateFolder) -> None:
    jobs = Path(folder.jobs_folder)
    folder.create_job(make_spec(), b"", b"", by="me")
    (jobs / "zfile").write_text("")
    (jobs / "zlink").symlink_to(jobs / KEY)
    (jobs / "Not-a-key").mkdir()
    (jobs / "zempty").mkdir()
    os.mkfifo(jobs / "zfifo")
    assert folder.jobs() == [JobFolder(KEY, ME), JobFolder("zempty", ME)]


@pytest.mark.skipif(ME != 0, reason="only root can make a folder of another's; the suite runs as root in CI")
def test_the_owner_of_the_folder_is_whose_job_it_is(folder: StateFolder) -> None:
    os.mkdir(os.path.join(folder.jobs_folder, "other"))
    os.chown(os.path.join(folder.jobs_folder, "other"), 4321, 4321)
    assert folder.jobs() == [JobFolder("other", 4321)]


def test_a_jobs_folder_where_anybody_may_remove_is_refused(folder: StateFolder) -> None:
    Path(folder.jobs_folder).chmod(0o777)
    with pytest.raises(NotAllowedError, match="mode 0777"):
        StateFolder(folder.path)
    Path(folder.jobs_folder).chmod(0o700)
    StateFolder(folder.path)


@pytest.mark.skipif(ME != 0, reason="only root can give a folder away; the suite runs as root in CI")
def test_a_folder_of_somebody_else_is_refused(folder: StateFolder) -> None:
    os.chown(folder.jobs_folder, 4321, 4321)
    with pytest.raises(NotAllowedError, match="belongs to uid 4321"):
        StateFolder(folder.path, slurm_uid=4322)
    os.chown(os.path.join(folder.path, "notes"), 4321, 4321)
    with pytest.raises(NotAllowedError, match="notes belongs to uid 4321"):
        folder.notes()


def test_notes_that_others_can_reach_are_refused(folder: StateFolder) -> None:
    folder.notes()
    (Path(folder.path) / "notes").chmod(0o750)
    with pytest.raises(NotAllowedError, match="mode 0750"):
        folder.notes()


def test_a_state_folder_that_is_not_there_is_a_service_that_is_away(tmp_path: Path) -> None:
    with pytest.raises(ServiceAwayError) as caught:
        StateFolder(str(tmp_path / "none"))
    assert "is the shared filesystem mounted" in caught.value.line()
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "jobs").symlink_to(tmp_path)
    with pytest.raises(NotAllowedError, match="not a real directory"):
        StateFolder(str(tmp_path / "state"))


def test_a_job_whose_making_was_cut_short_is_swept_after_a_while(folder: StateFolder) -> None:
    record = folder.create_job(make_spec(), b"", b"", by="me")
    half = folder.create_job(make_spec(job="half"), b"s", b"e", by="me")
    os.unlink(os.path.join(half.facts_folder, "0000000001"))
    strange = Path(folder.jobs_folder) / "strange"
    strange.mkdir()
    (strange / "mine").write_text("precious")
    assert folder.sweep_unfinished(ME) == 0
    for path in (record.folder, half.folder, str(strange)):
        os.utime(path, (1, 1))
    assert folder.sweep_unfinished(ME + 1) == 0
    assert folder.sweep_unfinished(ME) == 1
    assert [job.key for job in folder.jobs()] == [KEY, "strange"]
    assert (strange / "mine").read_text() == "precious"


def test_the_last_tick_is_told(folder: StateFolder) -> None:
    assert folder.last_tick() is None
    folder.tick_done(1_700_000_000.0)
    assert folder.last_tick() == 1_700_000_000.0
    folder.tick_done()
    last = folder.last_tick()
    assert last is not None
    assert last > 1_700_000_000.0
