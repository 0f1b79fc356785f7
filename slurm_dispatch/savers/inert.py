"""A pickle read as data: its opcodes are followed, and nothing that it names is imported, called or made.

Savers keep what a save consists of in pickles: ``.metadata`` of ``torch.distributed.checkpoint``, and the
``data.pkl`` in each file of ``torch.save``. ``pickle.load`` would run what they say. Here a name becomes a
:class:`Name`, and what the pickle would have made by calling it becomes a :class:`Made`, which only holds what the
call would have got. Numbers, texts, lists, tuples and dictionaries are themselves; a dictionary is a :class:`Table`,
so that no key of it is ever hashed. The opcodes of protocols 2 to 5 are followed, as far as ``pickle`` and
``torch.save`` write them (https://docs.python.org/3/library/pickletools.html, Python 3.13; the list is
:data:`OPCODES`); any other is refused, and so are more than :data:`STEPS_MAX` of them.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

STEPS_MAX = 30_000_000
"""Opcodes of one pickle: some twenty seconds of this reader, and more than 64 MiB of ``.metadata`` have."""
LONG_MAX = 64
"""Bytes of one whole number; sizes and steps have 8, seeds a few more."""
NAME_MAX = 4096
"""Bytes of one part of a name."""


class NotInertError(ValueError):
    """The bytes are not one pickle, or one with opcodes or sizes that are not followed here."""


class CutError(NotInertError):
    """The bytes end before the pickle does."""


@dataclass(frozen=True, slots=True)
class Name:
    """A name of a module that the pickle would have imported: ``collections.OrderedDict``."""

    text: str


class Table:
    """A dictionary in the order of the pickle; a later pair with the same key stands behind the earlier one."""

    __slots__ = ("flat",)

    def __init__(self) -> None:
        self.flat: list[Any] = []
        """Key, value, key, value: a list of pairs would take three times the memory."""

    def pairs(self) -> Iterator[tuple[Any, Any]]:
        """The pairs in their order."""
        return zip(self.flat[::2], self.flat[1::2], strict=True)

    def get(self, key: str) -> Any:
        """The value of a text key, ``None`` if it is not there."""
        found = None
        for name, value in self.pairs():
            if isinstance(name, str) and name == key:
                found = value
        return found


class Made:
    """What the pickle would have made by a call.

    :ivar of: what it would have called; a :class:`Name` in all that savers write.
    :ivar args: what the call would have got.
    :ivar state: what would have been set on it then: usually a :class:`Table` of its attributes, ``None`` if nothing.
    :ivar items: the pairs that would have been put into it, ``None`` if there were none.
    :ivar members: the members that would have been put into it, ``None`` if there were none.
    """

    __slots__ = ("args", "items", "members", "of", "state")

    def __init__(self, of: Any, args: Any) -> None:
        self.of = of
        self.args = args
        self.state: Any = None
        self.items: Table | None = None
        self.members: list[Any] | None = None

    @property
    def name(self) -> str:
        """The dotted name of what would have been called, empty if it is not a name."""
        return self.of.text if isinstance(self.of, Name) else ""


def attribute(thing: object, name: str) -> Any:
    """An attribute or an item of what would have been made, or the value of a key; ``None`` if there is none."""
    if isinstance(thing, Table):
        return thing.get(name)
    if not isinstance(thing, Made):
        return None
    # The state of a class with slots is a pair: its dictionary and its slots.
    parts = thing.state if isinstance(thing.state, tuple) else (thing.state,)
    for part in (thing.items, *parts):
        found = part.get(name) if isinstance(part, Table) else None
        if found is not None:
            return found
    return None


def pairs(thing: object) -> Iterator[tuple[Any, Any]] | None:
    """The pairs of a dictionary, also of an ``OrderedDict`` or ``defaultdict``; ``None`` of anything else."""
    if isinstance(thing, Made) and thing.name in {"collections.OrderedDict", "collections.defaultdict"}:
        thing = thing.items or Table()
    return thing.pairs() if isinstance(thing, Table) else None


def read_pickle(data: bytes, *, steps_max: int = STEPS_MAX) -> Any:
    """Follow the one pickle that ``data`` is, to its end.

    :raises CutError: it ends before the pickle does.
    :raises NotInertError: it is longer than the pickle, or has something that is not followed.
    """
    reader = _Reader(data, steps_max)
    try:
        value = reader.run()
    except (IndexError, UnicodeDecodeError) as error:
        if reader.at >= len(data):
            raise CutError("a pickle that is cut") from error
        raise NotInertError(f"no pickle, at byte {reader.at}") from error
    if reader.at != len(data):
        raise NotInertError(f"{len(data) - reader.at} bytes behind the end of a pickle")
    return value


_MARK = object()


class _Reader:
    """One pass over the opcodes. ``at`` is the next byte."""

    def __init__(self, data: bytes, steps_max: int) -> None:
        self.data = data
        self.at = 0
        self.steps_max = steps_max
        self.stack: list[Any] = []
        self.memo: list[Any] = []

    def run(self) -> Any:
        data, stack, table = self.data, self.stack, _TABLE
        for _ in range(self.steps_max):
            code = data[self.at]
            self.at += 1
            if code == _STOP:
                if len(stack) != 1 or stack[0] is _MARK:
                    raise NotInertError("a pickle that does not leave one thing")
                return stack[0]
            step = table[code]
            if step is None:
                raise NotInertError(f"opcode {code:#04x} at byte {self.at - 1} is not followed")
            step(self)
        raise NotInertError(f"a pickle of more than {self.steps_max} opcodes")

    # How the arguments of opcodes stand in the bytes.

    def take(self, length: int) -> bytes:
        part = self.data[self.at : self.at + length]
        if len(part) != length:
            raise CutError("a pickle that is cut")
        self.at += length
        return part

    def number(self, length: int) -> int:
        return int.from_bytes(self.take(length), "little")

    def line(self) -> str:
        end = self.data.find(b"\n", self.at, self.at + NAME_MAX)
        if end < 0:
            cut = len(self.data) - self.at < NAME_MAX
            raise CutError("a pickle that is cut") if cut else NotInertError("a name without an end in a pickle")
        text = self.data[self.at : end].decode("utf-8")
        self.at = end + 1
        return text

    def marked(self) -> list[Any]:
        """What stands above the last mark, which goes too."""
        stack = self.stack
        at = len(stack) - 1
        while stack[at] is not _MARK:
            at -= 1
            if at < 0:
                raise NotInertError("a pickle without the mark that it counts on")
        found = stack[at + 1 :]
        del stack[at:]
        return found

    def pop(self) -> Any:
        value = self.stack.pop()
        if value is _MARK:
            raise NotInertError("a pickle that takes its own mark")
        return value

    # Putting into what stands on the stack.

    def put_pairs(self, found: list[Any]) -> None:
        target = self.stack[-1]
        if isinstance(target, Made):
            target.items = target.items or Table()
            target = target.items
        if not isinstance(target, Table) or len(found) % 2:
            raise NotInertError("a pickle that sets items on what has none")
        target.flat += found

    def put_members(self, found: list[Any]) -> None:
        target = self.stack[-1]
        if isinstance(target, Made):
            target.members = target.members or []
            target = target.members
        if not isinstance(target, list):
            raise NotInertError("a pickle that appends to what is no list")
        target += found

    def make(self, args: Any, of: Any) -> None:
        self.stack.append(Made(of, args))

    def build(self) -> None:
        state = self.pop()
        target = self.stack[-1]
        if isinstance(target, Made):
            target.state = state

    def global_line(self) -> None:
        module = self.line()
        self.stack.append(Name(f"{module}.{self.line()}"))

    def global_stack(self) -> None:
        name, module = self.pop(), self.pop()
        if not (isinstance(name, str) and isinstance(module, str)):
            raise NotInertError("a pickle with a name that is not text")
        self.stack.append(Name(f"{module}.{name}"))

    def reduce(self) -> None:
        args = self.pop()
        self.make(args, self.pop())

    def reduce_named(self) -> None:
        named, args = self.pop(), self.pop()
        self.make((args, named), self.pop())

    def long(self, length: int) -> None:
        if length > LONG_MAX:
            raise NotInertError(f"a number of {length} bytes in a pickle")
        self.stack.append(int.from_bytes(self.take(length), "little", signed=True))

    def recall(self, index: int) -> None:
        self.stack.append(self.memo[index])

    def remember(self, index: int) -> None:
        memo = self.memo
        if index == len(memo):
            memo.append(self.stack[-1])
        elif index < len(memo):
            memo[index] = self.stack[-1]
        else:
            raise NotInertError("a pickle whose memo has gaps")  # no writer makes them, and they could cost memory

    def tuple_of(self, length: int) -> None:
        stack = self.stack
        if len(stack) < length:
            raise NotInertError("a pickle that takes more than there is")
        found = tuple(stack[-length:])
        del stack[-length:]
        stack.append(found)

    def frozen(self) -> None:
        self.stack.append(tuple(self.marked()))


def _pushes(value: Callable[[_Reader], Any]) -> Callable[[_Reader], None]:
    def step(reader: _Reader) -> None:
        reader.stack.append(value(reader))

    return step


def _text(width: int) -> Callable[[_Reader], None]:
    return _pushes(lambda reader: reader.take(reader.number(width)).decode("utf-8", "surrogatepass"))


def _bytes(width: int) -> Callable[[_Reader], None]:
    return _pushes(lambda reader: reader.take(reader.number(width)))


OPCODES: dict[int, tuple[str, Callable[[_Reader], None]]] = {
    0x80: ("PROTO", lambda r: _protocol(r.number(1))),
    0x95: ("FRAME", lambda r: _none(r.take(8))),
    ord("("): ("MARK", _pushes(lambda _: _MARK)),
    ord("0"): ("POP", lambda r: _none(r.stack.pop())),
    ord("1"): ("POP_MARK", lambda r: _none(r.marked())),
    ord("2"): ("DUP", lambda r: r.stack.append(r.stack[-1])),
    ord("N"): ("NONE", _pushes(lambda _: None)),
    0x88: ("NEWTRUE", _pushes(lambda _: True)),
    0x89: ("NEWFALSE", _pushes(lambda _: False)),
    ord("K"): ("BININT1", _pushes(lambda r: r.number(1))),
    ord("M"): ("BININT2", _pushes(lambda r: r.number(2))),
    ord("J"): ("BININT", _pushes(lambda r: struct.unpack("<i", r.take(4))[0])),
    0x8A: ("LONG1", lambda r: r.long(r.number(1))),
    0x8B: ("LONG4", lambda r: r.long(r.number(4))),
    ord("G"): ("BINFLOAT", _pushes(lambda r: struct.unpack(">d", r.take(8))[0])),
    0x8C: ("SHORT_BINUNICODE", _text(1)),
    ord("X"): ("BINUNICODE", _text(4)),
    0x8D: ("BINUNICODE8", _text(8)),
    ord("U"): ("SHORT_BINSTRING", _bytes(1)),
    ord("C"): ("SHORT_BINBYTES", _bytes(1)),
    ord("B"): ("BINBYTES", _bytes(4)),
    0x8E: ("BINBYTES8", _bytes(8)),
    0x96: ("BYTEARRAY8", _bytes(8)),
    ord(")"): ("EMPTY_TUPLE", _pushes(lambda _: ())),
    0x85: ("TUPLE1", lambda r: r.tuple_of(1)),
    0x86: ("TUPLE2", lambda r: r.tuple_of(2)),
    0x87: ("TUPLE3", lambda r: r.tuple_of(3)),
    ord("t"): ("TUPLE", lambda r: r.frozen()),
    ord("]"): ("EMPTY_LIST", _pushes(lambda _: [])),
    ord("a"): ("APPEND", lambda r: r.put_members([r.pop()])),
    ord("e"): ("APPENDS", lambda r: r.put_members(r.marked())),
    ord("l"): ("LIST", _pushes(lambda r: r.marked())),
    ord("}"): ("EMPTY_DICT", _pushes(lambda _: Table())),
    ord("s"): ("SETITEM", lambda r: r.put_pairs([r.pop(), r.pop()][::-1])),
    ord("u"): ("SETITEMS", lambda r: r.put_pairs(r.marked())),
    0x8F: ("EMPTY_SET", _pushes(lambda _: [])),
    0x90: ("ADDITEMS", lambda r: r.put_members(r.marked())),
    0x91: ("FROZENSET", lambda r: r.frozen()),
    ord("q"): ("BINPUT", lambda r: r.remember(r.number(1))),
    ord("r"): ("LONG_BINPUT", lambda r: r.remember(r.number(4))),
    0x94: ("MEMOIZE", lambda r: r.remember(len(r.memo))),
    ord("h"): ("BINGET", lambda r: r.recall(r.number(1))),
    ord("j"): ("LONG_BINGET", lambda r: r.recall(r.number(4))),
    ord("c"): ("GLOBAL", lambda r: r.global_line()),
    0x93: ("STACK_GLOBAL", lambda r: r.global_stack()),
    ord("R"): ("REDUCE", lambda r: r.reduce()),
    0x81: ("NEWOBJ", lambda r: r.reduce()),
    0x92: ("NEWOBJ_EX", lambda r: r.reduce_named()),
    ord("b"): ("BUILD", lambda r: r.build()),
    ord("Q"): ("BINPERSID", _pushes(lambda r: Made(Name("persistent"), r.pop()))),
}
"""What is followed, by opcode: its name in ``pickletools``, and what it does here."""

_STOP = ord(".")
_TABLE = [OPCODES[code][1] if code in OPCODES else None for code in range(256)]


def _none(_: Any) -> None:
    return None


def _protocol(number: int) -> None:
    if not 2 <= number <= 5:
        raise NotInertError(f"a pickle of protocol {number}")
