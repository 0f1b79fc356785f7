"""The bulk check is ``parse_name`` of each name, no more and no less."""

from __future__ import annotations

import base64

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from slurm_dispatch.errors import BadDataError
from slurm_dispatch.model.bulk import check_names, greatest_name
from slurm_dispatch.model.epoch import EPOCH_MAX
from slurm_dispatch.model.publication import STEP_MAX, Publication, parse_name
from tests.model.values import publications

GOOD = Publication(10**6, 5, b"exec/abc/kept/checkpoint-5").name


def _raw(path: bytes, epoch: str = "0" * 13 + "1000000", step: str = "0" * 20) -> str:
    return f"{epoch}-{step}-{base64.b32encode(path).decode().rstrip('=')}"


odd_paths = st.lists(
    st.sampled_from([b"a", b"/", b".", b"..", b"\0", b"\x01", b"exec", b"\xff", b"/./", b"//"]), max_size=12
).map(b"".join)
odd_numbers = st.one_of(
    st.integers(0, 10**20 - 1).map(lambda n: f"{n:020d}"),
    st.sampled_from([f"{n:020d}" for n in (0, 1, 999_999, 10**6, 10**12, EPOCH_MAX, EPOCH_MAX + 1)]),
    st.sampled_from([f"{n:020d}" for n in (STEP_MAX, STEP_MAX + 1, 9 * 10**18, 9 * 10**18 - 1)]),
    st.text("0123456789٣-", min_size=20, max_size=20),
)


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """A good name with one character taken, added or changed."""
    name = draw(publications()).name
    at = draw(st.integers(0, len(name)))
    put = draw(st.text("0A7B-/\nzé=", max_size=2))
    return name[:at] + put + name[at + draw(st.integers(0, 2)) :]


names = st.one_of(
    publications().map(lambda publication: publication.name),
    mutated(),
    st.builds(_raw, odd_paths, odd_numbers, odd_numbers),
    st.builds(lambda head, tail: f"{head}-{head}-{tail}", odd_numbers, st.text("AEQ27YZ", max_size=20)),
    st.text(max_size=80),
)


def _takes(name: str) -> bool:
    try:
        parse_name(name)
    except BadDataError:
        return False
    return True


@given(st.lists(names, max_size=12))
@example([_raw(b"a\0b"), _raw(b"abc")])
@example([_raw(b"a\0"), _raw(b"ab")])
@example([_raw(b"a/"), _raw(b"/a"), _raw(b".a")])
@example([GOOD, GOOD + "A", GOOD[:-1] + "B"])
@example([GOOD[1:] + "A", "0" + GOOD])
def test_equal_to_one_at_a_time(listed: list[str]) -> None:
    if all(map(_takes, listed)):
        check_names(listed)
        assert greatest_name(listed) == max(listed, default=None)
    else:
        with pytest.raises(BadDataError) as caught:
            check_names(listed)
        assert "publication" in str(caught.value)


@pytest.mark.parametrize("at", [0, 1023, 1024, 2047, 2999])
def test_one_among_many(at: int) -> None:
    """Wherever it stands: names are checked in parts."""
    listed = [Publication(10**6, step, b"exec/abc/kept/checkpoint").name for step in range(3000)]
    check_names(listed)
    listed[at] = listed[at][:-1] + "B"
    with pytest.raises(BadDataError, match=listed[at]):
        check_names(listed)


@given(odd_paths, st.integers(1, 3))
def test_every_path_beside_good_ones(path: bytes, many: int) -> None:
    listed = [GOOD, _raw(path), *[GOOD] * many]
    assert _takes(listed[1]) == _accepts(listed)


def _accepts(listed: list[str]) -> bool:
    try:
        check_names(listed)
    except BadDataError:
        return False
    return True


@given(st.lists(publications(), min_size=1))
def test_the_greatest_name_is_the_latest(many: list[Publication]) -> None:
    """C088, C089: order is epoch, then step, then the name's bytes, never anything else."""
    greatest = greatest_name([publication.name for publication in many])
    assert greatest is not None
    latest = max(many, key=lambda publication: (publication.epoch, publication.step, publication.name))
    assert greatest == latest.name
