"""The site's limits: whom each is about, and what several come to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_dispatch.config.limits import Bounds, Limit, Recent, bounds, resubmissions_left
from slurm_dispatch.model.outcome import Action

NOW = 1_000_000.0


@pytest.mark.parametrize(
    ("limit", "job", "about"),
    [
        (Limit(1), ("ada", "", ""), True),
        (Limit(1, user=("ada", "ben")), ("ben", "x", "y"), True),
        (Limit(1, user=("ada", "ben")), ("eve", "x", "y"), False),
        (Limit(1, account=("physics",)), ("ada", "physics", ""), True),
        (Limit(1, account=("physics",)), ("ada", "", ""), False),
        (Limit(1, partition=("gpu",)), ("ada", "", "cpu,gpu"), True),
        (Limit(1, partition=("gpu",)), ("ada", "", "gpu2"), False),
        (Limit(1, user=("ada",), partition=("gpu",)), ("ada", "", "cpu"), False),
        (Limit(1, user=("ada",), partition=("gpu",)), ("ada", "", "gpu"), True),
        (Limit(1, user=()), ("ada", "", ""), False),
    ],
)
def test_whom_a_limit_is_about(limit: Limit, job: tuple[str, str, str], about: bool) -> None:
    assert limit.names(*job) is about


def test_of_several_the_lowest_counts_and_says_its_number() -> None:
    limits = [
        Limit(1, longest_hold_s=500, open_jobs=7, resubmissions_per_hour=9, actions=("resubmit", "requeue")),
        Limit(2, user=("ada",), longest_hold_s=900, overlap=3, actions=("resubmit",)),
        Limit(3, user=("eve",), longest_hold_s=1, open_jobs=0, overlap=0, actions=()),
    ]
    found = bounds(limits, "ada", "", "")
    assert found == Bounds(frozenset({Action.RESUBMIT}), 500, 3, 7, found.places, 9)
    assert [found.place(name) for name in ("actions", "longest_hold_s", "overlap", "open_jobs")] == [
        "the site's limit 2", "the site's limit 1", "the site's limit 2", "the site's limit 1",
    ]  # fmt: skip
    assert bounds([], "ada", "", "") == Bounds(None, None, None, None)
    assert bounds(limits, "eve", "", "").actions == frozenset()


def test_resubmissions_of_the_last_hour_are_counted() -> None:
    recent = [
        Recent(NOW - 3601, "ada", "", "gpu"),
        Recent(NOW - 3599, "ada", "", "gpu"),
        Recent(NOW - 1, "ada", "", "cpu"),
        Recent(NOW - 1, "ben", "", "gpu"),
    ]

    def left(*limits: Limit, user: str = "ada") -> int | None:
        return resubmissions_left(limits, recent, user, "", "gpu", now=NOW)

    assert left() is None
    assert left(Limit(1, overlap=1)) is None
    assert left(Limit(1, resubmissions_per_hour=5)) == 3
    assert left(Limit(1, resubmissions_per_hour=5, per="all")) == 2
    assert left(Limit(1, resubmissions_per_hour=5, partition=("gpu",))) == 4
    assert left(Limit(1, resubmissions_per_hour=5, partition=("gpu",), per="all")) == 3
    assert left(Limit(1, resubmissions_per_hour=1, per="all")) == 0
    assert left(Limit(1, resubmissions_per_hour=5), Limit(2, resubmissions_per_hour=2)) == 0
    assert left(Limit(1, resubmissions_per_hour=5, user=("ben",))) is None
    assert left(Limit(1, resubmissions_per_hour=5, user=("ben",)), user="ben") == 4


@given(st.lists(st.builds(Limit, st.just(1), longest_hold_s=st.none() | st.integers(60, 9999))), st.integers(0, 3))
def test_more_limits_never_allow_more(limits: list[Limit], count: int) -> None:
    """Bounds only narrow: what all allow, the first few allow too."""
    few, every = bounds(limits[:count], "ada", "", ""), bounds(limits, "ada", "", "")
    assert few.longest_hold_s is None or (every.longest_hold_s or 0) <= few.longest_hold_s
