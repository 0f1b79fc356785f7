"""Strategies for the values of the model."""

from __future__ import annotations

from hypothesis import strategies as st

from slurm_dispatch.model.epoch import GENERATION_MAX, RESTART_MAX, SUBMISSION_MAX, Epoch
from slurm_dispatch.model.publication import PATH_MAX, STEP_MAX, Publication


def epochs() -> st.SearchStrategy[Epoch]:
    """Every epoch, the bounds often."""
    return st.builds(
        Epoch, st.integers(0, GENERATION_MAX), st.integers(1, SUBMISSION_MAX), st.integers(0, RESTART_MAX)
    )


def paths() -> st.SearchStrategy[bytes]:
    """Every path that a publication can carry."""
    many = st.lists(_components(PATH_MAX // 4 - 1), min_size=1, max_size=4).map(b"/".join)
    return st.one_of(many, _components(PATH_MAX))


def _components(longest: int) -> st.SearchStrategy[bytes]:
    component = st.binary(min_size=1, max_size=longest)
    named = component.map(lambda part: part.replace(b"/", b"-").replace(b"\0", b"0"))
    return named.filter(lambda part: part not in {b".", b".."})


@st.composite
def publications(draw: st.DrawFn) -> Publication:
    """Every publication, those of unmanaged runs too."""
    epoch = draw(st.one_of(st.just(0), epochs().map(int)))
    return Publication(epoch, draw(st.integers(0, STEP_MAX)), draw(paths()))
