"""The hooks' few lines against the package's model: one word, one epoch, one attempt."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from slurm_dispatch.errors import BadDataError
from slurm_dispatch.model import epoch as model_epoch
from slurm_dispatch.model import identity as model
from tests.hooks import lab  # noqa: F401  puts the hooks' modules on the path

from dispatch_hooks import identity  # isort: skip

PIECES = st.sampled_from(
    ["dispatch", "dispatch:", ":", "a1", "abc", "x" * 32, "x" * 33, "0", "1", "01", "9223371", "9223372", "999999",
     "1000000", ":s", ":S", " ", "  ", "\n", "é", "\t", "-1", "+1", "1_0", "dispatch:abc:0:1",
     "dispatch:k:3:7:s", "٣"]
)  # fmt: skip
COMMENTS = st.lists(PIECES, max_size=8).map("".join)
WORDS = st.builds(
    model.Word,
    job=st.text(model.KEY_CHARACTERS, min_size=1, max_size=32),
    generation=st.integers(0, model_epoch.GENERATION_MAX),
    submission=st.integers(1, model_epoch.SUBMISSION_MAX),
    shared=st.booleans(),
)


def as_tuple(word: object) -> tuple[object, ...] | None:
    return (
        None if word is None else tuple(getattr(word, name) for name in ("job", "generation", "submission", "shared"))
    )


@given(COMMENTS)
@example("dispatch:abc:0:1 dispatch:k:3:7:s")
@example("dispatch:k:3:7:s mine dispatch:abc:0:1 dispatch:abc:0:01")
def test_both_find_the_same_word_in_a_comment(comment: str) -> None:
    assert as_tuple(identity.find_word(comment.encode())) == as_tuple(model.find_word(comment))


@given(WORDS, st.text(max_size=20))
def test_both_read_the_word_that_the_model_writes(word: model.Word, before: str) -> None:
    found = identity.find_word(f"{before} {word}".encode("utf-8", "surrogatepass"))
    assert as_tuple(found) == as_tuple(word)
    assert found.text == str(word)


@given(
    cluster=st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), max_size=20),
    job_id=st.integers(1, 2**32 - 1),
    word=WORDS,
    restart=st.integers(0, 65535),
    start=st.none() | st.integers(0, 2**40),
)
def test_both_compute_the_same_attempt(
    cluster: str, job_id: int, word: model.Word, restart: int, start: int | None
) -> None:
    mine = identity.attempt_of(cluster.encode(), job_id, identity.parse_word(str(word).encode()), restart, start)
    assert mine == model.attempt_of(cluster, job_id, word, restart, start)


@given(WORDS, st.integers(-1, model_epoch.RESTART_MAX + 1))
def test_both_compute_the_same_epoch_and_refuse_the_same(word: model.Word, restart: int) -> None:
    mine = identity.parse_word(str(word).encode())
    try:
        expected = int(model_epoch.Epoch(word.generation, word.submission, restart))
    except BadDataError:
        with pytest.raises(ValueError, match="out of bounds"):
            mine.epoch(restart)
    else:
        assert mine.epoch(restart) == expected


def test_the_bounds_are_the_same() -> None:
    for name in ("GENERATION_MAX", "SUBMISSION_MAX", "RESTART_MAX"):
        assert getattr(identity, name) == getattr(model_epoch, name)
    assert identity.ATTEMPT_LENGTH == model.ATTEMPT_LENGTH
