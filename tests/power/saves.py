"""Saves as trainings write them, and with a content that their name decides."""

from __future__ import annotations

import hashlib
import os
import random
from dataclasses import dataclass
from pathlib import Path

SMALL = 200_000
"""Bytes at most of a file that is copied when it is kept."""
LARGE = (1 << 20) + 4097
"""Bytes of a file that is linked."""
MARKER = "done"


@dataclass(frozen=True)
class Style:
    """How a training saves.

    :ivar large: it has a file that is linked, not copied.
    :ivar single: the save is one file.
    :ivar synced: the training syncs what it writes.
    :ivar copy: the keeper copies files of every size.
    :ivar sync: publishing syncs the save's files.
    """

    name: str
    large: bool = False
    single: bool = False
    synced: bool = False
    copy: bool = False
    sync: bool = False

    @property
    def whole_when_kept(self) -> bool:
        """Its bytes are on disk once it is kept: copies are, and what the training synced."""
        return not self.large or self.synced or self.copy

    @property
    def whole_when_published(self) -> bool:
        """Its bytes are on disk once it is published."""
        return self.whole_when_kept or self.sync


STYLES = {
    style.name: style
    for style in (
        Style("small"),
        Style("file", single=True),
        Style("large", large=True, synced=True),
        Style("largefile", large=True, single=True, synced=True),
        Style("copied", large=True, copy=True),
        Style("lazy", large=True, sync=True),
        Style("careless", large=True),
    )
}
"""All of them; of ``careless`` nothing is promised but that it is never taken for whole if it is not."""


def content(name: str, size: int) -> bytes:
    """What a file of this name and size has in it: nothing of it is zero, and no two files are alike."""
    block = hashlib.sha256(name.encode()).hexdigest().encode()
    return (block * (size // len(block) + 1))[:size]


def files(name: str, style: Style) -> dict[str, int]:
    """The files of the save ``name`` and their sizes; of a single one the name is empty."""
    rng = random.Random(name)
    if style.single:
        return {"": LARGE if style.large else rng.randrange(1, SMALL)}
    found = {f"part{number}": rng.randrange(1, SMALL) for number in range(rng.randrange(1, 4))}
    found["sub/optimizer"] = rng.randrange(1, SMALL)
    if style.large:
        found["weights"] = LARGE
    found[MARKER] = 3
    return found


def write(path: str, style: Style) -> None:
    """Write the save at ``path``; its last component is its name."""
    name = os.path.basename(path)
    for file, size in files(name, style).items():
        target = Path(path, file) if file else Path(path)
        target.parent.mkdir(exist_ok=True)
        with target.open("wb") as stream:
            stream.write(content(f"{name}/{file}", size))
            if style.synced:
                stream.flush()
                os.fsync(stream.fileno())


def broken(path: str, style: Style) -> str:
    """What is wrong with the save at ``path``; empty if every byte is there."""
    name = os.path.basename(path)
    wanted = files(name, style)
    for file, size in wanted.items():
        target = Path(path, file) if file else Path(path)
        try:
            found = target.read_bytes()
        except OSError as error:
            return f"{file or name}: {error.strerror}"
        if found != content(f"{name}/{file}", size):
            zeros = found.count(0)
            return f"{file or name}: {len(found)} bytes of {size}, {zeros} of them zero"
    if not style.single:
        there = {str(p.relative_to(path)) for p in Path(path).rglob("*") if not p.is_dir()}
        if there != set(wanted):
            return f"it has {sorted(there ^ set(wanted))} too much or too little"
    return ""
