"""The hooks' own JSON against the standard library's."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.hooks import lab  # noqa: F401  puts the hooks' modules on the path

from dispatch_hooks import flat_json  # isort: skip

TEXT = st.text(st.characters(blacklist_categories=["Cs"]), max_size=30)
SCALARS = st.none() | st.booleans() | st.integers(-(2**62), 2**62) | TEXT | st.floats(0, 1e12)
FLAT = st.dictionaries(TEXT, SCALARS, max_size=8)


@given(st.dictionaries(TEXT, SCALARS | st.lists(st.integers(0, 2**31), max_size=5), max_size=8))
def test_what_is_rendered_reads_as_the_same(fields: dict[str, object]) -> None:
    content = flat_json.render(list(fields.items()))
    assert content.endswith(b"}\n")
    assert content.count(b"\n") == 1
    assert json.loads(content) == fields


@given(FLAT, st.booleans(), st.sampled_from([None, 1]))
def test_reading_agrees_with_the_library(fields: dict[str, object], ascii_only: bool, indent: int | None) -> None:
    content = json.dumps(fields, ensure_ascii=ascii_only, indent=indent).encode()
    assert flat_json.read(content) == fields


@given(FLAT, st.data())
def test_a_torn_object_is_refused(fields: dict[str, object], data: st.DataObject) -> None:
    content = flat_json.render(list(fields.items()))
    cut = data.draw(st.integers(0, len(content) - 2))
    with pytest.raises(ValueError):  # noqa: PT011  any ValueError: it is no evidence
        flat_json.read(content[:cut])


@given(st.binary(max_size=60))
def test_anything_is_read_or_refused(content: bytes) -> None:
    try:
        fields = flat_json.read(content)
    except ValueError:
        return
    assert isinstance(fields, dict)


@pytest.mark.parametrize(
    "content",
    [b"", b"\0" * 40, b"{}{}", b'{"a": [1]}', b'{"a": {}}', b'{"a": 1,}', b'{"a" 1}', b"[1]", b'{"a": "\\x"}',
     b'{"a": "\\u12g4"}', b'{"a": nul}', b'{"a": --1}', b"\xff{}", b'{"a": "b\n"}', b'{"a": 1} x'],
)  # fmt: skip
def test_what_is_not_one_flat_object_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        flat_json.read(content)
