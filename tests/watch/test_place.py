"""Which execution this is, from the environment alone."""

from __future__ import annotations

import pytest

from slurm_dispatch.errors import ConfigurationError, NotAllowedError, UsageError
from slurm_dispatch.watch.place import find_place, variables

MANAGED = {
    "DISPATCH_JOB": "abc",
    "DISPATCH_EPOCH": "1000002000003",
    "DISPATCH_ATTEMPT": "att",
    "DISPATCH_CHECKPOINT": "/root/of/job",
}
SLURM = {"SLURM_JOB_ID": "42", "SLURM_CLUSTER_NAME": "c", "SLURM_JOB_START_TIME": "1700000000"}


def test_managed() -> None:
    place = find_place(MANAGED | SLURM, root=None, require_managed=True)
    assert (place.job, place.epoch, place.attempt, place.root) == ("abc", 1000002000003, "att", "/root/of/job")
    assert (place.generation, place.rank, place.tasks, place.slurm_job, place.slurm_step) == (1, 0, 1, "42", None)
    assert find_place(MANAGED, root="/other").root == "/other"


def test_a_rank() -> None:
    place = find_place(
        MANAGED | SLURM | {"SLURM_STEP_ID": "3", "SLURM_PROCID": "2", "SLURM_STEP_NUM_TASKS": "4"}, root=None
    )
    assert (place.rank, place.tasks, place.slurm_step, place.first) == (2, 4, "3", False)


def test_the_batch_script_is_no_step() -> None:
    """Slurm 26.05 gives it a step's number, -5, and task 0; older ones give it none."""
    script = {"SLURM_STEP_ID": "-5", "SLURM_STEPID": "-5", "SLURM_PROCID": "0", "SLURM_TASKS_PER_NODE": "2"}
    place = find_place(MANAGED | SLURM | script, root=None)
    assert (place.rank, place.tasks, place.slurm_step, place.first) == (0, 1, None, True)


def test_outside_slurm_a_rank_means_nothing() -> None:
    """Stale variables of another job in a login shell do not make a process a follower."""
    assert find_place({"SLURM_PROCID": "3"}, root="/r").first


def test_what_dispatch_env_says_of_an_unmanaged_run() -> None:
    """After eval of its lines a helper on a workstation is in that execution; a job inside has its own."""
    said = {"DISPATCH_EPOCH": "0", "DISPATCH_ATTEMPT": "said"}
    place = find_place(said, root="/r")
    assert (place.job, place.epoch, place.attempt) == (None, 0, "said")
    assert find_place(said | SLURM, root="/r").attempt == find_place(SLURM, root="/r").attempt != "said"
    with pytest.raises(ConfigurationError, match="DISPATCH_ATTEMPT"):
        find_place(said | {"DISPATCH_ATTEMPT": "../x"}, root="/r")


@pytest.mark.parametrize("name", ["DISPATCH_JOB", "DISPATCH_EPOCH", "DISPATCH_ATTEMPT"])
def test_a_part_is_missing(name: str) -> None:
    environment = {key: value for key, value in MANAGED.items() if key != name}
    with pytest.raises(ConfigurationError, match=f"{name}"):
        find_place(environment, root=None)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DISPATCH_JOB", "A/b"),
        ("DISPATCH_EPOCH", "0"),
        ("DISPATCH_EPOCH", "01"),
        ("DISPATCH_EPOCH", "12x"),
        ("DISPATCH_EPOCH", "99999999999999999999"),
        ("DISPATCH_ATTEMPT", "../x"),
        ("DISPATCH_ATTEMPT", "a\nb"),
        ("DISPATCH_CHECKPOINT", "relative"),
    ],
)
def test_a_part_is_wrong(name: str, value: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        find_place(MANAGED | {name: value}, root=None)
    assert "\n" not in caught.value.line()
    assert caught.value.exit_code == 78


def test_not_managed() -> None:
    one, other = find_place({}, root="/r"), find_place({}, root="/r")
    assert (one.job, one.epoch) == (None, 0)
    assert one.attempt != other.attempt


def test_not_managed_in_slurm_is_the_same_on_every_rank_and_new_in_every_execution() -> None:
    one = find_place(SLURM | {"SLURM_PROCID": "0", "SLURM_STEP_ID": "0"}, root="/r")
    other = find_place(SLURM | {"SLURM_PROCID": "1", "SLURM_STEP_ID": "0"}, root="/r")
    assert one.attempt == other.attempt
    assert find_place(SLURM | {"SLURM_RESTART_COUNT": "1"}, root="/r").attempt != one.attempt
    assert find_place(SLURM | {"SLURM_JOB_START_TIME": "1700000001"}, root="/r").attempt != one.attempt


def test_managed_is_required() -> None:
    with pytest.raises(NotAllowedError) as outside:
        find_place({}, root="/r", require_managed=True)
    assert outside.value.exit_code == 77
    with pytest.raises(ConfigurationError) as inside:
        find_place(SLURM, root="/r", require_managed=True)
    assert inside.value.exit_code == 78


def test_no_root() -> None:
    with pytest.raises(UsageError, match="checkpoint root"):
        find_place({}, root=None)


def test_a_root_in_s3() -> None:
    with pytest.raises(UsageError, match="s3://bucket/run") as caught:
        find_place({}, root="s3://bucket/run")
    assert "--from DIR" in caught.value.line()
    step = {"SLURM_STEP_ID": "0", "SLURM_LOCALID": "3"}
    place = find_place(SLURM | step, root="s3://bkt/p/", local="/d", remote=True)
    assert (place.root, place.local, place.local_rank) == ("s3://bkt/p", "/d", 3)
    with pytest.raises(UsageError, match="the command saves into it"):
        find_place({}, root="/r", local="/d", remote=True)
    with pytest.raises(UsageError, match="names no bucket"):
        find_place({}, root="s3://", remote=True)
    with pytest.raises(UsageError, match="a shared checkpoint is a folder"):
        find_place({"SLURM_DISPATCH_SHARED": "1"}, root="s3://bkt/p", remote=True)


def test_resume_is_never_empty() -> None:
    """C091: on a first start the resume variable is not there at all."""
    place = find_place(MANAGED, root=None)
    first = variables(place, "/d", None, None)
    assert not [name for name in first if "RESUME" in name]
    later = variables(place, "/d", "/s", 7)
    assert (later["DISPATCH_RESUME"], later["SLURM_DISPATCH_RESUME_STEP"]) == ("/s", "7")
    assert "DISPATCH_RESUME_STEP" not in variables(place, "/d", "/s", None)
