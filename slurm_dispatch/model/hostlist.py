"""Slurm's node lists as text: ``c[1-3,7],gpu[01-02]-ib,login``. Bounded, whatever the text says."""

from __future__ import annotations

import re

from slurm_dispatch.errors import BadDataError, show

NODES_MAX = 65_536
"""Nodes of one list: Slurm's own limit for a cluster."""
TEXT_MAX = 1024 * 1024
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?\Z")
_LITERAL = re.compile(r"[^\s,\[\]]*\Z")

Group = tuple[tuple[int, int, int], ...]
"""One pair of brackets: (first, last, digits) of each range in it."""


def expand(text: str) -> tuple[str, ...]:
    """The names in ``text``, in order, each once.

    :raises BadDataError: it does not parse, or has more than :data:`NODES_MAX` names.
    """
    count(text)
    found: dict[str, None] = {}
    for pieces in _parse(text):
        names = [""]
        for piece in pieces:
            ends = [piece] if isinstance(piece, str) else [f"{n:0{w}d}" for a, b, w in piece for n in range(a, b + 1)]
            names = [name + end for name in names for end in ends]
        found.update(dict.fromkeys(names))
    return tuple(found)


def node_names(text: str) -> tuple[str, ...]:
    """:func:`expand`, and no names where the list does not parse."""
    try:
        return expand(text)
    except BadDataError:
        return ()


def count(text: str) -> int:
    """How many names ``text`` has; a name that is in it twice counts twice.

    :raises BadDataError: as :func:`expand`.
    """
    total = 0
    for pieces in _parse(text):
        size = 1
        for piece in pieces:
            size *= 1 if isinstance(piece, str) else sum(b - a + 1 for a, b, _ in piece)
        total += size
        if total > NODES_MAX:
            raise BadDataError(f"node list '{show(text[:80])}' has more than {NODES_MAX} nodes")
    return total


def _parse(text: str) -> list[list[str | Group]]:
    """Each entry as its literal parts and bracket groups."""
    if len(text) > TEXT_MAX:
        raise BadDataError(f"a node list of {len(text)} characters is longer than {TEXT_MAX}")
    if text in {"", "(null)", "None assigned", "None"}:
        return []
    entries: list[list[str | Group]] = [[]]
    for index, part in enumerate(re.split(r"[\[\]]", text)):
        if index % 2:
            entries[-1].append(_group(part, text))
            continue
        literals = part.split(",")
        for position, literal in enumerate(literals):
            if position:
                entries.append([])
            if not _LITERAL.match(literal):
                raise _refuse(text)
            if literal:
                entries[-1].append(literal)
    opened = text.count("[")
    balanced = opened == text.count("]") and not re.search(r"\[[^\]]*\[|\][^\[]*\]|\A[^\[]*\]", text)
    if not balanced or any(not entry for entry in entries):
        raise _refuse(text)
    return entries


def _group(part: str, text: str) -> Group:
    ranges = []
    for item in part.split(","):
        match = _RANGE.match(item)
        if match is None:
            raise _refuse(text)
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first or last - first >= NODES_MAX:
            raise _refuse(text)
        ranges.append((first, last, len(match[1])))
    return tuple(ranges)


def _refuse(text: str) -> BadDataError:
    return BadDataError(f"node list '{show(text[:80])}' does not parse")


__all__ = ["NODES_MAX", "count", "expand", "node_names"]
