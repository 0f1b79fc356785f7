"""Epochs: one number that puts every execution of a job in order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_dispatch.errors import BadDataError
from slurm_dispatch.model.epoch import (
    EPOCH_MAX,
    GENERATION_MAX,
    RESTART_MAX,
    SUBMISSION_MAX,
    Epoch,
    parse_count,
    parse_epoch,
)
from tests.model.values import epochs


@given(epochs(), epochs())
def test_the_number_has_the_order_of_the_parts(one: Epoch, other: Epoch) -> None:
    assert (int(one) < int(other)) == ((one.generation, one.submission, one.restart) < (
        other.generation, other.submission, other.restart))  # fmt: skip
    assert (int(one) == int(other)) == (one == other)


@given(epochs())
def test_there_and_back(epoch: Epoch) -> None:
    assert Epoch.from_int(int(epoch)) == epoch
    assert parse_epoch(str(epoch)) == int(epoch)
    assert 0 < int(epoch) <= EPOCH_MAX < 2**63


@pytest.mark.parametrize(
    ("parts", "named"),
    [
        ((GENERATION_MAX + 1, 1, 0), "generation"),
        ((-1, 1, 0), "generation"),
        ((0, 0, 0), "submission"),
        ((0, SUBMISSION_MAX + 1, 0), "submission"),
        ((0, 1, RESTART_MAX + 1), "restart"),
        ((0, 1, -1), "restart"),
        ((True, 1, 0), "generation"),
    ],
)
def test_a_part_out_of_bounds_is_named(parts: tuple[int, int, int], named: str) -> None:
    with pytest.raises(BadDataError, match=named):
        Epoch(*parts)


@given(st.text("0123456789+-_ ٣²\n", max_size=21))
def test_only_the_canonical_decimal_is_read(text: str) -> None:
    try:
        number = parse_epoch(text)
    except BadDataError:
        return
    assert str(number) == text


@pytest.mark.parametrize("text", ["", "01", "+1", " 1", "1 ", "1_0", "٣", "1\n", "0x1", "-0", "9" * 21])
def test_what_int_would_take_is_refused(text: str) -> None:
    with pytest.raises(BadDataError):
        parse_count("epoch", text, EPOCH_MAX)


@pytest.mark.parametrize("number", [1, 999_999, 10**12, 10**12 + 5, EPOCH_MAX + 1])
def test_a_number_that_no_execution_has_is_refused(number: int) -> None:
    with pytest.raises(BadDataError):
        parse_epoch(str(number))


def test_unmanaged_is_below_all() -> None:
    assert parse_epoch("0") == 0 < int(Epoch(0, 1, 0))
