"""The ``#SBATCH`` lines of a script, read as sbatch reads them.

sbatch takes ``#SBATCH`` lines up to the first line that is neither empty nor a comment, splits them by rules of
its own (quotes group, a backslash escapes, ``#`` ends the line) and ends with an error where a quote is not
closed. Nothing is refused here: sbatch does that, and in its own words.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurm_dispatch.slurm.options import Option, Parsed, parse, without_options

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

# What isspace() of the C library takes; Python's own takes more.
_SPACE = " \t\n\v\f\r"
_SPACES = re.compile(f"[{_SPACE}]+")
_SPECIAL = frozenset(f"\\\"'#{_SPACE}")
# sbatch also reads the lines of two other batch systems; of those only what we must know of.
_FOREIGN: dict[bytes, dict[str, str]] = {
    b"#PBS": {"-N": "job-name", "-o": "output", "-e": "error", "-J": "array", "-t": "array"},
    b"#BSUB": {"-J": "job-name", "-o": "output", "-e": "error"},
}


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a script with a magic word before the first command.

    :param number: from 1.
    :param words: its words after the magic word, without a leading ``hetjob``.
    :param bad: a quote is not closed: sbatch ends with an error there, and so must whoever reads our lines.
    """

    number: int
    words: tuple[str, ...]
    hetjob: bool = False
    bad: bool = False


def head(script: bytes) -> Iterator[tuple[int, bytes]]:
    """The lines, with their numbers from 1, that come before the first command."""
    for number, line in enumerate(script.split(b"\n"), 1):
        bare = line.lstrip(_SPACE.encode())
        if bare and not bare.startswith(b"#"):
            return
        yield number, line


def lines_of(script: bytes, *magics: bytes) -> list[Line]:
    """The lines whose first bytes are one of ``magics`` (``#SBATCH``, ``#DISPATCH``), split into words."""
    found: list[Line] = []
    for number, line in head(script):
        for magic in magics:
            if line.startswith(magic):
                found.append(_split(number, line[len(magic) :]))
                break
    return found


def _split(number: int, rest: bytes) -> Line:
    text = rest.decode("utf-8", "surrogateescape").lstrip(_SPACE)
    first, *after = _SPACES.split(text, maxsplit=1)
    hetjob = first.lower() in {"hetjob", "packjob"}
    if hetjob:
        text = after[0] if after else ""
    words: list[str] = []
    at = 0
    while True:
        while at < len(text) and text[at] in _SPACE:
            at += 1
        word, at, closed = _word(text, at)
        if not closed:
            return Line(number, tuple(words), hetjob, bad=True)
        if word is None:
            return Line(number, tuple(words), hetjob)
        words.append(word)


def _word(text: str, at: int) -> tuple[str | None, int, bool]:
    """The next word, where it ends, and whether its quotes are closed; ``None`` at the end or a comment."""
    word: list[str] = []
    quote = ""
    escaped = started = False
    while at < len(text) and (quote or text[at] not in _SPACE):
        char = text[at]
        if escaped:
            escaped = False
        elif char == "\\":
            at += 1
            if text[at : at + 1] != " ":
                escaped = True
                continue
            char = " "
        elif quote:
            if char == quote:
                quote, at = "", at + 1
                continue
        elif char in "\"'":
            quote, at = char, at + 1
            continue
        elif char == "#":
            return ("".join(word) if started else None), len(text), True
        started = True
        word.append(char)
        at += 1
    return ("".join(word) if started else None), at, not quote


def sbatch_options(
    script: bytes, more: Callable[[], Mapping[str, Option]] | None = None
) -> tuple[Parsed, tuple[str, ...], bool]:
    """The options of the ``#SBATCH`` lines, the words that they were read from, and whether they are those of a
    heterogeneous job (the options are then those of its first component)."""
    words: list[str] = []
    for line in lines_of(script, b"#SBATCH", b"#SLURM"):
        if line.hetjob:
            return parse(words, more), tuple(words), True
        words += line.words
    return parse(words, more), tuple(words), False


def foreign_options(script: bytes) -> dict[str, str]:
    """The few options that we look at, from ``#PBS`` or ``#BSUB`` lines; the value is the word that follows."""
    for magic, names in _FOREIGN.items():
        found: dict[str, str] = {}
        for line in lines_of(script, magic):
            for word, value in zip(line.words, (*line.words[1:], ""), strict=False):
                if word in names:
                    found[names[word]] = value
        if found:
            return found
    return {}


def without(script: bytes, names: Collection[str]) -> bytes:
    """The script with the options ``names`` taken out of its ``#SBATCH`` lines, and nothing else changed.

    For what must not be said again by a later submission (``--hold``, ``--begin``, ...). Lines keep their
    numbers; a script that has none of these options comes back as it is.
    """
    lines = script.split(b"\n")
    for number, line in head(script):
        magic = next((magic for magic in (b"#SBATCH", b"#SLURM") if line.startswith(magic)), None)
        if magic is None:
            continue
        split = _split(number, line[len(magic) :])
        kept = without_options(split.words, names)
        if kept != split.words and not split.bad:
            text = " ".join(["#SBATCH", *(["hetjob"] if split.hetjob else []), *map(_quoted, kept)])
            lines[number - 1] = text.encode("utf-8", "surrogateescape")
    return b"\n".join(lines)


def _quoted(word: str) -> str:
    """A word so that sbatch reads it as it is."""
    if not any(char in _SPECIAL for char in word):
        return word
    return '"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"'
