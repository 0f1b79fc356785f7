"""The publication's name: canonical both ways."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_dispatch.errors import BadDataError
from slurm_dispatch.model.publication import (
    NAME_MAX,
    PATH_MAX,
    PREFIX_LENGTH,
    STEP_MAX,
    Publication,
    check_path,
    decode_path,
    encode_path,
    parse_name,
)
from tests.model.values import paths, publications


@given(publications())
def test_there_and_back(publication: Publication) -> None:
    assert parse_name(publication.name) == publication
    assert len(publication.name) <= NAME_MAX
    assert "/" not in publication.name
    assert publication.name.isascii()


@given(st.text("0123456789-ABCDEFGHIJKLMNOPQRSTUVWXYZ234567abc=\n", max_size=90))
def test_what_parses_is_the_one_name_of_its_value(name: str) -> None:
    try:
        publication = parse_name(name)
    except BadDataError:
        return
    assert publication.name == name


@given(publications(), publications())
def test_the_order_of_names_is_the_order_that_counts(one: Publication, other: Publication) -> None:
    if (one.epoch, one.step) != (other.epoch, other.step):
        assert (one.name < other.name) == ((one.epoch, one.step) < (other.epoch, other.step))


@given(publications(), st.data())
def test_a_changed_character_is_another_value_or_an_error(publication: Publication, data: st.DataObject) -> None:
    name = publication.name
    at = data.draw(st.integers(0, len(name) - 1))
    changed = name[:at] + data.draw(st.characters(codec="ascii")) + name[at + 1 :]
    try:
        assert parse_name(changed).name == changed
    except BadDataError:
        assert changed != name


@given(st.binary(max_size=PATH_MAX))
def test_a_path_is_in_base32(path: bytes) -> None:
    assert encode_path(path) == base64.b32encode(path).decode("ascii").rstrip("=")


@pytest.mark.parametrize("length", range(PATH_MAX + 1))
def test_a_path_of_each_length_is_in_base32(length: int) -> None:
    for path in (b"\0" * length, b"\xff" * length, bytes(range(length))):
        assert encode_path(path) == base64.b32encode(path).decode("ascii").rstrip("=")


@given(paths())
def test_spare_bits_must_be_zero(path: bytes) -> None:
    text = encode_path(path)
    assert decode_path(text) == path
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
    for last in alphabet:
        if last != text[-1]:
            other = text[:-1] + last
            try:
                assert decode_path(other) != path
            except BadDataError:
                continue


def test_the_longest_path_and_one_more_byte() -> None:
    longest = Publication(0, STEP_MAX, b"x" * PATH_MAX)
    assert len(longest.name) == NAME_MAX == PREFIX_LENGTH + len(encode_path(b"x" * PATH_MAX))
    with pytest.raises(BadDataError) as caught:
        Publication(0, 0, b"x" * (PATH_MAX + 1))
    assert "133" in caught.value.line()


@pytest.mark.parametrize("path", [b"", b"/a", b"a/", b"a//b", b".", b"..", b"a/./b", b"../a", b"a/..", b"a\0b"])
def test_paths_that_could_leave_the_root_or_have_two_forms(path: bytes) -> None:
    with pytest.raises(BadDataError):
        check_path(path)
    name = "0" * 20 + "-" + "0" * 20 + "-" + base64.b32encode(path).decode().rstrip("=")
    with pytest.raises(BadDataError, match="not the name of a publication"):
        parse_name(name)


def test_two_forms_of_one_visible_name_are_two_paths() -> None:
    """C129: names are bytes; NFC and NFD are two of them, never merged."""
    composed, decomposed = "modèle".encode(), "mode\u0300le".encode()
    assert (len(composed), len(decomposed)) == (7, 8)
    assert Publication(0, 1, composed).name != Publication(0, 1, decomposed).name


@pytest.mark.parametrize(("path", "attempt"), [(b"exec/abc/x", "abc"), (b"exec/abc", None), (b"other/abc/x", None)])
def test_the_attempt_is_in_the_path(path: bytes, attempt: str | None) -> None:
    assert Publication(0, 1, path).attempt == attempt


@pytest.mark.parametrize("step", [-1, STEP_MAX + 1])
def test_a_step_out_of_bounds(step: int) -> None:
    with pytest.raises(BadDataError, match="step"):
        Publication(0, step, b"a")


def test_the_error_is_one_line_that_names_the_name() -> None:
    with pytest.raises(BadDataError) as caught:
        parse_name("oops\n\x1b[2J")
    assert "oops" in str(caught.value)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("epoch", [1, 999_999, 10**12, 10**12 + 7])
def test_an_epoch_without_a_submission_is_refused(epoch: int) -> None:
    """Submissions begin at 1: only an unmanaged run has 0 there, and its whole epoch is 0."""
    with pytest.raises(BadDataError, match="submission 0"):
        Publication(epoch, 5, b"exec/a/x")
    with pytest.raises(BadDataError, match="submission 0"):
        parse_name(f"{epoch:020d}-{5:020d}-{encode_path(b'exec/a/x')}")
