"""Node lists: what Slurm writes is read, everything else is refused, and nothing is expanded beyond its bound."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_dispatch.errors import BadDataError
from slurm_dispatch.model.hostlist import NODES_MAX, count, expand


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("c1", ["c1"]),
        ("c[1-3]", ["c1", "c2", "c3"]),
        ("c[1-2,7],login", ["c1", "c2", "c7", "login"]),
        ("gpu[08-11]", ["gpu08", "gpu09", "gpu10", "gpu11"]),
        ("gpu[1-2]-ib", ["gpu1-ib", "gpu2-ib"]),
        ("r[0-1]n[1-2]", ["r0n1", "r0n2", "r1n1", "r1n2"]),
        ("a,a", ["a"]),
        ("", []),
        ("(null)", []),
    ],
)
def test_a_list_is_expanded(text: str, names: list[str]) -> None:
    assert list(expand(text)) == names


@pytest.mark.parametrize(
    "text", ["c[1", "c1]", "c[[1]]", "c[3-1]", "c[a]", "c[]", ",", "a,,b", "a b", "c[1]]", "]c[", "c[1-2-3]"]
)
def test_what_is_no_list_is_refused(text: str) -> None:
    with pytest.raises(BadDataError, match="node list"):
        count(text)
    with pytest.raises(BadDataError, match="node list"):
        expand(text)


@pytest.mark.parametrize(
    "text",
    ["c[0-65536]", "a[1-999]b[1-999]c[1-999]", "c[0-999999999]", pytest.param("x" * (1024 * 1024 + 1), id="long")],
)
def test_a_list_has_a_bound(text: str) -> None:
    with pytest.raises(BadDataError):
        expand(text)


def test_the_greatest_list_is_counted_without_its_names() -> None:
    assert count(f"c[1-{NODES_MAX}]") == NODES_MAX


@settings(derandomize=True, deadline=None)
@given(st.text(alphabet="c1-9[],0 ", max_size=20))
def test_any_text_is_a_list_or_bad_data_and_both_functions_agree(text: str) -> None:
    try:
        names = expand(text)
    except BadDataError:
        with pytest.raises(BadDataError):
            count(text)
        return
    assert len(names) <= count(text)
    assert all(name and "," not in name for name in names)
