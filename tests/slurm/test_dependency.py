"""The text of dependencies: as squeue prints them, as scontrol takes them."""

from __future__ import annotations

import pytest

from slurm_dispatch.slurm.dependency import mentioned, moved, repeated


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("afterok:101(failed)", {101}),
        ("afterok:101(unfulfilled),afterany:102(unfulfilled)", {101, 102}),
        ("afterok:101:102+5?afternotok:103", {101, 102, 103}),
        ("after:101+10(unfulfilled)", {101}),
        ("singleton(unfulfilled)", set()),
        ("afterok:990_4(failed)", set()),
        ("afterok:990_*(unfulfilled)", set()),
        ("", set()),
    ],
)
def test_which_jobs_are_named(text: str, ids: set[int]) -> None:
    assert mentioned(text) == ids


@pytest.mark.parametrize(
    ("printed", "given"),
    [
        ("afterok:101(failed)", "afterok:150"),
        ("afterok:101(unfulfilled),afterany:7(unfulfilled)", "afterok:150,afterany:7"),
        ("afternotok:7(failed)?aftercorr:101(failed)", "afternotok:7?aftercorr:150"),
        ("after:101+10(unfulfilled),singleton(unfulfilled)", "after:150+10,singleton"),
        ("afterok:150(failed)", "afterok:150"),  # it was requeued: Slurm does not look again by itself
        ("afterok:150(unfulfilled)", None),
        ("afterok:1011(failed),afterok:10(failed)", None),
        ("afterok:101_4(failed)", None),
        ("singleton(unfulfilled)", None),
    ],
)
def test_an_id_that_was_replaced_is_moved_and_the_rest_stays(printed: str, given: str | None) -> None:
    """C083: every other condition stays, and nothing is changed where nothing names the job."""
    assert moved(printed, {101, 102}, 150) == given


@pytest.mark.parametrize(
    ("given", "left"),
    [
        ("afterok:101", "afterok:150"),
        ("afterok:101:7,singleton", "afterok:150:7,singleton"),
        ("afterok:90", ""),
        ("afterok:90:101", "afterok:150"),
        ("afterany:91,afterok:7", "afterok:7"),
        ("afterok:91", "afterok:91"),
        ("afternotok:91+5", ""),
        ("afterok:90?afterok:101", "afterok:90?afterok:150"),
        ("afterok:990_4", "afterok:990_4"),
    ],
)
def test_what_was_never_met_is_repeated(given: str, left: str) -> None:
    """C084: an id that a job of ours left behind becomes the one that it has; what is met meanwhile is left out,
    since Slurm may have forgotten it; what can never be met stays, and sbatch says so."""
    assert repeated(given, {101: 150}, {90: "completed", 91: "failed"}) == left
