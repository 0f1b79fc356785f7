"""The key, the identity word and the attempt."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_dispatch.errors import BadDataError
from slurm_dispatch.model.epoch import GENERATION_MAX, SUBMISSION_MAX
from slurm_dispatch.model.identity import (
    ATTEMPT_LENGTH,
    Word,
    attempt_of,
    check_attempt,
    check_key,
    find_word,
    new_attempt,
    new_key,
    parse_word,
    strip_words,
)

keys = st.text("abcdefghijklmnopqrstuvwxyz0123456789", min_size=1, max_size=32)
words = st.builds(Word, keys, st.integers(0, GENERATION_MAX), st.integers(1, SUBMISSION_MAX), st.booleans())


@given(words)
def test_a_word_there_and_back(word: Word) -> None:
    assert parse_word(str(word)) == word


@given(st.text("dispatch:0123456789as \n", max_size=40))
def test_what_parses_is_written_the_same(text: str) -> None:
    word = parse_word(text)
    assert word is None or str(word) == text


@pytest.mark.parametrize(
    "text",
    ["", "dispatch:a:0:0", "dispatch:a:01:1", "dispatch:a:0:01", "dispatch:A:0:1", "dispatch:a:0:1:x",
     "dispatch:a:0:1 ", "Dispatch:a:0:1", "dispatch:a:9999999:1", "dispatch:a:0:1\n", "dispatch::0:1",
     "dispatch:" + "a" * 33 + ":0:1", "dispatch:a:0:٣"],
)  # fmt: skip
def test_what_is_not_exactly_a_word_is_somebody_elses(text: str) -> None:
    assert parse_word(text) is None


@given(st.text(max_size=40), words)
def test_the_word_at_the_end_of_any_comment_is_found_and_taken_away(comment: str, word: Word) -> None:
    assert find_word(f"{comment} {word}") == word
    assert strip_words(f"{comment} {word}") == strip_words(comment)


def test_the_last_word_wins() -> None:
    assert find_word("dispatch:a:0:1 mine dispatch:b:1:2:s") == Word("b", 1, 2, True)
    assert find_word("nothing here") is None


def test_keys_and_attempts_are_plain_names() -> None:
    for _ in range(50):
        check_key(new_key())
        assert len(check_attempt(new_attempt())) == ATTEMPT_LENGTH
    for bad in ("", ".", "..", "a/b", "A", "a" * 41, "a\n", "ä"):
        with pytest.raises(BadDataError):
            check_attempt(bad)
        with pytest.raises(BadDataError):
            check_key(bad)


executions = st.tuples(
    st.sampled_from(["c", "cluster", ""]), st.integers(1, 2**31), words, st.integers(0, 9),
    st.one_of(st.none(), st.integers(0, 2**33)),
)  # fmt: skip


@given(executions, executions)
def test_an_attempt_is_different_for_every_execution(
    one: tuple[str, int, Word, int, int | None], other: tuple[str, int, Word, int, int | None]
) -> None:
    """C113: the folder of one execution is never the folder of another."""
    assert (attempt_of(*one) == attempt_of(*other)) == (one == other)
    check_attempt(attempt_of(*one))


def test_the_attempt_has_one_known_value() -> None:
    """The hooks compute it too: a change here would part the two."""
    assert attempt_of("alpha", 101, Word("abc", 0, 1), 0, 1_700_000_000) == "wo4sg4dcvkoewdpjfsxt"
