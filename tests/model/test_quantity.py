"""Durations, sizes and dates: one text, one meaning."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_dispatch.errors import BadDataError
from slurm_dispatch.model.quantity import (
    DURATION_S_MAX,
    SIZE_MB_MAX,
    duration,
    moment,
    parse_duration,
    parse_moment,
    parse_size,
    size,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

NOW = 1_800_000_000.0


@pytest.fixture(autouse=True)
def _zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two hours east of Greenwich, whatever the host."""
    monkeypatch.setenv("TZ", "XYZ-2")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("text", "seconds", "again"),
    [
        ("0s", 0, "0s"), ("30s", 30, "30s"), ("60s", 60, "1m"), ("90s", 90, "90s"), ("10m", 600, "10m"),
        ("24h", 86400, "24h"), ("2d", 172800, "48h"), ("72h", 259200, "3d"), ("3650d", DURATION_S_MAX, "3650d"),
    ],
)  # fmt: skip
def test_durations(text: str, seconds: float, again: str) -> None:
    assert (parse_duration(text), duration(seconds)) == (seconds, again)


@pytest.mark.parametrize(
    "text", ["", "30", "s", "1.5h", "-3s", "+3s", " 3s", "3s ", "3S", "03s", "1h30m", "٣s", "3651d", "9" * 30 + "s"]
)
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(BadDataError):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "megabytes", "again"),
    [("500M", 500, "500M"), ("64G", 65536, "64G"), ("1024G", 1048576, "1T"), ("1024T", SIZE_MB_MAX, "1024T")],
)
def test_sizes(text: str, megabytes: float, again: str) -> None:
    assert (parse_size(text), size(megabytes)) == (megabytes, again)


@pytest.mark.parametrize("text", ["", "64", "64K", "64g", "1.5G", "64GB", "1025T"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(BadDataError):
        parse_size(text)


@given(st.integers(0, int(DURATION_S_MAX)))
def test_the_text_of_a_duration_is_the_duration(seconds: int) -> None:
    assert parse_duration(duration(seconds)) == seconds


@given(st.integers(0, SIZE_MB_MAX))
def test_the_text_of_a_size_is_the_size(megabytes: int) -> None:
    assert parse_size(size(megabytes)) == megabytes


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2h", NOW + 7200),
        ("1970-01-02", 86400 - 7200),
        ("1970-01-02T03:00", 86400 + 3600),
        ("1970-01-02T03:00:30", 86400 + 3630),
        ("1970-01-02T03:00Z", 86400 + 3 * 3600),
        ("1970-01-02T03:00+05:00", 86400 - 7200),
    ],
)
def test_dates(text: str, seconds: float) -> None:
    """A date is the host's own, as it is for a person there."""
    assert parse_moment(text, NOW) == seconds


@pytest.mark.parametrize("text", ["", "soon", "2027-13-01", "31.1.2027", "2027-01-31T25:00", "1e9", "9999d", "Z"])
def test_what_is_no_date(text: str) -> None:
    with pytest.raises(BadDataError):
        parse_moment(text, NOW)


def test_a_moment_says_its_zone() -> None:
    assert moment(86400 + 60.5) == "1970-01-02 02:01 XYZ"
    assert moment(1e18) == "1000000000000000000"
