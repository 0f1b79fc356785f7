"""Pickles are read as data: what is in them, nothing of them run, every cut seen."""

from __future__ import annotations

import argparse
import collections
import os
import pickle
import pickletools
import struct
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from slurm_dispatch.savers.inert import (
    LONG_MAX,
    OPCODES,
    CutError,
    Made,
    Name,
    NotInertError,
    Table,
    attribute,
    pairs,
    read_pickle,
)

if TYPE_CHECKING:
    from pathlib import Path

PROTOCOLS = (2, 3, 4, 5)
PLAIN = some.recursive(
    some.none() | some.booleans() | some.integers(-(2**100), 2**100) | some.floats(allow_nan=False) | some.text()
    | some.binary(),
    lambda inner: some.lists(inner) | some.tuples(inner, inner) | some.dictionaries(some.text(), inner),
    max_leaves=20,
)  # fmt: skip


def plain(thing: Any) -> Any:
    """With dictionaries instead of tables."""
    if isinstance(thing, Table):
        return {key: plain(value) for key, value in thing.pairs()}
    if isinstance(thing, (list, tuple)):
        return type(thing)(map(plain, thing))
    return thing


@given(PLAIN, some.sampled_from(PROTOCOLS[1:]))
def test_plain_things_are_themselves(thing: object, protocol: int) -> None:
    assert plain(read_pickle(pickle.dumps(thing, protocol))) == thing


@given(PLAIN, some.data())
def test_every_cut_is_seen(thing: object, data: some.DataObject) -> None:
    whole = pickle.dumps(thing, 4)
    with pytest.raises(CutError):
        read_pickle(whole[: data.draw(some.integers(0, len(whole) - 1))])


@given(some.binary(max_size=400))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        read_pickle(data)
    except NotInertError:
        pass


@given(PLAIN, some.data())
def test_a_changed_byte_is_read_or_refused(thing: object, data: some.DataObject) -> None:
    whole = bytearray(pickle.dumps({"a": Fraction(1, 3), "b": thing}, 4))
    whole[data.draw(some.integers(0, len(whole) - 1))] = data.draw(some.integers(0, 255))
    try:
        read_pickle(bytes(whole))
    except NotInertError:
        pass


class Runs:
    """Unpickled, it makes a file."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (self.path,)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_nothing_is_run(tmp_path: Path, protocol: int) -> None:
    path = tmp_path / "made"
    found = read_pickle(pickle.dumps({"x": Runs(str(path)), "step": 3}, protocol))
    made = found.get("x")
    assert isinstance(made, Made)
    assert made.name.endswith("mkdir")
    assert made.args == (str(path),)
    assert found.get("step") == 3
    assert not path.exists()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_objects_and_their_attributes(protocol: int) -> None:
    args = argparse.Namespace(tensor_model_parallel_size=2, name="x")
    found = read_pickle(pickle.dumps(args, protocol))
    assert attribute(found, "tensor_model_parallel_size") == 2
    assert attribute(found, "nothing") is None
    ordered = collections.OrderedDict(a=1, b=[2])
    again = read_pickle(pickle.dumps([ordered, ordered], protocol))
    assert list(pairs(again[0]) or ()) == [("a", 1), ("b", [2])]
    assert again[0] is again[1]
    assert attribute(again[0], "b") == [2]
    assert pairs([1]) is None
    assert list(pairs(read_pickle(pickle.dumps(collections.OrderedDict(), protocol))) or ()) == []


def test_a_class_is_a_name_and_a_later_key_counts() -> None:
    assert read_pickle(pickle.dumps(Fraction, 4)) == Name("fractions.Fraction")
    found = read_pickle(b"\x80\x02}(X\x01\x00\x00\x00aK\x01X\x01\x00\x00\x00aK\x02u.")
    assert found.get("a") == 2


def test_what_is_refused() -> None:
    for data, why in {
        b"\x80\x04N.more": "behind the end",
        b"\x80\x01N.": "protocol 1",
        b"\x80\x04I1\n.": "not followed",
        b"\x80\x04(cos\nsystem\nX\x01\x00\x00\x00ao.": "not followed",
        b"\x80\x04NN.": "one thing",
        b"\x80\x04\x8a\xff" + b"\1" * 255 + b".": "a number of 255 bytes",
        b"\x80\x04Nr\xff\xff\xff\x7f.": "gaps",
        b"\x80\x04Na.": ".",
        b"\x80\x04t.": ".",
        b"\x80\x04)s.": ".",
        b"\x80\x04N\x85\x86.": "more than there is",
        b"\x80\x04(R.": ".",
        b"c" + b"x" * 5000 + b"\nsystem\n.": "without an end",
    }.items():
        with pytest.raises(NotInertError, match=why):
            read_pickle(data)
    assert LONG_MAX < 255


def test_a_pickle_that_would_take_for_ever_is_refused() -> None:
    with pytest.raises(NotInertError, match="more than 100 opcodes"):
        read_pickle(b"\x80\x04" + b"N0" * 200 + b"N.", steps_max=100)


def test_sizes_in_a_pickle_reserve_no_memory() -> None:
    with pytest.raises(CutError):
        read_pickle(b"\x80\x04\x8e" + struct.pack("<Q", 1 << 60) + b"x.")


def test_the_opcodes_are_those_of_pickletools() -> None:
    known = {ord(opcode.code): opcode.name for opcode in pickletools.opcodes}
    assert {code: name for code, (name, _) in OPCODES.items()}.items() <= known.items()
